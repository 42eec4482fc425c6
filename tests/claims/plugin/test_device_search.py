import pytest

from dra.asking import ask
from dra.objects import (
    ALL_NODES,
    Object,
    attributes,
    case,
    claim,
    consumption,
    counter_set,
    device,
    device_class,
    exactly,
    first_available,
    node,
    request,
    resource_slice,
)
from dra.oracle import Answer
from dra.small_selectors import compile_small
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget

GPU = "gpu.example.com"
AT_MOST = f'device.attributes["{GPU}"].index <= '
INDEXED = [device(f"d{index}", attributes(index=index)) for index in range(40)]


def answer(
    listed: list[Object], *claims: Object, budget: Budget | None = None, minor: str = "1.37"
) -> Answer:
    slices = [resource_slice("s", ALL_NODES, listed)]
    asked = case([node("n")], slices, [device_class("gpu")], claims)
    return ask(asked, minor, compile_small, budget)[0]


def devices(found: Answer) -> list[str]:
    return [each["device"] for one in found["allocations"] for each in one["devices"]["results"]]


def requests(found: Answer) -> list[str]:
    return [each["request"] for one in found["allocations"] for each in one["devices"]["results"]]


def below(index: int, count: int = 1) -> Object:
    """Return a request for `count` devices whose attribute is at most `index`."""
    return exactly("gpu", count, f"{AT_MOST}{index}")


def test_a_request_gives_back_what_a_later_one_needs() -> None:
    wanted = claim("c", [request("a", below(2)), request("b", below(0)), request("c", below(1))])
    assert devices(answer(INDEXED, wanted)) == ["d2", "d0", "d1"]


def test_a_claim_gives_back_what_a_later_one_needs() -> None:
    first, second = claim("a", [request("r", below(1))]), claim("b", [request("r", below(0))])
    assert devices(answer(INDEXED, first, second)) == ["d1", "d0"]


def test_devices_of_a_request_are_taken_in_order() -> None:
    wanted = claim("c", [request("a", below(3, 2)), request("b", below(1, 2))])
    assert devices(answer(INDEXED, wanted)) == ["d2", "d3", "d0", "d1"]


def test_the_first_sub_request_is_taken_with_which_all_that_follows_succeeds() -> None:
    several = first_available("f", below(1, 2), below(2, 1))
    assert requests(answer(INDEXED, claim("c", [several]))) == ["f/a", "f/a"]
    after = claim("c", [several, request("r", below(1, 2))])
    assert requests(answer(INDEXED, after)) == ["f/b", "r", "r"]


def test_a_sub_request_with_too_many_results_gives_way_to_a_smaller_one() -> None:
    several = first_available("f", exactly("gpu", 30), exactly("gpu", 1))
    found = answer(INDEXED, claim("c", [request("r", exactly("gpu", 4)), several]))
    assert requests(found) == ["r"] * 4 + ["f/b"]
    both = answer(INDEXED, claim("c", [several, request("r", exactly("gpu", 4))]))
    assert requests(both) == ["f/b", *["r"] * 4]


def test_sub_requests_that_fail_have_the_request_before_them_try_another_device() -> None:
    several = first_available("f", exactly("gpu", 40), below(0))
    found = answer(INDEXED, claim("c", [request("r", below(1)), several]))
    assert list(zip(requests(found), devices(found), strict=True)) == [("r", "d1"), ("f/b", "d0")]


def test_a_constraint_against_one_of_all_devices_is_an_error_where_the_search_gets_so_far() -> None:
    """With d0 and d3 the request for all devices fails at d0; with d3 and d4 it fails at d1."""
    values = {"d0": 0, "d1": None, "d2": 1, "d3": 0, "d4": 0}
    listed = [
        device(name) if numa is None else device(name, attributes(numa=numa))
        for name, numa in values.items()
    ]
    wanted = [request("two", exactly("gpu", 2)), request("all", exactly("gpu", None))]
    found = answer(listed, claim("c", wanted, [{"matchAttribute": f"{GPU}/numa"}]))
    assert found["error"].startswith("claim default/c, request all: cannot add device")
    assert "pool/d1 because" in found["error"]


def test_a_later_claim_with_too_many_results_is_no_reason_to_stop_before_it() -> None:
    first = claim("a", [request("r", below(39, 1))])
    big = first_available("f", exactly("gpu", 40), exactly("gpu", 32))
    found = answer(INDEXED, first, claim("b", [big]))
    assert requests(found) == ["r", *["f/b"] * 32]


def test_a_claim_without_requests_gets_an_allocation_without_devices() -> None:
    found = answer(INDEXED, claim("c", []))
    assert found == {"allocations": [{"devices": {"results": []}}]}


def test_a_selector_that_fails_behind_the_first_fit_is_not_seen() -> None:
    listed = [*INDEXED[:2], device("without")]
    assert devices(answer(listed, claim("c", [request("r", below(9, 2))]))) == ["d0", "d1"]
    error = answer(listed, claim("c", [request("r", below(9, 3))]))["error"]
    assert error.startswith("claim default/c: selector #0 on device gpu.example.com/pool/without")


IMPOSSIBLE = {
    "too few devices of a request": [claim("c", [request("r", below(30, 32))])],
    "too few devices of one value": [
        claim("c", [request("r", exactly("gpu", 3))], [{"matchAttribute": f"{GPU}/pair"}])
    ],
    "too few devices of two requests": [
        claim("c", [request("a", below(20, 11)), request("b", below(20, 11))])
    ],
    "too few devices of several claims": [
        claim(name, [request("r", below(20, 8))]) for name in ("a", "b", "c")
    ],
    "a later claim that cannot have any": [
        claim("a", [request("r", exactly("gpu", 10))]),
        claim("b", [request("r", exactly("gpu", 1, "false"))]),
    ],
    "too few values for a request": [
        claim("c", [request("r", exactly("gpu", 21))], [{"distinctAttribute": f"{GPU}/pair"}])
    ],
    "too few values for several requests": [
        claim(
            "c",
            [request(f"r{index}", exactly("gpu")) for index in range(21)],
            [{"distinctAttribute": f"{GPU}/pair"}],
        )
    ],
    "two constraints that exclude each other": [
        claim(
            "c",
            [request("a", exactly("gpu", 1)), request("b", exactly("gpu", 1))],
            [{"matchAttribute": f"{GPU}/pair"}, {"distinctAttribute": f"{GPU}/pair"}],
        )
    ],
}


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_an_impossible_claim_costs_few_steps(reason: str) -> None:
    listed = [device(f"d{index}", attributes(index=index, pair=index // 2)) for index in range(40)]
    assert answer(listed, *IMPOSSIBLE[reason], budget=Budget(20_000)) == {}


@pytest.mark.parametrize("requests", [1, 9])
def test_devices_for_which_counters_do_not_suffice_cost_few_steps(requests: int) -> None:
    """The counters of each of 8 cards suffice for 2 of its 4 parts, so 18 parts are too many."""
    listed = [
        device(f"d{card}-{part}", consumesCounters=[consumption(f"card{card}", c="4")])
        for card in range(8)
        for part in range(4)
    ]
    sets = [counter_set(f"card{card}", c="11") for card in range(8)]
    slices = [
        resource_slice("s", ALL_NODES, listed, count=2),
        resource_slice("c", ALL_NODES, count=2, counters=sets),
    ]
    wanted = [request(f"r{index}", exactly("gpu", 18 // requests)) for index in range(requests)]
    asked = case([node("n")], slices, [device_class("gpu")], [claim("c", [])])
    asked["claims"][0]["spec"]["devices"]["requests"] = wanted
    assert ask(asked, "1.37", compile_small, Budget(20_000)) == [{}]
    if requests == 1:
        wanted[0]["exactly"]["count"] = 16
    else:
        wanted.pop()
    assert "allocations" in ask(asked, "1.37", compile_small, Budget(20_000))[0]


def test_a_search_that_uses_up_its_budget_says_so_and_other_nodes_may_fit() -> None:
    found = answer(INDEXED, *IMPOSSIBLE["too few devices of two requests"], budget=Budget(100))
    assert found["nodeOnly"]
    assert found["error"].startswith("the search for devices takes too many steps: ask for fewer")


def test_a_budget_is_for_one_node_and_for_all_together() -> None:
    budget = Budget(steps=10, steps_on_node=6)
    budget.begin_node()
    budget.spend(6)
    budget.begin_node()
    budget.spend(4)
    budget.begin_node()
    with pytest.raises(AllocationError) as caught:
        budget.spend(1)
    assert caught.value.on_node


def test_a_search_that_gives_nothing_back_costs_nothing() -> None:
    wanted = claim("c", [request("a", below(30, 20)), request("b", exactly("gpu", 5))])
    assert len(devices(answer(INDEXED, wanted, budget=Budget(0)))) == 25
