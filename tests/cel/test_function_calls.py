import pytest

from cel.evaluating import answer, is_true

MODEL = 'device.attributes["gpu.example.com"].model'
MEMORY = 'device.attributes["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"{MEMORY}.startsWith('a')", "no such overload"),
        (f"{MEMORY}.lowerAscii() == 'a'", "no such overload: lowerAscii(int)"),
        (f"{MEMORY}.matches('a')", "no such overload"),
        (f"{MEMORY}.matches({MODEL})", "no such overload: matches"),
        (f"{MEMORY}.find('a') == ''", "no such overload"),
        (f"{MODEL}.isGreaterThan({MODEL})", "no such overload: isGreaterThan(string, string)"),
        (f"!{MEMORY}", "no such overload"),
    ],
)
def test_a_call_on_the_wrong_type_has_the_message_of_its_kind(
    expression: str, message: str
) -> None:
    assert answer(expression) == message


def test_the_types_of_the_arguments_choose_among_overloads() -> None:
    assert is_true(f"string({MEMORY}) == '40' && int(string({MEMORY})) == 40")
    assert is_true(f"size(string({MEMORY})) == 2 && size([{MEMORY}]) == 1")


def test_of_a_list_only_the_first_element_is_looked_at() -> None:
    assert is_true("[dyn('a'), dyn('b')].join() == 'ab'")
    assert answer("[dyn(1), dyn('b')].join() == 'ab'") == "no such overload: join(list)"
