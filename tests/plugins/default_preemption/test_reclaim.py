"""The victims for a pod or a group in a Queue."""

from typing import Any, ClassVar

import pytest

from deciding import Deciding
from device_builders import device_claim, device_class, resource_slice
from mooring.framework.per_node import NodeInfo, per_node
from mooring.framework.post_filter import GroupNomination, GroupPreemption, Nomination
from mooring.groups.search.group_decision import preempt_for_group
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import node, pdb, pod, pod_group, queue_object
from pod_terms import apart, to_pods
from queue_files import koordinator_quota

Raw = dict[str, Any]
GPU = "nvidia.com/gpu"


def gpus(name: str, count: int = 8) -> Raw:
    return node(name, cpu="64", resources={GPU: count})


def using(name: str, of: str, on: str | None = None, gpu: int = 1, **fields: Any) -> Raw:
    """Return a pod in the Queue `of` that requests GPUs, on the node `on` or pending."""
    return pod(name, node=on, requests={GPU: gpu}, labels={QUEUE_LABEL: of}, **fields)


def two_teams(**of_a: Any) -> list[Raw]:
    """Return two nodes with 8 GPUs each, and the Queues a and b with a quota of 8 GPUs each."""
    return [
        gpus("n1"),
        gpus("n2"),
        queue_object("all"),
        queue_object("a", {GPU: 8}, parent="all", **of_a),
        queue_object("b", {GPU: 8}, parent="all"),
    ]


def borrowers(count: int = 16, of: str = "b", **fields: Any) -> list[Raw]:
    """Return pods with one GPU each in the Queue `of`, on the nodes n1 and n2 in turn."""
    return [using(f"b{i:02}", of, f"n{1 + i % 2}", **fields) for i in range(count)]


def gang(size: int, of: str = "a", gpu: int = 1, **fields: Any) -> list[Raw]:
    return [using(f"m{i}", of, gpu=gpu, group="g", **fields) for i in range(size)]


def preempted(deciding: Deciding, members: list[Raw]) -> GroupPreemption:
    pods = [parse_pod(raw) for raw in members]
    deciding.state.track_pod_groups(deciding.pipeline.pod_group_formats)
    for one in pods:
        deciding.state.put_unscheduled(one)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    pipeline, shared = deciding.pipeline, deciding.shared
    return preempt_for_group(group, pods, pipeline, shared, seed=0, now=0.0)


def victims(answer: GroupPreemption) -> list[str]:
    assert isinstance(answer, GroupNomination), answer
    return sorted(victim.name for victim in answer.victims)


def pod_victims(deciding: Deciding, raw: Raw) -> list[str]:
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert isinstance(outcome.nomination, Nomination), outcome.message
    return sorted(victim.name for victim in outcome.nomination.victims)


def refusal(deciding: Deciding, raw: Raw) -> str:
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is None, outcome.nomination
    return outcome.message


def test_a_gang_within_its_share_takes_the_pods_of_one_node_and_no_others() -> None:
    deciding = Deciding(*two_teams(), *borrowers(), pod_group("g", 8))
    answer = preempted(deciding, gang(8))
    on_one_node = sorted(f"b{i:02}" for i in range(0, 16, 2))
    assert victims(answer) == on_one_node
    assert isinstance(answer, GroupNomination)
    assert {*answer.nodes.values()} == {"n1"}
    assert answer.reason == "preemption: evicts 8 pods of queue b."


def test_a_gang_beyond_its_share_evicts_nobody() -> None:
    deciding = Deciding(*two_teams(), *borrowers(), pod_group("g", 9))
    answer = preempted(deciding, gang(9))
    assert not isinstance(answer, GroupNomination)
    assert "No preemption victims" in answer.reason


def test_a_gang_that_would_not_fit_afterwards_evicts_nobody() -> None:
    selects = {"nodeSelector": {"disk": "ssd"}}
    deciding = Deciding(*two_teams(), *borrowers(), pod_group("g", 8))
    answer = preempted(deciding, gang(8, spec=selects))
    assert not isinstance(answer, GroupNomination)
    assert "does not fit without the pods that its queue may preempt" in answer.reason


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"maxVictims": 7}, "preemption: the group needs more than 7 victims."),
        ({"disruptionBudgets": "Strict"}, "No preemption victims"),
        ({"minRuntimeSeconds": 60}, "No preemption victims"),
        ({"delaySeconds": 60}, "not eligible yet due to delaySeconds=60."),
    ],
)
def test_the_limits_of_the_profile_protect_borrowers(limit: dict[str, Any], reason: str) -> None:
    running = borrowers(started="1970-01-01T00:00:00Z")
    objects = (*two_teams(), *running, pdb("guard", {QUEUE_LABEL: "b"}), pod_group("g", 8))
    assert isinstance(preempted(Deciding(*objects), gang(8)), GroupNomination)
    answer = preempted(Deciding(*objects, preemption=limit), gang(8))
    assert not isinstance(answer, GroupNomination)
    assert reason in answer.reason


def test_one_pod_takes_back_one_gpu_whatever_the_priorities_are() -> None:
    deciding = Deciding(*two_teams(), *borrowers(priority=1000))
    assert len(pod_victims(deciding, using("p", "a"))) == 1


def test_a_pod_takes_back_the_minimum_of_its_koordinator_quota() -> None:
    deciding, eight = Deciding(gpus("n1"), gpus("n2")), {GPU: 8}
    for raw in (
        koordinator_quota("dept", labels={"is-parent": "true"}, min={GPU: 16}),
        koordinator_quota("a", "dept", min=eight),
        koordinator_quota("b", "dept", min=eight),
        koordinator_quota("c"),
    ):
        key, quota = object_key(Kind.ELASTIC_QUOTA, raw), parse_object(Kind.ELASTIC_QUOTA, raw)
        deciding.state.put(Kind.ELASTIC_QUOTA, key, quota)
    for raw in borrowers():
        deciding.state.put(Kind.POD, object_key(Kind.POD, raw), parse_pod(raw))
    assert len(pod_victims(deciding, using("p", "a"))) == 1
    assert "No preemption victims" in refusal(deciding, using("p", "c"))


def test_a_pod_takes_a_whole_node_where_it_needs_one() -> None:
    deciding = Deciding(*two_teams(), *borrowers())
    assert len(pod_victims(deciding, using("p", "a", gpu=8))) == 8


def test_by_lower_priority_only_where_the_queue_says_so() -> None:
    lower = {"preemption": {"reclaimWithinCohort": "LowerPriority"}}
    deciding = Deciding(*two_teams(**lower), *borrowers(15), using("b99", "b", "n2", priority=-1))
    assert pod_victims(deciding, using("p", "a")) == ["b99"]


def test_a_queue_that_never_reclaims_waits() -> None:
    never = {"preemption": {"reclaimWithinCohort": "Never"}}
    deciding = Deciding(*two_teams(**never), *borrowers())
    message = refusal(deciding, using("p", "a"))
    assert "queue a: 0 of 8 nvidia.com/gpu used, 1 asked, nothing left to borrow" in message


def test_no_queue_falls_below_its_nominal_quota() -> None:
    deciding = Deciding(
        *two_teams(),
        using("large", "b", "n1", gpu=8, priority=-10),
        using("small", "b", "n2", gpu=4),
    )
    # Without the large pod, b would have 4 of its 8; without the small one it has just 8.
    assert pod_victims(deciding, using("p", "a", gpu=5)) == ["small"]


def test_borrowed_pods_of_other_queues_go_before_own_pods_of_lower_priority() -> None:
    deciding = Deciding(*two_teams(), *borrowers(12), *borrowers_of_a(4))
    (victim,) = pod_victims(deciding, using("p", "a", priority=10))
    assert victim.startswith("b")


def borrowers_of_a(count: int) -> list[Raw]:
    return [using(f"a{i}", "a", f"n{1 + i % 2}") for i in range(count)]


def test_a_queue_that_borrows_takes_nothing_from_others_but_from_itself() -> None:
    own = [using(f"a{i}", "a", f"n{1 + i % 2}") for i in range(9)]
    deciding = Deciding(*two_teams(), *borrowers(7), *own)
    (victim,) = pod_victims(deciding, using("p", "a", priority=10))
    assert victim.startswith("a")
    assert "No preemption victims" in refusal(deciding, using("q", "a"))


def test_newer_pods_of_equal_priority_go_where_the_queue_allows_any() -> None:
    anything = {"preemption": {"withinQueue": "Any"}}
    old, new = "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"
    own = [using(f"a{i}", "a", f"n{1 + i % 2}", created=new if i else old) for i in range(8)]
    deciding = Deciding(*two_teams(**anything), *borrowers(8), *own)
    middle = using("p", "a", created="2026-01-02T00:00:00Z")
    (victim,) = pod_victims(deciding, middle)
    assert victim != "a0"
    assert "No preemption victims" in refusal(deciding, using("q", "a", created=new))


def test_a_gang_that_would_fall_below_its_minimum_goes_as_a_whole() -> None:
    deciding = Deciding(
        *two_teams(),
        pod_group("h", 4),
        *(using(f"h{i}", "b", f"n{1 + i % 2}", group="h") for i in range(4)),
        *borrowers(12, priority=5),
    )
    deciding.state.track_pod_groups(deciding.pipeline.pod_group_formats)
    # Of the gang all four would go, of the single pods with a higher priority just one.
    assert len(pod_victims(deciding, using("p", "a"))) in (1, 4)


def test_pods_of_no_queue_are_evicted_by_priority() -> None:
    deciding = Deciding(
        *two_teams(),
        *(pod(f"x{i}", node="n1", requests={GPU: 8}) for i in (1,)),
        *(pod("y", node="n2", requests={GPU: 8}, priority=5) for _ in (1,)),
    )
    assert pod_victims(deciding, using("p", "a", priority=1)) == ["x1"]


def test_the_message_of_a_preemptor_counts_the_victims_in_each_queue() -> None:
    deciding = Deciding(
        gpus("n1"),
        queue_object("all"),
        queue_object("a", {GPU: 8}, parent="all"),
        queue_object("b", parent="all"),
        *(using(f"b{i}", "b", "n1", gpu=2) for i in range(2)),
        pod("other", node="n1", requests={GPU: 4}),
    )
    outcome = deciding.outcome(using("p", "a", gpu=8, priority=1))
    assert isinstance(outcome, FitError)
    evicts = "preemption: evicts 2 pods of queue b, 1 pod of no queue."
    assert outcome.message.endswith(evicts)


def test_a_pod_of_no_queue_evicts_by_priority_alone() -> None:
    deciding = Deciding(*two_teams(), *borrowers())
    assert len(pod_victims(deciding, pod("p", requests={GPU: 1}, priority=1))) == 1


def test_an_unrelated_queue_that_comes_first_does_not_end_the_search() -> None:
    # NVIDIA/KAI-Scheduler#1750: reclaim gave up at a queue that had borrowed nothing.
    deciding = Deciding(
        *two_teams(),
        queue_object("aaa", {GPU: 0}, parent="all"),
        *borrowers(15),
        using("aaa", "aaa", "n2", gpu=0),
    )
    assert isinstance(deciding.outcome(using("p", "a")), ScheduleResult)
    deciding.place(using("p", "a"), "n2")
    assert pod_victims(deciding, using("q", "a"))[0].startswith("b")


def test_shares_of_odd_parts_are_exact() -> None:
    # koordinator#2876: shares were lost by rounding.
    deciding = Deciding(
        node("n1", cpu="10"),
        queue_object("all"),
        queue_object("a", {"cpu": "3333m"}, parent="all"),
        queue_object("b", {"cpu": "6667m"}, parent="all"),
        pod("b0", node="n1", cpu="6668m", labels={QUEUE_LABEL: "b"}),
    )
    labels = {QUEUE_LABEL: "a"}
    assert isinstance(deciding.outcome(pod("p", cpu="3332m", labels=labels)), ScheduleResult)
    assert "3333m asked, only 3332m left" in refusal(deciding, pod("q", cpu="3333m", labels=labels))


def test_two_queues_that_come_late_both_get_their_share_of_what_one_took() -> None:
    # kubernetes-sigs/kueue#9345: one queue took the whole cohort before two others came.
    queues = (queue_object(name, {GPU: 4}, parent="all") for name in "abc")
    taken = (using(f"c{i:02}", "c", "n1", priority=1000) for i in range(12))
    deciding = Deciding(gpus("n1", 12), queue_object("all"), *queues, *taken)
    for i in range(4):
        for of in "ab":
            (victim,) = pod_victims(deciding, using(f"{of}{i}", of))
            deciding.state.delete(Kind.POD, parse_pod(pod(victim)).uid)
            deciding.place(using(f"{of}{i}", of), "n1")
    states = deciding.state.queues.states
    assert [states[name].used[GPU] for name in "abc"] == [4, 4, 4]
    for of in "abc":
        assert "No preemption victims" in refusal(deciding, using("late", of))


def test_a_pod_beyond_the_share_of_its_queue_does_not_end_reclaim_for_the_next() -> None:
    # volcano#3003: the queue was left out after its first job that could not reclaim.
    deciding = Deciding(*two_teams(), *borrowers())
    assert "No preemption victims" in refusal(deciding, using("large", "a", gpu=9))
    assert len(pod_victims(deciding, using("small", "a"))) == 1


def test_a_queue_above_its_share_gives_back_from_nodes_with_pods_of_others_too() -> None:
    # volcano#5881: no node had pods that a queue of high priority could reclaim.
    deciding = Deciding(
        gpus("n1"),
        gpus("n2"),
        queue_object("all"),
        queue_object("high", {GPU: 6}, parent="all"),
        queue_object("low", {GPU: 6}, parent="all"),
        queue_object("own", {GPU: 4}, parent="all"),
        *(using(f"o{i}", "own", f"n{1 + i % 2}", priority=-5) for i in range(4)),
        *(using(f"l{i:02}", "low", f"n{1 + i % 2}", priority=i) for i in range(12)),
    )
    assert pod_victims(deciding, using("p", "high", priority=100)) == ["l00"]
    found = pod_victims(deciding, using("p", "high", gpu=6, priority=100))
    assert len(found) == 6
    assert all(name.startswith("l") for name in found)


def test_the_quota_of_devices_of_claims_is_taken_back_where_devices_are_free() -> None:
    devices = "deviceclass.resource.kubernetes.io/gpu"

    def claiming(name: str, of: str, on: str | None = None) -> Raw:
        entries = [{"name": "gpu", "resourceClaimName": f"of-{name}"}]
        return using(name, of, on, gpu=0, spec={"resourceClaims": entries})

    deciding = Deciding(
        node("n1", cpu="64"),
        device_class("gpu"),
        resource_slice("n1", [f"d{i}" for i in range(8)], node="n1"),
        queue_object("all"),
        *(queue_object(name, {devices: 2}, parent="all") for name in "ab"),
        *(device_claim(f"of-{name}") for name in ("b0", "b1", "b2", "b3", "p")),
        *(claiming(f"b{i}", "b", "n1") for i in range(4)),
    )
    assert len(pod_victims(deciding, claiming("p", "a"))) == 1


def test_the_quota_taken_back_for_a_pod_is_not_given_to_the_victim_of_higher_priority() -> None:
    deciding = Deciding(*two_teams(), *borrowers(15, priority=1000))
    deciding.nominate(using("p", "a"), "n1")
    message = refusal(deciding, using("b15", "b", priority=1000))
    assert "queue b: 15 of 8 nvidia.com/gpu used, 1 asked, nothing left to borrow" in message


def test_the_room_taken_back_for_a_pod_is_not_given_to_the_victim_of_higher_priority() -> None:
    spare = queue_object("spare", {GPU: 9}, parent="all")  # more quota than there are GPUs
    deciding = Deciding(*two_teams(), spare, *borrowers(16, priority=1000))
    outcome = deciding.outcome(using("p", "a"))
    assert isinstance(outcome, FitError)
    assert isinstance(outcome.nomination, Nomination)
    nomination, (victim,) = outcome.nomination, outcome.nomination.victims
    deciding.state.nominate(parse_pod(using("p", "a")), nomination.node, victims=(victim,))
    deciding.state.delete(Kind.POD, victim.uid)
    assert "Insufficient nvidia.com/gpu" in refusal(deciding, using("again", "b", priority=1000))
    assert isinstance(deciding.outcome(using("p", "a")), ScheduleResult)


def leaving(name: str, on: str, gpu: int, of: str = "b", **fields: Any) -> Raw:
    return using(name, of, on, gpu, terminating=True, **fields)


def test_pods_that_leave_anyway_are_waited_for_before_others_are_evicted() -> None:
    gone = [leaving(f"gone{i}", f"n{1 + i % 2}", 1) for i in range(8)]
    deciding = Deciding(*two_teams(), *borrowers(8), *gone)
    outcome = deciding.outcome(using("p", "a"))
    assert isinstance(outcome, FitError)
    assert isinstance(outcome.nomination, Nomination)
    assert {victim.name for victim in outcome.nomination.victims} <= {
        raw["metadata"]["name"] for raw in gone
    }


def test_pods_that_take_quota_back_one_after_the_other_evict_one_pod_each() -> None:
    """The room of each victim is kept for its preemptor until the victim has left."""
    taken = (using(f"b{i:02}", "b", "n1") for i in range(16))
    deciding, evicted = Deciding(gpus("n1", 16), *two_teams()[2:], *taken), set[str]()
    for i in range(8):
        outcome = deciding.outcome(raw := using(f"p{i}", "a"))
        assert isinstance(outcome, FitError)
        assert isinstance(outcome.nomination, Nomination), outcome.message
        found, preemptor = outcome.nomination.victims, parse_pod(raw)
        deciding.state.nominate(preemptor, outcome.nomination.node, victims=found)
        evicted |= {victim.name for victim in deciding.state.begin_evictions(preemptor, found)}
        assert len(evicted) == i + 1


def test_a_pod_is_awaited_and_another_evicted_where_only_both_make_room() -> None:
    deciding = Deciding(*two_teams(), leaving("gone", "n1", 4), using("stays", "b", "n1", 4))
    deciding.place(using("full", "b", gpu=8), "n2")
    assert pod_victims(deciding, using("p", "a", gpu=8)) == ["gone", "stays"]


def test_a_pod_is_awaited_whose_anti_affinity_bars_the_nodes_of_its_zone() -> None:
    alone = apart(to_pods({QUEUE_LABEL: "a"}, "zone"))
    zone = {"zone": "z"}
    full, free = (node(n, cpu="64", resources={GPU: 8}, labels=zone) for n in ("n1", "n2"))
    deciding = Deciding(
        full,
        free,
        *two_teams()[2:],
        using("nearby", "b", "n1", 7),
        leaving("gone", "n1", 1, affinity=alone),
        using("other", "b", "n2", 4),
    )
    deciding.nominate(using("next", "a"), "n1")
    assert pod_victims(deciding, using("p", "a", gpu=4)) == []


@per_node
class OnePodAtMost:
    name: ClassVar[str] = "OnePodAtMost"
    depends_on_node_only: ClassVar[bool] = True

    def filter(self, _pod: Pod, node: NodeInfo) -> str | None:
        return "node(s) had a pod" if node.pod_count else None


@pytest.mark.parametrize("b", [8, 1])
def test_a_pod_is_awaited_that_another_plugin_counts_on_a_node_with_room(b: int) -> None:
    """The pod waits for quota, too, if Queue b borrows."""
    plugins = {"multiPoint": {"enabled": [{"name": "OnePodAtMost"}]}}
    objects = gpus("n1"), gpus("n2"), queue_object("all"), queue_object("a", {GPU: 8}, parent="all")
    queue = queue_object("b", {GPU: b}, parent="all")
    running = leaving("gone", "n1", 1), using("stays", "b", "n2", 8)
    deciding = Deciding(*objects, queue, *running, extra=(OnePodAtMost,), plugins=plugins)
    assert pod_victims(deciding, using("p", "a")) == ["gone"]


def test_a_queue_that_is_losing_what_it_borrowed_loses_no_more() -> None:
    deciding = Deciding(*two_teams(), leaving("big1", "n1", 8), using("big2", "b", "n2", gpu=8))
    deciding.nominate(using("p0", "a"), "n1")
    assert pod_victims(deciding, using("p1", "a", gpu=7)) == ["big1"]
    deciding.nominate(using("p1", "a", gpu=7), "n1")
    assert "No preemption victims" in refusal(deciding, using("p2", "a"))


def test_nominated_pods_of_the_queue_count_against_its_share() -> None:
    deciding = Deciding(
        gpus("n1"),
        gpus("n2"),
        gpus("n3"),
        queue_object("all"),
        *(queue_object(name, {GPU: 8}, parent="all") for name in "abc"),
        *(using(f"b{i}", "b", f"n{1 + i // 8}") for i in range(24)),
    )
    for i in range(8):
        deciding.nominate(using(f"p{i}", "a"), "n1")
    assert "No preemption victims" in refusal(deciding, using("p8", "a"))


def test_pods_of_a_queue_that_got_a_queue_below_it_are_not_evicted_for_that() -> None:
    deciding = Deciding(
        gpus("n1", 4),
        queue_object("all", {GPU: 4}),
        *(using(f"x{i}", "all", "n1", priority=1000) for i in range(4)),
        queue_object("kid", {GPU: 4}, parent="all"),
    )
    assert "No preemption victims" in refusal(deciding, using("p", "kid"))


def test_other_resources_of_a_queue_do_not_fall_below_its_quota_either() -> None:
    deciding = Deciding(
        node("n1", cpu="8", resources={GPU: 8}),
        queue_object("all"),
        queue_object("a", {GPU: 4, "cpu": 4}, parent="all"),
        queue_object("b", {GPU: 4, "cpu": 4}, parent="all"),
        *(using(f"b{i}", "b", "n1", cpu="500m") for i in range(8)),
    )
    assert "No preemption victims" in refusal(deciding, using("p", "a"))


def test_pods_within_a_quota_stay_where_a_nominated_pod_will_exceed_it() -> None:
    deciding = Deciding(
        gpus("n1"),
        queue_object("all"),
        queue_object("a", {GPU: 4}, parent="all"),
        queue_object("b", {GPU: 4}, parent="all"),
        *(using(f"b{i}", "b", "n1") for i in range(4)),
    )
    deciding.nominate(using("next", "b", gpu=4), "n1")
    assert "No preemption victims" in refusal(deciding, using("p", "a", gpu=4))


def test_no_queue_falls_below_its_quota_when_the_labels_of_its_pods_were_removed() -> None:
    large, small = using("large", "b", "n1", gpu=8, priority=-10), using("small", "b", "n2", gpu=4)
    deciding = Deciding(*two_teams(), large, small)
    queues = deciding.state.queues
    for raw in (large, small):
        del raw["metadata"]["labels"]
        one = parse_pod(raw)
        deciding.state.put(Kind.POD, one.uid, one)
    assert pod_victims(deciding, using("p", "a", gpu=5)) == ["small"]
    assert queues.states["b"].used[GPU] == 12
