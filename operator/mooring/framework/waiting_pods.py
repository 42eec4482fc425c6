"""Assumed pods that wait at Permit (waiting_pods_map.go).

A Permit plugin that has returned `Wait` later calls `allow` or `reject`. The engine passes a
callback for each pod, and calls `expire` from time to time. Times are seconds on the engine's
monotonic clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod

__all__ = ["WaitingPod", "WaitingPods"]


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A pod that waits at Permit; `pending` has the deadline of each plugin that must allow it."""

    pod: Pod
    node: str
    pending: dict[str, float]
    since: float
    decided: Callable[[Unschedulable | None, str], None]


class WaitingPods:
    """All pods that wait at Permit, by uid."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingPod] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(tuple(self._waiting.values()))

    def enter(
        self,
        pod: Pod,
        node: str,
        pending: dict[str, float],
        now: float,
        decided: Callable[[Unschedulable | None, str], None],
    ) -> None:
        """Add a pod that waits until all plugins in `pending` allow it.

        `pending` has the deadline of each plugin. When the wait ends, `decided(rejection, plugin)`
        is called; the rejection is None if the pod was allowed.
        """
        self._waiting[pod.uid] = WaitingPod(pod, node, pending, now, decided)

    def get(self, uid: str) -> WaitingPod | None:
        """Return the waiting pod with this uid; None if no such pod waits."""
        return self._waiting.get(uid)

    def leave(self, uid: str) -> None:
        """Remove the pod with this uid without calling `decided`."""
        self._waiting.pop(uid, None)

    def allow(self, uid: str, plugin: str) -> None:
        """Record that the plugin allows the pod; end the wait if no other plugin must allow it."""
        waiting = self._waiting.get(uid)
        if waiting is None:
            return
        waiting.pending.pop(plugin, None)
        if not waiting.pending:
            del self._waiting[uid]
            waiting.decided(None, plugin)

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        """End the wait with a rejection: the pod leaves its node and becomes unschedulable."""
        waiting = self._waiting.pop(uid, None)
        if waiting is not None:
            waiting.decided(Unschedulable(reason, resolvable=True), plugin)

    def expire(self, now: float) -> None:
        """Reject each pod whose deadline for one of its plugins has passed."""
        for waiting in self:
            for plugin, deadline in waiting.pending.items():
                if deadline <= now:
                    waited = deadline - waiting.since
                    reason = f"rejected due to timeout after waiting {waited:g}s at plugin {plugin}"
                    self.reject(waiting.pod.uid, plugin, reason)
                    break
