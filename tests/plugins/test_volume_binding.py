from collections.abc import Mapping
from typing import Any

import pytest

from asking import Asking, Refusal
from mooring.framework.verdicts import Refused
from mooring.model.changes import Action, Change, Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.plugins.volume_binding import VolumeBinding
from mooring.policy.args import VolumeBindingArgs
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle
from mooring.testing.storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

Raw = Mapping[str, Any]

NODES = (node("n1"), node("n2"))
STATIC, MADE = storage_class("static"), storage_class("made", provisioner="csi.example")
WEB = pod(claims=["data"])
PENDING = pvc("data", storage_class="static")
TO_MAKE = pvc("data", storage_class="made")
LOCAL = [pv(f"v{n}", nodes=(f"n{n}",), storage_class="static") for n in (1, 2)]

NOT_REACHED = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
UNCREATED = "waiting for ephemeral volume controller to create the"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def refusal(*reasons: str) -> Refusal:
    return Refusal(reasons, resolvable=False)


def with_ephemeral() -> Raw:
    return pod(spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]})


def claim(**metadata: Any) -> Raw:
    """The claim of the pod's ephemeral volume, with these metadata."""
    raw = pvc("web-scratch", storage_class="static")
    return {**raw, "metadata": raw["metadata"] | metadata}


def owned_by(uid: str) -> dict[str, Any]:
    owner = {"kind": "Pod", "name": "web", "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


@pytest.mark.parametrize(
    ("objects", "wanted", "reason"),
    [
        ((), WEB, 'persistentvolumeclaim "data" not found'),
        (
            (),
            with_ephemeral(),
            f'{UNCREATED} persistentvolumeclaim "web-scratch"',
        ),
        (
            (claim(),),
            with_ephemeral(),
            "PVC default/web-scratch was not created for pod default/web (pod is not owner)",
        ),
        (
            (claim(**owned_by("another")),),
            with_ephemeral(),
            "PVC default/web-scratch was not created for pod default/web (pod is not owner)",
        ),
        (
            (pvc("data", volume="v") | {"status": {"phase": "Lost"}},),
            WEB,
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        (
            (claim(name="data", deletionTimestamp="2026-01-01T00:00:00Z"),),
            WEB,
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            (pvc("data", storage_class="now"), storage_class("now", waits=False)),
            WEB,
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            (pvc("data", storage_class="none"),),
            WEB,
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            (pvc("data", storage_class="static", spec={"volumeName": "v"}), STATIC),
            WEB,
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_keeps_the_pod_from_every_node(
    objects: tuple[Raw, ...], wanted: Raw, reason: str
) -> None:
    state = cluster(*NODES, *objects)
    plugin = VolumeBinding(VolumeBindingArgs(), handle(state))
    said = plugin.pre_filter(parse_pod(wanted), Snapshot(state))
    assert said == Refused(reason, resolvable=False)


def test_an_ephemeral_claim_of_the_pods_own_is_like_any_other() -> None:
    mine = claim(**owned_by(with_ephemeral()["metadata"]["uid"]))
    asking = Asking(VolumeBinding, *NODES, STATIC, LOCAL[0], mine)
    assert asking.refusals(with_ephemeral()) == {"n2": refusal(NO_VOLUME)}


def test_a_pod_without_claims_is_skipped() -> None:
    assert Asking(VolumeBinding, *NODES).refusals(pod()) is None


def test_every_obstacle_of_a_node_is_named_and_no_eviction_helps() -> None:
    bound = (pv("v", nodes=("n1",), claim="default/old"), pvc("old", volume="v"))
    asking = Asking(VolumeBinding, *NODES, STATIC, *bound, PENDING)
    assert asking.refusals(pod(claims=["old", "data"])) == {
        "n1": refusal(NO_VOLUME),
        "n2": refusal(NOT_REACHED, NO_VOLUME),
    }


def test_too_little_space_and_missing_volumes_are_named() -> None:
    driver = csi_driver("csi.example", storage_capacity=True)
    room = storage_capacity("c", "made", "1Gi", {HOSTNAME: "n1"})
    asking = Asking(VolumeBinding, *NODES, MADE, driver, room, TO_MAKE)
    assert asking.refusals(WEB) == {"n2": refusal(NO_SPACE)}
    gone = Asking(VolumeBinding, *NODES, pvc("data", volume="gone"))
    assert gone.refusals(WEB) == {"n1": refusal(VOLUME_GONE), "n2": refusal(VOLUME_GONE)}


def test_a_claim_mentioned_twice_takes_one_volume() -> None:
    asking = Asking(VolumeBinding, *NODES, STATIC, *LOCAL, PENDING)
    assert asking.refusals(pod(claims=["data", "data"])) == {}


def change(kind: Kind, before: Raw | None, after: Raw | None) -> Change:
    parsed = [raw and parse_object(kind, raw) for raw in (before, after)]
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    return Change(kind, action, *parsed)


CAPACITY = storage_capacity("c", "made", "1Gi")
LIMITED, UNLIMITED = csi_driver("x", storage_capacity=True), csi_driver("x")
TOPOLOGIES = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (change(Kind.STORAGE_CLASS, None, STATIC), True),
        (change(Kind.STORAGE_CLASS, STATIC, STATIC), False),
        (
            change(
                Kind.STORAGE_CLASS, STATIC, storage_class("static", allowedTopologies=TOPOLOGIES)
            ),
            True,
        ),
        (change(Kind.PERSISTENT_VOLUME_CLAIM, None, PENDING), True),
        (change(Kind.PERSISTENT_VOLUME_CLAIM, PENDING, pvc("data", volume="v")), True),
        (change(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("other")), False),
        (change(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data", namespace="team-a")), False),
        (change(Kind.PERSISTENT_VOLUME, None, LOCAL[0]), True),
        (change(Kind.PERSISTENT_VOLUME, LOCAL[0], LOCAL[0]), True),
        (change(Kind.NODE, None, NODES[0]), True),
        (change(Kind.NODE, NODES[0], node("n1", zone="a")), True),
        (change(Kind.NODE, NODES[0], node("n1", cpu="9")), False),
        (change(Kind.CSI_NODE, None, csi_node("n1", {})), True),
        (change(Kind.CSI_NODE, csi_node("n1", {}), csi_node("n1", {}, migrated=["x"])), True),
        (change(Kind.CSI_NODE, csi_node("n1", {}), csi_node("n1", {"x": 1})), False),
        (change(Kind.CSI_STORAGE_CAPACITY, None, CAPACITY), True),
        (
            change(Kind.CSI_STORAGE_CAPACITY, CAPACITY, storage_capacity("c", "made", "2Gi")),
            True,
        ),
        (change(Kind.CSI_STORAGE_CAPACITY, CAPACITY, CAPACITY), False),
        (change(Kind.CSI_DRIVER, LIMITED, UNLIMITED), True),
        (change(Kind.CSI_DRIVER, LIMITED, None), True),
        (change(Kind.CSI_DRIVER, UNLIMITED, LIMITED), False),
        (change(Kind.CSI_DRIVER, UNLIMITED, None), False),
        (change(Kind.PERSISTENT_VOLUME, pv("v", claim="default/data"), None), True),
        (change(Kind.PERSISTENT_VOLUME, pv("v"), None), False),
        (change(Kind.POD, pod("unbound", node="n1", claims=["d"], phase="Pending"), None), True),
        (change(Kind.POD, pod("ran", node="n1", claims=["d"]), None), False),
        (change(Kind.POD, pod("diskless", node="n1", phase="Pending"), None), False),
    ],
)
def test_what_brings_volumes_claims_or_room_may_cure(happened: Change, *, expected: bool) -> None:
    state = cluster()
    plugin = VolumeBinding(VolumeBindingArgs(), handle(state))
    assert (happened.kind, happened.action) in plugin.wakes_on
    assert plugin.cures(parse_pod(WEB), happened, Snapshot(state)) is expected
