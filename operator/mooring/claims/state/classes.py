"""Maps extended resources to DeviceClasses (deviceclass/extendedresourcecache).

If a class is deleted and another class offers the same resource, the other class is found;
kube-scheduler's cache does not find it.
"""

from collections import defaultdict
from collections.abc import Mapping

from mooring.claims.model.device_classes import CLASS_PREFIX, DeviceClass
from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.state.objects import Objects


class DeviceClasses:
    """The DeviceClasses by name and by extended resource."""

    def __init__(self, objects: Objects) -> None:
        self._mirrored: Mapping[str, DeviceClass] = objects.of(Kind.DEVICE_CLASS)
        self._by_resource: defaultdict[str, dict[str, DeviceClass]] = defaultdict(dict)
        self.version = 0
        """A number that grows with every change of a class."""

    def get(self, name: str) -> DeviceClass | None:
        """Return the class of this name; None if it does not exist."""
        return self._mirrored.get(name)

    def of_resource(self, resource: str) -> DeviceClass | None:
        """Return the DeviceClass that offers the extended resource; None if there is none.

        Of several classes, the newest is returned; of equally new classes, the first by name.
        """
        if resource.startswith(CLASS_PREFIX):
            return self._mirrored.get(resource.removeprefix(CLASS_PREFIX))
        classes = self._by_resource.get(resource)
        if not classes:
            return None
        return min(classes.values(), key=lambda c: (-c.created, c.name))

    def changed(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        """Store a class that was added or changed, or remove it if `after` is None."""
        if before == after:
            return
        self.version += 1
        if before is not None and before.extended_resource:
            drop_item(self._by_resource, before.extended_resource, before.name)
        if after is not None and after.extended_resource:
            self._by_resource[after.extended_resource][after.name] = after
