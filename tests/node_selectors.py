"""What chooses nodes for a pod, a PersistentVolume, a claim and a slice of devices."""

from typing import Any

Raw = dict[str, Any]


def expression(key: str, operator: str, *values: str) -> Raw:
    """Return what one label or field of a node must meet."""
    return {"key": key, "operator": operator, "values": [*values]}


def term(*expressions: Raw) -> Raw:
    """Return the term for the nodes whose labels meet all these expressions."""
    return {"matchExpressions": [*expressions]}


def named(*names: str) -> Raw:
    """Return the term for the node that has every one of these names."""
    return {"matchFields": [expression("metadata.name", "In", name) for name in names]}


def node_selector(*terms: Raw) -> Raw:
    """Return what chooses the nodes that one of the terms is for."""
    return {"nodeSelectorTerms": [*terms]}


def required_nodes(*terms: Raw) -> Raw:
    """Return the affinity of a pod that runs only on nodes that one of the terms is for."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(*terms)}
    return {"nodeAffinity": required}


def met_by_every_node(count: int) -> Raw:
    """Return the affinity of a pod with so many expressions, all of which every node meets."""
    return required_nodes(term(*(expression(f"key-{i}", "NotIn", "x") for i in range(count))))
