"""The handle that every plugin is built with: cluster, waiting pods, API, volume assume cache."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mooring.claims.model.resource_claims import Allocation, ResourceClaim
from mooring.framework.evaluations import Evaluations
from mooring.framework.waiting_pods import WaitingPods
from mooring.gpu_cards.model.cards import Assignment, CardFormat
from mooring.gpu_cards.state.card_counts import Cards
from mooring.model.kubernetes_rules import NEWEST, KubernetesRules
from mooring.model.pod import Pod, Uid
from mooring.state.cluster_view import ClusterView
from mooring.volumes.model.storage_objects import PersistentVolume, PersistentVolumeClaim

__all__ = ["Api", "DeviceMetrics", "Handle", "ReadAgainError", "VolumeAssumeCache"]


class ReadAgainError(Exception):
    """The object has changed, or no answer tells whether a write was carried out."""


class Api(Protocol):
    """The writes that plugins may make, from `reserve` on; errors are raised."""

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod to the node through the Binding subresource.

        A plugin calls this in bind. Once the Binding is sent, Mooring waits for its answer and
        believes that, even if the call is cancelled. Before and after Bind no Binding is sent.
        Raises PluginError if the pod is not at Bind for this node, or the caller's attempt is over.
        """

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add these annotations to the Binding: the pod gets node and annotations in one write.

        They are merged with earlier ones; an empty mapping removes all. A plugin calls this in
        pre_bind. The engine removes them at the end of the attempt, whether the pod is bound or
        not.
        """

    def unix_nanoseconds(self) -> int:
        """Return the time of day, for annotations and statuses; no decision may depend on it."""

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a merge patch and return the object as it is then.

        `resource` is `persistentvolumes` or `persistentvolumeclaims`.

        A `metadata.resourceVersion` in the patch makes it fail if the object has changed since.
        """

    def record(self, pod: Pod, reason: str, note: str) -> None:
        """Record a Normal event about the pod, as of its scheduling."""

    async def read(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the `resourceclaims` object, or None; waits until the API server answers."""

    async def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object in the namespace that its metadata name, and return it.

        `resource` is `resourceclaims`. After an error it may have been created or not.
        """

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        """Begin to delete the `resourceclaims` object of this uid, if any; waits for an answer."""

    async def set_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Add these fields to the pod's status."""

    async def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: dict[str, Any],
        *,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """Apply a merge patch to this version of the object, and return the result.

        `resource` is `resourceclaims`. The patch has the version in `metadata.resourceVersion`.
        Raises ReadAgainError if the object has changed since, or if no answer says whether the
        patch was applied.
        """

    def alone(self, key: str) -> AbstractAsyncContextManager[object]:
        """Return a context for one caller at a time, per key.

        If a caller is cancelled while `update` waits for an answer, the write continues, and the
        next caller enters after its answer. A write that was not sent yet is not sent. A write
        without an answer for 30 s may be carried out later, unless the object gets another version.
        """

    def later(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call `write` soon and let it run to its end; an error is logged.

        This is for writes that no caller waits for, from `post_filter` and `unreserve`. Writes that
        have not begun when the scheduler stops are dropped; in a trial nothing is written.
        """

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done` returns True. It is called now and after cluster events.

        An exception of `done` ends the wait and is raised. Raises TimeoutError after `seconds`;
        with 0, immediately if `done` returns False.
        """


class VolumeAssumeCache(Protocol):
    """Volumes and claims that plugins may assume, from `reserve` on only."""

    def assume_volumes(
        self,
        pod: Pod,
        volumes: Sequence[PersistentVolume],
        claims: Sequence[PersistentVolumeClaim],
    ) -> None:
        """Let decisions see these objects until the watch shows newer versions of them."""

    def restore_volumes(self, pod: Pod) -> None:
        """Undo the pod's assumptions about volumes; those of other pods stay."""

    def hold_claims(self, holder: Uid, allocations: Mapping[str, Allocation]) -> None:
        """Mark these allocations, by uid of the claim, as in flight for the pod of this uid.

        Their devices are in use until `release_claims`, or until the pod is forgotten.
        """

    def release_claims(self, holder: Uid, claims: Iterable[str] | None = None) -> None:
        """Hold the claims of these uids, or all, no longer for the pod."""

    def assume_claim(self, claim: ResourceClaim) -> bool:
        """Let decisions see the claim as the API server answered until the watch has caught up.

        Returns False if the watch has shown a newer version, or the claim's end.
        """

    def assign_cards(self, pod: Pod, form: CardFormat, assignment: Assignment) -> None:
        """Assign these GPU cards of its node to the assumed pod until it is forgotten."""

    def track_cards(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """Return the counts of GPU cards in this format; they are kept while the plugin holds them.

        Call it in a plugin's constructor. If `demand` is true, they also find requests that are
        typical of the cluster.
        """


class DeviceMetrics:
    """Counts the results of claims for devices; this class counts nothing."""

    def devices_bound(
        self,
        profile: str,
        drivers: Sequence[str],
        waited: Sequence[str],
        status: str,
        seconds: float,
    ) -> None:
        """Count that PreBind has waited for the binding of devices.

        `drivers` has the driver of each device of the claims, `waited` the driver of each device
        with binding conditions. `status` is success, failure, timeout or error.
        """

    def claim_created(self, status: str) -> None:
        """Count that a claim for a pod's extended resources was created: success or failure."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The second argument of every plugin's constructor (framework.Handle in kube-scheduler)."""

    cluster: ClusterView
    waiting_pods: WaitingPods
    api: Api
    assume_cache: VolumeAssumeCache
    evaluations: Evaluations = field(default_factory=Evaluations)
    """The evaluations of this profile's plugins."""
    kubernetes: KubernetesRules = NEWEST
    """The rules of this profile where versions of Kubernetes differ."""
    profile: str = ""
    """The name of this profile."""
    device_metrics: DeviceMetrics = field(default_factory=DeviceMetrics)
