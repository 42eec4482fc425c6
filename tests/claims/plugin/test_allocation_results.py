from typing import Any

from dra.asking import ask
from dra.objects import (
    ALL_NODES,
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
    selected_by,
)
from dra.small_selectors import compile_small
from node_selectors import expression, named, node_selector, term

GPU = "gpu.example.com"


def config(number: int, *requests: str) -> Object:
    opaque = {"opaque": {"driver": GPU, "parameters": {"n": number}}}
    return {**opaque, **({"requests": list(requests)} if requests else {})}


def allocation(
    *slices: Object,
    requests: tuple[Object, ...] = (request("r", exactly("gpu")),),
    configs: tuple[Object, ...] = (),
    minor: str = "1.37",
) -> Any:
    classes = [device_class("gpu", config=[config(0)]), device_class("plain")]
    claims = [claim("c", requests, config=configs)]
    asked = case([node("n", zone="a")], slices, classes, claims)
    return ask(asked, minor, compile_small)[0]["allocations"][0]


def numbers(found: Any) -> list[tuple[int, list[str]]]:
    return [
        (each["opaque"]["parameters"]["n"], each.get("requests", []))
        for each in found["devices"]["config"]
    ]


TWO = resource_slice("s", ALL_NODES, [device("d0"), device("d1"), device("d2")])


def test_a_device_of_a_node_restricts_the_claim_to_it() -> None:
    selector = node_selector(named("n"))
    local = resource_slice("s", on_node("n"), [device("d")])
    assert allocation(local)["nodeSelector"] == selector
    binding = resource_slice("s", ALL_NODES, [device("d", bindsToNode=True)])
    assert allocation(binding)["nodeSelector"] == selector


def test_node_selectors_of_devices_are_joined_and_all_nodes_need_none() -> None:
    assert "nodeSelector" not in allocation(TWO)
    found = allocation(
        resource_slice("s", selected_by("zone", "a", "b"), [device("d")], pool="p"),
        resource_slice("t", selected_by("zone", "b", "a"), [device("d")], pool="q"),
        resource_slice("u", selected_by("zone", "a"), [device("d")], pool="r"),
        requests=(request("r", exactly("gpu", 3)),),
    )
    zones = (expression("zone", "In", "a", "b"), expression("zone", "In", "a"))
    assert found["nodeSelector"] == node_selector(term(*zones))


def test_a_node_selector_of_several_terms_is_an_error() -> None:
    term = selected_by("zone", "a")["nodeSelector"]["nodeSelectorTerms"][0]
    where = {"nodeSelector": {"nodeSelectorTerms": [term, term]}}
    slices = [resource_slice("s", where, [device("d")])]
    claims = [claim("c", [request("r", exactly("gpu"))])]
    asked = case([node("n", zone="a")], slices, [device_class("gpu")], claims)
    assert ask(asked, "1.37", compile_small) == [
        {
            "error": "create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector "
            "with 2 terms"
        }
    ]


def test_the_configuration_of_a_class_is_for_all_requests_for_it() -> None:
    requests = (
        request("a", exactly("gpu")),
        request("b", exactly("plain")),
        first_available("f", exactly("gpu", 9), exactly("gpu")),
    )
    assert numbers(allocation(TWO, requests=requests)) == [(0, ["a", "f/b"])]


def test_the_configuration_of_a_claim_is_for_the_requests_that_were_taken() -> None:
    requests = (request("a", exactly("plain")), first_available("f", exactly("plain")))
    configs = (config(1), config(2, "a"), config(3, "f"), config(4, "f/a"), config(5, "f/b"))
    assert numbers(allocation(TWO, requests=requests, configs=configs)) == [
        (1, []),
        (2, ["a"]),
        (3, ["f"]),
        (4, ["f/a"]),
    ]


def test_a_configuration_for_several_requests_is_written_once_from_1_37_on() -> None:
    requests = (request("a", exactly("plain")), request("b", exactly("plain")))
    configs = (config(1, "a", "b"),)
    twice = allocation(TWO, requests=requests, configs=configs, minor="1.36")
    assert numbers(twice) == [(1, ["a", "b"]), (1, ["a", "b"])]
    assert numbers(allocation(TWO, requests=requests, configs=configs)) == [(1, [])]


def test_a_result_has_what_the_request_and_the_device_say() -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}
    slow = device("d", bindingConditions=["Ready"], bindingFailureConditions=["Failed"])
    wanted = exactly("gpu", adminAccess=True, tolerations=[toleration])
    found = allocation(resource_slice("s", ALL_NODES, [slow]), requests=(request("r", wanted),))
    assert found["devices"]["results"] == [
        {
            "request": "r",
            "driver": GPU,
            "pool": "pool",
            "device": "d",
            "adminAccess": True,
            "tolerations": [toleration],
            "bindingConditions": ["Ready"],
            "bindingFailureConditions": ["Failed"],
        }
    ]
