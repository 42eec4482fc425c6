"""Kubernetes quantities (`250m`, `1.5Gi`, `2e3`) as integers.

The syntax is that of `staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go`: a signed
decimal number, then nothing, one binary suffix (`Ki` to `Ei`), one decimal suffix (`n` to `E`) or
a decimal exponent (`e3`, `E3`). A lone `E` is the suffix exa; before digits it is an exponent.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mooring.model.errors import ManifestError

__all__ = ["parse_count", "parse_milli"]

_INT64_MAX = 2**63 - 1
_LONGEST = 256  # characters; limits the cost of the arithmetic below for any input
_SYNTAX = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_BINARY = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse_milli(text: str | float, where: str = "") -> int:
    """Parse `text` in thousandths (cpu: millicores), rounded away from zero, capped at int64.

    Numbers are accepted because manifests may contain them without quotes.

    Raises:
        ManifestError: at `where`, if `text` is not a quantity.
    """
    return _parse(text, where, 3)


def parse_count(text: str | float, where: str = "") -> int:
    """Parse `text` in whole units (bytes, devices), rounded away from zero, capped at int64.

    Raises:
        ManifestError: at `where`, if `text` is not a quantity.
    """
    return _parse(text, where, 0)


def _parse(text: str | float, where: str, digits: int) -> int:
    try:
        return _scaled(str(text), digits)
    except ValueError as error:
        raise ManifestError(where, str(error)) from None


@lru_cache(maxsize=16_384)
def _scaled(text: str, digits: int) -> int:
    """Return `text` times 10**digits as an integer; ValueError says what is wrong with it."""
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise ValueError(
            f"{shown!r} is not a quantity; write a number with an optional suffix, "
            "such as 250m or 1.5 for cpu, 512Mi or 2G for memory"
        )
    fraction = match["fraction"] or ""
    suffix = match["suffix"]
    exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL.get(suffix, 0)
    power = exponent - len(fraction) + digits
    # For larger powers the result is the cap or the smallest unit, for any digits.
    power = max(-2 * _LONGEST, min(power, 2 * _LONGEST))
    amount: int = int(match["whole"] + fraction) * _BINARY.get(suffix, 1)
    # As in Kubernetes, amounts are rounded up: a small request never becomes zero.
    ten_to_power: int = 10 ** abs(power)
    amount = amount * ten_to_power if power >= 0 else -(-amount // ten_to_power)
    capped = min(amount, _INT64_MAX)
    return -capped if match["sign"] == "-" else capped
