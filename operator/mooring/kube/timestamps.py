"""Times as the API writes them: Time in conditions, MicroTime in events and leases."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["micro_time", "rfc3339", "time_now"]


def time_now() -> str:
    """Return the present time in RFC 3339 in UTC, in whole seconds."""
    return _seconds(datetime.now(UTC))


def rfc3339(seconds: float) -> str:
    """Return this time, in seconds since the epoch, in RFC 3339 in UTC, in whole seconds."""
    return _seconds(datetime.fromtimestamp(seconds, UTC))


def _seconds(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: datetime) -> str:
    """Return RFC 3339 in UTC with six digits of a second; `at` must know its time zone."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
