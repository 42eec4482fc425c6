"""Evaluates a plan for a pod and many nodes.

Library steps keep their results by the values that they read. What reads labels, taints and names
of nodes alone is kept by row, until a node is added or deleted or its labels or taints change.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.plugins.rules.columns import (
    Codes,
    Errors,
    Value,
    computed,
    gathered,
    logical,
    negation,
    selected,
)
from mooring.plugins.rules.results import Results
from mooring.policy.rules.expressions import Failed, Type
from mooring.policy.rules.plan import (
    Amount,
    HasLabel,
    Label,
    Library,
    Literal,
    NodeField,
    Operation,
    Plan,
    Read,
    Step,
)
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT
from mooring.state.snapshot import Snapshot
from mooring.state.view import NodeView

__all__ = ["Evaluator"]

_MOST_FOR_NODES: Final = 5_000_000
"""Units of cost for all distinct values, at most 0.5 s; the results are kept."""
_MOST_FOR_POD: Final = 100_000
"""The same where the pod is read too, about 10 ms: each pod may have values of its own."""
_MOST_KEPT: Final = 65_536
_NONE: Final = -2
"""The code of a text that no node has."""

_EMPTY: Final[Mapping[str, Any]] = {
    Type.BOOL: False,
    Type.INT: 0,
    Type.DOUBLE: 0.0,
    Type.STRING: "",
    Type.OTHER: (),
}
"""By type, what stands for the value where there is an error."""
_DTYPES: Final = {Type.BOOL: np.bool_, Type.INT: np.int64, Type.DOUBLE: np.float64}
_STABLE: Final = frozenset(("node.name", "node.labels", "node.taints", "node.zone", "node.region"))
"""Variables that change only together with `NodeView.topology_version`."""


_FEW: Final = 8
"""Nodes that the library evaluates one by one: after an event, only its node is evaluated."""
_MOST_COLUMNS: Final = 16
"""Results for all nodes that are kept for each rule."""
_POD_MAPS: Final = ("pod.labels", "pod.namespaceLabels")
_NOT_KEPT: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """The value of a step for all rows, with the texts of its errors."""

    version: int
    value: Value
    texts: tuple[str, ...]
    rows: int


class Evaluator:
    """Evaluates one plan; keeps results of the library between evaluations."""

    def __init__(self, plan: Plan, cluster: Snapshot) -> None:
        self._plan = plan
        self._cluster = cluster
        self._results: dict[Library, dict[tuple[Any, ...], Any]] = {}
        self._by_row: dict[Library, _Kept] = {}
        self._columns: OrderedDict[tuple[Any, ...], Results] = OrderedDict()
        self._columns_of = (-1, -1)
        self._steps = [step for step in _libraries(plan.step) if step.of_node]
        self._of_pod_reads = [r for r in plan.reads if not r.variable.startswith("node.")]
        self._keeps_columns = not _has_pod_map(plan.reads) and all(
            read.variable in _STABLE for read in plan.reads if read not in self._of_pod_reads
        )

    def run(self, pod: Pod, nodes: NodeView) -> tuple[Results, IntArray | None]:
        """Results, and the rows of them that are the nodes of the view; None: all, in order."""
        whole = self._plan.whole
        if whole is not None and len(nodes) <= _FEW and not self._is_too_dear(nodes):
            return self._one_by_one(whole, pod, nodes), None
        if not self._keeps_columns:
            return self._by_columns(pod, nodes), None
        key = tuple([self._of_pod(pod, read) for read in self._of_pod_reads])
        everything = self._cluster.nodes
        as_of = (nodes.topology_version, len(everything))
        if self._columns_of != as_of:
            self._columns.clear()
            self._columns_of = as_of
        results = self._columns.get(key)
        if results is None:
            results = replace(self._by_columns(pod, everything), is_kept=True)
            results.values.flags.writeable = results.errors.flags.writeable = False
            self._columns[key] = results
            if len(self._columns) > _MOST_COLUMNS:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(key)
        return results, None if nodes.rows is everything.rows else nodes.rows

    def _is_too_dear(self, nodes: NodeView) -> bool:
        """Whether a step does not run, which the whole expression would hide."""
        return any(
            self._too_dear(step, [self._codes(read, nodes) for read in step.of_node])
            for step in self._steps
        )

    def _by_columns(self, pod: Pod, nodes: NodeView) -> Results:
        errors = Errors()
        value = self._value(self._plan.step, pod, nodes, errors)
        numbers = np.zeros(len(nodes), np.int16)
        if not (value.is_scalar and not value.errors):
            numbers[:] = value.errors
        values = value.data
        if np.shape(values) != (len(nodes),):
            values = np.full(len(nodes), values)
        return _finite(values, numbers, errors)

    def _one_by_one(self, whole: Library, pod: Pod, nodes: NodeView) -> Results:
        errors, of_pod = Errors(), [self._of_pod(pod, read) for read in whole.of_pod]
        values: list[Any] = [_EMPTY[whole.type]] * len(nodes)
        numbers = [0] * len(nodes)
        for index in range(len(nodes)):
            node = nodes.node(index)
            if node is None:
                continue
            raws = [_OF_NODE[r.variable](node, nodes, index, r.key or "") for r in whole.of_node]
            result = self._call(whole, (*raws, *of_pod))
            if isinstance(result, Failed):
                numbers[index] = errors.number(result.why)
            else:
                values[index] = result
        return _finite(np.array(values, _DTYPES[whole.type]), np.array(numbers, np.int16), errors)

    def _value(self, step: Step, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        match step:
            case Literal(literal):
                value = Value(literal)
            case NodeField(variable):
                unschedulable = variable == "node.unschedulable"
                codes = self._codes(Read(variable), nodes)
                value = Value(nodes.unschedulable if unschedulable else codes)
            case Label(key) | HasLabel(key):
                value = self._label(step, self._value(key, pod, nodes, errors), nodes, errors)
            case Amount(variable, resource):
                name = self._value(resource, pod, nodes, errors)
                value = Value(_amounts(variable, name.data, nodes), name.errors)
            case Library():
                value = self._library(step, pod, nodes, errors)
            case Operation("_&&_" | "_||_"):
                value = self._logical(step, pod, nodes, errors)
            case Operation("_?_:_"):
                value = self._selected(step, pod, nodes, errors)
            case Operation(function, operands):
                values = [self._value(operand, pod, nodes, errors) for operand in operands]
                is_not = function == "!_"
                value = negation(*values) if is_not else computed(function, values, errors)
        return value

    def _codes(self, read: Read, nodes: NodeView) -> Codes:
        """What the nodes have for a read of the node, as codes; None for a missing label."""
        match read.variable:
            case "node.name":
                codes = Codes(nodes.rows, self._cluster.node_names, self._row)
            case "node.zone":
                codes = Codes(nodes.zone_codes, [zone for _, zone in nodes.zones])
            case "node.region":
                codes = Codes(nodes.zone_codes, [region for region, _ in nodes.zones])
            case "node.taints":
                codes = Codes(nodes.taint_codes, nodes.taint_sets)
            case "node.conditions":
                codes = Codes(nodes.condition_codes, nodes.condition_sets)
            case "node.unschedulable":
                codes = Codes(nodes.unschedulable.astype(np.int64), (False, True))
            case _:
                key = read.key or ""
                codes = Codes(nodes.label_codes(key), (*nodes.label(key).values, None))
        return codes

    def _row(self, name: str) -> int:
        row = self._cluster.row(name)
        return _NONE if row is None else row

    def _label(self, step: Label | HasLabel, key: Value, nodes: NodeView, errors: Errors) -> Value:
        if key.errors:
            return Value(False if isinstance(step, HasLabel) else "", key.errors)
        codes, column = nodes.label_codes(key.data), nodes.label(key.data)
        if isinstance(step, HasLabel):
            return Value(codes != ABSENT)
        absent = codes == ABSENT
        missing = np.where(absent, errors.number(_no_such(key.data)), 0) if absent.any() else 0
        index = column.index
        return Value(Codes(codes, (*column.values, ""), lambda t: index.get(t, _NONE)), missing)

    def _logical(self, step: Operation, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        """Operands that are the same for every node come first: they may decide alone."""
        decisive = step.function == "_||_"
        values: list[Value] = []
        for operand in sorted(step.operands, key=_differs):
            value = self._value(operand, pod, nodes, errors)
            if not (value.is_scalar and not value.errors):
                values.append(value)
            elif bool(value.data) is decisive:
                return value
        if len(values) == 2:
            return logical(step.function, *values)
        return values[0] if values else Value(not decisive)

    def _selected(self, step: Operation, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        chosen, yes, no = step.operands
        condition = self._value(chosen, pod, nodes, errors)
        if condition.is_scalar and condition.errors:
            return Value(_EMPTY[step.type], condition.errors)
        if condition.is_scalar:
            return self._value(yes if condition.data else no, pod, nodes, errors)
        options = [self._value(option, pod, nodes, errors) for option in (yes, no)]
        return selected(condition, *options)

    def _library(self, step: Library, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        if not step.of_node:
            result = self._call(step, tuple(self._of_pod(pod, read) for read in step.of_pod))
            if isinstance(result, Failed):
                return Value(_EMPTY[step.type], errors.number(result.why))
            return Value(result)
        if step.of_pod or any(read.variable not in _STABLE for read in step.of_node):
            return self._distinct(step, pod, nodes, errors)
        everything = self._cluster.nodes
        kept, version = self._by_row.get(step), nodes.topology_version
        if kept is None or kept.version != version or kept.rows != len(everything):
            own = Errors()
            value = self._distinct(step, pod, everything, own)
            kept = self._by_row[step] = _Kept(version, value, tuple(own.texts), len(everything))
        return _taken(kept, None if nodes.rows is everything.rows else nodes.rows, errors)

    def _distinct(self, step: Library, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        """Runs the library once per distinct combination of what the step reads of the nodes."""
        columns = [self._codes(read, nodes) for read in step.of_node]
        if (why := self._too_dear(step, columns)) is not None:
            return Value(_EMPTY[step.type], errors.number(why))
        codes, tuples = _combined([column.compact() for column in columns])
        of_pod = tuple(self._of_pod(pod, read) for read in step.of_pod)
        results = [self._call(step, (*values, *of_pod)) for values in tuples]
        return gathered(codes, results, 0, errors, step.type)

    def _too_dear(self, step: Library, columns: Sequence[Codes]) -> str | None:
        """Why the step does not run; `columns` has the tables of what it reads of the nodes.

        As many distinct values count as all nodes may have, so that it does not depend on which
        nodes are looked at.
        """
        distinct = min(math.prod(len(c.table) for c in columns), len(self._cluster.nodes))
        most = _MOST_FOR_POD if step.of_pod else _MOST_FOR_NODES
        if distinct * step.cost <= most:
            return None
        return f"{distinct} distinct values at a cost of {step.cost} each exceed {most}"

    def _of_pod(self, pod: Pod, read: Read) -> Any:
        """A read of the pod or its namespace: a text, a number, or a map's sorted items."""
        if read.variable == "pod.namespaceLabels":
            return _part(self._cluster.namespace_labels(pod.namespace), read.key)
        return _OF_POD[read.variable](pod, read.key)

    def _call(self, step: Library, raws: tuple[Any, ...]) -> Any:
        """The library's result for the values of `step.reads`."""
        if _has_pod_map(step.of_pod):
            return step.program(_data(step.reads, raws))
        results = self._results.setdefault(step, {})
        result = results.get(raws, _NOT_KEPT)
        if result is _NOT_KEPT:
            if len(results) >= _MOST_KEPT:
                results.clear()
            result = results[raws] = step.program(_data(step.reads, raws))
        return result


def _finite(values: npt.NDArray[Any], numbers: npt.NDArray[np.int16], errors: Errors) -> Results:
    """The results; a number that is not finite is an error."""
    if values.dtype == np.float64:
        finite = np.isfinite(values)
        if not finite.all():
            wrong = (numbers == 0) & ~finite
            if wrong.any():
                numbers[wrong] = errors.number("the number is not finite")
            values = np.where(finite, values, 0.0)
    return Results(values, numbers, errors.texts)


_OF_NODE: Final[Mapping[str, Callable[[Node, NodeView, int, str], Any]]] = {
    "node.name": lambda node, _, __, ___: node.name,
    "node.labels": lambda node, _, __, key: node.labels.get(key),
    "node.allocatable": lambda node, _, __, key: (
        node.pod_slots if key == "pods" else node.allocatable.get(key, 0)
    ),
    "node.requested": lambda _, nodes, index, key: (
        int(nodes.pod_count[index]) if key == "pods" else nodes.requested_at(index, key)
    ),
    "node.taints": lambda node, _, __, ___: node.taints,
    "node.conditions": lambda node, _, __, ___: frozenset(node.conditions.items()),
    "node.zone": lambda node, _, __, ___: node.zone_key[1],
    "node.region": lambda node, _, __, ___: node.zone_key[0],
    "node.unschedulable": lambda node, _, __, ___: node.unschedulable,
}
"""By variable, a read of one node; it gets the node, its view, its position there and the key."""


def _libraries(step: Step) -> Iterator[Library]:
    """The library steps in a step."""
    match step:
        case Library():
            yield step
        case Operation(_, operands):
            for operand in operands:
                yield from _libraries(operand)
        case Label(key) | HasLabel(key) | Amount(_, key):
            yield from _libraries(key)
        case _:
            return


def _differs(step: Step) -> bool:
    """Whether the value may differ between nodes."""
    return not (isinstance(step, Literal) or (isinstance(step, Library) and not step.of_node))


def _no_such(key: str) -> str:
    return f'no such key: "{key}"'


def _amounts(variable: str, resource: str, nodes: NodeView) -> IntArray:
    if variable == "node.allocatable":
        return nodes.pod_slots if resource == "pods" else nodes.allocatable(resource)
    return nodes.pod_count if resource == "pods" else nodes.requested(resource)


def _part(items: Mapping[str, str], key: str | None) -> Any:
    """The value of a key, None without it; of the whole map its items."""
    return items.get(key) if key is not None else tuple(sorted(items.items()))


_OF_POD: Final[Mapping[str, Callable[[Pod, str | None], Any]]] = {
    "pod.namespace": lambda pod, _: pod.namespace,
    "pod.priority": lambda pod, _: pod.shape.priority,
    "pod.qosClass": lambda pod, _: pod.shape.qos,
    "pod.ownerKind": lambda pod, _: pod.owner.kind if pod.owner is not None else "",
    "pod.requests": lambda pod, key: pod.shape.demand.resources.get(key or "", 0),
    "pod.labels": lambda pod, key: _part(pod.labels, key),
}


def _has_pod_map(reads: Iterable[Read]) -> bool:
    """Whether a whole map of the pod is read: pods have too many of them to keep results."""
    return any(read.key is None and read.variable in _POD_MAPS for read in reads)


def _data(reads: Sequence[Read], raws: Sequence[Any]) -> dict[str, Any]:
    """The variables of an evaluation, from the values of the reads."""
    data: dict[str, Any] = {}
    for read, raw in zip(reads, raws, strict=True):
        if read.key is not None:
            keyed = data.setdefault(read.variable, {})
            if raw is not None:
                keyed[read.key] = raw
        elif read.variable == "node.taints":
            data[read.variable] = [
                {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in raw
            ]
        elif isinstance(raw, tuple | frozenset):
            data[read.variable] = dict(raw)
        else:
            data[read.variable] = raw
    return data


def _combined(columns: Sequence[Codes]) -> tuple[IntArray, list[tuple[Any, ...]]]:
    """Several columns as one: codes, and by code the values of all columns."""
    first, *rest = columns
    codes: Any = first.codes
    found: list[tuple[Any, ...]] = [(value,) for value in first.table]
    for column in rest:
        size = len(column.table)
        pairs = codes % len(found) * size + column.codes % size
        used, codes = np.unique(pairs, return_inverse=True)
        found = [(*found[pair // size], column.table[pair % size]) for pair in used.tolist()]
    return codes, found


def _taken(kept: _Kept, rows: IntArray | None, errors: Errors) -> Value:
    """The kept value at these rows (None: all), with numbers of its errors in `errors`."""
    data, found = kept.value.data, kept.value.errors
    if kept.texts:
        numbers = np.array([0, *map(errors.number, kept.texts)])
        found = numbers[found]
    if rows is None:
        return Value(data, found)
    taken = Codes(data.codes[rows], data.table) if isinstance(data, Codes) else data[rows]
    return Value(taken, found if isinstance(found, int) else found[rows])
