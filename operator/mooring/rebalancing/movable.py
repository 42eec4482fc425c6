"""Says which running pods may be moved, and why other pods may not."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from mooring.extenders.verdicts import interested
from mooring.model.events import Kind
from mooring.model.node import REGION, ZONE, Node
from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector
from mooring.model.taints import repelled
from mooring.model.workloads import NAMESPACE_NAME
from mooring.policy.match import compiled
from mooring.policy.rebalancing import Rebalancing
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.what_if import stays_on_its_node
from mooring.state.cluster_view import ClusterView
from mooring.volumes.model.pod_volumes import ClaimVolume

_STATIC: Final = "kubernetes.io/config.mirror"
_AGAINST: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations and values with which the owner of a pod forbids its disruption."""
_ALWAYS_AWAITED: Final = 30
"""The seconds that a move always waits for a pod's end: the default grace period of pods."""
_OF_THE_NODE_CONTROLLER: Final = "node.kubernetes.io/"
"""The prefix of taints that the node controller, the kubelet or `kubectl cordon` sets."""


def owner_of(pod: Pod) -> str:
    """Return the uid of the pod's controller; "" if it has none."""
    return pod.owner.uid if pod.owner is not None else ""


def labels_anew(pod: Pod, node: Node) -> Mapping[str, str]:
    """Return the pod's labels without the labels that the API server copied from its node."""
    labels = pod.labels
    given = {key for key in (ZONE, REGION) if key in labels and labels[key] == node.labels.get(key)}
    return {k: v for k, v in labels.items() if k not in given} if given else labels


def created_anew(pod: Pod, node: Node) -> Pod:
    """Return the pod that the controller will create when this pod is evicted from the node.

    The new pod has the uid of the old pod, because its own uid is not known yet.
    """
    return replace(
        pod,
        labels=labels_anew(pod, node),
        # The parsed spec has the important ones; numbers of GPU cards do not apply elsewhere.
        annotations={},
        started=None,
        node_name=None,
        nominated_node=None,
        phase="Pending",
        extended_resource_claim=None,
    )


def left_to_others(node: Node, pod: Pod) -> bool:
    """Return whether a drain or the node controller will move this pod away from the node."""
    theirs = (taint for taint in node.taints if taint.key.startswith(_OF_THE_NODE_CONTROLLER))
    return (
        node.unschedulable
        or node.conditions.get("Ready", "True") != "True"
        or repelled(theirs, pod.spec.tolerations)
    )


@dataclass(frozen=True)
class Movable:
    """Decides which pods a profile's `rebalancing` section allows to move.

    `resting` are the uids of recently moved pods, or of their controllers. `now` returns the time
    in seconds since the epoch.
    """

    section: Rebalancing
    cluster: ClusterView
    pipeline: Pipeline
    resting: Collection[str]
    now: Callable[[], float]

    def refusal(self, pod: Pod, *, with_group: bool = False) -> str | None:
        """Return why the placed pod may not be moved; None if it may.

        The text completes the sentence "the pod ...". `with_group` means that all members of the
        pod's group are moved together.
        """
        checks = (self._of_its_kind, self._of_its_owner, self._of_its_decision, self._of_its_state)
        if self.cluster.pod_groups.key_of(pod) is not None and not (
            with_group and self.section.pods.groups == "Whole"
        ):
            return "is a member of a pod group"
        return next((why for check in checks if (why := check(pod)) is not None), None)

    def stays(self, pod: Pod) -> bool:
        """Return whether the pod is static, or would return to its node at once (DaemonSet)."""
        return stays_on_its_node(pod) or _STATIC in pod.annotations

    def _of_its_kind(self, pod: Pod) -> str | None:
        rules = self.section.pods
        if pod.owner is None:
            return "has no controller that would replace it"
        if self.stays(pod):
            return "belongs to its node"
        if pod.owner.kind not in rules.owners:
            return "has a controller of a kind that pods.owners does not name"
        if pod.local_storage and not rules.local_storage:
            return "would lose the data that it keeps on its node"
        if pod.owner.kind != "StatefulSet":
            in_use = self._finds_claims_in_use(pod)
            return "has a claim that its replacement would find in use" if in_use else None
        longest = max(self.section.limits.replacement_seconds, _ALWAYS_AWAITED)
        is_late = pod.termination_grace_period_seconds > longest
        return "may take longer than limits.replacementSeconds to terminate" if is_late else None

    def _finds_claims_in_use(self, pod: Pod) -> bool:
        """Return whether the pod's claims keep a replacement waiting until the pod has ended."""
        alone, objects = {pod.uid}, self.cluster.objects
        names = (f"{pod.namespace}/{entry.claim}" for entry in pod.spec.resource_claims)
        for claim in filter(None, map(objects(Kind.RESOURCE_CLAIM).get, names)):
            is_bound = claim.allocation is not None and claim.allocation.node_selector is not None
            # The devices keep the replacement on the same node while the pod uses them.
            if is_bound and {user.uid for user in claim.reserved_for} == alone:
                return True
        volumes = (v for v in pod.volumes if isinstance(v, ClaimVolume) and not v.ephemeral)
        names = (f"{pod.namespace}/{volume.claim}" for volume in volumes)
        found = filter(None, map(objects(Kind.PERSISTENT_VOLUME_CLAIM).get, names))
        return any("ReadWriteOncePod" in claim.access_modes for claim in found)

    def _of_its_owner(self, pod: Pod) -> str | None:
        if not self._pods.matches(pod.labels):
            return "is not selected by pods.podSelector"
        if self._namespaces.requirements:
            labels = self.cluster.namespace_labels(pod.namespace)
            if not self._namespaces.matches({NAMESPACE_NAME: pod.namespace, **labels}):
                return "is in a namespace that pods.namespaceSelector does not select"
        if any(pod.annotations.get(key) == value for key, value in _AGAINST.items()):
            return "has an annotation against being disrupted"
        return None

    def _of_its_decision(self, pod: Pod) -> str | None:
        if self.resting and (pod.uid in self.resting or owner_of(pod) in self.resting):
            return "was moved, or could not be, a short time ago"
        if self.now() - pod.created < self.section.pods.minimum_age_seconds:
            return "is younger than pods.minimumAgeSeconds"
        if pod.limit_exceeded is not None:
            return "exceeds a limit, so that nothing is decided about it"
        if interested(self.pipeline, pod):
            return "is decided about with an extender, and plans ask no extender"
        return None

    def _of_its_state(self, pod: Pod) -> str | None:
        placed, evictions = self.cluster.pod(pod.uid), self.cluster.evictions
        if placed is None or placed.assumed:
            return "is being bound"
        if pod.terminating or pod.disrupted or pod.evicted or evictions.evicting(pod):
            return "is leaving its node already"
        if self.cluster.nominations.get(pod.uid) is not None:
            return "is nominated to a node"
        budgets = evictions.matching_budgets(pod, by_eviction_api=True)
        if len(budgets) > 1:
            return "has several disruption budgets, and is never evicted therefore"
        if budgets and evictions.disruptions_allowed(budgets[0]) < 1:
            return "has a disruption budget that allows no eviction now"
        return None

    @cached_property
    def _pods(self) -> LabelSelector:
        return compiled(self.section.pods.pod_selector)

    @cached_property
    def _namespaces(self) -> LabelSelector:
        return compiled(self.section.pods.namespace_selector)
