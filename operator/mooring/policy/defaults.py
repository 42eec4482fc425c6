"""Upstream's plugin names: what is on by default, what is off, what is gone.

Source: `apis/config/v1/default_plugins.go` and `validation.go` of v1.36.3.

A default plugin that the catalog lacks is left out of the defaults. NodeDeclaredFeatures is lacking
for good: Mooring does not schedule by the features nodes declare. Such names stay known: a profile
may disable and configure them, but to enable them is an error. An imported file may enable
NodeDeclaredFeatures, because a file that kube-scheduler has written always does; the import says
that it was left out.
"""

from collections.abc import Mapping
from typing import Final

from mooring.policy.points import Point

__all__ = [
    "ABSENT",
    "DEFAULT_WEIGHTS",
    "KNOWN_ELSEWHERE",
    "PERCENTAGE_OF_NODES_TO_SCORE",
    "REMOVED",
]

PERCENTAGE_OF_NODES_TO_SCORE: Final = 100
"""The default of `percentageOfNodesToScore`; kube-scheduler's is 0, its adaptive rule."""

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeUnschedulable": 0,
    "NodeName": 0,
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
}
"""The plugins enabled at multiPoint, in order, with their weight (0 where none is written)."""

ABSENT: Final[Mapping[str, frozenset[Point]]] = {
    "NodeDeclaredFeatures": frozenset({Point.PRE_FILTER, Point.FILTER}),
}
"""Default plugins that Mooring does not have, and the points they have upstream."""

REMOVED: Final[Mapping[str, str]] = {
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
}
"""Plugins upstream removed, and which one took over."""

KNOWN_ELSEWHERE: Final = frozenset(
    {
        *DEFAULT_WEIGHTS,
        *REMOVED,
        "GangScheduling",
        "PodGroupPodsCount",
        "TopologyPlacementGenerator",
    }
)
"""Every name a valid upstream configuration may hold."""
