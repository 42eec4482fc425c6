"""Whom to evict, and which plan costs least."""

from mooring.model.pod import Pod, parse_pod
from mooring.plugins.default_preemption.candidates import (
    Candidate,
    by_importance,
    select_candidate,
    select_victims,
)
from mooring.testing.builders import cluster, pdb, pod


def victim(name: str, priority: int = 0, day: int | None = None, app: str = "") -> Pod:
    started = f"2026-01-{day:02}T00:00:00Z" if day is not None else None
    labels = {"app": app} if app else None
    return parse_pod(pod(name, priority=priority, started=started, labels=labels))


def names(pods: tuple[Pod, ...] | list[Pod]) -> list[str]:
    return [p.name for p in pods]


def test_importance_is_priority_then_age() -> None:
    pods = [victim("new", 5, 9), victim("unstarted", 5), victim("old", 5, 1), victim("top", 9)]
    assert names(by_importance(pods)) == ["top", "old", "new", "unstarted"]


def test_fewer_broken_budgets_outweigh_everything() -> None:
    broken, kept = Candidate(0, (victim("a", -100),), 1), Candidate(1, (victim("b", 500),), 0)
    assert select_candidate([broken, kept]) is kept


def test_the_lower_of_the_highest_victims_is_cheaper() -> None:
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


def test_a_plan_without_victims_costs_least() -> None:
    free = Candidate(1, ())
    assert select_candidate([Candidate(0, (victim("a", -5),)), free]) is free


def test_pods_are_put_back_while_there_is_room_the_most_important_first() -> None:
    potential = 2

    def reprieve(_: Pod) -> bool:
        nonlocal potential
        potential -= 1
        return potential >= 0

    candidates = [victim("a", 1), victim("b", 3), victim("c", 2)]
    candidate = select_victims(4, candidates, reprieve, cluster().evictions)
    assert (candidate.row, names(candidate.victims), candidate.violations) == (4, ["a"], 0)


def test_pods_whose_budget_is_spent_are_put_back_first_and_counted_if_they_go() -> None:
    state = cluster(pdb("guard", {"app": "web"}, allowed=1))
    candidates = [victim("a", 3, 1, "web"), victim("b", 2, 1, "web"), victim("c", 9, 1)]
    asked: list[str] = []

    def reprieve(back: Pod) -> bool:
        asked.append(back.name)
        return False

    candidate = select_victims(0, candidates, reprieve, state.evictions)
    assert asked == ["b", "c", "a"], "one disruption is allowed: the second would break the budget"
    assert (names(candidate.victims), candidate.violations) == (["c", "a", "b"], 1)
