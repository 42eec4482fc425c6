"""The budget of what plugins evaluate one value at a time."""

from contextlib import suppress
from itertools import pairwise

import pytest

from mooring.framework.evaluations import (
    MOST_FOR_NODES,
    MOST_FOR_POD,
    Cost,
    Evaluations,
    StillEvaluating,
)
from mooring.model.selectors import LabelSelector, Requirement
from mooring.state.cluster_view import ClusterView
from mooring.state.labels import EACH_NODE
from mooring.state.topology.selection import PodSelector, selection
from mooring.testing.builders import cluster, node, pod


class Work:
    """Needs so many values of so many units each."""

    def __init__(
        self, name: str, values: int = 0, units: int = 1, cost: Cost | None = None
    ) -> None:
        self.name = name
        self.missing = values
        self.units = units
        self.total = cost or Cost(nodes=values * units)

    @property
    def is_current(self) -> bool:
        return self.missing == 0

    @property
    def units_left(self) -> int:
        return self.missing * self.units

    def cost(self) -> Cost:
        return self.total

    def advance(self) -> int:
        self.missing -= 1
        return self.units


class Broken(Work):
    """Fails whenever it evaluates a value."""

    def advance(self) -> int:
        raise ValueError("broken")


def evaluations(*works: Work, most: int | None = 100) -> Evaluations:
    found = Evaluations(most)
    for work in works:
        found.add(work)
    return found


def test_all_plugins_of_a_decision_share_one_budget() -> None:
    first, second = Work("rule a", 6, 10), Work("rule b", 6, 10)
    shared = evaluations(first, second)
    shared.begin_decision()
    shared.bring_up_to_date(first)
    with pytest.raises(StillEvaluating, match=r"values of nodes that rule b reads are still being"):
        shared.bring_up_to_date(second)
    assert (first.missing, second.missing) == (0, 2)
    shared.begin_decision()
    shared.bring_up_to_date(second)
    assert second.is_current


def test_without_a_limit_everything_is_evaluated_at_once() -> None:
    work = Work("rule a", 10_000, 1_000)
    shared = evaluations(work, most=None)
    shared.begin_decision()
    shared.bring_up_to_date(work)
    assert work.is_current


def test_between_decisions_one_value_is_evaluated_at_a_time_and_only_where_one_was_refused() -> (
    None
):
    first, second = Work("rule a", 20, 10), Work("rule b", 3, 10)
    shared = evaluations(first, second)
    assert not shared.advance()
    shared.begin_decision()
    with pytest.raises(StillEvaluating):
        shared.bring_up_to_date(first)
    left = first.missing
    assert shared.is_behind
    assert shared.advance()
    assert first.missing == left - 1
    while shared.advance():
        pass
    assert first.is_current
    assert second.is_current, "what the next decision will ask for is there too"
    assert not shared.is_behind


def test_other_decisions_meanwhile_do_not_end_the_evaluation() -> None:
    """Hints and what the page asks for are decisions too."""
    first, second = Work("rule a"), Work("rule b", 20, 10)
    shared = evaluations(first, second)
    shared.begin_decision()
    with pytest.raises(StillEvaluating):
        shared.bring_up_to_date(second)
    shared.begin_decision()
    shared.bring_up_to_date(first)
    assert shared.advance()


def test_what_changes_until_the_pod_is_tried_again_is_evaluated_too() -> None:
    work = Work("rule a", 20, 10)
    shared = evaluations(work)
    shared.begin_decision()
    with pytest.raises(StillEvaluating):
        shared.bring_up_to_date(work)
    while shared.advance():
        pass
    work.missing = 50
    assert shared.advance()
    work.missing = 0
    shared.begin_decision()
    shared.bring_up_to_date(work)
    work.missing = 1
    assert not shared.advance(), "until the next decision is refused"


def test_a_pod_is_tried_again_when_the_rest_may_be_evaluated() -> None:
    for values, seconds in ((1, 0.05), (5_000_000, 0.5), (10**9, 2.0)):
        work = Work("rule a", values)
        shared = evaluations(work, most=0)
        with pytest.raises(StillEvaluating):
            shared.bring_up_to_date(work)
        assert shared.refused(now=100.0) == pytest.approx(100.0 + seconds)
        assert shared.retry_at == pytest.approx(100.0 + seconds)


def test_pods_are_counted_over_several_decisions_and_pods_of_others_do_not_wait() -> None:
    pods = [pod(f"p{i}", labels={"app": f"a{i}"}, node="n0") for i in range(600)]
    view, shared = ClusterView(cluster(node("n0"), *pods)), evaluations(most=3_000)
    part = PodSelector(
        LabelSelector((Requirement("app", "NotIn", ("other",)),)), frozenset({"default"})
    )
    wanted = [(selection((part,), terminating=True), EACH_NODE)]
    refused = 0
    while not view.is_counted(*wanted[0]):
        shared.begin_decision()
        with suppress(StillEvaluating):
            shared.count_pods(view, wanted)
        refused += not view.is_counted(*wanted[0])
        assert shared.refused(now=100.0) < 100.2
        assert shared.retry_at is None
    assert refused == 4
    assert view.counts(*wanted[0]).total == 600


def test_a_pod_that_goes_on_alone_does_so_soon() -> None:
    shared, now = evaluations(), 100.0
    for _ in range(9):
        again = shared.refused(now)
        assert again == pytest.approx(now + 0.01) or again == pytest.approx(now + 0.02)
        now = again + 0.01


def test_pods_that_go_on_later_leave_most_of_the_time_to_others() -> None:
    shared = evaluations()
    tries = [shared.refused(100.0) for _ in range(50)]
    assert tries == sorted(tries)
    assert all(after - before > 0.02 for before, after in pairwise(tries))
    assert shared.refused(200.0) == pytest.approx(200.01), "what was long ago counts no more"


def test_an_evaluation_that_fails_between_decisions_fails_in_the_next_decision() -> None:
    work = Broken("rule a", 5)
    shared = evaluations(work, most=0)
    shared.begin_decision()
    with pytest.raises(StillEvaluating):
        shared.bring_up_to_date(work)
    assert not shared.advance()
    shared = evaluations(work)
    shared.begin_decision()
    with pytest.raises(ValueError, match="broken"):
        shared.bring_up_to_date(work)


def test_the_rules_that_come_first_have_the_first_claim_to_the_budget_of_a_profile() -> None:
    most = Cost(nodes=MOST_FOR_NODES)
    works = Work("a", cost=Cost(nodes=1)), Work("b", cost=most), Work("c", cost=Cost(nodes=2))
    shared = evaluations(*works)
    assert [shared.excess(work, 1) is None for work in works] == [True, False, True]
    ((name, why),) = shared.left_out()
    assert name == "b"
    assert "may cost 50,000,000 units for the values that nodes have now" in why
    assert "with this rule they cost about 51,000,000" in why


def test_what_the_pods_values_may_cost_is_limited_for_all_rules_together() -> None:
    works = [Work(str(number), cost=Cost(pod=MOST_FOR_POD // 2)) for number in range(3)]
    assert [name for name, _ in evaluations(*works).left_out()] == ["2"]


def test_a_plugin_is_judged_once_per_set_of_nodes() -> None:
    work = Work("a", cost=Cost(nodes=1))
    shared = evaluations(work)
    assert shared.excess(work, 1) is None
    work.total = Cost(nodes=MOST_FOR_NODES + 1)
    assert shared.excess(work, 1) is None
    assert shared.left_out(), "the status says so already"
    assert shared.excess(work, 2) is not None


def test_a_pod_with_many_labels_costs_more() -> None:
    works = [Work(str(n), cost=Cost(pod=200, pod_maps=200)) for n in range(2)]
    shared = evaluations(*works)
    for work in works:
        assert shared.excess(work, 1) is None
        assert shared.excess_of_map(work, 1) is None
    times = MOST_FOR_POD // 200
    assert shared.excess_of_map(works[0], times) is None
    assert shared.excess_of_map(works[0], times + 1) is not None
    assert shared.excess_of_map(works[1], times) is not None, "both are evaluated"
