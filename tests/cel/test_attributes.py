import pytest

from cel.evaluating import answer, is_true


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("{'a': 1}.b == 1", "no such key: b"),
        ("{1: 1}[2] == 1", "no such key: 2"),
        ("[1][2] == 1", "index out of bounds: 2"),
        ("[1][dyn(1.5)] == 1", "unsupported index value 1.5 in list"),
        ("[1][dyn('a')] == 1", "unsupported index type 'string' in list"),
        ("dyn('a').b == 1", "no such key: b"),
        ("{'a': 1}[dyn(quantity('1'))] == 1", "invalid qualifier type: cel.Quantity"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(expression: str, message: str) -> None:
    assert answer(expression) == message


def test_keys_and_indexes_may_be_equal_numbers_of_other_types() -> None:
    assert is_true("{1: 'a'}[dyn(1.0)] == 'a' && {1u: 'a'}[dyn(1)] == 'a' && [5][dyn(0u)] == 5")


def test_a_path_goes_on_behind_a_conditional() -> None:
    assert is_true("(device.driver == 'x' ? {'a': 1} : {'a': 2}).a == 2")
    assert is_true("has((true ? {'a': 1} : {'b': 1}).a)")


def test_a_path_behind_an_optional_value_is_optional() -> None:
    assert is_true("{'a': {'b': 1}}.?a.b.orValue(2) == 1")
    assert is_true("{'a': {'b': 1}}.?x.b.orValue(2) == 2")
    assert is_true("!has({'a': {'b': 1}}.?a.x)")
