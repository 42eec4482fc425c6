"""Evaluates a rule's plan for a pod and many nodes.

`NodeValues` caches the results of steps that read only nodes. Any other step is evaluated once for
all nodes with the same values; up to 512 KiB of the results are cached.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.cel.values import Failure
from mooring.framework.evaluations import MOST_FOR_POD, Cost, Evaluations
from mooring.model.pod import Pod
from mooring.plugins.rules.node_reads import (
    NO_NODE,
    OF_NODE,
    STABLE,
    codes_of,
    combined,
    distinct,
    evaluated,
    of_pod,
    reads_label_map,
)
from mooring.plugins.rules.node_values import DTYPES, EMPTY, NodeValues
from mooring.plugins.rules.pod_counts import PodCounts
from mooring.plugins.rules.rule_results import Results
from mooring.plugins.rules.value_columns import (
    Codes,
    Errors,
    Value,
    computed,
    gathered,
    logical,
    negation,
    selected,
)
from mooring.policy.rules.rule_plan import (
    Amount,
    ConstantValue,
    HasLabel,
    Interpreted,
    NodeField,
    NodeLabelValue,
    Operation,
    PodCount,
    Read,
    RulePlan,
    Step,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT
from mooring.state.view import NodeView

_FEW: Final = 8
"""At most this many nodes are evaluated one by one; most events change only one node."""
_MOST_COLUMNS: Final = 16
"""The most cached results per rule, each with a value for every node; the least recently used
results are dropped."""
_MOST_COLUMN_BYTES: Final = 16 * 2**20
"""The most bytes of cached results for all nodes, divided among the rules of a profile; each rule
keeps at least one result."""
_BYTES_PER_RESULT: Final = 26
"""The bytes of a cached result per node: its value, error, score and rank."""
_MOST_KEPT_BYTES: Final = 512 * 1024
"""The most bytes, per rule, of cached results of expressions that read the pod. If there are more,
all these results are dropped."""
_USUAL_LABELS: Final = 16
"""The number of items that a map of labels is assumed to have, for the cost of an expression."""
_NOT_KEPT: Final = object()
_NO_LABELS: Final[Mapping[str, str]] = {}


class Evaluator:
    """Evaluates the plan of one rule; caches the results of interpreted steps."""

    def __init__(
        self,
        plan: RulePlan,
        cluster: ClusterView,
        evaluations: Evaluations | None = None,
        rule: str = "",
    ) -> None:
        self.name = f"rule {rule}"
        self._plan = plan
        self._cluster = cluster
        self._evaluations = evaluations if evaluations is not None else Evaluations()
        steps = [*_interpreted_in(plan.step)]
        self._of_nodes = {
            step: NodeValues(step, cluster) for step in steps if step.of_node and not step.of_pod
        }
        self._of_pods = [step for step in steps if step.of_pod]
        self.counts = PodCounts(plan.counts, cluster, self._of_pod_alone)
        self._of_label_maps = frozenset(s for s in self._of_pods if reads_label_map(s.of_pod))
        self._kept: dict[tuple[Interpreted, tuple[Any, ...]], Any] = {}
        self._kept_bytes = 0
        self._last_pod: tuple[Pod | None, Mapping[str, str]] = (None, _NO_LABELS)
        self._of_last_pod: dict[tuple[Interpreted, tuple[Any, ...]], Any] = {}
        self._columns: OrderedDict[tuple[Any, ...], Results] = OrderedDict()
        self._columns_of = (-1, -1)
        self._of_pod_reads = [r for r in plan.reads if not r.variable.startswith("node.")]
        self._keeps_columns = not reads_label_map(plan.reads) and all(
            read.variable in STABLE for read in plan.reads if read not in self._of_pod_reads
        )
        self._evaluations.add(self)

    def cost(self) -> Cost:
        """Return the cost of evaluating the plan for all values that nodes have now."""
        of_nodes = sum(values.units for values in self._of_nodes.values())
        total = Cost(nodes=of_nodes, pod=self.counts.units)
        for step in self._of_pods:
            units = step.cost * (distinct(step.of_node, self._cluster) if step.of_node else 1)
            total += Cost(pod=units, pod_maps=units if step in self._of_label_maps else 0)
        return total

    def run(self, pod: Pod, nodes: NodeView) -> tuple[Results, IntArray | None]:
        """Return the results, and the index of each node's result.

        The indices are None if the results are in the order of `nodes`. Raises PluginFailed if the
        attempt has used up its budget.
        """
        if (why := self._left_out(pod)) is not None:
            failed = np.ones(len(nodes), np.int16)
            return Results(np.zeros(len(nodes), np.bool_), failed, (why,)), None
        whole = self._plan.whole
        is_few = len(nodes) <= _FEW and not self._of_label_maps
        if whole is not None and is_few and whole.cost * len(nodes) <= MOST_FOR_POD:
            return self._one_by_one(whole, pod, nodes), None
        self.counts.count(pod, self._evaluations)
        for values in self._of_nodes.values():
            values.update(self._evaluations, f"evaluating {self.name} for the values of the nodes")
        if not self._keeps_columns:
            return self._by_columns(pod, nodes), None
        everything = self._cluster.nodes
        results = self._for_all(pod, everything)
        return results, None if nodes.rows is everything.rows else nodes.rows

    def is_true_for(self, pod: Pod) -> bool:
        """Return whether the pod's values alone make the rule true on every node."""
        return self._left_out(pod) is None and self._of_pod_only(self._plan.step, pod) is True

    def _of_pod_only(self, step: Step, pod: Pod) -> bool | None:
        """Return the value of the condition `step` if the pod alone determines it, else None."""
        match step:
            case ConstantValue(bool(value)):
                return value
            case Interpreted(type="bool", of_node=()):
                value = self._of_pod_alone(step, pod)
                return value if isinstance(value, bool) else None
            case Operation("_||_" | "_&&_" as function, operands):
                decisive = function == "_||_"
                found = {self._of_pod_only(operand, pod) for operand in operands}
                return decisive if decisive in found else None if None in found else not decisive
            case Operation("!_", (operand,)):
                found_one = self._of_pod_only(operand, pod)
                return None if found_one is None else not found_one
            case Operation("_?_:_", (condition, yes, no)):
                chosen = self._of_pod_only(condition, pod)
                return None if chosen is None else self._of_pod_only(yes if chosen else no, pod)
        return None

    def _of_pod_alone(self, step: Step, pod: Pod) -> Any:
        if not isinstance(step, Interpreted):
            raise TypeError("what reads no node is interpreted")
        return self._call(step, self._read_pod(step, pod), pod)

    def _left_out(self, pod: Pod) -> str | None:
        why = self._evaluations.excess(self, self._cluster.node_set_version)
        if why is None and self._of_label_maps:
            labels = max(len(pod.labels), len(self._cluster.namespace_labels(pod.namespace)))
            why = self._evaluations.excess_of_map(self, -(-labels // _USUAL_LABELS))
        return why

    def _for_all(self, pod: Pod, everything: NodeView) -> Results:
        key = tuple([of_pod(pod, read, self._cluster) for read in self._of_pod_reads])
        as_of = (everything.topology_version, len(everything))
        if self._columns_of != as_of:
            self._columns.clear()
            self._columns_of = as_of
        results = self._columns.get(key)
        if results is None:
            results = replace(self._by_columns(pod, everything), is_kept=True)
            results.values.flags.writeable = results.errors.flags.writeable = False
            self._columns[key] = results
            most = _MOST_COLUMN_BYTES // len(self._evaluations)
            most = min(most // (_BYTES_PER_RESULT * len(everything) + 1), _MOST_COLUMNS)
            while len(self._columns) > max(most, 1):
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(key)
        return results

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

    def _one_by_one(self, whole: Interpreted, pod: Pod, nodes: NodeView) -> Results:
        errors, pods = Errors(), self._read_pod(whole, pod)
        values: list[Any] = [EMPTY[whole.type]] * len(nodes)
        numbers = [0] * len(nodes)
        for index in range(len(nodes)):
            node = nodes.node(index)
            if node is None:
                continue
            raws = [OF_NODE[r.variable](node, nodes, index, r.key or "") for r in whole.of_node]
            result = self._call(whole, (*raws, *pods), pod)
            if isinstance(result, Failure):
                numbers[index] = errors.number(result.text)
            else:
                values[index] = result
        return _finite(np.array(values, DTYPES[whole.type]), np.array(numbers, np.int16), errors)

    def _value(self, step: Step, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        match step:
            case ConstantValue(literal):
                value = Value(literal)
            case NodeField(variable):
                unschedulable = variable == "node.unschedulable"
                codes = codes_of(Read(variable), nodes, self._cluster)
                value = Value(nodes.unschedulable if unschedulable else codes)
            case NodeLabelValue(key) | HasLabel(key):
                value = self._label(step, self._value(key, pod, nodes, errors), nodes, errors)
            case Amount(variable, resource):
                name = self._value(resource, pod, nodes, errors)
                value = Value(_amounts(variable, name.data, nodes), name.errors)
            case PodCount():
                value = self._counted(step, pod, nodes, errors)
            case Interpreted():
                value = self._interpreted(step, pod, nodes, errors)
            case Operation("_&&_" | "_||_"):
                value = self._logical(step, pod, nodes, errors)
            case Operation("_?_:_"):
                value = self._selected(step, pod, nodes, errors)
            case Operation(function, operands):
                values = [self._value(operand, pod, nodes, errors) for operand in operands]
                is_not = function == "!_"
                value = negation(*values) if is_not else computed(function, values, errors)
        return value

    def _label(
        self, step: NodeLabelValue | HasLabel, key: Value, nodes: NodeView, errors: Errors
    ) -> Value:
        if key.errors:
            return Value(False if isinstance(step, HasLabel) else "", key.errors)
        codes, column = nodes.label_codes(key.data), nodes.label(key.data)
        if isinstance(step, HasLabel):
            return Value(codes != ABSENT)
        absent = codes == ABSENT
        missing = np.where(absent, errors.number(_no_such(key.data)), 0) if absent.any() else 0
        index = column.index
        return Value(Codes(codes, (*column.values, ""), lambda t: index.get(t, NO_NODE)), missing)

    def _counted(self, step: PodCount, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        counts = self.counts.at(step, pod)
        if isinstance(counts, Failure):
            return Value(0, errors.number(counts.text))
        absent = nodes.domain_codes(counts.domains) == ABSENT
        missing: Any = 0
        if step.key is not None and absent.any():
            missing = np.where(absent, errors.number(_no_such(step.key)), 0)
        return Value(counts.at(nodes).astype(np.int64), missing)

    def _logical(self, step: Operation, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
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
            return Value(EMPTY[step.type], condition.errors)
        if condition.is_scalar:
            return self._value(yes if condition.data else no, pod, nodes, errors)
        options = [self._value(option, pod, nodes, errors) for option in (yes, no)]
        return selected(condition, *options)

    def _interpreted(self, step: Interpreted, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        if not step.of_node:
            result = self._of_pod_alone(step, pod)
            if isinstance(result, Failure):
                return Value(EMPTY.get(step.type), errors.number(result.text))
            return Value(result)
        if step.of_pod:
            return self._distinct(step, pod, nodes, errors)
        all_rows = nodes.rows is self._cluster.nodes.rows
        return self._of_nodes[step].at(None if all_rows else nodes.rows, errors)

    def _distinct(self, step: Interpreted, pod: Pod, nodes: NodeView, errors: Errors) -> Value:
        columns = [codes_of(read, nodes, self._cluster).compact() for read in step.of_node]
        codes, tuples = combined(columns)
        pods = self._read_pod(step, pod)
        results = [self._call(step, (*values, *pods), pod) for values in tuples]
        return gathered(codes, results, 0, errors, step.type)

    def _read_pod(self, step: Interpreted, pod: Pod) -> tuple[Any, ...]:
        return tuple([of_pod(pod, read, self._cluster) for read in step.of_pod])

    def _call(self, step: Interpreted, raws: tuple[Any, ...], pod: Pod) -> Any:
        # `raws` begins with the values of `step.of_node`.
        if step in self._of_label_maps:
            # Most pods have different labels, so only one pod's results are cached.
            kept, key = self._kept_for(pod), (step, raws[: len(step.of_node)])
        else:
            kept, key = self._kept, (step, raws)
        result = kept.get(key, _NOT_KEPT)
        if result is _NOT_KEPT:
            result = evaluated(step, raws)
            if kept is self._kept:
                self._evaluations.spend(step.cost if step is self._plan.whole else 0)
                self._make_space(raws)
            kept[key] = result
        return result

    def _kept_for(self, pod: Pod) -> dict[tuple[Interpreted, tuple[Any, ...]], Any]:
        labels = self._cluster.namespace_labels(pod.namespace)
        if self._last_pod[0] is not pod or self._last_pod[1] != labels:
            self._last_pod, self._of_last_pod = (pod, labels), {}
        return self._of_last_pod

    def _make_space(self, raws: Iterable[Any]) -> None:
        self._kept_bytes += _bytes_of(raws)
        if self._kept_bytes > _MOST_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = _bytes_of(raws)


def _bytes_of(raws: Iterable[Any]) -> int:
    # An upper bound.
    total = 200
    for raw in raws:
        if isinstance(raw, tuple | frozenset):
            total += 300 * len(raw)  # taints and conditions; their texts are short
        else:
            total += 60 + 4 * len(raw) if isinstance(raw, str) else 32
    return total


def _finite(values: npt.NDArray[Any], numbers: npt.NDArray[np.int16], errors: Errors) -> Results:
    if values.dtype == np.float64:
        finite = np.isfinite(values)
        if not finite.all():
            wrong = (numbers == 0) & ~finite
            if wrong.any():
                numbers[wrong] = errors.number("the number is not finite")
            values = np.where(finite, values, 0.0)
    return Results(values, numbers, errors.texts)


def _interpreted_in(step: Step) -> Iterator[Interpreted]:
    match step:
        case Interpreted():
            yield step
        case Operation(_, operands):
            for operand in operands:
                yield from _interpreted_in(operand)
        case NodeLabelValue(key) | HasLabel(key) | Amount(_, key):
            yield from _interpreted_in(key)
        case PodCount(_, pods, _, namespaces):
            for selected in filter(None, (pods, namespaces)):
                for _, value in selected.read:
                    yield from _interpreted_in(value)
        case _:
            return


def _differs(step: Step) -> bool:
    return not (
        isinstance(step, ConstantValue) or (isinstance(step, Interpreted) and not step.of_node)
    )


def _no_such(key: str) -> str:
    return f"no such key: {key}"


def _amounts(variable: str, resource: str, nodes: NodeView) -> IntArray:
    if variable == "node.allocatable":
        return nodes.pod_slots if resource == "pods" else nodes.allocatable(resource)
    return nodes.pod_count if resource == "pods" else nodes.requested(resource)
