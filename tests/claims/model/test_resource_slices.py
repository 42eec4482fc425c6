from typing import Any

import pytest

from mooring.claims.model.resource_slices import (
    CapacityPolicy,
    CapacityRange,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceCapacity,
    ResourceSlice,
    Version,
    parse_resource_slice,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import parse_quantity
from mooring.model.taints import Taint

GPU = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "a100"},
        "driver.example/index": {"int": 0},
        "nvlink": {"bool": False},
        "version": {"version": "1.2.3"},
        "list": {"strings": ["a"]},
    },
    "capacity": {
        "memory": {"value": "40Gi"},
        "bandwidth": {
            "value": "10",
            "requestPolicy": {
                "default": "1",
                "validRange": {"min": "1", "max": "8", "step": "500m"},
            },
        },
        "slots": {"value": "7", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
    },
    "consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": "20Gi"}}}],
    "nodeName": "n1",
    "taints": [{"key": "sick", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-01"}],
    "bindsToNode": True,
    "bindingConditions": ["Attached"],
    "bindingFailureConditions": ["Failed"],
    "allowMultipleAllocations": True,
}


def resource_slice(**spec: Any) -> ResourceSlice:
    pool = {"name": "pool", "generation": 2, "resourceSliceCount": 3}
    return parse_resource_slice(
        {
            "metadata": {"name": "s", "uid": "u", "resourceVersion": "7"},
            "spec": {"driver": "driver.example", "pool": pool, **spec},
        }
    )


def test_a_slice_has_all_fields_that_allocation_reads() -> None:
    parsed = resource_slice(nodeName="n1", devices=[GPU])
    assert (parsed.name, parsed.uid, parsed.resource_version) == ("s", "u", "7")
    assert (parsed.driver, parsed.pool) == ("driver.example", "pool")
    assert (parsed.generation, parsed.slice_count, parsed.node_name) == (2, 3, "n1")
    q = parse_quantity
    bandwidth = CapacityPolicy(q("1"), (), CapacityRange(q("1"), q("8"), q("500m")))
    assert parsed.devices == (
        Device(
            name="gpu-0",
            attributes={
                "model": "a100",
                "driver.example/index": 0,
                "nvlink": False,
                "version": Version("1.2.3"),
                "list": None,
            },
            capacity={
                "memory": DeviceCapacity(q("40Gi"), None),
                "bandwidth": DeviceCapacity(q("10"), bandwidth),
                "slots": DeviceCapacity(q("7"), CapacityPolicy(q("1"), (q("1"), q("2")), None)),
            },
            consumes=(CounterConsumption("card-0", {"memory": q("20Gi")}),),
            node_name="n1",
            node_selector=None,
            all_nodes=False,
            taints=(Taint("sick", "yes", "NoExecute"),),
            binds_to_node=True,
            binding_conditions=("Attached",),
            binding_failure_conditions=("Failed",),
            allow_multiple_allocations=True,
        ),
    )


def test_a_slice_names_nodes_by_a_selector_by_all_or_by_device() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    selected = resource_slice(nodeSelector={"nodeSelectorTerms": terms}).node_selector
    assert selected is not None
    assert selected.matches("n", {"zone": "a"})
    assert resource_slice(allNodes=True).all_nodes
    assert resource_slice(perDeviceNodeSelection=True).per_device_node_selection
    assert resource_slice().devices == ()


def test_a_slice_may_have_shared_counters() -> None:
    counters = [{"name": "card-0", "counters": {"memory": {"value": "80Gi"}}}]
    assert resource_slice(sharedCounters=counters).shared_counters == (
        CounterSet("card-0", {"memory": parse_quantity("80Gi")}),
    )


def test_true_is_no_integer_attribute() -> None:
    with pytest.raises(ManifestError) as caught:
        resource_slice(devices=[{"name": "d", "attributes": {"i": {"int": True}}}])
    assert str(caught.value) == (
        "ResourceSlice s spec.devices[0].attributes.i.int: must be a whole number, not True"
    )


@pytest.mark.parametrize(
    ("device", "where"),
    [
        ({"capacity": {"m": {}}}, "capacity.m.value"),
        ({"capacity": {"m": {"value": "x"}}}, "capacity.m.value"),
        ({"capacity": {"m": 3}}, "capacity.m"),
        (
            {"capacity": {"m": {"value": "1", "requestPolicy": {"validValues": "1"}}}},
            "capacity.m.requestPolicy.validValues",
        ),
        (
            {"consumesCounters": [{"counters": {"m": {"value": None}}}]},
            "consumesCounters[0].counters.m.value",
        ),
        ({"attributes": {"m": "text"}}, "attributes.m"),
    ],
)
def test_a_malformed_device_is_an_error_with_its_path(device: dict[str, Any], where: str) -> None:
    with pytest.raises(ManifestError) as caught:
        resource_slice(devices=[device])
    assert caught.value.where == f"ResourceSlice s spec.devices[0].{where}"


def like(*uuids: str, model: str = "a", **spec: Any) -> ResourceSlice:
    devices = [
        {"name": f"d{i}", "attributes": {"uuid": {"string": each}, "model": {"string": model}}}
        for i, each in enumerate(uuids)
    ]
    return resource_slice(devices=devices, **spec)


def test_slices_with_equal_devices_share_them() -> None:
    one, other = like("a", "b", nodeName="n1"), like("a", "b", nodeName="n2")
    assert one.devices is other.devices


def test_slices_are_alike_if_their_devices_differ_by_names_and_values_of_attributes_only() -> None:
    assert like("a", "b").alike == like("c", "c", model="b").alike


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": {"uuid": {"int": 1}}},
        {"attributes": {"uuid": {"version": "1.0.0"}}},
        {"attributes": {"other": {"string": "a"}}},
        {"attributes": {}},
        {"capacity": {"memory": {"value": "1Gi"}}},
        {"taints": [{"key": "sick", "effect": "NoSchedule"}]},
        {"allowMultipleAllocations": True},
    ],
)
def test_slices_that_differ_by_more_are_not_alike(fields: dict[str, Any]) -> None:
    def alike(**given: Any) -> object:
        return resource_slice(devices=[{"name": "d", **given}]).alike

    attributes = {"uuid": {"string": "a"}}
    assert alike(**{"attributes": attributes, **fields}) != alike(attributes=attributes)


def test_when_a_taint_was_added_makes_no_difference() -> None:
    def tainted(time: str) -> object:
        taint = {"key": "sick", "effect": "NoSchedule", "timeAdded": time}
        return resource_slice(devices=[{"name": "d", "taints": [taint]}]).alike

    assert tainted("2026-11-28T00:00:00Z") == tainted("2026-11-29T00:00:00Z")


def test_shared_counters_make_slices_different() -> None:
    counters = {"name": "set", "counters": {"c": {"value": "1"}}}
    assert like("a", "b", sharedCounters=[counters]).alike != like("a", "b").alike
