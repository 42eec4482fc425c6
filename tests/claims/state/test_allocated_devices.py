from mooring.claims.model.resource_claims import DeviceId, DeviceResult
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.quantity import parse_quantity

GPU = DeviceId("d", "p", "gpu-0")


def share(share_id: str, memory: str | None = None) -> DeviceResult:
    consumed = None if memory is None else {"memory": parse_quantity(memory)}
    return DeviceResult("r", GPU, share_id=share_id, consumed=consumed)


def test_a_device_is_free_when_the_last_claim_with_it_is_gone() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [DeviceResult("r", GPU)])
    allocated.put("b", [DeviceResult("r", GPU)])
    assert (allocated.dedicated, allocated.holders(GPU)) == ({GPU: 2}, ("a", "b"))
    allocated.put("a", [])
    assert (allocated.dedicated, allocated.holders(GPU)) == ({GPU: 1}, ("b",))
    allocated.put("b", [])
    assert (allocated.dedicated, allocated.holders(GPU)) == ({}, ())


def test_a_device_with_admin_access_is_held_but_not_in_use() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [DeviceResult("r", GPU, admin_access=True)])
    assert (allocated.dedicated, allocated.holders(GPU)) == ({}, ("a",))


def test_shares_of_a_device_add_up_what_they_consume() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [share("1", "2Gi"), share("2", "500m")])
    allocated.put("b", [share("3", "1Gi")])
    nano = 10**9
    assert allocated.shares == {GPU: 3}
    assert allocated.consumed == {GPU: {"memory": 3 * 2**30 * nano + nano // 2}}
    allocated.put("a", [])
    assert (allocated.shares, allocated.dedicated) == ({GPU: 1}, {})
    assert allocated.consumed == {GPU: {"memory": 2**30 * nano}}


def test_a_share_that_consumes_nothing_is_known_until_it_is_gone() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [share("1", "0")])
    allocated.put("b", [share("2")])
    assert (allocated.consumed, allocated.shares) == ({GPU: {"memory": 0}}, {GPU: 2})
    allocated.put("a", [])
    assert (allocated.consumed, allocated.shares) == ({}, {GPU: 1})


def test_a_result_that_is_listed_twice_counts_once() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [share("1", "1"), share("1", "1")])
    assert allocated.shares == {GPU: 1}


def test_the_version_grows_with_changes_only() -> None:
    allocated = AllocatedDevices()
    assert not allocated.put("a", [])
    assert allocated.put("a", [DeviceResult("r", GPU)])
    assert not allocated.put("a", [DeviceResult("r", GPU)])
    assert allocated.version == 1


def test_the_devices_that_changed_since_a_version_are_known_unless_it_is_too_long_ago() -> None:
    allocated, other = AllocatedDevices(), DeviceId("d", "p", "gpu-1")
    assert allocated.changed_since(0) == {}
    allocated.put("a", [DeviceResult("r", GPU)])
    allocated.put("b", [DeviceResult("r", other)])
    assert set(allocated.changed_since(0) or ()) == {GPU, other}
    assert set(allocated.changed_since(1) or ()) == {other}
    for index in range(20_000):
        allocated.put("a", [DeviceResult(f"r{index}", GPU)])
    assert allocated.changed_since(1) is None
    assert set(allocated.changed_since(allocated.version - 1) or ()) == {GPU}


def test_the_devices_in_use_of_each_driver_are_counted() -> None:
    allocated = AllocatedDevices()
    allocated.put("a", [share("1")])
    allocated.put("b", [share("2"), DeviceResult("r", DeviceId("e", "p", "gpu-0"))])
    allocated.put("c", [DeviceResult("r", GPU, admin_access=True)])
    assert allocated.of_driver == {"d": 1, "e": 1}
    allocated.put("a", [])
    assert allocated.of_driver == {"d": 1, "e": 1}
    allocated.put("b", [])
    assert allocated.of_driver == {}


def test_pools_are_in_use_alike_if_the_same_devices_are_and_as_much_of_shared_ones() -> None:
    allocated = AllocatedDevices()

    def used(pool: str, *results: tuple[str, str, str | None]) -> object:
        found = [
            DeviceResult(
                "r",
                DeviceId("d", pool, name),
                share_id=share_id,
                consumed=None if memory is None else {"memory": parse_quantity(memory)},
            )
            for name, share_id, memory in results
        ]
        allocated.put(pool, found)
        return dict(allocated.of_pool("d", pool))

    assert used("a") == {}
    assert used("a", ("x", "", None)) == used("b", ("x", "", None)) != used("c", ("y", "", None))
    both = used("a", ("x", "1", "1Gi"), ("x", "2", "1Gi"), ("y", "", None))
    assert both == used("b", ("y", "", None), ("x", "3", "2Gi"))
    assert both != used("b", ("y", "", None), ("x", "3", "1Gi"))
    assert both != used("b", ("y", "", None), ("x", "3", None))
    assert both != used("b", ("y", "", None), ("x", "3", "2Gi"), ("x", "", None))
    assert used("a") == {}
