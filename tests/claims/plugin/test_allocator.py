from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dra.asking import allocator_of, ask, inventory_of
from dra.objects import (
    ALL_NODES,
    Object,
    attributes,
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
from dra.small_selectors import compile_small
from mooring.claims.plugin.pools import pools_of_node
from mooring.model.kubernetes_rules import KUBERNETES_RULES

GPU = "gpu.example.com"


def test_each_node_gets_its_own_devices() -> None:
    slices = [
        resource_slice(name, on_node(name), [device(f"d-{name}")], pool=name)
        for name in ("n0", "n1")
    ]
    claims = [claim("c", [request("r", exactly("gpu"))])]
    nodes = [node(name) for name in ("n0", "n1", "n2")]
    found = ask(case(nodes, slices, [device_class("gpu")], claims), "1.37", compile_small)
    given_devices = [
        [each["device"] for each in one["allocations"][0]["devices"]["results"]] if one else []
        for one in found
    ]
    assert given_devices == [["d-n0"], ["d-n1"], []]


def test_without_devices_an_invalid_pool_is_why_the_node_is_not_suitable() -> None:
    twice = resource_slice("s", ALL_NODES, [device("d"), device("d")], pool="invalid")
    good = resource_slice("t", ALL_NODES, [device("d")], pool="good")
    claims = [claim("c", [request("r", exactly("gpu"))])]
    asked = case([node("n")], [twice, good], [device_class("gpu")], claims)
    assert "allocations" in ask(asked, "1.37", compile_small)[0]
    asked["slices"].pop()
    assert ask(asked, "1.37", compile_small) == [
        {"error": "invalid resource pools were encountered", "nodeOnly": True}
    ]


def test_requests_beyond_a_limit_are_not_searched_for_on_any_node() -> None:
    """The API server allows 32 requests with 8 alternatives per claim, and many claims per pod."""
    requests = [first_available(f"r{n}", *[exactly("gpu")] * 8) for n in range(32)]
    slices = [resource_slice("s", ALL_NODES, [device("d")])]
    asked = case([node("n")], slices, [device_class("gpu")], [claim("c", requests)])
    assert ask(asked, "1.37", compile_small) == [{}]
    asked["claims"].append(claim("more", [request("r", exactly("gpu"))]))
    assert ask(asked, "1.37", compile_small) == [
        {
            "error": "the pod's claims have 257 requests for devices with all alternatives; "
            "Mooring looks for at most 256 together",
            "nodeOnly": True,
        }
    ]


def test_every_share_gets_an_id_of_its_own() -> None:
    listed = [device("d", allowMultipleAllocations=True)]
    claims = [claim("c", [request("a", exactly("gpu")), request("b", exactly("gpu"))])]
    slices = [resource_slice("s", ALL_NODES, listed)]
    asked = case([node("n")], slices, [device_class("gpu")], claims)
    pools = pools_of_node(inventory_of(asked, "1.37"), "n", {}, KUBERNETES_RULES["1.37"])
    ids = iter(("first", "second"))
    allocator = allocator_of(asked, "1.37", compile_small)
    found = allocator.allocate("n", {}, lambda: next(ids), pools)
    assert found is not None
    assert [each.share_id for each in found[0].results] == ["first", "second"]


@dataclass(frozen=True)
class Small:
    """A case with few devices: device i has the attribute `index` i and the attribute `group`.

    Each request is a list of alternatives: the number of devices, and the greatest allowed index.
    """

    groups: Sequence[int]
    requests: Sequence[Sequence[tuple[int, int]]]
    constraint: str

    def objects(self) -> tuple[list[Object], list[Object]]:
        devices = [
            device(f"d{index}", attributes(index=index, group=group))
            for index, group in enumerate(self.groups)
        ]
        wanted = [
            [
                exactly("gpu", count, f'device.attributes["{GPU}"].index <= {most}')
                for count, most in alternatives
            ]
            for alternatives in self.requests
        ]
        requests = [
            request(f"r{index}", each[0]) if len(each) == 1 else first_available(f"r{index}", *each)
            for index, each in enumerate(wanted)
        ]
        constraints = [{self.constraint: f"{GPU}/group"}] if self.constraint else []
        return devices, [claim("c", requests, constraints)]

    def solutions(self) -> Iterator[list[int]]:
        """Yield all solutions in the order in which the search must find them."""
        return self._complete([], 0)

    def _complete(self, taken: list[int], request: int) -> Iterator[list[int]]:
        if request == len(self.requests):
            yield taken
            return
        for count, most in self.requests[request]:
            for more in combinations(range(min(most + 1, len(self.groups))), count):
                if self._allowed([*taken, *more]):
                    yield from self._complete([*taken, *more], request + 1)

    def _allowed(self, taken: list[int]) -> bool:
        groups = {self.groups[index] for index in taken}
        if self.constraint == "matchAttribute" and len(groups) > 1:
            return False
        if self.constraint == "distinctAttribute" and len(groups) < len(taken):
            return False
        return len(set(taken)) == len(taken)


ALTERNATIVE = st.tuples(st.integers(1, 3), st.integers(0, 6))
SMALL = st.builds(
    Small,
    st.lists(st.integers(0, 3), max_size=7),
    st.lists(st.lists(ALTERNATIVE, min_size=1, max_size=2), min_size=1, max_size=4),
    st.sampled_from(("", "matchAttribute", "distinctAttribute")),
)


@given(SMALL)
@settings(max_examples=300, deadline=None)
def test_the_first_of_all_solutions_is_taken(small: Small) -> None:
    devices, claims = small.objects()
    slices = [resource_slice("s", ALL_NODES, devices)]
    asked = case([node("n")], slices, [device_class("gpu")], claims)
    found: Any = ask(asked, "1.37", compile_small)[0]
    first = next(small.solutions(), None)
    if first is None:
        assert found == {}
        return
    results = found["allocations"][0]["devices"]["results"]
    assert [each["device"] for each in results] == [f"d{index}" for index in first]
