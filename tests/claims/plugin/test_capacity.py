from typing import Any

import pytest

from dra.objects import device, on_node, resource_slice
from mooring.claims.model.resource_slices import Device, parse_resource_slice
from mooring.claims.plugin.capacity import (
    CapacityError,
    capacity_left,
    consumed_capacity,
)
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.quantity import parse_quantity

OLD, NEW, NEWER = (KUBERNETES_RULES[version] for version in ("1.36", "1.37", "1.38"))
RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "4Gi"}}
VALUES = {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}
GIBI = 2**30 * 10**9


def with_memory(value: str, policy: dict[str, Any] | None = None) -> Device:
    memory = {"value": value, **({"requestPolicy": policy} if policy else {})}
    raw = resource_slice("s", on_node("n"), [device("d", capacity={"memory": memory})])
    return parse_resource_slice(raw).devices[0]


def left(
    amount: str | None,
    device: Device,
    in_use: int = 0,
    allocating: int = 0,
    rules: Any = NEW,
    name: str = "memory",
) -> bool:
    requested = {} if amount is None else {name: parse_quantity(amount)}
    return capacity_left(requested, device, {"memory": in_use}, {"memory": allocating}, rules)


def consumed(amount: str | None, device: Device, rules: Any = NEW) -> str:
    requested = {} if amount is None else {"memory": parse_quantity(amount)}
    return consumed_capacity(requested, device, rules)["memory"].text


def test_without_a_policy_the_amount_is_consumed_and_without_a_request_everything() -> None:
    assert consumed("1500M", with_memory("8Gi")) == "1500M"
    assert consumed(None, with_memory("8Gi")) == "8Gi"


def test_a_policy_gives_its_default_and_rounds_requests_up() -> None:
    assert consumed(None, with_memory("8Gi", RANGE)) == "1Gi"
    assert consumed("1", with_memory("8Gi", RANGE)) == "1Gi"
    assert consumed("1025Mi", with_memory("8Gi", RANGE)) == "2Gi"
    assert consumed("2Gi", with_memory("8Gi", RANGE)) == "2Gi"
    assert consumed("3Gi", with_memory("8Gi", VALUES)) == "4Gi"
    assert consumed("5Gi", with_memory("8Gi", VALUES)) == "5Gi"


def test_a_rounded_amount_is_written_as_the_step_is_and_before_1_37_in_binary() -> None:
    policy = {"default": "1k", "validRange": {"min": "1k", "step": "1k"}}
    assert consumed("1500", with_memory("8k", policy), NEW) == "2k"
    assert consumed("1500", with_memory("8k", policy), OLD) == "2000"


def test_what_others_and_this_allocation_consume_is_not_left() -> None:
    memory = with_memory("4Gi", RANGE)
    assert left("2Gi", memory, GIBI, GIBI)
    assert not left("2Gi", memory, GIBI, GIBI + 1)
    assert not left("2Gi", memory, 2 * GIBI, GIBI)


def test_amounts_that_the_policy_does_not_allow_are_not_left() -> None:
    assert left("4Gi", with_memory("8Gi", RANGE))
    assert not left("4097Mi", with_memory("8Gi", RANGE))
    assert not left("5Gi", with_memory("8Gi", VALUES))
    no_step = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi"}}
    assert left("1025Mi", with_memory("8Gi", no_step))


def test_a_capacity_that_the_device_does_not_have_is_not_left() -> None:
    assert not left("1", with_memory("8Gi"), name="cores")
    assert not left("1", with_memory("8Gi"), name="cores", rules=OLD)


@pytest.mark.parametrize(
    ("amount", "in_1_37", "in_1_38"),
    [
        ("250m", "1", "300m"),
        ("1", "1", "1100m"),
        ("1100m", "2", "1100m"),
    ],
)
def test_from_1_38_on_steps_of_thousandths_are_counted(
    amount: str, in_1_37: str, in_1_38: str
) -> None:
    memory = with_memory("8", {"default": "1", "validRange": {"min": "100m", "step": "200m"}})
    assert consumed(amount, memory) == in_1_37
    assert consumed(amount, memory, NEWER) == in_1_38


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1u", "request 1u is not a representable milli value"),
        ("9223372036854775.807", "up to the next step passes the milli-value range"),
        ("-5", "capacity value is negative: request -5"),
    ],
)
def test_amounts_that_cannot_be_computed_in_thousandths_are_errors(amount: str, text: str) -> None:
    span = {"min": "-9" if amount == "-5" else "0", "step": "2m"}
    with pytest.raises(CapacityError, match=text):
        left(amount, with_memory("8", {"default": "1", "validRange": span}), rules=NEWER)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1e30", "request 1e30 exceeds MaxInt64"),
        ("9223372036854775807", "up to the next step passes MaxInt64"),
        ("-5", "capacity value is negative"),
    ],
)
def test_amounts_that_cannot_be_computed_are_errors_from_1_37_on(amount: str, text: str) -> None:
    policy = {"default": "2", "validRange": {"min": "-9" if amount == "-5" else "2", "step": "2"}}
    memory = with_memory("8", policy)
    with pytest.raises(CapacityError, match=text) as caught:
        left(amount, memory)
    assert caught.value.said_of("gpu", NEW).startswith('capacity "memory": ')
    assert left(amount, memory, rules=OLD) == (amount == "-5")
