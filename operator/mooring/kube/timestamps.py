"""Times as the API writes them: Time in conditions, MicroTime in events and leases."""

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """Return this time, in seconds since the epoch, in RFC 3339 in UTC, in whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: datetime) -> str:
    """Return RFC 3339 in UTC with six digits of a second; `at` must know its time zone."""
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
