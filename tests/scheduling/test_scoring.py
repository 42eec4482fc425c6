"""The total scores of the feasible nodes, and the lists of scores."""

import numpy as np
import pytest

from deciding import Deciding
from mooring.framework.decision import NodeScore
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.scoring import PluginScores, score
from mooring.testing.builders import node, pod


def test_the_total_is_the_sum_of_the_listed_scores_of_plugins() -> None:
    deciding = Deciding(node("a", cpu="4", taints=["x:PreferNoSchedule"]), node("b", cpu="8"))
    search, _ = deciding.search(pod("new", cpu="1", memory="1Gi"))
    table = score(search, np.array([0, 1]))
    listed = table.by_node(None, chosen=0)
    assert {name: listed[name].total for name in listed} == {
        name: sum(listed[name].plugins.values()) for name in listed
    }
    assert listed["a"].plugins["TaintToleration"] == 0
    assert listed["b"].plugins["TaintToleration"] == 300


def test_the_best_nodes_are_listed_first() -> None:
    deciding = Deciding(*(node(f"n{i}", cpu=str(2 + i)) for i in range(5)))
    search, _ = deciding.search(pod("new", cpu="1"))
    table = score(search, np.arange(5))
    assert list(table.by_node(2, chosen=4)) == ["n4", "n3"]
    assert list(table.by_node(None, chosen=4))[:2] == ["n4", "n3"]
    assert table.by_node(0, chosen=4) == {}


def test_the_chosen_node_is_listed_even_among_many_equals() -> None:
    deciding = Deciding(*(node(f"n{i}") for i in range(20)))
    for seed in range(20):
        decision = decision_of_three(deciding, seed)
        assert len(decision) == 3
        assert next(iter(decision)) == f"n{seed}"


def decision_of_three(deciding: Deciding, seed: int) -> dict[str, NodeScore]:
    outcome = deciding.outcome(pod("new", cpu="1"), seed=seed)
    assert isinstance(outcome, ScheduleResult)
    assert outcome.scores is not None
    return dict(outcome.scores(3))


def test_the_score_of_a_row_is_that_of_its_node_and_none_where_it_is_not_feasible() -> None:
    deciding = Deciding(*(node(f"n{i}", cpu=str(2 + i)) for i in range(5)))
    search, _ = deciding.search(pod("new", cpu="1"))
    rows = np.array([3, 1, 4])
    table = score(search, rows)
    listed = table.by_node(None, chosen=0)
    assert table.of_row(rows, 1) == listed["n1"]
    assert table.of_row(rows, 4) == listed["n4"]
    assert table.of_row(rows, 0) is None


def test_a_plugin_that_skips_the_pod_has_no_score() -> None:
    deciding = Deciding(node("a"), node("b"))
    search, _ = deciding.search(pod("new"))
    listed = score(search, np.array([0, 1])).by_node(None, chosen=0)
    assert "NodeResourcesBalancedAllocation" not in listed["a"].plugins


def test_weights_multiply_normalized_scores() -> None:
    weighted = {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 7}]}}
    plain, heavy = Deciding(node("a"), node("b")), Deciding(node("a"), node("b"), plugins=weighted)
    shares = [
        score(deciding.search(pod("new", cpu="1"))[0], np.array([0, 1]))
        .by_node(None, chosen=0)["a"]
        .plugins["NodeResourcesFit"]
        for deciding in (plain, heavy)
    ]
    assert shares[1] == 7 * shares[0]


def test_scores_are_normalized_by_the_highest_of_a_feasible_node() -> None:
    """A full node with a higher score does not count."""
    weights = {"good": 10, "fair": 5, "full": 40}
    preferred = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": [name]}]},
        }
        for name, weight in weights.items()
    ]
    nodes = (node(n, cpu="1" if n == "full" else "9", labels={"k": n}) for n in weights)
    deciding = Deciding(*nodes)
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    wanted = pod("new", cpu="2", affinity={"nodeAffinity": {field: preferred}})
    for _ in range(2):
        scores = deciding.decision(wanted).scores
        assert scores is not None
        assert {n: s.plugins["NodeAffinity"] for n, s in scores.items()} == {
            "good": 200,
            "fair": 100,
        }


@pytest.mark.parametrize(
    "scores",
    [
        PluginScores(7, 3),
        PluginScores(np.array([1, 2, 4]), 3),
        PluginScores(np.array([0, 1, 0, 2, 4]), 3, np.array([1, 3, 4])),
    ],
)
def test_many_scores_of_a_plugin_are_taken_as_they_are_read_one_by_one(
    scores: PluginScores,
) -> None:
    assert scores.take(np.array([2, 0])).tolist() == scores.at([2, 0])
