"""The devices of claims that a Queue uses."""

from typing import Any

import pytest

from device_builders import device_claim, request
from mooring.claims.model.device_classes import CLASS_PREFIX
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.model.events import Kind
from mooring.quota.state.claim_users import CLAIM, ClaimUsers, devices_of
from mooring.state.objects import Objects

GPU = f"{CLASS_PREFIX}gpu"
NIC = f"{CLASS_PREFIX}nic"


def first_of(*requests: dict[str, Any]) -> dict[str, Any]:
    subrequests = [{"name": each["name"], **each["exactly"]} for each in requests]
    return {"name": "r", "firstAvailable": subrequests}


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([request("a", 2), request("b", 1), request("c", device_class="nic")], {GPU: 3, NIC: 1}),
        ([request(allocationMode="All", count=0)], {GPU: 32}),
        ([request(allocationMode="All", count=0, adminAccess=True)], {GPU: 0}),
        (
            [first_of(request("a", 4), request("b", 8), request("c", 1, device_class="nic"))],
            {GPU: 8, NIC: 1},
        ),
    ],
)
def test_a_claim_counts_the_most_devices_of_each_class_that_it_may_get(
    requests: list[dict[str, Any]], devices: dict[str, int]
) -> None:
    assert devices_of(parse_resource_claim(device_claim("c", *requests))) == devices


def test_a_claim_counts_once_in_a_queue_and_once_in_another() -> None:
    objects = Objects()
    claim = parse_resource_claim(device_claim("c", request(count=2)))
    objects.put(Kind.RESOURCE_CLAIM, claim.key, claim)
    users, name = ClaimUsers(objects), f"{CLAIM}{claim.key}"
    assert users.counted(1, {"cpu": 5, name: 1}) == {"cpu": 5, GPU: 2}
    assert users.counted(1, {"cpu": 5, name: 1}) == {"cpu": 5, GPU: 0}
    assert users.in_devices(2, {name: 3}) == {GPU: 2}
    assert users.counted(2, {name: 3}) == {GPU: 2}
    assert {*users.queues_of(claim.key)} == {1, 2}
    assert users.counted(1, {name: -1}) == {GPU: 0}
    assert users.counted(1, {name: -1}) == {GPU: -2}
    assert {*users.queues_of(claim.key)} == {2}
