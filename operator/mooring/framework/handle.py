"""What a plugin is given when it is built: the cluster, the waiting room, the API and a ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mooring.framework.waiting_pods import WaitingPods
from mooring.model.devices import Assignment, CardFormat
from mooring.model.pod import Pod
from mooring.model.storage import PersistentVolume, PersistentVolumeClaim
from mooring.state.devices.cards import Cards
from mooring.state.snapshot import Snapshot

__all__ = ["Api", "Handle", "VolumeAssumeCache"]


class Api(Protocol):
    """The writes that plugins may make, and only from reserve on; errors are exceptions."""

    async def bind(self, pod: Pod, node: str) -> None:
        """The pod is bound to the node through the Binding subresource."""

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """The pod gets these annotations together with its node, in one write or neither.

        They are added to those that were given before; an empty mapping takes all of them back. A
        plugin calls this in pre_bind, and with an empty mapping in unreserve.
        """

    def unix_nanoseconds(self) -> int:
        """The time of day, for what plugins write; nothing is to be decided by it."""

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """The object (`persistentvolumes`, `persistentvolumeclaims`) after a merge patch.

        A `metadata.resourceVersion` in the patch makes it fail if the object has changed since.
        """

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """`done` was true: it is asked now, and again whenever the mirrored cluster has changed.

        What `done` raises passes through, whenever it raises.

        Raises:
            TimeoutError: after `seconds`; with 0, at once if `done` is not true yet.
        """


class VolumeAssumeCache(Protocol):
    """What plugins may set aside in the state, and only in reserve and unreserve."""

    def assume_volumes(
        self,
        pod: Pod,
        volumes: Sequence[PersistentVolume],
        claims: Sequence[PersistentVolumeClaim],
    ) -> None:
        """Decisions see the objects like this until the watch shows newer versions of them."""

    def restore_volumes(self, pod: Pod) -> None:
        """What was assumed for the pod, and for no other, is assumed no more."""

    def assign_cards(self, pod: Pod, form: CardFormat, assignment: Assignment) -> None:
        """The assumed pod has these GPU cards of its node; they are free when it is forgotten."""

    def track_cards(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """The books of GPU cards in this format, kept as long as the plugin keeps them.

        This is for a plugin's constructor. With `demand` the books also tell which requests are
        typical of the cluster.
        """


@dataclass(frozen=True, slots=True)
class Handle:
    """Handed to every plugin's constructor."""

    cluster: Snapshot
    waiting_pods: WaitingPods
    api: Api
    assume_cache: VolumeAssumeCache
