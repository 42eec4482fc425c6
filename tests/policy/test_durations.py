from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.policy.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("5s", 5.0),
        ("1m30s", 90.0),
        ("10m0s", 600.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("3us", 3e-6),
        ("-2s", -2.0),
        ("+2s", 2.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("1μs", 1e-6),  # the other letter that Go takes
    ],
)
def test_a_duration_is_parsed_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "5d", "1m30", "--5s", 5, "9999999h", "1hs", ".s"]
)
def test_other_text_is_an_error_that_gives_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="such as 30s or 1m30s"):
        parse_duration(text)


def test_a_text_that_is_too_long_for_a_duration_is_shown_in_part() -> None:
    with pytest.raises(ValueError, match=r'got "1{40}\.\.\."'):
        parse_duration("1" * 2_000 + "s")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(minutes=1), "1m"),
        (timedelta(hours=25, milliseconds=500), "25h0.5s"),
    ],
)
def test_a_duration_is_written_without_parts_that_are_zero(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365)))
def test_a_written_duration_is_read_as_the_same_duration(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
