"""Values of Kubernetes' types in expressions: quantities, versions, addresses and URLs."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from mooring.cel.formatting import go_quoted
from mooring.cel.times import parse_integer
from mooring.cel.types import NAMED, Type
from mooring.cel.values import NO_OVERLOAD, Failure, Opaque
from mooring.model.quantity import Quantity

Value = Any
_INT64_LOWEST, _INT64_HIGHEST = -(2**63), 2**63 - 1
_NANO: Final = 9


@dataclass(slots=True, eq=False)
class QuantityValue(Opaque):
    """An amount: `number` times ten to the power of `power`.

    Kubernetes stores small amounts as int64 and other amounts as decimals; only small amounts have
    an integer value. The class is mutable, because a comparison with a decimal converts the amount
    to a decimal. A sum is a pointer in Go; so `amount == sum` is an error, but `sum == amount` is
    not.
    """

    cel_type: ClassVar[Type] = NAMED["Quantity"]
    go_type: ClassVar[str] = "cel.Quantity"
    short_name: ClassVar[str] = "Quantity"
    number: int
    power: int
    is_decimal: bool
    is_pointer: bool = False
    source: "QuantityValue | None" = None
    """Before Kubernetes 1.37, the decimal from which this sum was made; adding to the sum changes
    this decimal too. Otherwise None."""

    @classmethod
    def of(cls, amount: Quantity) -> "QuantityValue":
        """Return the capacity of a device as a value for expressions."""
        return cast("QuantityValue", parse_quantity(amount.text))

    def equals(self, other: Value) -> bool | Failure:
        """Return whether the amounts are equal; NO_OVERLOAD if `other` is a sum or no amount."""
        if not isinstance(other, QuantityValue) or other.is_pointer:
            return NO_OVERLOAD
        return self.compared(other) == 0

    def compared(self, other: "QuantityValue") -> int:
        """Return -1, 0 or 1 if this amount is less, equal or greater."""
        self.is_decimal = self.is_decimal or other.is_decimal
        lowest = min(self.power, other.power)
        mine = self.number * 10 ** (self.power - lowest)
        others = other.number * 10 ** (other.power - lowest)
        return int(mine > others) - int(mine < others)

    def plus(self, number: int, power: int, is_decimal: bool) -> "QuantityValue":
        """Return the sum of this amount and `number` times ten to the power of `power`."""
        lowest = min(self.power, power)
        total = self.number * 10 ** (self.power - lowest) + number * 10 ** (power - lowest)
        if self.is_decimal or is_decimal:
            return QuantityValue(total, lowest, True, True)
        if number == 0:
            return QuantityValue(self.number, self.power, False, True)
        if self.number == 0:
            return QuantityValue(number, power, False, True)
        scaled = self.number if self.power <= power else total
        fits = all(_INT64_LOWEST <= each <= _INT64_HIGHEST for each in (scaled, total))
        return QuantityValue(total, lowest, not fits, True)

    def as_int(self) -> int | None:
        """Return the amount as an int64; None if it is a decimal, too large or has a power < 0."""
        if self.is_decimal or self.power < 0:
            return None
        value = self.number * 10 ** min(self.power, 40)
        return value if _INT64_LOWEST <= value <= _INT64_HIGHEST else None

    def as_float(self) -> float:
        """Return the amount, rounded to a float."""
        try:
            base = float(self.number)
        except OverflowError:
            base = float("inf") if self.number > 0 else float("-inf")
        return base * float(f"1e{self.power}") if self.power else base


_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*+)(?:\.(?P<part>[0-9]*+))?+"
    r"(?P<suffix>[eEinumkKMGTP]*+[-+]?[0-9]*+)",
    re.ASCII,
)
_WRONG_FORM: Final = Failure(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX: Final = Failure("unable to parse quantity's suffix")
_WRONG_NUMBER: Final = Failure("unable to parse numeric part of quantity")
_BINARY: Final = {
    name: 10 * power for power, name in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1)
}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_MOST_DIGITS: Final = 4_000


def parse_quantity(text: str) -> "QuantityValue | Failure":
    """Parse an amount; return a Failure with Kubernetes' message if it is malformed."""
    found = _QUANTITY.fullmatch(text)
    if not text or found is None:
        return _WRONG_FORM
    whole, part, suffix = found["whole"].lstrip("0"), found["part"] or "", found["suffix"]
    binary, exponent = suffix in _BINARY, _exponent(suffix)
    if exponent is None:
        return _WRONG_SUFFIX
    if len(whole) + len(part) + abs(exponent) > _MOST_DIGITS:
        return _WRONG_NUMBER
    sign = -1 if found["sign"] == "-" else 1
    digits = int((whole or "0") + part)
    mantissa = 1
    if binary:
        left = 15 - len(whole or "0") - int(exponent * 3 / 10) - 1
        precise, mantissa, exponent10 = left >= 0 and not part, 2**exponent, 0
        precise = precise and exponent >= 0
    else:
        precise, exponent10 = 18 - len((whole or "0") + part) >= 0, exponent
    power = exponent10 - len(part)
    number = digits * mantissa
    if precise and power >= -_NANO and number <= _INT64_HIGHEST:
        return QuantityValue(sign * number, power, False)
    return _decimal(sign, number, power, binary)


def _exponent(suffix: str) -> int | None:
    if suffix in _BINARY:
        return _BINARY[suffix]
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    try:
        exponent = parse_integer(suffix[1:]) if suffix[:1] in {"e", "E"} else _INT64_HIGHEST + 1
    except ValueError:
        return None
    fits = _INT64_LOWEST <= exponent <= _INT64_HIGHEST
    return (exponent + 2**31) % 2**32 - 2**31 if fits else None  # Go keeps the last 32 bits


def _decimal(sign: int, number: int, power: int, binary: bool) -> "QuantityValue":
    """Return `sign * number * 10**power` as a quantity, rounded up to a billionth."""
    if number:
        if power >= -_NANO:
            number *= 10 ** (power + _NANO)
        else:
            number = -(-number // 10 ** (-_NANO - power))
        power = -_NANO
        # As in Kubernetes, for an amount with a binary suffix.
        if binary and number > _INT64_HIGHEST * 10**_NANO:
            number, power = _INT64_HIGHEST, 0
    return QuantityValue(sign * number, power, True)


@dataclass(frozen=True, slots=True, eq=False)
class VersionValue(Opaque):
    """A semantic version; `before` identifies a pre-release; comparisons ignore build metadata."""

    cel_type: ClassVar[Type] = NAMED["Semver"]
    go_type: ClassVar[str] = "cel.Semver"
    short_name: ClassVar[str] = "Semver"
    hashable: ClassVar[bool] = False
    major: int
    minor: int
    patch: int
    before: tuple[str, ...]
    build: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[Any, ...]:
        """A sort key; a pre-release comes before its release."""
        parts = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.before
        )
        return (self.major, self.minor, self.patch, not self.before, parts)

    def compared(self, other: "VersionValue") -> int:
        """Return -1, 0 or 1 if this version is lower, equal or higher."""
        return int(self.order > other.order) - int(self.order < other.order)

    def equals(self, other: Value) -> bool | Failure:
        """Return whether the versions are equal; NO_OVERLOAD if `other` is no version."""
        if not isinstance(other, VersionValue):
            return NO_OVERLOAD
        return self.order == other.order

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        text += f"-{'.'.join(self.before)}" if self.before else ""
        return text + (f"+{'.'.join(self.build)}" if self.build else "")


_NUMERIC: Final = re.compile(r"[0-9]+", re.ASCII)
_NAMES: Final = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_LARGEST: Final = 2**64 - 1


def parse_version(text: str) -> "VersionValue | Failure":
    """Parse a semantic version; return a Failure with Kubernetes' message if it is malformed."""
    if not text:
        return Failure("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        return Failure("No Major.Minor.Patch elements found")
    patch, _, build = parts[2].partition("+")
    has_build = "+" in parts[2]
    patch, dash, before = patch.partition("-")
    numbers = list[int]()
    for name, part in zip(("major", "minor", "patch"), (*parts[:2], patch), strict=True):
        number = _number(part, f"{name} number", name.capitalize() + " number")
        if isinstance(number, Failure):
            return number
        numbers.append(number)
    tags = tuple(before.split(".")) if dash else ()
    for tag in tags:
        wrong = _wrong_tag(tag)
        if wrong is not None:
            return wrong
    builds = tuple(build.split(".")) if has_build else ()
    for each in builds:
        if not each:
            return Failure("Build meta data is empty")
        if not _NAMES.fullmatch(each):
            return Failure(f"Invalid character(s) found in build meta data {go_quoted(each)}")
    return VersionValue(numbers[0], numbers[1], numbers[2], tags, builds)


def _number(text: str, name: str, capitalized: str) -> "int | Failure":
    if text and not _NUMERIC.fullmatch(text):
        return Failure(f"Invalid character(s) found in {name} {go_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        return Failure(f"{capitalized} must not contain leading zeroes {go_quoted(text)}")
    if not text:
        return Failure('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > _LARGEST:
        return Failure(f"strconv.ParseUint: parsing {go_quoted(text)}: value out of range")
    return int(text)


def _wrong_tag(tag: str) -> Failure | None:
    if not tag:
        return Failure("Prerelease is empty")
    if _NUMERIC.fullmatch(tag):
        if len(tag) > 1 and tag[0] == "0":
            shown = go_quoted(tag)
            return Failure(f"Numeric PreRelease version must not contain leading zeroes {shown}")
        if len(tag) > 20 or int(tag) > _LARGEST:
            return Failure(f"strconv.ParseUint: parsing {go_quoted(tag)}: value out of range")
        return None
    if not _NAMES.fullmatch(tag):
        return Failure(f"Invalid character(s) found in prerelease {go_quoted(tag)}")
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Address(Opaque):
    """An IP address, as a value of expressions."""

    cel_type: ClassVar[Type] = NAMED["IP"]
    go_type: ClassVar[str] = "cel.IP"
    short_name: ClassVar[str] = "IP"
    address: ipaddress.IPv4Address | ipaddress.IPv6Address

    def equals(self, other: Value) -> bool | Failure:
        """Return whether the addresses are equal; NO_OVERLOAD if `other` is no address."""
        return self.address == other.address if isinstance(other, Address) else NO_OVERLOAD


@dataclass(frozen=True, slots=True, eq=False)
class Network(Opaque):
    """An IP address with the length of its prefix; bits after the prefix need not be 0."""

    cel_type: ClassVar[Type] = NAMED["CIDR"]
    go_type: ClassVar[str] = "cel.CIDR"
    short_name: ClassVar[str] = "CIDR"
    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface

    @property
    def prefix(self) -> int:
        """The length of the prefix, in bits."""
        return self.interface.network.prefixlen

    def equals(self, other: Value) -> bool | Failure:
        """Return whether addresses and prefixes are equal; NO_OVERLOAD if `other` is no network."""
        return self.interface == other.interface if isinstance(other, Network) else NO_OVERLOAD


def parse_address(text: str) -> "Address | Failure":
    """Parse an IP address; return a Failure if it is malformed, has a zone or is IPv4-mapped."""
    shown = go_quoted(text)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        why = address_mistake(text)
        return Failure(f"IP Address {shown} parse error during conversion from string: {why}")
    if getattr(address, "scope_id", None):
        return Failure(f"IP address {shown} with zone value is not allowed")
    if getattr(address, "ipv4_mapped", None):
        return Failure(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return Address(address)


def address_mistake(text: str) -> str:
    """Return the message of Go's parser for a text that is no address."""
    kind = re.search(r"[.:%]", text)
    why = "missing IPv6 address"
    if kind is None:
        why = "unable to parse IP"
    elif kind[0] != "%":
        why = _why_not_4(text) if kind[0] == "." else _why_not_6(text)
    return f"ParseAddr({go_quoted(text)}): {why}"


def _why_not_4(text: str) -> str:
    value, digits, fields = 0, 0, 0
    for at, each in enumerate(text):
        if each in "0123456789":
            if digits and not value:
                return "IPv4 field has octet with leading zero"
            value, digits = value * 10 + int(each), digits + 1
            if value > 255:
                return "IPv4 field has value >255"
        elif each == ".":
            if not digits or at == len(text) - 1:
                return f"IPv4 field must have at least one digit (at {go_quoted(text[at:])})"
            if fields == 3:
                return "IPv4 address too long"
            value, digits, fields = 0, 0, fields + 1
        else:
            return f"unexpected character (at {go_quoted(text[at:])})"
    return "IPv4 address too short" if fields < 3 else ""


_TOO_FEW: Final = {
    False: "address string too short",
    True: "the :: must expand to at least one field of zeros",
}
_GROUP: Final = re.compile(r"[0-9A-Fa-f]*")


def _why_not_6(text: str) -> str:
    address, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string"
    rest, shortened = address, address.startswith("::")
    rest = rest[2:] if shortened else rest
    for group in range(8):
        found = len(_GROUP.match(rest)[0])  # type: ignore[index] # it matches the empty text
        wrong = _wrong_group(rest, found)
        if wrong:
            return wrong
        if rest[found : found + 1] == ".":
            if not shortened and group != 6:
                why = "embedded IPv4 address must replace the final 2 fields of the address"
                return f"{why} (at {go_quoted(rest)})"
            return _why_not_4(rest)
        rest = rest[found + 1 :]
        if rest.startswith(":"):
            if shortened:
                return f"multiple :: in address (at {go_quoted(rest)})"
            shortened, rest = True, rest[1:]
        if not rest:
            break
    if rest:
        return f"trailing garbage after address (at {go_quoted(rest)})"
    return _TOO_FEW[shortened]


def _wrong_group(rest: str, digits: int) -> str:
    why, at = "", rest
    if digits > 4:
        why = "each group must have 4 or less digits"
    elif not digits:
        why = "each colon-separated field must have at least one digit"
    elif digits < len(rest) and rest[digits] != ".":
        at = rest[digits:]
        if at[0] != ":":
            why = "unexpected character, want colon"
        elif len(at) == 1:
            why = "colon must be followed by more characters"
    return f"{why} (at {go_quoted(at)})" if why else ""


def parse_network(text: str) -> "Network | Failure":
    """Parse an address with the length of its prefix; return a Failure if it is malformed."""
    address, slash, length = text.rpartition("/")
    shown = go_quoted(text)
    wrong = f"network address parse error during conversion from string: netip.ParsePrefix({shown})"
    if not slash:
        return Failure(f"{wrong}: no '/'")
    if "%" in address:
        return Failure(f"{wrong}: IPv6 zones cannot be present in a prefix")
    parsed = parse_address(address)
    if isinstance(parsed, Failure):
        if "IPv4-mapped" in parsed.text:
            return Failure(f"IPv4-mapped IPv6 address {shown} is not allowed")
        return Failure(f"{wrong}: {address_mistake(address)}")
    if not re.fullmatch(r"0|[1-9][0-9]{0,3}", length, re.ASCII):
        return Failure(f"{wrong}: bad bits after slash: {go_quoted(length)}")
    if int(length) > parsed.address.max_prefixlen:
        return Failure(f"{wrong}: prefix length out of range")
    return Network(ipaddress.ip_interface(text))


@dataclass(frozen=True, slots=True, eq=False)
class FormatValue(Opaque):
    """A named format of texts, such as that of DNS labels, as a value of expressions."""

    cel_type: ClassVar[Type] = NAMED["Format"]
    go_type: ClassVar[str] = "cel.Format"
    short_name: ClassVar[str] = "Format"
    hashable: ClassVar[bool] = False
    name: str

    def equals(self, other: Value) -> bool | Failure:
        """Return whether the formats have the same name; NO_OVERLOAD if `other` is no format."""
        return self.name == other.name if isinstance(other, FormatValue) else NO_OVERLOAD
