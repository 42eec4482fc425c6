import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("'%s %d%%'.format(['a', 7])", "a 7%"),
        ("'%.2f'.format([1234.567])", "1,234.57"),
        ("'%e'.format([123456789.0])", "1.234568×10⁰⁸"),  # noqa: RUF001 # as cel-go prints it
        ("'%x %X %o %b'.format([255, 'az', 8, 5])", "ff 617A 10 101"),
        ("'%s'.format([[1, 2]])", "[1, 2]"),
        ("'%s'.format([{'b': 1, 'a': 2}])", '{"a":2, "b":1}'),
        (
            "'%s'.format([[dyn('q'), dyn(1.5), dyn(true), dyn(null)]])",
            '["q", 1.500000, true, null]',
        ),
        ("'%s'.format([duration('1h')])", "3600s"),
    ],
)
def test_arguments_take_the_place_of_clauses(expression: str, text: str) -> None:
    assert is_true(f"{expression} == {text!r}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "dyn('%d').format(['a'])",
            "decimal clause can only be used on integers, was given string",
        ),
        ("dyn('%s %s').format([1])", "index 1 out of range"),
        ("dyn('%q').format([1])", 'unrecognized formatting clause "q"'),
        ("dyn('%').format([1])", "unexpected end of string"),
    ],
)
def test_a_clause_that_does_not_fit_its_argument_is_an_error(arguments: str, message: str) -> None:
    assert message in str(answer(f"{arguments} == ''"))
