"""The slices of the cluster, including taints that DeviceTaintRules add to devices.

See resourceslice/tracker of k8s.io/dynamic-resource-allocation.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from mooring.claims.model.resource_slices import Device, DeviceTaintRule, ResourceSlice
from mooring.model.events import Kind
from mooring.model.indexes import add_count
from mooring.model.taints import Taint
from mooring.pausing import pause
from mooring.state.objects import Objects

_KEPT: Final = 16_384
"""The number of changes that are remembered; for an older version, `changed_since` returns None."""


class ResourceSlices:
    """The slices by name, with the taints of all rules."""

    def __init__(self, objects: Objects) -> None:
        self._mirrored = objects.of(Kind.RESOURCE_SLICE)
        self._rules = objects.of(Kind.DEVICE_TAINT_RULE)
        self._tainted: dict[str, ResourceSlice] = {}
        self.of_driver: Counter[str] = Counter()
        """The number of devices in slices, by driver."""
        self.version = 0
        """A number that grows with every change of a slice."""
        self._changes: deque[str] = deque(maxlen=_KEPT)
        """The names of the slices that changed, one for each version."""

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the names of slices changed after this version; None if the version is too old."""
        changes = self.version - version
        if not 0 <= changes <= len(self._changes):
            return None
        return {self._changes[-each]: None for each in range(changes, 0, -1)}

    def all(self) -> Collection[ResourceSlice]:
        """Return all slices, in any order; the caller must not change the collection."""
        return self._tainted.values()

    def get(self, name: str) -> ResourceSlice | None:
        """Return the slice of this name; None if it is unknown."""
        return self._tainted.get(name)

    def slice_changed(self, name: str, after: ResourceSlice | None) -> None:
        """Store the slice as the watch shows it; `after` is None if it was deleted."""
        known = self._tainted.get(name)
        if after is None:
            if known is not None:
                del self._tainted[name]
                self._changed(name, known, None)
            return
        tainted = self._with_rules(after)
        if known != tainted:
            self._tainted[name] = tainted
            self._changed(name, known, tainted)

    def _changed(
        self, name: str, before: ResourceSlice | None, after: ResourceSlice | None
    ) -> None:
        self.version += 1
        self._changes.append(name)
        if before is not None:
            add_count(self.of_driver, before.driver, -len(before.devices))
        if after is not None and after.devices:
            self.of_driver[after.driver] += len(after.devices)

    def rules_changed(self, *rules: DeviceTaintRule | None) -> None:
        """Compute the taints again for devices that the old or new rules select."""
        for each in self._mirrored.values():
            if any(rule is not None and _may_select(rule, each) for rule in rules):
                self.slice_changed(each.name, each)
            pause()

    def _with_rules(self, each: ResourceSlice) -> ResourceSlice:
        rules: Iterable[DeviceTaintRule] = self._rules.values()
        rules = sorted((r for r in rules if _may_select(r, each)), key=lambda rule: rule.name)
        if not rules:
            return each
        devices = tuple(_tainted(device, rules) for device in each.devices)
        return replace(each, devices=devices, alike=(each.alike, *[one.taints for one in devices]))


def _may_select(rule: DeviceTaintRule, each: ResourceSlice) -> bool:
    return (
        rule.selects
        and rule.driver in (None, each.driver)
        and rule.pool in (None, each.pool)
        and (rule.device is None or any(d.name == rule.device for d in each.devices))
    )


def _tainted(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    taints: list[Taint] = [rule.taint for rule in rules if rule.device in (None, device.name)]
    return replace(device, taints=(*device.taints, *taints)) if taints else device
