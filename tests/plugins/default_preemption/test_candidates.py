"""Which potential victims are reprieved, and which candidate costs least."""

from mooring.model.pod import Pod, parse_pod
from mooring.plugins.default_preemption.candidates import (
    Candidate,
    select_candidate,
    select_victims,
)
from mooring.plugins.default_preemption.victims import Victim
from mooring.testing.builders import cluster, node, pdb, pod


def victim(name: str, priority: int = 0, day: int | None = None, app: str = "") -> Pod:
    started = f"2026-01-{day:02}T00:00:00Z" if day is not None else None
    labels = {"app": app} if app else None
    return parse_pod(pod(name, priority=priority, started=started, labels=labels))


def names(pods: tuple[Pod, ...] | list[Pod]) -> list[str]:
    return [p.name for p in pods]


def test_fewer_violated_budgets_outweigh_every_other_criterion() -> None:
    violating = Candidate(0, (victim("a", -100),), 1)
    other = Candidate(1, (victim("b", 500),), 0)
    assert select_candidate([violating, other]) is other


def test_then_the_node_whose_highest_victim_has_the_lower_priority_is_cheaper() -> None:
    one, two = Candidate(0, (victim("a", 10),)), Candidate(1, (victim("b", 9), victim("c", 9)))
    assert select_candidate([one, two]) is two


def test_then_the_smaller_sum_then_the_smaller_number() -> None:
    many = Candidate(0, (victim("a", 10), victim("b", -(2**31))))
    few = Candidate(1, (victim("c", 10),))
    assert select_candidate([many, few]) is few


def test_then_the_latest_start_of_the_most_important_victim() -> None:
    old = Candidate(0, (victim("a", 10, 1), victim("b", 5, 9)))
    new = Candidate(1, (victim("c", 10, 2), victim("d", 5, 1)))
    assert select_candidate([old, new]) is new


def test_a_candidate_without_victims_costs_least() -> None:
    free = Candidate(1, ())
    assert select_candidate([Candidate(0, (victim("a", -5),)), free]) is free


def test_the_most_important_pods_are_reprieved_while_they_fit() -> None:
    free_slots = 2

    def reprieve(_: Victim) -> bool:
        nonlocal free_slots
        free_slots -= 1
        return free_slots >= 0

    potential = [victim("a", 1), victim("b", 3), victim("c", 2)]
    candidate = select_victims(4, potential, reprieve, cluster().evictions)
    assert (candidate.row, names(candidate.pods), candidate.violations) == (4, ["a"], 0)


def test_pods_whose_budget_would_be_violated_are_reprieved_first() -> None:
    state = cluster(pdb("guard", {"app": "web"}, allowed=1))
    potential = [victim("a", 3, 1, "web"), victim("b", 2, 1, "web"), victim("c", 9, 1)]
    reprieve_order: list[str] = []

    def reprieve(victim: Victim) -> bool:
        assert isinstance(victim, Pod)
        reprieve_order.append(victim.name)
        return False

    candidate = select_victims(0, potential, reprieve, state.evictions)
    assert reprieve_order == ["b", "c", "a"], "only one disruption is allowed"
    assert (names(candidate.pods), candidate.violations) == (["c", "a", "b"], 1)


def test_pods_that_are_being_evicted_already_are_not_reprieved_and_cost_nothing() -> None:
    state = cluster(node("n"), pod("a", node="n", priority=3), pod("b", node="n", priority=1))
    evicting = [placed.pod for placed in state.pods if placed.pod.name == "a"]
    state.begin_evictions(victim("earlier", 100), evicting)
    pods = [placed.pod for placed in state.pods]
    candidate = select_victims(0, pods, lambda _: False, state.evictions)
    assert (names(candidate.pods), names(candidate.evicting)) == (["b"], ["a"])
    assert names(candidate.all_pods) == ["a", "b"]
    assert candidate.cost == Candidate(0, candidate.victims).cost
