"""The explanation of missing devices has a limited size, and counts equal nodes together."""

from dataclasses import replace
from typing import Any

import pytest

from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    group_consumer,
    request,
    resource_slice,
)
from mooring.claims.claim_report import ClaimsReport, ExcludedDevices
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.framework.evaluations import Evaluations
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pod, pod_group
from mooring.testing.fakes import handle

Raw = dict[str, Any]


def report_of(
    state: ClusterState, *claims: str, most: int | None = None, group: str | None = None
) -> ClaimsReport:
    """Return the report about a pod with these claims; `most` is the budget of an attempt."""
    plugin = DynamicResources(
        DynamicResourcesArgs(), replace(handle(state), evaluations=Evaluations(most))
    )
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    report = plugin.explain_claims(parse_pod(pod(group=group, spec={"resourceClaims": entries})))
    assert report is not None
    return report


def fleet(nodes: int, *devices: str | Raw, **spec: Any) -> list[Raw]:
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
    report = report_of(state, "mine", "group", "others", group="g")
    assert [claim.state for claim in report.claims] == [
        "allocated, reserved for this pod",
        "allocated, reserved for its group",
        "allocated, used by 2 pods",
    ]


def test_what_is_known_of_a_node_is_said_of_all_that_are_alike() -> None:
    state = cluster(*fleet(40, "d0", "d1"), device_claim("c", request("r", 3)))
    last = report_of(state, "c")
    assert (last.nodes, last.nodes_in_all) == (40, 40)
    assert excluded(last) == []
    assert last.claims[0].requests[0].enough_on == 0


def test_incomplete_pools_and_taints_are_causes() -> None:
    sick = device("d1", taints=[{"key": "sick", "effect": "NoSchedule"}])
    state = cluster(*fleet(2, sick), device_claim("c"))
    assert excluded(report_of(state, "c")) == [ExcludedDevices("taint sick:NoSchedule", 2, 2)]
    state = cluster(*fleet(2, "d0", slices=2), device_claim("c"))
    assert excluded(report_of(state, "c")) == [ExcludedDevices("incomplete pool", 2, 2)]


def test_alternatives_are_told_apart() -> None:
    alternatives = [
        {"name": "two", "deviceClassName": "gpu", "count": 2},
        {"name": "one", "deviceClassName": "gpu", "count": 1},
    ]
    claim = device_claim("c", {"name": "r", "firstAvailable": alternatives})
    last = report_of(cluster(*fleet(3, "d0"), claim), "c")
    asked = [(each.request, each.count, each.enough_on) for each in last.claims[0].requests]
    assert asked == [("r/two", 2, 0), ("r/one", 1, 3)]


def test_errors_that_name_each_device_are_few_and_short() -> None:
    failing = f"device.attributes['{DRIVER}'].model == 'x'"
    devices = [device(f"device-{index}") for index in range(40)]
    claim = device_claim("c", request(selectors=[{"cel": {"expression": failing}}]))
    found = excluded(report_of(cluster(*fleet(2, *devices), claim), "c"))
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
    report = report_of(cluster(*fleet(1, "d0"), claim), "c")
    assert [(each.state, each.requests) for each in report.claims] == [(state, ())]


def test_a_class_that_does_not_exist_is_the_error() -> None:
    claim = device_claim("c", request("r", device_class="no"))
    report = report_of(cluster(*fleet(1, "d0"), claim), "c")
    assert report.error == "request r: device class no does not exist"
    plugin = DynamicResources(DynamicResourcesArgs(), handle(cluster()))
    assert plugin.explain_claims(parse_pod(pod())) is None


def test_a_report_is_about_as_many_nodes_as_an_attempt_has_time_for() -> None:
    long = (
        f"device.attributes['{DRIVER}'].number >= 0 && "
        "lists.range(40).all(a, lists.range(40).all(b, a + b >= 0))"
    )
    objects = [device_class("gpu")]
    for number in range(12):
        one = device("d", attributes={"number": number})
        objects += node(f"n{number}"), resource_slice(f"s{number}", [one], node=f"n{number}")
    claim = device_claim("c", request(selectors=[{"cel": {"expression": long}}]))
    state = cluster(*objects, claim)
    parts = [report_of(state, "c", most=200_000).nodes for _ in range(8)]
    assert 0 < parts[0] < 12
    assert parts[-1] == 12, "the answers are remembered"
