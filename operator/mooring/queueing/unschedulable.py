"""Refused pods by signature: one test, and one try, stand for all pods that are alike.

Pods of one signature have the same demands and were rejected by the same plugins, so what cures one
cures all, and if the first of them finds no place after a change, neither do the others. Only the
first is therefore woken; as long as they find places they follow one another. Pods for which room
is being made on a node are woken for themselves alone when something changes on that node.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod

__all__ = ["UnschedulablePods"]


class _Refused(Protocol):
    @property
    def pod(self) -> Pod: ...
    @property
    def nominated(self) -> str | None: ...


P = TypeVar("P", bound=_Refused)


class _Group(Generic[P]):
    """Pods of one signature: those that wait for any room, and those that wait for a node's."""

    __slots__ = ("expecting", "free")

    def __init__(self) -> None:
        self.free: dict[str, P] = {}
        self.expecting: dict[str, dict[str, P]] = {}

    @property
    def first(self) -> P | None:
        """The pod that is tried for all: who has been promised a room can wait for it."""
        waiting = self.free or next(iter(self.expecting.values()), self.free)
        return next(iter(waiting.values()), None)


class UnschedulablePods(Generic[P]):
    """The pods of the unschedulable part, grouped; every pod is in exactly one group.

    A pod's `nominated` may only change while it is not here.
    """

    def __init__(self, signature: Callable[[P], Hashable]) -> None:
        self._signature = signature
        self._groups: dict[Hashable, _Group[P]] = {}
        self._place_of: dict[str, tuple[Hashable, str | None]] = {}

    def add(self, rejected: P) -> None:
        """The pod waits for a cure."""
        key, node, signature = rejected.pod.key, rejected.nominated, self._signature(rejected)
        self._place_of[key] = signature, node
        group = self._groups.get(signature)
        if group is None:
            group = self._groups[signature] = _Group()
        (group.free if node is None else group.expecting.setdefault(node, {}))[key] = rejected

    def remove(self, key: str) -> None:
        """The pod does not wait here any more."""
        signature, node = self._place_of.pop(key)
        group = self._groups[signature]
        if node is None:
            del group.free[key]
        else:
            del group.expecting[node][key]
            if not group.expecting[node]:
                del group.expecting[node]
        if not group.free and not group.expecting:
            del self._groups[signature]

    def signature_of(self, key: str) -> Hashable:
        """The signature under which the pod waits."""
        return self._place_of[key][0]

    def pods_to_move(
        self, event: ClusterEvent, queueing_hint: Callable[[P, ClusterEvent], bool]
    ) -> Iterator[tuple[P, bool]]:
        """The pods to try because of the change, and whether each tries for all that are like it.

        The caller takes each out at once. Pods for which the room was made try for themselves:
        that they find it says nothing about the room others wait for.
        """
        node = _node_of(event)
        for group in tuple(self._groups.values()):
            first = group.first
            if first is None or not queueing_hint(first, event):
                continue
            expected = tuple(group.expecting.get(node, {}).values()) if node is not None else ()
            for pod in expected:
                yield pod, False
            if group.free or not expected:
                yield first, True

    def first_of(self, signature: Hashable) -> P | None:
        """Who of this signature is tried next: the one that has waited longest."""
        group = self._groups.get(signature)
        return group.first if group is not None else None


def _node_of(event: ClusterEvent) -> str | None:
    """The node on which something changed."""
    after_or_before = event.after or event.before
    if isinstance(after_or_before, Pod):
        return after_or_before.node_name
    name = getattr(after_or_before, "name", None)
    return name if event.kind == "Node" else None
