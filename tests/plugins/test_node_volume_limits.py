from collections.abc import Mapping
from typing import Any

import pytest

from mooring.framework.hints import queue_if
from mooring.framework.registry import NoArgs
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.plugins.node_volume_limits import NodeVolumeLimits
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import handle
from mooring.testing.storage_builders import (
    csi_node,
    pv,
    pvc,
    storage_class,
    volume_attachment,
)
from plugin_answers import PluginAnswers, Rejected

Raw = Mapping[str, Any]

FULL = Rejected(("node(s) exceed max volume count",), resolvable=True)
DRIVER = "csi.example"
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def bound(number: int) -> tuple[Raw, Raw]:
    """Return a claim `c<number>` and its volume."""
    source = {"csi": {"driver": DRIVER, "volumeHandle": f"h{number}"}}
    return pvc(f"c{number}", volume=f"v{number}"), pv(f"v{number}", spec=source)


def asking(*objects: Raw, limit: int | None = 2) -> PluginAnswers:
    """Return answers about two nodes with one limit and four bound claims, and the objects."""
    claims = [raw for number in range(4) for raw in bound(number)]
    nodes = [raw for n in ("n1", "n2") for raw in (node(n), csi_node(n, {DRIVER: limit}))]
    return PluginAnswers(NodeVolumeLimits, *nodes, *claims, *objects)


def user(*claims: str, name: str = "user", on: str = "n1") -> Raw:
    return pod(name, node=on, claims=claims)


def with_volume(source: Raw, **fields: Any) -> Raw:
    return pod(spec={"volumes": [{"name": "v", **source}]}, **fields)


def test_a_node_takes_volumes_up_to_the_limit() -> None:
    assert asking(user("c0")).rejections(pod(claims=["c1"])) == {}
    assert asking(user("c0", "c1")).rejections(pod(claims=["c2"])) == {"n1": FULL}
    assert asking(user("c0")).rejections(pod(claims=["c1", "c2"])) == {"n1": FULL}
    assert asking().rejections(pod(claims=["c0", "c1", "c2"])) == {"n1": FULL, "n2": FULL}


def test_a_volume_that_is_there_already_is_not_one_more() -> None:
    users = (user("c0", name="a"), user("c0", "c1", name="b"))
    assert asking(*users).rejections(pod(claims=["c1"])) == {}
    assert asking(*users).rejections(pod(claims=["c1", "c2"])) == {"n1": FULL}


def test_a_node_already_over_its_limit_still_takes_pods_that_add_nothing() -> None:
    assert asking(user("c0", "c1", "c2")).rejections(pod(claims=["c2"])) == {}


def test_without_a_csi_node_or_a_count_there_is_no_limit() -> None:
    assert asking(user("c0", "c1"), limit=None).rejections(pod(claims=["c2"])) == {}
    alone = PluginAnswers(NodeVolumeLimits, node("n1"), *bound(0), *bound(1), user("c0"))
    assert alone.rejections(pod(claims=["c1"])) == {}


def test_a_volume_that_is_attached_without_a_pod_counts() -> None:
    attached = [volume_attachment(f"va{n}", DRIVER, "n1", f"v{n}") for n in (0, 1)]
    assert asking(*attached).rejections(pod(claims=["c2"])) == {"n1": FULL}
    assert asking(*attached, user("c0")).rejections(pod(claims=["c2"])) == {"n1": FULL}


def test_a_pods_own_volume_counts_twice_while_only_its_attachment_is_left() -> None:
    attached = volume_attachment("va", DRIVER, "n1", "v0")
    assert asking(attached, user("c1")).rejections(pod(claims=["c0"])) == {"n1": FULL}
    assert asking(attached).rejections(pod(claims=["c0"])) == {}


def test_the_volumes_that_a_class_will_make_count_for_its_provisioner() -> None:
    made = storage_class("made", provisioner=DRIVER)
    claims = [pvc(f"m{n}", storage_class="made") for n in range(3)]
    assert asking(made, *claims, user("m0", "m1")).rejections(pod(claims=["m2"])) == {"n1": FULL}
    assert asking(made, *claims, user("m0", "m1")).rejections(pod(claims=["m1"])) == {}


def test_in_tree_disks_count_for_the_driver_that_takes_them_over() -> None:
    limits = csi_node("n1", {"ebs.csi.aws.com": 0})
    assert PluginAnswers(NodeVolumeLimits, node("n1"), limits).rejections(with_volume(EBS)) == {
        "n1": FULL
    }
    other = {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}
    there = with_volume(other, name="there", node="n1")
    assert (
        PluginAnswers(NodeVolumeLimits, node("n1"), limits, there).rejections(with_volume(EBS))
        == {}
    )


def test_a_pod_that_leaves_frees_its_volumes() -> None:
    full = asking(user("c0", "c1"))
    with full.state.trial() as trial:
        trial.remove(uid_of("user"))
        assert full.rejections(pod(claims=["c2"])) == {}


def test_a_pod_without_volumes_that_count_is_skipped() -> None:
    assert asking().rejections(pod()) is None
    assert asking().rejections(with_volume({"rbd": {"monitors": ["a"], "image": "i"}})) is None
    assert asking().rejections(with_volume({"iscsi": {"iqn": "a"}})) is None
    hosted = (pv("v", spec={"hostPath": {"path": "/"}}), pvc("hosted", volume="v"))
    assert asking(*hosted).rejections(pod(claims=["hosted"])) is None


def test_a_claim_that_does_not_exist_rejects_all_nodes_and_is_not_resolvable() -> None:
    reason = 'looking up PVC default/none: persistentvolumeclaim "none" not found'
    missing = Rejected((reason,), resolvable=False)
    assert asking().rejections(pod(claims=["c0", "none"])) == {"n1": missing, "n2": missing}


def event(kind: Kind, before: Raw | None, after: Raw | None) -> ClusterEvent:
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    parsed = [raw and parse_object(kind, raw) for raw in (before, after)]
    return ClusterEvent(kind, action, *parsed)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event(Kind.CSI_NODE, None, csi_node("n1", {})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {DRIVER: 2})), True),
        (event(Kind.CSI_NODE, csi_node("n", {}), csi_node("n", {DRIVER: 1})), False),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {DRIVER: None})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), None), True),
        (event(Kind.NODE, None, node("n2")), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 2}), csi_node("n", {DRIVER: 1})), False),
        (event(Kind.POD, user("c0"), None), True),
        (event(Kind.POD, with_volume(EBS, node="n1"), None), True),
        (event(Kind.POD, pod(node="n1"), None), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data")), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data", namespace="team-a")), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("other")), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, pvc("data"), pvc("data", volume="v")), True),
        (event(Kind.VOLUME_ATTACHMENT, volume_attachment("va", "x", "n1", "v"), None), True),
    ],
)
def test_events_that_free_volumes_raise_limits_or_add_the_claim_queue(
    happened: ClusterEvent, *, expected: bool
) -> None:
    state = cluster()
    plugin = NodeVolumeLimits(NoArgs(), handle(state))
    assert (happened.kind, happened.action) in plugin.events_to_register
    assert plugin.queueing_hint(
        parse_pod(pod(claims=["data"])), happened, ClusterView(state)
    ) is queue_if(expected)


@pytest.mark.parametrize(("driver", "expected"), [("ebs.csi.aws.com", True), ("x", False)])
def test_a_pod_with_a_disk_waits_for_its_own_driver_to_detach(
    driver: str, *, expected: bool
) -> None:
    state = cluster()
    plugin = NodeVolumeLimits(NoArgs(), handle(state))
    detached = event(Kind.VOLUME_ATTACHMENT, volume_attachment("va", driver, "n1", "v"), None)
    assert plugin.queueing_hint(
        parse_pod(with_volume(EBS)), detached, ClusterView(state)
    ) is queue_if(expected)
