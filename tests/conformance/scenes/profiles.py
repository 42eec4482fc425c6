"""The scheduling profiles under which cases are recorded."""

from typing import Any, Final

from conformance.scenes.vocabulary import GPU, HOSTNAME, ZONE

Profile = dict[str, Any]


def _with_args(name: str, plugin: str, **args: Any) -> Profile:
    return {"schedulerName": name, "pluginConfig": [{"name": plugin, "args": args}]}


def _fit(name: str, kind: str, resources: dict[str, int], **strategy: Any) -> Profile:
    weighed = [{"name": resource, "weight": weight} for resource, weight in resources.items()]
    strategy = {"type": kind, "resources": weighed, **strategy}
    return _with_args(name, "NodeResourcesFit", scoringStrategy=strategy)


def _shape(*points: tuple[int, int]) -> dict[str, Any]:
    return {"shape": [{"utilization": used, "score": score} for used, score in points]}


def _expression(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


DEFAULT: Final[Profile] = {"schedulerName": "default-scheduler"}

_IN_Z1 = {"weight": 20, "preference": _expression(ZONE, "z1")}
_ON_SSD = {"nodeSelectorTerms": [_expression("disk", "ssd")]}
_ZONES_EVEN = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
_HOSTS_EVEN = {"maxSkew": 2, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}

PROFILES: Final[tuple[Profile, ...]] = (
    DEFAULT,
    _fit("binpack", "MostAllocated", {"cpu": 3, "memory": 1}),
    _fit("gpubinpack", "MostAllocated", {GPU: 5, "cpu": 1}),
    _fit("disks", "LeastAllocated", {"cpu": 2, "memory": 1, "ephemeral-storage": 4}),
    _fit(
        "ratio",
        "RequestedToCapacityRatio",
        {"cpu": 1, GPU: 5},
        requestedToCapacityRatio=_shape((0, 0), (40, 3), (100, 10)),
    ),
    _fit(
        "fallingratio",
        "RequestedToCapacityRatio",
        {"cpu": 2, "memory": 3},
        requestedToCapacityRatio=_shape((10, 10), (70, 4), (90, 0)),
    ),
    _with_args(
        "ignoredres",
        "NodeResourcesFit",
        ignoredResources=[GPU],
        ignoredResourceGroups=["vendor.io"],
    ),
    _with_args(
        "balance3",
        "NodeResourcesBalancedAllocation",
        resources=[
            {"name": name, "weight": 1} for name in ("cpu", "memory", "ephemeral-storage", GPU)
        ],
    ),
    _with_args("hardaff", "InterPodAffinity", hardPodAffinityWeight=30),
    _with_args("ignorepref", "InterPodAffinity", ignorePreferredTermsOfExistingPods=True),
    _with_args(
        "listspread",
        "PodTopologySpread",
        defaultingType="List",
        defaultConstraints=[_ZONES_EVEN, _HOSTS_EVEN],
    ),
    _with_args("nospread", "PodTopologySpread", defaultingType="List"),
    _with_args(
        "added",
        "NodeAffinity",
        addedAffinity={
            "requiredDuringSchedulingIgnoredDuringExecution": _ON_SSD,
            "preferredDuringSchedulingIgnoredDuringExecution": [_IN_Z1],
        },
    ),
    {
        "schedulerName": "weights",
        "plugins": {
            "multiPoint": {
                "enabled": [{"name": "InterPodAffinity", "weight": 5}],
                "disabled": [{"name": "ImageLocality"}],
            },
            "score": {
                "enabled": [{"name": "TaintToleration", "weight": 7}],
                "disabled": [{"name": "NodeResourcesFit"}, {"name": "TaintToleration"}],
            },
        },
    },
    {
        "schedulerName": "onlyspread",
        "plugins": {
            "score": {
                "enabled": [{"name": "PodTopologySpread", "weight": 2}],
                "disabled": [{"name": "*"}],
            },
            "filter": {"disabled": [{"name": "NodeUnschedulable"}, {"name": "NodePorts"}]},
            "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
        },
    },
)
"""All can run in one kube-scheduler: they differ in their names and sort the queue alike."""

STORAGE_PROFILES: Final[tuple[Profile, ...]] = (
    _with_args("fullstorage", "VolumeBinding", **_shape((0, 0), (100, 10))),
    _with_args("halfstorage", "VolumeBinding", **_shape((10, 2), (50, 10), (90, 3))),
    _with_args("flatstorage", "VolumeBinding", **_shape((30, 7))),
    {
        "schedulerName": "storagefirst",
        "plugins": {"multiPoint": {"enabled": [{"name": "VolumeBinding", "weight": 7}]}},
    },
)
"""Profiles for kube-scheduler 1.37 and newer, which may run beside the others."""
