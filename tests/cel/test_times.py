import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    "expression",
    [
        "duration('1h30m') == duration('90m') && duration('-1.5s') < duration('0')",
        "string(duration('1h0.5s')) == '3600.5s' && duration('90061s').getHours() == 25",
        "timestamp('2024-02-29T12:30:45.5Z').getDayOfYear() == 59",
        "timestamp('2024-02-29T23:30:00Z').getDate('+02:00') == 1",
        "timestamp('2024-02-29T00:30:00Z').getHours('-01:00') == 23",
        "timestamp('2024-01-07T00:00:00Z').getDayOfWeek() == 0",
        "timestamp('2024-01-01T00:00:00.123Z').getMilliseconds() == 123",
        "string(timestamp('2024-01-01T00:00:00.120+02:00')) == '2024-01-01T00:00:00.12+02:00'",
        "timestamp(60) - timestamp(0) == duration('1m')",
        "timestamp(0) + duration('1s') > timestamp(0)",
    ],
)
def test_times_are_those_of_go(expression: str) -> None:
    assert is_true(expression)


def test_a_time_out_of_range_or_zone_is_an_error() -> None:
    last = "timestamp('9999-12-31T23:59:59Z')"
    assert answer(f"{last} + duration('1s') == {last}") == "timestamp overflow"
    assert answer(f"{last}.getHours('Nowhere/None') == 1") == "unknown time zone Nowhere/None"
