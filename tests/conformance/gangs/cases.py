"""Makes random gangs, each with nodes of its own.

The gangs are small and mixed, and request about the free amount. So the order in which members are
placed decides whether the gang fits. The same seed and number give the same gang for every
scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.scenes.draw import Draw
from mooring.model.quantity import parse_milli
from mooring.testing.builders import node, pod, pod_group, toleration

Raw = dict[str, Any]

RACK: Final = "example.com/rack"
POOL: Final = "example.com/pool"
HOST: Final = "kubernetes.io/hostname"
TAINT: Final = "dedicated=batch:NoSchedule"
SIZES: Final = (500, 1000, 2000, 3000, 4000, 7000)
"""Millicores that members request."""
MOST_MEMBERS: Final = 10


@dataclass(frozen=True)
class Gang:
    """A group and its members; only `nodes` can take them, and `running` are the pods there."""

    name: str
    minimum: int
    topology: str | None
    """The node label of which all members must have one value."""
    nodes: Sequence[Raw]
    running: Sequence[Raw]
    members: Sequence[Raw]
    group: Raw


def random_gang(seed: int, number: int, scheduler: str, namespace: str) -> Gang:
    """Return gang `number` of the seed for this scheduler; its object names are unique."""
    draw = Draw(f"gang {seed} {number}")
    name = f"g{number:04}-{scheduler}"
    nodes = [_node(draw, f"{name}-{i}", name) for i in range(draw.randint(2, 6))]
    running = [
        pod(f"{raw['metadata']['name']}-busy", namespace=namespace, cpu=f"{cpu}m", node=on)
        for raw in nodes
        if draw.chance(0.5)
        and (on := raw["metadata"]["name"])
        and (cpu := draw.randrange(0, _millicores(raw), 500))
    ]
    free = sum(map(_millicores, nodes)) - sum(map(_requested, running))
    topology = RACK if draw.chance(0.3) else None
    spec = _common(draw, name, scheduler)
    members = [
        pod(
            f"{name}-m{i}",
            namespace=namespace,
            cpu=f"{cpu}m",
            labels={"gang": name},
            group=name,
            spec=spec,
        )
        for i, cpu in enumerate(_sizes(draw, int(free * draw.uniform(0.6, 1.0))))
    ]
    minimum = len(members) - (len(members) > 2 and draw.chance(0.2))
    group = pod_group(name, minimum, namespace=namespace, topology=[topology] if topology else [])
    return Gang(name, minimum, topology, nodes, running, members, group)


def wrong_placement(gang: Gang, node_of: Mapping[str, str]) -> str:
    """Return the mistake in the members' nodes (by member's name); "" if there is none."""
    if 0 < len(node_of) < gang.minimum:
        return f"{len(node_of)} of at least {gang.minimum} members are bound"
    used: Counter[str] = Counter()
    for raw in (*gang.running, *gang.members):
        if on := raw["spec"].get("nodeName", node_of.get(raw["metadata"]["name"])):
            used[on] += _requested(raw)
    offered = {raw["metadata"]["name"]: _millicores(raw) for raw in gang.nodes}
    if full := [on for on, cpu in used.items() if cpu > offered.get(on, 0)]:
        return f"node {full[0]} is over its allocatable cpu, or is not for this gang"
    labels = {raw["metadata"]["name"]: raw["metadata"]["labels"] for raw in gang.nodes}
    domains = {labels[on][gang.topology] for on in node_of.values()} if gang.topology else set()
    return f"its members are in {len(domains)} domains" if len(domains) > 1 else ""


def _node(draw: Draw, name: str, pool: str) -> Raw:
    labels = {POOL: pool, RACK: f"{pool}-r{draw.randint(1, 3)}"}
    if draw.chance(0.5):
        labels["disk"] = "ssd"
    taints = [TAINT] if draw.chance(0.15) else []
    return node(name, cpu=draw.choice((2, 4, 8, 16)), labels=labels, taints=taints)


def _common(draw: Draw, name: str, scheduler: str) -> Raw:
    """Return the part of the spec that all members have in common."""
    spec: Raw = {"schedulerName": scheduler, "nodeSelector": {POOL: name}}
    if draw.chance(0.15):
        spec["nodeSelector"]["disk"] = "ssd"
    if draw.chance(0.5):
        spec["tolerations"] = [toleration("dedicated", "batch")]
    if draw.chance(0.15):
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"gang": name}}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": required}
    return spec


def _sizes(draw: Draw, target: int) -> Iterable[int]:
    """Return the millicores of at least two members, up to three sizes, about `target` in total."""
    kinds = draw.some(SIZES, 1, 3)
    sizes = [draw.choice(kinds) for _ in range(2)]
    while len(sizes) < MOST_MEMBERS and sum(sizes) + (size := draw.choice(kinds)) <= target:
        sizes.append(size)
    return sizes


def _millicores(raw: Raw) -> int:
    return parse_milli(raw["status"]["allocatable"]["cpu"], "cpu")


def _requested(raw: Raw) -> int:
    return parse_milli(raw["spec"]["containers"][0]["resources"]["requests"]["cpu"], "cpu")
