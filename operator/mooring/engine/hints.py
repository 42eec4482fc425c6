"""Which changes may cure which rejections: the plugins' own declarations, asked for the queue."""

from collections.abc import Hashable

from mooring.engine.profiles import Profiles
from mooring.framework.hints import QueueingHint
from mooring.framework.queued_pod import QueuedPod
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod
from mooring.state.snapshot import Snapshot

__all__ = ["QueueingHints"]


class QueueingHints:
    """Answers the queue's two questions about a rejected pod."""

    def __init__(self, profiles: Profiles, cluster: Snapshot) -> None:
        self._profiles = profiles
        self._cluster = cluster

    def signature(self, queued: QueuedPod) -> Hashable:
        """Equal for pods whose rejections the same changes cure.

        What row-local plugins reject depends on the shape alone; others may read the rest.
        """
        pod = queued.pod
        profile = self._profiles.of(pod, self._cluster)
        pipeline = profile.pipeline if profile is not None else None
        rejected = (pod.shape, pipeline, queued.unschedulable_plugins)
        if pipeline is not None and queued.unschedulable_plugins <= pipeline.row_local:
            return rejected
        return (*rejected, frozenset(pod.labels.items()), pod.volumes, pod.owner)

    def hint(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        """Whether the change may let the pod pass one of the plugins that rejected it.

        A plugin that declares nothing may be cured by anything.
        """
        if not queued.unschedulable_plugins:
            return True
        about = event.before or event.after
        if isinstance(about, Pod):
            if _is_no_news(about, queued):
                return False
            if event.after is None and self._was_waited_for(about, queued.pod):
                return True
        return self._cures_a_refusal(queued, event)

    def _cures_a_refusal(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        profile = self._profiles.of(queued.pod, self._cluster)
        if profile is None:
            return False
        registered = (event.kind, event.action)
        for name in queued.unschedulable_plugins:
            plugin = profile.pipeline.enqueue_extensions.get(name)
            if plugin is None:
                return True
            if registered in plugin.events_to_register:
                hint = plugin.queueing_hint(queued.pod, event, self._cluster)
                if hint is QueueingHint.QUEUE:
                    return True
        return False

    def _was_waited_for(self, gone: Pod, pod: Pod) -> bool:
        """Whether a pod of this shape, nominated to the node, waits for nobody else to leave.

        If somebody took the room meanwhile, it must look for another place.
        """
        nominations, evictions = self._cluster.nominations, self._cluster.evictions
        if not len(nominations) or gone.node_name is None:
            return False
        row = self._cluster.row(gone.node_name)
        nominated = nominations.at(row, pod.shape.priority, "") if row is not None else ()
        return any(n.shape is pod.shape and not evictions.awaits_victims(n) for n in nominated)


def _is_no_news(about: Pod, queued: QueuedPod) -> bool:
    """Whether the change of a pod is one that this pod's attempt has made itself and undone.

    Or of a nominated pod of lower priority: what was kept for it was not kept from this pod.
    """
    if about.uid == queued.pod.uid:
        return queued.part is None
    return about.node_name is None and about.shape.priority < queued.pod.shape.priority
