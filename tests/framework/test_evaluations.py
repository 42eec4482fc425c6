"""The budget for the evaluations of plugins."""

import pytest

from driving import driven
from mooring.framework.evaluations import (
    MOST_FOR_NODES,
    MOST_FOR_POD,
    Cost,
    Evaluations,
)
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.selectors import LabelSelector, Requirement
from mooring.state.cluster_view import ClusterView
from mooring.state.labels import EACH_NODE
from mooring.state.topology.pod_selection import PodSelector, selection
from mooring.testing.builders import cluster, node, pod


class Work:
    """An evaluation with this name and cost."""

    def __init__(self, name: str, cost: Cost) -> None:
        self.name = name
        self.total = cost

    def cost(self) -> Cost:
        return self.total


def evaluations(*works: Work, most: int | None = 100) -> Evaluations:
    found = Evaluations(most)
    for work in works:
        found.add(work)
    return found


def test_an_attempt_ends_when_it_has_done_enough_and_the_next_one_goes_on() -> None:
    shared = evaluations()
    for _ in range(2):
        shared.begin_attempt()
        shared.pause("looking")
        shared.spend(60)
        shared.pause("looking")
        shared.spend(60)
        with pytest.raises(PluginFailed, match="looking takes longer than one attempt may"):
            shared.pause("looking")


def test_an_attempt_about_a_group_may_do_more_for_each_member() -> None:
    shared = evaluations()
    shared.begin_attempt(members=3)
    shared.spend(30_000)
    shared.pause("looking")
    shared.spend(100)
    with pytest.raises(PluginFailed):
        shared.pause("looking")


def test_without_a_limit_nothing_ends_an_attempt() -> None:
    shared = evaluations(most=None)
    shared.begin_attempt()
    shared.spend(10**12)
    shared.pause("looking")


def test_other_tasks_run_where_work_pauses() -> None:
    shared = evaluations(most=None)

    def looking() -> None:
        for _ in range(3):
            shared.pause("looking")

    assert driven(looking) == (None, 3)


def test_pods_are_counted_over_several_attempts() -> None:
    pods = [pod(f"p{i}", labels={"app": f"a{i}"}, node="n0") for i in range(600)]
    view, shared = ClusterView(cluster(node("n0"), *pods)), evaluations(most=3_000)
    part = PodSelector(
        LabelSelector((Requirement("app", "NotIn", ("other",)),)), frozenset({"default"})
    )
    wanted = [(selection((part,), terminating=True), EACH_NODE)]
    ended = 0
    while not view.is_counted(*wanted[0]):
        shared.begin_attempt()
        try:
            shared.count_pods(view, wanted)
        except PluginFailed:
            ended += 1
    assert ended == 4
    assert view.counts(*wanted[0]).total == 600


def test_pods_that_a_selector_compares_with_many_requirements_cost_more() -> None:
    pods = [pod(f"p{i}", labels={"app": f"a{i}"}, node="n0") for i in range(100)]
    view = ClusterView(cluster(node("n0"), *pods))
    spent = list[float]()
    for number in (1, 2000):
        absent = (Requirement(f"key-{i}", "DoesNotExist") for i in range(number))
        part = PodSelector(LabelSelector((*absent,)), frozenset({"default"}))
        shared = evaluations(most=10**9)
        shared.begin_attempt()
        shared.count_pods(view, [(selection((part,), terminating=True), EACH_NODE)])
        spent.append(10**9 - shared.left)
    assert spent[1] > 100 * spent[0]


def test_the_rules_that_come_first_have_the_first_claim_to_the_budget_of_a_profile() -> None:
    most = Cost(nodes=MOST_FOR_NODES)
    works = (
        Work("a", cost=Cost(nodes=1)),
        Work("b", cost=most),
        Work("c", cost=Cost(nodes=2)),
    )
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
