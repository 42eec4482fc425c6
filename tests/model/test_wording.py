"""Counts in messages."""

import pytest

from mooring.model.wording import plural


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (2000, "2,000 pods")]
)
def test_one_thing_is_in_the_singular(count: int, text: str) -> None:
    assert plural(count, "pod") == text
