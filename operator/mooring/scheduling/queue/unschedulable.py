"""Groups unschedulable pods by signature; hints run for one pod of each group.

Pods of a group were rejected for the same reasons, and the same events can help them. After such an
event, one pod of the group is tried first, and represents the others (see
`mooring.scheduling.queue.queue`). Pods that are nominated to the event's node are all tried,
because one of them may fit there although another does not. Of pods that no single node rejected,
for example because of quota, only one is tried, even if they are nominated.

The caller makes one step at a time (`run_hints`). If a group has too many events to check, it is
retried without hints, because an attempt costs less.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from mooring.framework.hints import freed_node
from mooring.model.events import ClusterEvent, Kind
from mooring.model.indexes import add_count, drop_item
from mooring.model.pod import Pod, Uid
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.kept_events import EventLog

_MOST_HINTS: Final = 30_000
"""The most hints that may wait, which is a second of work. If more wait, groups with many events
are retried without hints."""
_MISSED: Final = "ScheduleAttemptFailure"
_TOO_MANY_EVENTS: Final = "ForceActivate"
"""The name of the event that moves a pod without a hint, as in kube-scheduler's metrics."""
_FEWEST_EVENTS: Final = 16
"""The fewest events for which a group's hints run, however many groups there are."""


@dataclass(slots=True, eq=False)
class _Group:
    """Pods with the same signature, in the order in which they were added."""

    seen: int
    """The value of `EventLog.end` when the group's hints had last checked all events."""
    next: int
    """The sequence number of the event that the group's hints check next."""
    pods: dict[Uid, QueuedPod] = field(default_factory=dict)
    free: dict[Uid, QueuedPod] = field(default_factory=dict)
    """The pods without a nomination, and all pods that no single node rejected."""
    nominated: dict[str, dict[Uid, QueuedPod]] = field(default_factory=dict)
    """The group's other pods, by the node to which they are nominated."""

    @property
    def first(self) -> QueuedPod | None:
        """The pod to try first; None if the group is empty."""
        return next(iter((self.free or self.pods).values()), None)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An unschedulable pod's signature and nominated node when the pod was added."""

    signature: Hashable
    node: str | None
    since: int
    """The sequence number of the first event after the pod was added."""
    rejected_by: tuple[tuple[str, str], ...]
    """The plugins that rejected the pod, each as (plugin, profile)."""


@dataclass(slots=True, eq=False)
class _Missed:
    """A pod that missed the events from `next` to `end` - 1."""

    queued: QueuedPod
    next: int
    end: int


class Hints(Protocol):
    """Finds signatures and runs hints of unschedulable pods; `QueueingHints` implements it."""

    def signature(self, queued: QueuedPod) -> Hashable:
        """Return a value that is equal for pods that the same events may make schedulable."""

    def nominated_node(self, queued: QueuedPod) -> str | None:
        """Return the name of the node to which the pod is nominated now; None if there is none."""

    def needs_no_hint(self, queued: QueuedPod) -> bool:
        """Return whether an attempt may help the pod although the hints of all events say SKIP."""

    def is_worth_requeuing(
        self, queued: QueuedPod, event: ClusterEvent, *, during_attempt: bool
    ) -> bool:
        """Return whether the event may make the pod schedulable."""

    def is_admitted(self, queued: QueuedPod) -> bool | None:
        """Return whether the PreFilter plugins that rejected the pod would admit the pod now.

        Returns None if a plugin may have rejected the pod at another extension point, if a plugin
        fails, or if the pod is in a group.
        """


class UnschedulablePods:
    """The unschedulable pods, in groups of pods with the same signature.

    `add` finds the signature and the nominated node. Later changes of the nomination come by
    cluster events or by `nominated`.
    """

    def __init__(self, events: EventLog, hints: Hints) -> None:
        self._events = events
        self._hints = hints
        self._groups = OrderedDict[Hashable, _Group]()
        """The groups by signature; the group with the most hints to run is first."""
        self._missed = OrderedDict[Uid, _Missed]()
        self._nominated: dict[str, dict[Uid, QueuedPod]] = {}
        self._without_node: dict[Uid, str] = {}
        """By uid of a pod whose nominated node was deleted, the label of the deletion's event."""
        self._entries: dict[Uid, _Entry] = {}
        self._counts = Counter[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return the number of rejected pods by (plugin, profile), without zeros."""
        return dict(self._counts)

    def add(self, queued: QueuedPod, since: int | None = None) -> None:
        """Add the pod at the end of the group with its signature.

        `since` is the number of the first event that the pod missed, or None. Hints will run for
        all missed events.
        """
        uid, node, end = queued.pod.uid, self._hints.nominated_node(queued), self._events.end
        signature = self._hints.signature(queued)
        profile = queued.pipeline.profile
        rejected_by = tuple((plugin, profile) for plugin in queued.unschedulable_plugins)
        self._entries[uid] = _Entry(signature, node, end, rejected_by)
        self._counts.update(rejected_by)
        group = self._groups.get(signature)
        if group is None:
            group = self._groups[signature] = _Group(end, end)
        group.pods[uid] = queued
        if node is None or queued.is_rejected_by_no_node:
            group.free[uid] = queued
        else:
            group.nominated.setdefault(node, {})[uid] = queued
        if node is not None:
            self._nominated.setdefault(node, {})[uid] = queued
        if since is not None and since < end:
            self._missed[uid] = _Missed(queued, since, end)

    def remove(self, uid: Uid) -> None:
        """Remove the pod; raise KeyError if it is not here."""
        entry = self._entries.pop(uid)
        self._missed.pop(uid, None)
        self._without_node.pop(uid, None)
        for rejected_by in entry.rejected_by:
            add_count(self._counts, rejected_by, -1)
        group = self._groups[entry.signature]
        del group.pods[uid]
        is_free = group.free.pop(uid, None) is not None
        if entry.node is not None:
            drop_item(self._nominated, entry.node, uid)
            if not is_free:
                drop_item(group.nominated, entry.node, uid)
        if not group.pods:
            del self._groups[entry.signature]

    def nominated(self, queued: QueuedPod) -> None:
        """Add the pod anew, with its new nomination, and keep the events that it must check."""
        uid = queued.pod.uid
        entry, missed = self._entries[uid], self._missed.get(uid)
        since = max(self._groups[entry.signature].next, entry.since)
        self.remove(uid)
        self.add(queued, since if missed is None else missed.next)

    def update_nominations(self, event: ClusterEvent) -> QueuedPod | None:
        """Return the pod that lost its nomination because of the event; None if no pod did."""
        if event.after is not None:
            return None
        if isinstance(event.before, Pod):
            return self._without_nomination(event.before.uid)
        # `run_hints` returns these pods one by one, because there may be many.
        for uid in self._nominated.get(_node_of(event) or "", ()):
            self._without_node.setdefault(uid, event.label)
        return None

    def _without_nomination(self, uid: Uid) -> QueuedPod | None:
        entry = self._entries.get(uid)
        if entry is None or entry.node is None:
            return None
        queued = self._nominated[entry.node][uid]
        return queued if self._hints.nominated_node(queued) != entry.node else None

    def signature_of(self, uid: Uid) -> Hashable:
        """Return the signature of the pod's group."""
        return self._entries[uid].signature

    def first_of(self, signature: Hashable) -> QueuedPod | None:
        """Return the pod that is tried next in the group; None if the group is empty."""
        group = self._groups.get(signature)
        return group.first if group is not None else None

    def has_hints_to_run(self) -> bool:
        """Return whether `run_hints` has a step to make."""
        group = next(iter(self._groups.values()), None)
        return bool(self._without_node or self._missed) or (
            group is not None and group.seen < self._events.end
        )

    def run_hints(self) -> list[tuple[QueuedPod, bool]]:
        """Make one step, usually one pod's hints for one event; return the pods to retry.

        The bool is True if the pod represents its group. Call this only if `has_hints_to_run`.
        """
        if self._without_node:
            return self._run_without_node()
        if self._missed:
            return self._run_missed()
        signature, group = next(iter(self._groups.items()))
        oldest, events = next(iter(group.pods.values())), self._events
        number = max(group.next, self._since(oldest))
        if number < events.start or events.end - number > self._most_events(len(self._groups)):
            self._settle(signature, group)
            first = next(iter(group.free.values()), None)
            nominated = [q for pods in group.nominated.values() for q in pods.values()]
            return _moved(
                [(q, False) for q in nominated] + ([(first, True)] if first else []),
                _TOO_MANY_EVENTS,
            )
        moved: list[tuple[QueuedPod, bool]] = []
        if number < events.end:
            event = events[number]
            asked = self._stands_for(group, number)
            if self._hints.is_worth_requeuing(asked, event, during_attempt=False):
                moved = _moved(self._to_try(group, number, _node_of(event)), event.label, number)
        group.next = number + 1
        if group.next >= events.end or (moved and not group.nominated):
            # The pod that is moved is tried after all of these events, for the whole group.
            self._settle(signature, group)
        return moved

    def _run_without_node(self) -> list[tuple[QueuedPod, bool]]:
        uid = next(iter(self._without_node))
        event, queued = self._without_node.pop(uid), self._without_nomination(uid)
        return _moved([(queued, False)], event) if queued is not None else []

    def _run_missed(self) -> list[tuple[QueuedPod, bool]]:
        """Run the hints for one event that a pod missed; return the pod if it must be retried."""
        uid, missed = next(iter(self._missed.items()))
        number, most = missed.next, self._most_events(len(self._missed))
        if (
            number < self._events.start
            or missed.end - number > most
            or self._hints.is_worth_requeuing(
                missed.queued, self._events[number], during_attempt=True
            )
        ):
            del self._missed[uid]
            return _moved([(missed.queued, False)], _MISSED)
        missed.next += 1
        if missed.next == missed.end:
            del self._missed[uid]
        return []

    def _settle(self, signature: Hashable, group: _Group) -> None:
        group.seen = group.next = self._events.end
        self._groups.move_to_end(signature)

    def _since(self, queued: QueuedPod) -> int:
        return self._entries[queued.pod.uid].since

    def _stands_for(self, group: _Group, number: int) -> QueuedPod:
        free = next(iter(group.free.values()), None)
        if free is not None and self._since(free) <= number:
            return free
        return next(iter(group.pods.values()))

    def _to_try(self, group: _Group, number: int, node: str | None) -> list[tuple[QueuedPod, bool]]:
        """Return the pods to retry, each with whether it represents the whole group."""
        nominated = [
            queued
            for queued in group.nominated.get(node or "", {}).values()
            if self._since(queued) <= number
        ]
        first = self._stands_for(group, number)
        moved = [(queued, False) for queued in nominated]
        if not nominated or first.pod.uid in group.free:
            moved.append((first, True))
        return moved

    @staticmethod
    def _most_events(waiting: int) -> int:
        return max(_FEWEST_EVENTS, _MOST_HINTS // waiting)


def _moved(
    pods: list[tuple[QueuedPod, bool]], event: str, number: int | None = None
) -> list[tuple[QueuedPod, bool]]:
    for queued, _ in pods:
        queued.moved_by, queued.moved_at = event, number
    return pods


def _node_of(event: ClusterEvent) -> str | None:
    about = event.after or event.before
    if isinstance(about, Pod):
        return freed_node(about)
    name = getattr(about, "name", None)
    return name if event.kind is Kind.NODE else None
