"""Counts the devices of a class on each node, and how many of these devices are in use.

Plugins score these devices for extended resources that have a DeviceClass (resource_allocation.go
of kube-scheduler's plugin noderesources). If a selector fails for one device of a node, the node's
count is 0.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from mooring.cel.cel_errors import CompileError
from mooring.claims.device_selector import DeviceView, SelectorError, compile_selector
from mooring.claims.extended_resources import ClassesOfResources
from mooring.claims.model.device_classes import DeviceClass
from mooring.claims.model.resource_claims import DeviceId
from mooring.claims.model.resource_slices import Device, ResourceSlice
from mooring.framework.handle import Handle
from mooring.model.indexes import drop_item
from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["DeviceCounts"]

_Place = int | BoolArray
"""The nodes that can use a device: the row of the only node, or bool[rows]."""


class DeviceCounts:
    """Counts devices for the resources that a plugin scores."""

    def __init__(self, handle: Handle, resources: Iterable[str]) -> None:
        self._cluster = handle.cluster
        self._classes = ClassesOfResources(handle)
        self._lists = handle.kubernetes.device_attributes_may_be_lists
        self._resources = tuple(name for name in resources if "/" in name)
        self._counted: dict[str, _Counts] = {}

    def version(self, pod: Pod) -> Hashable:
        """Return a key that changes with the counts; None if no requested resource is counted."""
        if not pod.spec.containers:
            return None
        requested = pod.spec.demand.resources
        if not any(name in requested and self._classes.has(name) for name in self._resources):
            return None
        devices = self._cluster.dynamic_resources
        return (
            devices.classes.version,
            devices.slices.version,
            devices.claims.allocated.version,
            self._cluster.nodes.topology_version,
        )

    def columns(self, resource: str, nodes: NodeView) -> tuple[IntArray, IntArray]:
        """Return the offered and the requested amounts of a resource, each as int64[nodes].

        If a node does not offer the resource itself, but devices of the resource's DeviceClass, the
        amounts are the numbers of these devices.
        """
        offered, requested = nodes.allocatable(resource), nodes.requested(resource)
        known = self._classes.of(resource)
        if known is None:
            return offered, requested
        counts = self._counted.get(resource)
        if counts is None or counts.device_class != known:
            counts = self._counted[resource] = _Counts(known, self._lists)
        counts.follow(self._cluster)
        devices = np.where(counts.failed > 0, 0, counts.offered)[nodes.rows]
        has_devices = (offered == 0) & (devices > 0)
        return (
            np.where(has_devices, devices, offered),
            np.where(has_devices, counts.used[nodes.rows], requested),
        )


@dataclass(slots=True, eq=False)
class _SliceDevices:
    """The devices of a slice that a class selects; `places` is keyed by the device's name."""

    slice: ResourceSlice
    selected: list[Device] = field(default_factory=list)
    failed: list[Device] = field(default_factory=list)
    places: dict[str, _Place | None] = field(default_factory=dict)

    def locate(self, cluster: ClusterView) -> None:
        if not self.slice.per_device_node_selection:
            place = _place(self.slice, cluster)
            self.places = dict.fromkeys((each.name for each in self.slice.devices), place)
        else:
            self.places = {each.name: _place(each, cluster) for each in self.slice.devices}


class _Counts:
    """Counts the devices of one class on each node, as int64[rows]."""

    def __init__(self, device_class: DeviceClass, lists: bool) -> None:  # noqa: FBT001 - a fact
        self.device_class = device_class
        self._selectors = [
            compile_selector(expression, attributes_may_be_lists=lists)
            for expression in device_class.selectors
            if expression is not None
        ]
        self._slices: dict[str, _SliceDevices] = {}
        self._places: dict[DeviceId, dict[str, _Place]] = {}
        """The nodes of a selected device, by device and by ResourceSlice that lists the device."""
        self._in_use: dict[DeviceId, None] = {}
        """All devices in use; the class may not select some of these devices."""
        self._slices_version = self._topology = -1
        self._devices_version = -1
        self._clear(0)

    def follow(self, cluster: ClusterView) -> None:
        devices, topology = cluster.dynamic_resources, cluster.nodes.topology_version
        if self._topology != topology:
            self._clear(len(cluster.nodes))
            self._places.clear()
            for found in self._slices.values():
                found.locate(cluster)
                self._count(found, 1)
        if self._slices_version != devices.slices.version:
            self._take_over(cluster)
        changed = devices.claims.allocated.changed_since(self._devices_version)
        dedicated, shares = devices.claims.allocated.dedicated, devices.claims.allocated.shares
        for device in {*self._in_use, *dedicated, *shares} if changed is None else changed:
            self._use(device, in_use=device in dedicated or device in shares)
        self._slices_version, self._topology = devices.slices.version, topology
        self._devices_version = devices.claims.allocated.version

    def _clear(self, rows: int) -> None:
        self.offered: IntArray = np.zeros(rows, np.int64)
        self.used: IntArray = np.zeros(rows, np.int64)
        self.failed: IntArray = np.zeros(rows, np.int64)

    def _take_over(self, cluster: ClusterView) -> None:
        current = {each.name: each for each in cluster.dynamic_resources.slices.all()}
        for name, found in [*self._slices.items()]:
            if current.get(name) is not found.slice:
                self._count(self._slices.pop(name), -1)
        known: dict[Hashable, bool | None] = {}
        for name, each in current.items():
            if name not in self._slices:
                found = self._slices[name] = self._selected(each, known)
                found.locate(cluster)
                self._count(found, 1)

    def _selected(self, each: ResourceSlice, known: dict[Hashable, bool | None]) -> _SliceDevices:
        found = _SliceDevices(each)
        for device in each.devices:
            # As text, because 1 and True are equal, and selectors tell them apart.
            values = repr(device.attributes), repr(device.capacity)
            kind = each.driver, values, device.allow_multiple_allocations
            if kind not in known:
                known[kind] = self._matches(each.driver, device)
            if known[kind]:
                found.selected.append(device)
            elif known[kind] is None:
                found.failed.append(device)
        return found

    def _matches(self, driver: str, device: Device) -> bool | None:
        capacity = {name: each.value for name, each in device.capacity.items()}
        view = DeviceView(driver, device.attributes, capacity, device.allow_multiple_allocations)
        for selector in self._selectors:
            try:
                if isinstance(selector, CompileError):
                    return None
                if not selector.matches(view):
                    return False
            except SelectorError:
                return None
        return True

    def _count(self, found: _SliceDevices, sign: int) -> None:
        each = found.slice
        for device in found.selected:
            place = found.places[device.name]
            if place is None:
                continue
            self.offered[place] += sign
            device_id = DeviceId(each.driver, each.pool, device.name)
            if device_id in self._in_use:
                self.used[place] += sign
            if sign > 0:
                self._places.setdefault(device_id, {})[each.name] = place
                continue
            drop_item(self._places, device_id, each.name)
        for device in found.failed:
            place = found.places[device.name]
            if place is not None:
                self.failed[place] += sign

    def _use(self, device: DeviceId, *, in_use: bool) -> None:
        if in_use == (device in self._in_use):
            return
        for place in self._places.get(device, {}).values():
            self.used[place] += 1 if in_use else -1
        if in_use:
            self._in_use[device] = None
        else:
            del self._in_use[device]


def _place(where: ResourceSlice | Device, cluster: ClusterView) -> _Place | None:
    if where.all_nodes:
        return cluster.nodes.present
    if where.node_selector is not None:
        return cluster.nodes.admitted(LabelSelector(), where.node_selector)
    return cluster.row(where.node_name)
