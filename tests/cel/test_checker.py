import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("device.bar == 1", "undefined field 'bar'"),
        ("node.name == 'a'", "undeclared reference to 'node' (in container '')"),
        ("device.driver.foo()", "undeclared reference to 'foo' (in container '')"),
        ("1 + 'a' == 2", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.size(1) == 2", "found no matching overload for 'size' applied to 'string.(int)'"),
        ("true && 1", "expected type 'bool' but found 'int'"),
        ("1.exists(x, true)", "expression of type 'int' cannot be range of a comprehension"),
        ("device.driver.name == 'a'", "type 'string' does not support field selection"),
    ],
)
def test_a_mistake_in_types_is_reported_as_cel_go_reports_it(expression: str, message: str) -> None:
    assert message in str(answer(expression))


def test_all_mistakes_are_reported() -> None:
    assert str(answer("foo && bar")).count("undeclared reference") == 2


def test_numbers_of_several_types_may_be_compared() -> None:
    assert is_true("1 < 2.5 && 3u > 2 && 1u <= 1.0")


def test_an_empty_list_takes_the_type_that_it_is_used_with() -> None:
    assert is_true("[] + [1] == [1] && [] == ['a'].filter(x, false)")


def test_names_of_types_are_values() -> None:
    assert is_true("type(1) == int && type('a') != int && type(type(1)) == type")
    assert is_true("type(duration('1s')) == google.protobuf.Duration")


def test_a_variable_of_a_loop_hides_the_device() -> None:
    assert is_true("[1].exists(device, device == 1)")
