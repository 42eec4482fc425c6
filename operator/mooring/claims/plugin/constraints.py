"""The constraints of a claim on attributes of its devices (constraint.go).

A value is a pair of type and value, so that the string "1" and the integer 1 differ. None is a
device without the attribute; no constraint admits it. The device that was added last is removed
first.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

Value = Hashable
"""The type and the value of an attribute; None if the device lacks the attribute."""


class ConstraintState(Protocol):
    """A constraint of a claim during a search; it remembers values of the devices added so far."""

    values: Sequence[Value]
    """The attribute's value of each candidate device, by the device's position in `NodeDevices`."""

    def applies(self, name: str, full_name: str) -> bool:
        """Return whether the constraint is for request `name` or sub-request `full_name`."""

    def admits(self, value: Value) -> bool:
        """Return whether a device with this value may be added."""

    def may_ever_admit(self, value: Value) -> bool:
        """Return False if the value cannot be admitted before a device is removed."""

    def add(self, name: str, value: Value) -> None:
        """Add a device's value for request `name`; the constraint must admit the value."""

    def remove(self, name: str) -> None:
        """Remove the device that was added last; it was added for request `name`."""

    def state(self) -> Hashable:
        """Return a key; constraints with equal keys give the same answers in future."""


class _OnAttribute:
    __slots__ = ("_requests", "values")

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        self._requests = requests
        self.values = values

    def applies(self, name: str, full_name: str) -> bool:
        return not self._requests or name in self._requests or full_name in self._requests

    def admits(self, value: Value) -> bool:
        raise NotImplementedError

    def may_ever_admit(self, value: Value) -> bool:
        return self.admits(value)


class MatchAttribute(_OnAttribute):
    """The constraint that all devices have the same value of an attribute."""

    __slots__ = ("_devices", "_value")

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._value: Value = None
        self._devices = 0

    def admits(self, value: Value) -> bool:
        """Return False if the value is None, or if devices were added with another value."""
        return value is not None and (not self._devices or value == self._value)

    def add(self, _name: str, value: Value) -> None:
        """Count the device; the first device sets the value."""
        self._value = value
        self._devices += 1

    def remove(self, _name: str) -> None:
        """Remove one device from the count."""
        self._devices -= 1

    def state(self) -> Hashable:
        """Return the common value of the devices; None without devices."""
        return self._value if self._devices else None


class DistinctAttribute(_OnAttribute):
    """The constraint that all devices have different values of an attribute."""

    __slots__ = ("_values",)

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._values: list[Value] = []

    def admits(self, value: Value) -> bool:
        """Return False if the value is None, or if a device was added with this value."""
        return value is not None and value not in self._values

    def add(self, _name: str, value: Value) -> None:
        """Add a device's value."""
        self._values.append(value)

    def remove(self, _name: str) -> None:
        """Remove the value that was added last."""
        self._values.pop()

    def state(self) -> Hashable:
        """Return the values of all devices."""
        return frozenset(self._values)


class LastDistinctAttribute(_OnAttribute):
    """The constraint `distinctAttribute` before Kubernetes 1.37, which compares only some devices.

    A new value must differ from the last value of each request. So one request may get the values
    a, b, a. When a device is removed, its request has no last value until the next device.
    """

    __slots__ = ("_devices", "_values")

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._values: dict[str, Value] = {}
        self._devices = 0

    def admits(self, value: Value) -> bool:
        """Return False if the value is None, or if it is the last value of a request."""
        return value is not None and (not self._devices or value not in self._values.values())

    def may_ever_admit(self, value: Value) -> bool:
        """Return True unless the value is None: after a removal, any value may be admitted."""
        return value is not None

    def add(self, name: str, value: Value) -> None:
        """Set the last value of the request, and count the device."""
        self._values[name] = value
        self._devices += 1

    def remove(self, name: str) -> None:
        """Drop the last value of the request, and count one device less."""
        self._values.pop(name, None)
        self._devices -= 1

    def state(self) -> Hashable:
        """Return the last value of each request, and the number of devices."""
        return frozenset(self._values.items()), self._devices
