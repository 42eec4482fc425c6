"""Measures how long claims, slices and classes of devices hold the event loop.

The cases are like those of `bench.holds`. There is no case for ResourceClaimTemplates, because
Mooring does not read them.
"""

from collections.abc import Iterator
from typing import Any, Final

from bench.full_replica import FullReplica
from bench.holds import Case, Work
from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    device_taint_rule,
    request,
    resource_slice,
)
from mooring.kube import api_resources as resources
from mooring.testing.builders import pod

_MOST_REQUESTS: Final = 32
_MOST_SUBREQUESTS: Final = 8
_MOST_DEVICES: Final = 128
_MOST_ATTRIBUTES: Final = 32
_MOST_CONSUMERS: Final = 256
"""The API server's limits for a claim and for a slice."""


def first_claim(r: FullReplica) -> Iterator[Work]:
    """List eight devices per node, and decide about a first claim."""
    yield from _deciding_about(r, device_claim("first", request("r", 9)))


def impossible_claim(r: FullReplica) -> Iterator[Work]:
    """Decide about a claim with constraints that no node can satisfy."""
    names = [f"r{number}" for number in range(4)]
    halves = [_selecting(f"{_DEVICE}.numa >= {number % 2}") for number in range(4)]
    requests = [request(name, 2, selectors=half) for name, half in zip(names, halves, strict=True)]
    constraints = [
        {"requests": names, "matchAttribute": f"{DRIVER}/numa"},
        {"requests": names, "distinctAttribute": f"{DRIVER}/uuid"},
    ]
    yield from _deciding_about(r, device_claim("vain", *requests, constraints=constraints))


def uuid_selector(r: FullReplica) -> Iterator[Work]:
    """Decide about a claim with a selector that reads a different value of each device."""
    wanted = request("r", selectors=_selecting(f'{_DEVICE}.uuid == "none"'))
    yield from _deciding_about(r, device_claim("uuid", wanted))


def long_selector(r: FullReplica) -> Iterator[Work]:
    """Decide about a claim with a selector of the greatest allowed cost."""
    wanted = request("r", selectors=_selecting(f"{_DEVICE}.numa > 9 || !{_EXPENSIVE}"))
    yield from _deciding_about(r, device_claim("long", wanted))


def claim_with_all_alternatives(r: FullReplica) -> Iterator[Work]:
    """Decide about a claim of 32 requests with eight alternatives each, all of them different."""
    requests = [
        {
            "name": f"r{number}",
            "firstAvailable": [
                {
                    "name": f"s{number}-{other}",
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": 1,
                    "selectors": _selecting(f"{_DEVICE}.numa == {other // 7 + number % 2}"),
                }
                for other in range(_MOST_SUBREQUESTS)
            ],
        }
        for number in range(_MOST_REQUESTS)
    ]
    yield from _deciding_about(r, device_claim("all", *requests))


def expensive_class(r: FullReplica) -> Iterator[Work]:
    """Decide about a claim of a class with 32 selectors of the greatest allowed cost."""
    selectors = [f"{_DEVICE}.numa < {99 + i} || !{_EXPENSIVE}" for i in range(32)]
    selectors[-1] = f"{_DEVICE}.numa > 9 || !{_EXPENSIVE}"
    yield from _deciding_about(r, device_claim("class"), device_class("gpu", *selectors))


def changing_slices(r: FullReplica) -> Iterator[Work]:
    """Change slices of 128 devices with 32 attributes 40 times while a claim waits for them."""
    yield r.apply(resources.DEVICE_CLASS, "ADDED", device_class())
    wanted = request("r", selectors=_selecting(f"{_DEVICE}.a0 == 77"))
    yield r.apply(resources.RESOURCE_CLAIM, "ADDED", device_claim("large", wanted))
    r.wait([_pod_with_claim("large")])
    for version in range(40):
        where = f"n{version % 4}"
        raw = resource_slice(f"s-{where}", _full_of(version), node=where, generation=version + 1)
        yield r.apply(resources.RESOURCE_SLICE, "MODIFIED", raw)
        yield r.schedule()
    r.forget_all()
    yield r.relist(resources.RESOURCE_SLICE, ())
    yield r.relist(resources.RESOURCE_CLAIM, ())
    yield r.relist(resources.DEVICE_CLASS, ())


def claims_of_one_node(r: FullReplica) -> Iterator[Work]:
    """Allocate two claims per node of the cluster on one node, each reserved for 256 pods."""
    consumers = [f"p-{i}" for i in range(_MOST_CONSUMERS)]
    raws = [
        device_claim(
            f"c-{i}", allocation=allocated(f"d{i}", node="n1"), reserved_for=consumers, version=1
        )
        for i in range(2 * r.nodes)
    ]
    yield r.relist(resources.RESOURCE_CLAIM, raws)
    yield r.apply(resources.NODE, "DELETED", r.node(1))
    yield r.apply(resources.NODE, "ADDED", r.node(1))
    yield r.apply(resources.RESOURCE_CLAIM, "MODIFIED", raws[0])
    yield r.relist(resources.RESOURCE_CLAIM, ())


def explained_claim(r: FullReplica) -> Iterator[Work]:
    """Explain a pod that waits for devices of all nodes, with suggestions."""
    yield from _deciding_about(r, device_claim("why", request("r", 9)), explained=True)


def tainted_driver(r: FullReplica) -> Iterator[Work]:
    """Taint all devices of a driver by a rule, eight devices on each node, and delete the rule."""
    slices = [
        resource_slice(f"s{n}", [device(f"d{i}") for i in range(8)], node=f"n{n}")
        for n in range(r.nodes)
    ]
    rule = device_taint_rule("sick", "sick:NoSchedule", driver=DRIVER)
    yield r.relist(resources.RESOURCE_SLICE, slices)
    yield r.apply(resources.DEVICE_TAINT_RULE, "ADDED", rule)
    yield r.apply(resources.DEVICE_TAINT_RULE, "DELETED", rule)
    yield r.relist(resources.RESOURCE_SLICE, ())


def _full_of(version: int) -> list[dict[str, Any]]:
    """Return as many devices as a slice may have, each with as many attributes as allowed."""
    attributes = {f"a{i}": version + i for i in range(_MOST_ATTRIBUTES)}
    return [device(f"d{i}", attributes=attributes) for i in range(_MOST_DEVICES)]


def _selecting(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


def _pod_with_claim(name: str) -> dict[str, Any]:
    claims = [{"name": "d", "resourceClaimName": name}]
    return pod(name, spec={"schedulerName": "mooring", "resourceClaims": claims})


def _deciding_about(
    r: FullReplica,
    claim: dict[str, Any],
    of_class: dict[str, Any] | None = None,
    *,
    explained: bool = False,
) -> Iterator[Work]:
    """Yield the work in a cluster with devices, about a pod with a claim that fits nowhere."""
    numbers, of_class = range(8 * r.nodes), of_class or device_class()
    devices = [
        device(f"d{i % 8}", attributes={"uuid": f"gpu-{i}", "numa": i % 8 // 4}) for i in numbers
    ]
    yield r.apply(resources.DEVICE_CLASS, "ADDED", of_class)
    yield r.relist(
        resources.RESOURCE_SLICE,
        (resource_slice(f"s{n}", devices[8 * n : 8 * n + 8], node=f"n{n}") for n in range(r.nodes)),
    )
    yield r.apply(resources.RESOURCE_CLAIM, "ADDED", claim)
    name = claim["metadata"]["name"]
    r.wait([_pod_with_claim(name)])
    yield r.schedule(lambda: r.scheduler.decisions.of(f"default/{name}"))
    if explained:
        yield r.reports.of(f"default/{name}")
    r.forget_all()
    yield r.relist(resources.RESOURCE_SLICE, ())
    yield r.apply(resources.RESOURCE_CLAIM, "DELETED", claim)
    yield r.apply(resources.DEVICE_CLASS, "DELETED", of_class)


_DEVICE: Final = f'device.attributes["{DRIVER}"]'
_EXPENSIVE: Final = 'lists.range(99999).all(i, semver("1.2.3").compareTo(semver("1.2.4")) > -2)'

DEVICE_CASES: Final[tuple[Case, ...]] = (
    first_claim,
    impossible_claim,
    uuid_selector,
    long_selector,
    claim_with_all_alternatives,
    expensive_class,
    changing_slices,
    claims_of_one_node,
    explained_claim,
    tainted_driver,
)
"""The cases; the docstring of each one describes its work."""
