from collections.abc import Mapping
from typing import Any

import pytest

from mooring.framework.hints import queue_if
from mooring.framework.verdicts import Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle
from mooring.volumes.model.storage_objects import (
    parse_persistent_volume,
    parse_persistent_volume_claim,
)
from mooring.volumes.volume_binding.plugin import (
    VolumeBinding,
    VolumeBindingArgs,
    binding_patch,
    selected_node_patch,
)
from plugin_answers import PluginAnswers, Rejected
from storage_builders import (
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

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
UNCREATED = "waiting for ephemeral volume controller to create the"
PV_NOT_EXIST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def rejection(*reasons: str) -> Rejected:
    return Rejected(reasons, resolvable=False)


def with_ephemeral() -> Raw:
    return pod(spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]})


def claim(**metadata: Any) -> Raw:
    """Return the claim of the pod's ephemeral volume, with these fields in its metadata."""
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
    said = plugin.pre_filter(parse_pod(wanted), ClusterView(state))
    assert said == Unschedulable(reason, resolvable=False)


def test_an_ephemeral_claim_of_the_pods_own_is_like_any_other() -> None:
    mine = claim(**owned_by(with_ephemeral()["metadata"]["uid"]))
    asking = PluginAnswers(VolumeBinding, *NODES, STATIC, LOCAL[0], mine)
    assert asking.rejections(with_ephemeral()) == {"n2": rejection(BIND_CONFLICT)}


def test_a_pod_without_claims_is_skipped() -> None:
    assert PluginAnswers(VolumeBinding, *NODES).rejections(pod()) is None


def test_every_obstacle_of_a_node_is_named_and_no_eviction_helps() -> None:
    bound = (pv("v", nodes=("n1",), claim="default/old"), pvc("old", volume="v"))
    asking = PluginAnswers(VolumeBinding, *NODES, STATIC, *bound, PENDING)
    assert asking.rejections(pod(claims=["old", "data"])) == {
        "n1": rejection(BIND_CONFLICT),
        "n2": rejection(NODE_CONFLICT, BIND_CONFLICT),
    }


def test_too_little_space_and_missing_volumes_are_named() -> None:
    driver = csi_driver("csi.example", storage_capacity=True)
    room = storage_capacity("c", "made", "1Gi", {HOSTNAME: "n1"})
    asking = PluginAnswers(VolumeBinding, *NODES, MADE, driver, room, TO_MAKE)
    assert asking.rejections(WEB) == {"n2": rejection(NOT_ENOUGH_SPACE)}
    gone = PluginAnswers(VolumeBinding, *NODES, pvc("data", volume="gone"))
    assert gone.rejections(WEB) == {"n1": rejection(PV_NOT_EXIST), "n2": rejection(PV_NOT_EXIST)}


@pytest.mark.parametrize(
    ("size", "capacity", "rounded", "exact"),
    [
        ("1500m", "1500m", True, True),
        ("1600m", "1500m", True, False),
        ("1601e-3", "1.6", True, False),
        ("2", "1.000000001", True, False),
        ("1000000001n", "1", False, False),
        ("20E", "10E", True, False),
        ("10E", "800E", True, True),
    ],
)
@pytest.mark.parametrize("limit", ["capacity", "maximumVolumeSize"])
def test_sizes_of_new_volumes_are_compared_in_bytes_and_exactly_since_1_38(
    limit: str, size: str, capacity: str, *, rounded: bool, exact: bool
) -> None:
    driver = csi_driver("csi.example", storage_capacity=True)
    room = storage_capacity("c", "made", "1Ei", {}) | {limit: capacity}
    claim = pvc("data", storage_class="made", size=size)
    for kubernetes, fits in (("1.37", rounded), ("1.38", exact)):
        asking = PluginAnswers(
            VolumeBinding, node("n1"), MADE, driver, room, claim, kubernetes=kubernetes
        )
        expected = {} if fits else {"n1": rejection(NOT_ENOUGH_SPACE)}
        assert asking.rejections(WEB) == expected, kubernetes


@pytest.mark.parametrize(
    ("before", "after", "rounded", "exact"),
    [
        ("1500m", "1600m", False, True),
        ("1", "1000000001n", True, True),
        ("16e-1", "1.6", False, False),
        ("1600m", "1500m", False, False),
        ("10E", "20E", False, True),
    ],
)
def test_a_capacity_that_grows_by_less_than_a_byte_queues_the_pod_since_1_38(
    before: str, after: str, *, rounded: bool, exact: bool
) -> None:
    was, now = (storage_capacity("c", "made", size) for size in (before, after))
    for kubernetes, queues in (("1.37", rounded), ("1.38", exact)):
        asking = PluginAnswers(VolumeBinding, kubernetes=kubernetes)
        assert asking.queueing_hint(WEB, before=was, after=now) is queues, kubernetes


def test_a_claim_mentioned_twice_takes_one_volume() -> None:
    asking = PluginAnswers(VolumeBinding, *NODES, STATIC, *LOCAL, PENDING)
    assert asking.rejections(pod(claims=["data", "data"])) == {}


def event(kind: Kind, before: Raw | None, after: Raw | None) -> ClusterEvent:
    parsed = [raw and parse_object(kind, raw) for raw in (before, after)]
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    return ClusterEvent(kind, action, *parsed)


CAPACITY = storage_capacity("c", "made", "1Gi")
LIMITED, UNLIMITED = csi_driver("x", storage_capacity=True), csi_driver("x")
TOPOLOGIES = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event(Kind.STORAGE_CLASS, None, STATIC), True),
        (event(Kind.STORAGE_CLASS, STATIC, STATIC), False),
        (
            event(
                Kind.STORAGE_CLASS, STATIC, storage_class("static", allowedTopologies=TOPOLOGIES)
            ),
            True,
        ),
        (event(Kind.STORAGE_CLASS, storage_class("static", waits=False), STATIC), True),
        (event(Kind.STORAGE_CLASS, storage_class("made"), MADE), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, PENDING), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, PENDING, pvc("data", volume="v")), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("other")), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data", namespace="team-a")), False),
        (event(Kind.PERSISTENT_VOLUME, None, LOCAL[0]), True),
        (event(Kind.PERSISTENT_VOLUME, LOCAL[0], LOCAL[0]), True),
        (event(Kind.NODE, None, NODES[0]), True),
        (event(Kind.NODE, NODES[0], node("n1", zone="a")), True),
        (event(Kind.NODE, NODES[0], node("n1", cpu="9")), False),
        (event(Kind.CSI_NODE, None, csi_node("n1", {})), True),
        (event(Kind.CSI_NODE, csi_node("n1", {}), csi_node("n1", {}, migrated=["x"])), True),
        (event(Kind.CSI_NODE, csi_node("n1", {}), csi_node("n1", {"x": 1})), False),
        (event(Kind.CSI_STORAGE_CAPACITY, None, CAPACITY), True),
        (
            event(Kind.CSI_STORAGE_CAPACITY, CAPACITY, storage_capacity("c", "made", "2Gi")),
            True,
        ),
        (event(Kind.CSI_STORAGE_CAPACITY, CAPACITY, CAPACITY), False),
        (event(Kind.CSI_DRIVER, LIMITED, UNLIMITED), True),
        (event(Kind.CSI_DRIVER, LIMITED, None), True),
        (event(Kind.CSI_DRIVER, UNLIMITED, LIMITED), False),
        (event(Kind.CSI_DRIVER, UNLIMITED, None), False),
        (event(Kind.PERSISTENT_VOLUME, pv("v", claim="default/data"), None), True),
        (event(Kind.PERSISTENT_VOLUME, pv("v"), None), False),
        (event(Kind.POD, pod("unbound", node="n1", claims=["d"], phase="Pending"), None), True),
        (event(Kind.POD, pod("ran", node="n1", claims=["d"]), None), False),
        (event(Kind.POD, pod("diskless", node="n1", phase="Pending"), None), False),
    ],
)
def test_events_that_may_give_a_claim_a_volume_queue_the_pod(
    happened: ClusterEvent, *, expected: bool
) -> None:
    state = cluster()
    plugin = VolumeBinding(VolumeBindingArgs(), handle(state))
    assert (happened.kind, happened.action) in plugin.events_to_register
    assert plugin.queueing_hint(parse_pod(WEB), happened, ClusterView(state)) is queue_if(expected)


def versioned(raw: dict[str, object], version: str) -> dict[str, object]:
    metadata = raw["metadata"]
    assert isinstance(metadata, dict)
    return raw | {"metadata": metadata | {"resourceVersion": version}}


VOLUME = parse_persistent_volume(versioned(pv("v"), "7"))
CLAIM = parse_persistent_volume_claim(versioned(pvc("data", namespace="team-a"), "8"))


def test_a_volume_is_bound_as_the_volume_controller_would_and_only_if_it_has_not_changed() -> None:
    assert binding_patch(VOLUME, CLAIM, prebound=False) == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "team-a",
                "name": "data",
                "uid": CLAIM.uid,
                "resourceVersion": "8",
            }
        },
    }


def test_a_prebound_volume_is_not_annotated_as_bound_by_a_controller() -> None:
    assert binding_patch(VOLUME, CLAIM, prebound=True)["metadata"] == {"resourceVersion": "7"}


def test_a_claim_is_sent_to_its_node_only_if_it_has_not_changed() -> None:
    assert selected_node_patch(CLAIM, "n1") == {
        "metadata": {
            "resourceVersion": "8",
            "annotations": {"volume.kubernetes.io/selected-node": "n1"},
        }
    }
