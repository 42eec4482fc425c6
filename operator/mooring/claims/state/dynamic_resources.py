"""Claims, devices and classes of dynamic resource allocation; written by ClusterState only."""

from typing import Any

from mooring.claims.state.claims import ResourceClaims
from mooring.claims.state.classes import DeviceClasses
from mooring.claims.state.slices import ResourceSlices
from mooring.model.events import Kind
from mooring.state.objects import Objects


class ClaimTables:
    """Claims, slices and classes, and the values derived from them, as decisions see them."""

    def __init__(self, objects: Objects) -> None:
        self.claims = ResourceClaims(objects)
        self.slices = ResourceSlices(objects)
        self.classes = DeviceClasses(objects)
        self.unknown: str | None = None
        """Why claims, slices and classes are not all mirrored now; None if they are.

        While they are not, no device can be allocated: it might be in use.
        """

    def object_changed(self, kind: Kind, key: str, before: Any | None, after: Any | None) -> Any:
        """Update the values derived from a claim, slice, class or rule; `after` is None if deleted.

        Return the version that decisions have used; if it was assumed, it is newer than `before`.
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
