"""Unschedulable pods in groups of one signature: one hint, and one pod, are tried for a group.

Pods of a group were rejected alike and can be helped by the same events. After such an event one
pod of the group is tried for all of them; how its attempt ends decides whether the next one is
tried, see `mooring.queueing.queue`. Pods that are nominated to the node on which something happened
are tried for themselves. If such a pod fits there, that does not mean that the others of its group
fit.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from mooring.framework.queued_pod import QueuedPod
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod

__all__ = ["UnschedulablePods"]


class _Group:
    """Pods of one signature by key: those without a nomination, and the others by their node."""

    __slots__ = ("free", "nominated")

    def __init__(self) -> None:
        self.free: dict[str, QueuedPod] = {}
        self.nominated: dict[str, dict[str, QueuedPod]] = {}

    @property
    def first(self) -> QueuedPod | None:
        """The pod that is tried for all: one that is not nominated, if there is any."""
        waiting = self.free or next(iter(self.nominated.values()), self.free)
        return next(iter(waiting.values()), None)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What was true of a pod when it was added; its group and its counts are found again by it."""

    signature: Hashable
    node: str | None
    rejected_by: tuple[tuple[str, str], ...]
    """(plugin, profile) of each plugin that rejected the pod."""


class UnschedulablePods:
    """The unschedulable pods; each is in exactly one group.

    `signature` and `nominated_node` are run when a pod is added; a nomination that changes later
    is noticed by the cluster event that goes with it.
    """

    def __init__(
        self,
        signature: Callable[[QueuedPod], Hashable],
        nominated_node: Callable[[QueuedPod], str | None],
    ) -> None:
        self._signature = signature
        self._nominated_node = nominated_node
        self._groups: dict[Hashable, _Group] = {}
        self._entries: dict[str, _Entry] = {}
        self._counts = Counter[tuple[str, str]]()

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many pods each (plugin, profile) rejected, without zeros.

        The numbers are kept up to date by `add` and `remove`, so that reading them costs nothing
        that grows with the number of pods.
        """
        return dict(self._counts)

    def add(self, queued: QueuedPod) -> None:
        """Adds the pod to the group of its signature, as the last one."""
        key, node = queued.pod.key, self._nominated_node(queued)
        signature = self._signature(queued)
        profile = queued.pipeline.profile
        rejected_by = tuple((plugin, profile) for plugin in queued.unschedulable_plugins)
        self._entries[key] = _Entry(signature, node, rejected_by)
        self._counts.update(rejected_by)
        group = self._groups.get(signature)
        if group is None:
            group = self._groups[signature] = _Group()
        (group.free if node is None else group.nominated.setdefault(node, {}))[key] = queued

    def remove(self, key: str) -> None:
        """Takes the pod off; KeyError if it is not here."""
        entry = self._entries.pop(key)
        for rejected_by in entry.rejected_by:
            self._counts[rejected_by] -= 1
            if not self._counts[rejected_by]:
                del self._counts[rejected_by]
        signature, node = entry.signature, entry.node
        group = self._groups[signature]
        if node is None:
            del group.free[key]
        else:
            del group.nominated[node][key]
            if not group.nominated[node]:
                del group.nominated[node]
        if not group.free and not group.nominated:
            del self._groups[signature]

    def update_nominations(self, event: ClusterEvent) -> list[QueuedPod]:
        """Sorts in again, and returns, the pods that lost their nomination by the event.

        That is the pod itself which was nominated, or every pod nominated to a deleted node.
        """
        if event.after is not None:
            return []
        lost: list[QueuedPod] = []
        before, node = event.before, _node_of(event)
        if isinstance(before, Pod):
            keys = [before.key]
        else:
            groups = self._groups.values() if node is not None else ()
            keys = [key for group in groups for key in group.nominated.get(node or "", ())]
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.node is not None:
                queued = self._groups[entry.signature].nominated[entry.node][key]
                if self._nominated_node(queued) != entry.node:
                    self.remove(key)
                    self.add(queued)
                    lost.append(queued)
        return lost

    def signature_of(self, key: str) -> Hashable:
        """The signature of the pod's group."""
        return self._entries[key].signature

    def pods_to_move(
        self,
        event: ClusterEvent,
        is_worth_requeuing: Callable[[QueuedPod, ClusterEvent], bool],
    ) -> Iterator[tuple[QueuedPod, bool]]:
        """The pods to try after the event, and whether each is tried for its whole group.

        The caller takes each off at once.
        """
        node = _node_of(event)
        for group in tuple(self._groups.values()):
            first = group.first
            if first is None or not is_worth_requeuing(first, event):
                continue
            nominated = tuple(group.nominated.get(node, {}).values()) if node is not None else ()
            for queued in nominated:
                yield queued, False
            if group.free or not nominated:
                yield first, True

    def first_of(self, signature: Hashable) -> QueuedPod | None:
        """The next pod to try of the group; None if the group is empty."""
        group = self._groups.get(signature)
        return group.first if group is not None else None


def _node_of(event: ClusterEvent) -> str | None:
    """The name of the node on which something happened."""
    about = event.after or event.before
    if isinstance(about, Pod):
        return about.node_name
    name = getattr(about, "name", None)
    return name if event.kind is Kind.NODE else None
