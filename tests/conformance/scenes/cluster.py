"""A cluster that features build step by step, and the finished scene."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.scenes.draw import Draw

Raw = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A cluster with a pending pod, as users would write the objects.

    The recorder writes each object's status as it is here; an object with a deletionTimestamp (of
    any value) is deleted, so that it is terminating.
    """

    objects: list[Raw]
    pod: Raw
    profile: Raw
    extenders: Sequence[Raw] = ()
    """As kube-scheduler is configured with them; a URL has no port yet."""
    made: Sequence[Raw] = ()
    """The claims that the claim controller makes from templates once the pod exists."""


@dataclass
class Cluster:
    """The objects so far; names that must be unique among scenes contain `label`."""

    draw: Draw
    label: str
    nodes: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    others: list[Raw] = field(default_factory=list)
    made: list[Raw] = field(default_factory=list)
    """The claims that are made from templates for the pod."""
    moments: list[int] = field(default_factory=list, init=False)
    """Seconds, all different, to be taken one by one."""
    taken_ports: set[tuple[Any, ...]] = field(default_factory=set, init=False)
    """Node, number and protocol of the bound pods' host ports."""

    def __post_init__(self) -> None:
        self.moments = self.draw.sample(range(3600), 100)

    @property
    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]

    def named(self, kind: str) -> list[str]:
        return [raw["metadata"]["name"] for raw in self.others if raw["kind"] == kind]

    def add(self, kind: str, name: str, namespace: str | None = None, **fields: Any) -> Raw:
        """Add an object that is neither node nor pod; return it for changes by the caller."""
        metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        raw = {"kind": kind, "metadata": metadata, **fields}
        self.others.append(raw)
        return raw


Feature = Callable[[Cluster, Raw], None]
"""Gives a pod something to decide by, and the cluster what that needs."""


def always(features: Iterable[Feature]) -> Feature:
    """Return a feature that applies all these features in order."""
    chosen = tuple(features)

    def apply(cluster: Cluster, pod: Raw) -> None:
        for feature in chosen:
            feature(cluster, pod)

    return apply


def sometimes(probability: float, feature: Feature) -> Feature:
    """Return a feature that applies `feature` with this probability."""

    def apply(cluster: Cluster, pod: Raw) -> None:
        if cluster.draw.chance(probability):
            feature(cluster, pod)

    return apply


def one_of(*features: Feature) -> Feature:
    """Return a feature that applies one of the features."""

    def apply(cluster: Cluster, pod: Raw) -> None:
        cluster.draw.choice(features)(cluster, pod)

    return apply
