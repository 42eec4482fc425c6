"""Durations as Go writes them in configuration files: `1m30s`, `500ms`, `0`."""

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,  # Go takes both letters
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER: Final = re.compile(r"[0-9]++\.?[0-9]*|\.[0-9]+")
_UNIT: Final = re.compile(r"([a-zµμ]+)")
_LONGEST_TEXT: Final = 256
"""The maximum number of characters of a duration; a longer text is a mistake and is not parsed."""
_SHOWN: Final = 40
"""The maximum number of characters of a wrong duration that a message quotes."""
_LONGEST: Final = 2**63 / 1e9
"""The longest duration of Go in seconds, about 292 years; a longer duration is a mistake."""
_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$"


def parse_duration(text: object) -> timedelta:
    """Parse text as Go's time.ParseDuration does; raise ValueError if it is not a duration."""
    if not isinstance(text, str):
        raise ValueError(f"must be a duration such as 30s or 1m30s, got {text!s:.40}")  # noqa: TRY004 - pydantic collects ValueErrors only
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    seconds = _seconds(digits) if len(text) <= _LONGEST_TEXT else None
    if seconds is None or seconds >= _LONGEST:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ValueError(f'must be a duration such as 30s or 1m30s, got "{shown}"')
    return sign * timedelta(seconds=seconds)


def _seconds(digits: str) -> float | None:
    if digits == "0":
        return 0.0
    *parts, rest = _UNIT.split(digits)
    numbers, units = parts[::2], parts[1::2]
    if rest or not parts or not all(map(_NUMBER.fullmatch, numbers)) or {*units} - {*_UNITS}:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in zip(numbers, units, strict=True))


def format_duration(duration: timedelta) -> str:
    """Return the duration as text, such as `1m30s`, with a precision of a microsecond."""
    whole, micros = divmod(duration // timedelta(microseconds=1), 1_000_000)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f"{seconds + micros / 1e6:.6f}".rstrip("0").rstrip(".")
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    return "".join(parts) + (f"{fraction}s" if fraction != "0" or whole < 60 else "")


def _duration(given: object) -> timedelta:
    return given if isinstance(given, timedelta) else parse_duration(given)


Duration = Annotated[
    timedelta,
    PlainValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 32, "pattern": _PATTERN}),
]
"""A field that is a Go duration in a document and a timedelta in the model."""
