"""The differences of kube-scheduler between minor versions of Kubernetes.

All of them are in the table `KUBERNETES_RULES`, and no other code compares versions. Plugins read
facts from `handle.kubernetes`, the scheduler from `pipeline.kubernetes`; data that all profiles
share uses `ClusterState.kubernetes`. Source: `pkg/scheduler` and `pkg/features/kube_features.go` of
v1.34.4, v1.35.4, v1.36.3, v1.37.2 and v1.38.0-beta.0, with the default feature gates of each.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from mooring.model.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRules:
    """The rules of one minor version that differ between versions.

    If an attribute is True, the newer behaviour applies, which its first sentence describes; `Else`
    introduces the older one.

    Attributes:
        version: The minor version, such as 1.37.
        balance_compared: NodeResourcesBalancedAllocation compares how evenly a node is used with
            the pod and without it. Else it scores only the use with the pod.
        declared_features: The features that a pod may need, and its node then must declare. If
            there are any, the plugin NodeDeclaredFeatures is among the default plugins.
        image_volumes_scored: ImageLocality adds the sizes of image volumes to those of containers.
        image_volumes_counted: ImageLocality also counts image volumes in the number of images by
            which it divides.
        node_name_first: By default NodeName runs before NodeUnschedulable, not after it.
        storage_capacity_scoring: VolumeBinding scores nodes by the capacity of their storage.
        volume_limit_scaling: NodeVolumeLimits rejects nodes without a CSI driver that has
            `preventPodSchedulingIfMissing`.
        claims_in_preemption_message: Before the message of DefaultPreemption, DynamicResources says
            that it finds no claims to deallocate. This is the older behaviour.
        device_alternatives_scored: DynamicResources scores a node by which alternative of a request
            the node can satisfy.
        devices_of_extended_resources: A DeviceClass may stand for an extended resource.
            DynamicResources then allocates devices on nodes that do not offer the resource.
        placement_in_preemption_message: The message of a successful preemption names the node and
            the number of victims.
        pod_level_defaults_last: The API server sets the defaults of a new pod's pod-level requests
            after LimitRanges have set those of its containers. Else before.
        pod_level_resize: During an in-place resize, the pod-level requests in the pod's status
            count.
        group_members_agree: A PodGroup of scheduling.k8s.io is not scheduled if a member has
            another priority than the group (a group without priority has 0), or if two of the
            members, or a member and the group, differ in preemptionPolicy.
        group_progress_in_message: If a gang of scheduling.k8s.io does not fit, the message says how
            many members have a node, and how many were left when the gang failed.
        groups_in_pod_preemption: Preemption for a single pod takes a group that is disrupted as a
            whole as one victim, even if its members are on several nodes. Of pods with equal
            priority, members of PodGroups of scheduling.k8s.io stay longer than others. Else
            members of a group that is disrupted as a whole are never victims of single pods, and
            members of other groups are treated like other pods.
        counter_slices_by_node: A slice with shared counters applies to its node or node selector,
            like any other slice. Else it applies to every node.
        counters_by_driver: Counters belong to a driver's pool. Else two drivers whose pools have
            the same name share counters.
        capacity_errors: If a request for capacity is negative or cannot be computed, the allocation
            fails with an error; a rounded amount is written in the format of the policy's step.
        all_devices_by_size: A request for all devices of a class includes devices with too little
            capacity left, so that it fails. Else it leaves these out.
        shares_without_capacity: A shared device without capacity counts as in use once its counters
            are consumed. Else each share consumes the counters.
        device_attributes_may_be_lists: In CEL selectors a device attribute has the type dyn, so it
            may be a list. Else it has the type any, which loops do not accept.
        distinct_attribute_exact: distinctAttribute compares a device with all other devices. Else
            only with the last device of each request.
        limit_names_request: The message about too many devices names the request.
        device_configs_once: A claim's configuration is written once, and without requests if it
            applies to all of them. Else once for each request.
        selector_errors_name_device: The error of a CEL selector names the device, and gives advice
            about absent attributes.
        resize_by_stage: During an in-place resize, a pod's requests are summed for each stage
            (requested, allocated, in use), and the largest sum counts. Else each container counts
            with its largest amounts.
        binding_gives_topology_labels: When the API server binds a pod, it gives the pod the zone
            and region labels of its node (PodTopologyLabelsAdmission).
        empty_selector_counts_pods: In a topology spread constraint, the selector `{}` counts all
            pods of the namespace. Else it counts none.
        storage_capacity_exact: VolumeBinding compares the size of a new volume exactly with the
            capacity of its storage. Else both are rounded up to whole bytes.
        pod_level_scored: The score of NodeResourcesFit counts the pod-level requests of the
            incoming pod. Else only the requests of its containers.
        empty_budget_counts: Preemption applies a PodDisruptionBudget with the selector `{}` to all
            pods of its namespace, and budgets to pods without labels. Else it ignores both.
        extenders_add_victims: A pod may fit on a node without victims, because only an extender has
            filtered out the node. A preempt extender gets this node, too, and may name victims on
            it. Else such a node is an error.
        fractional_ranges: Steps of a capacity may be thousandths, and a negative request is an
            error before it is rounded. Else steps are whole numbers.
        unusable_pool_on_node: A request for all devices makes a node infeasible if one of its pools
            is invalid or being updated. Else the attempt fails.
        shares_exclude_whole: If a shared device is published again as a device for a single claim,
            it stays in use until no claim shares it. Else it can be allocated.
        versions_by_precedence: Constraints compare versions without their build metadata. Else as
            strings.
        capacities_have_domain: Errors name a capacity with its domain, which is the driver by
            default.
        cel_errors_name_container: The error about an unknown name in a CEL selector mentions the
            container ''. This is the older behaviour.
    """

    version: str
    balance_compared: bool
    declared_features: frozenset[str]
    image_volumes_scored: bool
    image_volumes_counted: bool
    node_name_first: bool
    storage_capacity_scoring: bool
    volume_limit_scaling: bool
    claims_in_preemption_message: bool
    device_alternatives_scored: bool
    devices_of_extended_resources: bool
    placement_in_preemption_message: bool
    pod_level_defaults_last: bool
    pod_level_resize: bool
    group_members_agree: bool
    group_progress_in_message: bool
    groups_in_pod_preemption: bool
    counter_slices_by_node: bool
    counters_by_driver: bool
    capacity_errors: bool
    all_devices_by_size: bool
    shares_without_capacity: bool
    device_attributes_may_be_lists: bool
    distinct_attribute_exact: bool
    limit_names_request: bool
    device_configs_once: bool
    selector_errors_name_device: bool
    resize_by_stage: bool
    binding_gives_topology_labels: bool
    empty_selector_counts_pods: bool
    storage_capacity_exact: bool
    pod_level_scored: bool
    empty_budget_counts: bool
    extenders_add_victims: bool
    fractional_ranges: bool
    unusable_pool_on_node: bool
    shares_exclude_whole: bool
    versions_by_precedence: bool
    capacities_have_domain: bool
    cel_errors_name_container: bool


_1_34: Final = KubernetesRules(
    version="1.34",
    balance_compared=False,
    declared_features=frozenset(),
    image_volumes_scored=False,
    image_volumes_counted=False,
    node_name_first=False,
    storage_capacity_scoring=False,
    volume_limit_scaling=False,
    claims_in_preemption_message=True,
    device_alternatives_scored=False,
    devices_of_extended_resources=False,
    placement_in_preemption_message=False,
    pod_level_defaults_last=False,
    pod_level_resize=False,
    group_members_agree=False,
    group_progress_in_message=False,
    groups_in_pod_preemption=False,
    counter_slices_by_node=False,
    counters_by_driver=False,
    capacity_errors=False,
    all_devices_by_size=False,
    shares_without_capacity=False,
    device_attributes_may_be_lists=False,
    distinct_attribute_exact=False,
    limit_names_request=False,
    device_configs_once=False,
    selector_errors_name_device=False,
    resize_by_stage=False,
    binding_gives_topology_labels=False,
    empty_selector_counts_pods=False,
    storage_capacity_exact=False,
    pod_level_scored=False,
    empty_budget_counts=False,
    extenders_add_victims=False,
    fractional_ranges=False,
    unusable_pool_on_node=False,
    shares_exclude_whole=False,
    versions_by_precedence=False,
    capacities_have_domain=False,
    cel_errors_name_container=True,
)
_1_35: Final = replace(
    _1_34, version="1.35", device_alternatives_scored=True, binding_gives_topology_labels=True
)
_1_36: Final = replace(
    _1_35,
    version="1.36",
    balance_compared=True,
    declared_features=frozenset((RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK)),
    devices_of_extended_resources=True,
    image_volumes_scored=True,
    pod_level_resize=True,
)
_1_37: Final = replace(
    _1_36,
    version="1.37",
    declared_features=_1_36.declared_features | {VOLUME_BIND_MOUNT_OPTIONS},
    image_volumes_counted=True,
    node_name_first=True,
    storage_capacity_scoring=True,
    volume_limit_scaling=True,
    claims_in_preemption_message=False,
    placement_in_preemption_message=True,
    pod_level_defaults_last=True,
    group_members_agree=True,
    group_progress_in_message=True,
    groups_in_pod_preemption=True,
    counter_slices_by_node=True,
    counters_by_driver=True,
    capacity_errors=True,
    all_devices_by_size=True,
    shares_without_capacity=True,
    device_attributes_may_be_lists=True,
    distinct_attribute_exact=True,
    limit_names_request=True,
    device_configs_once=True,
    selector_errors_name_device=True,
    resize_by_stage=True,
)
_1_38: Final = replace(
    _1_37,
    version="1.38",
    empty_selector_counts_pods=True,
    storage_capacity_exact=True,
    pod_level_scored=True,
    empty_budget_counts=True,
    extenders_add_victims=True,
    fractional_ranges=True,
    unusable_pool_on_node=True,
    shares_exclude_whole=True,
    versions_by_precedence=True,
    capacities_have_domain=True,
    cel_errors_name_container=False,
)

KUBERNETES_RULES: Final[Mapping[str, KubernetesRules]] = MappingProxyType(
    {rules.version: rules for rules in (_1_34, _1_35, _1_36, _1_37, _1_38)}
)
"""The rules of every minor version that Mooring knows, the oldest first."""
NEWEST: Final = _1_37
"""The rules if the server does not state its version: those of the newest stable release."""


def minor_version(text: str) -> tuple[int, int] | None:
    """Return major and minor number of a version (1.37, v1.37.2-eks); None if it is malformed."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?!\d)", text)
    return (int(found[1]), int(found[2])) if found else None


def rules_of_server(version: str) -> KubernetesRules:
    """Return the rules for an API server of this version.

    Unknown newer versions get the newest rules, and unknown older versions the oldest. A malformed
    version gets `NEWEST`.
    """
    asked = minor_version(version)
    if asked is None:
        return NEWEST
    known = [r for r in KUBERNETES_RULES.values() if (minor_version(r.version) or asked) <= asked]
    return known[-1] if known else _1_34


def unknown_server(version: str) -> str | None:
    """Return a warning if Mooring does not know this version of an API server, else None."""
    rules, asked = rules_of_server(version), minor_version(version)
    if asked is None or rules.version == version:
        return None
    known = minor_version(rules.version) or asked
    what = "newer" if asked > known else "older"
    return (
        f"the API server is {version}, which is {what} than the versions that this Mooring knows: "
        f"the rules of Kubernetes {rules.version} apply"
    )
