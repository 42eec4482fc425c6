from collections.abc import Mapping
from typing import Any

import pytest

from mooring.framework.hints import queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import handle
from mooring.volumes.volume_restrictions import VolumeRestrictions
from plugin_answers import PluginAnswers, Rejected
from storage_builders import pvc

Raw = Mapping[str, Any]

NODES = (node("n1"), node("n2"))
NO_DISK = Rejected(("node(s) had no available disk",), resolvable=True)
ALREADY_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
IN_USE = Rejected((ALREADY_IN_USE,), resolvable=True)
ONCE = pvc("data", modes=("ReadWriteOncePod",))


def with_volumes(*sources: Raw, name: str = "web", **fields: Any) -> Raw:
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    return pod(name, spec={"volumes": volumes}, **fields)


def gce(name: str = "d", *, read_only: bool = False) -> Raw:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(*, read_only: bool = False) -> Raw:
    return {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}}


def iscsi(*, read_only: bool = False) -> Raw:
    return {"iscsi": {"iqn": "iqn.a", "targetPortal": "t", "lun": 0, "readOnly": read_only}}


def rbd(*monitors: str, read_only: bool = False) -> Raw:
    return {"rbd": {"monitors": [*monitors], "image": "i", "readOnly": read_only}}


@pytest.mark.parametrize(
    ("there", "wanted", "shared"),
    [
        (gce(), gce(), False),
        (gce(), gce("other"), True),
        (gce(read_only=True), gce(read_only=True), True),
        (gce(read_only=True), gce(), False),
        (ebs(read_only=True), ebs(read_only=True), False),
        (iscsi(), iscsi(), False),
        (iscsi(read_only=True), iscsi(read_only=True), True),
        (rbd("a", "b"), rbd("b", "c"), False),
        (rbd("a"), rbd("b"), True),
        (rbd("a", read_only=True), rbd("a", read_only=True), True),
    ],
)
def test_a_disk_can_be_had_where_no_pod_has_it_already(
    there: Raw, wanted: Raw, *, shared: bool
) -> None:
    asking = PluginAnswers(VolumeRestrictions, *NODES, with_volumes(there, name="there", node="n1"))
    assert asking.rejections(with_volumes(wanted)) == ({} if shared else {"n1": NO_DISK})


def test_a_read_write_once_pod_claim_in_use_rejects_all_nodes() -> None:
    user = pod("user", node="n1", claims=["data"])
    asking = PluginAnswers(VolumeRestrictions, *NODES, ONCE, user)
    assert asking.rejections(pod(claims=["data"])) == {"n1": IN_USE, "n2": IN_USE}


def test_where_both_a_disk_and_a_claim_are_taken_the_disk_is_the_reason() -> None:
    user = with_volumes(gce(), {"persistentVolumeClaim": {"claimName": "data"}}, node="n1")
    asking = PluginAnswers(VolumeRestrictions, *NODES, ONCE, user)
    wanted = with_volumes(gce(), {"persistentVolumeClaim": {"claimName": "data"}}, name="other")
    assert asking.rejections(wanted) == {"n1": NO_DISK, "n2": IN_USE}


def test_a_claim_is_free_again_once_its_pod_has_gone() -> None:
    asking = PluginAnswers(
        VolumeRestrictions, *NODES, ONCE, pod("user", node="n1", claims=["data"])
    )
    with asking.state.trial() as trial:
        trial.remove(uid_of("user"))
        assert asking.rejections(pod(claims=["data"])) is None


def test_a_claim_is_free_while_the_node_of_its_pod_does_not_exist() -> None:
    user = pod("user", node="n1", claims=["data"])
    asking = PluginAnswers(VolumeRestrictions, *NODES, ONCE, user)
    asking.state.delete(Kind.NODE, "n1")
    assert asking.rejections(pod(claims=["data"])) is None
    asking.state.put(Kind.NODE, "n1", parse_object(Kind.NODE, node("n1")))
    assert asking.rejections(pod(claims=["data"])) == {"n1": IN_USE, "n2": IN_USE}


def test_claims_that_several_pods_may_use_do_not_matter() -> None:
    asking = PluginAnswers(
        VolumeRestrictions, *NODES, pvc("data"), pod("u", node="n1", claims=["data"])
    )
    assert asking.rejections(pod(claims=["data"])) is None


def test_a_pod_without_such_volumes_is_skipped() -> None:
    asking = PluginAnswers(VolumeRestrictions, *NODES, ONCE)
    assert asking.rejections(pod()) is None
    assert asking.rejections(pod(claims=["data"])) is None
    assert asking.rejections(with_volumes({"cinder": {"volumeID": "c1"}})) is None


def test_a_claim_must_exist() -> None:
    state = cluster(*NODES)
    plugin = VolumeRestrictions(NoArgs(), handle(state))
    cluster_view = ClusterView(state)
    rejected = plugin.pre_filter(parse_pod(pod(claims=["data"])), cluster_view)
    assert rejected == Unschedulable('persistentvolumeclaim "data" not found', resolvable=False)
    ephemeral = with_volumes({"ephemeral": {"volumeClaimTemplate": {}}})
    assert plugin.pre_filter(parse_pod(ephemeral), cluster_view) is SKIP


def deleted(raw: Raw) -> ClusterEvent:
    return ClusterEvent(Kind.POD, Action.DELETE, parse_object(Kind.POD, raw), None)


def claim_added(raw: Raw) -> ClusterEvent:
    kind = Kind.PERSISTENT_VOLUME_CLAIM
    return ClusterEvent(kind, Action.ADD, None, parse_object(kind, raw))


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (deleted(with_volumes(gce())), True),
        (deleted(with_volumes(gce("other"))), False),
        (deleted(with_volumes(gce(), namespace="team-a")), True),
        (deleted(pod(claims=["data"])), True),
        (deleted(pod(claims=["other"])), False),
        (deleted(pod(namespace="team-a", claims=["data"])), False),
        (deleted(pod()), False),
        (claim_added(pvc("data")), True),
        (claim_added(pvc("data", namespace="team-a")), False),
        (claim_added(pvc("other")), False),
        (ClusterEvent(Kind.NODE, Action.ADD, None, parse_object(Kind.NODE, node("n3"))), True),
        (ClusterEvent(Kind.NODE, Action.DELETE, parse_object(Kind.NODE, node("n1")), None), True),
    ],
)
def test_events_that_free_a_volume_of_the_pod_or_add_its_claim_queue(
    event: ClusterEvent, *, expected: bool
) -> None:
    state = cluster()
    plugin = VolumeRestrictions(NoArgs(), handle(state))
    assert (event.kind, event.action) in plugin.events_to_register
    waiting = parse_pod(with_volumes(gce(), CLAIM))
    assert plugin.queueing_hint(waiting, event, ClusterView(state)) is queue_if(expected)
