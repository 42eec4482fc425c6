"""Scores the feasible nodes (schedule_one.go, prioritizeNodes)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mooring.engine.filtering import NodeSearch
from mooring.framework.decision import NodeScore
from mooring.framework.plugin import Normalize
from mooring.framework.plugin_metrics import PRE_SCORE, SCORE
from mooring.framework.runtime import run_pre_score, run_score
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

__all__ = ["PluginScores", "ScoreTable", "score", "with_extender_scores"]

_NONE_SO_LOW: Final = np.iinfo(np.int64).min
"""Lower than any total score."""


class PluginScores(NamedTuple):
    """One plugin's normalized and weighted scores of the feasible nodes."""

    column: IntArray
    """Its scores (int64): of each position, or of each row if there are `rows`."""
    weight: int = 1
    """What they must still be multiplied with."""
    rows: IntArray | None = None
    """The row (int64) at each position; None if the column has no other rows."""

    def at(self, positions: Iterable[int]) -> list[int]:
        """Return the weighted scores at these positions."""
        if self.rows is not None:
            positions = map(self.rows.item, positions)
        return [self.weight * value for value in map(self.column.item, positions)]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """The scores of the feasible nodes; a position counts them in the order of `nodes`."""

    nodes: NodeView
    total: IntArray
    """The total score at each position (int64)."""
    best: IntArray
    """The positions with the highest total, ascending."""
    plugins: Mapping[str, PluginScores]

    def by_node(self, most: int | None, *, chosen: int) -> dict[str, NodeScore]:
        """Return scores by node name, the best first; of all nodes, or of `most` nodes.

        `chosen` is the position of the chosen node, one of `best`; it is always included, unless
        `most` is 0.
        """
        if most == 0:
            return {}
        # Every decision is recorded with the scores of a few nodes: for so few, numbers of Python
        # are several times faster than arrays.
        positions = self._highest(most)
        total_at = self.total.item
        if chosen not in positions:
            positions.remove(min(positions, key=total_at))
            positions.append(chosen)
        positions.sort(key=lambda one: (-total_at(one), one != chosen, one))
        columns = [(name, scores.at(positions)) for name, scores in self.plugins.items()]
        return {
            self.nodes.name(position): NodeScore(
                {name: column[i] for name, column in columns}, total_at(position)
            )
            for i, position in enumerate(positions)
        }

    def of_row(self, rows: IntArray, row: int) -> NodeScore | None:
        """Return the score of the node at a row; `rows` (int64) are the rows of all positions."""
        found = np.flatnonzero(rows == row)
        if not len(found):
            return None
        position = found.item(0)
        plugins = {name: scores.at((position,))[0] for name, scores in self.plugins.items()}
        return NodeScore(plugins, self.total.item(position))

    def _highest(self, most: int | None) -> list[int]:
        """Return the positions of the `most` highest totals, or of all."""
        if most is None or most >= len(self.total):
            return [*range(len(self.total))]
        found: list[int] = self.best[:most].tolist()  # of nodes with equal totals any will do
        if len(found) < most:
            others = self.total.copy()
            others[found] = _NONE_SO_LOW
            while len(found) < most:
                found.append(int(others.argmax()))
                others[found[-1]] = _NONE_SO_LOW
        return found


def score(search: NodeSearch, rows: IntArray) -> ScoreTable:
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
    plugins: dict[str, PluginScores] = {}
    for scorer in pipeline.scores:
        state = states.get(scorer.name)
        if state is SKIP:
            continue
        how = scorer.plugin.normalize
        if scorer.depends_on_node_only and how is Normalize.NONE:
            plugins[scorer.name] = PluginScores(results.raw(scorer.name), scorer.weight, rows)
            continue
        if scorer.depends_on_node_only:
            raw = results.raw(scorer.name)[index]
        else:
            raw = run_score(pipeline, scorer.plugin, pod, nodes, state)
            metrics.evaluated(evaluations.others(SCORE, scorer.name))
        scores = scorer.weight * normalize_score(raw, how)
        plugins[scorer.name] = PluginScores(scores)
        total = total + scores
    metrics.lap(SCORE)
    return ScoreTable(nodes, total, np.flatnonzero(total == total.max()), plugins)


def with_extender_scores(table: ScoreTable, scores: Mapping[str, IntArray]) -> ScoreTable:
    """Return the table with the extenders' weighted scores added: int64 by extender and place."""
    total = table.total + sum(scores.values())
    plugins = {**table.plugins, **{name: PluginScores(column) for name, column in scores.items()}}
    return ScoreTable(table.nodes, total, np.flatnonzero(total == total.max()), plugins)
