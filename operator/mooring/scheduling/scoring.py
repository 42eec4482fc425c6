"""Scores the feasible nodes (schedule_one.go, prioritizeNodes)."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mooring.framework.decision import NodeScore
from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE, normalize_score
from mooring.framework.verdicts import SKIP
from mooring.runtime.extension_points import run_pre_score, run_score
from mooring.runtime.pipeline import WeightedScorePlugin
from mooring.runtime.plugin_metrics import PRE_SCORE, SCORE
from mooring.scheduling.filtering import NodeSearch
from mooring.scheduling.result_cache import is_few
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

_max: Final = np.maximum.reduce
_NONE_SO_LOW: Final = np.iinfo(np.int64).min
"""A score below every real score; marks the positions that were already chosen."""


class PluginScores(NamedTuple):
    """One plugin's normalized scores of the feasible nodes, and its weight."""

    column: IntArray | int
    """The scores (int64) by position, or by row if `rows` is set; one int if all are equal."""
    weight: int = 1
    """The plugin's weight, by which the scores in `column` must still be multiplied."""
    rows: IntArray | None = None
    """The row (int64) of each position; None if `column` is by position."""

    def at(self, positions: Iterable[int]) -> list[int]:
        """Return the weighted scores at a few positions."""
        if isinstance(self.column, int):
            return [self.weight * self.column for _ in positions]
        if self.rows is not None:
            positions = map(self.rows.item, positions)
        return [self.weight * value for value in map(self.column.item, positions)]

    def take(self, positions: IntArray) -> IntArray:
        """Return the weighted scores (int64) at many positions."""
        if isinstance(self.column, int):
            return np.full(len(positions), self.weight * self.column)
        where = positions if self.rows is None else self.rows[positions]
        return self.weight * self.column[where]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """The scores of the feasible nodes; a position is an index into `nodes`."""

    nodes: NodeView
    total: IntArray
    """The total score at each position (int64)."""
    best: IntArray
    """The positions with the highest total, ascending."""
    plugins: Mapping[str, PluginScores]

    def by_node(self, most: int | None, *, chosen: int) -> dict[str, NodeScore]:
        """Return scores by node name, the best first, for at most `most` nodes (None: all).

        If `most` is not 0, the node at the position `chosen` is included.
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
        """Return the score of the node at `row`; None if it is not one of the feasible `rows`."""
        found = np.flatnonzero(rows == row)
        if not len(found):
            return None
        position = found.item(0)
        plugins = {name: scores.at((position,))[0] for name, scores in self.plugins.items()}
        return NodeScore(plugins, self.total.item(position))

    def _highest(self, most: int | None) -> list[int]:
        """Return positions of the `most` highest values in `total`; all positions if it is None."""
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
    """Run PreScore and Score for the feasible rows (int64, from `sampled`); return all scores."""
    pod, pipeline, cluster, spec = search.pod, search.pipeline, search.cluster, search.results.spec
    metrics, evaluations = pipeline.metrics, spec.running.evaluations
    metrics.mark()
    nodes = search.nodes_at(rows)
    states = dict(spec.pre_scored)
    for plugin in pipeline.pre_score:
        if plugin.name not in states:
            states[plugin.name] = run_pre_score(pipeline, plugin, pod, nodes, cluster)
    metrics.lap(PRE_SCORE)
    metrics.evaluated(evaluations.pre_score)
    metrics.evaluated(evaluations.scores)
    as_of = spec.as_of(spec.devices(pod), len(cluster.nodes))
    totals, plugins = _Totals(rows, cluster.nodes), dict[str, PluginScores]()
    for scorer in pipeline.scores:
        state = states.get(scorer.name)
        if state is SKIP:
            continue
        if scorer.depends_on_node_only:
            scores = _node_only_scores(search, scorer, state, nodes, totals, as_of)
        else:
            raw = run_score(pipeline, scorer.plugin, pod, nodes, state)
            metrics.evaluated(evaluations.others(SCORE, scorer.name))
            scores = PluginScores(normalize_score(raw, scorer.plugin.normalize), scorer.weight)
        plugins[scorer.name] = scores
        totals.add(scores)
    total = totals.found()
    metrics.lap(SCORE)
    return ScoreTable(nodes, total, _best(total), plugins)


def _best(total: IntArray) -> IntArray:
    return np.equal(total, _max(total)).nonzero()[0]


def _node_only_scores(
    search: NodeSearch,
    scorer: WeightedScorePlugin,
    state: Any,
    nodes: NodeView,
    totals: "_Totals",
    as_of: Sequence[Hashable],
) -> PluginScores:
    spec, how, weight = search.results.spec, scorer.plugin.normalize, scorer.weight
    is_kept = spec.is_kept(scorer.name)
    if totals.is_few and not is_kept:
        raw = run_score(search.pipeline, scorer.plugin, search.pod, nodes, state)
        return PluginScores(normalize_score(raw, how), weight)
    kept = spec.score(scorer.name, search.pod, search.cluster.nodes, as_of)
    if is_kept and not kept.highest:
        return PluginScores(MAX_SCORE if how is Normalize.REVERSED else 0, weight)
    if how is Normalize.NONE:
        return totals.of_rows(kept.values, weight)
    if is_kept and not totals.is_few:
        highest = kept.highest if totals.is_whole else _max(kept.values[totals.rows])
        if highest == kept.highest:
            return totals.of_rows(kept.normalized(how), weight)
    return PluginScores(normalize_score(totals.at_rows(kept.values), how), weight)


class _Totals:
    """Adds up the plugins' scores, in arrays by row or by position."""

    def __init__(self, rows: IntArray, nodes: NodeView) -> None:
        self.rows = rows
        self.is_whole = len(rows) == len(nodes)
        self.is_few = is_few(len(rows), nodes)
        self._by_row: IntArray | None = None
        self._by_position: IntArray | None = None
        self._of_all = 0

    def of_rows(self, column: IntArray, weight: int) -> PluginScores:
        """Return a plugin's scores from its column (int64, all rows), for `add`."""
        if self.is_few:
            return PluginScores(column[self.rows], weight)
        return PluginScores(column, weight, self.rows)

    def at_rows(self, column: IntArray) -> IntArray:
        return column if self.is_whole else column[self.rows]

    def add(self, scores: PluginScores) -> None:
        if isinstance(scores.column, int):
            self._of_all += scores.weight * scores.column
        elif scores.rows is None:
            self._by_position = _plus(self._by_position, scores.column, scores.weight)
        else:  # to add columns of all rows needs no copies
            self._by_row = _plus(self._by_row, scores.column, scores.weight)

    def found(self) -> IntArray:
        """Return the sum of all scores that were added, for each position (int64)."""
        total = self._by_position
        if self._by_row is not None:
            by_row = self.at_rows(self._by_row)
            total = by_row if total is None else total + by_row
        if total is None:
            return np.full(len(self.rows), self._of_all, np.int64)
        return total + self._of_all if self._of_all else total


def _plus(total: IntArray | None, column: IntArray, weight: int) -> IntArray:
    more = column if weight == 1 else weight * column
    if total is None:
        # A copy, because later columns are added to it in place.
        return more.copy() if more is column else more
    total += more
    return total


def with_extender_scores(table: ScoreTable, scores: Mapping[str, IntArray]) -> ScoreTable:
    """Return the table plus the extenders' weighted scores (int64[positions] by extender)."""
    total = table.total + sum(scores.values())
    plugins = {**table.plugins, **{name: PluginScores(column) for name, column in scores.items()}}
    return ScoreTable(table.nodes, total, _best(total), plugins)
