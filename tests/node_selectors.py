"""Node selectors and node affinity for pods, PersistentVolumes, claims and slices of devices."""

from typing import Any

Raw = dict[str, Any]


def expression(key: str, operator: str, *values: str) -> Raw:
    """Return a requirement for one label or field of a node."""
    return {"key": key, "operator": operator, "values": [*values]}


def term(*expressions: Raw) -> Raw:
    """Return a node selector term with these expressions; all of them must match."""
    return {"matchExpressions": [*expressions]}


def named(*names: str) -> Raw:
    """Return a node selector term; the node's name must equal each of these names."""
    return {"matchFields": [expression("metadata.name", "In", name) for name in names]}


def node_selector(*terms: Raw) -> Raw:
    """Return a node selector; at least one of the terms must match."""
    return {"nodeSelectorTerms": [*terms]}


def required_nodes(*terms: Raw) -> Raw:
    """Return the affinity of a pod that runs only on nodes that match one of the terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(*terms)}
    return {"nodeAffinity": required}


def met_by_every_node(count: int) -> Raw:
    """Return the affinity of a pod with `count` expressions that every node satisfies."""
    return required_nodes(term(*(expression(f"key-{i}", "NotIn", "x") for i in range(count))))
