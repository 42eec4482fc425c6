from collections.abc import Mapping
from typing import Any

import pytest

from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import handle
from mooring.volumes.node_volume_limits import NodeVolumeLimits
from plugin_answers import PluginAnswers, Rejected
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_class,
    volume_attachment,
)

Raw = Mapping[str, Any]

FULL = Rejected(("node(s) exceed max volume count",), resolvable=True)
DRIVER = "csi.example"
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def bound(number: int) -> tuple[Raw, Raw]:
    """Return a claim `c<number>` and its volume."""
    source = {"csi": {"driver": DRIVER, "volumeHandle": f"h{number}"}}
    return pvc(f"c{number}", volume=f"v{number}"), pv(f"v{number}", spec=source)


def asking(*objects: Raw, limit: int | None = 2) -> PluginAnswers:
    """Return a plugin and a cluster: these objects, two nodes with a limit, four bound claims."""
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


def test_a_profile_may_disable_pre_filter() -> None:
    asked = asking(user("c0", "c1"))
    assert asked.rejections(pod(claims=["c2"]), pre_filter=False) == {"n1": FULL}
    assert asked.rejections(pod(), pre_filter=False) == {}
    for claims in (["c2", "none"], ["none"]):
        alike = pod(claims=claims)
        assert asked.rejections(alike, pre_filter=False) == asked.rejections(alike)


MISSING = Rejected((f"{DRIVER} CSI driver is not installed on the node",), resolvable=True)
REQUIRED = csi_driver(DRIVER, required_on_node=True)


def without_driver(*objects: Raw, kubernetes: str = "1.37") -> PluginAnswers:
    """Return a plugin and a cluster: nodes with the driver, with another, without a CSINode."""
    nodes = [node(name) for name in ("has", "other", "none")]
    csi_nodes = [csi_node("has", {DRIVER: None}), csi_node("other", {"x.example": 1})]
    return PluginAnswers(
        NodeVolumeLimits, *nodes, *csi_nodes, *bound(0), *objects, kubernetes=kubernetes
    )


def test_a_driver_that_has_to_be_on_the_node_rejects_nodes_without_it() -> None:
    wanted = pod(claims=["c0"])
    assert without_driver(REQUIRED).rejections(wanted) == {"other": MISSING, "none": MISSING}
    assert without_driver(csi_driver(DRIVER)).rejections(wanted) == {}
    assert without_driver().rejections(wanted) == {}
    assert without_driver(REQUIRED, kubernetes="1.36").rejections(wanted) == {}


def test_a_driver_has_to_be_there_for_volumes_that_its_class_will_make() -> None:
    made, waiting = storage_class("made", provisioner=DRIVER), pvc("m", storage_class="made")
    asked = without_driver(REQUIRED, made, waiting)
    assert asked.rejections(pod(claims=["m"])) == {"other": MISSING, "none": MISSING}


def test_in_tree_disks_need_their_driver_only_on_nodes_with_a_csi_node() -> None:
    driver = "ebs.csi.aws.com"
    asked = without_driver(csi_driver(driver, required_on_node=True))
    missing = Rejected((f"{driver} CSI driver is not installed on the node",), resolvable=True)
    assert asked.rejections(with_volume(EBS)) == {"has": missing, "other": missing}
    in_tree = storage_class("gp2", provisioner="kubernetes.io/aws-ebs")
    asked = without_driver(
        csi_driver(driver, required_on_node=True), in_tree, pvc("m", storage_class="gp2")
    )
    assert asked.rejections(pod(claims=["m"])) == {"has": missing, "other": missing}


def test_of_several_missing_drivers_the_first_by_name_is_told_and_limits_come_last() -> None:
    second = csi_driver("a.example", required_on_node=True)
    source = {"csi": {"driver": "a.example", "volumeHandle": "h"}}
    asked = PluginAnswers(
        NodeVolumeLimits,
        *(node(name) for name in ("full", "lacking", "neither")),
        csi_node("full", {DRIVER: 0, "a.example": 1}),
        csi_node("lacking", {"a.example": 1}),
        *bound(0),
        pvc("a", volume="va"),
        pv("va", spec=source),
        REQUIRED,
        second,
    )
    first = Rejected(("a.example CSI driver is not installed on the node",), resolvable=True)
    assert asked.rejections(pod(claims=["c0", "a"])) == {
        "full": FULL,
        "lacking": MISSING,
        "neither": first,
    }


def event(kind: Kind, before: Raw | None, after: Raw | None) -> ClusterEvent:
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    parsed = [raw and parse_object(kind, raw) for raw in (before, after)]
    return ClusterEvent(kind, action, *parsed)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event(Kind.CSI_NODE, None, csi_node("n1", {})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {DRIVER: 2})), True),
        (event(Kind.CSI_NODE, csi_node("n", {}), csi_node("n", {DRIVER: None})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), csi_node("n", {DRIVER: None})), True),
        (event(Kind.CSI_NODE, csi_node("n", {DRIVER: 1}), None), True),
        (event(Kind.CSI_DRIVER, REQUIRED, None), True),
        (event(Kind.CSI_DRIVER, REQUIRED, csi_driver(DRIVER)), True),
        (event(Kind.CSI_DRIVER, REQUIRED, REQUIRED), False),
        (event(Kind.CSI_DRIVER, csi_driver(DRIVER), REQUIRED), False),
        (event(Kind.CSI_DRIVER, csi_driver(DRIVER), None), False),
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
        (event(Kind.STORAGE_CLASS, storage_class("s"), storage_class("s")), False),
        (
            event(Kind.STORAGE_CLASS, storage_class("s", provisioner=DRIVER), storage_class("s")),
            True,
        ),
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


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        (with_volume(EBS, node="n1"), True),
        (pod(claims=["data"], node="n1"), True),
        (pod(claims=["other"], node="n1"), False),
        (pod(claims=["data"], node="n1", namespace="team-a"), False),
        (pod(node="n1"), False),
    ],
)
def test_a_pod_that_brings_one_of_the_volumes_to_its_node_queues(
    came: Raw, *, expected: bool
) -> None:
    ebs, other = (
        {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{n}"}} for n in (1, 2)
    )
    asked = PluginAnswers(
        NodeVolumeLimits,
        pv("v", spec=ebs),
        pv("w", spec=other),
        pvc("data", volume="v"),
        pvc("other", volume="w"),
        pvc("data", volume="w", namespace="team-a"),
    )
    assert asked.queueing_hint(pod(claims=["data"]), after=came) == expected


def test_before_1_37_a_driver_that_comes_to_a_node_frees_nothing() -> None:
    asked = PluginAnswers(NodeVolumeLimits, kubernetes="1.36")
    came = {"before": csi_node("n", {}), "after": csi_node("n", {DRIVER: 1})}
    assert not asked.queueing_hint(pod(claims=["data"]), **came)
    assert not asked.queueing_hint(pod(claims=["data"]), before=REQUIRED)


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


def test_a_pod_with_an_ephemeral_volume_waits_for_any_volume_to_be_detached() -> None:
    state = cluster()
    plugin = NodeVolumeLimits(NoArgs(), handle(state))
    detached = event(Kind.VOLUME_ATTACHMENT, volume_attachment("va", "x", "n1", "v"), None)
    waiting = parse_pod(with_volume({"ephemeral": {"volumeClaimTemplate": {}}}))
    assert plugin.queueing_hint(waiting, detached, ClusterView(state)) is QueueingHint.QUEUE
