"""What keeps claims from devices is told in bounded words, of all nodes that are alike at once."""

from dataclasses import replace
from typing import Any

import pytest

from mooring.framework.claim_report import ClaimsReport, ExcludedDevices
from mooring.framework.evaluations import Evaluations
from mooring.model.pod import parse_pod
from mooring.plugins.dynamic_resources.plugin import DynamicResources
from mooring.policy.args import DynamicResourcesArgs
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pod, pod_group
from mooring.testing.device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    group_consumer,
    request,
    resource_slice,
)
from mooring.testing.fakes import handle

Raw = dict[str, Any]


def reports(
    state: ClusterState, *claims: str, most: int | None = None, group: str | None = None
) -> list[ClaimsReport]:
    """Return all reports about a pod that names these claims; `most` a decision may evaluate."""
    plugin = DynamicResources(
        DynamicResourcesArgs(), replace(handle(state), evaluations=Evaluations(most))
    )
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return [*plugin.explain_claims(parse_pod(pod(group=group, spec={"resourceClaims": entries})))]


def fleet(nodes: int, *devices: str | Raw, **spec: Any) -> list[Raw]:
    """Return nodes with equal devices."""
    names = [f"n{index}" for index in range(nodes)]
    slices = [resource_slice(f"s-{name}", devices, node=name, **spec) for name in names]
    return [*(node(name) for name in names), *slices, device_class("gpu")]


def excluded(report: ClaimsReport) -> list[ExcludedDevices]:
    return [each for claim in report.claims for asked in claim.requests for each in asked.excluded]


def test_a_claim_says_for_whom_it_is_reserved() -> None:
    used: Raw = {"allocation": allocated("d0", node="n0")}
    own = [{"name": "group", "resourceClaimName": "group"}]
    state = cluster(
        *fleet(1, "d0"),
        pod_group("g", 2, claims=own),
        device_claim("mine", status=used, reserved_for=["web"]),
        device_claim("group", status={**used, "reservedFor": [group_consumer("g")]}),
        device_claim("others", status=used, reserved_for=["a", "b"]),
    )
    (report,) = reports(state, "mine", "group", "others", group="g")
    assert [claim.state for claim in report.claims] == [
        "allocated, reserved for this pod",
        "allocated, reserved for its group",
        "allocated, used by 2 pods",
    ]


def test_nodes_that_are_alike_are_one_step() -> None:
    state = cluster(*fleet(40, "d0", "d1"), device_claim("c", request("r", 3)))
    first, last = reports(state, "c")
    assert (first.nodes, last.nodes, last.nodes_in_all) == (0, 40, 40)
    assert excluded(last) == []
    assert last.claims[0].requests[0].enough_on == 0


def test_incomplete_pools_and_taints_are_causes() -> None:
    sick = device("d1", taints=[{"key": "sick", "effect": "NoSchedule"}])
    state = cluster(*fleet(2, sick), device_claim("c"))
    assert excluded(reports(state, "c")[-1]) == [ExcludedDevices("taint sick:NoSchedule", 2, 2)]
    state = cluster(*fleet(2, "d0", slices=2), device_claim("c"))
    assert excluded(reports(state, "c")[-1]) == [ExcludedDevices("incomplete pool", 2, 2)]


def test_alternatives_are_told_apart() -> None:
    alternatives = [
        {"name": "two", "deviceClassName": "gpu", "count": 2},
        {"name": "one", "deviceClassName": "gpu", "count": 1},
    ]
    claim = device_claim("c", {"name": "r", "firstAvailable": alternatives})
    last = reports(cluster(*fleet(3, "d0"), claim), "c")[-1]
    asked = [(each.request, each.count, each.enough_on) for each in last.claims[0].requests]
    assert asked == [("r/two", 2, 0), ("r/one", 1, 3)]


def test_errors_that_name_each_device_are_few_and_short() -> None:
    failing = f"device.attributes['{DRIVER}'].model == 'x'"
    devices = [device(f"device-{index}") for index in range(40)]
    claim = device_claim("c", request(selectors=[{"cel": {"expression": failing}}]))
    found = excluded(reports(cluster(*fleet(2, *devices), claim), "c")[-1])
    assert len(found) == 17
    assert sum(each.devices for each in found) == 80
    assert all(len(each.reason) <= 240 for each in found)
    assert ExcludedDevices("other reasons", 48, 2) in found


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        (device_claim("c", allocation=allocated("d0")), "allocated, used by 0 pods"),
        (
            device_claim("c", allocation=allocated("d0"), reserved_for=["web"]),
            "allocated, reserved for this pod",
        ),
    ],
)
def test_an_allocated_claim_has_no_requests(claim: Raw, state: str) -> None:
    (report,) = reports(cluster(*fleet(1, "d0"), claim), "c")
    assert [(each.state, each.requests) for each in report.claims] == [(state, ())]


def test_a_class_that_does_not_exist_is_the_error() -> None:
    claim = device_claim("c", request("r", device_class="no"))
    (report,) = reports(cluster(*fleet(1, "d0"), claim), "c")
    assert report.error == "request r: device class no does not exist"
    assert reports(cluster()) == []


def test_a_step_evaluates_no_more_than_a_decision_may() -> None:
    long = (
        f"device.attributes['{DRIVER}'].number >= 0 && "
        "lists.range(40).all(a, lists.range(40).all(b, a + b >= 0))"
    )
    devices = [device(f"d{index}", attributes={"number": index}) for index in range(12)]
    claim = device_claim("c", request(selectors=[{"cel": {"expression": long}}]))
    state = cluster(*fleet(1, *devices), claim)
    at_once, divided = reports(state, "c"), reports(state, "c", most=100_000)
    assert divided[-1] == at_once[-1]
    assert len(divided) == len(at_once)  # what was evaluated before is remembered
    claim = device_claim("c", request(selectors=[{"cel": {"expression": f"{long} "}}]))
    state = cluster(*fleet(1, *devices), claim)
    divided = reports(state, "c", most=100_000)
    assert divided[-1] == at_once[-1]
    assert len(divided) >= len(at_once) + 3
