"""Groups whose members have claims for devices: all members get devices, or no device is held."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    group_consumer,
    request,
    resource_slice,
)
from engines import Bindings, Engine, until
from kube.api_server import ApiServer, Request
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.runtime.queued_pod import SubQueue
from mooring.testing.builders import node, pod, pod_group, uid_of

Raw = dict[str, Any]

THREE_DEVICES = (
    device_class("gpu"),
    resource_slice("s1", ["a0", "a1"], node="a"),
    resource_slice("s2", ["b0"], node="b"),
)
NODES = node("a", cpu="8"), node("b", cpu="8")


class Claims(Bindings):
    """An API server that stores claims; the watch shows each write at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Raw] = {}
        self.refuse_claims: dict[str, int] = {}
        """By name, with which status a write of the claim is refused."""
        self.engine: Engine | None = None

    def __call__(self, request: Request) -> None:
        """Answer one request."""
        if "/resourceclaims/" not in request.path:
            super().__call__(request)
            return
        name = request.path.removesuffix("/status").rpartition("/")[2]
        if request.method == "GET":
            request.reply(self.stored[name])
        elif name in self.refuse_claims:
            request.refuse(self.refuse_claims[name], "Refused", "no")
        else:
            request.reply(self._patched(name, request.body))

    def _patched(self, name: str, patch: Raw) -> Raw:
        known = self.stored[name]
        version = str(int(known["metadata"]["resourceVersion"]) + 1)
        metadata = known["metadata"] | patch["metadata"] | {"resourceVersion": version}
        status = known["status"] | patch.get("status", {})
        status = {field: value for field, value in status.items() if value is not None}
        self.stored[name] = {**known, "metadata": metadata, "status": status}
        assert self.engine is not None
        claim = parse_resource_claim(self.stored[name])
        self.engine.scheduler_state.state.put(Kind.RESOURCE_CLAIM, f"default/{name}", claim)
        return self.stored[name]

    def consumers(self, name: str) -> list[str]:
        """Return the names of the pods for which the claim is reserved."""
        return sorted(each["name"] for each in self.stored[name]["status"].get("reservedFor", ()))


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
async def client(claims: Claims) -> AsyncIterator[ApiClient]:
    async with ApiServer(claims) as running, ApiClient(Connection(running.url)) as connected:
        yield connected


def engine_with(client: ApiClient, claims: Claims, minimum: int, *raws: Raw) -> Engine:
    """Return a scheduler for two nodes with three devices, a group, and these claims."""
    claims.stored = {raw["metadata"]["name"]: raw for raw in raws}
    claims.engine = Engine(client, *NODES, *THREE_DEVICES, pod_group("g", minimum), *raws)
    return claims.engine


def member(number: int, claim: str | None = None, **fields: Any) -> Raw:
    """Return a member that uses the claim; without `claim`, its own claim `c<number>`."""
    entry = {"name": "gpu", "resourceClaimName": claim or f"c{number}"}
    return pod(f"g-{number}", group="g", spec={"resourceClaims": [entry]}, **fields)


def in_use(engine: Engine) -> list[str]:
    books = engine.scheduler_state.cluster.dynamic_resources.claims.allocated
    return sorted(device.device for device in books.dedicated)


def in_flight(engine: Engine, number: int) -> bool:
    """Return whether the member has allocations in flight."""
    devices = engine.scheduler_state.cluster.dynamic_resources
    return bool(devices.claims.held(uid_of(f"g-{number}")))


async def test_a_group_that_needs_more_devices_than_are_free_is_told_so_and_holds_none(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 4, *(device_claim(f"c{n}") for n in range(4)))
    engine.pending(*(member(n) for n in range(4)))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()[SubQueue.UNSCHEDULABLE] == 4)
        await until(lambda: len(claims.statuses) == 4)
    assert not claims.made
    assert in_use(engine) == []
    (message,) = {status["conditions"][0]["message"] for status in claims.statuses}
    assert message.startswith("minCount (4) cannot be satisfied: 3 scheduled, 0 remaining; ")
    assert "2 cannot allocate all claims" in message


async def test_a_group_that_needs_all_devices_gets_each_of_them_once(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 3, *(device_claim(f"c{n}") for n in range(3)))
    engine.pending(*(member(n) for n in range(3)))
    with engine.running():
        await until(lambda: len(claims.made) == 3 and not engine.loop.binding)
    nodes = dict(claims.made)
    assert in_use(engine) == ["a0", "a1", "b0"]
    for number in range(3):
        (result,) = claims.stored[f"c{number}"]["status"]["allocation"]["devices"]["results"]
        assert result["device"][0] == nodes[f"g-{number}"]
        assert claims.consumers(f"c{number}") == [f"g-{number}"]


async def test_members_get_the_alternatives_with_which_the_group_was_placed(
    client: ApiClient, claims: Claims
) -> None:
    fields = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    counts = {"two": 2, "one": 1}
    subs = [{"name": name, "count": count, **fields} for name, count in counts.items()]
    wanted = {"name": "r", "firstAvailable": subs}
    engine = engine_with(client, claims, 3, *(device_claim(f"c{n}", wanted) for n in range(3)))
    engine.pending(*(member(n) for n in range(3)))
    with engine.running():
        await until(lambda: len(claims.made) == 3 and not engine.loop.binding)
    assert in_use(engine) == ["a0", "a1", "b0"]
    for number in range(3):
        (result,) = claims.stored[f"c{number}"]["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "r/one"


async def test_members_that_share_a_claim_share_its_devices_on_their_node(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 3, device_claim("shared", request(count=2)))
    engine.pending(*(member(n, "shared", cpu="1") for n in range(3)))
    with engine.running():
        await until(lambda: len(claims.made) == 3 and not engine.loop.binding)
    assert {target for _, target in claims.made} == {"a"}
    assert claims.consumers("shared") == ["g-0", "g-1", "g-2"]
    assert in_use(engine) == ["a0", "a1"]


async def test_members_that_share_a_claim_must_all_fit_on_the_node_of_its_devices(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 3, device_claim("shared"))
    engine.pending(*(member(n, "shared", cpu="3") for n in range(3)))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()[SubQueue.UNSCHEDULABLE] == 3)
        await until(lambda: len(claims.statuses) == 3)
    assert not claims.made
    assert in_use(engine) == []


async def test_a_group_that_is_called_off_takes_back_what_its_members_have_reserved(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 3, *(device_claim(f"c{n}") for n in range(3)))
    waits = member(2, labels={"does": "fail in pre_bind"})
    engine.pending(member(0), member(1), waits)
    with engine.running():
        await until(lambda: len(claims.statuses) >= 3)
        await until(lambda: not any(claims.consumers(f"c{n}") for n in range(3)))
        await until(lambda: not any(in_flight(engine, n) for n in range(3)))
    assert not claims.made
    written = [name for name, raw in claims.stored.items() if "allocation" in raw["status"]]
    assert len(in_use(engine)) == len(written)


async def test_devices_of_members_whose_claims_were_not_written_are_free_when_it_is_called_off(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 2, *(device_claim(f"c{n}") for n in range(2)))
    claims.refuse_claims = {"c0": 403, "c1": 403}
    engine.pending(member(0), member(1))
    with engine.running():
        await until(lambda: len(claims.statuses) >= 2)
        await until(lambda: in_use(engine) == [])
    assert not claims.made
    assert not any("allocation" in raw["status"] for raw in claims.stored.values())


async def test_a_shared_claim_whose_first_writer_fails_is_not_left_in_flight(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with(client, claims, 2, device_claim("shared"))
    fails = member(1, "shared", labels={"does": "fail in pre_bind"})
    engine.pending(member(0, "shared"), fails)
    with engine.running():
        await until(lambda: len(claims.statuses) >= 2)
        await until(lambda: not claims.consumers("shared"))
        await until(lambda: not any(in_flight(engine, n) for n in range(2)))
    assert not claims.made


FOUR_DEVICES = (
    device_class("gpu"),
    resource_slice("s1", ["a0", "a1"], node="a"),
    resource_slice("s2", ["b0", "b1"], node="b"),
)


def engine_after_failover(client: ApiClient, claims: Claims, *raws: Raw) -> Engine:
    """Return a scheduler that starts with claims of a group, allocated on node a.

    The former leader wrote the claims, but did not bind the members. Meanwhile another pod has
    filled node a.
    """
    claims.stored = {raw["metadata"]["name"]: raw for raw in raws}
    full = pod("full", node="a", cpu="8")
    claims.engine = Engine(client, *NODES, *FOUR_DEVICES, pod_group("g", 2), full, *raws)
    return claims.engine


async def test_a_group_that_fits_no_more_where_its_devices_are_gets_others(
    client: ApiClient, claims: Claims
) -> None:
    written = (
        device_claim(f"c{n}", allocation=allocated(f"a{n}", node="a"), reserved_for=[f"g-{n}"])
        for n in range(2)
    )
    engine = engine_after_failover(client, claims, *written)
    engine.pending(*(member(n, cpu="1") for n in range(2)))
    with engine.running():
        await until(lambda: len(claims.made) == 2 and not engine.loop.binding)
    assert dict(claims.made) == {"g-0": "b", "g-1": "b"}
    assert in_use(engine) == ["b0", "b1"]


async def test_a_claim_that_members_share_is_freed_if_none_of_them_is_on_a_node(
    client: ApiClient, claims: Claims
) -> None:
    written = device_claim(
        "shared", allocation=allocated("a0", node="a"), reserved_for=["g-0", "g-1"]
    )
    engine = engine_after_failover(client, claims, written)
    engine.pending(*(member(n, "shared", cpu="1") for n in range(2)))
    with engine.running():
        await until(lambda: len(claims.made) == 2 and not engine.loop.binding)
    assert dict(claims.made) == {"g-0": "b", "g-1": "b"}
    assert in_use(engine) == ["b0"]


OWN = {"name": "gpu", "resourceClaimTemplateName": "one"}
"""The entry of a group and of its members."""


def member_of_owner(number: int) -> Raw:
    """Return a member that uses the claim `own`, which was created for the group."""
    raw = pod(f"g-{number}", cpu="1", group="g", spec={"resourceClaims": [OWN]})
    raw["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "own"}]}
    return raw


def engine_with_own_claim(client: ApiClient, claims: Claims, **claim: Any) -> Engine:
    """Return a scheduler with a group of two; the group itself has the claim `own`."""
    raw = device_claim("own", group="g", **claim)
    claims.stored = {"own": raw}
    group = pod_group("g", 2, claims=[OWN])
    full = pod("full", node="a", cpu="8")
    claims.engine = Engine(client, *NODES, *FOUR_DEVICES, group, full, raw)
    return claims.engine


def reservations(claims: Claims) -> list[tuple[str, str, str]]:
    consumers = claims.stored["own"]["status"]["reservedFor"]
    return [(each["apiGroup"], each["resource"], each["name"]) for each in consumers]


async def test_a_claim_of_the_group_is_reserved_once_for_the_group(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with_own_claim(client, claims)
    engine.pending(*(member_of_owner(n) for n in range(2)))
    with engine.running():
        await until(lambda: len(claims.made) == 2 and not engine.loop.binding)
    assert dict(claims.made) == {"g-0": "b", "g-1": "b"}
    assert reservations(claims) == [("scheduling.k8s.io", "podgroups", "g")]
    assert in_use(engine) == ["b0"]


async def test_a_claim_of_the_group_is_freed_if_the_group_fits_no_more_where_it_is(
    client: ApiClient, claims: Claims
) -> None:
    engine = engine_with_own_claim(
        client,
        claims,
        status={"reservedFor": [group_consumer("g")], "allocation": allocated("a0", node="a")},
    )
    engine.pending(*(member_of_owner(n) for n in range(2)))
    with engine.running():
        await until(lambda: len(claims.made) == 2 and not engine.loop.binding)
    assert dict(claims.made) == {"g-0": "b", "g-1": "b"}
    assert reservations(claims) == [("scheduling.k8s.io", "podgroups", "g")]
    assert in_use(engine) == ["b0"]


async def test_a_group_that_is_called_off_keeps_the_claim_that_is_its_own(
    client: ApiClient, claims: Claims
) -> None:
    """As in kube-scheduler, the next attempt uses the devices or frees them."""
    engine = engine_with_own_claim(client, claims)
    fails = member_of_owner(1)
    fails["metadata"]["labels"] = {"does": "fail in pre_bind"}
    engine.pending(member_of_owner(0), fails)
    with engine.running():
        await until(lambda: len(claims.statuses) >= 2)
        await until(lambda: not any(in_flight(engine, n) for n in range(2)))
    assert not claims.made
    assert reservations(claims) == [("scheduling.k8s.io", "podgroups", "g")]
    assert in_use(engine) == ["b0"]
