from collections import Counter

import pytest

from bench import devices
from bench.audit import device_faults
from bench.workloads import WORKLOADS, Devices, Workload
from mooring.claims.model.resource_slices import parse_resource_slice

CLAIMING = {name: workload for name, workload in WORKLOADS.items() if workload.devices}


def devices_of(workload: Workload) -> Devices:
    assert workload.devices is not None
    return workload.devices


@pytest.mark.parametrize("scale", [1, 50])
@pytest.mark.parametrize("workload", CLAIMING.values(), ids=CLAIMING.keys())
def test_the_claims_in_use_share_no_device_and_leave_room_for_the_pods(
    workload: Workload, scale: int
) -> None:
    small = workload.scaled(scale)
    wanted = devices_of(small)
    number = small.claims_in_use
    claims = [
        {"metadata": {"uid": path}, **body}
        for path, body in devices.allocations(number, small.nodes, wanted)
    ]
    assert device_faults([], claims, wanted) == []
    room = small.nodes * (wanted.per_node // wanted.per_claim) - number
    assert room >= (small.at_once or small.pods)
    assert len(list(devices.claims_in_use(number, wanted))) == number


def test_all_but_ten_devices_are_in_use_in_a_full_cluster() -> None:
    assert WORKLOADS["claims-full"].claims_in_use == 500 * 10 - 10


def test_the_slices_of_a_node_are_one_pool_with_all_its_devices() -> None:
    workload = WORKLOADS["claims-parts"].scaled(50)
    made = [body for _, body in devices.slices(workload.nodes, devices_of(workload))]
    parsed = [parse_resource_slice(body) for body in made]
    assert Counter(each.pool for each in parsed) == {
        f"node-{number:05}": 2 for number in range(workload.nodes)
    }
    assert all(body["spec"]["pool"]["resourceSliceCount"] == 2 for body in made)


def test_half_of_the_devices_of_a_node_are_on_each_root() -> None:
    _, made = next(devices.slices(1, Devices(one_root=True)))
    roots = Counter(d["attributes"][devices.ROOT]["string"] for d in made["spec"]["devices"])
    assert [*roots.values()] == [5, 5]


def test_each_extended_resource_has_a_class() -> None:
    made = [body for _, body in devices.classes(Devices(resources=3))]
    assert [body["spec"]["extendedResourceName"] for body in made] == [
        devices.resource_name(number) for number in range(3)
    ]
    ((_, only),) = devices.classes(Devices())
    assert "extendedResourceName" not in only["spec"]
