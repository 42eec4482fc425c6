"""Explains why no node fits: which plugins rejected which nodes, and the message for users."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mooring.framework.decision import Rejection
from mooring.framework.verdicts import Explanation
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

__all__ = ["EXTENDER", "Diagnosis", "RejectedNodes"]

EXTENDER: Final = "Extender"
"""Stands for all extenders in the set of plugins that rejected a pod (ExtenderName in types.go)."""


@dataclass(frozen=True, slots=True, eq=False)
class RejectedNodes:
    """The nodes (int64 rows) that one plugin rejected, with the reasons for each node."""

    plugin: str
    rows: IntArray
    explanation: Explanation


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Says why the nodes of the cluster reject a pod (Diagnosis in framework/types.go).

    `total` is the number of nodes. If pre_filter plugins rejected the pod for all nodes,
    `pre_filter` is their reason, `pre_filter_plugins` are their names, and `pre_filter_resolvable`
    says whether evicting pods may help. `plugins` names all plugins that rejected the pod.
    """

    total: int
    names: Sequence[str]
    """The names of the nodes, in the order of their rows."""
    rejected: tuple[RejectedNodes, ...] = ()
    pre_filter: str | None = None
    pre_filter_plugins: frozenset[str] = frozenset()
    pre_filter_resolvable: bool = False

    @property
    def nbytes(self) -> int:
        """The estimated size of the arrays in bytes, including cached properties."""
        cached = 2 * 8 * len(self.names)
        return cached + sum(
            group.rows.nbytes + group.explanation.bits.nbytes + group.explanation.resolvable.nbytes
            for group in self.rejected
        )

    @property
    def plugins(self) -> frozenset[str]:
        """The names of the plugins that rejected the pod, at PreFilter or at Filter."""
        return self.pre_filter_plugins.union(group.plugin for group in self.rejected)

    @cached_property
    def resolvable_rows(self) -> IntArray:
        """The rows (int64, ascending) on which evicting pods may help."""
        rejected = self._rejected(resolvable=True)
        rejected[self.unresolvable_rows] = False
        return np.flatnonzero(rejected)

    @cached_property
    def unresolvable_rows(self) -> IntArray:
        """The rows (int64, ascending) on which evicting pods cannot help."""
        return np.flatnonzero(self._rejected(resolvable=False))

    @cached_property
    def extender_rows(self) -> IntArray:
        """The rows (int64, ascending) that every filter passed and an extender filtered out."""
        rows = [group.rows for group in self.rejected if group.plugin == EXTENDER]
        return np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)

    def _rejected(self, *, resolvable: bool) -> BoolArray:
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
        """Return the rejections by node name, from at most `most` nodes per plugin.

        If several plugins rejected a node, the rejection names the first plugin and has the reasons
        of all these plugins.
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
