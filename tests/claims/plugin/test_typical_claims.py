"""Claims with devices are counted by kind."""

from typing import Any

from device_builders import allocated, device_claim, device_result, request
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.plugin.typical_claims import TypicalClaims
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node

Raw = dict[str, Any]


def pair(name: str) -> Raw:
    """Return a claim that has been allocated two devices."""
    return device_claim(name, request(count=2), allocation=allocated(f"{name}-a", f"{name}-b"))


def put(state: ClusterState, raw: Raw) -> None:
    claim = parse_resource_claim(raw)
    state.put(Kind.RESOURCE_CLAIM, claim.key, claim)


def counted(typical: TypicalClaims, state: ClusterState, most: int = 8) -> list[tuple[int, int]]:
    """Return for each kind of claims the number of requested devices and the number of claims."""
    found = typical.most_common(ClusterView(state), most)
    wanted = [claim.spec.requests[0].exactly for claim, _ in found]
    return [(each.count, n) for each, (_, n) in zip(wanted, found, strict=True) if each]


def test_claims_that_ask_for_the_same_count_together_the_most_common_first() -> None:
    one = device_claim("one", allocation=allocated("d0"))
    state, typical = cluster(node("n"), pair("p"), pair("q"), one), TypicalClaims()
    assert counted(typical, state) == [(2, 2), (1, 1)]
    assert counted(typical, state, most=1) == [(2, 2)]


def test_a_claim_counts_while_it_has_devices() -> None:
    state, typical = cluster(node("n"), pair("p")), TypicalClaims()
    assert counted(typical, state) == [(2, 1)]
    put(state, pair("q"))
    assert counted(typical, state) == [(2, 2)]
    put(state, device_claim("p", request(count=2), version=2))
    assert counted(typical, state) == [(2, 1)]
    state.delete(Kind.RESOURCE_CLAIM, "default/q")
    assert counted(typical, state) == []


def test_a_claim_that_only_watches_devices_does_not_count() -> None:
    watched = device_result("d0", adminAccess=True)
    state = cluster(node("n"), device_claim("admin", allocation=allocated(watched)))
    assert counted(TypicalClaims(), state) == []


def test_a_claim_of_the_same_name_that_asks_for_something_else_counts_as_that() -> None:
    state, typical = cluster(node("n"), pair("p")), TypicalClaims()
    assert counted(typical, state) == [(2, 1)]
    other = device_claim("p", allocation=allocated("p-a"))
    other["metadata"]["uid"] = "another"
    put(state, other)
    assert counted(typical, state) == [(1, 1)]
