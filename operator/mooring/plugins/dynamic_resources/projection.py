"""What of a device can make a difference to claims: all else, such as its UUID, is left out.

Devices of which both parts are equal get equal answers from selectors, constraints, capacities,
taints and counters. So nodes whose devices have equal parts, and are in use in the same way, get
equal allocations but for the names.
"""

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

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
    "Compared",
    "Reads",
    "attributes_read",
    "attributes_seen",
    "compared",
    "fixed_part",
    "individual_reads",
    "read_part",
    "reads_of",
]


class Compared(NamedTuple):
    """An attribute, named without a domain, that is only compared with these texts."""

    name: str
    texts: frozenset[str]


Reads = frozenset[str | Compared] | None
"""Names of attributes, without a domain, or what they are compared with; None: all are read."""
EVERYTHING: Final[Reads] = None

_DOMAIN: Final = r'\bdevice\.attributes\["[\w.-]+"\]'
_ATTRIBUTE: Final = re.compile(
    rf'"(?P<tested>\w+)"\s+in\s+{_DOMAIN}(?!\s*[\w.\[?(])'
    rf'|{_DOMAIN}(?:\.\??(?P<field>\w+)\b(?!\s*\()|\["(?P<index>\w+)"\])'
)
_COMPARED: Final = re.compile(
    r'(?P<before>^|\(|&&|\|\|)\s*device\.attributes\["[\w.-]+"\]'
    r'(?:\.(?P<field>\w+)|\["(?P<index>\w+)"\])\s*==\s*"(?P<text>[^"]*)"\s*(?=$|\)|&&|\|\|)'
)
"""Whole operands of `&&` and `||`: of such an attribute nothing counts but whether it is equal."""
_OTHERS: Final = re.compile(r"\bdevice\.(driver|allowMultipleAllocations|capacity)\b")


@cached(4 * 2**20)
def attributes_read(expression: str) -> Reads:
    """Return the attributes that a CEL expression may read.

    Only the plain ways to name an attribute, and to compare it with a text, are understood.
    Whatever else has to do with the device, such as a loop over its attributes, counts as reading
    all of them.
    """
    if "\\" in expression or "//" in expression or ("'" in expression and '"' in expression):
        return EVERYTHING  # a comment may stand between a name and what follows it
    quoted = expression.replace("'", '"')
    texts = dict[str, set[str]]()
    for each in _COMPARED.finditer(quoted):
        texts.setdefault(each["field"] or each["index"], set()).add(each["text"])
    others = _COMPARED.sub(lambda each: f"{each['before']} true", quoted)
    found = [*_ATTRIBUTE.finditer(others)]
    rest = _OTHERS.sub("", _ATTRIBUTE.sub("", others))
    if re.search(r"\bdevice\b", rest):
        return EVERYTHING
    if "+" in quoted and any(one["tested"] for one in found):
        return EVERYTHING  # the name that is tested may be the end of a sum
    return _reads({one["tested"] or one["field"] or one["index"] for one in found}, texts)


def _reads(whole: set[str], texts: Mapping[str, Iterable[str]]) -> Reads:
    """Return the reads of attributes, and of those that are only compared with texts."""
    few = (Compared(name, frozenset(some)) for name, some in texts.items() if name not in whole)
    return frozenset((*whole, *few))


def reads_of(claims: Iterable[ResourceClaim], classes: Iterable[DeviceClass]) -> Reads:
    """Return the attributes that the claims and their classes may read."""
    whole, texts = set[str](), dict[str, set[str]]()
    expressions = {text for each in classes for text in each.selectors}
    for claim in claims:
        for asked in claim.spec.requests:
            exact = asked.first_available or (asked.exactly,)
            expressions |= {text for one in exact if one is not None for text in one.selectors}
        for constraint in claim.spec.constraints:
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            whole.add(name.rpartition("/")[2])
    for text in expressions:
        some = attributes_read(text) if text is not None else frozenset[str | Compared]()
        if some is None:
            return EVERYTHING
        for each in some:
            if isinstance(each, Compared):
                texts.setdefault(each.name, set()).update(each.texts)
            else:
                whole.add(each)
    return _reads(whole, texts)


def individual_reads(
    reads: Reads, names: Iterable[str]
) -> tuple[tuple[str, frozenset[str]], ...] | None:
    """Return those of these attributes, named in full, that are compared, and with which texts.

    None: one of them is read as a whole.
    """
    found = list[tuple[str, frozenset[str]]]()
    for name in sorted(names):
        last = name.rpartition("/")[2]
        if reads is None or name in reads or last in reads:
            return None
        texts = _texts(reads)
        if last in texts:
            found.append((name, texts[last]))
    return tuple(found)


def compared(value: str, texts: frozenset[str]) -> str:
    """Return a text of the same length, the same one for all that equal none of these texts."""
    if value in texts or not value.isascii():
        return value
    other = "\0" * len(value)  # what a comparison costs depends on the length
    return value if other in texts else other


@cached(4 * 2**20)
def _texts(reads: frozenset[str | Compared]) -> Mapping[str, frozenset[str]]:
    """Return what attributes are compared with by their names."""
    return {each.name: each.texts for each in reads if isinstance(each, Compared)}


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

    Those without a value that selectors understand, and versions, may make any selector fail. Of
    texts that are only compared, all that equal none of the others have one of their length.
    """
    if reads is None:
        return tuple([(name, type(value), value) for name, value in attributes.items()])
    texts, seen = _texts(reads), list[tuple[str, type, Any]]()
    for name, value in attributes.items():
        last = name.rpartition("/")[2]
        if value is None or type(value) is Version or name in reads or last in reads:
            seen.append((name, type(value), value))
        elif last in texts:
            text = compared(value, texts[last]) if type(value) is str else value
            seen.append((name, type(value), text))
    return tuple(seen)


def _capacity(capacity: DeviceCapacity) -> Hashable:
    return _amount(capacity.value), capacity.policy


def _amounts(amounts: Iterable[tuple[str, Quantity]]) -> Hashable:
    return tuple((name, _amount(amount)) for name, amount in amounts)


def _amount(amount: Quantity) -> Hashable:
    return amount.nano, amount.format
