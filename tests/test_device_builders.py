from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    device_taint_rule,
    request,
    resource_slice,
)
from mooring.model.device_classes import parse_device_class
from mooring.model.resource_claims import DeviceId, parse_resource_claim
from mooring.model.resource_slices import parse_device_taint_rule, parse_resource_slice
from mooring.testing.builders import uid_of


def test_a_slice_has_devices_of_its_node_or_of_all() -> None:
    raw = resource_slice("s", ["a", device("b", attributes={"n": 1, "t": "x", "b": True})])
    parsed = parse_resource_slice(raw)
    assert (parsed.all_nodes, parsed.pool, parsed.slice_count) == (True, "s", 1)
    assert parsed.devices[1].attributes == {"n": 1, "t": "x", "b": True}
    there = parse_resource_slice(resource_slice("s", node="n1", generation=3))
    assert (there.node_name, there.pool, there.generation) == ("n1", "n1", 3)


def test_a_claim_is_for_one_device_of_class_gpu_unless_it_says_otherwise() -> None:
    (wanted,) = parse_resource_claim(device_claim()).spec.requests
    assert wanted.exactly is not None
    assert (wanted.exactly.device_class, wanted.exactly.count) == ("gpu", 1)
    two = parse_resource_claim(device_claim("c", request("a", 2), request("b"), owner="web"))
    assert [each.name for each in two.spec.requests] == ["a", "b"]
    assert two.controller_uid == uid_of("web")


def test_an_allocated_claim_has_devices_on_a_node_for_pods() -> None:
    claim = parse_resource_claim(
        device_claim(allocation=allocated("d0", node="n1"), reserved_for=["web"])
    )
    assert claim.allocation is not None
    assert claim.allocation.results[0].device == DeviceId(DRIVER, "n1", "d0")
    assert claim.allocation.node_selector is not None
    assert claim.allocation.node_selector.matches("n1", {})
    assert [consumer.uid for consumer in claim.reserved_for] == [uid_of("web")]


def test_a_class_has_selectors_and_a_rule_a_taint() -> None:
    assert parse_device_class(device_class("gpu", "true")).selectors == ("true",)
    rule = parse_device_taint_rule(device_taint_rule("r", "sick:NoExecute", pool="p"))
    assert (rule.pool, rule.taint.key, rule.taint.effect) == ("p", "sick", "NoExecute")
