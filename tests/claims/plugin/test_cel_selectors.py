from dataclasses import dataclass, field

import pytest

from dra.expressions import FAILING, GOOD
from dra.families import drawn
from dra.objects import attributes, device, on_node, resource_slice
from dra.oracle import VERSIONS
from driving import driven
from mooring.cel.cel_errors import CompileError
from mooring.claims.device_selector import (
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.claims.model.resource_claims import DeviceId
from mooring.claims.model.resource_slices import Device, parse_resource_slice
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.cel_selectors import Selectors, cel_selectors
from mooring.framework.evaluations import Evaluations
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.quantity import parse_quantity

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
    """Compiles fake selectors, and records in `asked` each evaluation: expression and device.

    The text of an expression says whether it is true, is false or fails.
    """

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


@pytest.mark.deep
def test_an_attempt_ends_where_selectors_take_too_much_work_and_the_next_one_goes_on() -> None:
    numbers = range(12)
    loop = (
        'device.attributes["gpu.example.com"].number >= 0 && '
        "lists.range(30).all(i, lists.range(20).all(j, i + j >= 0))"
    )
    slices = resource_slice(
        "s", on_node("n"), [device(f"d{n}", {"number": {"int": n}}) for n in numbers]
    )
    devices, evaluations = parse_resource_slice(slices).devices, Evaluations(60_000)

    def answered() -> int:
        evaluations.begin_attempt()
        selectors = cel_selectors(KUBERNETES_RULES["1.36"], Budget(evaluations=evaluations))
        for n, each in enumerate(devices):
            try:
                selectors.match([loop], each, DeviceId("gpu.example.com", "p", each.name), "claim")
            except PluginFailed:
                return n
        return len(devices)

    assert 0 < answered() < answered() <= len(devices)


LONG = "lists.range({}).all(a, lists.range(100).all(b, a + b >= 0))"


def test_an_expression_that_takes_long_lets_other_tasks_run() -> None:
    selectors = cel_selectors(KUBERNETES_RULES["1.37"])
    answer, pauses = driven(lambda: _answer(selectors, LONG.format(101), DEVICE, ID))
    assert answer is True
    assert pauses >= 3


def test_the_limit_of_costs_is_that_of_the_whole_evaluation() -> None:
    selectors = cel_selectors(KUBERNETES_RULES["1.37"])
    answer, pauses = driven(lambda: _answer(selectors, LONG.format(9999), DEVICE, ID))
    assert pauses >= 50
    assert answer == (
        "class gpu: selector #0 on device gpu.example.com/pool/d: CEL runtime error: "
        "operation cancelled: actual cost limit exceeded"
    )
