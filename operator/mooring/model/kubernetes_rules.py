"""The differences of kube-scheduler between minor versions of Kubernetes.

All of them are in the table `KUBERNETES_RULES`. No other code compares versions: plugins read facts
from `handle.kubernetes`, the engine from `pipeline.kubernetes`, and data that all profiles share
follows `ClusterState.kubernetes`. Source: `pkg/scheduler` and `pkg/features/kube_features.go` of
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
    """The rules of one minor version where versions differ; each fact is named for the newer one.

    Attributes:
        version: The minor version, such as 1.37.
        balance_compared: NodeResourcesBalancedAllocation compares how evenly a node is used with
            the pod and without it. Else only the former counts.
        declared_features: The features that pods may need and nodes then must declare. Where there
            are any, the plugin NodeDeclaredFeatures is among the default plugins.
        image_volumes_scored: ImageLocality adds the sizes of image volumes to those of containers.
        image_volumes_counted: ImageLocality also counts them among the images it divides by.
        node_name_first: By default NodeName runs before NodeUnschedulable, not after it.
        storage_capacity_scoring: VolumeBinding scores nodes by the capacity of their storage.
        volume_limit_scaling: NodeVolumeLimits rejects nodes that lack a CSI driver which has
            `preventPodSchedulingIfMissing`.
        claims_in_preemption_message: DynamicResources says before DefaultPreemption that it finds
            no claims to deallocate.
        device_alternatives_scored: DynamicResources scores nodes by which alternative of a request
            they can give.
        devices_of_extended_resources: A class of devices may stand for an extended resource: where
            a node does not offer that itself, DynamicResources allocates devices for it.
        placement_in_preemption_message: A successful preemption says which node and how many
            victims it has found.
        pod_level_defaults_last: The API server fills in a new pod's pod-level requests after
            LimitRanges have filled in those of its containers, not before.
        pod_level_resize: What a pod's status says of its pod-level requests during an in-place
            resize counts.
        group_members_agree: A PodGroup of scheduling.k8s.io is not scheduled if a member has
            another priority than the group, which is 0 if it has none, or another preemptionPolicy
            than the group or the other members.
        group_progress_in_message: A gang of scheduling.k8s.io that does not fit says how many
            members have a node and how many were left when that was clear.
        groups_in_pod_preemption: A group that is disrupted as a whole is one victim of a single
            pod, on whatever nodes its members are, and of equal priority members of PodGroups of
            scheduling.k8s.io stay before other pods. Else members of such a group are no victims of
            single pods, and those of others are as other pods.
        counter_slices_by_node: A slice with shared counters is looked for like any other slice, by
            its node or node selector. Else it is relevant to every node.
        counters_by_driver: Counters belong to a driver's pool. Else two drivers with a pool of the
            same name share them.
        capacity_errors: A request for capacity that cannot be computed, or is negative, ends the
            allocation with an error, and a rounded amount is written as the policy's step is.
        all_devices_by_size: A request for all devices of a class includes those that have too
            little capacity left, so that it fails. Else it leaves them out.
        shares_without_capacity: A device that is shared but has no capacity counts as in use when
            its counters are consumed. Else each share consumes them.
        device_attributes_may_be_lists: CEL selectors take a device's attribute for a value of
            dynamic type, which may be a list. Else for one of any type, which loops do not accept.
        distinct_attribute_exact: distinctAttribute compares a device with all others. Else with
            the last device of each request.
        limit_names_request: The text about too many devices names the request that exceeds.
        device_configs_once: A claim's configuration is written once, and without requests if it is
            for all of them. Else once for each of its requests.
        selector_errors_name_device: The error of a CEL selector names the device, and gives advice
            on attributes that are absent.
        resize_by_stage: The requests of a pod during an in-place resize are summed for each stage
            (asked for, allocated, in use), and the largest sum counts. Else each container counts
            with the largest of its amounts.
        binding_gives_topology_labels: With the Binding the API server gives a pod its node's labels
            of zone and region (PodTopologyLabelsAdmission).
        empty_selector_counts_pods: The selector `{}` of a topology spread constraint counts all
            pods of the namespace. Else none.
        pod_level_scored: The score of NodeResourcesFit counts the pod-level requests of the pod to
            be placed. Else only those of its containers.
        empty_budget_counts: Preemption regards a PodDisruptionBudget with the selector `{}`, which
            is for all pods of the namespace, and pods without labels. Else no budget is for them.
        extenders_add_victims: A preempt extender also gets the nodes where the pod would fit
            without any victim, because only an extender has filtered them out, and may name victims
            there. Else such a node is an error.
        fractional_ranges: Steps of a capacity that are thousandths are counted as such, and a
            negative request is an error before it is rounded. Else steps are whole numbers.
        unusable_pool_on_node: A request for all devices of a pool that is being updated or is
            invalid makes the node infeasible. Else it fails the attempt.
        shares_exclude_whole: A device that has become one for a single claim is in use as long as
            claims share it. Else it can be allocated.
        versions_by_precedence: Constraints compare versions without their build metadata. Else as
            texts.
        capacities_have_domain: Errors name a capacity with its domain, the driver if it has none.
        cel_errors_name_container: The error about an unknown name in a CEL selector says that it
            was looked for in the container ''.
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
"""The rules if no server states its version: those of the newest release. 1.38 is a beta."""


def minor_version(text: str) -> tuple[int, int] | None:
    """Return the numbers of a version (1.37 or v1.37.2-eks); None if it is malformed."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?!\d)", text)
    return (int(found[1]), int(found[2])) if found else None


def rules_of_server(version: str) -> KubernetesRules:
    """Return the rules of a server of this version.

    A server newer than all known ones has the last rules, an older one the first. Where the version
    is not known, `NEWEST` applies.
    """
    asked = minor_version(version)
    if asked is None:
        return NEWEST
    known = [r for r in KUBERNETES_RULES.values() if (minor_version(r.version) or asked) <= asked]
    return known[-1] if known else _1_34


def unknown_server(version: str) -> str | None:
    """Return a warning about a server of this version, which Mooring does not know."""
    rules, asked = rules_of_server(version), minor_version(version)
    if asked is None or rules.version == version:
        return None
    known = minor_version(rules.version) or asked
    what = "newer" if asked > known else "older"
    return (
        f"the API server is {version}, which is {what} than the versions that this Mooring knows: "
        f"the rules of Kubernetes {rules.version} apply"
    )
