"""Times as the API writes them: Time in conditions, MicroTime in events and leases."""

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as RFC 3339 text in UTC with whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: datetime) -> str:
    """Return RFC 3339 text in UTC with microseconds; `at` must have a time zone."""
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
