import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2].all(x, x > 0) && [1, 2].exists(x, x > 1) && [1, 2].exists_one(x, x > 1)",
        "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4]",
        "[1, 2].filter(x, x > 1) == [2] && {'a': 1}.filter(k, true) == ['a']",
        "[1, 2].existsOne(i, x, i == 0) && has({'a': 1}.a)",
        "optional.of(1).optMap(x, x + 1).value() == 2",
        "optional.of(1).optFlatMap(x, optional.none()).orValue(5) == 5",
        "cel.bind(x, 2, x * x) == 4",
    ],
)
def test_macros_have_their_results(expression: str) -> None:
    assert is_true(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[1].exists(i, i, true)", "duplicate variable name: i"),
        ("[1].map(1, 2) == []", "argument is not an identifier"),
        ("cel.bind(1, 2, true)", "cel.bind() variable names must be simple identifiers"),
        ("[1].all(__result__, true)", "iteration variable overwrites accumulator variable"),
        ("'a'.sortBy(x, x) == []", "sortBy can only be applied to a list"),
        ("[1].existsOne(x, true)", "undeclared reference to 'existsOne'"),
    ],
)
def test_macros_refuse_what_they_cannot_use(expression: str, message: str) -> None:
    assert message in str(answer(expression))
