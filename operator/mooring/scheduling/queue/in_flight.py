"""Pods in flight, and the first cluster event that each pod missed during its attempt.

An event during an attempt may make the pod schedulable. So a pod that is found to be unschedulable
is checked against the events that it missed (active_queue.go).
"""

from collections.abc import Iterator

from mooring.model.pod import Uid
from mooring.runtime.queued_pod import QueuedPod


class InFlight:
    """The pods in flight by uid, in the order in which their attempts began."""

    def __init__(self) -> None:
        self._pods: dict[Uid, tuple[QueuedPod, int]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for queued, _ in self._pods.values())

    def enter(self, queued: QueuedPod, since: int) -> None:
        """Add a pod; `since` is the sequence number of the next event, which the pod will miss."""
        self._pods[queued.pod.uid] = (queued, since)

    def get(self, uid: Uid) -> QueuedPod | None:
        """Return the pod with this uid; None if it is not in flight."""
        entry = self._pods.get(uid)
        return entry[0] if entry is not None else None

    def leave(self, uid: Uid) -> int:
        """Remove the pod; return the sequence number of the first event since its attempt began."""
        return self._pods.pop(uid)[1]

    def oldest(self) -> int | None:
        """Return the number of the first event that the oldest attempt missed; None without any."""
        return next((since for _, since in self._pods.values()), None)
