"""Kubernetes quantities (`250m`, `1.5Gi`, `2e3`) as integers.

The syntax is that of `staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go`: a signed
decimal number, then nothing, one binary suffix (`Ki` to `Ei`), one decimal suffix (`n` to `E`) or
a decimal exponent (`e3`, `E3`). A lone `E` is the suffix exa; before digits it is an exponent.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from mooring.model.manifest_error import ManifestError

QuantityFormat = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

INT64_MAX = 2**63 - 1
_LONGEST = 256  # characters; limits the cost of the arithmetic below for any input
_SYNTAX = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_BINARY = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


_NANO = 9
_PER_UNIT: int = 10**_NANO
_SUFFIXES = {power: suffix for suffix, power in _DECIMAL.items()} | {0: ""}


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in billionths, the smallest unit in Kubernetes.

    Quantities are equal if their amounts are equal, even if they are written differently.
    """

    nano: int
    format: QuantityFormat = field(default="DecimalSI", compare=False)

    @property
    def whole(self) -> int:
        """The amount in whole units, rounded away from zero, at most int64 (Quantity.Value)."""
        rounded = min(-(-abs(self.nano) // _PER_UNIT), INT64_MAX)
        return rounded if self.nano > 0 else -rounded

    @property
    def least_of_whole(self) -> "Quantity":
        """The smallest Quantity with the same `whole`; this Quantity must be above 0."""
        return Quantity((self.whole - 1) * _PER_UNIT + 1)

    @property
    def text(self) -> str:
        """The quantity in canonical form, as the API server writes it."""
        if self.nano == 0:
            return "0"
        binary = self.format == "BinarySI" and self.nano % _PER_UNIT == 0
        if binary and abs(self.nano) >= 1024 * _PER_UNIT:
            number, power = _shortened(self.nano // _PER_UNIT, 1024, len(_BINARY))
            return f"{number}{list(_BINARY)[power - 1] if power else ''}"
        exponent = -_NANO
        number, thousands = _shortened(self.nano, 1000, _LONGEST)
        exponent += 3 * thousands
        if self.format == "DecimalExponent" or exponent not in _SUFFIXES:
            return f"{number}e{exponent}" if exponent else f"{number}"
        return f"{number}{_SUFFIXES[exponent]}"


def _shortened(number: int, base: int, most: int) -> tuple[int, int]:
    power = 0
    while power < most and number % base == 0:
        number, power = number // base, power + 1
    return number, power


def parse_quantity(text: str | float, where: str = "") -> Quantity:
    """Parse a quantity, rounded away from zero to billionths; ManifestError if malformed."""
    try:
        return _exact(str(text))
    except ValueError as error:
        raise ManifestError(where, str(error)) from None


@lru_cache(maxsize=16_384)
def _exact(text: str) -> Quantity:
    nano, suffix, exponent = _amount(text, _NANO)
    if suffix not in _BINARY:
        return Quantity(nano, "DecimalSI" if exponent is None else "DecimalExponent")
    most = INT64_MAX * _PER_UNIT
    nano = max(-most, min(nano, most))
    return Quantity(nano, "DecimalSI" if abs(nano) < _PER_UNIT else "BinarySI")


def parse_milli(text: str | float, where: str = "") -> int:
    """Return `text` in thousandths (cpu: millicores), rounded away from zero, at most int64.

    Raises ManifestError with the path `where` if `text` is not a quantity.
    """
    return _parse(text, where, 3)


def parse_count(text: str | float, where: str = "") -> int:
    """Return `text` in whole units (bytes, devices), with the rules and errors of `parse_milli`."""
    return _parse(text, where, 0)


def _parse(text: str | float, where: str, digits: int) -> int:
    try:
        return _scaled(str(text), digits)
    except ValueError as error:
        raise ManifestError(where, str(error)) from None


@lru_cache(maxsize=16_384)
def _scaled(text: str, digits: int) -> int:
    amount, _suffix, _exponent = _amount(text, digits)
    return max(-INT64_MAX, min(amount, INT64_MAX))


def _amount(text: str, digits: int) -> tuple[int, str, str | None]:
    """Return the number in `text` times 10**`digits`, its suffix and its exponent."""
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise ValueError(
            f"{shown!r} is not a quantity; write a number with an optional suffix, "
            "such as 250m or 1.5 for cpu, 512Mi or 2G for memory"
        )
    fraction = match["fraction"] or ""
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL.get(suffix, 0)
    power = exponent - len(fraction) + digits
    # For larger powers the result is the cap or the smallest unit, for any digits.
    power = max(-2 * _LONGEST, min(power, 2 * _LONGEST))
    amount: int = int(match["whole"] + fraction) * _BINARY.get(suffix, 1)
    # As in Kubernetes, amounts are rounded up: a small request never becomes zero.
    ten_to_power: int = 10 ** abs(power)
    amount = amount * ten_to_power if power >= 0 else -(-amount // ten_to_power)
    return -amount if match["sign"] == "-" else amount, suffix, match["exponent"]
