"""Suggestions try a pod and its claims without some requirements, and name each change."""

from collections.abc import Iterable
from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.framework.decision import TextAboutPods
from mooring.model.pod import parse_pod
from mooring.observe.documents import plain
from mooring.scheduling.changes import (
    Change,
    claim_changes,
    conditions,
    fewer_devices,
    requesting,
)
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.suggestions import Suggestion, suggestions
from mooring.scheduling.what_if import WhatIf
from mooring.testing.builders import node, pod

Raw = dict[str, Any]
SICK = {"taints": [{"key": "sick", "effect": "NoSchedule"}]}
IS_H100 = f"device.attributes['{DRIVER}'].model == 'h100'"
IS_LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


def selecting(*expressions: str) -> Raw:
    return {"selectors": [{"cel": {"expression": each}} for each in expressions]}


def gpu(name: str, model: str = "l4", memory: str = "24Gi", **fields: Any) -> Raw:
    capacity = {"memory": {"value": memory}}
    return device(name, attributes={"model": model}, capacity=capacity, **fields)


def with_claims(name: str, *claims: str, **fields: Any) -> Raw:
    """Return a pod that uses these claims, each in an entry of the claim's name."""
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    return pod(name, spec={"resourceClaims": entries}, **fields)


def fleet(**devices: Iterable[str | Raw]) -> list[Raw]:
    """Return for each name a node and its slice of devices, and a class of all devices."""
    slices = [resource_slice(f"s-{name}", some, node=name) for name, some in devices.items()]
    return [*map(node, devices), *slices, device_class("gpu")]


def held(name: str, claim: str, *devices: str, on: str) -> list[Raw]:
    """Return a pod on a node, and its claim that is allocated these devices."""
    allocation = allocated(*devices, node=on)
    return [
        with_claims(name, claim, node=on),
        device_claim(claim, allocation=allocation, reserved_for=[name]),
    ]


def suggested(*objects: Raw, pod: Raw) -> list[Suggestion]:
    """Return all suggestions for the pod, the smallest change first."""
    deciding = Deciding(*objects)
    what_if = WhatIf(ResultCache(deciding.cluster))
    before = deciding.cluster.dynamic_resources.claims.get("default/mine")
    found = suggestions([parse_pod(pod)], deciding.pipeline, what_if)
    result = sorted(found, key=lambda each: each.cost)
    assert deciding.cluster.dynamic_resources.claims.get("default/mine") == before
    return result


def texts(found: Iterable[Suggestion]) -> list[str]:
    return [plain(each.change) for each in found]


def test_a_selector_that_excludes_all_devices_is_named_with_its_expression() -> None:
    claim = device_claim("mine", request("big", **selecting(IS_H100, IS_LARGE)))
    devices = fleet(a=[gpu("d0", "h100")], b=[gpu("d0", "l4", "80Gi")], c=[gpu("d0", "h100")])
    first, second, *_ = suggested(*devices, claim, pod=with_claims("web", "mine"))
    assert texts([first, second]) == [
        (
            "if it had no selector #0 in request big of claim mine "
            "(device.attributes['gpu.example.com'].model == 'h100')"
        ),
        (
            "if it had no selector #1 in request big of claim mine "
            "(device.capacity['gpu.example.com'].memory.compareTo(quant...)"
        ),
    ]
    assert (first.nodes, first.examples) == (1, ("b",))
    assert (second.nodes, set(second.examples)) == (2, {"a", "c"})


def test_two_selectors_that_exclude_all_devices_are_named_together() -> None:
    claim = device_claim("mine", request("big", **selecting(IS_H100, IS_LARGE)))
    found = suggested(*fleet(a=[gpu("d0")]), claim, pod=with_claims("web", "mine"))
    assert texts(found)[0] == "if it had no claim mine"
    assert "had no selector #0" in texts(found)[1]
    assert " and had no selector #1" in texts(found)[1]


def test_the_largest_number_of_devices_that_a_node_has_is_named() -> None:
    claim = device_claim("mine", request("many", 8))
    devices = fleet(a=["d0", "d1", "d2"], b=["d0"])
    first = suggested(*devices, claim, pod=with_claims("web", "mine"))[0]
    assert texts([first]) == [
        "if it asked for 3 devices instead of 8 in request many of claim mine"
    ]
    assert (first.nodes, first.examples) == (1, ("a",))


def test_no_more_devices_are_tried_than_a_claim_can_have() -> None:
    """The API server accepts any count; trying all smaller numbers could exhaust the memory."""
    many = {"name": "many", "deviceClassName": "gpu", "count": 100_000}
    claim = device_claim("mine", request("all", 100_000), {"name": "any", "firstAvailable": [many]})
    cluster = Deciding(*fleet(a=["d0"]), claim).cluster
    found = [*fewer_devices(parse_pod(with_claims("web", "mine")), cluster)]
    assert [len(numbers) for numbers in found] == [32, 32]
    assert [numbers[0].text for numbers in found] == [
        f"asked for 32 devices instead of 100000 in request {name} of claim mine"
        for name in ("all", "any/many")
    ]


def test_one_device_is_suggested_where_all_cannot_be_had() -> None:
    claim = device_claim("mine", request("every", allocationMode="All"))
    objects = [*fleet(a=["d0", "d1"]), *held("other", "theirs", "d0", on="a"), claim]
    found = suggested(*objects, pod=with_claims("web", "mine"))
    assert (
        texts(found)[0] == "if it asked for 1 device instead of all in request every of claim mine"
    )


def test_the_taint_of_devices_is_to_be_tolerated() -> None:
    objects = [*fleet(a=[device("d0", **SICK)]), device_claim("mine")]
    first = suggested(*objects, pod=with_claims("web", "mine"))[0]
    assert texts([first]) == ["if it tolerated the device taint sick:NoSchedule in claim mine"]


def test_a_constraint_and_a_capacity_are_named() -> None:
    same = {"matchAttribute": f"{DRIVER}/model"}
    claim = device_claim("mine", request("both", 2), constraints=[same])
    objects = fleet(a=[gpu("d0", "l4"), gpu("d1", "h100")])
    found = texts(suggested(*objects, claim, pod=with_claims("web", "mine")))
    assert found[:2] == [
        "if it asked for 1 device instead of 2 in request both of claim mine",
        f"if it had no constraint on {DRIVER}/model in claim mine",
    ]
    claim = device_claim("mine", request("big", capacity={"requests": {"memory": "80Gi"}}))
    found = texts(suggested(*objects, claim, pod=with_claims("web", "mine")))
    assert found[0] == (
        "if it requested no memory of devices in request big of claim mine (it requests 80Gi)"
    )


def test_pods_that_hold_matching_devices_are_to_end_on_the_node_where_these_are_fewest() -> None:
    claim = device_claim("mine", request("two", 2, **selecting(IS_H100)))
    objects = [
        *fleet(
            a=[gpu("d0", "h100"), gpu("d1", "h100")],
            b=[gpu("d0", "h100"), gpu("d1", "h100"), gpu("d2", "l4")],
        ),
        *held("a0", "a0", "d0", on="a"),
        *held("a1", "a1", "d1", on="a"),
        *held("b1", "b1", "d1", on="b"),
        *held("b2", "b2", "d2", on="b"),
        claim,
    ]
    found = suggested(*objects, pod=with_claims("web", "mine"))
    endings = [each for each in found if each.ended]
    assert texts(endings) == [
        "when default/b1 on b ends",
        "when 2 pods on a end: default/a0, default/a1",
    ]
    assert isinstance(endings[0].change, TextAboutPods)
    assert endings[0].change.otherwise == "when a pod on b ends"


def test_a_claim_that_two_pods_share_is_free_when_both_have_ended() -> None:
    shared = device_claim(
        "theirs", allocation=allocated("d0", node="a"), reserved_for=["one", "two"]
    )
    users = [with_claims(name, "theirs", node="a") for name in ("one", "two")]
    objects = [*fleet(a=["d0"]), *users, shared, device_claim("mine")]
    found = suggested(*objects, pod=with_claims("web", "mine"))
    assert {each.key for each in found[-1].ended} == {"default/one", "default/two"}


def test_pods_with_devices_need_not_end_for_a_pod_without_claims() -> None:
    small = {"cpu": "1", "memory": "1Gi"}
    holder = with_claims("holder", "theirs", node="a", **small)
    claim = device_claim("theirs", allocation=allocated("d0", node="a"), reserved_for=["holder"])
    nodes = [node("a", cpu="4"), resource_slice("s", ["d0"], node="a"), device_class("gpu")]
    objects = [*nodes, holder, claim, pod("large", cpu="3", node="a")]
    found = suggested(*objects, pod=pod("web", cpu="3"))
    assert [each.key for each in found[-1].ended] == ["default/large"]


def test_nothing_is_suggested_about_devices_that_never_match() -> None:
    claim = device_claim("mine", request(**selecting(IS_H100)))
    objects = [*fleet(a=[gpu("d0", "l4")]), *held("other", "theirs", "d0", on="a"), claim]
    found = suggested(*objects, pod=with_claims("web", "mine"))
    assert not any(each.ended for each in found)


@pytest.mark.parametrize("word", ["deleted", "allocated", "missing"])
def test_claims_that_are_not_to_be_allocated_have_no_changes(word: str) -> None:
    claim = device_claim("mine", request("two", 2, **selecting(IS_H100)))
    if word == "deleted":
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if word == "allocated":
        claim = device_claim("mine", request("two", 2), allocation=allocated("d0", node="a"))
    cluster = Deciding(*fleet(a=["d0"]), *([claim] if word != "missing" else [])).cluster
    raw = parse_pod(with_claims("web", "mine"))
    assert [*claim_changes(raw, cluster)] == []
    assert [*fewer_devices(raw, cluster)] == []


def test_alternatives_are_changed_one_by_one() -> None:
    alternatives = [
        {"name": "big", "deviceClassName": "gpu", "count": 2},
        {"name": "one", "deviceClassName": "gpu", "count": 1, **selecting(IS_LARGE)},
    ]
    claim = device_claim("mine", {"name": "r", "firstAvailable": alternatives})
    found = texts(suggested(*fleet(a=[gpu("d0")]), claim, pod=with_claims("web", "mine")))
    assert found[:2] == [
        "if it asked for 1 device instead of 2 in request r/big of claim mine",
        (
            "if it had no selector #0 in request r/one of claim mine "
            "(device.capacity['gpu.example.com'].memory.compareTo(quant...)"
        ),
    ]


def test_what_is_to_be_done_outside_of_the_pod_comes_last() -> None:
    changes = [
        Change("you create claim a", 1.0, once=True),
        Change("had no port", 1.0),
        Change("had no taint", 1.0),
    ]
    text = conditions(changes, [each.text for each in changes], "all members")
    assert text == "if all members had no port and had no taint, once you create claim a"
    assert conditions(changes[:1], ["you wait"]) == "once you wait"


def test_containers_share_a_smaller_request_in_proportion_to_their_own() -> None:
    raw, resource = pod("web"), "example.com/gpu"
    raw["spec"]["containers"] = [
        {"name": name, "resources": {"requests": {resource: count}, "limits": {resource: count}}}
        for name, count in (("main", 6), ("sidecar", 2))
    ]
    changed = requesting({resource: 4}, parse_pod(raw))
    assert changed.spec.demand.resources == {resource: 4}
    assert [container.requests for container in changed.spec.containers] == [
        {resource: 3},
        {resource: 1},
    ]
