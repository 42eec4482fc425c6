"""Pod groups: their definitions, and their members by state.

A pod that names a group is a member at once, with or without a node (`docs/gangs.md`). Each group
counts its members by state and role. The counts change when the watch shows a change of a member,
when a decision puts a member on a node, and while a dry run (`ClusterState.trial`) adds or removes
members. A group is known as long as it has a definition or a member. As in kube-scheduler
(backend/cache/podgroupstate.go), finished pods are not members. Terminating pods are kept apart,
because members that leave must not make a group complete.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from mooring.groups.model.pod_group import (
    COSCHEDULING_LABEL,
    DeclaredByPod,
    DisruptionMode,
    GroupFormat,
    GroupKey,
    GroupSource,
    PodGroup,
    Reservation,
    group_of_members,
    role_of,
)
from mooring.groups.model.task_groups import TASK_GROUPS
from mooring.model.events import Kind
from mooring.model.indexes import add_count
from mooring.model.pod import Pod, Uid
from mooring.model.pod_spec import PodSpec
from mooring.state.pods import PlacedPod, PodTable

GROUP_KINDS: Final[Mapping[Kind, GroupSource]] = MappingProxyType(
    {
        Kind.POD_GROUP: GroupSource.KUBERNETES,
        Kind.COSCHEDULING_POD_GROUP: GroupSource.COSCHEDULING,
        Kind.VOLCANO_POD_GROUP: GroupSource.VOLCANO,
        Kind.KAI_POD_GROUP: GroupSource.KAI,
        Kind.POD_GANG: GroupSource.GROVE,
    }
)
"""Maps each kind of object that defines groups to the `GroupSource` of such groups."""

_Value = TypeVar("_Value", bound=Any)


class _Largest(Generic[_Value]):
    """Keeps the largest of many values while values are added and removed."""

    __slots__ = ("_counts", "_values")

    def __init__(self) -> None:
        self._counts: Counter[_Value] = Counter()
        self._values: list[_Value] = []

    def add(self, value: _Value) -> None:
        self._counts[value] += 1
        if self._counts[value] == 1:
            insort(self._values, value)

    def remove(self, value: _Value) -> None:
        self._counts[value] -= 1
        if not self._counts[value]:
            del self._counts[value]
            del self._values[bisect_left(self._values, value)]

    def get(self) -> _Value | None:
        return self._values[-1] if self._values else None


class PodGroupState:
    """The present state of one group; other code only reads it (podgroupstate.go).

    Each member is in one of four mappings by uid: `unscheduled` (without a node), `assumed` (on a
    node, not confirmed by the watch), `assigned` (bound) and `terminating`. The mappings are in the
    order of the members' last changes.
    """

    __slots__ = (
        "__weakref__",
        "_assigned",
        "_assumed",
        "_declared",
        "_defined_by",
        "_first_created",
        "_gated",
        "_priorities",
        "_roles",
        "_roles_on_nodes",
        "_terminating",
        "_unscheduled",
        "_unscheduled_specs",
        "assigned",
        "assumed",
        "declaring",
        "definition",
        "departed_pods_count",
        "key",
        "number",
        "roles_on_nodes",
        "terminating",
        "unscheduled",
        "unscheduled_specs",
    )

    def __init__(self, key: GroupKey, number: int = 0) -> None:
        self.key = key
        self.number = number
        """The group's number in the pod columns; no other group ever gets the same number."""
        self.definition: PodGroup | None = None
        """The group's requirements; None if its members name an object that does not exist."""
        self.declaring = 0
        """The number of members that declare requirements of the group."""
        self.departed_pods_count = 0
        """The number of bound members that have ended or left, since the group became known."""
        self._unscheduled: dict[Uid, Pod] = {}
        self._assumed: dict[Uid, PlacedPod] = {}
        self._assigned: dict[Uid, PlacedPod] = {}
        self._terminating: dict[Uid, Pod] = {}
        self.unscheduled: Mapping[Uid, Pod] = MappingProxyType(self._unscheduled)
        self.assumed: Mapping[Uid, PlacedPod] = MappingProxyType(self._assumed)
        self.assigned: Mapping[Uid, PlacedPod] = MappingProxyType(self._assigned)
        self.terminating: Mapping[Uid, Pod] = MappingProxyType(self._terminating)
        self._unscheduled_specs: Counter[PodSpec] = Counter()
        self.unscheduled_specs: Mapping[PodSpec, int] = MappingProxyType(self._unscheduled_specs)
        """Maps a spec to the number of members that have this spec and no node."""
        self._roles: Counter[str] = Counter()
        """Maps a role to the number of its members; terminating members are not counted."""
        self._gated: Counter[str] = Counter()
        """Maps a role to the number of its members with scheduling gates."""
        self._roles_on_nodes: Counter[str] = Counter()
        self.roles_on_nodes: Mapping[str, int] = MappingProxyType(self._roles_on_nodes)
        """Maps a role to the number of its members on nodes, without terminating members."""
        self._priorities: _Largest[int] = _Largest()
        self._declared: _Largest[DeclaredByPod] = _Largest()
        self._first_created = float("inf")
        self._defined_by: tuple[DeclaredByPod, float] | None = None

    @property
    def all_pods_count(self) -> int:
        """The number of members; terminating members are not counted."""
        return len(self._unscheduled) + len(self._assumed) + len(self._assigned)

    @property
    def scheduled_pods_count(self) -> int:
        """The number of members on nodes; terminating members are not counted."""
        return len(self._assumed) + len(self._assigned)

    @property
    def on_nodes(self) -> Iterator[PlacedPod]:
        """The members on nodes, without terminating members."""
        yield from self._assumed.values()
        yield from self._assigned.values()

    @property
    def minimum(self) -> int:
        """The number of members that are placed together or not at all; 0 without a definition."""
        return self.definition.minimum if self.definition is not None else 0

    @property
    def is_scheduled_together(self) -> bool:
        """Whether one decision places all members.

        False only for a group with the policy `basic` and without topology keys.
        """
        definition = self.definition
        return definition is None or definition.gang or bool(definition.topology.keys)

    @property
    def roles(self) -> Mapping[str, int]:
        """Maps a role to its minimum number of members."""
        return self.definition.roles if self.definition is not None else {}

    def role_of(self, pod: Pod) -> str:
        """Return the member's role; "" for a member without a role."""
        return role_of(pod, self.key.source)

    @property
    def lacking(self) -> int:
        """The number of members that must still get a node to reach all minimums."""
        of_roles = sum(max(0, n - self._roles_on_nodes[role]) for role, n in self.roles.items())
        return max(0, self.minimum - self.scheduled_pods_count, of_roles)

    def short_of(self, pods: Collection[Pod]) -> str | None:
        """Return a text like `3 of 4 members` if `pods` do not reach the minimums; else None.

        `pods` are members without a node; members on nodes are counted, too. At least one pod is
        always needed.
        """
        if self.roles:
            of_roles = Counter(map(self.role_of, pods))
            for role, minimum in self.roles.items():
                lacking = minimum - self._roles_on_nodes[role]
                if of_roles[role] < lacking:
                    return f"{of_roles[role]} of {lacking} members of role {role}"
        needed = max(self.lacking, 1)
        return f"{len(pods)} of {needed} members" if len(pods) < needed else None

    def needed_of(self, pods: Sequence[Pod]) -> tuple[Sequence[Pod], Sequence[Pod]]:
        """Split the members into two lists: those that the minimums need, and the others.

        At least one member is needed, even if the minimums are already reached.
        """
        left = {role: n - self._roles_on_nodes[role] for role, n in self.roles.items()}
        needed, others = list[Pod](), pods
        if left:
            others = []
            for pod in pods:
                role = self.role_of(pod)
                (needed if left.get(role, 0) > 0 else others).append(pod)
                left[role] = left.get(role, 0) - 1
        more = max(self.lacking, 1) - len(needed)
        return [*needed, *others[:more]], others[more:]

    def is_enough(self, pods: Iterable[Pod], others: int = 0) -> bool:
        """Return whether these members reach the group's minimum and the minimum of each role.

        `others` is the number of further members without a role. Zero members are never enough.
        """
        of_roles = Counter(map(self.role_of, pods))
        return of_roles.total() + others >= max(self.minimum, 1) and all(
            of_roles[role] >= minimum for role, minimum in self.roles.items()
        )

    def has_no_spare(self, role: str) -> bool:
        """Return whether the group becomes incomplete if a member with this role leaves.

        Members with scheduling gates are not counted.
        """
        is_last = self._roles[role] - self._gated[role] == self.roles.get(role, -1)
        return is_last or self.all_pods_count - self._gated.total() == self.minimum

    def has_on_node(self, uid: Uid) -> bool:
        """Return whether the pod of this uid is a member on a node and not terminating."""
        return uid in self._assumed or uid in self._assigned

    @property
    def missing(self) -> int:
        """The number of members that must still be created before the group can be placed."""
        of_roles = sum(max(0, n - self._roles[role]) for role, n in self.roles.items())
        return max(0, self.minimum - self.all_pods_count, of_roles)

    @property
    def incomplete(self) -> str | None:
        """A sentence for users: why the group cannot be placed yet; None if nothing is missing."""
        if self.definition is None:
            return self._why_undefined
        if self.definition.invalid is not None:
            return self.definition.invalid
        for role, minimum in self.roles.items():
            if self._roles[role] < minimum:
                return f"{self._roles[role]} of {minimum} members of role {role} exist"
        if self.missing:
            return f"{self.all_pods_count} of {self.minimum} members exist"
        return self._why_gated if self._gated else None

    @property
    def _why_gated(self) -> str | None:
        needs = [(self.minimum, self.all_pods_count - self._gated.total(), "members")]
        for role, minimum in self.roles.items():
            ready = self._roles[role] - self._gated[role]
            needs.append((minimum, ready, f"members of role {role}"))
        short = (each for each in needs if each[1] < each[0])
        for minimum, ready, what in short:
            return f"{ready} of {minimum} {what} have no scheduling gates"
        return None

    @property
    def _why_undefined(self) -> str:
        if not self.key.name:
            return "the name of its PodGroup is not known: KAI's pod grouper writes it to the pod"
        if self.key.source is GroupSource.YUNIKORN:
            return f"no pod of application {self.key} has the annotation {TASK_GROUPS}"
        kind = "PodGang" if self.key.source is GroupSource.GROVE else "PodGroup"
        return f"{kind} {self.key} does not exist"

    @property
    def surplus(self) -> int:
        """How many members on nodes the group can lose without falling below any minimum."""
        on_nodes = self._roles_on_nodes
        of_roles = sum(min(n, on_nodes[role]) for role, n in self.roles.items())
        return max(0, self.scheduled_pods_count - max(self.minimum, of_roles))

    def surplus_of(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        """Yield as many of these placed members as the group can lose, in the given order."""
        surplus, on_nodes = self.surplus, self._roles_on_nodes.copy()
        for pod in pods:
            role = self.role_of(pod)
            if surplus and on_nodes[role] > self.roles.get(role, 0):
                on_nodes[role] -= 1
                surplus -= 1
                yield pod

    @property
    def priority(self) -> int:
        """The group's own priority; else the highest priority of its members; else 0."""
        if self.definition is not None and self.definition.priority is not None:
            return self.definition.priority
        return self._priorities.get() or 0

    @property
    def created(self) -> float:
        """The creation time of the group's object, or else of its oldest member, in epoch seconds.

        Former members are included. The time is infinite if there was never a member.
        """
        if self.definition is not None and self.key.source.has_object:
            return self.definition.created
        return self._first_created

    def with_members(self, pods: Iterable[Pod], without: Container[Uid]) -> "PodGroupState":
        """Return a copy of the group with the new members `pods`, but not those in `without`.

        `pods` must have no nodes. The copy has no terminating members. The caller may change only
        the copy's definition.
        """
        found = PodGroupState(self.key, self.number)
        found.definition, found._priorities = self.definition, self._priorities
        found._unscheduled.update(_without(self._unscheduled, without))
        found._unscheduled.update((pod.uid, pod) for pod in pods)
        found._assumed.update(_without(self._assumed, without))
        found._assigned.update(_without(self._assigned, without))
        placed = [placed.pod for placed in found.on_nodes]
        found._roles_on_nodes.update(map(self.role_of, placed))
        found._roles.update(map(self.role_of, chain(placed, found._unscheduled.values())))
        gated = (pod for pod in found._unscheduled.values() if pod.spec.gates)
        found._gated.update(map(self.role_of, gated))
        return found

    def _add(self, pod: Pod, placed: PlacedPod | None, declared: DeclaredByPod | None) -> None:
        if pod.terminating:
            self._terminating[pod.uid] = pod
            return
        if placed is None:
            self._unscheduled[pod.uid] = pod
            self._unscheduled_specs[pod.spec] += 1
        elif placed.assumed:
            self._assumed[pod.uid] = placed
        else:
            self._assigned[pod.uid] = placed
        self._count_role(pod, 1, placed=placed is not None)
        self._first_created = min(self._first_created, pod.created)
        self._priorities.add(pod.spec.priority)
        if declared is not None:
            self.declaring += 1
            self._declared.add(declared)
            self._define_by_members()

    def _remove(self, pod: Pod, declared: DeclaredByPod | None) -> None:
        if self._terminating.pop(pod.uid, None) is not None:
            return
        is_placed = self._unscheduled.pop(pod.uid, None) is None
        if not is_placed:
            add_count(self._unscheduled_specs, pod.spec, -1)
        self._assumed.pop(pod.uid, None)
        self._assigned.pop(pod.uid, None)
        self._count_role(pod, -1, placed=is_placed)
        self._priorities.remove(pod.spec.priority)
        if declared is not None:
            self.declaring -= 1
            self._declared.remove(declared)
            self._define_by_members()

    def _count_role(self, pod: Pod, number: int, *, placed: bool) -> None:
        role = self.role_of(pod)
        add_count(self._roles, role, number)
        if placed:
            add_count(self._roles_on_nodes, role, number)
        elif pod.spec.gates:
            add_count(self._gated, role, number)

    def _define_by_members(self) -> None:
        declared = self._declared.get()
        source = None if declared is None else (declared, self._first_created)
        if source == self._defined_by:
            return
        self._defined_by = source
        self.definition = group_of_members(self.key, *source) if source is not None else None


@dataclass(frozen=True, slots=True)
class _Member:
    group: PodGroupState
    pod: Pod
    declared: DeclaredByPod | None


class PodGroups:
    """All pod groups. Only `ClusterState` calls the methods that change this object."""

    def __init__(self, pods: PodTable) -> None:
        self._pods = pods
        self._groups: dict[GroupKey, PodGroupState] = {}
        self._formats: tuple[GroupFormat, ...] = ()
        self._with_surplus: dict[GroupKey, PodGroupState] = {}
        self._disrupted_whole: dict[GroupKey, PodGroupState] = {}
        self._unscheduled: dict[Uid, Pod] = {}
        self.unscheduled: Mapping[Uid, Pod] = MappingProxyType(self._unscheduled)
        """All pods without a node, by uid."""
        self._placed: dict[Uid, PlacedPod] = {}
        self._members: dict[Uid, _Member] = {}
        self._numbers = count()
        self._changed: dict[GroupKey, None] | None = None
        self._emptied: dict[GroupKey, PodGroupState] | None = None
        """The groups that have lost all members in the present trial; None outside of trials."""

    @property
    def with_surplus(self) -> Collection[PodGroupState]:
        """The groups that have a minimum and could lose a member on a node (see `surplus`)."""
        return self._with_surplus.values()

    @property
    def disrupted_whole(self) -> Collection[PodGroupState]:
        """The groups that may be disrupted only as a whole and have members on nodes."""
        return self._disrupted_whole.values()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[PodGroupState]:
        return iter(self._groups.values())

    def get(self, key: GroupKey) -> PodGroupState | None:
        """Return the group; None if it has neither a definition nor a member."""
        return self._groups.get(key)

    def of(self, pod: Pod) -> PodGroupState | None:
        """Return the group that the pod names; None without a group, or for an unknown group."""
        key = self.key_of(pod)
        return self._groups.get(key) if key is not None else None

    def key_of(self, pod: Pod) -> GroupKey | None:
        """Return the key of the group that the pod names, even if unknown; None without a group."""
        return self.named_by(pod)[0]

    def named_by(self, pod: Pod) -> tuple[GroupKey | None, GroupFormat | None]:
        """Return the key of the pod's group, and the format if members define the group.

        The key is None if the pod has no group. The format is None if an object defines the group.
        """
        if pod.scheduling_group is not None:
            key = GroupKey(GroupSource.KUBERNETES, pod.namespace, pod.scheduling_group)
            return key, None
        if name := pod.labels.get(COSCHEDULING_LABEL):
            return GroupKey(GroupSource.COSCHEDULING, pod.namespace, name), None
        for form in self._formats:
            if (named := form.name_of(pod)) is not None:
                if form.source.has_object and not form.minimum_of(pod):
                    return GroupKey(form.source, pod.namespace, named), None
                source = GroupSource.PODS if form.source.has_object else form.source
                return GroupKey(source, pod.namespace, named), form
        return None, None

    def queue_of(self, pod: Pod) -> str:
        """Return the name of the pod's Queue; "" without one.

        A label or annotation of the pod decides first; without it, the pod's group decides.
        """
        for form in self._formats:
            for key in form.queue_keys:
                if name := pod.labels.get(key) or pod.annotations.get(key):
                    return name
        group = self.of(pod) if self._formats else None
        definition = group.definition if group is not None else None
        return definition.queue if definition is not None else ""

    def reservation_of(self, pod: Pod) -> Reservation | None:
        """Return the reservation in the status of the pod's group; None without a reservation."""
        # Only the leader has the reservation itself; other replicas and commands read the status.
        group = self.of(pod)
        definition = group.definition if group is not None else None
        until = definition.status.reserved_until if definition is not None else None
        if definition is None or until is None:
            return None
        own = definition.priority
        return Reservation(definition.key, until, pod.spec.priority if own is None else own)

    def declared_minimum(self, pod: Pod) -> int:
        """Return the minimum that the pod declares for its group; 0 if it declares none."""
        declared = self._declared_by(pod)
        return declared.minimum if declared is not None else 0

    def opened(self, before: Pod, after: Pod) -> PodGroupState | None:
        """Return the pod's group if it is complete because the pod lost its gates; else None."""
        return self.completed_by(after) if before.spec.gates and not after.spec.gates else None

    def counts_otherwise(self, before: Pod, after: Pod) -> bool:
        """Return whether the pod's role, or the requirements that it declares, have changed."""
        key = self.key_of(after)
        roles = [role_of(pod, key.source) for pod in (before, after) if key is not None]
        return len({*roles}) > 1 or self._declared_by(before) != self._declared_by(after)

    def completed_by(self, pod: Pod) -> PodGroupState | None:
        """Return the pod's group if the group is complete only because of this pod; else None."""
        member = self._members.get(pod.uid)
        if member is None or (group := member.group).incomplete is not None:
            return None
        is_declared_by_it = member.declared is not None and group.declaring == 1
        is_last = is_declared_by_it or group.has_no_spare(group.role_of(pod))
        return group if is_last else None

    def _declared_by(self, pod: Pod) -> DeclaredByPod | None:
        _, form = self.named_by(pod)
        return DeclaredByPod.by(pod, form) if form is not None else None

    def take_changed(self) -> dict[GroupKey, None]:
        """Return the keys of groups that changed or disappeared since the last call.

        The first call returns all groups and begins the recording of changes.
        """
        changed = dict.fromkeys(self._groups) if self._changed is None else self._changed
        self._changed = {}
        return changed

    def track(self, formats: tuple[GroupFormat, ...]) -> Iterator[Pod]:
        """Find the group of each pod by the first of these formats that matches, from now on.

        The caller must exhaust the iterator: it assigns each pod to its group, and yields the pod.
        """
        if formats == self._formats:
            return iter(())
        self._formats = formats
        return self._recounted()

    def _recounted(self) -> Iterator[Pod]:
        waiting = (pod for uid, pod in self._unscheduled.items() if self._pods.get(uid) is None)
        for pod in chain((placed.pod for placed in self._pods), waiting):
            if not self._counts_as_named(pod):
                self._count_anew(pod.uid)
            yield pod

    def _counts_as_named(self, pod: Pod) -> bool:
        key, member = self.key_of(pod), self._members.get(pod.uid)
        if member is None or key is None:
            return member is None and key is None
        return member.group.key == key and member.declared == self._declared_by(pod)

    def number_of(self, uid: Uid) -> int | None:
        """Return the number of the pod's group in PodColumns.

        Returns None for a pod without a group, and for a terminating pod.
        """
        member = self._members.get(uid)
        return member.group.number if member is not None and not member.pod.terminating else None

    def define(self, kind: Kind, key: str, definition: PodGroup | None) -> PodGroupState:
        """Set the group's definition, None if its object is gone; return the group."""
        namespace, _, name = key.partition("/")
        group = self._group(GroupKey(GROUP_KINDS[kind], namespace, name))
        group.definition = definition
        self._note(group)
        self._drop_if_empty(group)
        return group

    def put_unscheduled(self, pod: Pod) -> Pod | None:
        """Store a pod without a node; return its former version, or None if the pod is new.

        Pods without a group are kept, too, because new formats may make them members.
        """
        before = self._unscheduled.get(pod.uid)
        self._unscheduled[pod.uid] = pod
        self._count_anew(pod.uid)
        return before

    def drop_unscheduled(self, uid: Uid) -> Pod | None:
        """Remove a pod that is gone or has a node; return its former version, None if unknown."""
        before = self._unscheduled.pop(uid, None)
        if before is not None:
            self._count_anew(uid)
        return before

    def attach(self, placed: PlacedPod) -> None:
        """Count the pod on its node, or count it again. `detach` is the exact reverse."""
        uid = placed.pod.uid
        if uid in self._members or self.key_of(placed.pod) is not None:
            self._placed[uid] = placed
            self._count(uid)

    def detach(self, placed: PlacedPod) -> None:
        """Stop counting the pod on its node; a pod that is still known is then unscheduled."""
        if self._placed.pop(placed.pod.uid, None) is not None:
            self._count(placed.pod.uid)

    def left_its_node(self, pod: Pod) -> None:
        """Count a bound pod that has gone or ended; call this method before `detach`."""
        member = self._members.get(pod.uid)
        if member is not None:
            member.group.departed_pods_count += 1

    def _count_anew(self, uid: Uid) -> None:
        if (placed := self._pods.get(uid)) is not None:
            self._placed[uid] = placed
        self._count(uid)

    def _count(self, uid: Uid) -> None:
        """Remove the pod from its former group's counts, and count it in its present group."""
        member = self._members.pop(uid, None)
        if member is not None:
            member.group._remove(member.pod, member.declared)  # noqa: SLF001 - its writer
            self._note(member.group)
        placed = self._placed.get(uid)
        pod = placed.pod if placed is not None else self._unscheduled.get(uid)
        key, form = (None, None) if pod is None else self.named_by(pod)
        if pod is not None and key is not None:
            declared = DeclaredByPod.by(pod, form) if form is not None else None
            group = self._group(key)
            group._add(pod, placed, declared)  # noqa: SLF001 - its writer
            self._members[uid] = _Member(group, pod, declared)
            self._note(group)
        else:
            self._placed.pop(uid, None)
        if member is not None:
            self._drop_if_empty(member.group)

    def _note(self, group: PodGroupState) -> None:
        if self._changed is not None:
            self._changed[group.key] = None
        definition = group.definition
        whole = definition is not None and definition.disruption_mode is DisruptionMode.POD_GROUP
        whole = whole and group.scheduled_pods_count > 0
        _index(self._with_surplus, group, applies=bool(group.minimum and group.surplus))
        _index(self._disrupted_whole, group, applies=whole)

    def _group(self, key: GroupKey) -> PodGroupState:
        group = self._groups.get(key)
        if group is None:
            group = self._emptied.pop(key, None) if self._emptied else None
            self._groups[key] = group = group or PodGroupState(key, next(self._numbers))
        return group

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Keep groups without members until this context ends, because members may return."""
        outer = self._emptied
        self._emptied = {} if outer is None else outer
        try:
            yield
        finally:
            self._emptied = outer

    def _drop_if_empty(self, group: PodGroupState) -> None:
        if group.definition is None and not group.all_pods_count and not group.terminating:
            self._groups.pop(group.key, None)
            if self._emptied is not None:
                self._emptied[group.key] = group


def _without(members: Mapping[Uid, _Value], uids: Container[Uid]) -> dict[Uid, _Value]:
    return {uid: member for uid, member in members.items() if uid not in uids}


def _index(groups: dict[GroupKey, PodGroupState], group: PodGroupState, *, applies: bool) -> None:
    if applies:
        groups[group.key] = group
    else:
        groups.pop(group.key, None)
