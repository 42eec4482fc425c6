"""Two writers change one claim at the same time; `test_plugin.py` tests a single writer."""

import asyncio

import pytest

from device_builders import allocated, device_claim
from mooring.claims.model.resource_claims import (
    FINALIZER,
    Allocation,
    ResourceClaim,
    parse_resource_claim,
)
from mooring.claims.plugin.claim_writer import ClaimWriter
from mooring.framework.verdicts import PluginError
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, pod, uid_of
from mooring.testing.fakes import FakeApi, Lost

KEY = ("resourceclaims", "default/claim")
WEB, DB = parse_pod(pod("web")), parse_pod(pod("db"))


class Server:
    """A claim in an API server, and two replicas whose watches show nothing by themselves."""

    def __init__(self, **claim: object) -> None:
        raw = device_claim(**claim)  # type: ignore[arg-type]  # as the builder takes them
        self.api = FakeApi({KEY: raw})
        self.states = [cluster(raw), cluster(raw)]
        self.writers = [ClaimWriter(self.api, s, ClusterView(s)) for s in self.states]

    @property
    def claim(self) -> ResourceClaim:
        return parse_resource_claim(self.api.objects[KEY])

    def known(self, state: ClusterState) -> ResourceClaim:
        claim = ClusterView(state).dynamic_resources.claims.get("default/claim")
        assert claim is not None
        return claim


def of(device: str) -> Allocation:
    allocation = parse_resource_claim(device_claim(allocation=allocated(device))).allocation
    assert allocation is not None
    return allocation


async def test_the_second_of_two_members_adds_its_reservation_to_the_firsts_allocation() -> None:
    server = Server()
    (writer, _), (state, _) = server.writers, server.states
    first = server.claim
    for member in (WEB, DB):
        state.hold_claims(member.uid, {first.uid: of("d0")})
    await asyncio.gather(
        *(writer.reserve(member, first, of("d0"), is_new=True) for member in (WEB, DB))
    )
    assert [each.uid for each in server.claim.reserved_for] == [WEB.uid, DB.uid]
    assert server.known(state) == server.claim
    assert ClusterView(state).dynamic_resources.claims.in_flight(first.uid) is None


async def test_of_two_replicas_only_one_allocates_the_claim() -> None:
    server = Server()
    claim = server.claim
    await server.writers[0].reserve(WEB, claim, of("d0"), is_new=True)
    with pytest.raises(PluginError, match="claim default/claim got allocated elsewhere"):
        await server.writers[1].reserve(WEB, claim, of("d1"), is_new=True)
    assert server.claim.allocation is not None
    assert server.claim.allocation.results == of("d0").results


async def test_what_another_replica_has_written_for_the_pod_is_taken_over() -> None:
    """The former leader was killed after it had written the claim and before the Binding."""
    server = Server()
    claim = server.claim
    await server.writers[0].reserve(WEB, claim, of("d0"), is_new=True)
    state = server.states[1]
    state.put(Kind.RESOURCE_CLAIM, "default/claim", server.claim)
    before = len(server.api.patches)
    await server.writers[1].reserve(WEB, server.known(state), of("d0"), is_new=False)
    assert len(server.api.patches) == before


async def test_a_reservation_is_taken_back_beside_those_of_others() -> None:
    server = Server(allocation=allocated("d0"), reserved_for=["web", "db"])
    await server.writers[0].unreserve(WEB, [server.claim], uid_of("nobody"))
    assert [each.uid for each in server.claim.reserved_for] == [DB.uid]
    assert server.claim.allocation is not None


@pytest.mark.parametrize("finalizers", [[], [FINALIZER]])
async def test_an_allocation_that_was_given_up_is_not_carried_out_any_more(
    finalizers: list[str],
) -> None:
    """The write of the allocation timed out; another claim may use the device by now."""
    server = Server()
    server.api.objects[KEY]["metadata"]["finalizers"] = finalizers
    (writer, _), (state, _) = server.writers, server.states
    first = server.claim
    state.hold_claims(WEB.uid, {first.uid: of("d0")})
    server.api.lost.extend([Lost.NOTHING] * (not finalizers) + [Lost.TIME] * 5)
    with pytest.raises(PluginError, match="no answer in time"):
        await writer.reserve(WEB, first, of("d0"), is_new=True)
    await writer.unreserve(WEB, [first], WEB.uid)
    await server.api.arrive()
    assert server.claim.allocation is None
    assert server.known(state) == server.claim
    await writer.reserve(DB, first, of("d1"), is_new=True)
    assert server.claim.allocation is not None


async def test_nothing_is_written_to_a_claim_of_which_nothing_is_to_be_taken_back() -> None:
    for server in (Server(), Server(allocation=allocated("d0"), reserved_for=["db"])):
        await server.writers[0].unreserve(WEB, [server.claim], uid_of("nobody"))
        assert server.api.patches == []


async def test_an_answer_that_cannot_be_read_frees_no_device() -> None:
    server = Server()
    (writer, _), (state, _) = server.writers, server.states
    taken = device_claim(allocation=allocated("d0"))
    taken["metadata"]["resourceVersion"] = "9"
    taken["status"]["reservedFor"] = [{"resource": "pods", "name": "web", "uid": WEB.uid}]
    taken["status"]["allocation"]["devices"]["results"][0]["tolerations"] = "all"
    server.api.objects[KEY] = taken
    first = server.known(state)
    state.hold_claims(WEB.uid, {first.uid: of("d0")})
    with pytest.raises(PluginError, match=r"a claim cannot be read: ResourceClaim default/claim"):
        await writer.reserve(WEB, first, of("d0"), is_new=True)
    await writer.unreserve(WEB, [first], WEB.uid)
    in_use = ClusterView(state).dynamic_resources.claims.allocated.dedicated
    assert [device.device for device in in_use] == ["d0"]
    assert "reservedFor" not in server.api.objects[KEY]["status"]
