"""The pods and groups that a Queue accepts."""

from dataclasses import replace
from typing import Any

import pytest

from deciding import Deciding
from device_builders import device_claim, device_class, request, resource_slice
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.framework.hints import QueueingHint
from mooring.groups.model.pod_group import parse_kai_pod_group
from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.groups.search.group_decision import GroupDecision, decide_group
from mooring.groups.search.group_search import SearchedMembers
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.model.workloads import parse_namespace
from mooring.quota.capacity_scheduling import CapacityScheduling
from mooring.quota.model.elastic_quota import parse_elastic_quota
from mooring.quota.model.queue import QUEUE_LABEL, parse_queue
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import kai_pod_group, namespace, node, pod, pod_group, queue_object
from queue_files import koordinator_quota

Raw = dict[str, Any]
GPU = "nvidia.com/gpu"


def using(name: str, of: str = "a", on: str | None = None, gpu: int = 1, **fields: Any) -> Raw:
    return pod(name, node=on, requests={GPU: gpu}, labels={QUEUE_LABEL: of}, **fields)


def a_node() -> Raw:
    return node("n1", cpu="64", resources={GPU: 16})


def refusal(deciding: Deciding, raw: Raw) -> str:
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError), outcome
    return outcome.cause


def fits(deciding: Deciding, raw: Raw) -> bool:
    return isinstance(deciding.outcome(raw), ScheduleResult)


def test_a_pod_without_a_queue_has_no_limit() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 0}))
    assert fits(deciding, pod("p", requests={GPU: 16}))


def test_a_resource_that_no_queue_of_the_tree_names_has_no_limit() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}))
    assert fits(deciding, using("p", cpu="60"))


def test_a_resource_that_another_queue_of_the_tree_names_is_borrowed() -> None:
    queues = queue_object("all"), queue_object("a", parent="all")
    deciding = Deciding(a_node(), *queues, queue_object("b", {GPU: 2}, parent="all"))
    assert fits(deciding, using("p", gpu=2))
    assert "3 asked, only 2 left" in refusal(deciding, using("p", gpu=3))


def test_pods_are_counted_too() -> None:
    deciding = Deciding(a_node(), queue_object("a", {"pods": 1}), using("x", on="n1"))
    reason = "queue a: 1 of 1 pods used, 1 asked, and it has no parent to borrow from"
    assert refusal(deciding, using("p")) == reason


def test_a_queue_borrows_as_much_as_its_limit_allows() -> None:
    deciding = Deciding(
        a_node(),
        queue_object("all"),
        queue_object("a", {GPU: {"nominalQuota": 2, "borrowingLimit": 1}}, parent="all"),
        queue_object("b", {GPU: 8}, parent="all"),
    )
    assert fits(deciding, using("p", gpu=3))
    assert "and it may borrow only 1" in refusal(deciding, using("p", gpu=4))


def test_what_a_queue_does_not_lend_is_kept_for_it() -> None:
    deciding = Deciding(
        a_node(),
        queue_object("all"),
        queue_object("a", parent="all"),
        queue_object("b", {GPU: {"nominalQuota": 8, "lendingLimit": 3}}, parent="all"),
    )
    assert fits(deciding, using("p", gpu=3))
    assert not fits(deciding, using("p", gpu=4))
    assert fits(deciding, using("q", "b", gpu=8))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({QUEUE_LABEL: "other"}, "queue other does not exist"),
        ({QUEUE_LABEL: "all"}, "queue all has queues below it (a): name one of these"),
        ({QUEUE_LABEL: "b"}, "queue b does not take pods of namespace default"),
        (
            {QUEUE_LABEL: "c"},
            "queue c is not ready: spec.parent: queue none does not exist (c -> none)",
        ),
        (
            {QUEUE_LABEL: "d"},
            "queue d is not ready: spec.parent: the parents form a circle: d -> e -> d",
        ),
        (
            {QUEUE_LABEL: "f"},
            "queue f is not ready: spec.resources[0].nominalQuota: -1 is negative",
        ),
    ],
)
def test_a_pod_says_why_no_queue_takes_it(labels: dict[str, str], reason: str) -> None:
    deciding = Deciding(
        a_node(),
        queue_object("all"),
        queue_object("a", {GPU: 8}, parent="all"),
        queue_object("b", selector={"matchLabels": {"team": "b"}}),
        queue_object("c", parent="none"),
        queue_object("d", parent="e"),
        queue_object("e", parent="d"),
        queue_object("f", {GPU: -1}),
    )
    outcome = deciding.outcome(pod("p", labels=labels))
    assert isinstance(outcome, FitError)
    assert outcome.cause.startswith(reason)
    assert outcome.message == f"0/1 nodes are available: {outcome.cause}."


def test_a_namespace_puts_its_pods_into_the_queue_that_selects_it() -> None:
    selector = {"matchLabels": {"team": "a"}}
    deciding = Deciding(
        a_node(),
        namespace("default", {"team": "a"}),
        queue_object("a", {GPU: 1}, selector=selector),
    )
    assert not fits(deciding, pod("p", requests={GPU: 2}))
    assert fits(deciding, pod("p", namespace="free", requests={GPU: 2}))
    deciding.state.put(Kind.NAMESPACE, "default", parse_namespace(namespace("default")))
    assert fits(deciding, pod("p", requests={GPU: 2}))


def test_a_pod_of_a_namespace_with_several_queues_must_name_one() -> None:
    selector = {"matchLabels": {"team": "a"}}
    deciding = Deciding(
        a_node(),
        namespace("default", {"team": "a"}),
        queue_object("a1", {GPU: 1}, selector=selector),
        queue_object("a2", {GPU: 1}, selector=selector),
    )
    reason = "namespace default has several queues (a1, a2): name one in the pod's label "
    assert refusal(deciding, pod("p", requests={GPU: 1})) == reason + QUEUE_LABEL
    assert fits(deciding, using("p", "a2"))


def test_a_pod_on_a_node_leaves_the_quota_of_its_namespace_by_no_label() -> None:
    selector = {"matchLabels": {"team": "a"}}
    deciding = Deciding(
        a_node(),
        namespace("default", {"team": "a"}),
        queue_object("a", {GPU: 2}, selector=selector),
        using("x", "other", "n1"),
        pod("y", node="n1", requests={GPU: 1}, labels={"kueue.x-k8s.io/podset": "main"}),
    )
    assert "2 of 2" in refusal(deciding, using("p"))
    deciding.state.put(Kind.QUEUE, "b", parse_queue(queue_object("b", selector=selector)))
    assert "2 of 2" in refusal(deciding, using("p"))


def test_what_is_freed_for_a_nominated_pod_is_not_given_to_another() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 4}), using("x", on="n1", gpu=2))
    deciding.nominate(using("first", priority=5, gpu=2), "n1")
    assert not fits(deciding, using("second", priority=5))
    assert fits(deciding, using("second", priority=6))
    assert fits(deciding, using("first", priority=5, gpu=2))


def test_a_pod_whose_victim_has_left_does_not_wait_for_the_victims_of_others() -> None:
    """Until the second victim has left, it and the pod that it leaves for would both count."""
    cohort = queue_object("cohort"), queue_object("a", {GPU: 4}, parent="cohort")
    borrower = queue_object("b", {GPU: 0}, parent="cohort")
    victim = using("v2", "b", on="n1", gpu=2, terminating=True)
    deciding = Deciding(a_node(), *cohort, borrower, victim)
    for name in ("first", "second"):
        deciding.nominate(using(name, priority=5, gpu=2), "n1")
    assert fits(deciding, using("first", priority=5, gpu=2))
    assert not fits(deciding, using("third", priority=5, gpu=1))
    assert not fits(deciding, using("first", priority=5, gpu=3)), "the victim is still there"


def decided(deciding: Deciding, members: list[Raw]) -> GroupDecision:
    pods = [parse_pod(raw) for raw in members]
    deciding.state.track_pod_groups(deciding.pipeline.pod_group_formats)
    for one in pods:
        deciding.state.put_unscheduled(one)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    searched = SearchedMembers(pods, deciding.pipeline, deciding.shared, seed=0)
    return decide_group(group, searched)


def test_a_gang_beyond_its_quota_gets_nothing() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 3}), pod_group("g", 4))
    decision = decided(deciding, [using(f"m{i}", group="g") for i in range(4)])
    assert not decision.rows
    assert decision.plugins == {CapacityScheduling.name}
    assert decision.message.startswith(f"queue a: 0 of 3 {GPU} used, 4 asked")


def test_a_gang_gets_as_many_members_beyond_its_minimum_as_its_quota_allows() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 6}), pod_group("g", 4))
    decision = decided(deciding, [using(f"m{i}", group="g") for i in range(8)])
    assert len(decision.rows) == 6


def test_a_gang_with_a_member_that_no_queue_takes_waits() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 6}), pod_group("g", 2))
    members = [using("m0", group="g"), using("m1", "other", group="g")]
    assert decided(deciding, members).message == "queue other does not exist."


def test_a_profile_without_the_plugin_regards_no_queue() -> None:
    without = {"multiPoint": {"disabled": [{"name": CapacityScheduling.name}]}}
    deciding = Deciding(a_node(), queue_object("a", {GPU: 3}), pod_group("g", 4), plugins=without)
    assert fits(deciding, using("p", gpu=16))
    assert len(decided(deciding, [using(f"m{i}", group="g") for i in range(4)]).rows) == 4


def hint(deciding: Deciding, event: ClusterEvent) -> QueueingHint:
    plugin = CapacityScheduling(None, None)
    return plugin.queueing_hint(parse_pod(using("p")), event, deciding.cluster)


def test_hints_are_about_queues_namespaces_and_pods_of_the_same_tree() -> None:
    queues = (queue_object("all"), *(queue_object(n, {GPU: 1}, parent="all") for n in "ab"))
    deciding = Deciding(a_node(), *queues, queue_object("z", {GPU: 1}))

    def gone(of: str) -> ClusterEvent:
        return ClusterEvent(Kind.POD, Action.DELETE, parse_pod(using("x", of, "n1")), None)

    assert hint(deciding, gone("a")) is QueueingHint.QUEUE
    assert hint(deciding, gone("b")) is QueueingHint.QUEUE
    assert hint(deciding, gone("z")) is QueueingHint.SKIP
    quota = ClusterEvent(Kind.QUEUE, Action.UPDATE, None, None)
    assert hint(deciding, quota) is QueueingHint.QUEUE


def test_a_hint_is_given_for_a_node_if_koordinators_quotas_share_the_nodes() -> None:
    event = ClusterEvent(Kind.NODE, Action.ADD, None, parse_node(a_node()))
    plain = Deciding(a_node(), queue_object("a", {GPU: 1}))
    assert hint(plain, event) is QueueingHint.SKIP
    sharing, quota = Deciding(a_node()), koordinator_quota("a", min={GPU: 1})
    sharing.state.put(Kind.ELASTIC_QUOTA, "kube-system/a", parse_elastic_quota(quota))
    assert hint(sharing, event) is QueueingHint.QUEUE


def test_a_hint_is_given_for_a_pod_that_leaves_the_tree_by_a_new_label() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}), queue_object("z", {GPU: 1}))
    before = parse_pod(using("x", "a", "n1"))
    after = replace(before, labels={QUEUE_LABEL: "z"})
    moved = ClusterEvent(Kind.POD, Action.UPDATE, before, after)
    assert hint(deciding, moved) is QueueingHint.QUEUE
    same = ClusterEvent(Kind.POD, Action.UPDATE, before, before)
    assert hint(deciding, same) is QueueingHint.SKIP


def test_a_hint_is_given_for_a_group_that_names_another_queue() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}))
    of_a, of_b = (parse_kai_pod_group(kai_pod_group("g", queue=name)) for name in "ab")
    kind = Kind.KAI_POD_GROUP
    assert hint(deciding, ClusterEvent(kind, Action.UPDATE, of_a, of_b)) is QueueingHint.QUEUE
    assert hint(deciding, ClusterEvent(kind, Action.UPDATE, of_a, of_a)) is QueueingHint.SKIP
    assert hint(deciding, ClusterEvent(kind, Action.ADD, None, of_b)) is QueueingHint.QUEUE
    assert hint(deciding, ClusterEvent(kind, Action.DELETE, of_b, None)) is QueueingHint.QUEUE
    assert {(kind, action) for action in Action} <= CapacityScheduling.events_to_register


def test_a_hint_is_given_for_a_pod_that_leaves_its_queue_by_an_annotation() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}), queue_object("z", {GPU: 1}))
    args = GangSchedulingArgs.model_validate({"podGroupPresets": ["Volcano"]})
    deciding.state.track_pod_groups(args.formats)
    before, after = (
        parse_pod(pod("x", node="n1", annotations={"volcano.sh/queue-name": of})) for of in "az"
    )
    moved = ClusterEvent(Kind.POD, Action.UPDATE, before, after)
    assert hint(deciding, moved) is QueueingHint.QUEUE


def test_a_hint_is_given_for_a_pod_that_was_shrunk_in_place() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}))
    before = parse_pod(using("x", "a", "n1", gpu=2))
    smaller = replace(before, spec=parse_pod(using("x", "a", "n1")).spec)
    shrunk = ClusterEvent(Kind.POD, Action.UPDATE, before, smaller)
    assert hint(deciding, shrunk) is QueueingHint.QUEUE


def test_a_hint_is_given_for_a_claim_that_is_made_again() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}))
    entries = {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
    one, plugin = parse_pod(pod("p", spec=entries)), CapacityScheduling(None, None)
    assert (Kind.RESOURCE_CLAIM, Action.ADD) in plugin.events_to_register
    for name, answer in (("c", QueueingHint.QUEUE), ("other", QueueingHint.SKIP)):
        claim = parse_resource_claim(device_claim(name))
        made = ClusterEvent(Kind.RESOURCE_CLAIM, Action.ADD, None, claim)
        assert plugin.queueing_hint(one, made, deciding.cluster) is answer


def test_a_gang_with_members_in_several_queues_is_refused() -> None:
    queues = (queue_object("all", {GPU: 8}), *(queue_object(n, parent="all") for n in "ab"))
    deciding = Deciding(a_node(), *queues, pod_group("g", 2))
    members = [using("m0", "a", group="g"), using("m1", "b", group="g")]
    found = decided(deciding, members)
    assert found.message == "the members are in several queues: a, b."
    assert found.cause == "the members are in several queues: a, b"
    alone = [using("m2", "a", group="g"), pod("m3", requests={GPU: 1}, group="g")]
    assert "in several queues: a, none" in decided(deciding, alone).message


def test_pods_wait_for_the_queue_of_their_namespace_until_it_is_ready() -> None:
    deciding = Deciding(
        a_node(),
        namespace("default", {"team": "a"}),
        queue_object("a", {GPU: 1}, parent="all", selector={"matchLabels": {"team": "a"}}),
    )
    waits = "queue a is not ready: spec.parent: queue all does not exist (a -> all)"
    assert refusal(deciding, pod("p", requests={GPU: 1})) == waits
    assert fits(deciding, pod("p", namespace="other", requests={GPU: 1}))
    wrong = queue_object("a", {GPU: -1}, selector={"matchLabels": {"team": "a"}})
    deciding.state.put(Kind.QUEUE, "a", parse_queue(wrong))
    assert "nominalQuota: -1 is negative" in refusal(deciding, pod("p", requests={GPU: 1}))


def test_a_pod_on_a_node_that_loses_its_label_stays_in_its_queue() -> None:
    deciding = Deciding(a_node(), queue_object("a", {GPU: 1}), using("x", on="n1"))
    assert not fits(deciding, using("p"))
    bare = parse_pod(pod("x", node="n1", requests={GPU: 1}))
    deciding.state.put(Kind.POD, bare.uid, bare)
    assert not fits(deciding, using("p"))
    deciding.state.delete(Kind.POD, bare.uid)
    assert fits(deciding, using("p"))


GPU_DEVICES = "deviceclass.resource.kubernetes.io/gpu"


def with_claim(name: str, claim: str = "shared", **fields: Any) -> Raw:
    entries = [{"name": "gpus", "resourceClaimName": claim}]
    return using(name, spec={"resourceClaims": entries}, gpu=0, **fields)


def test_a_pod_needs_quota_for_the_devices_of_its_claims() -> None:
    claims = [device_claim(f"c{count}", request(count=count)) for count in (1, 2)]
    deciding = Deciding(*a_node_with_devices(), queue_object("a", {GPU_DEVICES: 1}), *claims)
    assert fits(deciding, with_claim("p", "c1"))
    assert f"0 of 1 {GPU_DEVICES} used, 2 asked" in refusal(deciding, with_claim("p", "c2"))


def a_node_with_devices() -> tuple[Raw, ...]:
    devices = resource_slice("n1", ["d1", "d2", "d3"], node="n1")
    return a_node(), device_class("gpu"), devices


def test_pods_that_share_a_claim_need_quota_for_its_devices_once() -> None:
    deciding = Deciding(
        *a_node_with_devices(),
        queue_object("a", {GPU_DEVICES: 2}),
        device_claim("shared", request(count=2)),
        device_claim("other"),
        with_claim("x", on="n1"),
    )
    assert deciding.state.queues.states["a"].used[GPU_DEVICES] == 2
    assert fits(deciding, with_claim("p"))
    assert f"2 of 2 {GPU_DEVICES} used, 1 asked" in refusal(deciding, with_claim("q", "other"))
    deciding.nominate(with_claim("p", priority=5), "n1")
    assert fits(deciding, with_claim("r"))
