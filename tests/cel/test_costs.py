import pytest

from cel.evaluating import answer, cost


@pytest.mark.parametrize(
    ("expression", "newer", "older"),
    [
        ("'aaaaaaaaaaaaaaaaaaaa'.startsWith('b')", 1, 2),
        ("matches('aaaaaaaaaaaaaaaaaaaaaaaaaa', 'aaaaaaaaaaaa')", 9, 1),
        ("'aaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('aaaaaaaaaaaa')", 9, 9),
        ("['a', 'b', 'c'].includes('c')", 0, 1),
        ("'aaaaaaaaaaaaaaaaaaaa'.contains('aaaaaaaaaaaaaaaaaaaa')", 4, 4),
        ("[1, 2].sort() == [1, 2]", 20, 20),
        ("sets.contains([1, 2, 3], [1, 2])", 7, 7),
        ("quantity('1000000000000') == quantity('1')", 4, 4),
        ("cidr('10.0.0.0/8').containsIP('10.0.0.1')", 3, 3),
    ],
)
def test_calls_cost_what_the_release_charges(expression: str, newer: int, older: int) -> None:
    assert cost(expression) == newer
    assert cost(expression, attributes_may_be_lists=False) == older


def test_sorting_what_is_no_list_is_the_crash_that_it_is_in_go() -> None:
    assert answer('device.attributes["gpu.example.com"].memory.distinct() == []') == (
        "internal error: interface conversion: types.Int is not traits.Lister: missing method"
        " Contains"
    )
