"""Keeps claims, slices and device classes; only ClusterState writes these tables."""

from typing import Any

from mooring.claims.state.claims import ResourceClaims
from mooring.claims.state.classes import DeviceClasses
from mooring.claims.state.slices import ResourceSlices
from mooring.model.events import Kind
from mooring.state.objects import Objects


class ClaimTables:
    """Claims, ResourceSlices and DeviceClasses; assumed claims replace mirrored claims."""

    def __init__(self, objects: Objects) -> None:
        self.claims = ResourceClaims(objects)
        self.slices = ResourceSlices(objects)
        self.classes = DeviceClasses(objects)
        self.unknown: str | None = None
        """Why some claims, slices or classes are not mirrored; None if all are.

        As long as it is not None, no device is allocated: an unknown claim may hold the device.
        """

    def object_changed(self, kind: Kind, key: str, before: Any | None, after: Any | None) -> Any:
        """Store a changed claim, slice, class or taint rule; `after` is None if it was deleted.

        Returns the version that decisions have used: `before`, or an assumed version of the claim.
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
