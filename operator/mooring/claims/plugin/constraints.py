"""The constraints of a claim on attributes of the devices that it gets (constraint.go).

A value is a pair of its type and itself, so that the string "1" and the integer 1 differ. None
stands for a device without the attribute; no constraint admits such a device. The value that was
added last is removed first.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

Value = Hashable
"""The type and the value of an attribute; None if the device lacks the attribute."""


class ConstraintState(Protocol):
    """A constraint of one claim, with the values of the claim's devices so far."""

    values: Sequence[Value]
    """The value of the attribute by the device's position."""

    def applies(self, name: str, full_name: str) -> bool:
        """Return whether the constraint covers request `name` or its sub-request `full_name`."""

    def admits(self, value: Value) -> bool:
        """Return whether a device with this value may be added."""

    def may_ever_admit(self, value: Value) -> bool:
        """Return False if no device with this value can ever be added in this search."""

    def add(self, name: str, value: Value) -> None:
        """Add a device's value for the request of this name; the constraint must admit it."""

    def remove(self, name: str) -> None:
        """Remove the value that was added last; it belongs to the request of this name."""

    def state(self) -> Hashable:
        """Return a key for the state; with equal keys, all later answers are equal."""


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
    """All devices must have the same value."""

    __slots__ = ("_devices", "_value")

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._value: Value = None
        self._devices = 0

    def admits(self, value: Value) -> bool:
        """Return whether no device has been added, or all devices have this value."""
        return value is not None and (not self._devices or value == self._value)

    def add(self, _name: str, value: Value) -> None:
        """Count the device; the first one sets the value."""
        self._value = value
        self._devices += 1

    def remove(self, _name: str) -> None:
        """Count one device less."""
        self._devices -= 1

    def state(self) -> Hashable:
        """Return the value; None without devices."""
        return self._value if self._devices else None


class DistinctAttribute(_OnAttribute):
    """All devices must have different values."""

    __slots__ = ("_values",)

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._values: list[Value] = []

    def admits(self, value: Value) -> bool:
        """Return whether no device so far has the value."""
        return value is not None and value not in self._values

    def add(self, _name: str, value: Value) -> None:
        """Remember the value."""
        self._values.append(value)

    def remove(self, _name: str) -> None:
        """Forget the last value."""
        self._values.pop()

    def state(self) -> Hashable:
        """Return the values of all devices."""
        return frozenset(self._values)


class LastDistinctAttribute(_OnAttribute):
    """Devices must differ from the last device of each request, as before Kubernetes 1.37.

    kube-scheduler remembers one value for each request: with three devices of one request the
    values a, b, a pass. Removing a device also forgets a value that the request had before that
    device.
    """

    __slots__ = ("_devices", "_values")

    def __init__(self, requests: frozenset[str], values: Sequence[Value]) -> None:
        super().__init__(requests, values)
        self._values: dict[str, Value] = {}
        self._devices = 0

    def admits(self, value: Value) -> bool:
        """Return whether no request's last device has the value."""
        return value is not None and (not self._devices or value not in self._values.values())

    def may_ever_admit(self, value: Value) -> bool:
        """Return True unless the value is None: a removal may make a rejected value admissible."""
        return value is not None

    def add(self, name: str, value: Value) -> None:
        """Remember the value as the request's last."""
        self._values[name] = value
        self._devices += 1

    def remove(self, name: str) -> None:
        """Forget the request's value."""
        self._values.pop(name, None)
        self._devices -= 1

    def state(self) -> Hashable:
        """Return the values by request, and the number of devices."""
        return frozenset(self._values.items()), self._devices
