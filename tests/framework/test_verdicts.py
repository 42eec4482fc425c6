"""The results of plugins' methods."""

import numpy as np
import pytest

from mooring.framework.verdicts import SKIP, Explanation, Skip, Unschedulable


def test_the_reasons_of_a_row_are_those_whose_bits_are_set_in_their_order() -> None:
    why = Explanation(
        ("cpu", "memory", "slots"), np.array([0b101, 0b010, 0], np.uint64), np.ones(3, np.bool_)
    )
    assert [why.reasons_at(row) for row in range(3)] == [("cpu", "slots"), ("memory",), ()]


def test_as_many_reasons_fit_as_a_word_has_bits() -> None:
    reasons = tuple(f"reason {i}" for i in range(64))
    why = Explanation(reasons, np.array([1 << 63], np.uint64), np.ones(1, np.bool_))
    assert why.reasons_at(0) == ("reason 63",)


@pytest.mark.parametrize("reasons", [1, 63, 64, 65, 128, 129])
def test_any_number_of_reasons_is_explained_from_one_mask_per_reason(reasons: int) -> None:
    masks = [(f"reason {i}", np.array([True, i % 2 == 0, False])) for i in range(reasons)]
    why = Explanation.from_masks(masks, resolvable=np.ones(3, np.bool_))
    every = tuple(name for name, _ in masks)
    assert [why.reasons_at(row) for row in range(3)] == [every, every[::2], ()]
    assert why.reasons_by_row() == [every, every[::2], ()]
    assert why.reasons_by_row(1) == [every]
    assert dict(why.nodes_per_reason()) == {name: 1 + (i % 2 == 0) for i, name in enumerate(every)}


@pytest.mark.parametrize("reasons", [1, 63, 64, 65, 129])
def test_each_row_has_the_reason_of_its_code(reasons: int) -> None:
    names = [f"reason {i}" for i in range(reasons + 1)]
    codes = np.array([-1, *range(reasons), 0], np.int64)
    why = Explanation.from_codes(names, codes, resolvable=np.ones(reasons + 2, np.bool_))
    assert why.reasons == tuple(names[:-1])
    assert why.is_wide == (reasons > 64)
    expected = [(), *((name,) for name in names[:-1]), ("reason 0",)]
    assert why.reasons_by_row() == expected
    assert dict(why.nodes_per_reason()) == {name: 1 + (name == "reason 0") for name in why.reasons}


def test_without_any_row_there_is_no_reason() -> None:
    nothing = np.zeros(0, np.int64)
    why = Explanation.from_codes(["full"], nothing, resolvable=np.zeros(0, np.bool_))
    assert (why.reasons, why.bits.shape) == ((), (0,))


def test_a_reason_that_applies_to_no_row_takes_no_bit() -> None:
    masks = [(f"reason {i}", np.array([i == 70])) for i in range(100)]
    why = Explanation.from_masks(masks, resolvable=np.ones(1, np.bool_))
    assert (why.reasons, why.bits.tolist()) == (("reason 70",), [1])


def test_details_are_told_of_a_single_row_and_not_counted() -> None:
    masks = [("crowded", np.array([True, False, False])), ("none", np.zeros(3, np.bool_))]
    masks += [("crowded", np.array([False, True, False])), ("far", np.array([False, True, True]))]
    resolvable = np.ones(3, np.bool_)
    why = Explanation.from_masks(masks, resolvable=resolvable, details=["r1", "r2", "r3"])
    assert [why.reasons_at(row) for row in range(3)] == [
        ("crowded (r1)",),
        ("crowded (r3)", "far"),
        ("far",),
    ]
    assert dict(why.nodes_per_reason()) == {"crowded": 2, "far": 2}


def test_without_any_reason_no_bit_is_set() -> None:
    why = Explanation.from_masks([], resolvable=np.ones(2, np.bool_))
    assert (why.reasons, why.bits.tolist()) == ((), [0, 0])


@pytest.mark.parametrize("resolvable", [True, False])
def test_one_reason_for_every_row_needs_no_bits(*, resolvable: bool) -> None:
    why = Explanation.single("full", 2, resolvable=resolvable)
    assert [why.reasons_at(0), why.reasons_at(1)] == [("full",), ("full",)]
    assert why.resolvable.tolist() == [resolvable, resolvable]


def test_unschedulable_is_not_resolvable_unless_it_says_so() -> None:
    assert not Unschedulable("no").resolvable


def test_there_is_one_skip_to_compare_with() -> None:
    assert list(Skip) == [SKIP]
