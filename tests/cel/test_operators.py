import pytest

from cel.evaluating import answer, is_true

ATTRIBUTES = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("0u - 1u == 0u", "unsigned integer overflow"),
        ("1 / 0 == 0", "division by zero"),
        ("1 % 0 == 0", "modulus by zero"),
        (f"{ATTRIBUTES}.model > 1", "no such overload"),
        (f"{ATTRIBUTES}.model + 1 == 2", "no such overload"),
        (f"size({ATTRIBUTES}.memory) == 2", "no such overload: size"),
        (f"{ATTRIBUTES}.healthy * 2 == 2", "no such overload: _*_"),
        (f"int({ATTRIBUTES}.healthy) == 2", "no such overload: int(bool)"),
        (f"{ATTRIBUTES}.memory.charAt(1) == ''", "no such overload: charAt(int, int)"),
    ],
)
def test_operands_that_do_not_fit_are_errors_of_cel_go(expression: str, message: str) -> None:
    assert answer(expression) == message


@pytest.mark.parametrize(
    "expression",
    [
        f"int('-{'0' * 5_000}1') == -1 && uint('{'0' * 5_000}1') == 1u",
        "double('1_0') == 10.0 && double('0x_1p1') == 2.0",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7u / 2u == 3u && 7.0 / 2.0 == 3.5",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        "int('-7') == -7 && int(7.9) == 7 && int(7u) == 7 && uint('7') == 7u",
        "double('1.5') == 1.5 && double('Inf') > 1.0 && bool('t') && !bool('FALSE')",
        "string(1) + string(1.5) + string(true) + string(b'x') == '11.5truex'",
        "!(1 in []) && 1 in [1, 2] && 'a' in {'a': 1}",
        "1.0 / 0.0 > 9.0 && -1.0 / 0.0 < -9.0",
        "optional.ofNonZeroValue(0).hasValue() == false && optional.ofNonZeroValue(1).hasValue()",
    ],
)
def test_operators_and_conversions_have_their_results(expression: str) -> None:
    assert is_true(expression)


def test_a_constant_that_cannot_be_converted_is_found_when_the_expression_is_compiled() -> None:
    assert answer("int('x') == 1") == (
        "program instantiation failed: type conversion error from 'string' to 'int'"
    )
