"""Items are collected with pauses; the result is the same as without pauses."""

from functools import partial

import pytest

from driving import driven
from mooring.model.paused_reading import ITEMS_PER_STEP, collected


@pytest.mark.parametrize("number", [0, 1, ITEMS_PER_STEP - 1, ITEMS_PER_STEP, 1200])
def test_all_items_are_collected_in_their_order(number: int) -> None:
    whole = tuple(range(number))
    assert collected(iter(whole)) == whole
    assert driven(partial(collected, iter(whole)))[0] == whole


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (ITEMS_PER_STEP - 1, 0), (1200, 2)])
def test_there_is_a_pause_after_each_few_hundred_items(number: int, expected: int) -> None:
    assert driven(partial(collected, range(number)))[1] == expected
