"""Pods in flight, and how many cluster events had come when their attempts began.

An event that comes during an attempt may make the pod schedulable after all. A pod that turns out
to be unschedulable is therefore checked against the events it missed (active_queue.go).
"""

from collections.abc import Iterator

from mooring.framework.queued_pod import QueuedPod

__all__ = ["InFlight"]


class InFlight:
    """The pods by key, in the order in which their attempts began."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[QueuedPod, int]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for queued, _ in self._pods.values())

    def enter(self, queued: QueuedPod, since: int) -> None:
        """The pod's attempt begins before event number `since`; no pod of its key is in flight."""
        self._pods[queued.pod.key] = (queued, since)

    def get(self, key: str) -> QueuedPod | None:
        """The pod of this key whose attempt runs."""
        entry = self._pods.get(key)
        return entry[0] if entry is not None else None

    def leave(self, key: str) -> int:
        """Takes the pod off; the number of the first event that it missed."""
        return self._pods.pop(key)[1]

    def oldest(self) -> int | None:
        """The number of the first event that a pod in flight missed; None if there is no pod."""
        return next((since for _, since in self._pods.values()), None)
