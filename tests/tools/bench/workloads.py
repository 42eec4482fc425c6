"""Reads workloads.yaml: the nodes and pods of each measured workload.

The sizes follow upstream's scheduler_perf (test/integration/scheduler_perf), so that figures can be
compared; the same values, made small by `scaled`, run as tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import starmap
from operator import mul
from pathlib import Path
from typing import Any

import yaml

Constraint = Callable[[str], Mapping[str, Any]]
"""Returns the fields of a pod's spec that hold the pods of an app together or apart."""

BIG_NODE: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110"}
SMALL_NODE: Mapping[str, str] = {"cpu": "4", "memory": "32Gi", "pods": "110"}
GPU_NODE: Mapping[str, str] = {
    **BIG_NODE,
    "aliyun.com/gpu-count": "8",
    "aliyun.com/gpu-mem": "128",
}
"""A node with eight cards of 16 GiB, in gpushare's format."""


def no_constraint(_app: str) -> Mapping[str, Any]:
    """Return no further fields: a plain pod."""
    return {}


def alone_on_its_host(app: str) -> Mapping[str, Any]:
    """Return required anti-affinity: at most one pod of an app per node."""
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [_same_app(app, _HOST)]}}}


def prefers_its_apps_hosts(app: str) -> Mapping[str, Any]:
    """Return preferred affinity to nodes with pods of the app."""
    term = {"weight": 1, "podAffinityTerm": _same_app(app, _HOST)}
    return {"affinity": {"podAffinity": {_PREFERRED: [term]}}}


def even_over_zones(app: str) -> Mapping[str, Any]:
    """Return a hard spread constraint of the app's pods over the zones."""
    constraint = {
        **_same_app(app, _ZONE),
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    return {"topologySpreadConstraints": [constraint]}


@dataclass(frozen=True)
class EquivalentPods:
    """Pods that differ only in the app to which they belong."""

    cpu: str = "100m"
    memory: str = "200Mi"
    apps: int = 1
    """The number of apps among which the pods are divided."""
    priority: int = 0
    constraint: Constraint = no_constraint
    team: str = ""
    """A label of these pods; Mooring schedules them by a profile with five rules."""
    gpu_memory: int = 0
    """GiB of one GPU card; Mooring schedules these pods by a profile for cards."""
    queue: str | None = None
    """The value of the label that names a Queue of Mooring; "" names none.

    `{app}` stands for the pods' app; each app then has a Queue of its own."""
    extended: bool = False
    """Whether an extender filters the nodes for these pods."""


@dataclass(frozen=True)
class Devices:
    """The devices of every node, and the devices that each measured pod claims."""

    per_node: int = 10
    requests: int = 1
    """The requests of a claim, each for `count` devices."""
    count: int = 1
    one_root: bool = False
    """Whether all devices of a claim must be on one PCI root; each node has two of them."""
    partitions: bool = False
    """Whether each device consumes counters of a card that is common to the node's devices."""
    resources: int = 0
    """If not 0: pods request, in turn, one of so many extended resources instead of a claim."""
    in_use: float = 0.0
    """The share of all possible claims that are allocated before the run."""

    @property
    def per_claim(self) -> int:
        """The number of devices for a claim."""
        return self.requests * self.count


@dataclass(frozen=True)
class Workload:
    """The nodes, the existing pods, and the pods that a scheduler has to place."""

    name: str
    about: str
    goal: float
    """The pods/s that Mooring should reach, as a multiple of kube-scheduler's."""
    nodes: int
    pods: int
    """The number of measured pods that get a node."""
    kind: EquivalentPods = field(default_factory=EquivalentPods)
    second_kind: EquivalentPods | None = None
    """The kind of every second measured pod, if given."""
    extender_seconds: float = 0.0
    """The seconds of each call of the extender; 0: there is no extender."""
    existing: int = 0
    """The number of pods that have a node before the run, one per node in turn."""
    existing_kind: EquivalentPods | None = None
    """The kind of the existing pods; None: the measured pods' kind."""
    groups: tuple[tuple[int, int], ...] = ()
    """The measured pods' gangs (PodGroups of Kubernetes), as pairs of number and size.

    Without a gang, the pods are in no group."""
    devices: Devices | None = None
    """The devices of every node, if given; measured pods claim some of them."""
    seconds: float = 900.0
    """The most seconds of a drain; after that, the other pods are given up."""
    at_once: int = 0
    """The most measured pods at a time, if given: the next pod replaces a bound one."""
    hopeless: int = 0
    """The number of pods that fit no node; their names sort before the measured pods'."""
    evicts: bool = False
    """Whether the measured pods must preempt existing pods."""
    node: Mapping[str, str] = field(default_factory=lambda: BIG_NODE)
    zones: int = 10
    at_most: tuple[str, float] | None = None
    """Another workload, and the most CPU per pod that Mooring may need in multiples of its CPU."""

    @property
    def claims_in_use(self) -> int:
        """The number of claims allocated before the run; they leave room for the measured pods."""
        if self.devices is None:
            return 0
        fit = self.nodes * (self.devices.per_node // self.devices.per_claim)
        return min(round(fit * self.devices.in_use), fit - (self.at_once or self.pods))

    def scaled(self, divisor: int) -> "Workload":
        """Return a smaller workload with fewer apps; an app keeps its number of pods.

        Groups keep their size, too, if at least four are left.
        """

        def fewer(kind: EquivalentPods) -> EquivalentPods:
            return replace(kind, apps=max(1, kind.apps // divisor))

        groups = tuple(_smaller(number * size // divisor, size) for number, size in self.groups)
        return replace(
            self,
            nodes=self.nodes // divisor,
            pods=sum(starmap(mul, groups)) if groups else self.pods // divisor,
            groups=groups,
            at_once=min(self.at_once, max(_FEWEST_AT_ONCE, self.at_once // divisor)),
            existing=self.existing // divisor,
            hopeless=self.hopeless // divisor,
            kind=fewer(self.kind),
            second_kind=self.second_kind and fewer(self.second_kind),
            existing_kind=self.existing_kind and fewer(self.existing_kind),
        )


_FEWEST_GROUPS = 4
_FEWEST_AT_ONCE = 3
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"


def _smaller(pods: int, size: int) -> tuple[int, int]:
    """Return the number and the size of groups for `pods` pods; they may be smaller than `size`."""
    size = max(1, min(size, pods // _FEWEST_GROUPS))
    return pods // size, size


def _same_app(app: str, topology_key: str) -> dict[str, Any]:
    return {"topologyKey": topology_key, "labelSelector": {"matchLabels": {"app": app}}}


_NODES: Mapping[str, Mapping[str, str]] = {
    "big": BIG_NODE,
    "small": SMALL_NODE,
    "gpu": GPU_NODE,
    "extended": {**BIG_NODE, "example.com/extended": "1000"},
}
_CONSTRAINTS: Mapping[str, Constraint] = {
    each.__name__: each for each in (alone_on_its_host, prefers_its_apps_hosts, even_over_zones)
}


def _kind(constraint: str = "", **fields: Any) -> EquivalentPods:
    return EquivalentPods(constraint=_CONSTRAINTS.get(constraint, no_constraint), **fields)


def _workload(name: str, **fields: Any) -> Workload:
    for kind in (each for each in fields if each.endswith("kind")):
        fields[kind] = _kind(**fields[kind])
    if "devices" in fields:
        fields["devices"] = Devices(**fields["devices"])
    for pairs in ("groups", "at_most"):
        if pairs in fields:
            fields[pairs] = tuple(tuple(x) if isinstance(x, list) else x for x in fields[pairs])
    return Workload(name, node=_NODES[fields.pop("node", "big")], **fields)


WORKLOADS: Mapping[str, Workload] = {
    name: _workload(name, **fields)
    for name, fields in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
}
