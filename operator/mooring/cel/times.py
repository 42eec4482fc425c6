"""Durations and timestamps: reading, printing, arithmetic, and parts of a date."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from posixpath import normpath
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mooring.cel.values import NO_OVERLOAD, Duration, Failure, Timestamp, work

Value = Any
_SECOND: Final = 10**9
_FIRST, _LAST = -62135596800, 253402300799
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,  # Go takes both letters
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_DURATION: Final = re.compile(
    r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<unit>[a-zµμ]+)"
)  # as above
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:Z|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)
_INTEGER: Final = re.compile(r"(?P<sign>[+-]?)0*+(?P<digits>[0-9]*)(?<=[0-9])")
_MOST_DIGITS: Final = 21
_LONGEST_OFFSET: Final = 10**9
"""The largest hour or minute of a time zone's offset. Larger numbers are replaced by it, because an
offset of this size makes every date invalid, too."""
_MOST: Final = 2**63 - 1


def parse_integer(text: str) -> int:
    """Parse an integer as Go's `strconv`; raise ValueError if it is malformed."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise ValueError("no number")
    # A number with more digits is out of range in any case.
    return int(f"{found['sign']}0{found['digits'][:_MOST_DIGITS]}")


def parse_duration(text: str) -> Duration | None:
    """Parse a duration such as `1h30m` as Go does; None if it is malformed or out of range."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in {"+", "-"} else text
    work.spend_on_text(len(text))
    if rest == "0":
        return Duration(0)
    total, at = 0, 0
    while at < len(rest):
        found = _DURATION.match(rest, at)
        if found is None or found["unit"] not in _UNITS:
            return None
        whole, part = found["whole"], found["part"] or ""
        if not whole and not part:
            return None
        unit = _UNITS[found["unit"]]
        part = part[:18]
        total += parse_integer(f"0{whole}") * unit + int(f"0{part}") * unit // 10 ** len(part)
        at = found.end()
    if not rest or total > _MOST + (sign < 0):
        return None
    return Duration(sign * total)


def parse_timestamp(text: str) -> Timestamp | Failure | None:
    """Parse an RFC 3339 text; None if it is malformed, a Failure if it is out of range."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(each) for each in found.groups()[:6])
    offset = 0
    if found[8]:
        if int(found[9]) > 24 or int(found[10]) > 60:  # as in Go, though no clock shows these
            return None
        offset = (int(found[9]) * 3600 + int(found[10]) * 60) * (-1 if found[8] == "-" else 1)
    try:
        moment = datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    if not year:
        return Failure("timestamp overflow")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) - offset
    if not _FIRST <= seconds <= _LAST:
        return Failure("timestamp overflow")
    return Timestamp(seconds * _SECOND + int((found[7] or "")[:9].ljust(9, "0")), offset)


def timestamp_of_seconds(seconds: int) -> Value:
    """Return the timestamp `seconds` after 1970-01-01 UTC; a Failure if it is out of range."""
    if not _FIRST <= seconds <= _LAST:
        return Failure("timestamp overflow")
    return Timestamp(seconds * _SECOND)


def timestamp_text(value: Timestamp) -> str:
    """Return the timestamp as an RFC 3339 text, in its own time zone."""
    moment = _date(value, timedelta(seconds=value.offset))
    fraction = f".{value.nanoseconds % _SECOND:09d}".rstrip("0").rstrip(".")
    minutes = abs(value.offset) // 60
    zone = "Z"
    if value.offset:
        zone = f"{'-' if value.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{moment.year:04d}{moment:-%m-%dT%H:%M:%S}{fraction}{zone}"


def duration_text(value: Duration) -> str:
    """Return the duration in seconds, such as `5400s`."""
    whole, part = divmod(abs(value.nanoseconds), _SECOND)
    seconds = float(whole) + part / 1e9
    text = f"{seconds:.9f}".rstrip("0").rstrip(".") if seconds < 1e6 else _plain(seconds)
    return f"{'-' if value.nanoseconds < 0 else ''}{text}s"


def _plain(value: float) -> str:
    text = repr(value)
    return text.removesuffix(".0") if "e" not in text else f"{value:f}".rstrip("0").rstrip(".")


def add_times(first: Value, second: Value) -> Value:
    """Return the sum of two durations, or of a duration and a timestamp.

    Returns NO_OVERLOAD for other types, and a Failure if the sum is out of range.
    """
    kinds = {type(first), type(second)}
    if kinds == {Duration}:
        return _span(first.nanoseconds + second.nanoseconds)
    if kinds == {Duration, Timestamp}:
        moment = first if isinstance(first, Timestamp) else second
        return _moment(first.nanoseconds + second.nanoseconds, moment.offset)
    return NO_OVERLOAD


def subtract_times(first: Value, second: Value) -> Value:
    """Return the difference of two durations or two timestamps, or a timestamp minus a duration.

    Returns NO_OVERLOAD for other types, and a Failure if the result is out of range.
    """
    if type(first) is type(second):
        return _span(first.nanoseconds - second.nanoseconds)
    if isinstance(first, Timestamp) and isinstance(second, Duration):
        return _moment(first.nanoseconds - second.nanoseconds, first.offset)
    return NO_OVERLOAD


def _span(nanoseconds: int) -> Value:
    return Duration(nanoseconds) if -_MOST - 1 <= nanoseconds <= _MOST else _OVERFLOW


_OVERFLOW: Final = Failure("integer overflow")


def _moment(nanoseconds: int, offset: int) -> Value:
    if not _FIRST <= nanoseconds // _SECOND <= _LAST:
        return Failure("timestamp overflow")
    return Timestamp(nanoseconds, offset)


def _date(value: Timestamp, zone: tzinfo | timedelta) -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.nanoseconds // _SECOND)
    try:
        return moment + zone if isinstance(zone, timedelta) else moment.astimezone(zone)
    except OverflowError:  # a year before 1 or after 9999
        return moment


def _zone(name: str) -> tzinfo | timedelta | Failure:
    """Return the time zone of a name, or of an offset such as `-08:00`."""
    hours, colon, minutes = name.partition(":")
    if not colon:
        if name in {"", "UTC", "Local"}:  # that of the API server's and the scheduler's images
            return UTC
        if ".." in name or name.startswith(("/", "\\")):
            return Failure("time: invalid location name")
        try:
            return ZoneInfo(normpath(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return Failure(f"unknown time zone {name}")
    numbers = list[int]()
    for text in (hours, minutes):
        quoted = text.replace('"', '\\"')
        try:
            number = parse_integer(text)
        except ValueError:
            return Failure(f'strconv.Atoi: parsing "{quoted}": invalid syntax')
        if not -_MOST - 1 <= number <= _MOST:
            return Failure(f'strconv.Atoi: parsing "{quoted}": value out of range')
        numbers.append(max(-_LONGEST_OFFSET, min(number, _LONGEST_OFFSET)))
    return timedelta(minutes=numbers[0] * 60 + numbers[1] * (-1 if name[0] == "-" else 1))


_PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month - 1,
    "day_of_year": lambda moment: moment.timetuple().tm_yday - 1,
    "day_of_month": lambda moment: moment.day - 1,
    "day_of_month_1_based": lambda moment: moment.day,
    "day_of_week": lambda moment: (moment.weekday() + 1) % 7,
    "hours": lambda moment: moment.hour,
    "minutes": lambda moment: moment.minute,
    "seconds": lambda moment: moment.second,
}


def _part(name: str) -> Callable[..., Value]:
    def compute(value: Timestamp, zone: str = "UTC") -> Value:
        found = _zone(zone)
        if isinstance(found, Failure):
            return found
        if name == "milliseconds":
            return value.nanoseconds % _SECOND // 10**6
        return _PARTS[name](_date(value, found))

    return compute


def _towards_zero(unit: int) -> Callable[[Duration], int]:
    def compute(value: Duration) -> int:
        whole = abs(value.nanoseconds) // unit
        return -whole if value.nanoseconds < 0 else whole

    return compute


OVERLOADS: Final[Mapping[str, Callable[..., Value]]] = {
    **{f"timestamp_to_{name}": _part(name) for name in (*_PARTS, "milliseconds")},
    **{f"timestamp_to_{name}_with_tz": _part(name) for name in (*_PARTS, "milliseconds")},
    "timestamp_to_seconds_tz": _part("seconds"),
    "duration_to_hours": _towards_zero(3600 * _SECOND),
    "duration_to_minutes": _towards_zero(60 * _SECOND),
    "duration_to_seconds": _towards_zero(_SECOND),
    "duration_to_milliseconds": _towards_zero(10**6),
}
"""Maps the id of an overload for durations and timestamps to its implementation."""
