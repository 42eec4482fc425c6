"""What of a device can make a difference to claims: all else, such as its UUID, is left out.

Devices of which both parts are equal get equal answers from selectors, constraints, capacities,
taints and counters. So nodes whose devices have equal parts, and are in use in the same way, get
equal allocations but for the names.
"""

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from mooring.model.bounded_cache import cached
from mooring.model.device_classes import DeviceClass
from mooring.model.quantity import Quantity
from mooring.model.resource_claims import ResourceClaim
from mooring.model.resource_slices import (
    Device,
    DeviceCapacity,
    ResourceSlice,
    Version,
)

__all__ = [
    "EVERYTHING",
    "Reads",
    "attributes_read",
    "attributes_seen",
    "fixed_part",
    "read_part",
    "reads_of",
]

Reads = frozenset[str] | None
"""Names of attributes, without a domain; None: all attributes are read."""
EVERYTHING: Final[Reads] = None

_ATTRIBUTE: Final = re.compile(
    r'("(?P<tested>\w+)"\s+in\s+)?'
    r'\bdevice\.attributes\["[\w.-]+"\]'
    r'(?(tested)(?!\s*[\w.\[?(])|(?:\.\??(?P<field>\w+)\b(?!\s*\()|\["(?P<index>\w+)"\]))'
)
_OTHERS: Final = re.compile(r"\bdevice\.(driver|allowMultipleAllocations|capacity)\b")


@cached(4 * 2**20)
def attributes_read(expression: str) -> Reads:
    """Return the attributes that a CEL expression may read.

    Only the plain ways to name an attribute are understood. Whatever else has to do with the
    device, such as a loop over its attributes, counts as reading all of them.
    """
    if "\\" in expression or "//" in expression or ("'" in expression and '"' in expression):
        return EVERYTHING  # a comment may stand between a name and what follows it
    quoted = expression.replace("'", '"')
    found = [*_ATTRIBUTE.finditer(quoted)]
    rest = _OTHERS.sub("", _ATTRIBUTE.sub("", quoted))
    if re.search(r"\bdevice\b", rest):
        return EVERYTHING
    if "+" in quoted and any(one["tested"] for one in found):
        return EVERYTHING  # the name that is tested may be the end of a sum
    return frozenset(one["tested"] or one["field"] or one["index"] for one in found)


def reads_of(claims: Iterable[ResourceClaim], classes: Iterable[DeviceClass]) -> Reads:
    """Return the attributes that the claims and their classes may read."""
    reads = set[str]()
    expressions = {text for each in classes for text in each.selectors}
    for claim in claims:
        for asked in claim.spec.requests:
            exact = asked.first_available or (asked.exactly,)
            expressions |= {text for one in exact if one is not None for text in one.selectors}
        for constraint in claim.spec.constraints:
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            reads.add(name.rpartition("/")[2])
    for text in expressions:
        some = attributes_read(text) if text is not None else frozenset[str]()
        if some is None:
            return EVERYTHING
        reads |= some
    return frozenset(reads)


def fixed_part(each: ResourceSlice, device: Device) -> Hashable:
    """Return what but attributes can make a difference, whatever claims read."""
    place = device if each.per_device_node_selection else each
    return (
        each.driver,
        tuple([(name, _capacity(amount)) for name, amount in device.capacity.items()]),
        tuple([(taken.counter_set, _amounts(taken.counters.items())) for taken in device.consumes]),
        device.taints,
        device.allow_multiple_allocations,
        len(place.node_selector.terms) if place.node_selector is not None else 0,
    )


def read_part(device: Device, reads: Reads) -> Hashable:
    """Return the attributes of the device that claims read, and those that may always fail."""
    return attributes_seen(device.attributes, reads)


def attributes_seen(
    attributes: Mapping[str, Any], reads: Reads
) -> tuple[tuple[str, type, Any], ...]:
    """Return the attributes that can make a difference to what reads these ones.

    Those without a value that selectors understand, and versions, may make any selector fail.
    """
    return tuple(
        [
            (name, type(value), value)
            for name, value in attributes.items()
            if reads is None
            or value is None
            or type(value) is Version
            or name in reads
            or name.rpartition("/")[2] in reads
        ]
    )


def _capacity(capacity: DeviceCapacity) -> Hashable:
    return _amount(capacity.value), capacity.policy


def _amounts(amounts: Iterable[tuple[str, Quantity]]) -> Hashable:
    return tuple((name, _amount(amount)) for name, amount in amounts)


def _amount(amount: Quantity) -> Hashable:
    return amount.nano, amount.format
