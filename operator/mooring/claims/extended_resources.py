"""Finds the DeviceClasses that offer extended resources."""

from collections.abc import Hashable

from mooring.claims.model.device_classes import CLASS_PREFIX, DeviceClass
from mooring.framework.handle import Handle
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod

__all__ = ["ClassesOfResources"]


class ClassesOfResources:
    """Maps extended resources to DeviceClasses; empty before Kubernetes 1.36."""

    def __init__(self, handle: Handle) -> None:
        self._devices = handle.cluster.dynamic_resources
        self._known = handle.kubernetes.devices_of_extended_resources

    def of(self, resource: str) -> DeviceClass | None:
        """Return the DeviceClass for the extended resource; None if there is none."""
        if "/" not in resource or not self._known:
            return None
        return self._devices.classes.of_resource(resource)

    def has(self, resource: str) -> bool:
        """Return whether a DeviceClass offers the extended resource."""
        return self.of(resource) is not None

    def of_pod(self, pod: Pod) -> Hashable:
        """Return a cache key: the names of the pod's extended resources that have a DeviceClass.

        Returns None if the pod has no containers.
        """
        if not pod.spec.containers:
            return None
        return tuple(name for name in pod.spec.demand.resources if self.has(name))

    def may_help(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the event may give one of the pod's extended resources a DeviceClass."""
        before, after = event.before, event.after
        if not isinstance(after, DeviceClass) or not self._known:
            return False
        names = {after.extended_resource}
        if not isinstance(before, DeviceClass):
            names.add(CLASS_PREFIX + after.name)
        elif before.extended_resource == after.extended_resource:
            return False
        return not names.isdisjoint(pod.spec.demand.resources)
