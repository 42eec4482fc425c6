"""Cases that `test_evaluation.py` does not reach."""

import numpy as np

from mooring.cel.values import Failure
from mooring.plugins.rules.value_columns import Codes, Errors, Value, gathered, logical, selected


def test_the_texts_of_errors_are_numbered_in_their_order() -> None:
    errors = Errors()
    assert [errors.number(text) for text in ("a", "b", "a")] == [1, 2, 1]
    assert errors.texts == ("a", "b")


def test_a_column_for_few_nodes_keeps_only_their_texts() -> None:
    table = [f"t{i}" for i in range(100)]
    small = Codes(np.array([7, -1, 7]), table).compact()
    assert sorted(small.table) == ["t7", "t99"]
    assert [small.table[code] for code in small.codes] == ["t7", "t99", "t7"]


def test_an_error_does_not_count_where_the_other_operand_decides() -> None:
    left = Value(np.array([True, True, False, False]), np.array([1, 0, 1, 0]))
    right = Value(np.array([False, False, True, True]), np.array([0, 2, 0, 2]))
    assert logical("_&&_", left, right).errors.tolist() == [0, 2, 1, 0]
    assert logical("_||_", left, right).errors.tolist() == [1, 0, 0, 2]


def test_of_two_errors_the_first_operands_is_kept() -> None:
    both = np.array([True]), np.array([False])
    found = logical("_&&_", Value(both[0], np.array([1])), Value(both[1], np.array([2])))
    assert found.errors.tolist() == [1]


def test_only_errors_of_the_chosen_operand_count() -> None:
    condition = Value(np.array([True, False]))
    chosen = selected(condition, Value(np.array([1, 2]), np.array([0, 5])), Value(9))
    assert chosen.data.tolist() == [1, 9]
    assert chosen.errors.tolist() == [0, 0]


def test_a_function_that_fails_for_a_text_fails_at_its_nodes() -> None:
    errors = Errors()
    value = gathered(np.array([0, 1, 0]), [3, Failure("no number")], 0, errors, "int")
    assert value.errors.tolist() == [0, 1, 0]
    assert errors.texts == ("no number",)
