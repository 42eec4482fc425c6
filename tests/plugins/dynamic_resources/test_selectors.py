from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from dra.expressions import FAILING, GOOD
from dra.families import drawn
from dra.objects import attributes, device, on_node, resource_slice
from dra.oracle import VERSIONS
from mooring.cel.device_selector import (
    CompileError,
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.framework.evaluations import Evaluations, StillEvaluating
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.quantity import parse_quantity
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import Device, parse_resource_slice
from mooring.plugins.dynamic_resources.allocation_error import AllocationError, BudgetError
from mooring.plugins.dynamic_resources.budget import Budget
from mooring.plugins.dynamic_resources.selectors import Selectors, cel_selectors

DEVICE = parse_resource_slice(
    resource_slice(
        "s",
        on_node("n"),
        [
            device(
                "d",
                attributes(model="h100"),
                capacity={"memory": {"value": "8Gi"}},
                allowMultipleAllocations=True,
            )
        ],
    )
).devices[0]
ID = DeviceId("gpu.example.com", "pool", "d")


@dataclass
class Recording:
    """Selectors that say yes, no or fail, as their expression says, and what they were asked."""

    asked: list[tuple[str, DeviceView]] = field(default_factory=list)

    def compile(self, expression: str) -> "Compiled | CompileError":
        if expression == "wrong":
            return CompileError("compilation failed: no")
        return Compiled(expression, self.asked)


@dataclass
class Compiled:
    expression: str
    asked: list[tuple[str, DeviceView]]

    def matches(self, device: DeviceView) -> bool:
        self.asked.append((self.expression, device))
        if self.expression.startswith("no such"):
            raise SelectorError(self.expression)
        return self.expression == "yes"


def match(*expressions: str | None, recording: Recording, minor: str = "1.37") -> bool:
    selectors = Selectors(recording.compile, KUBERNETES_RULES[minor])
    return selectors.match(expressions, DEVICE, ID, "class gpu")


def test_all_selectors_must_match_and_none_behind_one_that_does_not_is_asked() -> None:
    recording = Recording()
    assert match(recording=recording)
    assert match("yes", recording=recording)
    assert not match("yes", "no", "wrong", recording=recording)


def test_an_expression_sees_the_device() -> None:
    recording = Recording()
    match("yes", recording=recording)
    expression, view = recording.asked[0]
    assert expression == "yes"
    assert view.driver == "gpu.example.com"
    assert view.attributes == {"model": "h100"}
    assert view.capacity == {"memory": parse_quantity("8Gi")}
    assert view.allow_multiple_allocations


def test_a_device_is_asked_once_per_expression() -> None:
    recording = Recording()
    selectors = Selectors(recording.compile, KUBERNETES_RULES["1.37"])
    for owner in ("class a", "class b"):
        assert selectors.match(["yes"], DEVICE, ID, owner)
    assert len(recording.asked) == 1


ON_DEVICE = "class gpu: selector #1 on device gpu.example.com/pool/d: CEL runtime error: "
ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


@pytest.mark.parametrize(
    ("expression", "minor", "text"),
    [
        ("wrong", "1.36", "class gpu: selector #1: CEL compile error: compilation failed: no"),
        ("no such overload", "1.37", f"{ON_DEVICE}no such overload"),
        ("no such key: x", "1.36", "class gpu: selector #1: CEL runtime error: no such key: x"),
        ("no such key: x", "1.37", f"{ON_DEVICE}no such key: x{ADVICE}"),
    ],
)
def test_errors_are_those_of_kube_scheduler(expression: str, minor: str, text: str) -> None:
    with pytest.raises(AllocationError) as caught:
        match("yes", expression, recording=Recording(), minor=minor)
    assert caught.value.text == text
    assert not caught.value.on_node


def test_a_selector_of_an_unknown_type_is_an_error() -> None:
    with pytest.raises(AllocationError, match="unsupported selector type"):
        match(None, recording=Recording())


@pytest.mark.parametrize("expression", [*GOOD, *FAILING])
@pytest.mark.parametrize("minor", VERSIONS)
def test_what_is_remembered_is_what_the_expression_says(expression: str, minor: str) -> None:
    rules = KUBERNETES_RULES[minor]
    lists = rules.device_attributes_may_be_lists
    plain = Selectors(lambda text: compile_selector(text, attributes_may_be_lists=lists), rules)
    remembered = cel_selectors(rules)
    for case in drawn(10, "remembered", ["counts", "consumable_capacity"]):
        for each in map(parse_resource_slice, case["slices"]):
            for one in each.devices:
                named = DeviceId(each.driver, f"{case['id']}-{each.pool}", one.name)
                answers = [
                    _answer(selectors, expression, one, named) for selectors in (plain, remembered)
                ]
                assert answers[0] == answers[1]


def _answer(selectors: Selectors, expression: str, device: Device, named: DeviceId) -> object:
    try:
        return selectors.match([expression], device, named, "class gpu")
    except AllocationError as error:
        return error.text


def test_a_decision_ends_where_selectors_take_too_much_work_and_the_next_one_goes_on() -> None:
    numbers = range(12)
    loop = (
        'device.attributes["gpu.example.com"].number >= 0 && '
        "lists.range(300).all(i, lists.range(200).all(j, i + j >= 0))"
    )
    slices = resource_slice(
        "s", on_node("n"), [device(f"d{n}", {"number": {"int": n}}) for n in numbers]
    )
    devices = parse_resource_slice(slices).devices

    def answered() -> tuple[int, str]:
        selectors = cel_selectors(KUBERNETES_RULES["1.36"])
        for n, each in enumerate(devices):
            try:
                selectors.match([loop], each, DeviceId("gpu.example.com", "p", each.name), "claim")
            except BudgetError as error:
                return n, error.text
        return len(devices), ""

    (first, text), (second, _) = answered(), answered()

    assert 0 < first < second <= len(devices)
    assert text.startswith("selectors of devices take too much work")


def pausing(expression: str) -> Iterator[object]:
    """Yield None for each decision that ends before there is an answer, and then the answer."""
    evaluations = Evaluations(100_000)
    while True:
        evaluations.begin_decision()
        selectors = cel_selectors(KUBERNETES_RULES["1.37"], Budget(evaluations=evaluations))
        try:
            yield _answer(selectors, expression, DEVICE, ID)
        except StillEvaluating:
            yield None
        else:
            return


LONG = "lists.range({}).all(a, lists.range(100).all(b, a + b >= 0))"


def test_an_expression_that_takes_long_is_evaluated_in_several_decisions() -> None:
    *paused, answer = pausing(LONG.format(101))
    assert len(paused) >= 3
    assert answer is True
    assert [*pausing(LONG.format(101))] == [True]


def test_the_limit_of_costs_is_that_of_the_whole_evaluation() -> None:
    *paused, answer = pausing(LONG.format(9999))
    assert len(paused) >= 50
    assert answer == (
        "class gpu: selector #0 on device gpu.example.com/pool/d: CEL runtime error: "
        "operation cancelled: actual cost limit exceeded"
    )


def test_an_evaluation_that_nobody_waits_for_any_more_holds_up_no_other() -> None:
    abandoned = pausing(LONG.format(102))
    assert next(abandoned) is None
    *paused, answer = pausing(LONG.format(103))
    assert paused
    assert answer is True
    assert [*pausing(LONG.format(102))] == [True]


def test_expressions_that_take_long_by_turns_are_all_evaluated() -> None:
    waiting = {number: pausing(LONG.format(number)) for number in range(110, 114)}
    answers = dict[int, object]()
    while len(answers) < 4:
        answers |= {
            number: answer for number, each in waiting.items() if (answer := next(each, None))
        }
    assert set(answers.values()) == {True}
