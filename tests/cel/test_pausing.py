"""The result of an evaluation does not depend on pauses."""

from functools import partial

import pytest

from cel.evaluating import GPU
from mooring.cel.cel_errors import CompileError
from mooring.cel.values import LIMIT_EXCEEDED, work
from mooring.claims.device_selector import (
    DeviceSelector,
    SelectorError,
    compile_selector,
)
from mooring.pausing import Work

LONG = [
    "lists.range(100).all(a, lists.range(100).all(b, a + b >= 0))",
    "lists.range(300).distinct().size() == 300",
    "lists.range(300).map(x, x + 300).distinct().all(x, x in lists.range(600))",
    "sets.contains(lists.range(300), lists.range(301)) || lists.range(20000).sum() == 1",
    "lists.range(9000).indexOf(-1) == -1 && lists.range(1000000).size() == 2",
    "lists.range(50).exists(x, lists.range(99).map(y, 'ab').join('').matches('(a|b|ab)*d'))",
    "lists.range(2000).map(x, 'aaaaaaaa').join(',').replace('a', 'bbbbbbbb').contains('c')",
    "lists.range(2000).all(x, semver('1.2.3').compareTo(semver('1.2.4')) < 0)",
    "lists.range(2000).all(x, [1].exists(y, device.attributes['a'].unknown == y) || x >= 0)",
    "lists.range(4000).all(x, 1 / (3999 - x) >= 0)",
    "lists.range(1000000).sort().size() == 1",
]


def compiled(expression: str, *, newer: bool) -> DeviceSelector:
    found = compile_selector(expression, attributes_may_be_lists=newer)
    assert not isinstance(found, CompileError), found
    return found


def evaluated(selector: DeviceSelector) -> tuple[bool | str, int]:
    try:
        return selector.matches(GPU), work.done
    except SelectorError as error:
        return str(error), work.done


@pytest.mark.parametrize("minor", ["1.36", "1.37"])
@pytest.mark.parametrize("expression", LONG)
def test_an_evaluation_that_pauses_has_the_same_result_and_work(
    expression: str, minor: str
) -> None:
    selector = compiled(expression, newer=minor == "1.37")
    call = Work(partial(evaluated, selector))
    pauses = 0
    while not call.advance():
        pauses += 1
    assert pauses >= 2
    assert call.result() == evaluated(selector)


def test_two_evaluations_take_turns() -> None:
    selectors = [compiled(expression, newer=True) for expression in LONG]
    calls = [Work(partial(evaluated, each)) for each in selectors]
    waiting = list(calls)
    while waiting:
        waiting = [call for call in waiting if not call.advance()]
    assert [call.result() for call in calls] == [evaluated(each) for each in selectors]


@pytest.mark.parametrize("expression", LONG)
def test_with_low_limits_an_evaluation_that_takes_long_ends(expression: str) -> None:
    with pytest.raises(SelectorError, match=LIMIT_EXCEEDED):
        compiled(expression, newer=True).matches(GPU, 9_000)
