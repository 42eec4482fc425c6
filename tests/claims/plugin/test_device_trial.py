from typing import Any

import pytest

from dra.asking import ask
from dra.objects import (
    ALL_NODES,
    Object,
    allocated_claim,
    attributes,
    case,
    claim,
    consumption,
    counter_set,
    device,
    device_class,
    exactly,
    node,
    renumbered,
    request,
    resource_slice,
    result,
)
from dra.oracle import Answer
from dra.small_selectors import compile_small

GPU = "gpu.example.com"
BLOCKED = [{"key": "k", "value": "v", "effect": "NoSchedule"}]


def answer(
    listed: list[Object],
    *claims: Object,
    taken: list[Object] | None = None,
    counters: str = "",
    minor: str = "1.37",
) -> Answer:
    """Return the allocator's answer for these claims on a node; `taken` are devices in use."""
    slices = [resource_slice("s", ALL_NODES, listed)]
    if counters:
        slices.append(resource_slice("c", ALL_NODES, counters=[counter_set("set", c=counters)]))
    allocated = [allocated_claim("other", taken)] if taken else []
    asked = case([node("n")], renumbered(slices), [device_class("gpu")], claims, allocated)
    return ask(asked, minor, compile_small)[0]


def wants(name: str, *wanted: Object, constraints: tuple[Object, ...] = ()) -> Object:
    requests = [request(f"r{index}", each) for index, each in enumerate(wanted)]
    return claim(name, requests, constraints)


def devices(found: Answer) -> list[str]:
    return [each["device"] for one in found["allocations"] for each in one["devices"]["results"]]


def test_a_device_is_for_one_claim_and_not_for_two() -> None:
    one, two = wants("a", exactly("gpu")), wants("b", exactly("gpu"))
    assert devices(answer([device("d0"), device("d1")], one, two)) == ["d0", "d1"]
    assert answer([device("d0")], one, two) == {}
    assert answer([device("d0")], one, taken=[result(GPU, "pool", "d0")]) == {}


def test_admin_access_reaches_devices_in_use_but_each_once_per_claim() -> None:
    admin = exactly("gpu", adminAccess=True)
    taken = [result(GPU, "pool", "d0")]
    assert devices(answer([device("d0")], wants("a", admin), taken=taken)) == ["d0"]
    assert answer([device("d0")], wants("a", admin, admin), taken=taken) == {}
    both = answer([device("d0")], wants("a", admin), wants("b", admin))
    assert devices(both) == ["d0", "d0"]


def test_a_device_with_admin_access_is_not_in_use() -> None:
    taken = [result(GPU, "pool", "d0", adminAccess=True)]
    assert devices(answer([device("d0")], wants("a", exactly("gpu")), taken=taken)) == ["d0"]


@pytest.mark.parametrize(
    ("tolerations", "found"),
    [
        ([], ["d1"]),
        ([{"operator": "Exists"}], ["d0"]),
        ([{"key": "k", "operator": "Equal", "value": "v"}], ["d0"]),
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], ["d1"]),
    ],
)
def test_a_tainted_device_is_for_requests_that_tolerate_it(
    tolerations: list[Object], found: list[str]
) -> None:
    listed = [device("d0", taints=BLOCKED), device("d1")]
    assert devices(answer(listed, wants("a", exactly("gpu", tolerations=tolerations)))) == found


def test_a_taint_of_another_effect_blocks_nothing() -> None:
    listed = [device("d0", taints=[{"key": "k", "effect": "None"}])]
    assert devices(answer(listed, wants("a", exactly("gpu")))) == ["d0"]


def test_counters_are_left_for_later_devices_or_not() -> None:
    listed = [
        device(f"d{index}", consumesCounters=[consumption("set", c=amount)])
        for index, amount in enumerate(("3", "2", "1"))
    ]
    assert devices(answer(listed, wants("a", exactly("gpu", 2)), counters="4")) == ["d0", "d2"]
    assert devices(answer(listed, wants("a", exactly("gpu", 2)), counters="3")) == ["d1", "d2"]
    taken = [result(GPU, "pool", "d0")]
    assert answer(listed, wants("a", exactly("gpu", 2)), counters="4", taken=taken) == {}


def shared(name: str, **fields: Any) -> Object:
    capacity = {"memory": {"value": "4Gi"}}
    return device(name, capacity=capacity, allowMultipleAllocations=True, **fields)


def half() -> Object:
    return exactly("gpu", capacity={"requests": {"memory": "2Gi"}})


def test_claims_share_a_device_as_long_as_its_capacity_lasts() -> None:
    listed = [shared("d0"), shared("d1")]
    found = answer(listed, wants("a", half(), half(), half()))
    assert devices(found) == ["d0", "d0", "d1"]
    first = found["allocations"][0]["devices"]["results"][0]
    assert first["shareID"] == "share"
    assert first["consumedCapacity"] == {"memory": "2Gi"}
    part = result(GPU, "pool", "d0", shareID="s", consumedCapacity={"memory": "3Gi"})
    assert devices(answer(listed, wants("a", half()), taken=[part])) == ["d1"]


def test_a_shared_device_that_is_allocated_as_a_whole_is_in_use() -> None:
    taken = [result(GPU, "pool", "d0")]
    assert answer([shared("d0")], wants("a", half()), taken=taken) == {}


def test_shares_of_a_device_consume_its_counters_once() -> None:
    listed = [shared("d0", consumesCounters=[consumption("set", c="2")])]
    assert devices(answer(listed, wants("a", half(), half()), counters="2")) == ["d0", "d0"]
    part = result(GPU, "pool", "d0", shareID="s", consumedCapacity={"memory": "1Gi"})
    assert devices(answer(listed, wants("a", half()), counters="2", taken=[part])) == ["d0"]


@pytest.mark.parametrize(("minor", "found"), [("1.36", False), ("1.37", True)])
def test_a_share_without_capacity_has_taken_the_counters_from_1_37_on(
    minor: str, *, found: bool
) -> None:
    listed = [
        device("d0", allowMultipleAllocations=True, consumesCounters=[consumption("set", c="2")])
    ]
    part = result(GPU, "pool", "d0", shareID="s")
    claimed = wants("a", exactly("gpu"))
    answered = answer(listed, claimed, counters="2", taken=[part], minor=minor)
    assert ("allocations" in answered) == found


@pytest.mark.parametrize(("minor", "found"), [("1.37", True), ("1.38", False)])
def test_from_1_38_on_a_device_that_is_shared_no_more_is_in_use_while_shares_are(
    minor: str, *, found: bool
) -> None:
    part = result(GPU, "pool", "d0", shareID="s", consumedCapacity={"memory": "1Gi"})
    answered = answer([device("d0")], wants("a", exactly("gpu")), taken=[part], minor=minor)
    assert ("allocations" in answered) == found


@pytest.mark.parametrize(("minor", "said"), [("1.37", "memory"), ("1.38", f"{GPU}/memory")])
def test_from_1_38_on_an_error_names_a_capacity_with_its_domain(minor: str, said: str) -> None:
    listed = [device("d0", capacity={"memory": {"value": "8Gi"}})]
    negative = exactly("gpu", 1, capacity={"requests": {"memory": "-1"}})
    error = answer(listed, wants("a", negative), minor=minor)["error"]
    assert f'capacity "{said}": capacity value is negative' in error


@pytest.mark.parametrize(("minor", "found"), [("1.37", False), ("1.38", True)])
def test_from_1_38_on_versions_are_compared_without_their_build_metadata(
    minor: str, *, found: bool
) -> None:
    listed = [
        device(f"d{number}", {"x": {"version": version}})
        for number, version in enumerate(("1.0.0+a", "1.0.0+b"))
    ]
    same = wants("a", exactly("gpu", 2), constraints=({"matchAttribute": f"{GPU}/x"},))
    assert ("allocations" in answer(listed, same, minor=minor)) == found
    other = wants("a", exactly("gpu", 2), constraints=({"distinctAttribute": f"{GPU}/x"},))
    assert ("allocations" in answer(listed, other, minor=minor)) != found


def test_attributes_without_a_domain_are_those_of_the_driver() -> None:
    listed = [
        device("d0", attributes(x="a")),
        device("d1", attributes(**{f"{GPU}__x": "b"})),
        device("d2", attributes(**{f"{GPU}__x": "a"})),
        device("d3", attributes(net__x="a")),
    ]
    same = {"matchAttribute": f"{GPU}/x"}
    found = answer(listed, wants("a", exactly("gpu", 2), constraints=(same,)))
    assert devices(found) == ["d0", "d2"]
    assert answer(listed, wants("a", exactly("gpu", 3), constraints=(same,))) == {}


def test_all_devices_that_a_constraint_does_not_admit_are_an_error() -> None:
    listed = [device("d0", attributes(x="a")), device("d1", attributes(x="b"))]
    same = {"matchAttribute": f"{GPU}/x"}
    assert answer(listed, wants("a", exactly("gpu", None), constraints=(same,))) == {
        "error": f"claim default/a, request r0: cannot add device {GPU}/pool/d1 because a claim "
        "constraint would not be satisfied"
    }


def test_distinct_values_may_come_back_within_a_request_before_1_37() -> None:
    listed = [device(f"d{index}", attributes(x=x)) for index, x in enumerate("aba")]
    claimed = wants("a", exactly("gpu", 3), constraints=({"distinctAttribute": f"{GPU}/x"},))
    assert answer(listed, claimed, minor="1.37") == {}
    assert devices(answer(listed, claimed, minor="1.36")) == ["d0", "d1", "d2"]


def test_a_capacity_that_cannot_be_computed_is_an_error_from_1_37_on() -> None:
    policy = {"default": "2", "validRange": {"min": "2", "step": "2"}}
    listed = [device("d0", capacity={"memory": {"value": "8", "requestPolicy": policy}})]
    claimed = wants("a", exactly("gpu", capacity={"requests": {"memory": "1e30"}}))
    assert answer(listed, claimed, minor="1.36") == {}
    error = answer(listed, claimed)["error"]
    assert error.startswith(f"claim default/a, request r0: checking capacity for device {GPU}/")
