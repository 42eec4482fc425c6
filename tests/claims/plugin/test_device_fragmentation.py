"""A node scores lower if typical claims lose more places on it."""

from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)
from mooring.claims.plugin.device_fragmentation import DeviceFragmentation
from mooring.framework.plugin_failures import PluginFailed
from mooring.scheduling.outcome import ScheduleResult
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

Raw = dict[str, Any]

NODES = (node("full"), node("used"), node("far"))
CLASS = device_class("gpu")
WEB = pod("web", spec={"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]})
ENABLED = {"multiPoint": {"enabled": [{"name": "DeviceFragmentation"}]}}


def gpus(where: str, count: int) -> Raw:
    """Return a slice with `count` devices of the node `where`."""
    return resource_slice(f"s-{where}", [f"d{i}" for i in range(count)], node=where)


def holding(name: str, where: str, *devices: str, **asked: Any) -> Raw:
    """Return a claim that has been allocated these devices of the node `where`."""
    asks = request(count=len(devices), **asked)
    return device_claim(name, asks, allocation=allocated(*devices, node=where))


def scores(*objects: Raw) -> dict[str, int] | None:
    """Return the scores of the nodes `full` and `used` for a pod with the claim `claim`."""
    return PluginAnswers(DeviceFragmentation, *NODES, CLASS, *objects).scores(WEB, "full", "used")


def test_one_device_rather_comes_from_a_node_where_no_large_claim_fits_any_more() -> None:
    large = holding("large", "far", "d0", "d1", "d2", "d3")
    one = holding("one", "used", "d0")
    found = scores(
        gpus("full", 4), gpus("used", 4), gpus("far", 4), large, one, device_claim("claim")
    )
    # On `full` a place for four devices, and one for one, are lost; on `used` one for one.
    assert found == {"full": 100_000 // (1_000 + 2_500), "used": 100_000 // 1_500}


def test_a_part_of_a_device_rather_comes_from_one_that_is_divided_already() -> None:
    def divided(where: str) -> Raw:
        """Return the slice with the counters of a card that can be divided into four parts."""
        counters = [{"name": "card", "counters": {"parts": {"value": "4"}}}]
        return resource_slice(
            f"c-{where}", pool=where, node=where, slices=2, sharedCounters=counters
        )

    def parts(where: str) -> Raw:
        def takes(count: str) -> list[Raw]:
            return [{"counterSet": "card", "counters": {"parts": {"value": count}}}]

        whole = device("whole", attributes={"size": 4}, consumesCounters=takes("4"))
        quarters = [
            device(f"part-{i}", attributes={"size": 1}, consumesCounters=takes("1"))
            for i in range(4)
        ]
        return resource_slice(f"d-{where}", [whole, *quarters], pool=where, node=where, slices=2)

    def sized(size: int) -> Raw:
        expression = f'device.attributes["gpu.example.com"].size == {size}'
        return {"selectors": [{"cel": {"expression": expression}}]}

    cards = [each(where) for where in ("full", "used", "far") for each in (divided, parts)]
    found = scores(
        *cards,
        holding("whole", "far", "whole", **sized(4)),
        holding("part", "used", "part-0", **sized(1)),
        device_claim("claim", request(**sized(1))),
    )
    assert found == {"full": 100_000 // (1_000 + 2_500), "used": 100_000 // 1_500}


def test_a_share_rather_comes_from_a_device_that_is_shared_already() -> None:
    def shared(where: str) -> Raw:
        gpu = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
        return resource_slice(f"s-{where}", [gpu], node=where)

    def asks(memory: str) -> Raw:
        return request(capacity={"requests": {"memory": memory}})

    def has(memory: str, where: str) -> Raw:
        share = device_result("d0", pool=where)
        share |= {"shareID": f"share-{where}", "consumedCapacity": {"memory": memory}}
        return allocated(share, node=where)

    found = scores(
        *map(shared, ("full", "used", "far")),
        device_claim("whole", asks("80Gi"), allocation=has("80Gi", "far")),
        device_claim("half", asks("40Gi"), allocation=has("40Gi", "used")),
        device_claim("claim", asks("40Gi")),
    )
    assert found == {"full": 100_000 // (1_000 + 1_500), "used": 100_000 // 1_500}


def test_claims_of_other_devices_do_not_count() -> None:
    """The pod takes one place for a GPU on either node; places for network cards do not matter."""
    other = device_class("nic", 'device.driver == "nic.example.com"')
    gpu = device_class("gpu", 'device.driver == "gpu.example.com"')
    nics = resource_slice("n-full", ["n0", "n1"], node="full", driver="nic.example.com")
    found = PluginAnswers(
        DeviceFragmentation,
        *(node("full"), node("used"), gpu, other, nics, gpus("full", 2), gpus("used", 2)),
        device_claim("claim"),
        device_claim("used", allocation=allocated("x", node="gone")),
        device_claim("nic", request(device_class="nic"), allocation=allocated("y", node="gone")),
    ).scores(WEB)
    assert found is not None
    assert found["full"] == found["used"] == 100_000 // 1_500


@pytest.mark.parametrize(
    "claims",
    [
        [],
        [device_claim("claim", allocation=allocated("d0", node="full"))],
        [device_claim("claim", request(device_class="gone"))],
    ],
)
def test_pods_that_get_no_devices_now_are_not_scored(claims: list[Raw]) -> None:
    assert scores(gpus("full", 2), *claims) is None


def test_all_nodes_are_alike_while_no_claim_has_devices() -> None:
    found = scores(gpus("full", 4), gpus("used", 1), device_claim("claim"))
    assert found == {"full": 100, "used": 100}


def test_a_claim_with_admin_access_takes_no_place() -> None:
    watching = device_claim("claim", request(adminAccess=True))
    found = scores(gpus("full", 4), gpus("used", 1), holding("one", "full", "d0"), watching)
    assert found == {"full": 100, "used": 100}


def test_attempts_count_places_until_they_have_done_enough_and_then_go_on() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    slices = [gpus(f"n{i}", 2 + i) for i in range(3)]
    deciding = Deciding(
        *nodes,
        CLASS,
        *slices,
        device_claim("claim"),
        holding("two", "n2", "d0", "d1"),
        plugins=ENABLED,
        most_per_attempt=6_000,
    )
    attempts = 0
    while True:
        attempts += 1
        try:
            outcome = deciding.outcome(WEB)
            break
        except PluginFailed:
            assert attempts < 200
    assert attempts > 2
    assert isinstance(outcome, ScheduleResult)
