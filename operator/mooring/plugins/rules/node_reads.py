"""Reads the variables of expressions from one pod, one node, or many nodes (`Codes`).

The values for a step are in the order of `Interpreted.reads`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from mooring.cel.values import Failure, MapValue
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.taints import Taint
from mooring.plugins.rules.value_columns import Codes
from mooring.policy.rules.rule_plan import Interpreted, Read
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

NO_NODE: Final = -2
"""The code of a text that no node has as its value."""
STABLE: Final = frozenset(("node.name", "node.labels", "node.taints", "node.zone", "node.region"))
"""Variables that change only together with `NodeView.topology_version`."""
LABEL_MAPS: Final = ("pod.labels", "pod.namespaceLabels")
"""Variables that are maps of labels; they may differ from pod to pod."""
_LONGEST_TEXT: Final = 512
"""The most characters of a text that an expression may read; a longer text makes the evaluation
fail. Names and labels are shorter."""
_MOST_WORK: Final = 100_000
"""The most units of work of one evaluation, as `mooring.cel` counts them; an evaluation that needs
more units fails."""
_SETS: Final = frozenset(("node.taints", "node.conditions"))
_MOST_ITEMS: Final = 100
"""The most taints, and the most conditions, of a node that an expression may read; more make the
evaluation fail."""

OF_NODE: Final[Mapping[str, Callable[[Node, NodeView, int, str], Any]]] = {
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
"""For each variable, a function that returns it: `f(node, view, position of the node, key)`."""

_OF_POD: Final[Mapping[str, Callable[[Pod, str | None], Any]]] = {
    "pod.namespace": lambda pod, _: pod.namespace,
    "pod.priority": lambda pod, _: pod.spec.priority,
    "pod.qosClass": lambda pod, _: pod.spec.qos,
    "pod.ownerKind": lambda pod, _: pod.owner.kind if pod.owner is not None else "",
    "pod.requests": lambda pod, key: pod.spec.demand.resources.get(key or "", 0),
    "pod.labels": lambda pod, key: part(pod.labels, key),
}


def of_pod(pod: Pod, read: Read, cluster: ClusterView) -> Any:
    """Return the pod's value of the variable `read`; a map is returned as its sorted items."""
    if read.variable == "pod.namespaceLabels":
        return part(cluster.namespace_labels(pod.namespace), read.key)
    return _OF_POD[read.variable](pod, read.key)


def part(items: Mapping[str, str], key: str | None) -> Any:
    """Return the value of `key`, or None; if `key` is None, return all items, sorted."""
    return items.get(key) if key is not None else tuple(sorted(items.items()))


def reads_label_map(reads: Iterable[Read]) -> bool:
    """Return whether `reads` has a whole map of labels of the pod or of its namespace."""
    return any(read.key is None and read.variable in LABEL_MAPS for read in reads)


def codes_of(read: Read, nodes: NodeView, cluster: ClusterView) -> Codes:
    """Return the nodes' values of `read` as a column of codes; a missing label is None."""
    match read.variable:
        case "node.name":
            codes = Codes(nodes.rows, cluster.node_names, lambda name: _row(name, cluster))
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


def _row(name: str, cluster: ClusterView) -> int:
    row = cluster.row(name)
    return NO_NODE if row is None else row


def distinct(reads: Iterable[Read], cluster: ClusterView) -> int:
    """Return how many distinct combinations of values for `reads` the nodes can have at most."""
    nodes, values = cluster.nodes, 1
    for read in reads:
        values *= _number_of_values(read, nodes)
    return min(values, len(nodes))


def _number_of_values(read: Read, nodes: NodeView) -> int:
    match read.variable:
        case "node.name":
            return len(nodes)
        case "node.zone" | "node.region":
            return len(nodes.zones)
        case "node.taints":
            return len(nodes.taint_sets)
        case "node.conditions":
            return len(nodes.condition_sets)
        case "node.unschedulable":
            return 2
        case _:
            return len(nodes.label(read.key or "").index) + 1


def combined(columns: Sequence[Codes]) -> tuple[IntArray, list[tuple[Any, ...]]]:
    """Return a code for each node, and the distinct combinations of the columns' values by code."""
    first, *rest = columns
    codes: Any = first.codes
    found: list[tuple[Any, ...]] = [(value,) for value in first.table]
    for column in rest:
        size = len(column.table)
        pairs = codes % len(found) * size + column.codes % size
        used, codes = np.unique(pairs, return_inverse=True)
        found = [(*found[pair // size], column.table[pair % size]) for pair in used.tolist()]
    return codes, found


def evaluated(step: Interpreted, raws: Sequence[Any]) -> Any:
    """Return the step's result for the values of `step.reads`; return a Failure if it fails."""
    variables = dict[str, Any]()
    for read, raw in zip(step.reads, raws, strict=True):
        variable, key = read.variable, read.key
        if (why := _too_long(variable, raw)) is not None:
            return Failure(f"{variable} has {why} are read")
        if key is None:
            variables[variable] = _in_cel(variable, raw)
            continue
        keyed = variables.get(variable)
        if keyed is None:
            keyed = variables[variable] = MapValue()
        if raw is not None:
            keyed.put(key, raw)
    return step.program.run([*variables.values()], _MOST_WORK)


def _too_long(variable: str, raw: Any) -> str | None:
    if type(raw) is str:
        longest = len(raw)
    elif variable not in _SETS:
        return None
    elif len(raw) > _MOST_ITEMS:
        return f"{len(raw)} items, at most {_MOST_ITEMS}"
    else:
        texts = chain.from_iterable(raw) if variable == "node.conditions" else ()
        longest = max(map(len, texts), default=0)
    if longest > _LONGEST_TEXT:
        return f"a text of {longest} characters, at most {_LONGEST_TEXT}"
    return None


def _in_cel(variable: str, raw: Any) -> Any:
    if variable == "node.taints":
        return tuple([_taint(taint) for taint in raw])
    return MapValue.of_strings(dict(raw)) if isinstance(raw, tuple | frozenset) else raw


def _taint(taint: Taint) -> MapValue:
    return MapValue.of_strings({"key": taint.key, "value": taint.value, "effect": taint.effect})
