"""The names of kube-scheduler's plugins, and the defaults of a profile.

Source: `apis/config/v1/default_plugins.go` and `validation.go` of v1.34.4 to v1.38.0-beta.0. A
profile may disable and configure the plugins in `ABSENT`, which Mooring does not have.
"""

from collections.abc import Mapping
from typing import Final

from mooring.model.kubernetes_rules import KubernetesRules
from mooring.policy.points import Point

PERCENTAGE_OF_NODES_TO_SCORE: Final = 100
"""The default of `percentageOfNodesToScore`; kube-scheduler's is 0, its adaptive rule."""

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeName": 0,
    "NodeUnschedulable": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 0,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 0,
    "NodeVolumeLimits": 0,
    "VolumeBinding": 0,
    "VolumeZone": 0,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 0,
    "NodeDeclaredFeatures": 0,
    "GangScheduling": 0,
    "TopologyPlacementGenerator": 0,
    "PodGroupPodsCount": 1,
}
"""The plugins that the newest version enables at multiPoint, in order, with their weight (0: no
weight is written).

Mooring always enables the last three; they ignore pods without a group. kube-scheduler enables them
with the feature gates GangScheduling and TopologyAwareWorkloadScheduling.
"""

OWN_DEFAULTS: Final[Mapping[str, int]] = {"CapacityScheduling": 0}
"""Mooring's own plugins that are enabled by default, with their weight (0: no weight)."""

ABSENT: Final[Mapping[str, frozenset[Point]]] = {
    "DeferredPodScheduling": frozenset({Point.PRE_FILTER, Point.FILTER, Point.PERMIT}),
}
"""Plugins that Mooring does not have, and their extension points in kube-scheduler.

DeferredPodScheduling exists since 1.37, where the feature gate
InPlacePodVerticalScalingSchedulerPreemption, which is off by default, enables it.
"""

REMOVED: Final[Mapping[str, str]] = {
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
}
"""Plugins that were removed from kube-scheduler, and the plugin that replaced each."""

KUBE_SCHEDULER_PLUGINS: Final = frozenset(
    {
        *DEFAULT_WEIGHTS,
        *ABSENT,
        *REMOVED,
    }
)
"""Every plugin name that a valid KubeSchedulerConfiguration may contain."""


def default_weights(kubernetes: KubernetesRules) -> dict[str, int]:
    """Return the plugins that a version enables at multiPoint, in order, with their weight."""
    weights = dict(DEFAULT_WEIGHTS)
    if not kubernetes.declared_features:
        del weights["NodeDeclaredFeatures"]
    if not kubernetes.device_alternatives_scored:
        weights["DynamicResources"] = 0
    if not kubernetes.node_name_first:
        first, second = "NodeName", "NodeUnschedulable"
        other = {first: second, second: first}
        weights = {other.get(name, name): weights[other.get(name, name)] for name in weights}
    return {**weights, **OWN_DEFAULTS}
