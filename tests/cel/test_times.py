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
        "timestamp('2020-01-01T1:00:00Z') == timestamp('2020-01-01T01:00:00Z')",
        "timestamp('2020-01-01T01:00:00+24:60') == timestamp('2019-12-31T00:00:00Z')",
        "string(timestamp('2020-01-01T01:00:00-24:60')) == '2020-01-01T01:00:00-25:00'",
        "timestamp('2020-01-01T01:00:00Z').getHours('Local') == 1",
        "timestamp('2020-01-01T01:00:00Z').getHours('America//New_York') == 20",
        "timestamp('2020-01-01T01:00:00Z').getHours('0000000001:05') == 2",
        f"duration('{'0' * 5_000}1s') == duration('1s')",
    ],
)
def test_times_are_those_of_go(expression: str) -> None:
    assert is_true(expression)


def test_a_time_out_of_range_or_zone_is_an_error() -> None:
    last = "timestamp('9999-12-31T23:59:59Z')"
    assert answer(f"{last} + duration('1s') == {last}") == "timestamp overflow"
    assert answer(f"{last}.getHours('Nowhere/None') == 1") == "unknown time zone Nowhere/None"
    assert answer(f"{last}.getHours('../UTC') == 1") == "time: invalid location name"
    assert "value out of range" in str(answer(f"{last}.getHours('{'9' * 20}:00') == 1"))


@pytest.mark.parametrize("offset", ["+25:00", "+01:61", "+1:00"])
def test_an_offset_that_go_does_not_read_is_no_part_of_a_timestamp(offset: str) -> None:
    assert "invalid timestamp argument" in str(
        answer(f"timestamp('2020-01-01T01:00:00{offset}') == timestamp(0)")
    )
