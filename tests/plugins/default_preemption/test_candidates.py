"""Selects victims among potential victims, and the candidate with the lowest cost."""

from mooring.model.pod import Pod, parse_pod
from mooring.plugins.default_preemption.candidates import (
    Candidate,
    select_candidate,
    select_victims,
)
from mooring.plugins.default_preemption.victims import Victim
from mooring.testing.builders import cluster, pod


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
