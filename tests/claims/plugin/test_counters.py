from collections.abc import Collection

from dra.objects import consumption, counter_set, device, on_node, renumbered, resource_slice
from mooring.claims.model.resource_slices import Device, parse_resource_slice
from mooring.claims.plugin.counters import Counters
from mooring.claims.plugin.pools import Inventory, Pool, pools_of_node
from mooring.model.kubernetes_rules import NEWEST

GPU, NET = "gpu.example.com", "net.example.com"


def pool(amount: str, takes: Collection[str], driver: str = GPU) -> Pool:
    """Return a pool with the counter c; `takes` has the amount that each of d0, d1... consumes."""
    devices = [
        device(f"d{index}", consumesCounters=[consumption("set", c=each)])
        for index, each in enumerate(takes)
    ]
    slices = [
        resource_slice("s", on_node("n"), devices, driver=driver),
        resource_slice("c", on_node("n"), driver=driver, counters=[counter_set("set", c=amount)]),
    ]
    inventory = Inventory(map(parse_resource_slice, renumbered(slices)), NEWEST)
    return pools_of_node(inventory, "n", {}, NEWEST)[0]


def devices(of: Pool) -> tuple[Device, ...]:
    return of.slices[0].devices


def test_devices_fit_as_long_as_their_counters_are_left() -> None:
    counted, four = Counters(lambda _: False, by_driver=True), pool("4", ("2", "3", "2"))
    first, second, third = devices(four)
    assert counted.fit(four, first)
    counted.take(four, first)
    assert not counted.fit(four, second)
    assert counted.fit(four, third)
    counted.release(four, first)
    assert counted.fit(four, second)


def test_devices_in_use_have_taken_theirs() -> None:
    counted = Counters(lambda device: device.device == "d1", by_driver=True)
    four = pool("4", ("2", "3", "1"))
    assert not counted.fit(four, devices(four)[0])
    assert counted.fit(four, devices(four)[2])


def test_a_counter_of_which_too_much_is_in_use_rejects_every_device_that_consumes() -> None:
    counted = Counters(lambda device: device.device == "d1", by_driver=True)
    four = pool("4", ("0", "5"))
    assert not counted.fit(four, devices(four)[0])


def test_pools_of_two_drivers_have_their_own_counters_from_1_37_on() -> None:
    for by_driver in (True, False):
        counted = Counters(lambda _: False, by_driver=by_driver)
        gpus, nets = pool("2", ("2",)), pool("2", ("2",), NET)
        assert counted.fit(gpus, devices(gpus)[0])
        counted.take(gpus, devices(gpus)[0])
        assert counted.fit(nets, devices(nets)[0]) == by_driver
