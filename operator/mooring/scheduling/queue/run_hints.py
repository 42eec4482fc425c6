"""Runs queueing hints to find which cluster events may make which pods schedulable."""

from collections.abc import Hashable
from typing import Final

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.registry import SHIPPED_WITH
from mooring.framework.verdicts import Unschedulable
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.runtime.extension_points import run_pre_filter, run_queueing_hint
from mooring.runtime.queued_pod import QueuedPod

_POST_FILTERS: Final = frozenset(("DefaultPreemption", "DynamicResources"))
"""For these PostFilter plugins `needs_no_hint` knows when they may help; any other always may."""
_MOST_SPECS: Final = 16
"""The most different specs of a group's members; a group with more is equal to no other group."""


class QueueingHints:
    """Runs the hints of the plugins that rejected a pod; implements `unschedulable.Hints`."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster

    def signature(self, queued: QueuedPod) -> Hashable:
        """Return a value that is equal for pods that the same events may make schedulable."""
        pod, pipeline, plugins = queued.pod, queued.pipeline, queued.unschedulable_plugins
        reading = plugins - pipeline.plugins_of_node_only
        by_specs = queued.decided_by_specs and not reading
        group = self._group(pod, by_specs=by_specs) if pipeline.group_policy else None
        queue = self._cluster.queues.number_of(pod)
        rejected: tuple[Hashable, ...]
        rejected = (pod.spec, pipeline, plugins, group, queue, pod.longest_run, queued.is_delayed)
        if queued.is_rejected_by_no_node:
            rejected = (*rejected, self._cluster.nominations.get(pod.uid) is not None)
        if not reading:
            return rejected
        read = (*rejected, frozenset(pod.labels.items()), pod.owner)
        sources = pipeline.distributions
        if any(sources.get(name) != SHIPPED_WITH for name in reading):
            # Extenders and plugins of the site may read the whole pod.
            return (*read, pod.uid, frozenset(pod.annotations.items()))
        return (*read, pod.volumes, self._with_devices(pod))

    def _with_devices(self, pod: Pod) -> Hashable:
        """Return a key that is equal for pods whose claims wait for the same events."""
        devices = self._cluster.dynamic_resources
        if pod.spec.containers and devices.claims.for_extended_resources(pod):
            return pod.uid
        known = devices.claims.named_by(pod)
        if not any(claim.allocation for claim in known):
            # The claims may differ: a template may have been replaced.
            return tuple(claim.spec.asked for claim in known)
        if devices.claims.reserved_for(pod.uid) or any(c.controller_uid == pod.uid for c in known):
            return pod.uid  # it may give up devices
        return tuple(claim.uid for claim in known)  # devices bind pods to nodes

    def _group(self, pod: Pod, *, by_specs: bool) -> Hashable:
        """Return a key of the pod's group; if `by_specs`, equal groups may have the same key."""
        groups = self._cluster.pod_groups
        group = groups.of(pod)
        # A member with a node may bind the other members to a topology domain.
        if not by_specs or group is None or group.definition is None or group.scheduled_pods_count:
            return groups.key_of(pod)
        specs = group.unscheduled_specs
        if len(specs) > _MOST_SPECS:
            return group.key
        return group.definition.requirements, frozenset(specs.items())

    def nominated_node(self, queued: QueuedPod) -> str | None:
        """Return the name of the node to which the pod is nominated now; None if there is none."""
        nominee = self._cluster.nominations.get(queued.pod.uid)
        return self._cluster.nodes.name(nominee.row) if nominee is not None else None

    def needs_no_hint(self, queued: QueuedPod) -> bool:
        """Return whether an attempt may help the pod although the hints of all events say SKIP."""
        pod, pipeline, cluster = queued.pod, queued.pipeline, self._cluster
        claims, groups = cluster.dynamic_resources.claims, cluster.pod_groups
        if pod.spec.resource_claims or claims.for_extended_resources(pod):
            return True  # it may free devices
        if any(plugin.name not in _POST_FILTERS for plugin in pipeline.post_filter):
            return True
        policy = pipeline.group_policy
        if policy and policy.reserve_after_seconds and groups.of(pod) is not None:
            return True  # it may reserve nodes
        if not pod.spec.preempts:
            return False
        # New pods may be victims, but no hint runs for them. Queues and groups allow any priority.
        of_any = groups.disrupted_whole or cluster.queues.of(pod) is not None
        return bool(of_any) or cluster.pod_columns.has_below(pod.spec.priority)

    def is_worth_requeuing(
        self, queued: QueuedPod, event: ClusterEvent, *, during_attempt: bool
    ) -> bool:
        """Return whether the event may make the pod schedulable (isPodWorthRequeuing, queue.go).

        `during_attempt` says whether the event came while the pod was in flight.
        """
        if not queued.unschedulable_plugins:
            return True
        if event.kind is Kind.POD_DISRUPTION_BUDGET and _binds_no_more(event, queued):
            return True
        about = event.before or event.after
        if isinstance(about, Pod) and event.kind is Kind.POD:
            if _cannot_help(about, queued, during_attempt=during_attempt):
                return False
            if event.after is None and (helps := self._ends_wait(about, queued)) is not None:
                return helps
        # In the order of names: a set's own would ask other plugins in each process.
        names = sorted(queued.unschedulable_plugins)
        return any(self._hint(name, queued, event) for name in names)

    def is_admitted(self, queued: QueuedPod) -> bool | None:
        """Return whether the PreFilter plugins that rejected the pod would admit the pod now.

        Returns None if a plugin may have rejected the pod at another extension point, if a plugin
        fails, or if the pod is in a group.
        """
        pod, pipeline, cluster = queued.pod, queued.pipeline, self._cluster
        plugins = queued.unschedulable_plugins
        if not plugins or not plugins <= pipeline.plugins_of_no_node:
            return None
        if pipeline.group_policy and cluster.pod_groups.of(pod) is not None:
            return None
        rejecting = (plugin for plugin in pipeline.pre_filter if plugin.name in plugins)
        try:
            answers = [run_pre_filter(pipeline, plugin, pod, cluster) for plugin in rejecting]
        except PluginFailed:
            return None
        return not any(isinstance(answer, Unschedulable) for answer in answers)

    def _hint(self, name: str, queued: QueuedPod, event: ClusterEvent) -> bool:
        pipeline = queued.pipeline
        plugin = pipeline.enqueue_extensions.get(name)
        if plugin is None:
            return True
        try:
            hint = run_queueing_hint(pipeline, plugin, queued.pod, event, self._cluster)
        except PluginFailed:
            return True
        return hint is QueueingHint.QUEUE

    def _ends_wait(self, gone: Pod, queued: QueuedPod) -> bool | None:
        """Return whether the end of `gone` lets the pod be tried; None if hints decide."""
        cluster, pod = self._cluster, queued.pod
        if not len(cluster.nominations) or gone.node_name is None:
            return None
        row = cluster.row(gone.node_name)
        if row is None or not (nominated := cluster.nominations.at(row, pod.spec.priority, None)):
            return None
        group = cluster.pod_groups.of(pod) if queued.pipeline.group_policy else None
        if group is not None and group.is_scheduled_together and self._awaits_victims(group):
            return False  # an attempt would fail and lengthen the backoff
        # Even if the node is still too full for it, the pod must be tried.
        awaits = cluster.evictions.awaits_victims
        return any(n.spec is pod.spec and not awaits(n) for n in nominated) or None

    def _awaits_victims(self, group: PodGroupState) -> bool:
        cluster, waiting = self._cluster, group.unscheduled
        victims = map(cluster.pod, cluster.evictions.awaited_by(waiting.keys()))
        rows = (victim.row for victim in victims if victim is not None)
        return any(pod.uid in waiting for row in rows for pod in cluster.nominations.on(row))


def _binds_no_more(event: ClusterEvent, queued: QueuedPod) -> bool:
    """Return whether a change of a PodDisruptionBudget lets the pod evict more pods."""
    if not queued.pipeline.preemption.strict or not queued.pod.spec.preempts:
        return False
    before, after = event.before, event.after
    if not isinstance(after, PodDisruptionBudget) or after.disruptions_allowed > 0:
        return True
    return isinstance(before, PodDisruptionBudget) and (
        before.selector != after.selector or after.allows_unhealthy > before.allows_unhealthy
    )


def _cannot_help(about: Pod, queued: QueuedPod, *, during_attempt: bool) -> bool:
    if about.uid == queued.pod.uid:
        return during_attempt  # its own attempt caused the event
    # The nomination of a pod with a lower priority does not matter.
    return about.node_name is None and about.spec.priority < queued.pod.spec.priority
