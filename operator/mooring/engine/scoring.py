"""How good the feasible nodes are (schedule_one.go, prioritizeNodes)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from mooring.engine.filtering import Search
from mooring.framework.decision import NodeScore
from mooring.framework.plugin import Normalize
from mooring.framework.runtime import run_pre_score, run_score
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

__all__ = ["ScoreTable", "score"]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """Totals of the feasible rows (int64), and how each plugin's share comes about."""

    nodes: NodeView
    total: IntArray
    best: IntArray
    """The positions whose total nobody exceeds, in order."""
    shares: Mapping[str, Callable[[IntArray], IntArray]]
    """Per plugin, its weighted normalised scores at positions of `total`."""

    def by_node(self, most: int | None, *, chosen: int) -> dict[str, NodeScore]:
        """Scores by node name, the best first: of all nodes or of `most`, the chosen one included.

        `chosen` is one of `best`.
        """
        told = self._highest(most)
        if chosen not in told:
            told[np.argmin(self.total[told])] = chosen
        told = told[np.lexsort((told, told != chosen, -self.total[told]))]
        shares = {name: share(told).tolist() for name, share in self.shares.items()}
        return {
            self.nodes.name(position): NodeScore(
                {name: values[i] for name, values in shares.items()}, int(self.total[position])
            )
            for i, position in enumerate(told.tolist())
        }

    def _highest(self, most: int | None) -> IntArray:
        """Positions of the highest totals, a copy; `most` of them, or all."""
        if most is None or most >= len(self.total):
            return np.arange(len(self.total))
        if len(self.best) >= most:  # of equals, as most nodes are, any will do
            return self.best[:most].copy()
        return np.argpartition(-self.total, most)[:most]


def score(search: Search, rows: IntArray) -> ScoreTable:
    """The totals of the feasible rows (int64)."""
    pod, pipeline, cluster, work = search.pod, search.pipeline, search.cluster, search.work
    nodes = search.nodes_at(rows)
    states = dict(work.pre_scored)
    for plugin in pipeline.pre_score:
        if plugin.name not in states:
            states[plugin.name] = run_pre_score(pipeline, plugin, pod, nodes, cluster)
    # Where every row is feasible, which is common, columns are used as they are: no gathering.
    chosen = slice(None) if len(rows) == len(work.fixed_total) else rows
    total = work.fixed_total[chosen]
    shares: dict[str, Callable[[IntArray], IntArray]] = {}
    for scorer in pipeline.scores:
        state = states.get(scorer.name)
        if state is SKIP:
            continue
        how = scorer.plugin.normalize
        if scorer.row_local and how is Normalize.NONE:
            column = work.raw(scorer.name)
            shares[scorer.name] = partial(_settled_share, column, rows, scorer.weight)
            continue
        raw = (
            work.raw(scorer.name)[chosen]
            if scorer.row_local
            else run_score(pipeline, scorer.plugin, pod, nodes, state)
        )
        share = scorer.weight * normalize_score(raw, how)
        shares[scorer.name] = share.__getitem__
        total = total + share
    return ScoreTable(nodes, total, np.flatnonzero(total == total.max()), shares)


def _settled_share(column: IntArray, rows: IntArray, weight: int, chosen: IntArray) -> IntArray:
    share: IntArray = weight * column[rows[chosen]]
    return share
