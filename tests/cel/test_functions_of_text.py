import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    "expression",
    [
        "'héllo'.charAt(1) == 'é' && 'abc'.charAt(3) == ''",
        "'abcb'.indexOf('b') == 1 && 'abcb'.indexOf('b', 2) == 3 && 'abc'.indexOf('') == 0",
        "'abcb'.lastIndexOf('b') == 3 && 'abcb'.lastIndexOf('b', 2) == 1",
        "'ÄbC'.lowerAscii() == 'Äbc' && 'äbC'.upperAscii() == 'äBC'",
        "'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'abc'.substring(1) == 'bc' && 'abc'.substring(1, 2) == 'b'",
        "' \\t a '.trim() == 'a' && ['a', 'b'].join('-') == 'a-b'",
        "'abc'.find('b.') == 'bc' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'a1b22'.findAll('[0-9]+', 1) == ['1'] && matches('abc', 'b')",
        "strings.quote('a\"b') == '\"a\\\\\"b\"'",
    ],
)
def test_functions_of_text_have_their_results(expression: str) -> None:
    assert is_true(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'abc'.charAt(4) == ''", "index out of range: 4"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("[dyn('a'), dyn(1)].join() == ''", "join: invalid input: 1"),
        ("'a'.find(device.driver + '(') == ''", None),
    ],
)
def test_arguments_out_of_range_are_errors(expression: str, message: str | None) -> None:
    expected = "Illegal regex: error parsing regexp: missing closing ): `gpu.example.com(`"
    assert answer(expression) == (message or expected)
