"""A plugin that runs for every pod keeps results for the last spec alone, in large clusters."""

from typing import Any

import numpy as np
import pytest

from deciding import Deciding
from mooring.engine.result_cache import NodeResults
from mooring.engine.scoring import score
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation, PluginError
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod


class Live:
    """Rejects nodes with as many pods as the pod has millicores; notes on which rows it ran."""

    name = "Live"
    depends_on_node_only = True
    runs_for_every_pod = True
    normalize = Normalize.NONE
    filtered: list[list[int]]
    scored: list[list[int]]
    broken = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        type(self).filtered, type(self).scored, type(self).broken = [], [], False

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        self.filtered.append(nodes.rows.tolist())
        if self.broken:
            raise PluginError("broken")
        return nodes.pod_count < pod.spec.demand.resources["cpu"]

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        return Explanation.single("full", len(nodes), resolvable=False)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        self.scored.append(nodes.rows.tolist())
        cpu = pod.spec.demand.resources["cpu"]
        return np.minimum(100, 10 * nodes.pod_count + cpu)


class Cluster:
    """Eight nodes, and decisions under a profile with the plugin."""

    def __init__(self) -> None:
        points = {point: {"enabled": [{"name": "Live"}]} for point in ("filter", "score")}
        nodes = (node(f"n{i}", labels={"rack": f"r{i % 4}"}) for i in range(8))
        self.deciding = Deciding(*nodes, extra=(Live,), plugins=points)

    def rows_run_for(self, **fields: Any) -> tuple[list[list[int]], list[list[int]]]:
        """Return the rows for which the filter ran, and the score."""
        Live.filtered.clear()
        Live.scored.clear()
        self.deciding.outcome(pod("web", **fields))
        return [*Live.filtered], [*Live.scored]

    def place(self, on: str, number: int = 0) -> None:
        self.deciding.place(pod(f"on-{on}-{number}", cpu="1m"), on)

    def results(self, cpu: str) -> tuple[list[bool], list[int]]:
        """Return which rows fit, and the plugin's scores of all of them that do."""
        search, _ = self.deciding.search(pod("web", cpu=cpu))
        results: NodeResults = search.results
        table = score(search, np.flatnonzero(results.fits))
        scored = table.plugins["Live"].at(range(int(results.fits.sum())))
        return results.fits.tolist(), scored


ALL = [[*range(8)]]


@pytest.fixture(name="large")
def _large(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a cluster that counts as large."""
    monkeypatch.setattr("mooring.engine.last_results._MANY", 1)
    return Cluster()


def test_in_a_small_cluster_the_plugin_runs_on_all_nodes_for_every_pod() -> None:
    small = Cluster()
    for _ in range(2):
        assert small.rows_run_for(cpu="9m") == (ALL, ALL)


def test_in_a_large_cluster_it_runs_on_what_changed_since_the_last_pod_of_the_same_spec(
    large: Cluster,
) -> None:
    assert large.rows_run_for(cpu="9m") == (ALL, ALL)
    assert large.rows_run_for(cpu="9m") == ([], [])
    large.place("n3")
    assert large.rows_run_for(cpu="9m") == ([[3]], [[3]])


def test_a_pod_of_another_spec_has_it_run_on_all_nodes_again(large: Cluster) -> None:
    large.rows_run_for(cpu="9m")
    assert large.rows_run_for(cpu="8m") == (ALL, ALL)
    assert large.rows_run_for(cpu="9m") == (ALL, ALL)


def test_its_results_are_those_of_the_present_pods_whatever_came_between(large: Cluster) -> None:
    assert large.results("3m") == ([True] * 8, [3] * 8)
    for number in range(2):
        large.place("n1", number)
    assert large.results("2m") == ([True, False, *[True] * 6], [2] * 7)
    assert large.results("3m") == ([True] * 8, [3, 23, *[3] * 6])
    large.place("n1", 2)
    assert large.results("3m") == ([True, False, *[True] * 6], [3] * 7)


def test_where_the_nodes_are_few_that_fit_otherwise_it_runs_on_these_alone(large: Cluster) -> None:
    for _ in range(2):
        found = large.rows_run_for(cpu="9m", node_selector={"rack": "r2"})
        assert found == ([[2, 6]], [[2, 6]])


def test_another_set_of_nodes_has_it_run_on_all_of_them(large: Cluster) -> None:
    large.rows_run_for(cpu="9m")
    large.deciding.state.put(Kind.NODE, "n8", parse_node(node("n8")))
    assert large.rows_run_for(cpu="9m") == ([[*range(9)]], [[*range(9)]])


def test_rows_on_which_it_failed_are_looked_at_again(large: Cluster) -> None:
    large.rows_run_for(cpu="9m")
    large.place("n3")
    Live.broken = True
    with pytest.raises(PluginError):
        large.rows_run_for(cpu="9m")
    Live.broken = False
    assert large.rows_run_for(cpu="9m")[0] == [[3]]


def test_a_search_that_is_scored_after_another_one_began_has_its_own_scores(large: Cluster) -> None:
    """The search for members of a group does so."""
    first, _ = large.deciding.search(pod("a", cpu="3m"))
    large.deciding.search(pod("b", cpu="5m"))
    rows = np.arange(8)
    assert score(first, rows).plugins["Live"].at(range(8)) == [3] * 8
    assert large.results("5m")[1] == [5] * 8
