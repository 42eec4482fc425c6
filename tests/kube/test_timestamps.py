"""Formats times as the API writes them."""

from datetime import UTC, datetime, timedelta, timezone

from mooring.kube.timestamps import micro_time, rfc3339


def test_a_micro_time_has_six_digits_and_is_in_utc() -> None:
    assert micro_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05.000000Z"
    east = timezone(timedelta(hours=2))
    assert micro_time(datetime(2026, 1, 2, 3, 4, 5, 7, tzinfo=east)) == (
        "2026-01-02T01:04:05.000007Z"
    )


def test_a_time_in_seconds_is_written_in_utc() -> None:
    assert rfc3339(1_767_225_600.9) == "2026-01-01T00:00:00Z"
