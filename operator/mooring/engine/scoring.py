"""Scores the feasible nodes (schedule_one.go, prioritizeNodes)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from mooring.engine.filtering import Search
from mooring.framework.decision import NodeScore
from mooring.framework.plugin import Normalize
from mooring.framework.plugin_metrics import PRE_SCORE, SCORE
from mooring.framework.runtime import run_pre_score, run_score
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

__all__ = ["ScoreTable", "score", "with_extender_scores"]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """The scores of the feasible nodes; a position counts them in the order of `nodes`."""

    nodes: NodeView
    total: IntArray
    """The total score at each position (int64)."""
    best: IntArray
    """The positions with the highest total, ascending."""
    weighted: Mapping[str, Callable[[IntArray], IntArray]]
    """By plugin, a function that returns its normalized and weighted scores at some positions."""

    def by_node(self, most: int | None, *, chosen: int) -> dict[str, NodeScore]:
        """Scores by node name, the best first; of all nodes, or of `most` nodes.

        `chosen` is the position of the chosen node, one of `best`; it is always included, unless
        `most` is 0.
        """
        if most == 0:
            return {}
        listed = self._highest(most)
        if chosen not in listed:
            listed[np.argmin(self.total[listed])] = chosen
        listed = listed[np.lexsort((listed, listed != chosen, -self.total[listed]))]
        scores = {name: at(listed).tolist() for name, at in self.weighted.items()}
        return {
            self.nodes.name(position): NodeScore(
                {name: values[i] for name, values in scores.items()}, int(self.total[position])
            )
            for i, position in enumerate(listed.tolist())
        }

    def of_row(self, rows: IntArray, row: int) -> NodeScore | None:
        """The score of the node at a row, where `rows` (int64) are the rows of all positions."""
        position = np.flatnonzero(rows == row)
        if not len(position):
            return None
        plugins = {name: int(at(position)[0]) for name, at in self.weighted.items()}
        return NodeScore(plugins, int(self.total[position[0]]))

    def _highest(self, most: int | None) -> IntArray:
        """The positions of the `most` highest totals, or of all; a copy."""
        if most is None or most >= len(self.total):
            return np.arange(len(self.total))
        if len(self.best) >= most:  # of nodes with equal totals any will do
            return self.best[:most].copy()
        return np.argpartition(-self.total, most)[:most]


def score(search: Search, rows: IntArray) -> ScoreTable:
    """Run the score plugins for the feasible rows (int64, as `sampled` returns them)."""
    pod, pipeline, cluster, results = search.pod, search.pipeline, search.cluster, search.results
    metrics, evaluations = pipeline.metrics, results.evaluations
    metrics.mark()
    nodes = search.nodes_at(rows)
    states = dict(results.pre_scored)
    for plugin in pipeline.pre_score:
        if plugin.name not in states:
            states[plugin.name] = run_pre_score(pipeline, plugin, pod, nodes, cluster)
    metrics.lap(PRE_SCORE)
    metrics.evaluated(evaluations.pre_score)
    metrics.evaluated(evaluations.scores)
    # If every row is feasible, which is common, the columns need not be gathered.
    index = slice(None) if len(rows) == len(results.unnormalized_total) else rows
    total = results.unnormalized_total[index]
    weighted: dict[str, Callable[[IntArray], IntArray]] = {}
    for scorer in pipeline.scores:
        state = states.get(scorer.name)
        if state is SKIP:
            continue
        how = scorer.plugin.normalize
        if scorer.row_local and how is Normalize.NONE:
            column = results.raw(scorer.name)
            weighted[scorer.name] = partial(_weighted_at, column, rows, scorer.weight)
            continue
        if scorer.row_local:
            raw = results.raw(scorer.name)[index]
        else:
            raw = run_score(pipeline, scorer.plugin, pod, nodes, state)
            metrics.evaluated(evaluations.others(SCORE, scorer.name))
        scores = scorer.weight * normalize_score(raw, how)
        weighted[scorer.name] = scores.__getitem__
        total = total + scores
    metrics.lap(SCORE)
    return ScoreTable(nodes, total, np.flatnonzero(total == total.max()), weighted)


def with_extender_scores(table: ScoreTable, scores: Mapping[str, IntArray]) -> ScoreTable:
    """The table with the extenders' weighted scores added: by extender, int64 at each position."""
    total = table.total + sum(scores.values())
    weighted = {**table.weighted, **{name: c.__getitem__ for name, c in scores.items()}}
    return ScoreTable(table.nodes, total, np.flatnonzero(total == total.max()), weighted)


def _weighted_at(column: IntArray, rows: IntArray, weight: int, positions: IntArray) -> IntArray:
    scores: IntArray = weight * column[rows[positions]]
    return scores
