"""The plugins that replace the predicates and priorities of a Policy.

Source: `framework/plugins/legacy_registry.go` of v1.20. For plugins that were removed earlier:
`algorithm/predicates/predicates.go` and `algorithm/priorities` of v1.11 to v1.17.
"""

from collections.abc import Mapping
from typing import Final

PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CheckNodeCondition": ("NodeCondition",),
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodFitsResources": ("NodeResourcesFit",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "PodToleratesNodeNoExecuteTaints": ("TaintToleration",),
    "CheckNodeLabelPresence": ("NodeLabel",),
    "CheckServiceAffinity": ("ServiceAffinity",),
    "MaxEBSVolumeCount": ("EBSVolumeCount",),
    "MaxGCEPDVolumeCount": ("GCEPDVolumeCount",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("AzureDiskVolumeCount",),
    "MaxCinderVolumeCount": ("NodeVolumeLimits",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "NoVolumeNodeConflict": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "CheckNodeMemoryPressure": ("NodePressure",),
    "CheckNodePIDPressure": ("NodePressure",),
    "CheckNodeDiskPressure": ("NodePressure",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
}
"""The plugins for each predicate; the predicates are in the order in which they run.

Volumes of the in-tree Cinder plugin are migrated to CSI, so NodeVolumeLimits counts them.
"""

MANDATORY_PREDICATES: Final = ("CheckNodeUnschedulable", "PodToleratesNodeTaints")
"""Predicates that run with every Policy."""

DEFAULT_PREDICATES: Final = (
    "NoVolumeZoneConflict",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "CheckVolumeBinding",
    "EvenPodsSpread",
)
"""The predicates of a Policy without `predicates`."""

PRESSURES: Final[Mapping[str, str]] = {
    "CheckNodeMemoryPressure": "MemoryPressure",
    "CheckNodeDiskPressure": "DiskPressure",
    "CheckNodePIDPressure": "PIDPressure",
}
"""Maps a predicate to the node condition that it checks."""

PRIORITIES: Final[Mapping[str, str]] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EqualPriority": "EqualPriority",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": "NodeResourcesLeastAllocated",
    "MostRequestedPriority": "NodeResourcesMostAllocated",
    "NodeAffinityPriority": "NodeAffinity",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
    "ResourceLimitsPriority": "ResourceLimits",
    "SelectorSpreadPriority": "SelectorSpread",
    "ServiceSpreadingPriority": "ServiceSpreading",
    "TaintTolerationPriority": "TaintToleration",
}
"""Maps a priority of a Policy to the plugin that replaces it."""

RATIO: Final = "RequestedToCapacityRatio"
"""The plugin of priorities with `requestedToCapacityRatioArguments`."""

STRATEGIES: Final[Mapping[str, str]] = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    RATIO: "RequestedToCapacityRatio",
}
"""Maps a plugin to the strategy of NodeResourcesFit that replaces it; see `old_policy`."""

DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}
"""The priorities, with weights, of a Policy without `priorities`."""
