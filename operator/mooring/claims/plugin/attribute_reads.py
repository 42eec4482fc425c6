"""Finds the attributes of devices that the CEL expressions of claims can read.

Claims cannot distinguish devices that differ only in other attributes, such as a UUID. If an
attribute is only compared with constants, it matters only which constant it equals.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mooring.claims.model.device_classes import DeviceClass
from mooring.claims.model.resource_claims import ResourceClaim
from mooring.claims.model.resource_slices import Version
from mooring.model.bounded_cache import cached


class ComparedAttribute(NamedTuple):
    """An attribute that an expression only compares with `texts`; `name` has no domain."""

    name: str
    texts: frozenset[str]


Reads = frozenset[str | ComparedAttribute] | None
"""The attributes that an expression reads or compares, without domains; None: all attributes."""
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
"""Matches an operand of `&&` or `||` that only compares an attribute with a text."""
_OTHERS: Final = re.compile(r"\bdevice\.(driver|allowMultipleAllocations|capacity)\b")


@cached(4 * 2**20)
def attributes_read(expression: str) -> Reads:
    """Return the attributes that a CEL expression may read.

    Returns EVERYTHING if the expression uses the device in an unknown way, for example in a loop
    over its attributes.
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
    few = (
        ComparedAttribute(name, frozenset(some))
        for name, some in texts.items()
        if name not in whole
    )
    return frozenset((*whole, *few))


def reads_of(
    claims: Iterable[ResourceClaim], device_class: Callable[[str], DeviceClass | None]
) -> Reads:
    """Return the attributes that the claims depend on.

    These are the attributes that expressions of the claims and of their classes may read, and those
    that constraints compare.
    """
    whole, texts, expressions = set[str](), dict[str, set[str]](), set[str | None]()
    for claim in claims:
        for asked in claim.spec.requests:
            for one in asked.first_available or (asked.exactly,):
                if one is not None:
                    of_class = device_class(one.device_class)
                    expressions.update(one.selectors, of_class.selectors if of_class else ())
        for constraint in claim.spec.constraints:
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            whole.add(name.rpartition("/")[2])
    for text in expressions:
        some = attributes_read(text) if text is not None else frozenset[str | ComparedAttribute]()
        if some is None:
            return EVERYTHING
        for each in some:
            if isinstance(each, ComparedAttribute):
                texts.setdefault(each.name, set()).update(each.texts)
            else:
                whole.add(each)
    return _reads(whole, texts)


def attributes_among(names: Iterable[str], reads: Reads) -> list[tuple[str, frozenset[str] | None]]:
    """Return the attributes in `names` that expressions read, each with the texts compared with it.

    The texts are None if expressions may use the attribute in other ways, too.
    """
    if reads is None:
        return [(name, None) for name in names]
    texts, found = _texts(reads), list[tuple[str, frozenset[str] | None]]()
    for name in names:
        last = name.rpartition("/")[2]
        if name in reads or last in reads:
            found.append((name, None))
        elif last in texts:
            found.append((name, texts[last]))
    return found


def value_seen(value: Any, texts: frozenset[str] | None) -> Any:
    """Return a key of the value; an expression cannot distinguish values with equal keys.

    `texts` are the constants with which the expression compares the value. None means that it uses
    the value in another way.
    """
    if texts is None or type(value) is not str or value in texts or not value.isascii():
        return value
    other = "\0" * len(value)  # what a comparison costs depends on the length
    return value if other in texts else other


@cached(4 * 2**20)
def _texts(reads: frozenset[str | ComparedAttribute]) -> Mapping[str, frozenset[str]]:
    return {each.name: each.texts for each in reads if isinstance(each, ComparedAttribute)}


def attributes_seen(
    attributes: Mapping[str, Any], reads: Reads
) -> tuple[tuple[str, type, Any], ...]:
    """Return a key of a device's attributes.

    Expressions with these `reads` cannot distinguish devices with equal keys.
    """
    # All versions and values of unknown types are in the key: a selector may fail for them.
    seen = dict(attributes_among(attributes, reads))
    return tuple(
        [
            (name, type(value), value_seen(value, seen.get(name)))
            for name, value in attributes.items()
            if name in seen or value is None or type(value) is Version
        ]
    )
