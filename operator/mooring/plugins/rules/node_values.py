"""Evaluates a step that reads only the node, for all nodes, once per distinct value.

The node table's change log says which results are outdated. A row has a hash of the values that
were read, and not the values, to save memory.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.cel.values import Failure
from mooring.framework.evaluations import Evaluations
from mooring.plugins.rules.node_reads import (
    OF_NODE,
    STABLE,
    codes_of,
    combined,
    distinct,
    evaluated,
)
from mooring.plugins.rules.value_columns import Codes, Errors, Value
from mooring.policy.rules.rule_plan import Interpreted
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

EMPTY: Final = {
    "bool": False,
    "int": 0,
    "double": 0.0,
    "string": "",
}
"""Maps the type of an expression's step to the value for a node on which its evaluation fails."""
DTYPES: Final = {"bool": np.bool_, "int": np.int64, "double": np.float64}
_UNITS_PER_ROW: Final = 20
"""The units of `Evaluations` for reading one node's values and storing the result."""
_FEW: Final = 16
"""At most this many changed nodes are read one by one; more nodes are read as columns."""


class NodeValues:
    """The values of one step of an expression for all rows of the node table."""

    def __init__(self, step: Interpreted, cluster: ClusterView) -> None:
        self._step = step
        self._cluster = cluster
        self._is_stable = all(read.variable in STABLE for read in step.of_node)
        self._position = self._version = -1
        self._marks: IntArray = np.zeros(0, np.int64)
        """For each row, the hash of the values from which its result was computed; 0: no result."""
        # A text is kept as its number in `_texts`, and an error as its number in `_whys`.
        self._values: npt.NDArray[Any] = np.zeros(0, DTYPES.get(step.type, np.int64))
        self._errors: IntArray = np.zeros(0, np.int64)
        self._texts = Errors()
        self._whys = Errors()

    @property
    def is_current(self) -> bool:
        """Whether the results are surely up to date: no value that the step reads has changed."""
        if self._is_stable and self._version == self._cluster.nodes.topology_version:
            return True
        return self._position == self._cluster.node_changes.position

    @property
    def units(self) -> int:
        """The units of `Evaluations` for evaluating the step for all nodes."""
        rows = len(self._cluster.nodes)
        return self._step.cost * distinct(self._step.of_node, self._cluster) + _UNITS_PER_ROW * rows

    def update(self, evaluations: Evaluations, doing: str) -> None:
        """Evaluate the step for nodes that have changed; `doing` names this work in messages.

        Raises PluginFailed if the attempt has used up its budget; the next call continues.
        """
        if self.is_current:
            return
        changes, nodes = self._cluster.node_changes, self._cluster.nodes
        position, version = changes.position, nodes.topology_version
        dirty = changes.since(self._position) if self._position >= 0 else None
        rows = nodes.rows if dirty is None else np.unique(dirty)
        rows = rows[nodes.take(rows).present]
        self._grow()
        codes, found = self._read(rows)
        hashes = np.array([hash(raws) or 1 for raws in found], np.int64)
        marks = hashes[codes]
        changed = marks != self._marks[rows]
        rows, marks = rows[changed], marks[changed]
        used, inverse = np.unique(codes[changed], return_inverse=True)
        missing = [found[code] for code in used.tolist()]
        evaluations.spend(1 + 2 * len(changed))
        results = list[Any]()
        try:
            for raws in missing:
                evaluations.pause(doing)
                results.append(evaluated(self._step, raws))
                evaluations.spend(self._step.cost)
        finally:
            done = inverse < len(results)
            self._write(rows[done], inverse[done], results)
            self._marks[rows[done]] = marks[done]
        self._position, self._version = position, version

    def at(self, rows: IntArray | None, errors: Errors) -> Value:
        """Return the values of `rows`; None means all rows. Add the texts of errors to `errors`."""
        self._grow()
        # The arrays also have the rows that the table has given up; an evaluation may hold some.
        at = slice(len(self._cluster.nodes)) if rows is None else rows
        data, found = self._values[at], self._errors[at]
        texts = self._whys.texts
        found_numbers: Any = 0
        if texts:
            found_numbers = np.array([0, *map(errors.number, texts)])[found]
        if self._step.type == "string":
            return Value(Codes(data, ("", *self._texts.texts)), found_numbers)
        return Value(data, found_numbers)

    def _grow(self) -> None:
        more = len(self._cluster.nodes) - len(self._marks)
        if more > 0:
            self._marks = np.append(self._marks, np.zeros(more, self._marks.dtype))
            self._values = np.append(self._values, np.zeros(more, self._values.dtype))
            self._errors = np.append(self._errors, np.zeros(more, self._errors.dtype))

    def _read(self, rows: IntArray) -> tuple[IntArray, list[tuple[Any, ...]]]:
        """Return a code for each row, and a list with the values that each code stands for."""
        nodes, reads = self._cluster.nodes.take(rows), self._step.of_node
        if len(rows) > _FEW:
            return combined([codes_of(read, nodes, self._cluster).compact() for read in reads])
        numbers, codes = dict[tuple[Any, ...], int](), list[int]()
        for index in range(len(rows)):
            node = nodes.node(index)
            if node is None:
                raise AssertionError("only nodes that exist are read")
            raws = tuple([OF_NODE[r.variable](node, nodes, index, r.key or "") for r in reads])
            codes.append(numbers.setdefault(raws, len(numbers)))
        return np.array(codes, np.int64), [*numbers]

    def _write(self, rows: IntArray, which: IntArray, results: list[Any]) -> None:
        """Store `results[which[i]]` for the node in row `rows[i]`."""
        if not len(rows):
            return
        failed = [self._whys.number(r.text) if isinstance(r, Failure) else 0 for r in results]
        values: list[Any]
        if self._step.type == "string":
            values = [0 if isinstance(r, Failure) else self._texts.number(r) for r in results]
        else:
            empty = EMPTY.get(self._step.type)
            values = [empty if isinstance(r, Failure) else r for r in results]
        # Copies, because callers that got the values of all rows must not see them change.
        self._values, self._errors = self._values.copy(), self._errors.copy()
        self._values[rows] = np.array(values, self._values.dtype)[which]
        self._errors[rows] = np.array(failed)[which]
        most = 2 * len(self._marks) + 64
        if len(self._texts) > most:
            self._values, self._texts = _renumbered(self._values, self._texts)
        if len(self._whys) > most:
            self._errors, self._whys = _renumbered(self._errors, self._whys)


def _renumbered(numbers: IntArray, texts: Errors) -> tuple[IntArray, Errors]:
    # Drops the texts that no number uses.
    used, inverse = np.unique(numbers, return_inverse=True)
    known, fewer = ("", *texts.texts), Errors()
    again = np.array([fewer.number(known[n]) if n else 0 for n in used.tolist()], np.int64)
    return again[inverse], fewer
