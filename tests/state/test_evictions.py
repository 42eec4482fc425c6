"""The pods being evicted, their preemptors, and the remaining disruptions of budgets."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pdb, pod, uid_of

WEB = {"app": "web"}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
PREEMPTOR = parse_pod(pod("high", priority=100))
OTHER = parse_pod(pod("other", priority=100))


def web(
    name: str, *, uid: str | None = None, on: str | None = "n1", ready: bool = True, **fields: Any
) -> Pod:
    raw = pod(name, node=on, labels=WEB, status=READY if ready and on else None, **fields)
    if uid is not None:
        raw["metadata"]["uid"] = uid
    return parse_pod(raw)


def guarded(allowed: int) -> ClusterState:
    """Return a state of two nodes; the pods a, b and c on the first one have a common budget."""
    state = cluster(node("n1"), node("n2"), pdb("guard", WEB, allowed=allowed))
    for name in ("a", "b", "c"):
        see(state, web(name))
    return state


def see(state: ClusterState, seen: Pod) -> None:
    """Let the watch show this version of the pod."""
    state.put(Kind.POD, seen.uid, seen)


def known(state: ClusterState, name: str) -> Pod:
    found = state.pods.get(uid_of(name))
    assert found is not None
    return found.pod


def allowed(state: ClusterState) -> int:
    """Return the number of disruptions that the budget still allows."""
    budget: PodDisruptionBudget = state.objects.of(Kind.POD_DISRUPTION_BUDGET)["default/guard"]
    return state.evictions.disruptions_allowed(budget)


def write_status(state: ClusterState, allowed: int) -> None:
    """Write the budget's status, as the disruption controller does."""
    raw = pdb("guard", WEB, allowed=allowed)
    state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_object(Kind(raw["kind"]), raw))


def evicting_in_columns(state: ClusterState) -> list[str]:
    columns = state.pod_columns
    return [
        p.name
        for p, evicting in zip(columns.pods, columns.evicting.tolist(), strict=True)
        if p is not None and evicting
    ]


def test_a_budget_matches_the_pods_its_selector_selects_in_its_namespace() -> None:
    state = guarded(1)
    assert [b.name for b in state.evictions.matching_budgets(known(state, "a"))] == ["guard"]
    assert state.evictions.matching_budgets(parse_pod(pod("a", namespace="x", labels=WEB))) == []
    assert state.evictions.matching_budgets(parse_pod(pod("a", labels={"app": "db"}))) == []


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ({}, {}),
        ({}, WEB),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, {}),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]}, {}),
    ],
)
def test_the_eviction_api_regards_budgets_that_kube_scheduler_does_from_1_38_on(
    selector: dict[str, Any], labels: dict[str, str]
) -> None:
    state = cluster(pdb("all", {}, selector=selector))
    evicted = parse_pod(pod("a", labels=labels, node="n1"))
    state.follow_server("1.38")
    assert [budget.name for budget in state.evictions.matching_budgets(evicted)] == ["all"]
    state.follow_server("1.37")
    assert state.evictions.matching_budgets(evicted) == []
    assert state.evictions.budgets_of_many([evicted]) == []
    by_api = state.evictions.matching_budgets(evicted, by_eviction_api=True)
    assert [budget.name for budget in by_api] == ["all"]
    assert state.evictions.budgets_of_many([evicted], by_eviction_api=True) == [(by_api, 1)]
    assert state.evictions.exhausted_budget([evicted]) == "default/all"


@pytest.mark.parametrize(
    ("ready", "policy", "healthy", "needs_no_budget"),
    [
        (False, "AlwaysAllow", 0, True),
        (False, None, 2, True),
        (False, "IfHealthyBudget", 1, False),
        (True, "AlwaysAllow", 2, False),
    ],
)
def test_the_eviction_api_evicts_some_pods_that_are_not_ready_whatever_their_budget_allows(
    policy: str | None, healthy: int, *, ready: bool, needs_no_budget: bool
) -> None:
    raw = pdb("guard", WEB, allowed=0)
    raw["spec"]["unhealthyPodEvictionPolicy"] = policy
    raw["status"] |= {"currentHealthy": healthy, "desiredHealthy": 2}
    state, evicted = cluster(raw), web("a", ready=ready)
    by_api = state.evictions.matching_budgets(evicted, by_eviction_api=True)
    assert [budget.name for budget in by_api] == ([] if needs_no_budget else ["guard"])
    alike = state.evictions.budgets_of_many([evicted, web("b")], by_eviction_api=True)
    assert [number for _, number in alike] == [1 if needs_no_budget else 2]
    assert len(state.evictions.matching_budgets(evicted)) == 1, "kube-scheduler regards it"


def test_a_budget_for_no_healthy_pod_keeps_pods_that_are_not_ready() -> None:
    raw = pdb("guard", WEB, allowed=0)
    raw["status"] |= {"currentHealthy": 0, "desiredHealthy": 0}
    assert cluster(raw).evictions.exhausted_budget([web("a", ready=False)]) == "default/guard"


def test_the_eviction_api_evicts_a_pod_that_has_not_started_whatever_budgets_it_has() -> None:
    state = cluster(pdb("guard", WEB), pdb("all", {}))
    assert state.evictions.exhausted_budget([web("a", ready=False, phase="Pending")]) is None
    assert state.evictions.exhausted_budget([web("a", ready=False)]) is not None


def test_no_budget_without_a_selector_is_for_a_pod() -> None:
    raw = pdb("none", {})
    del raw["spec"]["selector"]
    state = cluster(raw)
    assert state.evictions.matching_budgets(web("a"), by_eviction_api=True) == []


def test_the_eviction_api_evicts_no_pod_that_several_budgets_are_for() -> None:
    state = cluster(pdb("guard", WEB, allowed=9), pdb("all", {}, allowed=9))
    assert state.evictions.exhausted_budget([parse_pod(pod("db", node="n1"))]) is None
    assert state.evictions.exhausted_budget([web("a")]) is not None


def test_a_pod_whose_disruption_a_budget_has_is_charged_again_by_the_eviction_api_alone() -> None:
    raw = pdb("guard", WEB, allowed=1)
    raw["status"]["disruptedPods"] = {"a": "2026-01-01T00:00:00Z"}
    state = cluster(raw)
    assert state.evictions.matching_budgets(web("a")) == []
    assert len(state.evictions.matching_budgets(web("a"), by_eviction_api=True)) == 1


def test_an_eviction_counts_from_its_beginning() -> None:
    state = guarded(2)
    assert state.begin_evictions(PREEMPTOR, [known(state, "a")]) == [known(state, "a")]
    assert state.evictions.evicting(known(state, "a"))
    assert evicting_in_columns(state) == ["a"]
    assert allowed(state) == 1


def test_an_eviction_counts_until_the_victim_terminates_and_the_status_is_new() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    write_status(state, 2)
    assert allowed(state) == 1, "the victim is not even terminating yet"
    see(state, web("a", terminating=True))
    assert allowed(state) == 2
    write_status(state, 1)
    assert allowed(state) == 1


def test_a_status_from_before_the_victim_left_still_counts_the_eviction() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    state.delete(Kind.POD, uid_of("a"))
    assert allowed(state) == 1
    write_status(state, 1)
    assert allowed(state) == 1, "the status counts it now"


def test_a_victim_that_is_not_ready_counts_until_it_leaves() -> None:
    """The disruption controller does not count this pod, so its end changes no status."""
    state = guarded(2)
    for name in ("x", "y"):
        see(state, web(name, ready=False))
    state.begin_evictions(PREEMPTOR, [known(state, "x"), known(state, "y")])
    assert allowed(state) == 0
    see(state, web("x", ready=False, terminating=True))
    assert allowed(state) == 1
    state.delete(Kind.POD, uid_of("y"))
    assert allowed(state) == 2


def test_reading_evictions_changes_nothing() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    state.delete(Kind.POD, uid_of("a"))
    for _ in range(2):
        assert allowed(state) == 1
        assert not state.evictions.awaits_victims(PREEMPTOR)


def test_a_victim_stays_marked_when_its_columns_are_written_again() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    see(state, web("a", terminating=True))
    assert state.evictions.evicting(known(state, "a"))
    assert evicting_in_columns(state) == ["a"]


def test_a_failed_eviction_counts_no_more() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    state.abandon_eviction(known(state, "a"))
    assert allowed(state) == 2
    assert evicting_in_columns(state) == []


def test_an_exhausted_budget_allows_nothing_until_its_next_status() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    state.eviction_refused(known(state, "a"), by_budget=True)
    state.abandon_eviction(known(state, "a"))
    assert allowed(state) == 0
    write_status(state, 2)
    assert allowed(state) == 2


def test_an_exhausted_budget_whose_status_is_never_written_is_so_for_a_while_only() -> None:
    state = guarded(2)
    state.eviction_refused(known(state, "a"), by_budget=True)
    state.grow_older()
    assert allowed(state) == 0
    state.grow_older()
    assert allowed(state) == 2


@pytest.mark.parametrize("by_budget", [True, False])
def test_a_pod_that_the_eviction_api_refused_is_known_for_a_while(*, by_budget: bool) -> None:
    state = guarded(2)
    state.eviction_refused(known(state, "a"), by_budget=by_budget)
    state.grow_older()
    assert state.evictions.refused == {uid_of("a")}
    state.eviction_refused(known(state, "b"), by_budget=by_budget)
    state.grow_older()
    assert state.evictions.refused == {uid_of("b")}
    assert allowed(state) == (0 if by_budget else 2)


def test_charges_end_though_the_status_of_the_budget_is_never_written_again() -> None:
    state = guarded(1)
    for number in range(2_000):
        see(state, web(f"victim-{number}"))
        state.begin_evictions(PREEMPTOR, [known(state, f"victim-{number}")])
        state.delete(Kind.POD, uid_of(f"victim-{number}"))
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    assert allowed(state) == -2_000
    state.grow_older()
    assert allowed(state) == -2_000, "the status may follow in a moment"
    state.grow_older()
    assert allowed(state) == 0, "the eviction of a goes on"


def test_a_budget_that_keeps_a_pod_that_is_not_ready_is_exhausted() -> None:
    state = guarded(2)
    see(state, web("x", ready=False))
    state.begin_evictions(PREEMPTOR, [known(state, "x")])
    state.eviction_refused(known(state, "x"), by_budget=True)
    state.abandon_eviction(known(state, "x"))
    assert allowed(state) == 0


def test_a_preemptor_awaits_its_victims_until_they_are_gone() -> None:
    state = guarded(2)
    assert not state.evictions.awaits_victims(PREEMPTOR)
    state.begin_evictions(PREEMPTOR, [known(state, "a"), known(state, "b")])
    state.delete(Kind.POD, uid_of("a"))
    assert state.evictions.awaits_victims(PREEMPTOR)
    state.delete(Kind.POD, uid_of("b"))
    assert not state.evictions.awaits_victims(PREEMPTOR)


@pytest.mark.parametrize(
    "seen",
    [
        web("a", phase="Succeeded"),
        web("a", on="n2"),
    ],
    ids=["finished", "bound to another node"],
)
def test_an_eviction_ends_when_the_victim_leaves_its_node(seen: Pod) -> None:
    state = guarded(2)
    victim = known(state, "a")
    state.begin_evictions(PREEMPTOR, [victim])
    see(state, seen)
    assert not state.evictions.evicting(victim)
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert evicting_in_columns(state) == []
    assert allowed(state) == 1, "charged until the budget's status is written"
    write_status(state, 1)
    assert allowed(state) == 1


def test_an_eviction_goes_on_when_another_pod_of_the_victims_name_is_seen_and_assumed() -> None:
    state = guarded(2)
    victim = known(state, "a")
    state.begin_evictions(PREEMPTOR, [victim])
    see(state, web("a", uid="another"))
    state.assume(web("a", uid="third", on=None), 0)
    assert state.evictions.evicting(victim)
    assert state.evictions.awaits_victims(PREEMPTOR)


def called_off() -> tuple[ClusterState, Pod]:
    """Return a state and its assumed victim, which was called off at Permit or PreBind."""
    state = guarded(2)
    victim = web("assumed", on=None)
    state.assume(victim, state.nodes.row_of["n1"])
    assert state.begin_evictions(PREEMPTOR, [victim]) == [known(state, "assumed")]
    assert allowed(state) == 1
    state.forget(victim)
    return state, victim


def test_a_victim_whose_binding_is_called_off_is_not_evicted_any_more() -> None:
    state, victim = called_off()
    assert not state.evictions.evicting(victim)
    assert not state.evictions.awaits_victims(PREEMPTOR)


def test_a_victim_that_never_ran_does_not_use_up_its_budget_when_it_is_called_off() -> None:
    """The disruption controller never saw the pod healthy, so no new status will come."""
    state, _ = called_off()
    assert allowed(state) == 2


def test_a_victim_that_was_called_off_can_be_bound_and_evicted_again() -> None:
    state, victim = called_off()
    state.assume(victim, state.nodes.row_of["n2"])
    assert evicting_in_columns(state) == []
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert state.begin_evictions(OTHER, [victim]) == [known(state, "assumed")]


def test_a_victim_that_is_bound_although_it_was_to_be_called_off_stays() -> None:
    state = guarded(2)
    victim = web("assumed", on=None)
    state.assume(victim, state.nodes.row_of["n1"])
    state.begin_evictions(PREEMPTOR, [victim])
    see(state, web("assumed"))
    assert state.evictions.evicting(victim), "a confirmed assumption is no end of an eviction"
    state.forget(victim)
    assert not state.evictions.evicting(victim)
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert evicting_in_columns(state) == []


def test_only_victims_on_a_node_are_evicted_and_awaited() -> None:
    state = guarded(2)
    gone, replaced = web("gone"), web("a", uid="predecessor")
    assert state.begin_evictions(PREEMPTOR, [gone, replaced]) == []
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert not state.evictions.evicting(gone)


def test_a_pod_is_evicted_once_for_all_its_preemptors() -> None:
    state = guarded(2)
    assert state.begin_evictions(PREEMPTOR, [known(state, "a")]) == [known(state, "a")]
    new = state.begin_evictions(OTHER, [known(state, "a"), known(state, "b")])
    assert new == [known(state, "b")]
    assert state.evictions.awaits_victims(OTHER)
    assert allowed(state) == 0
    assert state.evictions.matching_budgets(known(state, "a")) == [], "it is charged already"


def test_abandoning_an_eviction_returns_the_preemptors_that_waited_for_it() -> None:
    state = guarded(2)
    for preemptor in (PREEMPTOR, OTHER):
        state.begin_evictions(preemptor, [known(state, "a")])
    assert state.abandon_eviction(known(state, "a")) == [PREEMPTOR, OTHER]
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert not state.evictions.awaits_victims(OTHER)


def test_a_pod_that_is_terminating_already_is_awaited_but_not_evicted() -> None:
    state = guarded(2)
    see(state, web("a", terminating=True))
    assert state.begin_evictions(PREEMPTOR, [known(state, "a")]) == []
    assert state.evictions.awaits_victims(PREEMPTOR)
    assert allowed(state) == 2


def test_a_preemptor_awaits_only_the_victims_of_its_last_preemption() -> None:
    state = guarded(2)
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    state.begin_evictions(PREEMPTOR, [known(state, "b")])
    state.delete(Kind.POD, uid_of("b"))
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert state.evictions.evicting(known(state, "a")), "its eviction goes on"


@pytest.mark.parametrize(
    "end",
    [
        lambda state: state.withdraw(PREEMPTOR.uid),
        lambda state: state.nominate(PREEMPTOR, "n2"),
        lambda state: state.assume(PREEMPTOR, state.nodes.row_of["n2"]),
        lambda state: state.delete(Kind.NODE, "n1"),
    ],
    ids=["withdrawn", "nominated elsewhere", "assumed", "nominated node deleted"],
)
def test_a_preemptor_awaits_no_victims_without_its_nomination(
    end: Callable[[ClusterState], object],
) -> None:
    state = guarded(2)
    state.nominate(PREEMPTOR, "n1")
    state.begin_evictions(PREEMPTOR, [known(state, "a")])
    end(state)
    assert not state.evictions.awaits_victims(PREEMPTOR)
    assert state.evictions.evicting(known(state, "a")), "its eviction goes on"


def test_a_victim_whose_binding_cannot_be_called_off_any_more_ends_the_nomination() -> None:
    """The watch shows the victim bound before it is called off, so its preemptor is retried."""
    state = guarded(allowed=1)
    victim = parse_pod(pod("assumed", labels=WEB))
    state.assume(victim, 0)
    state.nominate(PREEMPTOR, "n1")
    state.begin_evictions(PREEMPTOR, [victim])
    see(state, replace(victim, node_name="n1"))
    delivered: list[ClusterEvent] = []
    state.on_events(delivered.extend)
    state.forget(victim)
    assert state.nominations.get(PREEMPTOR.uid) is None
    assert not state.evictions.awaits_victims(PREEMPTOR)
    [event] = delivered
    assert event.action is Action.DELETE
    assert isinstance(event.before, Pod)
    assert (event.before.key, event.before.nominated_node) == (PREEMPTOR.key, "n1")


def test_a_budgets_status_that_is_written_with_the_same_values_opens_the_budget_again() -> None:
    state = guarded(allowed=2)
    state.eviction_refused(known(state, "a"), by_budget=True)
    assert allowed(state) == 0
    write_status(state, 2)
    assert allowed(state) == 2


def test_an_answer_older_than_the_budgets_status_does_not_exhaust_it() -> None:
    state = guarded(allowed=1)
    victim = known(state, "a")
    state.begin_evictions(PREEMPTOR, [victim])
    write_status(state, allowed=2)  # while the refusal of the eviction is under way
    state.eviction_refused(victim, by_budget=True)
    state.abandon_eviction(victim)
    assert allowed(state) == 2
