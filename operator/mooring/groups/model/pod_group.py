"""Pod groups: their definition by objects, or by the labels of their members.

Members name their group in one of these ways, which are the sources of groups:

- `spec.schedulingGroup.podGroupName`: a PodGroup of `scheduling.k8s.io`
- the label `scheduling.x-k8s.io/pod-group`: a PodGroup of the coscheduling plugin
- an annotation of Volcano or KAI: a PodGroup of `scheduling.volcano.sh` or `scheduling.run.ai`
- a label of Grove: a PodGang
- a label or annotation of YuniKorn: an application with task groups, which has no object
- a label or annotation of the site: a group without an object

A `GroupFormat` describes such a label or annotation. The same name in two sources means two groups.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from mooring.claims.model.resource_claims import (
    ConsumerReference,
    PodClaim,
    ResourceClaim,
    parse_claim_statuses,
    parse_pod_claims,
)
from mooring.groups.model.hyper_node import HYPER_NODE_KEY
from mooring.groups.model.task_groups import (
    MOST_RESOURCES,
    MOST_ROLES,
    TASK_GROUP_NAME,
    Numbers,
    in_task_group,
    task_groups_of,
)
from mooring.model.fields import (
    MAX_INT32,
    at_most,
    integer,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    strings,
    text,
    timestamp,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import Pod
from mooring.model.resources import parse_amounts

COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
"""The label by which a pod names its PodGroup of scheduling.x-k8s.io."""
SIGS_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
"""The label by which a pod names its PodGroup of scheduling.sigs.k8s.io."""
TOPOLOGY_KEYS: Final = "scheduling.mooring.dev/topology-keys"
"""Annotation of a group: node labels, the widest domain first, separated by commas."""
TOPOLOGY_MODE: Final = "scheduling.mooring.dev/topology-mode"
"""Annotation of a group: `Required` (default) or `Preferred`, for its topology keys."""
NODES_RESERVED: Final = "scheduling.mooring.dev/NodesReserved"
"""The type of the condition that shows a group's reserved nodes."""
DISRUPTION_MODE: Final = "scheduling.mooring.dev/disruption-mode"
"""Annotation of a group without `disruptionMode` in its API: `Pod` (default) or `PodGroup`."""
MAX_TOPOLOGY_KEYS: Final = 8
"""The most topology keys of a group; more are a mistake. Data centres have three to five levels."""

_CONDITIONS: Final = {
    "PodGroupScheduled": "scheduled",
    "PodGroupInitiallyScheduled": "scheduled",
    NODES_RESERVED: "reserved",
}
"""Maps the type of a condition to a field of `PodGroupStatus`."""
_CONDITIONS_OF_VOLCANO: Final = {"Scheduled": "scheduled", NODES_RESERVED: "reserved"}
"""Maps Volcano's condition types to fields of `PodGroupStatus`; in the objects of other APIs, a
condition `Scheduled` has another meaning."""
_LONGEST_ANNOTATION: Final = 8 * 320
_LONGEST_NAME: Final = 253
_LONGEST_NUMBER: Final = 12
"""The most characters of a number in a label or annotation; a longer number is out of range."""


class GroupSource(StrEnum):
    """The ways in which members name their group; users see the values."""

    KUBERNETES = "podgroups.scheduling.k8s.io"
    COSCHEDULING = "podgroups.scheduling.x-k8s.io"
    VOLCANO = "podgroups.scheduling.volcano.sh"
    KAI = "podgroups.scheduling.run.ai"
    GROVE = "podgangs.scheduler.grove.io"
    YUNIKORN = "applications.yunikorn.apache.org"
    PODS = "pods"

    @property
    def has_object(self) -> bool:
        """Whether an object defines the group; otherwise the members' labels define it."""
        return self not in (GroupSource.YUNIKORN, GroupSource.PODS)

    @property
    def has_status(self) -> bool:
        """Whether Mooring writes and reads the status of the group's object."""
        return self in _WITH_STATUS


_WITH_STATUS: Final = (GroupSource.KUBERNETES, GroupSource.COSCHEDULING, GroupSource.VOLCANO)
_ROLE_KEYS: Final = {
    GroupSource.VOLCANO: "volcano.sh/task-spec",
    GroupSource.KAI: "kai.scheduler/subgroup-name",
    GroupSource.GROVE: "grove.io/podclique",
    GroupSource.YUNIKORN: TASK_GROUP_NAME,
}
"""The label or annotation that names a member's role in its group, by `GroupSource`."""


def role_of(pod: Pod, source: GroupSource) -> str:
    """Return the pod's role in its group; "" if the pod names no role."""
    key = _ROLE_KEYS.get(source)
    return pod.labels.get(key) or pod.annotations.get(key) or "" if key is not None else ""


class GroupKey(NamedTuple):
    """The identity of a group. The same name in two sources means two groups."""

    source: GroupSource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> str:
        """The group as text: `podgroups.scheduling.k8s.io/team-a/train`."""
        return f"{self.source.value}/{self.namespace}/{self.name}"


class Reservation(NamedTuple):
    """A reservation of nodes for a group that waits long.

    Attributes:
        group: The group.
        until: The end of the reservation, in seconds since the epoch.
        priority: Pods with a lower priority must leave room for the group.
        backfill_until: A pod that ends by this time may still run on the reserved nodes.
    """

    group: GroupKey
    until: float
    priority: int
    backfill_until: float = -math.inf

    def text_for(self, namespace: str) -> str:
        """Return the end of the reservation as a sentence for the users of this namespace.

        The sentence hides the group's name from users of other namespaces.
        """
        is_own = self.group.namespace == namespace
        return self._text(
            f"podgroup/{self.group.name}" if is_own else "a pod group of another namespace"
        )

    @property
    def text(self) -> str:
        """The group and the end of its reservation, as a sentence."""
        return self._text(f"podgroup/{self.group}")

    def _text(self, group: str) -> str:
        return f"reserved for {group} until {self.clock_time}"

    @property
    def clock_time(self) -> str:
        """The end of the reservation, as `14:05 UTC`."""
        return f"{datetime.fromtimestamp(self.until, UTC):%H:%M} UTC"


class DisruptionMode(StrEnum):
    """Whether members can be preempted one by one, or only the whole group."""

    POD = "Pod"
    POD_GROUP = "PodGroup"


class GroupTopology(NamedTuple):
    """The topology domain for the members of a group; without keys, they may be on any node.

    `keys` are node labels, the widest domain first (block, rack, host). All members are placed in
    one domain. If `required` is False and no domain has room, members may be spread over several
    domains. With the key HYPER_NODE_KEY, the domains are HyperNodes with tiers up to
    `highest_tier`: a number, a name, or None for all tiers.
    """

    keys: tuple[str, ...] = ()
    required: bool = True
    highest_tier: int | str | None = None


_ANYWHERE: Final = GroupTopology()


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """A condition of a group: whether it was scheduled, or whether nodes are reserved for it.

    `kind` is its type: PodGroupScheduled (PodGroupInitiallyScheduled in v1beta1, Scheduled in
    Volcano), or `NODES_RESERVED`.
    """

    kind: str
    status: str
    reason: str
    message: str
    generation: int
    since: str
    """The condition's `lastTransitionTime`, a text: when `status` last changed; "" if not set."""


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    """The status of a group's object; only coscheduling and Volcano have `phase` and counts."""

    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    started: str = ""
    """The field `scheduleStartTime`, a text: when the first attempt to place the group began; "" if
    not set."""
    occupied_by: str = ""
    scheduled: GroupCondition | None = None
    reserved: GroupCondition | None = None
    claim_names: Mapping[str, str | None] = field(default_factory=dict)
    """Maps the name of each entry of the group's resourceClaims to the claim that was created for
    it."""

    @property
    def reserved_until(self) -> float | None:
        """When the reservation in the status ends, in epoch seconds; None without a reservation."""
        if self.reserved is None or self.reserved.status != "True":
            return None
        *_, time = self.reserved.message.rpartition(" until ")
        with suppress(ManifestError):
            return timestamp({"until": time}, "until", "status")
        return None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The requirements of a group, which its object or the labels of its members state.

    Attributes:
        uid: The uid of the object; empty if there is no object.
        created: Seconds since the epoch.
        generation: The object's `metadata.generation`.
        version: The object's `metadata.resourceVersion`; `==` ignores this field.
        minimum: The number of members that are placed together or not at all; with 0 or 1, a member
            may be placed without others.
        roles: The minimum number of members with a role, by role.
        gang: False for the policy `basic`, which has no minimum.
        priority: The object's priority; None: the highest priority of the members is used.
        preempts: Whether the members may preempt; None: each member's own policy is used.
        min_resources: The resources that must be free for the group: millicores, bytes, counts.
        invalid: The mistake in the object, as a sentence; None if there is no mistake.
        resource_claims: The group's own claims for devices (DRAWorkloadResourceClaims).
        queue: The name of the members' Queue; "" if the object names none.
        ignored: Fields that are set in the object but have no effect in Mooring.
    """

    key: GroupKey
    uid: str = ""
    created: float = 0.0
    generation: int = 0
    version: str = field(default="", compare=False)
    minimum: int = 0
    roles: Mapping[str, int] = field(default_factory=dict)
    gang: bool = True
    topology: GroupTopology = _ANYWHERE
    disruption_mode: DisruptionMode = DisruptionMode.POD
    priority: int | None = None
    preempts: bool | None = None
    min_resources: Mapping[str, int] = field(default_factory=dict)
    invalid: str | None = None
    status: PodGroupStatus = PodGroupStatus()
    resource_claims: tuple[PodClaim, ...] = ()
    queue: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def requirements(self) -> Hashable:
        """The requirements of the group, without its name, age and status, for comparisons."""
        return (
            self.minimum,
            frozenset(self.roles.items()),
            self.gang,
            self.topology,
            self.disruption_mode,
            self.priority,
            self.preempts,
            frozenset(self.min_resources.items()),
            self.invalid,
            self.resource_claims,
        )

    @property
    def namespace(self) -> str:
        """The namespace of the group and of its members."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """The name of the group's object, or the name that its members state."""
        return self.key.name

    @property
    def initially_scheduled(self) -> bool:
        """Whether the status says that the group has been placed once.

        The value stays True even if members end or are replaced.
        """
        scheduled = self.status.scheduled
        if scheduled is not None and scheduled.status == "True":
            return True
        return self.status.phase in ("Running", "Finished", "Failed", "Completed")


class GroupFormat(NamedTuple):
    """A label or annotation by which pods name their group.

    Attributes:
        name_key: The label or annotation with the group's name; a label takes precedence.
        minimum_key: The label or annotation with the group's minimum; without it, the minimum is 1.
        source: The source of the groups. Even if the source has objects, a pod with `minimum_key`
            is in a group without an object.
        expected_key: A pod with this label must name its group before it can be scheduled.
        queue_keys: Labels or annotations that name the Queue; the first that the pod has is used.
    """

    name_key: str
    minimum_key: str | None = None
    source: GroupSource = GroupSource.PODS
    expected_key: str | None = None
    queue_keys: tuple[str, ...] = ()

    def name_of(self, pod: Pod) -> str | None:
        """Return the name of the pod's group; "" if not yet known, None if the pod has no group."""
        if self.source is GroupSource.YUNIKORN and not in_task_group(pod):
            return None
        name = pod.labels.get(self.name_key) or pod.annotations.get(self.name_key)
        return name or ("" if self.expected_key in pod.labels else None)

    def minimum_of(self, pod: Pod) -> str:
        """Return the group's minimum as the pod writes it, unchecked; "" if the pod has none."""
        if self.minimum_key is None:
            return ""
        labels, annotations = pod.labels, pod.annotations
        return labels.get(self.minimum_key) or annotations.get(self.minimum_key) or ""


@naming_the_object("PodGroup")
def parse_pod_group(raw: Mapping[str, Any]) -> PodGroup:
    """Parse a PodGroup of `scheduling.k8s.io`, v1alpha2, v1alpha3 or v1beta1.

    Raises ManifestError only for malformed metadata. A mistake in the spec sets the group's field
    `invalid`.
    """
    return _parsed(raw, GroupSource.KUBERNETES, _kubernetes_spec)


@naming_the_object("PodGroup")
def parse_coscheduling_pod_group(raw: Mapping[str, Any]) -> PodGroup:
    """Parse a PodGroup of `scheduling.x-k8s.io/v1alpha1`; see `parse_pod_group` for errors.

    A PodGroup of `scheduling.sigs.k8s.io/v1alpha1` has the same fields.
    """
    return _parsed(raw, GroupSource.COSCHEDULING, _coscheduling_spec)


@naming_the_object("PodGroup")
def parse_volcano_pod_group(raw: Mapping[str, Any]) -> PodGroup:
    """Parse a PodGroup of `scheduling.volcano.sh/v1beta1`; see `parse_pod_group` for errors.

    As in Volcano, the roles' minimums (`minTaskMember`) are ignored if their sum is greater than
    `minMember` (job_info.go, CheckTaskValid).
    """
    return _parsed(raw, GroupSource.VOLCANO, _volcano_spec)


@naming_the_object("PodGroup")
def parse_kai_pod_group(raw: Mapping[str, Any]) -> PodGroup:
    """Parse a PodGroup of `scheduling.run.ai/v2alpha2`; see `parse_pod_group` for errors.

    Its subgroups become roles. The group is `invalid` if a subgroup has a topology of its own.
    """
    return _parsed(raw, GroupSource.KAI, _kai_spec)


@naming_the_object("PodGang")
def parse_pod_gang(raw: Mapping[str, Any]) -> PodGroup:
    """Parse a PodGang of `scheduler.grove.io/v1alpha1`; see `parse_pod_group` for errors.

    Its groups of pods become roles. The PodGang is `invalid` if a group of pods must be in a
    topology domain of its own.
    """
    return _parsed(raw, GroupSource.GROVE, _grove_spec)


class DeclaredByPod(NamedTuple):
    """The requirements of a group that one member declares in its labels and annotations.

    If members declare different requirements, the greatest of their `DeclaredByPod` tuples is used,
    as Python compares tuples. So the order of the members does not matter.
    """

    minimum: int
    topology: GroupTopology
    disruption_mode: DisruptionMode
    invalid: str
    roles: Numbers = ()
    resources: Numbers = ()

    @classmethod
    def by(cls, pod: Pod, form: GroupFormat) -> "DeclaredByPod | None":
        """Return the requirements that the pod states for its group; None if there are none.

        If the requirements are malformed, the field `invalid` of the result states the mistake.
        """
        try:
            minimum, roles, resources = _declared_minimums(pod, form)
            fields = _annotated(pod.annotations)
        except ManifestError as error:
            return cls(0, _ANYWHERE, DisruptionMode.POD, str(error))
        if minimum is None:
            return None
        return cls(minimum, fields.topology, fields.disruption_mode, "", roles, resources)


def _declared_minimums(pod: Pod, form: GroupFormat) -> tuple[int | None, Numbers, Numbers]:
    """Return the minimum, the minimums by role, and the sum of requests that the pod declares."""
    if form.source is GroupSource.YUNIKORN:
        if (groups := task_groups_of(pod)) is None:
            return None, (), ()
        return _with_roles(0, dict(groups.minimums))["minimum"], *groups
    written = form.minimum_of(pod)
    return _number(written, f"{form.minimum_key}") if written else 1, (), ()


def group_of_members(key: GroupKey, declared: DeclaredByPod, created: float) -> PodGroup:
    """Return the group that its members' labels define, for a group without an object."""
    return PodGroup(
        key=key,
        created=created,
        minimum=declared.minimum,
        roles=dict(declared.roles),
        min_resources=dict(declared.resources),
        topology=declared.topology,
        disruption_mode=declared.disruption_mode,
        invalid=declared.invalid or None,
    )


def consumer_of(pod: Pod, claim: ResourceClaim, group: PodGroup | None) -> ConsumerReference:
    """Return the consumer to write into the claim: the pod, or its group.

    The consumer is the group if both the pod and the group list the claim (resourceclaim.go,
    BindTo).
    """
    if group is not None and group.resource_claims:
        for entry in pod.spec.resource_claims:
            names_it = claim.name == (entry.claim or pod.claim_names.get(entry.name))
            if names_it and entry in group.resource_claims:
                return ConsumerReference("scheduling.k8s.io", "podgroups", group.name, group.uid)
    return ConsumerReference("", "pods", pod.name, pod.uid)


_SpecParser = Callable[[Mapping[str, Any], Mapping[str, str]], dict[str, Any]]


class _Annotated(NamedTuple):
    topology: GroupTopology
    disruption_mode: DisruptionMode


def _parsed(raw: Mapping[str, Any], source: GroupSource, parse_spec: _SpecParser) -> PodGroup:
    metadata = mapping(raw, "metadata")
    fields: dict[str, Any] = {
        "key": GroupKey(source, namespace_of(raw), name_of(raw)),
        "uid": text(metadata, "uid", "metadata"),
        "created": timestamp(metadata, "creationTimestamp", "metadata") or 0.0,
        "generation": integer(metadata, "generation", "metadata") or 0,
        "version": text(metadata, "resourceVersion", "metadata"),
    }
    annotations = strings(metadata, "annotations", "metadata")
    if source.has_status:
        with suppress(ManifestError):  # a status that cannot be read is written anew
            of_volcano = source is GroupSource.VOLCANO
            conditions = _CONDITIONS_OF_VOLCANO if of_volcano else _CONDITIONS
            fields["status"] = _status(mapping(raw, "status"), conditions)
    try:
        fields |= parse_spec(mapping(raw, "spec"), annotations)
    except ManifestError as error:
        fields["invalid"] = str(error)
    return PodGroup(**fields)


def _coscheduling_spec(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    resources = dict(mapping(spec, "minResources", "spec"))
    resources.pop("pods", None)  # the members themselves
    at_most(len(resources), MOST_RESOURCES, "spec.minResources", "resources")
    annotated = _annotated(annotations)
    return {
        "minimum": _within(spec, "minMember", "spec", 0) or 0,
        "min_resources": parse_amounts(resources, "spec.minResources"),
        "topology": annotated.topology,
        "disruption_mode": annotated.disruption_mode,
    }


def _volcano_spec(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    found = _coscheduling_spec(spec, annotations)
    where = "spec.minTaskMember"
    tasks = mapping(spec, "minTaskMember", "spec")
    at_most(len(tasks), MOST_ROLES, where, "roles")
    roles = {task: _within(tasks, task, where, 0) or 0 for task in tasks}
    if not 0 < found["minimum"] < sum(roles.values()):
        found |= _with_roles(found["minimum"], roles, f'{where}[""]')
    if not found["topology"].keys:
        found["topology"] = _network_topology(spec)
    found["queue"] = text(spec, "queue", "spec")
    found["ignored"] = _set(spec, "priorityClassName", "subGroupPolicy")
    return found


def _network_topology(spec: Mapping[str, Any]) -> GroupTopology:
    where = "spec.networkTopology"
    if not (network := mapping(spec, "networkTopology", "spec")):
        return _ANYWHERE
    mode = text(network, "mode", where) or "hard"
    if mode not in ("hard", "soft"):
        raise ManifestError(f"{where}.mode", f"{_shown(mode)} is no mode; write hard or soft")
    tier, name = _within(network, "highestTierAllowed", where, 0), f"{where}.highestTierName"
    highest = text(network, "highestTierName", where) or None if tier is None else tier
    at_most(len(highest) if isinstance(highest, str) else 0, _LONGEST_NAME, name, "characters")
    required = mode == "hard" and highest is not None
    return GroupTopology((HYPER_NODE_KEY,), required, highest)


def _kai_spec(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    annotated = _annotated(annotations)
    groups = mappings(spec, "subGroups", "spec")
    at_most(len(groups), MOST_ROLES, "spec.subGroups", "groups")
    parent_of = {
        text(group, "name", "spec.subGroups"): text(group, "parent", "spec.subGroups")
        for group in groups
    }
    rooted, parents, roles = {""}, {*parent_of.values()} - {""}, dict[str, int]()
    while more := {name for name, parent in parent_of.items() if parent in rooted} - rooted:
        rooted |= more
    for index, group in enumerate(groups):
        where = f"spec.subGroups[{index}]"
        if (name := text(group, "name", where)) in roles:
            raise ManifestError(f"{where}.name", f"{_shown(name)} is the name of another group too")
        least = _within(group, "minMember", where, 0)
        if name not in rooted:
            what = f"{_shown(parent_of[name])} leads to no group without a parent"
            raise ManifestError(f"{where}.parent", what)
        roles[name] = 0 if name in parents else 1 if least is None else least
        _check_parts(group, where, annotated.topology, "requiredTopologyLevel")
    least = _within(spec, "minMember", "spec", 1)
    if groups and not any(roles.values()) and least is None:
        raise ManifestError("spec.subGroups", "has no group with minMember of 1 or more")
    domain = mapping(spec, "topologyConstraint", "spec")
    required = text(domain, "requiredTopologyLevel", "spec.topologyConstraint")
    preferred = text(domain, "preferredTopologyLevel", "spec.topologyConstraint")
    return _with_roles(least or (0 if roles else 1), roles, "spec.subGroups[{}]") | {
        "topology": _levels(required, preferred) or annotated.topology,
        "disruption_mode": annotated.disruption_mode,
        "queue": text(spec, "queue", "spec"),
        "ignored": _set(spec, "priorityClassName", "preemptibility", "minSubGroup"),
    }


def _grove_spec(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    annotated = _annotated(annotations)
    groups = mappings(spec, "podgroups", "spec")
    parts = mappings(spec, "topologyConstraintGroupConfigs", "spec")
    at_most(max(len(groups), len(parts)), MOST_ROLES, "spec", "groups")
    path = ("packConstraint", "required")
    roles = dict[str, int]()
    for index, group in enumerate(groups):
        where = f"spec.podgroups[{index}]"
        if (name := text(group, "name", where)) in roles:
            raise ManifestError(f"{where}.name", f"{_shown(name)} is the name of another group too")
        roles[name] = _within(group, "minReplicas", where, 0) or 0
        _check_parts(group, where, annotated.topology, *path)
    for index, part in enumerate(parts):
        where = f"spec.topologyConstraintGroupConfigs[{index}]"
        _check_parts(part, where, annotated.topology, *path)
    if not any(roles.values()):
        raise ManifestError("spec.podgroups", "has no group with minReplicas of 1 or more")
    pack = mapping(mapping(spec, "topologyConstraint", "spec"), path[0], "spec.topologyConstraint")
    levels = (
        text(pack, name, "spec.topologyConstraint.packConstraint")
        for name in ("required", "preferred")
    )
    return _with_roles(0, roles, "spec.podgroups[{}]") | {
        "topology": _levels(*levels) or annotated.topology,
        "disruption_mode": annotated.disruption_mode,
        "ignored": _set(spec, "priorityClassName", "reuseReservationRef"),
    }


def _levels(required: str, preferred: str) -> GroupTopology | None:
    keys = tuple(dict.fromkeys(key for key in (required, preferred) if key))
    return GroupTopology(keys, required=bool(required)) if keys else None


def _check_parts(part: Mapping[str, Any], where: str, annotated: GroupTopology, *path: str) -> None:
    found, where = mapping(part, "topologyConstraint", where), f"{where}.topologyConstraint"
    for name in path[:-1]:
        found, where = mapping(found, name, where), f"{where}.{name}"
    # If an annotation confines the whole group to a domain, the parts need none.
    if text(found, path[-1], where) and not annotated.keys:
        raise ManifestError(
            f"{where}.{path[-1]}",
            "confines a part of the group to a domain, which Mooring does not do; to confine the "
            f"whole group, write node labels into the annotation {TOPOLOGY_KEYS}",
        )


def _set(spec: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    return tuple(f"spec.{name}" for name in names if spec.get(name))


def _kubernetes_spec(spec: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    if text(spec, "parentCompositePodGroupName", "spec"):
        raise ManifestError(
            "spec.parentCompositePodGroupName",
            "makes the group a part of a CompositePodGroup, which Mooring does not place together; "
            "make groups without it",
        )
    where = "spec.schedulingPolicy"
    policy = mapping(spec, "schedulingPolicy", "spec")
    gang = optional_mapping(policy, "gang", where)
    minimum = _within(gang, "minCount", f"{where}.gang", 1) if gang is not None else None
    if gang is not None and minimum is None:
        raise ManifestError(f"{where}.gang.minCount", "is missing; it must be 1 or more")
    annotated = _annotated(annotations)
    constraints = mapping(spec, "schedulingConstraints", "spec")
    topology = mappings(constraints, "topology", "spec.schedulingConstraints")
    at_most(len(topology), MAX_TOPOLOGY_KEYS, "spec.schedulingConstraints.topology", "keys")
    keys = tuple(
        text(constraint, "key", f"spec.schedulingConstraints.topology[{index}]")
        for index, constraint in enumerate(topology)
    )
    return {
        "minimum": minimum or 0,
        "gang": gang is not None,
        "topology": GroupTopology(keys) if keys else annotated.topology,
        "disruption_mode": _disruption_mode(spec) or annotated.disruption_mode,
        "priority": integer(spec, "priority", "spec"),
        "preempts": _preempts(spec),
        "resource_claims": parse_pod_claims(spec),
    }


def _preempts(spec: Mapping[str, Any]) -> bool | None:
    policy = text(spec, "preemptionPolicy", "spec")
    if policy not in ("", "Never", "PreemptLowerPriority"):
        raise ManifestError(
            "spec.preemptionPolicy",
            f"{_shown(policy)} is no policy; write Never or PreemptLowerPriority",
        )
    return policy != "Never" if policy else None


def _disruption_mode(spec: Mapping[str, Any]) -> DisruptionMode | None:
    value = spec.get("disruptionMode")
    if value is None:
        return None
    # A text in v1alpha2, later an object.
    if isinstance(value, str):
        return _mode(value, "spec.disruptionMode")
    chosen = mapping(spec, "disruptionMode", "spec")
    if optional_mapping(chosen, "all", "spec.disruptionMode") is not None:
        return DisruptionMode.POD_GROUP
    if optional_mapping(chosen, "single", "spec.disruptionMode") is not None:
        return DisruptionMode.POD
    raise ManifestError("spec.disruptionMode", "is neither `single` nor `all`")


def _annotated(annotations: Mapping[str, str]) -> _Annotated:
    keys = _topology_keys(annotations.get(TOPOLOGY_KEYS, ""))
    mode = annotations.get(TOPOLOGY_MODE, "Required")
    if mode not in ("Required", "Preferred"):
        raise ManifestError(
            f"metadata.annotations.{TOPOLOGY_MODE}",
            f"{_shown(mode)} is not a mode; write Required or Preferred",
        )
    disruption = annotations.get(DISRUPTION_MODE, DisruptionMode.POD)
    return _Annotated(
        GroupTopology(keys, required=mode == "Required"),
        _mode(disruption, f"metadata.annotations.{DISRUPTION_MODE}"),
    )


def _topology_keys(value: str) -> tuple[str, ...]:
    where = f"metadata.annotations.{TOPOLOGY_KEYS}"
    at_most(len(value), _LONGEST_ANNOTATION, where, "characters")
    keys = tuple(key for part in value.split(",") if (key := part.strip()))
    at_most(len(keys), MAX_TOPOLOGY_KEYS, where, "keys")
    if len(set(keys)) < len(keys):
        raise ManifestError(where, "names a node label twice")
    return keys


def _mode(value: str, where: str) -> DisruptionMode:
    try:
        return DisruptionMode(value)
    except ValueError:
        raise ManifestError(
            where, f"{_shown(value)} is not a mode; write Pod or PodGroup"
        ) from None


def _with_roles(minimum: int, roles: Mapping[str, int], where: str = "") -> dict[str, Any]:
    of_roles = {role: least for role, least in roles.items() if least}
    if "" in of_roles:
        # `where` has `{}` for the index of a role.
        path = where.format([*roles].index(""))
        raise ManifestError(path, "needs a name, because it has a minimum")
    return {"minimum": min(max(minimum, sum(of_roles.values())), MAX_INT32), "roles": of_roles}


def _within(raw: Mapping[str, Any], field: str, where: str, least: int) -> int | None:
    value = integer(raw, field, where)
    if value is not None and not least <= value <= MAX_INT32:
        shown = str(value) if abs(value) < 10**18 else "out of range"
        raise ManifestError(f"{where}.{field}", f"is {shown}; it must be {least} to {MAX_INT32}")
    return value


def _number(written: str, where: str) -> int:
    short = written if len(written) <= _LONGEST_NUMBER else ""
    if not (short.isascii() and short.isdigit() and int(short) <= MAX_INT32):
        raise ManifestError(where, f"is {_shown(written)}; it must be 0 to {MAX_INT32}")
    return int(short)


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else f"{value[:40]}...")


def _status(raw: Mapping[str, Any], field_of: Mapping[str, str]) -> PodGroupStatus:
    known: dict[str, GroupCondition] = {}
    for index, condition in enumerate(mappings(raw, "conditions", "status")):
        where = f"status.conditions[{index}]"
        kind = text(condition, "type", where)
        if name := field_of.get(kind):
            known[name] = GroupCondition(
                kind=kind,
                status=text(condition, "status", where),
                reason=text(condition, "reason", where),
                message=text(condition, "message", where),
                generation=integer(condition, "observedGeneration", where) or 0,
                since=text(condition, "lastTransitionTime", where),
            )
    return PodGroupStatus(
        phase=text(raw, "phase", "status"),
        running=integer(raw, "running", "status") or 0,
        succeeded=integer(raw, "succeeded", "status") or 0,
        failed=integer(raw, "failed", "status") or 0,
        started=text(raw, "scheduleStartTime", "status"),
        occupied_by=text(raw, "occupiedBy", "status"),
        **known,
        claim_names=parse_claim_statuses(raw),
    )
