"""The shipped plugins, one file per subject; plugins do not import each other."""

from typing import Any, Final

from mooring.claims.plugin.device_fragmentation import DeviceFragmentation
from mooring.claims.plugin.plugin import DynamicResources
from mooring.gpu_cards.gpu_fragmentation import GPUFragmentation
from mooring.gpu_cards.gpu_share.plugin import GPUShare
from mooring.gpu_cards.gpu_topology.plugin import GPUTopology
from mooring.groups.plugins.gang_scheduling import GangScheduling
from mooring.groups.plugins.pod_group_pods_count import PodGroupPodsCount
from mooring.groups.plugins.topology_placement import TopologyPlacementGenerator
from mooring.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from mooring.plugins.default_binder import DefaultBinder
from mooring.plugins.default_preemption.plugin import DefaultPreemption
from mooring.plugins.equal_priority import EqualPriority
from mooring.plugins.image_locality import ImageLocality
from mooring.plugins.inter_pod_affinity import InterPodAffinity
from mooring.plugins.node_affinity import NodeAffinity
from mooring.plugins.node_condition import NodeCondition
from mooring.plugins.node_declared_features import NodeDeclaredFeatures
from mooring.plugins.node_label import NodeLabel
from mooring.plugins.node_name import NodeName
from mooring.plugins.node_ports import NodePorts
from mooring.plugins.node_prefer_avoid_pods import NodePreferAvoidPods
from mooring.plugins.node_pressure import NodePressure
from mooring.plugins.node_resources_fit import (
    NodeResourcesFit,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatioScore,
)
from mooring.plugins.node_unschedulable import NodeUnschedulable
from mooring.plugins.pod_topology_spread.plugin import PodTopologySpread
from mooring.plugins.priority_sort import PrioritySort
from mooring.plugins.resource_limits import ResourceLimits
from mooring.plugins.rules.plugin import Rules
from mooring.plugins.scheduling_gates import SchedulingGates
from mooring.plugins.selector_spread import SelectorSpread, ServiceSpreading
from mooring.plugins.service_affinity import ServiceAffinity
from mooring.plugins.taint_toleration import TaintToleration
from mooring.quota.capacity_scheduling import CapacityScheduling
from mooring.volumes.cloud_volume_counts import (
    AzureDiskVolumeCount,
    EBSVolumeCount,
    GCEPDVolumeCount,
)
from mooring.volumes.node_volume_limits import NodeVolumeLimits
from mooring.volumes.volume_binding.plugin import VolumeBinding
from mooring.volumes.volume_restrictions import VolumeRestrictions
from mooring.volumes.volume_zone import VolumeZone

__all__ = ["SHIPPED"]

_OLDER: Final[tuple[type[Any], ...]] = (
    NodeCondition,
    NodePressure,
    NodeLabel,
    ServiceAffinity,
    EBSVolumeCount,
    GCEPDVolumeCount,
    AzureDiskVolumeCount,
    SelectorSpread,
    ServiceSpreading,
    ResourceLimits,
    NodePreferAvoidPods,
    EqualPriority,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatioScore,
)
"""Plugins of older versions of kube-scheduler; each runs only in profiles that enable it.

Priorities, the predecessors of plugins, scored 0-10. These plugins score 0-100 like all others.
Only ResourceLimits and EqualPriority still score at most 1.
"""

SHIPPED: Final[tuple[type[Any], ...]] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
    CapacityScheduling,
    GPUShare,
    GPUTopology,
    GPUFragmentation,
    DeviceFragmentation,
    Rules,
    *_OLDER,
)
"""Every plugin class that comes with Mooring."""
