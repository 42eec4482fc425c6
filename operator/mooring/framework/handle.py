"""The handle that every plugin gets: the cluster, waiting pods, and the allowed writes."""

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
    """Raised if an object has changed, or if a write may have failed: read the object again."""


class Api(Protocol):
    """The writes that plugins may make, from `reserve` on. A failed write raises an exception."""

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod to the node through the Binding subresource; call this in `bind`.

        Raises PluginError, and sends nothing, if the pod is not at Bind for this node.
        """

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add these annotations to the pod when it is bound; call this in `pre_bind`.

        An empty mapping removes all annotations that plugins have added in this attempt.
        """

    def unix_nanoseconds(self) -> int:
        """Return the time of day for annotations and statuses. No decision may depend on it."""

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a merge patch and return the new object.

        `resource` is `persistentvolumes` or `persistentvolumeclaims`. A `metadata.resourceVersion`
        in the patch makes the call fail if the object has changed since that version.
        """

    def record(self, pod: Pod, reason: str, note: str) -> None:
        """Record an event of type Normal about the pod; its action is Scheduling."""

    async def read(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Read the `resourceclaims` object from the API server; return None if there is none."""

    async def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object in the namespace that its metadata names, and return it.

        `resource` is `resourceclaims`. After an exception the object may exist or not.
        """

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        """Ask the API server to delete the `resourceclaims` object with this uid."""

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
        """Apply a merge patch that has `metadata.resourceVersion`, and return the new object.

        `resource` is `resourceclaims`. Raises ReadAgainError if the object has another version, or
        if it is unknown whether the patch was applied.
        """

    def alone(self, key: str) -> AbstractAsyncContextManager[object]:
        """Return an async context that only one caller at a time can enter for the same key.

        If a caller is cancelled during `update`, the next caller waits until the API server has
        answered, for at most 30 s.
        """

    def later(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call `write` soon in a separate task; log an exception that it raises.

        Use this in `post_filter` and `unreserve`, which cannot wait for a write. In a trial, or
        after the scheduler has stopped, `write` is not called.
        """

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done` returns True; `done` is called at once and after cluster events.

        Raises any exception of `done`, and TimeoutError after `seconds`. With 0 seconds, `done` is
        called only once.
        """


class VolumeAssumeCache(Protocol):
    """Assumes volumes, claims and GPU cards; plugins may call it from `reserve` on."""

    def assume_volumes(
        self,
        pod: Pod,
        volumes: Sequence[PersistentVolume],
        claims: Sequence[PersistentVolumeClaim],
    ) -> None:
        """Let decisions see these objects until the watch shows newer versions of them."""

    def restore_volumes(self, pod: Pod) -> None:
        """Undo the assumptions of `assume_volumes` for this pod, but not for other pods."""

    def hold_claims(self, holder: Uid, allocations: Mapping[str, Allocation]) -> None:
        """Mark the allocations, by claim uid, as in flight for the pod with the uid `holder`.

        The allocated devices are in use until `release_claims`, or until the pod is forgotten.
        """

    def release_claims(self, holder: Uid, claims: Iterable[str] | None = None) -> None:
        """Release allocations that `hold_claims` marked for the pod; None means all its claims."""

    def assume_claim(self, claim: ResourceClaim) -> bool:
        """Let decisions see this version of the claim, which the API server has returned.

        Returns False if the watch has already shown a newer version, or the deletion of the claim.
        """

    def assign_cards(self, pod: Pod, form: CardFormat, assignment: Assignment) -> None:
        """Assign GPU cards of the pod's node to the assumed pod, until the pod is forgotten."""

    def track_cards(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """Return the counts of GPU cards in this format; call this in a plugin's constructor.

        The counts are kept up to date as long as the plugin keeps the result. With `demand`, the
        result also says which requests are typical of the cluster.
        """


class DeviceMetrics:
    """Counts results of claims for devices. This base class counts nothing."""

    def devices_bound(
        self,
        profile: str,
        drivers: Sequence[str],
        waited: Sequence[str],
        status: str,
        seconds: float,
    ) -> None:
        """Count one wait of PreBind for the binding of devices, which took `seconds`.

        `drivers` has the driver of each allocated device, and `waited` the driver of each device
        with binding conditions. `status` is success, failure, timeout or error.
        """

    def claim_created(self, status: str) -> None:
        """Count an attempt to create a claim for a pod's extended resources.

        `status` is success or failure.
        """


@dataclass(frozen=True, slots=True)
class Handle:
    """The second argument of every plugin's constructor (framework.Handle in kube-scheduler)."""

    cluster: ClusterView
    waiting_pods: WaitingPods
    api: Api
    assume_cache: VolumeAssumeCache
    evaluations: Evaluations = field(default_factory=Evaluations)
    """Limits how much this profile's plugins evaluate in one attempt."""
    kubernetes: KubernetesRules = NEWEST
    """The rules of the version of Kubernetes that this profile follows."""
    profile: str = ""
    """The name of the profile that the plugin is built for."""
    device_metrics: DeviceMetrics = field(default_factory=DeviceMetrics)
