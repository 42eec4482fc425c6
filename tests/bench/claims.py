"""The command `python -m bench.claims [NODES [DEVICES [PODS [KIND...]]]]`: what claims cost.

By default 5,000 nodes with a slice of eight devices each, and 200 pods a row. No API server is
involved: each pod has a claim of its own, is decided about, assumed and reserved, one after the
other. For each kind of claim, and with none, half or all of the devices in use before, prints
milliseconds of CPU: of the first decision about any claim; of the first one whose selector reads
another attribute; of those that follow, the median and the highest tenth; and of Reserve.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

import click

from deciding import Deciding
from mooring.app import calm_the_collector
from mooring.engine.assumed import assume_and_reserve
from mooring.engine.cycle import decide
from mooring.engine.outcome import Outcome, ScheduleResult
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.model.resource_claims import parse_resource_claim
from mooring.model.resource_slices import parse_resource_slice
from mooring.testing.builders import node, pod
from mooring.testing.device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)

__all__ = ["SHAPES", "Costs", "Shape", "measure"]

Raw = dict[str, Any]
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_RESOURCE: Final = "example.com/gpu"
_GIB: Final = 2**30
_ALL: Final = 100
_WARM: Final = 3
"""Decisions about pods without claims that come before."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of claims, and the devices of a node that suit it.

    `claim` makes the requests and constraints, with further selectors. `in_use` makes what claims
    that came before have of a device; None: it is in use as a whole.
    """

    name: str
    claim: Callable[[list[Raw]], Raw] | None
    listed: Callable[[int], list[Raw]]
    shared: Callable[[int], list[Raw]] | None = None
    in_use: dict[str, str] | None = None
    by_node: bool = False
    may_be_used: Callable[[int], list[int]] = lambda number: [*range(number)]


def _plain(number: int) -> list[Raw]:
    return [_gpu(each, number) for each in range(number)]


def _gpu(each: int, number: int, **fields: Any) -> Raw:
    """Return a device with twelve attributes and a UUID that the publisher fills in."""
    attributes = {
        "driver": "gpu",
        _ROOT: f"pci0000:{2 * each // number:02}",
        "resource.kubernetes.io/pciBusID": f"0000:{each:02}:00.0",
        "family": "Big",
        "health": "Healthy",
        "model": "G60",
        "pciAddress": f"0000:{each:02}:00.0",
        "pciId": "0xe211",
        "numa": 2 * each // number,
        "sriov": True,
        "type": "gpu",
    }
    capacity = {"memory": {"value": "80Gi"}, "millicores": {"value": "1k"}}
    return device(f"gpu-{each}", attributes=attributes, **{"capacity": capacity, **fields})


def _partitions(number: int) -> list[Raw]:
    """Return a card, its halves and its quarters, and so on until there are enough."""
    devices, sizes = list[Raw](), (4, 2, 2, 1, 1, 1, 1)
    for each in range(number):
        card, size = each // len(sizes), sizes[each % len(sizes)]
        consumed = {"counterSet": f"card-{card}", "counters": {"slices": {"value": str(size)}}}
        attributes = {"size": size, "model": "G60", "numa": card % 2}
        devices.append(device(f"gpu-{each}", attributes=attributes, consumesCounters=[consumed]))
    return devices


def _small_partitions(number: int) -> list[int]:
    """Return those partitions that fit together."""
    return [each for each in range(number) if each % 7 > 2 or each == number - 1]


def _cards(number: int) -> list[Raw]:
    return [
        {"name": f"card-{card}", "counters": {"slices": {"value": "4"}}}
        for card in range((number + 6) // 7)
    ]


def _shareable(number: int) -> list[Raw]:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    return [
        _gpu(each, number, capacity=capacity, allowMultipleAllocations=True)
        for each in range(number)
    ]


def _selecting(*expressions: str) -> list[Raw]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def _one(more: list[Raw]) -> Raw:
    return device_claim("c", request("r", selectors=more))


def _selected(more: list[Raw]) -> Raw:
    cheap = _selecting(
        f'device.attributes["{DRIVER}"].model == "G60"',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    )
    return device_claim("c", request("r", selectors=cheap + more))


def _matching(more: list[Raw]) -> Raw:
    return device_claim(
        "c", request("r", 2, selectors=more), constraints=[{"matchAttribute": _ROOT}]
    )


def _partition(more: list[Raw]) -> Raw:
    wanted = _selecting(f'device.attributes["{DRIVER}"].size == 2')
    return device_claim("c", request("r", selectors=wanted + more))


def _alternatives(more: list[Raw]) -> Raw:
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    large = _selecting(f'device.attributes["{DRIVER}"].model == "G99"')
    subs = [
        {"name": "large", **exact, "count": 1, "selectors": large + more},
        {"name": "two", **exact, "count": 2, "selectors": more},
    ]
    return device_claim("c", {"name": "r", "firstAvailable": subs})


def _every(more: list[Raw]) -> Raw:
    wanted = request("r", allocationMode="All", selectors=more)
    del wanted["exactly"]["count"]
    return device_claim("c", wanted)


def _admin(more: list[Raw]) -> Raw:
    raw = _every(more)
    raw["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    return raw


def _capacity(more: list[Raw]) -> Raw:
    amounts = {"requests": {"memory": "10Gi"}}
    return device_claim("c", request("r", selectors=more, capacity=amounts))


def _impossible(more: list[Raw]) -> Raw:
    """Return a claim that needs two of each root, and no two of one root."""
    names = [f"r{number}" for number in range(4)]
    requests = [
        request(name, selectors=more + _selecting(f'device.attributes["{DRIVER}"].numa == {i % 2}'))
        for i, name in enumerate(names)
    ]
    return device_claim("c", *requests, constraints=[{"matchAttribute": _ROOT}])


SHAPES: Final = (
    Shape("one", _one, _plain),
    Shape("selected", _selected, _plain),
    Shape("match", _matching, _plain),
    Shape("partition", _partition, _partitions, _cards, may_be_used=_small_partitions),
    Shape("extended", None, _plain),
    Shape("alternatives", _alternatives, _plain),
    Shape("all", _every, _plain, by_node=True),
    Shape("admin", _admin, _plain),
    Shape("capacity", _capacity, _shareable, in_use={"memory": "80Gi"}),
    Shape("impossible", _impossible, _plain),
)


@dataclass(slots=True)
class Costs:
    """Milliseconds of CPU: of single decisions, and of many."""

    first: float = 0.0
    other: float = 0.0
    decisions: list[float] = field(default_factory=list)
    reserves: list[float] = field(default_factory=list)
    intakes: list[float] = field(default_factory=list)
    placed: int = 0

    def __str__(self) -> str:
        """Return all figures in a line."""
        *_, highest = statistics.quantiles(self.decisions, n=10)
        reserve = f"{statistics.median(self.reserves):5.2f}" if self.reserves else "    -"
        return (
            f"first {self.first:6.1f}, other {self.other:6.1f}, then "
            f"{statistics.median(self.decisions):5.2f} ({highest:5.2f}), reserve {reserve}, "
            f"intake {statistics.median(self.intakes or [0.0]):5.2f} ms; {self.placed} placed"
        )


class _Cluster:
    """Nodes with devices, of which a share is in use."""

    def __init__(self, shape: Shape, nodes: int, devices: int, percent: int) -> None:
        self.shape = shape
        self._names = [f"n{number}" for number in range(nodes)]
        self._listed = shape.listed(devices)
        extended = {"extendedResourceName": _RESOURCE} if shape.claim is None else {}
        blank = " " * next(_blanks)  # so that no other cluster has evaluated the expression
        of_class = device_class("gpu", f'device.driver == "{DRIVER}"{blank}', **extended)
        objects = [*(node(name, cpu="64", memory="256Gi") for name in self._names), of_class]
        self.deciding = Deciding(*objects)
        state = self.deciding.state
        for number, name in enumerate(self._names):
            for raw in self._slices(name, number):
                state.put(Kind.RESOURCE_SLICE, raw["metadata"]["name"], parse_resource_slice(raw))
        for raw in self._claims_in_use(percent):
            claim = parse_resource_claim(raw)
            state.put(Kind.RESOURCE_CLAIM, claim.key, claim)
        self._pods = 0

    def _slices(self, name: str, number: int) -> Iterator[Raw]:
        """Yield the slices of a node; each device has a UUID."""
        listed = [
            raw | {"attributes": {**raw["attributes"], "uuid": {"string": f"gpu-{number}-{i}"}}}
            for i, raw in enumerate(self._listed)
        ]
        both = 1 + (self.shape.shared is not None)
        yield resource_slice(f"{name}-devices", listed, node=name, slices=both)
        if self.shape.shared is not None:
            counters = self.shape.shared(len(listed))
            yield resource_slice(f"{name}-cards", node=name, slices=both, sharedCounters=counters)

    def _claims_in_use(self, percent: int) -> Iterator[Raw]:
        """Yield the claims that have devices; which ones is drawn for each node."""
        random = Random(7)  # noqa: S311 - no secret
        names = [f"gpu-{each}" for each in self.shape.may_be_used(len(self._listed))]
        for index, node_name in enumerate(self._names):
            share = percent
            if self.shape.by_node and percent < _ALL:
                share = _ALL * (index % 2) * (percent > 0)
            for each in random.sample(names, len(names) * share // _ALL):
                result = device_result(each, pool=node_name)
                if self.shape.in_use is not None:
                    share_id = f"s-{node_name}-{each}"
                    result |= {"consumedCapacity": self.shape.in_use, "shareID": share_id}
                yield device_claim(
                    f"{node_name}-{each}",
                    namespace="in-use",
                    allocation=allocated(result, node=node_name),
                )

    def pod(self, more: list[Raw], costs: Costs) -> Any:
        """Return a new pod, with a claim of its own, which the cluster knows."""
        self._pods += 1
        name, spec, claim = f"p{self._pods}", {}, self.shape.claim
        if claim is None:
            return parse_pod(pod(name, requests={_RESOURCE: 1}))
        raw = claim(more)
        raw["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
        spec = {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}
        began = time.process_time()
        parsed = parse_resource_claim(raw)
        self.deciding.state.put(Kind.RESOURCE_CLAIM, parsed.key, parsed)
        costs.intakes.append(1e3 * (time.process_time() - began))
        return parse_pod(pod(name, spec=spec))

    def place(self, more: list[Raw], costs: Costs) -> float:
        """Decide about a new pod and reserve what it gets; return the decision's milliseconds."""
        deciding, new = self.deciding, self.pod(more, costs)
        began = time.process_time()
        outcome: Outcome = decide(
            new, deciding.pipeline, deciding.cluster, deciding.shared, seed=self._pods
        )
        decided = time.process_time()
        if isinstance(outcome, ScheduleResult):
            assume_and_reserve(new, outcome.row, deciding.pipeline, deciding.state).pop_all()
            costs.reserves.append(1e3 * (time.process_time() - decided))
            costs.placed += 1
        return 1e3 * (decided - began)


_blanks: Final = count()


def measure(shape: Shape, nodes: int, devices: int, pods: int, percent: int) -> Costs:
    """Return what the claims cost in a cluster of which a share of the devices is in use."""
    gc.unfreeze()
    cluster, costs = _Cluster(shape, nodes, devices, percent), Costs()
    calm_the_collector()
    for number in range(_WARM):
        cluster.deciding.outcome(pod(f"plain-{number}"))
    costs.first = cluster.place([], costs)
    reads = _selecting(f'device.attributes["{DRIVER}"].model != "G0"')
    costs.other = cluster.place(reads, costs)
    costs.intakes.clear()
    costs.reserves.clear()
    costs.decisions = [cluster.place([], costs) for _ in range(pods)]
    return costs


def main(nodes: int = 5000, devices: int = 8, pods: int = 200, *kinds: str) -> None:
    """Print a line per kind of claim and share of devices in use."""
    for shape in SHAPES:
        for percent in (0, 50, _ALL) if not kinds or shape.name in kinds else ():
            costs = measure(shape, nodes, devices, pods, percent)
            click.echo(f"{nodes} x {devices}, {shape.name:12} {percent:3} %: {costs}")


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:4]]
    main(*sizes, *sys.argv[4:])  # type: ignore[arg-type] # as many numbers as it takes
