"""Refused pods by signature: one test, and one try, stand for all pods that are alike.

Pods of one signature have the same demands and were refused by the same plugins, so what cures one
cures all, and if the first of them finds no place after a change, neither do the others. Only the
first is therefore woken; as long as they find places they follow one another. Pods for which room
is being made on a node are woken for themselves alone when something changes on that node.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from mooring.model.changes import Change
from mooring.model.pod import Pod

__all__ = ["RefusedPods"]


class _Refused(Protocol):
    @property
    def pod(self) -> Pod: ...
    @property
    def nominated(self) -> str | None: ...


P = TypeVar("P", bound=_Refused)


class RefusedPods(Generic[P]):
    """The pods of the unschedulable part, grouped; every pod is in exactly one group."""

    def __init__(self, signature: Callable[[P], Hashable]) -> None:
        self._signature = signature
        self._groups: dict[Hashable, dict[str, P]] = {}
        self._group_of: dict[str, Hashable] = {}

    def add(self, refused: P) -> None:
        """The pod waits for a cure."""
        key = refused.pod.key
        signature = self._group_of[key] = self._signature(refused)
        self._groups.setdefault(signature, {})[key] = refused

    def remove(self, key: str) -> None:
        """The pod does not wait here any more."""
        signature = self._group_of.pop(key)
        group = self._groups[signature]
        del group[key]
        if not group:
            del self._groups[signature]

    def signature_of(self, key: str) -> Hashable:
        """The signature under which the pod waits."""
        return self._group_of[key]

    def cured_by(
        self, change: Change, cures: Callable[[P, Change], bool]
    ) -> Iterator[tuple[P, bool]]:
        """The pods to try because of the change, and whether each tries for all that are like it.

        The caller takes each out at once. Pods for which the room was made try for themselves:
        that they find it says nothing about the room others wait for.
        """
        node = _node_of(change)
        for group in tuple(self._groups.values()):
            first = next(iter(group.values()))
            if not cures(first, change):
                continue
            expected = [r for r in group.values() if node is not None and r.nominated == node]
            free = next((r for r in group.values() if r.nominated is None), None)
            for pod in expected:
                yield pod, False
            if free is not None:
                yield free, True
            elif not expected:
                yield first, True

    def first_of(self, signature: Hashable) -> P | None:
        """The pod of this signature that has waited longest."""
        group = self._groups.get(signature)
        return next(iter(group.values())) if group else None


def _node_of(change: Change) -> str | None:
    """The node on which something changed."""
    after_or_before = change.after or change.before
    if isinstance(after_or_before, Pod):
        return after_or_before.node_name
    name = getattr(after_or_before, "name", None)
    return name if change.kind == "Node" else None
