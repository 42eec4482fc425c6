from typing import Any

import pytest

from bench.scheduler_perf.claims import NoDevicesError, allocations
from device_builders import (
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)

Raw = dict[str, Any]

CLASS = device_class("test-class", "true")
NODES = [{"metadata": {"name": name}} for name in ("n1", "n2", "n3")]
SLICES = [
    resource_slice(
        f"{node['metadata']['name']}-slice",
        [device("a"), device("b")],
        node=node["metadata"]["name"],
    )
    for node in NODES
]


def claims(count: int) -> list[Raw]:
    return [
        device_claim(f"c{number}", request("r", device_class="test-class"))
        for number in range(count)
    ]


def allocated(*waiting: Raw) -> list[tuple[Raw, Raw]]:
    return [*allocations(waiting, SLICES, [CLASS], NODES, "1.37")]


def devices(found: list[tuple[Raw, Raw]]) -> list[tuple[str, str]]:
    return [
        (result["pool"], result["device"])
        for _, allocation in found
        for result in allocation["devices"]["results"]
    ]


def test_each_claim_gets_devices_of_its_own_on_nodes_that_are_drawn() -> None:
    found = allocated(*claims(6))
    assert [claim["metadata"]["name"] for claim, _ in found] == [f"c{n}" for n in range(6)]
    assert len({*devices(found)}) == 6
    pools = [pool for pool, _ in devices(found)]
    assert pools != sorted(pools)


def test_every_run_begins_with_the_same_allocations() -> None:
    assert allocated(*claims(5)) == allocated(*claims(5))


def test_a_claim_that_has_an_allocation_keeps_it_and_its_devices() -> None:
    first, *others = claims(6)
    ((_, allocation),) = allocated(first)
    before = {**first, "status": {"allocation": allocation}}
    found = allocated(*others, before)
    assert "c0" not in [claim["metadata"]["name"] for claim, _ in found]
    assert {*devices(found)}.isdisjoint(devices([(before, allocation)]))
    assert len({*devices(found)}) == 5


def test_a_claim_without_devices_is_told() -> None:
    with pytest.raises(NoDevicesError, match="the claim c6"):
        allocated(*claims(7))


def test_a_claim_of_a_class_that_is_not_there_is_told() -> None:
    claim = device_claim("wrong", request("r", device_class="other"))
    with pytest.raises(NoDevicesError, match=r"the claim wrong: .*other"):
        allocated(claim)
