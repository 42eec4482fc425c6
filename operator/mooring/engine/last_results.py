"""The results of plugins that run for every pod (`runs_for_every_pod`), for the last spec alone.

Such a plugin computes all nodes in a few operations on whole columns. So nothing is kept per spec,
and a pod of a template that was never seen costs what any other one costs. Where the next pod has
the same spec, only rows that have changed since are computed again.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.engine.shared_columns import changed_rows
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import FilterPlugin, ScorePlugin
from mooring.framework.runtime import run_filter, run_score
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.view import BoolArray, NodeView

__all__ = ["LastResults", "is_few"]

_FILTERS: Final = ""
"""Stands for all filters; scores have the names of their plugins."""
_FEW: Final = 4
"""One row of so many is worth gathering its values from all columns."""
_MANY: Final = 2048
"""With fewer rows it takes no longer to compute all of them than to gather the changed ones."""
_Run = Callable[[NodeView], npt.NDArray[Any]]


class LastResults:
    """The columns of one spec and pipeline, by plugin; those of another one replace them."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._of: tuple[object, Hashable] = (None, None)
        self._columns: dict[Hashable, tuple[int, npt.NDArray[Any]]] = {}
        """The values by row, and the position in the change log that they are of."""

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return sum(values.nbytes for _, values in self._columns.values())

    def begin(self, spec: object, devices: Hashable) -> None:
        """Forget the columns, unless they are of this spec, these nodes and these devices.

        `spec` is compared by identity.
        """
        wanted = (self._table.set_version, devices)
        if self._of[0] is not spec or self._of[1] != wanted:
            self._columns.clear()
            self._of = (spec, wanted)

    def filter(
        self,
        filters: Sequence[tuple[FilterPlugin, Any]],
        pipeline: Pipeline,
        pod: Pod,
        nodes: NodeView,
        fits: BoolArray,
    ) -> BoolArray:
        """Return which of the rows in `fits` (bool[rows]) these filters pass, too."""
        if is_few(int(np.count_nonzero(fits)), nodes):
            rows = fits.nonzero()[0]
            passed: BoolArray = np.zeros(len(nodes), np.bool_)
            looked_at = nodes.take(rows)
            passed[rows] = _filtered(filters, pipeline, pod, looked_at)
            return passed
        if len(nodes) < _MANY:
            return fits & _filtered(filters, pipeline, pod, nodes)
        mask: BoolArray = self._column(
            _FILTERS, nodes, lambda looked_at: _filtered(filters, pipeline, pod, looked_at)
        )
        return fits & mask

    def score(
        self, plugin: ScorePlugin, state: Any, pipeline: Pipeline, pod: Pod, nodes: NodeView
    ) -> IntArray:
        """Return the plugin's raw scores of all nodes: int64[rows]."""
        if len(nodes) < _MANY:
            return run_score(pipeline, plugin, pod, nodes, state)
        return self._column(
            plugin.name, nodes, lambda looked_at: run_score(pipeline, plugin, pod, looked_at, state)
        )

    def _column(self, key: Hashable, nodes: NodeView, run: _Run) -> npt.NDArray[Any]:
        """Return what `run` returns for all nodes, which are in the view."""
        changes = self._table.changes
        position, known = self._columns.get(key, (-1, None))
        if known is None or len(known) != len(nodes):
            values = run(nodes)
        elif position == changes.position:
            return known
        else:
            rows, looked_at = changed_rows(changes, position, nodes)
            values = run(looked_at)
            if rows is not None:
                known[rows] = values
                values = known
        self._columns[key] = (changes.position, values)
        return values


def is_few(rows: int, nodes: NodeView) -> bool:
    """Return whether so few rows of the view of all nodes are better computed alone."""
    return _FEW * rows <= len(nodes)


def _filtered(
    filters: Sequence[tuple[FilterPlugin, Any]], pipeline: Pipeline, pod: Pod, nodes: NodeView
) -> BoolArray:
    """Return bool[nodes]: the nodes that pass all of the filters; there is at least one."""
    (first, state), *others = filters
    passed = run_filter(pipeline, first, pod, nodes, state)
    for plugin, state in others:
        passed = passed & run_filter(pipeline, plugin, pod, nodes, state)
    return passed
