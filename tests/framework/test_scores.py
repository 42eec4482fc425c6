"""Normalizes scores as kube-scheduler does (framework/plugins/helper/normalize_score.go)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE, normalize_score

RAW = st.lists(st.integers(0, 10**12), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("raw", "how", "expected"),
    [
        ([1, 2, 3, 4], Normalize.MAX, [25, 50, 75, 100]),
        ([1, 2, 3, 4], Normalize.REVERSED, [75, 50, 25, 0]),
        ([1000, 10, 20, 30], Normalize.MAX, [100, 1, 2, 3]),
        ([1, 3], Normalize.MAX, [33, 100]),
        ([1, 3], Normalize.REVERSED, [67, 0]),
        ([0, 0], Normalize.MAX, [0, 0]),
        ([0, 0], Normalize.REVERSED, [100, 100]),
        ([7, 250], Normalize.NONE, [7, 250]),
        ([], Normalize.REVERSED, []),
    ],
)
def test_scores_are_normalized_as_in_kube_scheduler(
    raw: list[int], how: Normalize, expected: list[int]
) -> None:
    assert normalize_score(np.array(raw, np.int64), how).tolist() == expected


@given(RAW)
def test_scaled_scores_are_within_bounds_and_keep_their_order(raw: list[int]) -> None:
    scaled = normalize_score(np.array(raw, np.int64), Normalize.MAX).tolist()
    assert all(0 <= score <= MAX_SCORE for score in scaled)
    assert max(scaled) == (MAX_SCORE if any(raw) else 0)
    assert [s for _, s in sorted(zip(raw, scaled, strict=True))] == sorted(scaled)


@given(RAW)
def test_reversed_scores_are_what_is_missing_to_the_most(raw: list[int]) -> None:
    column = np.array(raw, np.int64)
    both = normalize_score(column, Normalize.MAX) + normalize_score(column, Normalize.REVERSED)
    assert set(both.tolist()) == {MAX_SCORE}


def test_the_raw_scores_which_may_be_kept_for_other_pods_are_not_written() -> None:
    raw = np.array([1, 2], np.int64)
    raw.flags.writeable = False
    assert normalize_score(raw, Normalize.REVERSED).tolist() == [50, 0]
