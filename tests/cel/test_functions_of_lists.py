import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2, 3].slice(1, 2) == [2] && [[1], [2, 3]].flatten() == [1, 2, 3]",
        "[[dyn(1), dyn([2])]].flatten(2) == [1, 2] && lists.range(3) == [0, 1, 2]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && [1, 1, 2].distinct() == [1, 2]",
        "[1, 2].reverse() == [2, 1] && [1, 2].first().value() == 1 && [1, 2].last().value() == 2",
        "![1].filter(x, false).last().hasValue()",
        "sets.contains([1, 2], [2]) && !sets.contains([1], [2]) && sets.intersects([1, 2], [2, 3])",
        "sets.equivalent([1, 1, 2], [2, 1]) && [1, 2].isSorted() && ![2, 1].isSorted()",
        "[1, 2].sum() == 3 && [1.5].sum() == 1.5 && [1, 3, 2].max() == 3",
        "['b', 'a'].min() == 'a'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(9) == -1",
        "[1, 2].includes(2) && 'a'.includes('a') && !'a'.includes('b')",
    ],
)
def test_functions_of_lists_have_their_results(expression: str) -> None:
    assert is_true(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[1].slice(1, 2) == []", "cannot slice(1, 2), list is length 1"),
        ("[1].filter(x, false).max() == 1", "max called on empty list"),
        ("[1].flatten(-1) == []", "level must be non-negative"),
        ("lists.range(-1) == []", "lists.range: size must be non-negative, got -1"),
    ],
)
def test_lists_that_do_not_do_are_errors(expression: str, message: str) -> None:
    assert answer(expression) == message


def test_a_negative_range_is_empty_before_1_37() -> None:
    assert answer("lists.range(-1) == []", attributes_may_be_lists=False) is True
