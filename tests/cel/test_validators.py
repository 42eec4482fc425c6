import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("duration('x') == duration('1s')", "invalid duration argument"),
        ("timestamp('2024') == timestamp(0)", "invalid timestamp argument"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("[1, 'a'] == []", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'} == {}", "expected type 'int' but found 'string'"),
        ("{'a': 1, 2: 1} == {}", "expected type 'string' but found 'int'"),
        ("'%d'.format(['a']) == ''", "decimal clause can only be used on integers"),
        (
            "'%d'.format([1, 2]) == ''",
            "too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("'%s'.format([quantity('1')]) == ''", "was given kubernetes.Quantity"),
    ],
)
def test_literals_that_cannot_be_right_are_refused(expression: str, message: str) -> None:
    assert message in str(answer(expression))


def test_the_arguments_of_a_format_may_be_mixed() -> None:
    assert is_true("'%s%d'.format(['a', 1]) == 'a1'")
