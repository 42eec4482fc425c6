"""Slices, classes, claims and nodes as an API server stores them, defaults filled in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from node_selectors import expression, node_selector, term

Object = dict[str, Any]
Case = dict[str, Any]
_Value = str | int | bool

ALL_NODES: Final[Object] = {"allNodes": True}
PER_DEVICE: Final[Object] = {"perDeviceNodeSelection": True}


def case(
    nodes: Sequence[Object],
    slices: Sequence[Object],
    classes: Sequence[Object],
    claims: Sequence[Object],
    allocated: Sequence[Object] = (),
) -> Case:
    """Return a case: for each node, which devices do the claims get?"""
    return {
        "nodes": list(nodes),
        "slices": list(slices),
        "classes": list(classes),
        "allocated": list(allocated),
        "claims": list(claims),
    }


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}}


def attributes(**values: _Value) -> Object:
    """Return attributes by name; text such as v1.2.3 is a version."""
    return {name.replace("__", "/"): _typed(value) for name, value in values.items()}


def _typed(value: _Value) -> Object:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version": value[1:]} if value.startswith("v") else {"string": value}


def device(name: str, attributes: Object | None = None, **fields: Any) -> Object:
    """Return a device; fields are those of the API, such as capacity or taints."""
    return {"name": name, **({"attributes": attributes} if attributes else {}), **fields}


def on_node(name: str) -> Object:
    """Return the field of a slice or device that is on one node."""
    return {"nodeName": name}


def selected_by(key: str, *values: str) -> Object:
    """Return the field of a slice or device for nodes whose label has one of these values."""
    return {"nodeSelector": node_selector(term(expression(key, "In", *values)))}


def resource_slice(
    name: str,
    where: Mapping[str, Any],
    devices: Iterable[Object] = (),
    *,
    driver: str = "gpu.example.com",
    pool: str = "pool",
    generation: int = 1,
    count: int = 1,
    counters: Sequence[Object] = (),
) -> Object:
    """Return a slice of a pool that says to have `count` slices."""
    spec: Object = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **where,
    }
    if counters:
        spec["sharedCounters"] = list(counters)
    if listed := list(devices):
        spec["devices"] = listed
    return {"metadata": {"name": name}, "spec": spec}


def renumbered(slices: Iterable[Object]) -> list[Object]:
    """Return the slices, each of which says how many of its driver, pool and generation there are.

    Nothing is copied: the slices are the given ones.
    """
    pools: dict[tuple[str, str, int], list[Object]] = {}
    listed = list(slices)
    for each in listed:
        pool = each["spec"]["pool"]
        pools.setdefault((each["spec"]["driver"], pool["name"], pool["generation"]), []).append(
            pool
        )
    for members in pools.values():
        for member in members:
            member["resourceSliceCount"] = len(members)
    return listed


def counter_set(name: str, **values: str) -> Object:
    """Return a shared counter set of a slice."""
    return {"name": name, "counters": {key: {"value": value} for key, value in values.items()}}


def consumption(name: str, **values: str) -> Object:
    """Return what a device consumes of a counter set."""
    return {
        "counterSet": name,
        "counters": {key: {"value": value} for key, value in values.items()},
    }


def device_class(name: str, *expressions: str, config: Sequence[Object] = ()) -> Object:
    """Return a class whose devices match all expressions."""
    spec: Object = {}
    if expressions:
        spec["selectors"] = _selectors(expressions)
    if config:
        spec["config"] = list(config)
    return {"metadata": {"name": name}, "spec": spec}


def _selectors(expressions: Iterable[str]) -> list[Object]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def exactly(
    class_name: str,
    count: int | None = 1,
    *expressions: str,
    **fields: Any,
) -> Object:
    """Return what is requested: so many devices of a class; all of them, if the count is None."""
    wanted: Object = {"deviceClassName": class_name}
    if expressions:
        wanted["selectors"] = _selectors(expressions)
    if count is None:
        return {**wanted, "allocationMode": "All", **fields}
    return {**wanted, "allocationMode": "ExactCount", "count": count, **fields}


def request(name: str, wanted: Object) -> Object:
    return {"name": name, "exactly": wanted}


def first_available(name: str, *wanted: Object) -> Object:
    """Return a request for the first of these that is available; they are named a, b and so on."""
    names = [chr(ord("a") + index) for index in range(len(wanted))]
    return {
        "name": name,
        "firstAvailable": [{"name": each, **sub} for each, sub in zip(names, wanted, strict=True)],
    }


def claim(
    name: str,
    requests: Sequence[Object],
    constraints: Sequence[Object] = (),
    config: Sequence[Object] = (),
) -> Object:
    """Return a claim that is not allocated."""
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    if config:
        devices["config"] = list(config)
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"devices": devices}}


def result(driver: str, pool: str, device_name: str, **fields: Any) -> Object:
    return {"request": "r", "driver": driver, "pool": pool, "device": device_name, **fields}


def allocated_claim(name: str, results: Sequence[Object]) -> Object:
    """Return a claim that has these devices; what it requested does not matter any more."""
    return {
        **claim(name, [request("r", exactly("any"))]),
        "status": {"allocation": {"devices": {"results": list(results)}}},
    }
