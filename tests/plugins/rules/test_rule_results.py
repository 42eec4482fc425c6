"""Masks and scores that are computed from the values of an evaluation."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.plugins.rules.rule_results import Results

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 120)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-2.0, 120.0)


def results(values: list[float], failed: list[bool], dtype: str) -> Results:
    errors = np.array(failed, np.int16)
    return Results(np.array(values, dtype), errors, ("why",) if any(failed) else ())


@st.composite
def evaluations(draw: st.DrawFn) -> Results:
    dtype, numbers = draw(st.sampled_from([("int64", NUMBERS), ("float64", DOUBLES)]))
    few = draw(st.lists(numbers, min_size=1, max_size=5))
    values = draw(st.lists(st.sampled_from(few), min_size=1, max_size=20))
    size = len(values)
    return results(values, draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype)


def test_a_node_fits_where_the_value_is_true_without_an_error() -> None:
    assert results([True, False, True], [False, False, True], "bool").fits.tolist() == [
        True,
        False,
        False,
    ]


def test_scores_are_limited_to_0_to_100_and_0_where_there_is_an_error() -> None:
    found = results([-3, 7.9, 100.5, 50], [False, False, False, True], "float64")
    assert found.scores.tolist() == [0, 7, 100, 0]


def test_what_is_kept_for_further_decisions_cannot_be_written() -> None:
    for found in (results([1], [False], "int64").scores, results([1], [True], "bool").fits):
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 0


@given(evaluations(), st.sampled_from([True, False]), st.data())
def test_proportions_by_distinct_number_are_those_computed_for_each_node(
    found: Results, reverse: Any, data: st.DataObject
) -> None:
    ranks = found.ranks
    assert ranks is not None
    chosen = data.draw(st.none() | st.lists(st.integers(0, len(found.values) - 1), max_size=20))
    rows = None if chosen is None else np.array(chosen, np.int64)
    expected = (found if rows is None else found.take(rows)).proportions(reverse=reverse)
    for _ in range(2):
        assert ranks.proportions(rows, reverse=reverse).tolist() == expected.tolist()


def test_proportions_of_many_distinct_numbers_are_not_computed_by_number() -> None:
    assert results([*range(257)], [False] * 257, "int64").ranks is None
    assert results([*range(256)], [False] * 256, "int64").ranks is not None
