"""Why no node fits: who rejected which nodes, and the sentence a user reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mooring.framework.decision import Rejection
from mooring.framework.verdicts import Explanation
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

__all__ = ["Diagnosis", "RejectedNodes"]


@dataclass(frozen=True, slots=True, eq=False)
class RejectedNodes:
    """The nodes (int64 rows) that one plugin was the first to reject, and why."""

    plugin: str
    rows: IntArray
    explanation: Explanation


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The outcome of the filters when nothing is left; what it says is worked out once.

    `total` counts the nodes of the cluster. `pre_filter` is the reason for which no node was looked
    at, if so. `plugins` names everyone who rejected something: their cures are the pod's cures.
    """

    total: int
    names: Sequence[str]
    """Node names by row."""
    rejected: tuple[RejectedNodes, ...] = ()
    pre_filter: str | None = None
    pre_filter_plugins: frozenset[str] = frozenset()

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins that rejected the pod."""
        return self.pre_filter_plugins.union(group.plugin for group in self.rejected)

    @cached_property
    def resolvable_rows(self) -> IntArray:
        """The rows on which evicting pods might help, ascending."""
        rejected = self._rejected(resolvable=True)
        rejected[self.unresolvable_rows] = False
        return np.flatnonzero(rejected)

    @cached_property
    def unresolvable_rows(self) -> IntArray:
        """The rows that no eviction can help, ascending."""
        return np.flatnonzero(self._rejected(resolvable=False))

    def _rejected(self, *, resolvable: bool) -> BoolArray:
        """bool[rows]: rejected by somebody for whom that is so."""
        rejected = np.zeros(len(self.names), np.bool_)
        for group in self.rejected:
            rejected[group.rows[group.explanation.resolvable == resolvable]] = True
        return rejected

    @cached_property
    def message(self) -> str:
        """`0/N nodes are available: ...`, as FitError.Error in framework/types.go writes it."""
        if not self.total:
            return "no nodes available to schedule pods"
        head = f"0/{self.total} nodes are available:"
        if self.pre_filter is not None:
            return f"{head} {self.pre_filter}."
        histogram = sorted(f"{count} {reason}" for reason, count in self._histogram().items())
        return f"{head} {', '.join(histogram)}." if histogram else head

    def rejections(self, most: int | None = None) -> Mapping[str, Rejection]:
        """Every rejected node's rejection, by node name; with `most`, so many of each plugin's.

        Where all filters ran, a node's first refusing plugin gets the reasons of the others too.
        """
        rejections: dict[str, Rejection] = {}
        for group in self.rejected:
            why = group.explanation
            for row, reasons, resolvable in zip(
                group.rows[:most].tolist(),
                why.reasons_by_row(most),
                why.resolvable[:most].tolist(),
                strict=True,
            ):
                name = self.names[row]
                first = rejections.get(name)
                rejections[name] = (
                    Rejection(group.plugin, reasons, resolvable)
                    if first is None
                    else Rejection(
                        first.plugin, (*first.reasons, *reasons), first.resolvable and resolvable
                    )
                )
        return rejections

    def _histogram(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for group in self.rejected:
            for reason, nodes in group.explanation.nodes_per_reason():
                counts[reason] += nodes
        return +counts
