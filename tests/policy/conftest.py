"""Fixtures: catalogs of plugins, SchedulingProfile objects, and collected mistakes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from call_counts import calls_in
from mooring.plugins.node_label import NodeLabelArgs
from mooring.plugins.node_pressure import NodePressureArgs
from mooring.plugins.node_resources_fit import RequestedToCapacityRatioArgs
from mooring.plugins.service_affinity import ServiceAffinityArgs
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile_errors import ProfileInvalid
from policies import KUBE_SCHEDULER_ARGS

POINTS = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeUnschedulable": "filter",
    "NodeName": "filter",
    "TaintToleration": "filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "NodeResourcesFit": "preFilter filter preScore score",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "DefaultPreemption": "preEnqueue postFilter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "ImageLocality": "score",
    "DefaultBinder": "bind",
    "NodeDeclaredFeatures": "preFilter filter",
}


class RackArgs(BaseModel):
    """Arguments of a third-party plugin that do not forbid unknown fields."""

    label: str
    spread: bool = False


class KubeCatalog:
    """The plugins of kube-scheduler v1.36.3, and the filter RackAware of a third party.

    RackAware has required arguments.
    """

    def names(self) -> Iterable[str]:
        return (*POINTS, "RackAware")

    def points(self, name: str) -> frozenset[Point] | None:
        words = "filter" if name == "RackAware" else POINTS.get(name)
        return frozenset(map(Point, words.split())) if words else None

    def args_model(self, name: str) -> type[BaseModel] | None:
        return RackArgs if name == "RackAware" else KUBE_SCHEDULER_ARGS.get(name)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return KubeCatalog()


LEGACY: dict[str, tuple[str, type[BaseModel] | None]] = {
    "NodeCondition": ("filter", None),
    "NodePressure": ("filter", NodePressureArgs),
    "NodeLabel": ("filter score", NodeLabelArgs),
    "ServiceAffinity": ("preFilter filter score", ServiceAffinityArgs),
    "EBSVolumeCount": ("filter", None),
    "GCEPDVolumeCount": ("filter", None),
    "AzureDiskVolumeCount": ("filter", None),
    "SelectorSpread": ("preScore score", None),
    "ServiceSpreading": ("preScore score", None),
    "ResourceLimits": ("preScore score", None),
    "NodePreferAvoidPods": ("score", None),
    "EqualPriority": ("score", None),
    "NodeResourcesLeastAllocated": ("score", None),
    "NodeResourcesMostAllocated": ("score", None),
    "RequestedToCapacityRatio": ("score", RequestedToCapacityRatioArgs),
}


class LegacyCatalog:
    """The plugins of `catalog`, and the plugins for older policies."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def names(self) -> Iterable[str]:
        return {*self._catalog.names(), *LEGACY}

    def points(self, name: str) -> frozenset[Point] | None:
        if name in LEGACY:
            return frozenset(map(Point, LEGACY[name][0].split()))
        return self._catalog.points(name)

    def args_model(self, name: str) -> type[BaseModel] | None:
        return LEGACY[name][1] if name in LEGACY else self._catalog.args_model(name)


@pytest.fixture(scope="session")
def all_plugins(catalog: Catalog) -> Catalog:
    return LegacyCatalog(catalog)


Mistakes = Callable[[Callable[[], object]], dict[str, str]]


@pytest.fixture(scope="session")
def mistakes() -> Mistakes:
    """Return a function that makes a call, expects ProfileInvalid, and returns messages by path."""

    def collect(call: Callable[[], object]) -> dict[str, str]:
        with pytest.raises(ProfileInvalid) as caught:
            call()
        return {error.path: error.message for error in caught.value.errors}

    return collect


@pytest.fixture(scope="session")
def steps() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts the function calls that a call makes."""
    return calls_in


@pytest.fixture(scope="session")
def manifest() -> Callable[..., Mapping[str, Any]]:
    """Return a function that builds a SchedulingProfile object from the fields of its spec."""

    def build(name: str = "tested", **spec: object) -> Mapping[str, Any]:
        return {
            "apiVersion": "scheduling.mooring.dev/v1alpha1",
            "kind": "SchedulingProfile",
            "metadata": {"name": name, "generation": 3, "labels": {"any": "thing"}},
            "spec": spec,
        }

    return build
