"""The events that may make an unschedulable pod schedulable, and the signatures of pods."""

import logging
from collections.abc import Hashable
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

from device_builders import allocated, device_claim, request
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.framework.diagnosis import EXTENDER
from mooring.framework.handle import Handle
from mooring.framework.post_filter import PostFilterState
from mooring.framework.registry import ENTRY_POINT_GROUP, NoArgs, Registry
from mooring.framework.verdicts import Explanation, Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.queue.kept_events import EventLog
from mooring.scheduling.queue.run_hints import QueueingHints
from mooring.scheduling.queue.unschedulable import UnschedulablePods
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import (
    cluster,
    node,
    pdb,
    pod,
    pod_group,
    queue_object,
    service,
    uid_of,
)
from mooring.testing.fakes import handle, pipeline, queued_pod


class Undeclared:
    """A plugin that rejects every node and registers for no events."""

    name: ClassVar[str] = "Undeclared"
    depends_on_node_only: ClassVar[bool] = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def filter(self, _pod: Pod, nodes: NodeView, _state: None) -> BoolArray:
        return np.zeros(len(nodes.rows), bool)

    def explain(self, _pod: Pod, nodes: NodeView, _state: None) -> Explanation:
        return Explanation.single("no", len(nodes.rows), resolvable=False)


class Broken(Undeclared):
    """A plugin whose hint raises an error, or returns no hint if the label `hint` says so."""

    name: ClassVar[str] = "Broken"
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.UPDATE)}
    )

    def queueing_hint(self, pod: Pod, _event: ClusterEvent, _cluster: ClusterView) -> Any:
        if pod.labels.get("hint") == "wrong":
            return False
        raise KeyError("no such thing")


class Evicting:
    """A third-party PostFilter plugin."""

    name: ClassVar[str] = "Evicting"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def post_filter(self, _state: PostFilterState) -> Unschedulable:
        return Unschedulable("nothing to evict")


class OfTheSite(Undeclared):
    """A plugin of another distribution that may read the whole pod."""

    name: ClassVar[str] = "OfTheSite"
    depends_on_node_only: ClassVar[bool] = False


class OfTheSiteByNode(Undeclared):
    """A plugin of another distribution that reads nothing of the pod but its spec."""

    name: ClassVar[str] = "OfTheSiteByNode"


class OfTheSiteAtPermit:
    """A plugin of another distribution that is node-only, since it has no filter or score."""

    name: ClassVar[str] = "OfTheSiteAtPermit"
    depends_on_node_only: ClassVar[bool] = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def permit(self, _pod: Pod, _node: str) -> Unschedulable:
        return Unschedulable("not approved")


ANNOUNCED = {
    each.name: EntryPoint(each.name, f"{__name__}:{each.__name__}", ENTRY_POINT_GROUP)
    for each in (OfTheSite, OfTheSiteByNode, OfTheSiteAtPermit)
}
REGISTRY = Registry((*SHIPPED, Undeclared, Broken, Evicting), ANNOUNCED)

BIGGER = ClusterEvent(
    Kind.NODE, Action.UPDATE, parse_node(node("a", cpu="1")), parse_node(node("a", cpu="8"))
)
A_SERVICE = ClusterEvent(Kind.SERVICE, Action.ADD, None, service("front", {"app": "web"}))


FILTERS = ("Undeclared", "Broken", "OfTheSite", "OfTheSiteByNode")
PIPELINE = pipeline(
    registry=REGISTRY,
    plugins={
        "filter": {"enabled": [{"name": name} for name in FILTERS]},
        "permit": {"enabled": [{"name": "OfTheSiteAtPermit"}]},
    },
)


@pytest.fixture
def state() -> ClusterState:
    return cluster(node("a", cpu="8"))


@pytest.fixture
def queueing_hint(state: ClusterState) -> QueueingHints:
    return QueueingHints(handle(state))


def rejected(*plugins: str, name: str = "web", **fields: Any) -> QueuedPod:
    return queued_pod(
        pod(name, **{"cpu": "2"} | fields),
        PIPELINE,
        queue=SubQueue.UNSCHEDULABLE,
        unschedulable_plugins=frozenset(plugins),
    )


def worth(hints: QueueingHints, queued: QueuedPod, event: ClusterEvent) -> bool:
    """Return whether an event may help the pod, if it comes while the pod is unschedulable."""
    return hints.is_worth_requeuing(queued, event, during_attempt=False)


def left(name: str, **fields: Any) -> ClusterEvent:
    return ClusterEvent(Kind.POD, Action.DELETE, parse_pod(pod(name, cpu="2", **fields)), None)


def test_pods_of_one_spec_rejected_by_node_only_plugins_share_a_signature(
    queueing_hint: QueueingHints,
) -> None:
    one = rejected("NodeResourcesFit", name="one", labels={"app": "one"})
    other = rejected("NodeResourcesFit", name="other", labels={"app": "other"})
    assert queueing_hint.signature(one) == queueing_hint.signature(other)


def test_pods_rejected_by_other_plugins_share_a_signature_only_with_equal_labels(
    queueing_hint: QueueingHints,
) -> None:
    by = ("NodeResourcesFit", "InterPodAffinity")
    one = rejected(*by, name="one", labels={"app": "one"})
    like_it = rejected(*by, name="like-it", labels={"app": "one"})
    other = rejected(*by, name="other", labels={"app": "other"})
    assert queueing_hint.signature(one) == queueing_hint.signature(like_it)
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


@pytest.mark.parametrize(
    "owner", [None, {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"}]
)
def test_a_pod_that_an_extender_has_rejected_has_another_signature_once_it_is_relabelled(
    queueing_hint: QueueingHints, owner: dict[str, str] | None
) -> None:
    """The queue does not retry a relabelled pod that keeps its signature."""
    before = rejected("NodeResourcesFit", EXTENDER, name="waits", labels={"app": "one"})
    labels = {"app": "two" if owner is None else "one"}
    after = rejected("NodeResourcesFit", EXTENDER, name="waits", labels=labels, owner=owner)
    assert before.pod.uid == after.pod.uid
    assert queueing_hint.signature(before) != queueing_hint.signature(after)


def test_a_pod_that_a_plugin_of_the_site_has_rejected_shares_its_signature_with_no_other(
    queueing_hint: QueueingHints,
) -> None:
    for plugin in ("OfTheSite", "OfTheSiteAtPermit"):
        one, other = (rejected("NodeResourcesFit", plugin, name=name) for name in ("a", "b"))
        assert queueing_hint.signature(one) != queueing_hint.signature(other)
    alike = [
        rejected("InterPodAffinity", "OfTheSiteByNode", name=name, labels={"app": "web"})
        for name in ("a", "b")
    ]
    assert queueing_hint.signature(alike[0]) == queueing_hint.signature(alike[1])


@pytest.mark.parametrize("by", ["OfTheSite", "OfTheSiteAtPermit", EXTENDER])
def test_annotations_change_the_signature_if_the_whole_pod_may_be_read(
    queueing_hint: QueueingHints, by: str
) -> None:
    signatures = [
        [
            queueing_hint.signature(rejected(plugin, annotations=annotations))
            for annotations in ({}, {"approved": "yes"})
        ]
        for plugin in (by, "InterPodAffinity")
    ]
    assert [before != after for before, after in signatures] == [True, False]


def test_a_pod_that_may_not_preempt_yet_is_not_tried_for_one_that_may(
    queueing_hint: QueueingHints,
) -> None:
    early, late = (rejected("NodeResourcesFit", name=name) for name in ("early", "late"))
    assert queueing_hint.signature(early) == queueing_hint.signature(late)
    late.is_delayed = True
    assert queueing_hint.signature(early) != queueing_hint.signature(late)


GANGS = pipeline()
"""A profile with a plugin for groups."""
FIT = frozenset({"NodeResourcesFit"})
NOT_ROW_LOCAL = FIT | {"InterPodAffinity"}


def group_member(
    state: ClusterState,
    name: str,
    *cpus: int,
    plugins: frozenset[str] = FIT,
    minimum: int = 2,
    by_specs: bool = True,
    **fields: Any,
) -> QueuedPod:
    """Return the rejected first member of a group of this name; `cpus` has each member's CPUs."""
    raw = pod_group(name, minimum, **fields)
    state.put(Kind.POD_GROUP, f"default/{name}", parse_object(Kind.POD_GROUP, raw))
    raws = [
        pod(f"{name}-{i}", group=name, cpu=str(cpu), labels={"job": name, "index": str(i)})
        for i, cpu in enumerate(cpus)
    ]
    for raw_member in raws:
        state.put_unscheduled(parse_pod(raw_member))
    return queued_pod(
        raws[0],
        GANGS,
        queue=SubQueue.UNSCHEDULABLE,
        unschedulable_plugins=plugins,
        decided_by_specs=by_specs,
    )


def test_members_of_equal_groups_share_a_signature(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    one, other = group_member(state, "g", 2, 1, 1), group_member(state, "h", 2, 1, 1)
    assert queueing_hint.signature(one) == queueing_hint.signature(other)


@pytest.mark.parametrize(
    "differing",
    [
        {"minimum": 3},
        {"topology": ["rack"]},
        {"cpus": (2, 1)},
        {"cpus": (2, 1, 2)},
        {"plugins": NOT_ROW_LOCAL},
        {"by_specs": False},
    ],
)
def test_members_of_groups_that_differ_share_no_signature(
    state: ClusterState, queueing_hint: QueueingHints, differing: dict[str, Any]
) -> None:
    one = group_member(state, "g", 2, 1, 1)
    other = group_member(state, "h", *differing.pop("cpus", (2, 1, 1)), **differing)
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


def test_a_group_that_was_rejected_by_what_may_read_its_labels_is_equal_to_no_other(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    one = group_member(state, "g", 1, 1, plugins=NOT_ROW_LOCAL)
    other = group_member(state, "h", 1, 1, plugins=NOT_ROW_LOCAL)
    one.pod = other.pod = replace(one.pod, labels={})
    other.pod = replace(other.pod, scheduling_group="h")
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


def test_a_group_of_which_a_member_is_on_a_node_is_equal_to_no_other(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    one, other = group_member(state, "g", 1, 1), group_member(state, "h", 1, 1)
    assert queueing_hint.signature(one) == queueing_hint.signature(other)
    state.put(Kind.POD, uid_of("h-9"), parse_pod(pod("h-9", group="h", node="a")))
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


def test_a_group_with_many_different_members_is_equal_to_no_other(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    one, other = group_member(state, "g", *range(1, 18)), group_member(state, "h", *range(1, 18))
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


def with_claim(name: str, claim: str = "claim") -> QueuedPod:
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
    return rejected("DynamicResources", name=name, spec=spec)


def put_claim(state: ClusterState, name: str = "claim", **fields: Any) -> None:
    claim = parse_resource_claim(device_claim(name, allocation=allocated("d0"), **fields))
    state.put(Kind.RESOURCE_CLAIM, claim.key, claim)


def test_pods_that_share_a_claim_with_devices_share_their_signature(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    one, other = with_claim("a"), with_claim("b")
    before = queueing_hint.signature(one)
    assert queueing_hint.signature(other) == before
    put_claim(state, reserved_for=["c"])
    assert queueing_hint.signature(one) == queueing_hint.signature(other) != before


@pytest.mark.parametrize("fields", [{"reserved_for": ["a"]}, {"owner": "a"}])
def test_a_pod_for_which_a_claim_with_devices_is_meant_shares_its_signature_with_no_other(
    state: ClusterState, queueing_hint: QueueingHints, fields: dict[str, Any]
) -> None:
    put_claim(state, **fields)
    names = ("a", "b", "c")
    one, other, third = (queueing_hint.signature(with_claim(name)) for name in names)
    assert one != other == third


def of_template(name: str) -> QueuedPod:
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}]}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
    return rejected("DynamicResources", name=name, spec=spec, status=status)


def test_pods_whose_claims_of_one_template_have_devices_do_not_share_their_signature(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    signatures = set()
    for name in ("a", "b"):
        put_claim(state, f"{name}-gpu", owner=name)
        signatures.add(queueing_hint.signature(of_template(name)))
    assert len(signatures) == 2


def test_pods_whose_claims_of_one_template_ask_for_others_do_not_share_their_signature(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    """A user may replace a template that requests too many devices, and then some of the pods."""
    signatures = list[Hashable]()
    for name, count in (("a", 8), ("b", 1), ("c", 1)):
        claim = parse_resource_claim(device_claim(f"{name}-gpu", request("r", count), owner=name))
        state.put(Kind.RESOURCE_CLAIM, claim.key, claim)
        signatures.append(queueing_hint.signature(of_template(name)))
    assert signatures[0] != signatures[1] == signatures[2]


def test_a_change_of_a_claim_that_thousands_of_pods_share_is_one_hint_and_wakes_one_pod(
    state: ClusterState,
) -> None:
    put_claim(state)
    events, plugins = EventLog(), pipeline(state)
    waiting = UnschedulablePods(events, QueueingHints(handle(state)))
    for number in range(2_000):
        waiting.add(replace(with_claim(f"pod-{number}"), pipeline=plugins))
    before = state.objects.of(Kind.RESOURCE_CLAIM)["default/claim"]
    after = replace(before, resource_version="2", reserved_for=())
    changed = replace(before, resource_version="1", allocation=None)
    events.extend([ClusterEvent(Kind.RESOURCE_CLAIM, Action.UPDATE, changed, after)])
    moved = waiting.run_hints()
    assert [(queued.pod.name, for_all) for queued, for_all in moved] == [("pod-0", True)]
    assert not waiting.has_hints_to_run()


def test_a_pod_with_a_claim_for_its_extended_resources_shares_its_signature_with_no_other(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    asked = {"example.com/gpu": 1}
    one, other = (rejected("DynamicResources", name=name, requests=asked) for name in ("a", "b"))
    assert queueing_hint.signature(one) == queueing_hint.signature(other)
    raw = device_claim(owner="a")
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    state.put(Kind.RESOURCE_CLAIM, "default/claim", parse_resource_claim(raw))
    assert queueing_hint.signature(one) != queueing_hint.signature(other)


def test_pods_of_another_spec_or_rejection_have_another_signature(
    queueing_hint: QueueingHints,
) -> None:
    known = queueing_hint.signature(rejected("NodeResourcesFit"))
    assert queueing_hint.signature(rejected("NodeResourcesFit", cpu="3")) != known
    assert queueing_hint.signature(rejected("TaintToleration")) != known


def test_pods_that_run_for_another_time_have_another_signature(
    queueing_hint: QueueingHints,
) -> None:
    """A pod with a shorter running time may fit on a node that is reserved for later."""
    first, second = (
        rejected("NodeResourcesFit", spec={"activeDeadlineSeconds": seconds}) for seconds in (9, 99)
    )
    assert queueing_hint.signature(first) != queueing_hint.signature(second)


def test_every_event_queues_a_pod_whose_plugin_registers_no_events(
    queueing_hint: QueueingHints,
) -> None:
    assert worth(queueing_hint, rejected("Undeclared"), A_SERVICE)


def test_an_event_queues_the_pod_if_a_plugin_registers_for_it_and_hints_queue(
    queueing_hint: QueueingHints,
) -> None:
    assert worth(queueing_hint, rejected("NodeResourcesFit"), BIGGER)
    assert not worth(queueing_hint, rejected("NodeResourcesFit"), A_SERVICE)
    assert not worth(queueing_hint, rejected("NodeResourcesFit", cpu="16"), BIGGER)


def test_one_queueing_hint_of_several_is_enough_to_queue(queueing_hint: QueueingHints) -> None:
    assert worth(queueing_hint, rejected("NodeResourcesFit", "TaintToleration"), BIGGER)


def test_every_event_queues_a_pod_that_no_plugin_rejected(queueing_hint: QueueingHints) -> None:
    assert worth(queueing_hint, rejected(), A_SERVICE)


def test_a_pods_own_assumption_undone_in_its_attempt_does_not_help_it(
    queueing_hint: QueueingHints,
) -> None:
    queued = rejected("NodeResourcesFit")
    own = left("web", node="a")
    assert worth(queueing_hint, queued, own)
    assert not queueing_hint.is_worth_requeuing(queued, own, during_attempt=True)


SITES_OWN = {"postFilter": {"enabled": [{"name": "Evicting"}]}}


def test_an_attempt_may_help_a_pod_by_preemption_where_pods_of_lower_priority_are(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    queued = rejected("NodeResourcesFit", priority=5)
    assert not queueing_hint.needs_no_hint(queued)
    state.put(Kind.POD, uid_of("lower"), parse_pod(pod("lower", node="a")))
    assert queueing_hint.needs_no_hint(queued)
    assert not queueing_hint.needs_no_hint(rejected("NodeResourcesFit"))
    never = rejected("NodeResourcesFit", priority=5, spec={"preemptionPolicy": "Never"})
    assert not queueing_hint.needs_no_hint(never)


def test_an_attempt_may_help_a_pod_of_a_queue_which_may_take_its_share_back(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    raw = queue_object("a", {"cpu": 1})
    state.put(Kind.QUEUE, "a", parse_object(Kind.QUEUE, raw))
    labels = {QUEUE_LABEL: "a"}
    assert queueing_hint.needs_no_hint(rejected("NodeResourcesFit", labels=labels))
    assert not queueing_hint.needs_no_hint(rejected("NodeResourcesFit"))


def test_a_pod_of_a_queue_is_not_tried_for_those_of_another(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    for name in ("a", "b"):
        raw = queue_object(name, {"cpu": 1})
        state.put(Kind.QUEUE, name, parse_object(Kind.QUEUE, raw))
    first, second = (rejected("NodeResourcesFit", labels={QUEUE_LABEL: name}) for name in "ab")
    assert queueing_hint.signature(first) != queueing_hint.signature(second)


def test_nominated_pods_that_wait_for_quota_are_tried_whichever_node_a_pod_has_left(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    state.put(Kind.NODE, "b", parse_node(node("b", cpu="8")))
    state.put(Kind.QUEUE, "q", parse_object(Kind.QUEUE, queue_object("q", {"cpu": 8})))
    labels = {QUEUE_LABEL: "q"}
    waiting = UnschedulablePods(events := EventLog(), queueing_hint)
    for name, nominated in (("free", ""), ("on-a", "a"), ("on-b", "b")):
        one = rejected("CapacityScheduling", name=name, labels=labels)
        if nominated:
            state.nominate(one.pod, nominated)
        waiting.add(one)
    events.extend([left("victim", labels=labels, node="b")])
    tried = list[str]()
    while waiting.has_hints_to_run():
        for queued, for_group in waiting.run_hints():
            following: QueuedPod | None = queued
            signature = waiting.signature_of(queued.pod.uid)
            while following is not None:  # as the queue does while the last one fits
                tried.append(following.pod.name)
                waiting.remove(following.pod.uid)
                following = waiting.first_of(signature) if for_group else None
    assert sorted(tried) == ["free", "on-a", "on-b"]


def test_an_attempt_may_help_a_pod_with_claims(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    assert queueing_hint.needs_no_hint(with_claim("a"))
    extended = rejected("DynamicResources", name="a", requests={"example.com/gpu": 1})
    assert not queueing_hint.needs_no_hint(extended)
    raw = device_claim(owner="a")
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    state.put(Kind.RESOURCE_CLAIM, "default/claim", parse_resource_claim(raw))
    assert queueing_hint.needs_no_hint(extended)


def test_an_attempt_may_help_a_pod_by_a_postfilter_plugin_of_the_site(
    queueing_hint: QueueingHints,
) -> None:
    queued = rejected("NodeResourcesFit")
    queued.pipeline = pipeline(registry=REGISTRY, plugins=SITES_OWN)
    assert queueing_hint.needs_no_hint(queued)


def test_an_attempt_may_reserve_nodes_for_a_group_if_its_profile_does_so(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    member = group_member(state, "g", 2, 1)
    assert not queueing_hint.needs_no_hint(member)
    args = [{"name": "GangScheduling", "args": {"reserveAfter": "5m"}}]
    member.pipeline = pipeline(pluginConfig=args)
    assert queueing_hint.needs_no_hint(member)


def written(before: dict[str, Any] | None, after: dict[str, Any] | None) -> ClusterEvent:
    budgets = [
        parse_object(Kind.POD_DISRUPTION_BUDGET, raw) if raw else None for raw in (before, after)
    ]
    return ClusterEvent(Kind.POD_DISRUPTION_BUDGET, Action.UPDATE, *budgets)


NONE_ALLOWED, ONE_ALLOWED = pdb("guard", {"app": "web"}), pdb("guard", {"app": "web"}, allowed=1)
OF_OTHERS = pdb("guard", {"app": "db"})
OF_HEALTHY = pdb("guard", {"app": "web"})
OF_HEALTHY["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"


@pytest.mark.parametrize(
    ("before", "after", "may_help"),
    [
        (NONE_ALLOWED, ONE_ALLOWED, True),
        (ONE_ALLOWED, ONE_ALLOWED, True),
        (NONE_ALLOWED, None, True),
        (NONE_ALLOWED, OF_OTHERS, True),
        (NONE_ALLOWED, OF_HEALTHY, True),
        (OF_HEALTHY, OF_HEALTHY, False),
        (ONE_ALLOWED, NONE_ALLOWED, False),
        (None, NONE_ALLOWED, False),
    ],
)
def test_a_budget_that_allows_more_queues_the_preemptors_that_it_binds(
    queueing_hint: QueueingHints,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    *,
    may_help: bool,
) -> None:
    event, strict = written(before, after), pipeline(preemption={"disruptionBudgets": "Strict"})
    queued = rejected("NodeResourcesFit")
    assert not worth(queueing_hint, queued, event), "no budget binds it"
    queued.pipeline = strict
    assert worth(queueing_hint, queued, event) is may_help
    never = rejected("NodeResourcesFit", spec={"preemptionPolicy": "Never"})
    never.pipeline = strict
    assert not worth(queueing_hint, never, event)


def test_the_nomination_of_a_pod_of_lower_priority_does_not_queue(
    queueing_hint: QueueingHints,
) -> None:
    queued = rejected("NodeResourcesFit", priority=10)
    assert not worth(queueing_hint, queued, left("lower", nominated="a", priority=5))
    assert worth(queueing_hint, queued, left("equal", nominated="a", priority=10))


def test_the_last_victim_of_a_preemption_moves_the_preemptor_whatever_rejected_it(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    queued = rejected("TaintToleration", priority=10)
    victim = left("victim", node="a")
    assert not worth(queueing_hint, queued, victim)
    state.nominate(queued.pod, "a")
    assert worth(queueing_hint, queued, victim)


def test_a_group_is_tried_when_the_last_victim_has_left_all_of_its_nominated_nodes(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    """The victims are recorded for one member; a victim on another node frees no place for it."""
    for name in "bcd":
        state.put(Kind.NODE, name, parse_node(node(name, cpu="8")))
    victims = {name: parse_pod(pod(f"victim-{name}", cpu="2", node=name)) for name in "abc"}
    for victim in victims.values():
        state.put(Kind.POD, victim.uid, victim)
    queued = group_member(state, "g", 2, 2, plugins=FIT)
    members = (queued.pod, parse_pod(pod("g-1", group="g", cpu="2")))
    for member, name in zip(members, "ab", strict=True):
        state.nominate(member, name)
    state.nominate(parse_pod(pod("other", cpu="2")), "d")
    state.begin_evictions(members[1], victims.values())

    def has_left(name: str) -> bool:
        if name in victims:
            state.delete(Kind.POD, victims[name].uid)
        return worth(queueing_hint, queued, left(f"victim-{name}", node=name))

    assert not has_left("a")
    assert not has_left("d"), "the room is for another nominated pod"
    assert has_left("b")
    assert has_left("d"), "the group waits for no victim"


def test_a_group_that_awaits_victims_is_tried_when_a_pod_leaves_a_node_without_nominated_pods(
    state: ClusterState, queueing_hint: QueueingHints
) -> None:
    state.put(Kind.NODE, "b", parse_node(node("b", cpu="8")))
    victim = parse_pod(pod("victim", cpu="2", node="a"))
    state.put(Kind.POD, victim.uid, victim)
    queued = group_member(state, "g", 2, 2, plugins=FIT)
    state.nominate(queued.pod, "a")
    state.begin_evictions(queued.pod, [victim])
    assert worth(queueing_hint, queued, left("another", node="b"))


@pytest.mark.parametrize("hint", ["raises", "wrong"])
def test_a_hint_that_fails_counts_as_queue_and_is_logged_once(
    queueing_hint: QueueingHints, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    queued = rejected("Broken", "NodeResourcesFit", cpu="16", labels={"hint": hint})
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert worth(queueing_hint, queued, BIGGER)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("plugin Broken of mooring-scheduler: ")
    assert "hint" in caplog.messages[0].lower()


def test_a_hint_that_would_fail_does_not_run_for_other_events(queueing_hint: QueueingHints) -> None:
    assert not worth(queueing_hint, rejected("Broken"), A_SERVICE)


@pytest.mark.parametrize(
    ("used", "plugins", "group", "expected"),
    [
        ("4", ["CapacityScheduling"], None, True),
        ("5", ["CapacityScheduling"], None, False),
        ("4", ["CapacityScheduling", "NodeResourcesFit"], None, None),
        ("4", ["CapacityScheduling"], "g", None),
    ],
)
def test_a_pod_is_admitted_if_its_quota_suffices_and_nothing_else_rejected_it(
    state: ClusterState,
    queueing_hint: QueueingHints,
    *,
    used: str,
    plugins: list[str],
    group: str | None,
    expected: bool | None,
) -> None:
    state.put(Kind.NODE, "b", parse_node(node("b", cpu="8")))
    state.put(Kind.QUEUE, "q", parse_object(Kind.QUEUE, queue_object("q", {"cpu": 8})))
    labels = {QUEUE_LABEL: "q"}
    state.put(Kind.POD, "other", parse_pod(pod("other", node="b", cpu=used, labels=labels)))
    waiting = rejected(*plugins, cpu="4", labels=labels, group=group)
    if group is not None:
        state.track_pod_groups(waiting.pipeline.pod_group_formats)
        state.put_unscheduled(waiting.pod)
    assert queueing_hint.is_admitted(waiting) is expected
