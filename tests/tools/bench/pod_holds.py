"""Measures how long pods at a limit hold the event loop, with their victims and volumes.

The cases are like those of `bench.holds`. Every pod is within the limits of `mooring.model.limits`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

import orjson

from bench.full_replica import FullReplica
from bench.holds import Case, Work
from mooring.framework.registry import Registry
from mooring.kube import api_resources as resources
from mooring.kube.api_resources import Resource
from mooring.model.limits import LIMITS, Counted
from mooring.page.trials import TryRequest, WhatIfRunner
from mooring.page.turns import TrialsBusy
from mooring.plugins import SHIPPED
from mooring.testing.builders import pod
from node_selectors import expression, required_nodes, term
from storage_builders import (
    csi_driver,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

Raw = dict[str, Any]
Objects = list[tuple[Resource, Raw]]

_FEW: Final = 300
"""The number of nodes on which pods preempt."""
_NOMINATED: Final = 500
_REQUIREMENTS: Final = 1990
_PODS_OF_NODE: Final = 110
_PRIORITY: Final = 9
_MINE: Final = {"schedulerName": "mooring"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST: Final = "kubernetes.io/hostname"


def _preempting_with_volumes(volumes: int, *, capacities: bool = False) -> Case:
    def case(r: FullReplica) -> Iterator[Work]:
        objects, claims = _unbound(volumes, _capacities(r) if capacities else [])
        yield from _preempting(r, objects, claims=claims)

    beside = ", with CSIStorageCapacity" if capacities else ""
    case.__doc__ = f"Preempt on 300 nodes: a pod of {volumes} volumes{beside}."
    return case


def preempting_with_requirements(r: FullReplica) -> Iterator[Work]:
    """Preempt on 300 nodes: a pod with 1,990 requirements of node affinity and a host port."""
    yield from _preempting(r, ports=[80], affinity=_on_first(r, _FEW, _REQUIREMENTS))


def preempting_with_terms(r: FullReplica) -> Iterator[Work]:
    """Preempt on 300 nodes: a pod with the most allowed node affinity terms, and a port."""
    names = _names(r, _FEW)
    terms = (
        term(expression(_HOST, "In", names[i % len(names)]))
        for i in range(LIMITS[Counted.NODE_TERMS])
    )
    yield from _preempting(r, ports=[80], affinity=required_nodes(*terms))


def preempting_with_pod_terms(r: FullReplica) -> Iterator[Work]:
    """Preempt on 300 nodes: a pod with the most allowed inter-pod terms."""
    apart = [
        {
            "topologyKey": _HOST,
            "labelSelector": {"matchLabels": {"app": f"web-{i}"}},
            "namespaceSelector": {},
        }
        for i in range(LIMITS[Counted.POD_TERMS])
    ]
    affinity = _on_first(r, _FEW) | {"podAntiAffinity": {_REQUIRED: apart}}
    yield from _preempting(r, affinity=affinity)


def preempting_with_ports(r: FullReplica) -> Iterator[Work]:
    """Preempt on 300 nodes: a pod with 1,000 host ports."""
    yield from _preempting(r, ports=_ports())


def preempting_with_resources(r: FullReplica) -> Iterator[Work]:
    """Preempt on 300 nodes: a pod with 190 extended resources and a host port."""
    requests = {f"example.com/r{i}": 1 for i in range(190)}
    for i in range(min(_FEW, r.nodes)):
        raw = r.node(i)
        raw["status"]["allocatable"] |= dict.fromkeys(requests, "9")
        r.mirror.apply(resources.NODE, "MODIFIED", raw)
    yield from _preempting(r, ports=[80], requests=requests)
    for i in range(min(_FEW, r.nodes)):
        r.mirror.apply(resources.NODE, "MODIFIED", r.node(i))


def beside_nominated(r: FullReplica) -> Iterator[Work]:
    """Decide beside 500 nominated pods about a pod with 1,990 requirements and a host port."""
    for i in range(min(_NOMINATED, r.nodes)):
        r.wait([pod(f"x-{i}", cpu="1m", nominated=f"n{i}", priority=_PRIORITY, spec=_MINE)])
    r.reject_all()
    affinity = _on_first(r, r.nodes, _REQUIREMENTS)
    r.wait([pod("beside", cpu="1m", memory="300Gi", ports=[80], affinity=affinity, spec=_MINE)])
    yield r.schedule()
    r.wait([pod("beside-2", cpu="1m", ports=[81], affinity=affinity, spec=_MINE)])
    yield r.schedule(lambda: r.scheduler.decisions.of("default/beside-2"))
    r.forget_all()


def tried(r: FullReplica) -> Iterator[Work]:
    """Try a pod of 102 KiB on the page, which preempts on 300 nodes."""
    affinity = _on_first(r, _FEW, _REQUIREMENTS)
    needs: Raw = {"cpu": "62", "priority": _PRIORITY, "ports": [80]}
    raw = pod("tried", affinity=affinity, spec=_MINE, **needs)
    text = orjson.dumps(raw).decode()
    runner = WhatIfRunner(r.scheduler, Registry(SHIPPED, {}), clock=r.clock)

    async def ask() -> None:
        with suppress(TrialsBusy):  # the answer to who asks for what takes longer than 30 s
            await runner.tried(TryRequest(text, profile="mooring"), _sees_all)

    yield ask()


def unbound_claims(r: FullReplica) -> Iterator[Work]:
    """Decide about a pod with 1,000 unbound claims."""
    yield from _deciding(r, *_unbound(LIMITS[Counted.VOLUMES]))


def claims_with_capacities(r: FullReplica) -> Iterator[Work]:
    """Decide about a pod with 1,000 unbound claims and a capacity for each node."""
    yield from _deciding(r, *_unbound(LIMITS[Counted.VOLUMES], _capacities(r)))


def claims_for_static_volumes(r: FullReplica) -> Iterator[Work]:
    """Decide about a pod with 1,000 unbound claims, beside 20,000 static volumes on the nodes."""
    yield from _deciding(r, *_unbound(LIMITS[Counted.VOLUMES], _static(r)))


def claims_for_volumes_everywhere(r: FullReplica) -> Iterator[Work]:
    """Decide about a pod with 1,000 unbound claims, beside 20,000 static volumes of any node."""
    volumes = [(resource, _anywhere(raw)) for resource, raw in _static(r)]
    yield from _deciding(r, *_unbound(LIMITS[Counted.VOLUMES], volumes))


def claims_with_selectors(r: FullReplica) -> Iterator[Work]:
    """Decide about a pod with 1,000 claims; each of them selects none of 20,000 static volumes."""
    objects, claims = _unbound(LIMITS[Counted.VOLUMES], _static(r))
    for number, (resource, raw) in enumerate(objects):
        if resource is resources.PERSISTENT_VOLUME_CLAIM:
            rack = {"key": "rack", "operator": "In", "values": [f"q{number}"]}
            raw["spec"]["selector"] = {"matchExpressions": [rack]}
    yield from _deciding(r, objects, claims)


def node_with_disks_goes(r: FullReplica) -> Iterator[Work]:
    """Delete a node with 110 pods of 1,000 inline disks each, and add it again."""
    yield from _going(r, lambda i: {"spec": {"volumes": _disks(i)}})


def node_with_ports_goes(r: FullReplica) -> Iterator[Work]:
    """Delete a node with 110 pods of 1,000 host ports each, and add it again."""
    yield from _going(r, lambda _: {"ports": _ports()})


def _preempting(
    r: FullReplica, objects: Iterable[tuple[Resource, Raw]] = (), **fields: Any
) -> Iterator[Work]:
    """Yield the work about a pod that fits on the first nodes once most of their pods have gone."""
    fields = {"affinity": _on_first(r, _FEW), **fields}
    yield from _deciding(r, objects, cpu="62", priority=_PRIORITY, **fields)


def _deciding(
    r: FullReplica,
    objects: Iterable[tuple[Resource, Raw]] = (),
    claims: Iterable[str] = (),
    **fields: Any,
) -> Iterator[Work]:
    """Yield the work of a decision about a pod beside these objects, and remove the objects."""
    objects = [*objects]
    for resource, raw in objects:
        r.mirror.apply(resource, "ADDED", raw)
    name = f"costly-{next(_numbers)}"
    r.wait([pod(name, claims=claims, spec=_MINE, **fields)])
    yield r.schedule(lambda: r.scheduler.decisions.of(f"default/{name}"))
    r.forget_all()
    for resource, raw in reversed(objects):
        r.mirror.apply(resource, "DELETED", raw)


def _going(r: FullReplica, fields: Any) -> Iterator[Work]:
    """Yield the work if a node with its pods goes and comes again."""
    raws = [
        r.placed(1, name=f"g-{i}", cpu="1m", memory="1Mi", **fields(i))
        for i in range(min(_PODS_OF_NODE, r.nodes))
    ]
    for raw in raws:
        raw["spec"]["nodeName"] = "n1"
        r.mirror.apply(resources.POD, "ADDED", raw)
    yield r.apply(resources.NODE, "DELETED", r.node(1))
    yield r.apply(resources.NODE, "ADDED", r.node(1))
    for raw in raws:
        r.mirror.apply(resources.POD, "DELETED", raw)


def _unbound(number: int, beside: Objects | None = None) -> tuple[Objects, list[str]]:
    """Return `number` claims with class and driver, also the objects `beside`, and the names."""
    names = [f"costly-{i}" for i in range(number)]
    first: Objects = [
        (resources.CSI_DRIVER, csi_driver(_DRIVER, storage_capacity=bool(beside))),
        (resources.STORAGE_CLASS, storage_class(_CLASS, provisioner=_DRIVER)),
        *(beside or ()),
    ]
    claims = [
        (resources.PERSISTENT_VOLUME_CLAIM, pvc(name, size=f"{1000 + i}Mi", storage_class=_CLASS))
        for i, name in enumerate(names)
    ]
    return first + claims, names


def _capacities(r: FullReplica) -> Objects:
    return [
        (
            resources.CSI_STORAGE_CAPACITY,
            storage_capacity(
                f"c-{i}", _CLASS, "9Ti", {_HOST: f"n{i}"}, maximumVolumeSize=f"{9000 + i}Gi"
            ),
        )
        for i in range(r.nodes)
    ]


def _static(r: FullReplica) -> Objects:
    """Return four volumes per node."""
    return [
        (
            resources.PERSISTENT_VOLUME,
            pv(
                f"v-{i}",
                size=f"{2000 + i}Mi",
                storage_class=_CLASS,
                nodes=[f"n{i % r.nodes}"],
                labels={"rack": f"r{i % 200}"},
            ),
        )
        for i in range(4 * r.nodes)
    ]


def _anywhere(raw: Raw) -> Raw:
    spec = {name: value for name, value in raw["spec"].items() if name != "nodeAffinity"}
    return {**raw, "spec": spec}


def _names(r: FullReplica, nodes: int) -> list[str]:
    return [f"n{i}" for i in range(min(nodes, r.nodes))]


def _on_first(r: FullReplica, nodes: int, requirements: int = 1) -> Raw:
    """Return an affinity to the first nodes, with this number of requirements."""
    first = expression(_HOST, "In", *_names(r, nodes))
    others = (expression(f"key-{i}", "NotIn", "x") for i in range(requirements - 1))
    return required_nodes(term(first, *others))


def _ports() -> range:
    return range(1000, 1000 + LIMITS[Counted.HOST_PORTS])


def _disks(number: int) -> list[Mapping[str, Any]]:
    return [
        {"name": f"d{i}", "gcePersistentDisk": {"pdName": f"disk-{number}-{i}"}}
        for i in range(LIMITS[Counted.VOLUMES])
    ]


async def _sees_all(namespaces: Iterable[str]) -> frozenset[str]:
    return frozenset(namespaces)


_numbers: Final = count()
_CLASS: Final = "local"
_DRIVER: Final = "disks.example.com"

POD_CASES: Final[tuple[Case, ...]] = (
    *(_preempting_with_volumes(number) for number in (200, 500, 1000)),
    _preempting_with_volumes(1000, capacities=True),
    preempting_with_requirements,
    preempting_with_terms,
    preempting_with_pod_terms,
    preempting_with_ports,
    preempting_with_resources,
    beside_nominated,
    tried,
    unbound_claims,
    claims_with_capacities,
    claims_for_static_volumes,
    claims_for_volumes_everywhere,
    claims_with_selectors,
    node_with_disks_goes,
    node_with_ports_goes,
)
"""The cases; the docstring of each one describes its work."""
