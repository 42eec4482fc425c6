"""The API's MicroTime, as events and leases carry it."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["micro_time"]


def micro_time(at: datetime) -> str:
    """RFC 3339 in UTC with exactly six digits of a second; `at` must know its time zone."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
