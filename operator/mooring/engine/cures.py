"""Which changes may cure which refusals: the plugins' own declarations, asked for the queue."""

from collections.abc import Hashable

from mooring.engine.profiles import Profiles
from mooring.model.changes import Change
from mooring.model.pod import Pod
from mooring.state.queue import QueuedPod
from mooring.state.snapshot import Snapshot

__all__ = ["Cures"]


class Cures:
    """Answers the queue's two questions about a refused pod."""

    def __init__(self, profiles: Profiles, cluster: Snapshot) -> None:
        self._profiles = profiles
        self._cluster = cluster

    def signature(self, queued: QueuedPod) -> Hashable:
        """Equal for pods whose refusals the same changes cure.

        What row-local plugins refuse depends on the shape alone; others may read the rest.
        """
        pod = queued.pod
        profile = self._profiles.of(pod, self._cluster)
        pipeline = profile.pipeline if profile is not None else None
        refused = (pod.shape, pipeline, queued.refused_by)
        if pipeline is not None and queued.refused_by <= pipeline.row_local:
            return refused
        return (*refused, frozenset(pod.labels.items()), pod.volumes, pod.owner)

    def may_cure(self, queued: QueuedPod, change: Change) -> bool:
        """Whether the change may let the pod pass one of the plugins that refused it.

        A plugin that declares nothing may be cured by anything.
        """
        if not queued.refused_by:
            return True
        about = change.before or change.after
        if isinstance(about, Pod):
            if _is_no_news(about, queued):
                return False
            if change.after is None and self._was_waited_for(about, queued.pod):
                return True
        return self._cures_a_refusal(queued, change)

    def _cures_a_refusal(self, queued: QueuedPod, change: Change) -> bool:
        profile = self._profiles.of(queued.pod, self._cluster)
        if profile is None:
            return False
        event = (change.kind, change.action)
        for name in queued.refused_by:
            cure = profile.pipeline.cures.get(name)
            if cure is None:
                return True
            if event in cure.wakes_on and cure.cures(queued.pod, change, self._cluster):
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
        return any(n.shape is pod.shape and not evictions.leaving(n) for n in nominated)


def _is_no_news(about: Pod, queued: QueuedPod) -> bool:
    """Whether the change of a pod is one that this pod's attempt has made itself and undone.

    Or of a nominated pod of lower priority: what was kept for it was not kept from this pod.
    """
    if about.uid == queued.pod.uid:
        return queued.part is None
    return about.node_name is None and about.shape.priority < queued.pod.shape.priority
