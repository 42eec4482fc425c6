from collections.abc import Mapping
from typing import Any

import pytest

from call_counts import calls_in
from mooring.model.events import Kind
from mooring.model.node import ZONE
from mooring.model.objects import object_key, parse_object
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.volumes.model.storage_objects import CSISource
from storage_builders import pv, pvc, storage_class

Raw = Mapping[str, Any]

CSI = {"csi": {"driver": "csi.example", "volumeHandle": "h1"}}
UNBOUND = "unbound:default/data"


def source(*objects: Raw) -> CSISource | None:
    return cluster(*objects).storage.attachable.source("default/data")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ((), None),
        ((pvc("data"),), None),
        ((pvc("data", volume="v"), pv("v", spec=CSI)), CSISource("csi.example", "h1")),
        (
            (
                pvc("data", volume="v"),
                pv("v", spec={"gcePersistentDisk": {"pdName": "d"}}, labels={ZONE: "z"}),
            ),
            CSISource("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/z/disks/d"),
        ),
        ((pvc("data", volume="v"), pv("v", spec={"nfs": {}})), None),
        ((pvc("data", volume="v"), pv("v", spec={"csi": {"driver": "csi.example"}})), None),
        (
            (pvc("data", storage_class="fast"), storage_class("fast", provisioner="csi.example")),
            CSISource("csi.example", UNBOUND),
        ),
        (
            (
                pvc("data", storage_class="fast", volume="gone"),
                storage_class("fast", provisioner="csi.example"),
            ),
            CSISource("csi.example", UNBOUND),
        ),
        (
            (
                pvc("data", storage_class="fast"),
                storage_class("fast", provisioner="kubernetes.io/aws-ebs"),
            ),
            CSISource("ebs.csi.aws.com", UNBOUND),
        ),
        (
            (
                pvc("data", storage_class="fast"),
                storage_class("fast", provisioner="kubernetes.io/azure-file"),
            ),
            None,
        ),
        ((pvc("data", storage_class="none"),), None),
    ],
)
def test_a_claim_stands_for_its_volume_or_for_one_that_its_class_makes(
    objects: tuple[Raw, ...], expected: CSISource | None
) -> None:
    assert source(*objects) == expected


WEB = pod("web", node="n1", claims=["data"])
MADE = storage_class("fast", provisioner="csi.example")


def put(state: ClusterState, raw: Raw) -> None:
    kind = Kind(raw["kind"])
    state.put(kind, object_key(kind, raw), parse_object(kind, raw))


def used(state: ClusterState) -> set[str]:
    """Return the handles of the volumes that pods on n1 use."""
    known = state.storage.attachments
    row = state.nodes.row_of["n1"]
    handles = ("h1", "h2", UNBOUND)
    return {
        handle for handle in handles if row in known.rows_using(CSISource("csi.example", handle))
    }


def test_the_pods_of_a_claim_follow_it_from_its_class_to_its_volume() -> None:
    state = cluster(node("n1"), WEB)
    assert used(state) == set()
    for raw, expected in (
        (pvc("data", storage_class="fast"), set()),
        (MADE, {UNBOUND}),
        (pvc("data", storage_class="fast", volume="v"), {UNBOUND}),
        (pv("v", spec=CSI), {"h1"}),
        (pv("v", spec={"csi": {"driver": "csi.example", "volumeHandle": "h2"}}), {"h2"}),
    ):
        put(state, raw)
        assert used(state) == expected
    state.delete(Kind.PERSISTENT_VOLUME, "v")
    assert used(state) == {UNBOUND}
    state.delete(Kind.STORAGE_CLASS, "fast")
    assert used(state) == set()


def calls_of_a_change(claims: int, after: Raw) -> int:
    """Return the number of function calls when one of `claims` bound claims becomes `after`."""
    state = cluster(node("n1"), MADE)
    for n in range(claims):
        put(state, pv(f"v{n}", spec=CSI))
        put(state, pvc(f"c{n}", storage_class="fast", volume=f"v{n}"))
        put(state, pod(f"p{n}", node="n1", claims=[f"c{n}"]))
    return calls_in(lambda: put(state, after), with_c=False)


@pytest.mark.parametrize("provisioner", ["csi.example", "other.example"])
def test_claims_that_have_volumes_are_left_alone_when_their_class_changes(provisioner: str) -> None:
    """A list of classes may come with 50,000 claims, and putting a class blocks decisions."""
    after = storage_class("fast", provisioner=provisioner)
    assert calls_of_a_change(20, after) == calls_of_a_change(2, after)


def test_every_pod_of_a_claim_follows_it() -> None:
    other = pod("other", node="n1", claims=["data", "data"])
    state = cluster(node("n1"), WEB, other, pvc("data", volume="v"), pv("v", spec=CSI))
    assert used(state) == {"h1"}
    state.delete(Kind.POD, uid_of("web"))
    assert used(state) == {"h1"}
    state.delete(Kind.POD, uid_of("other"))
    assert used(state) == set()


def test_the_disk_of_a_pod_is_used_as_its_driver_knows_it() -> None:
    disk = {"name": "d", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}
    state = cluster(node("n1"), pod("web", node="n1", spec={"volumes": [disk]}))
    source = CSISource("ebs.csi.aws.com", "vol-1")
    assert [*state.storage.attachments.rows_using(source)] == [state.nodes.row_of["n1"]]
    state.delete(Kind.POD, uid_of("web"))
    assert not state.storage.attachments.rows_using(source)
