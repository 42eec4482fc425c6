"""The functions that Kubernetes adds to CEL (kube-apiserver's `pkg/cel/library`)."""

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mooring.cel.formats import FORMATS, mistakes_of
from mooring.cel.kubernetes_values import (
    Address,
    FormatValue,
    Network,
    QuantityValue,
    VersionValue,
    parse_address,
    parse_network,
    parse_quantity,
    parse_version,
)
from mooring.cel.urls import UrlValue, parse_url
from mooring.cel.values import ABSENT, NO_OVERLOAD, Failure, MapValue, Optional, work

Value = Any


def _valid(parse: Callable[[str], Value]) -> Callable[[str], bool]:
    return lambda text: not isinstance(parse(text), Failure)


# --- quantities


def _as_integer(value: QuantityValue) -> Value:
    found = value.as_int()
    return Failure("cannot convert value to integer") if found is None else found


def _changed(sign: int, value: QuantityValue, other: Value) -> QuantityValue:
    # `sign` is 1 or -1.
    if isinstance(other, QuantityValue):
        return value.plus(sign * other.number, other.power, other.is_decimal)
    return value.plus(sign * other, 0, False)


def _changed_1_36(sign: int, value: QuantityValue, other: Value) -> QuantityValue:
    made = _changed(sign, value, other)
    # Before Kubernetes 1.37, a decimal itself also changes to the result.
    if value.is_decimal:
        made.source = value
        changed: QuantityValue | None = value
        while changed is not None:
            changed.number, changed.power = made.number, made.power
            changed = changed.source
    return made


# --- versions


def _normalized(text: str) -> VersionValue | Failure:
    """Parse a version that may have a leading `v`, only one or two parts, or leading zeros."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            leads = not stripped or stripped[0] not in "0123456789"
            parts[index] = f"0{stripped}" if leads else stripped
    if len(parts) < 3:
        if any(each in parts[-1] for each in "+-"):
            return Failure("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return parse_version(".".join(parts))


def _version(text: str, normalize: bool = False) -> VersionValue | Failure:
    return _normalized(text) if normalize else parse_version(text)


def _is_version(text: str, normalize: bool = False) -> bool:
    return not isinstance(_version(text, normalize), Failure)


def _compared(accepted: frozenset[int]) -> Callable[[Value, Value], bool]:
    return lambda value, other: value.compared(other) in accepted


def _signed(number: int) -> int:
    # The int64 that has the same bits as this uint64.
    return number - 2**64 if number >= 2**63 else number


# --- addresses


def _canonical(text: str) -> Value:
    parsed = parse_address(text)
    return parsed if isinstance(parsed, Failure) else str(parsed.address) == text


def _global_unicast(value: Address) -> bool:
    address = value.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == ipaddress.IPv4Address("255.255.255.255")
    )


def _link_local_multicast(value: Address) -> bool:
    local = ("224.0.0.0/24", "ff02::/16")
    return any(value.address in ipaddress.ip_network(each) for each in local)


def _network(text: str) -> Value:
    parsed = parse_network(text)
    if isinstance(parsed, Failure):
        return Failure(f"network address parse error during conversion from string: {parsed.text}")
    return parsed


def _contains(network: Network, other: Value) -> Value:
    address = parse_address(other) if isinstance(other, str) else other
    if isinstance(address, Failure):
        return NO_OVERLOAD
    return address.address in network.interface.network


def _contains_network(network: Network, other: Value) -> Value:
    inner = parse_network(other) if isinstance(other, str) else other
    if isinstance(inner, Failure):
        return _network(other)
    mine, others = network.interface.network, inner.interface.network
    return mine.overlaps(others) and network.prefix <= inner.prefix


# --- URLs


def _url(text: str) -> Value:
    for for_request in (True, False):
        parsed = parse_url(text, for_request)
        if isinstance(parsed, Failure):
            return Failure(f"URL parse error during conversion from string: {parsed.text}")
    return parsed


def _query(value: UrlValue) -> MapValue:
    return MapValue.of_strings({key: tuple(each) for key, each in value.parameters.items()})


# --- formats


def _validate(value: FormatValue, text: str) -> Optional:
    found = mistakes_of(value, text)
    return Optional(True, tuple(found)) if found else ABSENT


def _constant(value: Value) -> Callable[[], Value]:
    return lambda: value


def _charged(function: Callable[..., Value]) -> Callable[..., Value]:
    def compute(*values: Value) -> Value:
        work.spend_on_text(max((len(each) for each in values if isinstance(each, str)), default=0))
        work.read()
        return function(*values)

    return compute


_OF_TEXTS: Final[Mapping[str, Callable[..., Value]]] = {
    "string_to_quantity": parse_quantity,
    "is_quantity_string": _valid(parse_quantity),
    "string_to_semver": _version,
    "string_bool_to_semver": _version,
    "is_semver_string": _is_version,
    "is_semver_string_bool": _is_version,
    "string_to_ip": parse_address,
    "is_ip": _valid(parse_address),
    "ip_is_canonical": _canonical,
    "string_to_cidr": _network,
    "is_cidr": _valid(parse_network),
    "cidr_contains_ip_string": _contains,
    "cidr_contains_cidr_string": _contains_network,
    "format-validate": _validate,
}
OVERLOADS: Final[Mapping[str, Callable[..., Value]]] = {
    **{name: _charged(function) for name, function in _OF_TEXTS.items()},
    "quantity_sign": lambda value: (value.number > 0) - (value.number < 0),
    "quantity_is_greater_than": _compared(frozenset((1,))),
    "quantity_is_less_than": _compared(frozenset((-1,))),
    "quantity_compare_to": lambda value, other: value.compared(other),
    "quantity_get_float": lambda value: value.as_float(),
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda value: value.as_int() is not None,
    "quantity_add": partial(_changed, 1),
    "quantity_add_int": partial(_changed, 1),
    "quantity_sub": partial(_changed, -1),
    "quantity_sub_int": partial(_changed, -1),
    "semver_is_greater_than": _compared(frozenset((1,))),
    "semver_is_less_than": _compared(frozenset((-1,))),
    "semver_compare_to": lambda value, other: value.compared(other),
    "semver_major": lambda value: _signed(value.major),
    "semver_minor": lambda value: _signed(value.minor),
    "semver_patch": lambda value: _signed(value.patch),
    "ip_to_string": lambda value: str(value.address),
    "ip_family": lambda value: value.address.version,
    "ip_is_unspecified": lambda value: value.address.is_unspecified,
    "ip_is_loopback": lambda value: value.address.is_loopback,
    "ip_is_link_local_multicast": _link_local_multicast,
    "ip_is_link_local_unicast": lambda value: value.address.is_link_local,
    "ip_is_global_unicast": _global_unicast,
    "cidr_to_string": lambda value: str(value.interface),
    "cidr_contains_ip_ip": _contains,
    "cidr_contains_cidr": _contains_network,
    "cidr_ip": lambda value: Address(value.interface.ip),
    "cidr_prefix_length": lambda value: value.prefix,
    "cidr_masked": lambda value: Network(ipaddress.ip_interface(str(value.interface.network))),
    "string_to_url": _url,
    "is_url_string": _valid(partial(parse_url, for_request=True)),
    "url_get_scheme": lambda value: value.scheme,
    "url_get_host": lambda value: value.host,
    "url_get_hostname": lambda value: value.hostname,
    "url_get_port": lambda value: value.port,
    "url_get_escaped_path": lambda value: value.path,
    "url_get_query": _query,
    "format-named": lambda name: Optional(True, FORMATS[name]) if name in FORMATS else ABSENT,
    **{f"format.{name}": _constant(value) for name, value in FORMATS.items()},
}
OVERLOADS_1_36: Final[Mapping[str, Callable[..., Value]]] = {
    name: partial(_changed_1_36, -1 if "sub" in name else 1)
    for name in ("quantity_add", "quantity_add_int", "quantity_sub", "quantity_sub_int")
}
"""The implementations before Kubernetes 1.37, by the id of the overload."""
