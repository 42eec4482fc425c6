import pytest

from dra.asking import ask
from dra.objects import (
    ALL_NODES,
    PER_DEVICE,
    Object,
    case,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    on_node,
    request,
    resource_slice,
)
from dra.oracle import Answer
from dra.small_selectors import compile_small

GPU = "gpu.example.com"
FOUR = resource_slice("s", ALL_NODES, [device(f"d{index}") for index in range(4)])


def answer(
    *requests: Object,
    slices: tuple[Object, ...] = (FOUR,),
    minor: str = "1.37",
    constraints: tuple[Object, ...] = (),
) -> Answer:
    asked = case([node("n")], slices, [device_class("gpu")], [claim("c", requests, constraints)])
    return ask(asked, minor, compile_small)[0]


def devices(found: Answer) -> list[str]:
    return [each["device"] for one in found["allocations"] for each in one["devices"]["results"]]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (exactly("none"), "could not retrieve device class none: deviceclass.resource.k8s.io "),
        (exactly(""), "missing device class name (unsupported request type?)"),
        ({"deviceClassName": "gpu", "allocationMode": "?"}, "unsupported count mode ?"),
    ],
)
def test_a_request_that_is_not_understood_is_an_error(wanted: Object, text: str) -> None:
    error = answer(request("r", wanted))["error"]
    assert error.startswith(f"claim default/c, request r: {text}")


def test_a_selector_of_an_unknown_type_is_an_error_that_names_it() -> None:
    error = answer(request("r", {**exactly("gpu"), "selectors": [{}]}))["error"]
    assert error == (
        "claim default/c, request r, selector #0: CEL expression empty (unsupported selector type?)"
    )


def test_a_request_without_anything_is_an_error() -> None:
    assert "unsupported request type" in answer({"name": "r"})["error"]


def test_an_empty_constraint_is_an_error() -> None:
    error = answer(request("r", exactly("gpu")), constraints=({},))["error"]
    assert error == (
        "claim default/c, constraint #0: empty constraint (unsupported constraint type?)"
    )


def test_more_devices_than_a_claim_can_have_are_an_error() -> None:
    many = (request("a", exactly("gpu", 20)), request("b", exactly("gpu", 13)))
    assert answer(*many, minor="1.36") == {
        "error": "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    }
    assert answer(*many, minor="1.37") == {
        "error": "claim default/c, request b: adding 13 devices exceeds the claim limit of 32, "
        "with 20 already accounted for"
    }


def test_the_smallest_sub_request_counts_for_the_limit() -> None:
    several = first_available("f", exactly("gpu", 33), exactly("gpu", 1))
    assert devices(answer(several)) == ["d0"]


def test_all_devices_are_those_that_match() -> None:
    assert devices(answer(request("r", exactly("gpu", None)))) == ["d0", "d1", "d2", "d3"]
    assert answer(request("r", exactly("gpu", None, "false"))) == {}


@pytest.mark.parametrize(
    ("listed", "count", "text"),
    [
        (["d0"], 2, f"resource pool {GPU}/pool is currently being updated"),
        (["d0", "d0"], 1, f"resource pool {GPU}/pool is currently invalid"),
    ],
)
def test_all_devices_of_a_pool_that_is_not_usable_are_an_error(
    listed: list[str], count: int, text: str
) -> None:
    pool = resource_slice("s", ALL_NODES, [device(name) for name in listed], count=count)
    error = answer(request("r", exactly("gpu", None)), slices=(pool,))["error"]
    assert error == f"claim default/c, request r: asks for all devices, but {text}"


def test_a_device_with_nodes_of_its_own_is_not_selected_elsewhere() -> None:
    listed = [device("there", **on_node("m")), device("here", **on_node("n"))]
    found = answer(request("r", exactly("gpu")), slices=(resource_slice("s", PER_DEVICE, listed),))
    assert devices(found) == ["here"]


def test_all_devices_with_a_capacity_that_cannot_be_computed_are_an_error() -> None:
    policy = {"default": "2", "validRange": {"min": "2", "step": "2"}}
    memory = {"memory": {"value": "8", "requestPolicy": policy}}
    slices = (resource_slice("s", ALL_NODES, [device("d", capacity=memory)]),)
    wanted = exactly("gpu", None, capacity={"requests": {"memory": "1e30"}})
    error = answer(request("r", wanted), slices=slices)["error"]
    assert error.startswith("claim default/c, request r: checking capacity for device d: ")
    assert answer(request("r", wanted), slices=slices, minor="1.36") == {}
