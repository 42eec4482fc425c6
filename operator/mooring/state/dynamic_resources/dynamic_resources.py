"""Claims, devices and classes of dynamic resource allocation; written by ClusterState only."""

from collections.abc import Collection, Mapping
from typing import Any

from mooring.model.device_classes import DeviceClass
from mooring.model.events import Kind
from mooring.model.pod import Pod, Uid
from mooring.model.resource_claims import Allocation, DeviceId, ResourceClaim
from mooring.model.resource_slices import ResourceSlice
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices
from mooring.state.dynamic_resources.claims import ResourceClaims
from mooring.state.dynamic_resources.classes import DeviceClasses
from mooring.state.dynamic_resources.slices import ResourceSlices
from mooring.state.objects import Objects

__all__ = ["DynamicResourcesView", "DynamicResourcesWriter"]


class DynamicResourcesWriter:
    """Keeps what is derived from claims, slices and classes up to date."""

    def __init__(self, objects: Objects) -> None:
        self.claims = ResourceClaims(objects)
        self.slices = ResourceSlices(objects)
        self.classes = DeviceClasses(objects)
        self.unknown: str | None = None
        """Why claims, slices and classes are not all mirrored now; None if they are."""

    def object_changed(self, kind: Kind, key: str, before: Any | None, after: Any | None) -> Any:
        """Update what is derived from an object of these kinds; None: deleted.

        Returns what decisions knew of it until now, which is newer than `before` if it was assumed.
        """
        match kind:
            case Kind.RESOURCE_CLAIM:
                return self.claims.shown(key, before, after)
            case Kind.RESOURCE_SLICE:
                self.slices.slice_changed(key, after)
            case Kind.DEVICE_CLASS:
                self.classes.changed(before, after)
            case Kind.DEVICE_TAINT_RULE if before != after:
                self.slices.rules_changed(before, after)
            case _:
                pass
        return before


class DynamicResourcesView:
    """What decisions read of claims and devices; a claim is as assumed, else as mirrored."""

    __slots__ = ("_writer",)

    def __init__(self, writer: DynamicResourcesWriter) -> None:
        self._writer = writer

    @property
    def unknown(self) -> str | None:
        """Why claims, slices and classes are not all known now; None if they are.

        While they are not, no device can be allocated: it might be in use.
        """
        return self._writer.unknown

    def claim(self, key: str) -> ResourceClaim | None:
        """Return the claim of this namespace/name; None if it is unknown."""
        return self._writer.claims.get(key)

    def claims_named_by(self, pod: Pod) -> list[ResourceClaim]:
        """Return the known claims that the pod names, or that were made for its templates."""
        return self._writer.claims.named_by(pod)

    def claim_of_uid(self, uid: str) -> ResourceClaim | None:
        """Return the claim of this uid; None if it is unknown."""
        return self._writer.claims.of_uid(uid)

    def in_flight(self, uid: str) -> Allocation | None:
        """Return the allocation of the claim of this uid that is not written yet, if any."""
        return self._writer.claims.in_flight(uid)

    def holders(self, uid: str) -> Collection[Uid]:
        """Return the uids of the pods for which the claim of this uid is being allocated."""
        return self._writer.claims.holders(uid)

    def held(self, pod: Uid) -> Mapping[str, Allocation]:
        """Return the allocations that are in flight for the pod, by the uid of the claim."""
        return self._writer.claims.held(pod)

    def reserved_for(self, consumer: str) -> list[ResourceClaim]:
        """Return the claims that are reserved for the consumer of this uid."""
        return self._writer.claims.reserved_for(consumer)

    def extended_resource_claims(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims that were created for the pod's extended resources."""
        return self._writer.claims.for_extended_resources(pod)

    @property
    def allocated(self) -> AllocatedDevices:
        """The devices in use; only to be read."""
        return self._writer.claims.allocated

    def users(self, device: DeviceId) -> list[ResourceClaim]:
        """Return the claims that have the device, also those with admin access."""
        uids = self.allocated.holders(device)
        return [claim for uid in uids if (claim := self.claim_of_uid(uid)) is not None]

    @property
    def slices(self) -> Collection[ResourceSlice]:
        """All slices with the taints of their devices, in no certain order."""
        return self._writer.slices.all()

    @property
    def slices_version(self) -> int:
        """Grows when any slice changes, or the taints of its devices."""
        return self._writer.slices.version

    def resource_slice(self, name: str) -> ResourceSlice | None:
        """Return the slice of this name with the taints of its devices; None if it is unknown."""
        return self._writer.slices.get(name)

    def slices_changed_since(self, version: int) -> Collection[str] | None:
        """Return the names of slices that changed after this version; None: too long ago."""
        return self._writer.slices.changed_since(version)

    def device_class(self, name: str) -> DeviceClass | None:
        """Return the class of this name; None if there is none."""
        return self._writer.classes.get(name)

    def class_of_resource(self, resource: str) -> DeviceClass | None:
        """Return the class that an extended resource stands for; None if there is none."""
        return self._writer.classes.of_resource(resource)

    @property
    def classes_version(self) -> int:
        """Grows when any class changes."""
        return self._writer.classes.version
