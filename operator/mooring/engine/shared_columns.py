"""Keeps masks and scores of nodes that several pod specs have in common.

Many specs differ in requests alone, and have the same tolerations, node selector or images. A
plugin with `filter_key` or `score_key` says on what of a spec its results depend; specs for which
that is equal share one column, which follows the changes of nodes. A column is kept as long as
results of one of these specs are.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.pipeline import Pipeline, WeightedScorePlugin
from mooring.framework.plugin import FilterPlugin, Normalize
from mooring.framework.runtime import run_filter, run_filter_key, run_score, run_score_key
from mooring.framework.scores import normalize_score
from mooring.model.pod import Pod
from mooring.state.columns import ChangeLog, IntArray
from mooring.state.nodes import NodeTable
from mooring.state.view import NodeView

__all__ = ["SharedColumn", "SharedColumns", "changed_rows"]

_BYTES_PER_COLUMN: Final = 2 * 1024
"""What a column takes beside its array and its key."""
_FILTER: Final = "filter"
_SCORE: Final = "score"

_Key = tuple[Pipeline, str, str, Hashable]
_Run = Callable[[Pod, NodeView], npt.NDArray[Any]]


class SharedColumn:
    """One plugin's results for all specs with the same key: `values` (bool or int64[rows])."""

    __slots__ = (
        "_node_set",
        "_normalized",
        "_other_bytes",
        "_owner",
        "_position",
        "_run",
        "_table",
        "highest",
        "key",
        "users",
        "values",
    )

    def __init__(
        self, key: _Key, run: _Run, table: NodeTable, owner: "SharedColumns", state_bytes: int
    ) -> None:
        self.key = key
        self._owner = owner
        self.users = 0
        """The results of how many specs use it."""
        self.values: npt.NDArray[Any] = np.zeros(0, np.bool_)
        self.highest = 0
        """The highest value."""
        self._normalized: IntArray | None = None
        self._run = run
        self._table = table
        self._other_bytes = _BYTES_PER_COLUMN + state_bytes
        self._position = -1
        self._node_set = -1

    @property
    def bytes(self) -> int:
        """About how much memory the column takes, without its key."""
        normalized = self._normalized.nbytes if self._normalized is not None else 0
        return self._other_bytes + self.values.nbytes + normalized

    def normalized(self, how: Normalize) -> IntArray:
        """Return the raw scores as 0-100 for decisions in which the highest one is feasible.

        `how` is that of the plugin.
        """
        normalized = self._normalized
        if normalized is None:
            normalized = normalize_score(self.values, how)
            self._replace(self.values, normalized)
        return normalized

    def refresh(self, pod: Pod, nodes: NodeView) -> None:
        """Bring the values up to date with the node table; `pod` is one that has this key."""
        table = self._table
        changes = table.node_changes
        is_whole = self._node_set == table.set_version and len(self.values) == len(nodes)
        if is_whole and self._position == changes.position:
            return
        rows, looked_at = changed_rows(changes, self._position if is_whole else -1, nodes)
        values = self._run(pod, looked_at)
        if rows is None:
            # Copied, because a plugin may return a column of the node table, which changes.
            self._replace(values.copy())
        else:
            self.values[rows] = values
            self._replace(self.values)
        self.highest = int(self.values.max(initial=0))
        # Only now: after an exception of the plugin, the same rows are looked at again.
        self._position, self._node_set = changes.position, table.set_version

    def _replace(self, values: npt.NDArray[Any], normalized: IntArray | None = None) -> None:
        before = self.bytes
        self.values, self._normalized = values, normalized
        if self.users:  # else it is dropped, and a decision still reads it
            self._owner.bytes += self.bytes - before


@dataclass(slots=True)
class _SpecPart:
    """What plugins read of a spec, which several of them may have in common, and its columns."""

    key: Hashable
    bytes: int
    columns: int = 0


class SharedColumns:
    """The columns that specs have in common."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._columns: dict[_Key, SharedColumn] = {}
        self._parts: dict[Hashable, _SpecPart] = {}
        self.bytes = 0
        """About how much memory the columns and their keys take."""

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self._columns)

    def of_filter(
        self, pipeline: Pipeline, plugin: FilterPlugin, pod: Pod, state: Any
    ) -> SharedColumn:
        """Return the column of a filter with a key for the pod's spec."""
        key = run_filter_key(pipeline, pipeline.keyed_filters[plugin.name], pod)
        return self._of(
            (pipeline, plugin.name, _FILTER, key),
            lambda pod, nodes: run_filter(pipeline, plugin, pod, nodes, state),
            pod.spec.memory,
            has_state=state is not None,
        )

    def of_score(
        self, pipeline: Pipeline, score: WeightedScorePlugin, pod: Pod, state: Any
    ) -> SharedColumn:
        """Return the column of raw scores of a plugin with a key for the pod's spec."""
        key = run_score_key(pipeline, pipeline.keyed_scores[score.name], pod)
        return self._of(
            (pipeline, score.name, _SCORE, key),
            lambda pod, nodes: run_score(pipeline, score.plugin, pod, nodes, state),
            pod.spec.memory,
            has_state=state is not None,
        )

    def release(self, column: SharedColumn) -> None:
        """Drop the column if this was its last user."""
        column.users -= 1
        if not column.users:
            del self._columns[column.key]
            self.bytes -= column.bytes
            part = self._parts[column.key[-1]]
            part.columns -= 1
            if not part.columns:
                del self._parts[part.key]
                self.bytes -= part.bytes

    def _of(self, key: _Key, run: _Run, spec_bytes: int, *, has_state: bool) -> SharedColumn:
        """Return the column.

        The key, and the plugin's state, is a part of the spec or made of it. To measure it would
        take longer than to look the column up, so each is taken to be as large as the spec.
        """
        column = self._columns.get(key)
        if column is None:
            pipeline, plugin, point, wanted = key
            part = self._parts.get(wanted)
            if part is None:
                part = self._parts[wanted] = _SpecPart(wanted, spec_bytes)
                self.bytes += part.bytes
            part.columns += 1
            key = (pipeline, plugin, point, part.key)
            state_bytes = spec_bytes if has_state else 0
            column = self._columns[key] = SharedColumn(key, run, self._table, self, state_bytes)
            self.bytes += column.bytes
        column.users += 1
        return column


def changed_rows(
    changes: ChangeLog, position: int, nodes: NodeView
) -> tuple[IntArray | None, NodeView]:
    """Return the rows that changed since `position`, None for all, and a view of them.

    A position of -1 stands for none; `nodes` is the view of all rows.
    """
    rows = changes.since(position) if position >= 0 else None
    if rows is None or 2 * len(rows) > len(nodes):
        return None, nodes
    return rows, nodes.take(rows)
