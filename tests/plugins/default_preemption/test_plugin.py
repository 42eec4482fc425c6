"""DefaultPreemption in the scheduling cycle: eligible pods, chosen nodes and victims."""

from typing import Any

import pytest

from call_counts import calls_in
from deciding import Deciding
from extending import said
from mooring.extenders.verdicts import PodExtenderResults
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import node, pdb, pod, uid_of
from pod_terms import apart, to_pods

HIGH, MIDDLE, LOW = 1000, 100, 10


def full(name: str, *priorities: int, cpu: str = "1") -> list[dict[str, object]]:
    """Return a node of 4 cpus, and a pod on the node for each of these priorities."""
    return [
        node(name, cpu="4"),
        *(
            pod(f"{name}-{i}", cpu=cpu, node=name, priority=priority, labels={"on": name})
            for i, priority in enumerate(priorities)
        ),
    ]


def test_the_node_with_the_lowest_victims_is_nominated() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, MIDDLE), *full("b", LOW, LOW, LOW, LOW))
    decision = deciding.decision(pod("new", cpu="1", priority=HIGH))
    assert decision.node is None
    assert decision.nominated_node == "a"
    assert [v.key for v in decision.victims] == ["default/a-2"]
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient cpu. "
        "preemption: found a potential placement for pod on node a, preempting 1 victims"
    )


def test_before_kubernetes_1_37_no_message_says_which_node_preemption_has_found() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), kubernetesVersion="1.36")
    decision = deciding.decision(pod("new", cpu="1", priority=HIGH))
    assert decision.nominated_node == "a"
    assert decision.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_fewer_victims_win_when_priorities_are_equal() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), *full("b", LOW, LOW, cpu="2"))
    decision = deciding.decision(pod("new", cpu="2", priority=HIGH))
    assert (decision.nominated_node, [v.key for v in decision.victims]) == ("b", ["default/b-1"])


def test_of_equal_priority_the_pod_that_started_last_is_the_victim() -> None:
    deciding = Deciding(
        node("a", cpu="2"),
        pod("old", cpu="1", node="a", started="2026-01-01T00:00:00Z"),
        pod("young", cpu="1", node="a", started="2026-02-01T00:00:00Z"),
    )
    assert [v.key for v in deciding.decision(pod("new", cpu="1", priority=HIGH)).victims] == [
        "default/young"
    ]


def test_pods_of_equal_priority_are_never_victims() -> None:
    deciding = Deciding(*full("a", HIGH, HIGH, HIGH, HIGH))
    decision = deciding.decision(pod("new", cpu="1", priority=HIGH))
    assert decision.nominated_node is None
    assert decision.message is not None
    assert decision.message.endswith(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_without_pods_of_lower_priority_no_node_is_looked_at_for_victims() -> None:
    def steps(priority: int) -> int:
        deciding = Deciding(*full("a", HIGH, HIGH, HIGH, priority), *full("b", HIGH, cpu="4"))
        deciding.decision(pod("first", cpu="2", priority=HIGH))
        return calls_in(lambda: deciding.decision(pod("new", cpu="2", priority=HIGH)))

    assert steps(HIGH) < 0.8 * steps(LOW)


def test_preemption_is_not_helpful_on_a_node_too_small_even_when_empty() -> None:
    message = Deciding(*full("a", LOW)).decision(pod("new", cpu="8", priority=HIGH)).message
    assert message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_the_message_says_what_is_insufficient_even_without_the_potential_victims() -> None:
    deciding = Deciding(*full("a", LOW, HIGH, HIGH, HIGH))
    message = deciding.decision(pod("new", cpu="2", priority=HIGH)).message
    assert message is not None
    assert message.endswith("preemption: 0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize(
    ("priority", "victims"), [(LOW, ["default/p0", "default/p1", "default/p2"]), (HIGH, [])]
)
def test_victims_that_request_more_than_int64_in_total_make_room_if_all_of_them_can_leave(
    priority: int, victims: list[str]
) -> None:
    priorities = {"p0": LOW, "p1": priority, "p2": LOW}
    huge = [pod(name, node="a", memory="5Ei", priority=p) for name, p in priorities.items()]
    decision = Deciding(node("a", memory="8Gi"), *huge).decision(
        pod("new", memory="1Gi", priority=HIGH)
    )
    assert sorted(victim.key for victim in decision.victims) == victims


def test_a_pod_that_never_preempts_says_so() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW))
    raw = pod("new", cpu="1", priority=HIGH, spec={"preemptionPolicy": "Never"})
    message = deciding.decision(raw).message
    assert message is not None
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_a_budget_is_violated_only_if_no_other_node_fits() -> None:
    objects = (*full("a", LOW, LOW, LOW, LOW), *full("b", MIDDLE, MIDDLE, MIDDLE, MIDDLE))
    deciding = Deciding(*objects, pdb("guard", {"on": "a"}, allowed=0))
    assert deciding.decision(pod("new", cpu="1", priority=HIGH)).nominated_node == "b"


def test_a_pod_whose_budget_would_be_violated_is_reprieved_before_the_others() -> None:
    deciding = Deciding(
        node("a", cpu="2"),
        pod("guarded", cpu="1", node="a", priority=LOW, labels={"app": "guarded"}),
        pod("free", cpu="1", node="a", priority=MIDDLE),
        pdb("guard", {"app": "guarded"}, allowed=0),
    )
    assert [v.key for v in deciding.decision(pod("new", cpu="1", priority=HIGH)).victims] == [
        "default/free"
    ]


def test_an_eviction_that_has_begun_counts_against_its_budget_at_once() -> None:
    deciding = Deciding(
        *full("a", LOW, LOW, LOW, LOW),
        *full("b", MIDDLE, MIDDLE, MIDDLE, MIDDLE),
        pdb("guard", {"on": "a"}, allowed=1),
    )
    first = deciding.outcome(pod("one", cpu="1", priority=HIGH))
    assert isinstance(first, FitError)
    assert first.nomination is not None
    assert first.nomination.node == "a"
    deciding.nominate(pod("one", cpu="1", priority=HIGH), "a")
    deciding.state.begin_evictions(
        parse_pod(pod("one", cpu="1", priority=HIGH)), first.nomination.victims
    )
    assert deciding.decision(pod("two", cpu="1", priority=HIGH)).nominated_node == "b"


def evict_for(deciding: Deciding, raw: dict[str, object]) -> tuple[str, list[str]]:
    """Begin the pod's preemption; return its nominated node and its victims."""
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    node, victims = outcome.nomination.node, outcome.nomination.victims
    deciding.nominate(raw, node)
    deciding.state.begin_evictions(parse_pod(raw), victims)
    return node, [victim.key for victim in victims]


def starts(deciding: Deciding, key: str, when: str, **fields: Any) -> None:
    """Set the start time of a placed pod."""
    placed = deciding.state.pods.named(key)
    assert placed is not None
    namespace, name = key.split("/")
    raw = pod(name, namespace=namespace, node=placed.pod.node_name, started=when, **fields)
    deciding.state.put(Kind.POD, key, parse_pod(raw))


def test_what_an_eviction_frees_is_used_before_another_pod_is_evicted() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), *full("b", LOW, LOW, LOW, LOW))
    first = evict_for(deciding, pod("one", cpu="500m", priority=HIGH))
    # Any other pod of both nodes has started later by now, and would be kube-scheduler's choice.
    for name in ("a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "b-3"):
        starts(deciding, f"default/{name}", "2026-05-05T00:00:00Z", cpu="1", priority=LOW)
    starts(deciding, "default/a-3", "2026-01-01T00:00:00Z", cpu="1", priority=LOW)
    assert first[0] == "a"
    assert evict_for(deciding, pod("two", cpu="500m", priority=HIGH)) == first
    _, victims = evict_for(deciding, pod("three", cpu="500m", priority=HIGH))
    assert victims != first[1], "what one victim frees is not enough for three pods"


def test_what_an_eviction_frees_is_used_where_the_filters_decide_in_a_dry_run() -> None:
    holders = [pod(f"{n}-holder", node=n, ports=[80, 81], priority=LOW) for n in ("a", "b")]
    deciding = Deciding(node("a"), node("b"), *holders)
    first = evict_for(deciding, pod("one", ports=[80], priority=HIGH))
    assert first[0] == "a"
    starts(deciding, "default/b-holder", "2026-05-05T00:00:00Z", ports=[80, 81], priority=LOW)
    starts(deciding, "default/a-holder", "2026-01-01T00:00:00Z", ports=[80, 81], priority=LOW)
    assert evict_for(deciding, pod("two", ports=[81], priority=HIGH)) == first


def test_a_pod_that_is_being_evicted_already_does_not_count_as_a_further_victim() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), preemption={"maxVictims": 1})
    evict_for(deciding, pod("one", cpu="500m", priority=HIGH))
    _, victims = evict_for(deciding, pod("two", cpu="1500m", priority=HIGH))
    assert len(victims) == 2


def test_a_strict_profile_has_no_candidate_that_violates_a_budget() -> None:
    deciding = Deciding(
        *full("a", LOW, LOW, LOW, LOW),
        pdb("guard", {"on": "a"}, allowed=0),
        preemption={"disruptionBudgets": "Strict"},
    )
    decision = deciding.decision(pod("new", cpu="1", priority=HIGH))
    assert decision.nominated_node is None
    assert decision.message is not None
    assert "that a PodDisruptionBudget does not allow" in decision.message


@pytest.mark.parametrize(
    "budgets",
    [
        [pdb("all", {}, selector={})],
        [pdb("guard", {"on": "a"}, allowed=9), pdb("too", {"on": "a"}, allowed=9)],
    ],
    ids=["of all pods", "several"],
)
def test_a_strict_profile_regards_budgets_as_the_eviction_api_does(
    budgets: list[dict[str, Any]],
) -> None:
    """Without `Strict`, kube-scheduler's rules apply, and the pods are evicted."""
    objects = (*full("a", LOW), *budgets)
    new = pod("new", cpu="4", priority=HIGH)
    found = Deciding(*objects, preemption={"disruptionBudgets": "Strict"}).decision(new)
    assert found.nominated_node is None
    assert Deciding(*objects).decision(new).nominated_node == "a"


def test_a_strict_profile_evicts_a_pod_without_labels_only_if_its_budget_allows_it() -> None:
    unlabelled = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    objects = (node("a", cpu="1"), pod("plain", cpu="1", node="a", priority=LOW))
    strict = {"disruptionBudgets": "Strict"}
    for allowed, nominated in ((0, None), (1, "a")):
        budget = pdb("plain", {}, selector=unlabelled, allowed=allowed)
        deciding = Deciding(*objects, budget, preemption=strict)
        assert deciding.decision(pod("new", cpu="1", priority=HIGH)).nominated_node == nominated


def test_a_strict_profile_takes_another_victim_than_the_eviction_api_has_refused() -> None:
    strict = Deciding(
        *full("a", LOW, LOW, LOW, LOW),
        *full("b", MIDDLE, MIDDLE, MIDDLE, MIDDLE),
        preemption={"disruptionBudgets": "Strict"},
    )
    new = pod("new", cpu="4", priority=HIGH)
    decision = strict.decision(new)
    assert decision.nominated_node == "a"
    refused = strict.state.pods.get(decision.victims[0].uid)
    assert refused is not None
    strict.state.eviction_refused(refused.pod, by_budget=False)
    assert strict.decision(new).nominated_node == "b"
    for _ in range(2):
        strict.state.grow_older()
    assert strict.decision(new).nominated_node == "a"


def test_what_the_eviction_api_has_refused_matters_to_strict_profiles_only() -> None:
    deciding = Deciding(*full("a", LOW), *full("b", MIDDLE))
    placed = deciding.state.pods.get(uid_of("a-0"))
    assert placed is not None
    deciding.state.eviction_refused(placed.pod, by_budget=False)
    assert deciding.decision(pod("new", cpu="4", priority=HIGH)).nominated_node == "a"


def test_a_profile_may_bound_the_number_of_victims() -> None:
    objects = (*full("a", LOW, LOW, LOW, LOW), *full("b", MIDDLE, MIDDLE, cpu="2"))
    deciding = Deciding(*objects, preemption={"maxVictims": 1})
    decision = deciding.decision(pod("new", cpu="2", priority=HIGH))
    assert (decision.nominated_node, len(decision.victims)) == ("b", 1)


def test_pods_that_have_not_run_long_enough_for_the_profile_are_no_victims() -> None:
    deciding = Deciding(
        node("a", cpu="1"),
        pod("young", cpu="1", node="a", priority=LOW, started="1970-01-01T00:01:40Z"),
        preemption={"minRuntimeSeconds": 60},
    )
    raw = pod("new", cpu="1", priority=HIGH)
    assert deciding.decision(raw, now=159.0).nominated_node is None
    assert deciding.decision(raw, now=161.0).nominated_node == "a"


def test_a_pod_waits_for_an_autoscaler_before_it_preempts() -> None:
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), preemption={"delaySeconds": 60})
    raw = pod("new", cpu="1", priority=HIGH)
    first = deciding.decision(raw)
    assert first.nominated_node is None
    assert first.message is not None
    assert first.message.endswith("preemption: not eligible yet due to delaySeconds=60.")
    assert deciding.decision(raw, unschedulable_seconds=59.9).nominated_node is None
    assert deciding.decision(raw, unschedulable_seconds=60.0).nominated_node == "a"


def test_a_nominated_pod_has_waited_already_under_another_leader() -> None:
    """The pod's victims are gone, but a pod of lower priority has taken their room."""
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), preemption={"delaySeconds": 60})
    raw = pod("new", cpu="1", priority=HIGH)
    deciding.state.nominate(parse_pod(raw), "a")
    assert deciding.decision(raw).nominated_node == "a"


def test_a_pod_whose_place_was_kept_for_it_has_not_waited() -> None:
    """The pod replaces a moved pod, but another pod has taken the reserved place."""
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), preemption={"delaySeconds": 60})
    place = parse_pod(pod("place", cpu="1", priority=HIGH))
    raw = pod("new", cpu="1", priority=HIGH)
    deciding.state.nominate(place, "a")
    assert deciding.state.pass_nomination(place.uid, parse_pod(raw))
    assert deciding.decision(raw).nominated_node is None
    assert deciding.decision(raw, unschedulable_seconds=60.0).nominated_node == "a"


def preempting() -> tuple[Deciding, dict[str, object]]:
    """Return a cluster, and a pod nominated to node a, where its victim is being evicted."""
    deciding = Deciding(*full("a", LOW, LOW, LOW, LOW), *full("b", MIDDLE, MIDDLE, MIDDLE, MIDDLE))
    raw = pod("new", cpu="1", priority=HIGH)
    assert evict_for(deciding, raw)[0] == "a"
    return deciding, raw


def test_a_pod_does_not_preempt_again_while_its_victims_are_being_evicted() -> None:
    deciding, raw = preempting()
    again = deciding.outcome(raw)
    assert isinstance(again, FitError)
    assert again.nomination is None
    assert again.keeps_nomination
    assert again.message.endswith("not eligible due to a terminating pod on the nominated node.")


def cordon(deciding: Deciding, name: str) -> None:
    raw = node(name, cpu="4", unschedulable=True)
    deciding.state.put(Kind.NODE, name, parse_node(raw))


def test_a_pod_whose_nominated_node_is_cordoned_preempts_elsewhere() -> None:
    deciding, raw = preempting()
    cordon(deciding, "a")
    assert deciding.decision(raw).nominated_node == "b"


def test_a_pod_whose_nominated_node_is_deleted_preempts_elsewhere() -> None:
    deciding, raw = preempting()
    deciding.state.delete(Kind.NODE, "a")
    assert deciding.decision(raw).nominated_node == "b"


def test_a_pod_that_is_rejected_at_pre_filter_loses_its_nomination() -> None:
    """The pod's claim does not exist, so evictions cannot help."""
    deciding, _ = preempting()
    outcome = deciding.outcome(pod("new", cpu="1", priority=HIGH, claims=["gone"]))
    assert isinstance(outcome, FitError)
    assert outcome.diagnosis.pre_filter is not None
    assert (outcome.nomination, outcome.keeps_nomination) == (None, False)


def terminating_on_a(
    reason: str = "PreemptionByScheduler", *, priority: int = 0, budgets: str = "Default"
) -> tuple[Deciding, dict[str, object]]:
    """Return a cluster, and a pod nominated to node a, where a victim of a former leader ends."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    status = {"conditions": [condition]}
    deciding = Deciding(
        node("a", cpu="1"),
        pod("gone", cpu="1", node="a", terminating=True, priority=priority, status=status),
        *full("b", LOW, LOW, LOW, LOW),
        preemption={"disruptionBudgets": budgets},
    )
    raw = pod("new", cpu="1", priority=HIGH)
    deciding.nominate(raw, "a")
    return deciding, raw


def test_a_terminating_victim_of_an_earlier_leader_is_recognised_by_its_condition() -> None:
    deciding, raw = terminating_on_a()
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert outcome.keeps_nomination


def test_a_victim_that_an_earlier_leader_evicted_for_a_strict_profile_is_recognised() -> None:
    deciding, raw = terminating_on_a("EvictionByEvictionAPI", budgets="Strict")
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert outcome.keeps_nomination


@pytest.mark.parametrize(
    ("budgets", "priority", "reason"),
    [
        ("Default", 0, "EvictionByEvictionAPI"),
        ("Strict", HIGH, "EvictionByEvictionAPI"),
        ("Strict", 0, "DeletionByTaintManager"),
    ],
)
def test_other_terminating_pods_on_the_nominated_node_are_no_victims(
    budgets: str, priority: int, reason: str
) -> None:
    deciding, raw = terminating_on_a(reason, priority=priority, budgets=budgets)
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None


def test_terminating_pods_on_a_cordoned_node_do_not_keep_a_pod_from_preempting() -> None:
    deciding, raw = terminating_on_a()
    cordon(deciding, "a")
    assert deciding.decision(raw).nominated_node == "b"


def test_pods_of_lower_priority_leave_a_nominated_pod_its_resources() -> None:
    deciding = Deciding(node("a", cpu="2"))
    deciding.nominate(pod("nominated", cpu="2", priority=HIGH), "a")
    low = deciding.decision(pod("low", cpu="1", priority=LOW))
    assert low.node is None
    assert low.message is not None
    assert low.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    higher = deciding.outcome(pod("higher", cpu="1", priority=HIGH + 1))
    assert isinstance(higher, ScheduleResult)


def test_a_nominated_pod_that_fits_its_node_is_placed_there_without_scoring() -> None:
    deciding = Deciding(node("a", cpu="4"), *full("b", LOW, LOW, LOW))
    raw = pod("nominated", cpu="1", priority=HIGH)
    deciding.nominate(raw, "b")
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, ScheduleResult)
    assert (outcome.node, outcome.scores) == ("b", None)


def test_a_pod_that_holds_the_wanted_host_port_is_the_victim() -> None:
    deciding = Deciding(
        node("a"),
        pod("holder", node="a", ports=[80], priority=LOW),
        pod("other", node="a", priority=LOW),
    )
    decision = deciding.decision(pod("new", ports=[80], priority=HIGH))
    assert (decision.nominated_node, [v.key for v in decision.victims]) == ("a", ["default/holder"])


def test_a_dry_run_leaves_the_cluster_as_it_was() -> None:
    deciding = Deciding(node("a"), pod("holder", node="a", ports=[80], priority=LOW))
    deciding.decision(pod("new", ports=[80], priority=HIGH))
    assert deciding.decision(pod("other", ports=[80], priority=LOW)).nominated_node is None
    assert [p.pod.key for p in deciding.state.pods] == ["default/holder"]


def test_nodes_are_examined_until_a_candidate_violates_no_budget() -> None:
    guarded = [o for i in range(4) for o in full(f"g{i}", LOW, LOW, LOW, LOW)]
    args = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
    deciding = Deciding(
        *guarded,
        *full("free", MIDDLE, MIDDLE, MIDDLE, MIDDLE),
        *(pdb(f"guard-{i}", {"on": f"g{i}"}, allowed=0) for i in range(4)),
        pluginConfig=[{"name": "DefaultPreemption", "args": args}],
        preemption={"disruptionBudgets": "Strict"},
    )
    assert deciding.decision(pod("new", cpu="1", priority=HIGH)).nominated_node == "free"


@pytest.mark.parametrize("candidates", [1, 2])
def test_no_more_candidates_are_compared_than_the_profile_asks_for(candidates: int) -> None:
    """With a budget, the ranking by requests is inexact, so victims are selected node by node."""
    args = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": candidates}
    deciding = Deciding(
        node("guessed", cpu="2"),
        pod("guarded", cpu="1", node="guessed", priority=LOW, labels={"app": "guarded"}),
        pod("free", cpu="1", node="guessed", priority=MIDDLE),
        *full("better", LOW + 1, LOW + 1, LOW + 1, LOW + 1),
        pdb("guard", {"app": "guarded"}, allowed=0),
        pluginConfig=[{"name": "DefaultPreemption", "args": args}],
    )
    expected = "guessed" if candidates == 1 else "better"
    assert deciding.decision(pod("new", cpu="1", priority=HIGH)).nominated_node == expected


@pytest.mark.parametrize(
    ("most_per_attempt", "not_tried"), [(None, 0), (10_000, 0), (2_000, 1), (1_000, 2)]
)
def test_dry_runs_end_once_an_attempt_has_done_enough(
    most_per_attempt: int | None, not_tried: int
) -> None:
    few = (o for name in "abc" for o in full(name, LOW, HIGH))
    deciding = Deciding(*few, most_per_attempt=most_per_attempt)
    raw = pod("new", cpu="4", priority=HIGH, ports=[80])
    for seed in range(3):
        message = deciding.decision(raw, seed=seed).message
        assert message is not None
        found = f"{not_tried} node(s) were not tried in this attempt, because each needs a dry run"
        assert (found in message) is (not_tried > 0)


def test_the_cheapest_nodes_are_tried_first_where_an_attempt_cannot_try_all() -> None:
    dear = (o for name in "abc" for o in full(name, *[MIDDLE] * 4))
    deciding = Deciding(*dear, *full("d", *[LOW] * 4), most_per_attempt=2_000)
    raw = pod("new", cpu="4", priority=HIGH, ports=[80])
    found = {deciding.decision(raw, seed=seed).nominated_node for seed in range(3)}
    assert found == {"d"}


def apart_from_b(name: str, **fields: Any) -> dict[str, Any]:
    """Return a pod with anti-affinity to pods with the label a=b; its filter counts pods."""
    away = apart(to_pods({"a": "b"}))
    return pod(name, cpu="1", priority=HIGH, affinity=away, **fields)


def test_an_attempt_without_time_for_a_dry_run_is_made_again() -> None:
    """Otherwise the pod would wait for an event, although no node was examined."""
    full = (
        o
        for i in range(3)
        for o in (node(f"n{i}"), pod(f"low{i}", node=f"n{i}", labels={"a": "b"}))
    )
    deciding = Deciding(*full, most_per_attempt=520)
    with pytest.raises(AttemptTooLongError, match="finding victims by dry runs takes longer"):
        deciding.decision(apart_from_b("new"))
    assert deciding.decision(apart_from_b("new")).nominated_node is not None


def test_an_attempt_without_time_says_so_where_no_pod_may_be_a_victim() -> None:
    above = (pod(f"h{i}", node=f"n{i}", priority=HIGH + 1, labels={"a": "b"}) for i in range(3))
    pool = (node(f"n{i}", labels={"pool": "x"}) for i in range(3))
    deciding = Deciding(
        *pool, *above, node("other"), pod("low", node="other"), most_per_attempt=500
    )
    message = deciding.decision(apart_from_b("new", node_selector={"pool": "x"})).message
    assert message is not None
    assert "3 No preemption victims found" in message


@pytest.mark.parametrize(("most_checks", "not_tried"), [(4, 0), (2, 1), (1, 2)])
def test_a_pod_with_many_terms_is_tried_on_fewer_nodes(
    most_checks: int, not_tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "mooring.plugins.default_preemption.plugin"
    monkeypatch.setattr(f"{module}._COMPARED_ALWAYS", 0)
    monkeypatch.setattr(f"{module}._MOST_CHECKS", most_checks)
    deciding = Deciding(*(o for name in "abc" for o in full(name, LOW, HIGH)))
    away = apart(*(to_pods({"on": on}) for on in ("a", "b")))
    raw = pod("new", cpu="4", priority=HIGH, affinity=away)
    message = deciding.decision(raw).message
    assert message is not None
    found = f"{not_tried} node(s) were not tried in this attempt, because each needs a dry run"
    assert (found in message) == bool(not_tried)


def test_a_node_beyond_the_bound_is_tried_in_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.plugins.default_preemption.plugin._COMPARED_ALWAYS", 0)
    monkeypatch.setattr("mooring.plugins.default_preemption.plugin._MOST_CHECKS", 1)
    blocked = (o for name in "abc" for o in full(name, LOW, HIGH))
    deciding = Deciding(*blocked, *full("d", LOW, LOW, LOW, LOW))
    away = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchExpressions": [{"key": "on", "operator": "In", "values": ["a", "b", "c"]}]
        },
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [away]}
    raw = pod("new", cpu="1", priority=HIGH, affinity={"podAntiAffinity": required})
    found = {deciding.decision(raw, seed=seed).nominated_node for seed in range(4)}
    assert found == {"d", None}


def test_a_node_whose_budgets_allow_its_victims_is_found_in_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.plugins.default_preemption.plugin._COMPARED_ALWAYS", 0)
    monkeypatch.setattr("mooring.plugins.default_preemption.plugin._MOST_LOOKED_AT", 2)
    deciding = Deciding(
        *(o for name in ("a", "b", "c") for o in guarded(name, LOW)),
        node("d", cpu="1"),
        pod("on-d", cpu="1", node="d", priority=MIDDLE),
        pdb("guard", {"app": "guarded"}, allowed=0),
        preemption={"disruptionBudgets": "Strict"},
    )
    outcomes = [deciding.decision(pod("new", cpu="1", priority=HIGH), seed=i) for i in range(3)]
    assert {outcome.nominated_node for outcome in outcomes} == {"d", None}
    texts = [outcome.message for outcome in outcomes if outcome.nominated_node is None]
    assert all(text and "2 node(s) were not tried in this attempt" in text for text in texts)


@pytest.mark.parametrize("too_small", [0, 150])
def test_one_hundred_candidates_are_compared_at_any_cost(
    too_small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.plugins.default_preemption.plugin._MOST_CHECKS", 10)
    deciding = Deciding(
        *(o for i in range(99) for o in seemingly_cheap(f"n{i}")),
        *full("best", LOW, LOW, LOW, LOW),
        *(node(f"small-{i}", cpu="1") for i in range(too_small)),
        *(pod(f"on-{i}", node=f"small-{i}", priority=LOW) for i in range(too_small)),
    )
    raw = pod("new", cpu="2", priority=HIGH, affinity=apart(to_pods({"away": "yes"})))
    assert {deciding.decision(raw, seed=i).nominated_node for i in (0, 30, 60)} == {"best"}


def seemingly_cheap(name: str) -> list[dict[str, object]]:
    """Return a node where requests need a cheap victim, and anti-affinity needs another one."""
    return [
        node(name, cpu="4"),
        pod(f"{name}-low", cpu="2", node=name, priority=LOW),
        pod(f"{name}-away", cpu="2", node=name, priority=MIDDLE, labels={"away": "yes"}),
    ]


def guarded(name: str, priority: int) -> tuple[dict[str, Any], ...]:
    """Return a node, and the pod that fills it and that no budget allows to evict."""
    filling = pod(f"on-{name}", cpu="1", node=name, priority=priority, labels={"app": "guarded"})
    return node(name, cpu="1"), filling


def with_extenders(deciding: Deciding, raw: dict[str, object], **answers: Any) -> Any:
    """Return the result of `decide` for the pod; extenders take part in preemption."""
    found, pipeline = parse_pod(raw), deciding.pipeline
    given = PodExtenderResults(found, preempts=True, **answers)
    return decide(found, pipeline, deciding.shared, seed=0, answers=given)


def test_preempt_extenders_are_called_with_all_candidates() -> None:
    deciding = Deciding(*full("a", 3, cpu="4"), *full("b", 1, cpu="4"), *full("c", 2, cpu="4"))
    call = with_extenders(deciding, pod("urgent", cpu="1", priority=9))
    assert [(c.node, [v.name for v in c.victims]) for c in call.candidates] == [
        ("b", ["b-0"]),
        ("c", ["c-0"]),
        ("a", ["a-0"]),
    ]


def test_the_cheapest_of_the_candidates_that_extenders_left_is_nominated() -> None:
    deciding = Deciding(*full("a", 3, cpu="4"), *full("b", 1, cpu="4"), *full("c", 2, cpu="4"))
    urgent = pod("urgent", cpu="1", priority=9)
    call = with_extenders(deciding, urgent)
    left = ProcessedCandidates(tuple(c for c in call.candidates if c.node != "b"))
    outcome = with_extenders(deciding, urgent, processed=left)
    assert outcome.nomination.node == "c"
    none = with_extenders(deciding, urgent, processed=ProcessedCandidates(()))
    assert none.nomination is None
    assert none.keeps_nomination
    assert none.message.endswith("preemption: no candidate node for preemption")


def test_an_error_of_a_preempt_extender_is_all_that_the_post_filters_say() -> None:
    deciding = Deciding(*full("a", 3, cpu="4"))
    failed = ProcessedCandidates((), "the extender is down")
    outcome = with_extenders(deciding, pod("urgent", cpu="1", priority=9), processed=failed)
    assert outcome.message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: the extender is down"
    )


def test_nodes_that_only_an_extender_filtered_out_are_no_candidates() -> None:
    deciding = Deciding(node("a"), pod("low", node="a"), node("b"))
    urgent = pod("urgent", priority=9)
    only_b, both = said(urgent, (), "b").nodes, said(urgent, (), "ab").nodes
    cordon(deciding, "a")
    assert with_extenders(deciding, urgent, nodes=only_b).message.endswith(
        "1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    deciding = Deciding(node("a"), pod("low", node="a"), node("b"))
    assert with_extenders(deciding, urgent, nodes=both).message == (
        '0/2 nodes are available: 2 busy. preemption: expected at least one victim pod on node "a"'
    )


def test_from_1_38_on_preempt_extenders_may_name_victims_where_only_extenders_reject() -> None:
    deciding = Deciding(
        node("a"), pod("low", node="a"), *full("b", 1, cpu="4"), node("c"), kubernetesVersion="1.38"
    )
    urgent = pod("urgent", cpu="1", priority=9)
    filtered = said(urgent, (), "ac").nodes
    call = with_extenders(deciding, urgent, nodes=filtered)
    assert [(c.node, [v.name for v in c.victims]) for c in call.candidates] == [
        ("b", ["b-0"]),
        ("a", []),
    ]
    low = parse_pod(pod("low", node="a"))
    named = ProcessedCandidates((PreemptionCandidate("a", (low,), 0),))
    outcome = with_extenders(deciding, urgent, nodes=filtered, processed=named)
    assert outcome.nomination.node == "a"
    assert [victim.name for victim in outcome.nomination.victims] == ["low"]
