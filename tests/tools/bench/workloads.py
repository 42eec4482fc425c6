"""What is measured: each workload of workloads.yaml says which nodes and pods there are.

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
"""From an app's name to the fields of a pod's spec that hold its pods together or apart."""

BIG_NODE: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110"}
SMALL_NODE: Mapping[str, str] = {"cpu": "4", "memory": "32Gi", "pods": "110"}
GPU_NODE: Mapping[str, str] = {
    **BIG_NODE,
    "aliyun.com/gpu-count": "8",
    "aliyun.com/gpu-mem": "128",
}
"""Eight cards of 16 GiB, as gpushare publishes them."""


def no_constraint(_app: str) -> Mapping[str, Any]:
    """Return the spec of a plain pod."""
    return {}


def alone_on_its_host(app: str) -> Mapping[str, Any]:
    """Return required anti-affinity: no two pods of an app on one node."""
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [_same_app(app, _HOST)]}}}


def prefers_its_apps_hosts(app: str) -> Mapping[str, Any]:
    """Return preferred affinity to the nodes where pods of the app are."""
    term = {"weight": 1, "podAffinityTerm": _same_app(app, _HOST)}
    return {"affinity": {"podAffinity": {_PREFERRED: [term]}}}


def even_over_zones(app: str) -> Mapping[str, Any]:
    """Return a hard spread of the app's pods over the zones."""
    constraint = {
        **_same_app(app, _ZONE),
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    return {"topologySpreadConstraints": [constraint]}


@dataclass(frozen=True)
class EquivalentPods:
    """Pods that are alike but for the app that they belong to."""

    cpu: str = "100m"
    memory: str = "200Mi"
    apps: int = 1
    """How many apps the pods are dealt out to."""
    priority: int = 0
    constraint: Constraint = no_constraint
    team: str = ""
    """A label of these pods; Mooring takes them with a profile that has five rules."""
    gpu_memory: int = 0
    """GiB of one GPU card; Mooring takes these pods with a profile that knows cards."""
    extended: bool = False
    """Whether an extender filters the nodes for these pods."""


@dataclass(frozen=True)
class Devices:
    """Devices of every node, and what each measured pod claims of them."""

    per_node: int = 10
    requests: int = 1
    """The requests of a claim, each for `count` devices."""
    count: int = 1
    one_root: bool = False
    """Whether all devices of a claim have to be on one PCI root; every second one is."""
    partitions: bool = False
    """Whether each device consumes counters of a card that all devices of its node are on."""
    resources: int = 0
    """Of so many extended resources pods request one in turn; 0: they have claims of a template."""
    in_use: float = 0.0
    """The share of the claims that fit which are allocated before."""

    @property
    def per_claim(self) -> int:
        """How many devices a claim gets."""
        return self.requests * self.count


@dataclass(frozen=True)
class Workload:
    """Nodes, pods that are there before, and pods that a scheduler has to place."""

    name: str
    about: str
    goal: float
    """How many times kube-scheduler's pods/s Mooring is meant to reach."""
    nodes: int
    pods: int
    """Pods that get a node; their rate is measured."""
    kind: EquivalentPods = field(default_factory=EquivalentPods)
    second_kind: EquivalentPods | None = None
    """If given, every second measured pod is of this kind."""
    extender_seconds: float = 0.0
    """How long the extender takes for a call; 0: there is none."""
    existing: int = 0
    """Pods that have a node before, one per node in turn."""
    existing_kind: EquivalentPods | None = None
    """None: of the same kind as the measured pods."""
    groups: tuple[tuple[int, int], ...] = ()
    """The gangs of the measured pods, PodGroups of Kubernetes: how many there are of which size.

    Without any, the pods are in no group.
    """
    devices: Devices | None = None
    """If given, every node has these devices, and the measured pods claim some."""
    at_once: int = 0
    """If given, no more measured pods exist at a time: one that is bound gives way to the next."""
    hopeless: int = 0
    """Pods that fit no node; their names sort before those of the measured pods."""
    evicts: bool = False
    """Whether existing pods have to go for the measured ones."""
    node: Mapping[str, str] = field(default_factory=lambda: BIG_NODE)
    zones: int = 10
    at_most: tuple[str, float] | None = None
    """Another workload, and how many times its CPU per pod Mooring may need for this one."""

    @property
    def claims_in_use(self) -> int:
        """How many claims are allocated before; the measured pods find room still."""
        if self.devices is None:
            return 0
        fit = self.nodes * (self.devices.per_node // self.devices.per_claim)
        return min(round(fit * self.devices.in_use), fit - (self.at_once or self.pods))

    def scaled(self, divisor: int) -> "Workload":
        """Return the same in small: an app keeps its number of pods, there are fewer apps.

        Groups keep their size too, as long as there are four of them.
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
    """Return how many groups of which size so many pods form, if they may be smaller."""
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
