"""Pods come in, are given to their profile, and leave: the queue's front door.

Everything here runs on the event loop's thread and returns at once; whoever waits for work is told
through `wake`.
"""

from collections.abc import Callable, Iterable

from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.verdicts import Unschedulable
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.workloads import Namespace

__all__ = ["Intake"]


class Intake:
    """Decides of every pod without a node whether it is ours, gated, or to be queued.

    `wake` is told that the queue may have work, `left` the uid of a pod that has left it for good.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        *,
        clock: Callable[[], float],
        wake: Callable[[], None],
        left: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._wake = wake
        self._left = left

    def pending(self, pod: Pod) -> None:
        """The API server shows the pod without a node, or showed it so a moment ago."""
        known, placed = self._scheduler.queue.get(pod.key), self._scheduler.state.pods.get(pod.key)
        if known is None and placed is not None and placed.pod.uid == pod.uid:
            return  # an older version of a pod that has a place by now
        profile = self._scheduler.profiles.of(pod, self._scheduler.cluster)
        if profile is None:
            self._scheduler.queue.remove(pod.key, self._clock())
            self._scheduler.without_profile[pod.key] = pod
            return
        self._scheduler.without_profile.pop(pod.key, None)
        rejections = (plugin.pre_enqueue(pod) for plugin in profile.pipeline.pre_enqueue)
        gated = any(isinstance(rejection, Unschedulable) for rejection in rejections)
        if pod.nominated_node is not None and known is None:
            # Somebody made room for it before we knew it: a leader before us, or an autoscaler.
            self._scheduler.state.nominate(pod, pod.nominated_node)
        self._scheduler.queue.add(pod, self._clock(), gated=gated)
        self._wake()

    def gone(self, key: str, uid: str) -> None:
        """The pod is no longer without a node: it was bound, it ended, or it was deleted."""
        without_profile = self._scheduler.without_profile.get(key)
        if without_profile is not None and without_profile.uid == uid:
            del self._scheduler.without_profile[key]
        queued = self._scheduler.queue.get(key)
        if queued is not None and queued.pod.uid == uid:
            self._scheduler.queue.remove(key, self._clock())
            self._wake()
        self._left(uid)
        self._scheduler.waiting.reject(uid, "", "the pod was deleted while it waited to be bound")
        if (call_off := self._scheduler.in_pre_bind.get(uid)) is not None:
            call_off()
        nominee = self._scheduler.state.nominations.get(key)
        if nominee is not None and nominee.pod.uid == uid:
            self.cluster_changed(self._scheduler.state.withdraw(key))

    def profiles_changed(self) -> None:
        """Who decides about which pod may have changed; every waiting pod is looked at again."""
        self._look_again(None)

    def cluster_changed(self, changes: Iterable[ClusterEvent]) -> None:
        """Something a decision reads has changed; rejected pods may fit now."""
        changes = tuple(changes)
        for change in changes:
            if change.kind is Kind.NAMESPACE and (namespace := _relabelled(change)) is not None:
                self._look_again(namespace)
        if self._scheduler.queue.changed(changes, self._clock()):
            self._wake()

    def known(self) -> dict[str, str]:
        """The uid of every pod without a node that has come and not gone, by namespace/name."""
        pods = (
            *(q.pod for q in self._scheduler.queue.waiting()),
            *self._scheduler.without_profile.values(),
        )
        return {pod.key: pod.uid for pod in pods}

    def knows(self, key: str, uid: str) -> bool:
        """Whether the pod waits for a node, is being scheduled, or is assumed or bound."""
        queued, placed = self._scheduler.queue.get(key), self._scheduler.state.pods.get(key)
        without_profile = self._scheduler.without_profile.get(key)
        pods = (
            without_profile,
            queued.pod if queued is not None else None,
            placed.pod if placed is not None else None,
        )
        return any(pod is not None and pod.uid == uid for pod in pods)

    def _look_again(self, namespace: str | None) -> None:
        """Find the profile of every waiting pod, or of those in a namespace, anew."""
        pods = [queued.pod for queued in self._scheduler.queue.waiting()]
        for pod in (*pods, *self._scheduler.without_profile.values()):
            if namespace in (None, pod.namespace):
                self.pending(pod)
        self._scheduler.queue.policy_changed(self._clock(), namespace)
        self._wake()


def _relabelled(change: ClusterEvent) -> str | None:
    """The namespace whose labels, by which profiles select, have changed; None if none has."""
    before, after = change.before, change.after
    if not isinstance(after, Namespace):
        return None
    known = before.labels if isinstance(before, Namespace) else {}
    return after.name if known != after.labels else None
