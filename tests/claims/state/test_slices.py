import pytest

from device_builders import (
    DRIVER,
    device,
    device_taint_rule,
    resource_slice,
)
from mooring.claims.model.resource_slices import parse_device_taint_rule, parse_resource_slice
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster

SICK = {"key": "own", "effect": "NoExecute"}
SLICE = resource_slice("s", [device("d0", taints=[SICK]), "d1"], node="n1")


def taints(state: ClusterState) -> dict[str, list[str]]:
    return {
        each.name: [taint.key for taint in each.taints]
        for each_slice in ClusterView(state).dynamic_resources.slices.all()
        for each in each_slice.devices
    }


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, {"d0": ["own", "rule"], "d1": ["rule"]}),
        ({"driver": DRIVER, "pool": "n1"}, {"d0": ["own", "rule"], "d1": ["rule"]}),
        ({"device": "d1"}, {"d0": ["own"], "d1": ["rule"]}),
        ({"driver": "other"}, {"d0": ["own"], "d1": []}),
        ({"pool": "n2", "device": "d1"}, {"d0": ["own"], "d1": []}),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(
    selector: dict[str, str], tainted: dict[str, list[str]]
) -> None:
    rule = device_taint_rule("rule", "rule:NoSchedule", **selector)
    assert taints(cluster(SLICE, rule)) == tainted
    assert taints(cluster(rule, SLICE)) == tainted


def test_a_rule_without_a_selector_taints_nothing() -> None:
    rule = device_taint_rule("rule", "rule:NoSchedule")
    del rule["spec"]["deviceSelector"]
    assert taints(cluster(SLICE, rule)) == {"d0": ["own"], "d1": []}


def test_taints_follow_a_rule_that_changes_and_goes() -> None:
    state = cluster(SLICE, device_taint_rule("rule", "a:NoSchedule", device="d0"))
    changed = parse_device_taint_rule(device_taint_rule("rule", "b:NoSchedule", device="d1"))
    state.put(Kind.DEVICE_TAINT_RULE, "rule", changed)
    assert taints(state) == {"d0": ["own"], "d1": ["b"]}
    state.delete(Kind.DEVICE_TAINT_RULE, "rule")
    assert taints(state) == {"d0": ["own"], "d1": []}


def test_the_version_grows_when_a_slice_changes() -> None:
    state = cluster(SLICE)
    view = ClusterView(state).dynamic_resources
    version = view.slices.version
    state.put(Kind.RESOURCE_SLICE, "s", parse_resource_slice(SLICE))
    assert view.slices.version == version
    state.put(Kind.RESOURCE_SLICE, "s", parse_resource_slice(resource_slice("s", ["d2"])))
    assert (view.slices.version, taints(state)) == (version + 1, {"d2": []})
    state.delete(Kind.RESOURCE_SLICE, "s")
    assert (view.slices.version, taints(state)) == (version + 2, {})
    state.delete(Kind.RESOURCE_SLICE, "s")
    assert view.slices.version == version + 2


def test_the_devices_of_each_driver_are_counted() -> None:
    state = cluster(SLICE)
    counts = state.dynamic_resources.slices.of_driver
    assert counts == {DRIVER: 2}
    for devices in (["d2"], []):
        changed = parse_resource_slice(resource_slice("s", devices, driver="other"))
        state.put(Kind.RESOURCE_SLICE, "s", changed)
        assert counts == ({"other": 1} if devices else {})
    state.delete(Kind.RESOURCE_SLICE, "s")
    assert counts == {}
