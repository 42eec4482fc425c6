"""Formats counts in messages."""

import pytest

from mooring.model.wording import listed, plural


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (2000, "2,000 pods")]
)
def test_one_thing_is_in_the_singular(count: int, text: str) -> None:
    assert plural(count, "pod") == text


def test_the_first_names_are_listed_and_the_others_counted() -> None:
    assert listed((), 2) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
