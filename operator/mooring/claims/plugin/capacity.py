"""Computes how much capacity a request consumes, and whether it is free (consumable_capacity.go).

Amounts are integers, in billionths.
"""

from collections.abc import Mapping
from typing import Final

from mooring.claims.model.resource_slices import (
    CapacityPolicy,
    CapacityRange,
    Device,
    DeviceCapacity,
)
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.quantity import Quantity

Requested = Mapping[str, Quantity]
"""The requested amounts by the name of the capacity."""

_UNIT: Final = 10**9
_THOUSANDTH: Final = 10**6
_MOST: Final = 2**63 - 1
_NEGATIVE: Final = "capacity value is negative"
_NOT_REPRESENTABLE: Final = (
    "capacity request cannot be represented in the device's range arithmetic"
)


class CapacityError(Exception):
    """Raised if an amount is negative or cannot be computed; `name` is the capacity's name.

    This ends the allocation. Before Kubernetes 1.37 it is not raised.
    """

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(why)
        self.name = name

    def said_of(self, driver: str, rules: KubernetesRules) -> str:
        """Return kube-scheduler's message about this error for a device of the driver."""
        domain = f"{driver}/" if rules.capacities_have_domain and "/" not in self.name else ""
        return f'capacity "{domain}{self.name}": {self}'


def capacity_left(
    requested: Requested,
    device: Device,
    in_use: Mapping[str, int],
    allocating: Mapping[str, int],
    rules: KubernetesRules,
) -> bool:
    """Return whether the device has enough of each capacity, and its policies allow the request.

    Allocated claims consume `in_use`; this allocation has consumed `allocating` so far. Raises
    CapacityError if an amount cannot be computed, or is negative.
    """
    if any(name not in device.capacity for name in requested):
        return False
    consumed = consumed_capacity(requested, device, rules)
    if rules.capacity_errors:
        for name in sorted(consumed):
            if consumed[name].nano < 0:
                raise CapacityError(_NEGATIVE, name)
    return all(
        not _violates(consumed[name], capacity.policy, rules)
        and in_use.get(name, 0) + consumed[name].nano + allocating.get(name, 0)
        <= capacity.value.nano
        for name, capacity in device.capacity.items()
    )


def consumed_capacity(
    requested: Requested, device: Device, rules: KubernetesRules
) -> dict[str, Quantity]:
    """Return how much the request consumes of each capacity of the device.

    Raises CapacityError if an amount cannot be computed, or if a requested amount is negative.
    """
    consumed = {}
    for name in sorted(device.capacity):
        try:
            consumed[name] = _consumed(requested.get(name), device.capacity[name], rules)
        except CapacityError as error:
            raise CapacityError(str(error), name) from None
    return consumed


def _consumed(
    requested: Quantity | None, capacity: DeviceCapacity, rules: KubernetesRules
) -> Quantity:
    policy = capacity.policy
    if requested is None:
        default = policy.default if policy is not None else None
        return capacity.value if default is None else default
    if rules.fractional_ranges and requested.nano < 0:
        raise CapacityError(f"{_NEGATIVE}: request {requested.text}")
    if policy is None:
        return requested
    span = policy.valid_range
    if span is not None and span.least is not None:
        return _rounded(requested, span, span.least, rules)
    return next((v for v in policy.valid_values if requested <= v), requested)


def _rounded(
    requested: Quantity, span: CapacityRange, least: Quantity, rules: KubernetesRules
) -> Quantity:
    if requested < least:
        return least
    step = span.step
    if step is None:
        return requested
    if rules.fractional_ranges and _in_thousandths(span):
        return _next_thousandth(requested, least, step)
    if rules.capacity_errors and requested.nano > _MOST * _UNIT:
        raise CapacityError(f"{_NOT_REPRESENTABLE}: request {requested.text} exceeds MaxInt64")
    rounded = _next_step(_whole(requested), _whole(least), _whole(step))
    if rules.capacity_errors and rounded > _MOST:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested.text} up to the next step passes "
            "MaxInt64"
        )
    return Quantity(rounded * _UNIT, step.format if rules.capacity_errors else "BinarySI")


def _in_thousandths(span: CapacityRange) -> bool:
    # As kube-scheduler's useMilli.
    amounts = (span.least, span.most, span.step)
    known = [amount.nano for amount in amounts if amount is not None]
    return all(nano % _THOUSANDTH == 0 and abs(nano) <= _MOST * _THOUSANDTH for nano in known) and (
        span.step is None or span.step.nano >= _THOUSANDTH
    )


def _next_thousandth(requested: Quantity, least: Quantity, step: Quantity) -> Quantity:
    if requested.nano % _THOUSANDTH or requested.nano > _MOST * _THOUSANDTH:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: request {requested.text} is not a representable milli value"
        )
    rounded = _next_step(requested.nano, least.nano, step.nano)
    if rounded > _MOST * _THOUSANDTH:
        raise CapacityError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested.text} up to the next step passes "
            "the milli-value range"
        )
    return Quantity(rounded, step.format)


def _next_step(amount: int, least: int, step: int) -> int:
    return least + step * -(-(amount - least) // step) if step else amount


def _violates(consumed: Quantity, policy: CapacityPolicy | None, rules: KubernetesRules) -> bool:
    if policy is None or (policy.default is not None and consumed == policy.default):
        return False
    span = policy.valid_range
    if span is None:
        return bool(policy.valid_values) and consumed not in policy.valid_values
    if span.most is not None and consumed > span.most:
        return True
    if rules.fractional_ranges and span.step is not None and _in_thousandths(span):
        least = span.least.nano if span.least is not None else 0
        return bool(consumed.nano % _THOUSANDTH or (consumed.nano - least) % span.step.nano)
    step = _whole(span.step) if span.step is not None else 0
    base = _whole(span.least) if span.least is not None else 0
    return bool(step) and (_whole(consumed) - base) % step != 0


def _whole(amount: Quantity) -> int:
    # Rounded away from zero.
    whole = -(-abs(amount.nano) // _UNIT)
    return whole if amount.nano >= 0 else -whole
