import pytest

from cel.evaluating import is_true
from mooring.cel.values import EvaluationCrash, go_float, iterate, joined, size_of, work


@pytest.mark.parametrize(
    "expression",
    [
        "dyn(1) == dyn(1.0) && dyn(1u) == dyn(1) && dyn('1') != dyn(1) && dyn(true) != dyn(1)",
        "[1, 2] == [1, 2] && [[1], []] != [[1], [2]] && {'a': [1]} == {'a': [1]}",
        "null == null && dyn(1) != null",
        "b'a' < b'b' && 'a' < 'B'.lowerAscii() && false < true",
        "9007199254740993 > 9007199254740992.0 == false",
        "!(dyn(0.0) / dyn(0.0) == dyn(0.0) / dyn(0.0))",
        "duration('60s') == duration('1m') && timestamp(0) < timestamp(1)",
        "{dyn(1): 'a', dyn(1u): 'b'}.size() == 2",
    ],
)
def test_equality_and_order_are_those_of_cel(expression: str) -> None:
    assert is_true(expression)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        (100000.0, "100000"),
        (1e6, "1e+06"),
        (-0.0, "-0"),
        (1e-5, "1e-05"),
        (float("inf"), "+Inf"),
        (123456789.0, "1.23456789e+08"),
    ],
)
def test_floats_are_printed_as_go_prints_them(value: float, text: str) -> None:
    assert go_float(value) == text


def test_a_joined_list_keeps_the_order_of_its_parts() -> None:
    first, second = tuple(range(100)), tuple(range(100, 300))
    whole = joined(first, second)
    assert size_of(whole) == 300
    assert [*iterate(whole)] == [*range(300)]


def test_work_ends() -> None:
    work.begin()
    with pytest.raises(EvaluationCrash, match="actual cost limit exceeded"):
        work.spend_on_text(10**12)
    work.begin()
    work.spend(1)
