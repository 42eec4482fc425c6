"""What a plugin answers."""

import numpy as np
import pytest

from mooring.framework.verdicts import SKIP, Explanation, Skip, Unschedulable


def test_the_reasons_of_a_row_are_those_whose_bits_are_set_in_their_order() -> None:
    why = Explanation(
        ("cpu", "memory", "slots"), np.array([0b101, 0b010, 0], np.uint64), np.ones(3, np.bool_)
    )
    assert [why.of(row) for row in range(3)] == [("cpu", "slots"), ("memory",), ()]


def test_as_many_reasons_fit_as_a_word_has_bits() -> None:
    reasons = tuple(f"reason {i}" for i in range(64))
    why = Explanation(reasons, np.array([1 << 63], np.uint64), np.ones(1, np.bool_))
    assert why.of(0) == ("reason 63",)


@pytest.mark.parametrize("resolvable", [True, False])
def test_one_reason_for_every_row_needs_no_bits(*, resolvable: bool) -> None:
    why = Explanation.single("full", 2, resolvable=resolvable)
    assert [why.of(0), why.of(1)] == [("full",), ("full",)]
    assert why.resolvable.tolist() == [resolvable, resolvable]


def test_a_refusal_is_final_unless_it_says_that_eviction_could_help() -> None:
    assert not Unschedulable("no").resolvable


def test_there_is_one_skip_to_compare_with() -> None:
    assert list(Skip) == [SKIP]
