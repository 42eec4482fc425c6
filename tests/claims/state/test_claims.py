"""Claims in flight, assumed and mirrored; tests/property tries random orders of changes."""

from dataclasses import replace
from typing import Any

from device_builders import allocated, device_claim
from mooring.claims.model.resource_claims import (
    Allocation,
    ClaimSpec,
    ResourceClaim,
    parse_resource_claim,
)
from mooring.claims.state.dynamic_resources import ClaimTables
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of

WEB, DB = parse_pod(pod("web")), parse_pod(pod("db"))
KEY = "default/claim"
UNALLOCATED = device_claim()


def parsed(**fields: Any) -> ResourceClaim:
    return parse_resource_claim(device_claim(**fields))


def of(*devices: str) -> Allocation:
    allocation = parsed(allocation=allocated(*devices)).allocation
    assert allocation is not None
    return allocation


def view(state: ClusterState) -> ClaimTables:
    return ClusterView(state).dynamic_resources


def in_use(state: ClusterState) -> list[str]:
    return sorted(each.device for each in view(state).claims.allocated.dedicated)


def known(state: ClusterState) -> ResourceClaim:
    claim = view(state).claims.get(KEY)
    assert claim is not None
    return claim


def show(state: ClusterState, **fields: Any) -> None:
    state.put(Kind.RESOURCE_CLAIM, KEY, parsed(**fields))


# ---- In flight


def test_devices_in_flight_are_in_use_until_all_pods_release_them() -> None:
    state = cluster(UNALLOCATED)
    uid = known(state).uid
    state.hold_claims(WEB.uid, {uid: of("d0")})
    state.hold_claims(DB.uid, {uid: of("d1")})
    assert view(state).claims.in_flight(uid) == of("d0")
    assert view(state).claims.holders(uid) == (WEB.uid, DB.uid)
    assert (in_use(state), known(state).allocation) == (["d0"], None)
    state.release_claims(WEB.uid)
    assert (in_use(state), view(state).claims.held(DB.uid)) == (["d0"], {uid: of("d0")})
    state.release_claims(DB.uid, [uid])
    assert (in_use(state), view(state).claims.in_flight(uid)) == ([], None)


def test_a_forgotten_pod_holds_nothing() -> None:
    state = cluster(UNALLOCATED, node("n1"))
    state.assume(WEB, state.nodes.row_of["n1"])
    state.hold_claims(WEB.uid, {known(state).uid: of("d0")})
    state.forget(WEB)
    assert in_use(state) == []


def test_devices_stay_in_use_when_the_assumed_pod_is_deleted_until_it_is_forgotten() -> None:
    state = cluster(UNALLOCATED, node("n1"))
    state.assume(WEB, state.nodes.row_of["n1"])
    state.hold_claims(WEB.uid, {known(state).uid: of("d0")})
    state.delete(Kind.POD, WEB.uid)
    assert in_use(state) == ["d0"]
    state.forget(WEB)
    assert in_use(state) == []


def test_devices_that_are_released_are_an_event_unless_they_are_written() -> None:
    events: list[ClusterEvent] = []
    state = cluster(UNALLOCATED)
    state.on_events(events.extend)
    uid = known(state).uid
    for holder in (WEB.uid, DB.uid):
        state.hold_claims(holder, {uid: of("d0")})
    state.release_claims(WEB.uid)
    assert not events
    state.release_claims(DB.uid)
    (event,) = events
    assert event.before == replace(known(state), allocation=of("d0"))
    assert event.after == known(state)
    state.hold_claims(WEB.uid, {uid: of("d0")})
    state.assume_claim(parsed(version=3, allocation=allocated("d0")))
    state.release_claims(WEB.uid)
    assert len(events) == 2


def test_devices_of_a_pod_that_another_scheduler_has_bound_are_announced_when_it_is_forgotten() -> (
    None
):
    """There is no event about the pod, because the pod is still on a node."""
    events: list[ClusterEvent] = []
    state = cluster(UNALLOCATED, node("n1"), node("n2"))
    state.assume(WEB, state.nodes.row_of["n1"])
    state.announce(WEB)
    state.hold_claims(WEB.uid, {known(state).uid: of("d0")})
    state.put(Kind.POD, WEB.uid, replace(WEB, node_name="n2"))
    state.on_events(events.extend)
    state.forget(WEB)
    before = replace(known(state), allocation=of("d0"))
    assert events == [ClusterEvent(Kind.RESOURCE_CLAIM, Action.UPDATE, before, known(state))]


# ---- Assumed


def test_an_assumed_claim_is_seen_until_the_watch_shows_it_so_or_newer() -> None:
    state = cluster(UNALLOCATED)
    assert state.assume_claim(parsed(version=3, allocation=allocated("d0"), reserved_for=["web"]))
    assert (known(state).resource_version, in_use(state)) == ("3", ["d0"])
    show(state, version=2)  # the finalizer, which was written before
    assert (known(state).resource_version, in_use(state)) == ("3", ["d0"])
    show(state, version=4)
    assert (known(state).resource_version, in_use(state)) == ("4", [])


def test_versions_are_compared_as_numbers() -> None:
    state = cluster(device_claim(version=9))
    assert state.assume_claim(parsed(version=10, allocation=allocated("d0")))
    show(state, version=11, allocation=allocated("d0"))
    assert not state.assume_claim(parsed(version=10))
    assert known(state).resource_version == "11"


def test_a_claim_that_is_gone_or_another_of_its_name_is_not_assumed() -> None:
    answer = parsed(version=3, allocation=allocated("d0"))
    assert not cluster().assume_claim(answer)
    other = device_claim()
    other["metadata"]["uid"] = "another"
    assert not cluster(other).assume_claim(answer)


def test_an_assumption_ends_with_its_claim_also_if_the_name_returns() -> None:
    state = cluster(UNALLOCATED)
    state.assume_claim(parsed(version=3, allocation=allocated("d0")))
    other = device_claim(version=2)
    other["metadata"]["uid"] = "another"
    state.put(Kind.RESOURCE_CLAIM, KEY, parse_resource_claim(other))
    assert (known(state).uid, in_use(state)) == ("another", [])
    assert view(state).claims.of_uid(answer_uid()) is None
    state.delete(Kind.RESOURCE_CLAIM, KEY)
    assert (view(state).claims.get(KEY), in_use(state)) == (None, [])


def answer_uid() -> str:
    return parsed().uid


def test_an_assumed_claim_is_an_event_at_once_and_its_deallocation_another() -> None:
    events: list[ClusterEvent] = []
    state = cluster(UNALLOCATED)
    state.on_events(events.extend)
    assumed = parsed(version=3, allocation=allocated("d0"))
    state.assume_claim(assumed)
    show(state, version=3, allocation=allocated("d0"))
    assert [(event.before, event.after) for event in events] == [(parsed(), assumed)]
    show(state, version=5)
    event = events[-1]
    assert (event.kind, event.action) == (Kind.RESOURCE_CLAIM, Action.UPDATE)
    assert isinstance(event.before, ResourceClaim)
    assert event.before.allocation == of("d0")
    assert event.after == parsed(version=5)


# ---- Consumers and trials


def test_the_claims_of_a_consumer_are_found() -> None:
    state = cluster(device_claim(allocation=allocated("d0"), reserved_for=["web"]))
    assert view(state).claims.reserved_for(WEB.uid) == [known(state)]
    show(state, version=2, allocation=allocated("d0"), reserved_for=["db"])
    assert view(state).claims.reserved_for(WEB.uid) == []
    assert view(state).claims.reserved_for(uid_of("db")) == [known(state)]


def placed(*reserved_for: str) -> tuple[ClusterState, Pod]:
    """Return a cluster with the pods web and db on a node, and a claim with these reservations."""
    claim = device_claim(allocation=allocated("d0"), reserved_for=reserved_for)
    state = cluster(node("n1"), pod("web", node="n1"), pod("db", node="n1"), claim)
    web = state.known(Kind.POD, WEB.uid)
    assert isinstance(web, Pod)
    return state, web


def test_a_trial_keeps_the_claims_of_removed_pods() -> None:
    state, web = placed("web")
    with state.trial() as trial:
        trial.remove(web.uid)
        assert in_use(state) == ["d0"]


def test_a_trial_that_frees_claims_frees_those_of_removed_pods_only() -> None:
    state, web = placed("web")
    with state.trial(frees_claims=True) as trial:
        trial.remove(web.uid)
        assert (in_use(state), known(state).allocation, known(state).reserved_for) == ([], None, ())
        trial.add(web, state.nodes.row_of["n1"])
        assert in_use(state) == ["d0"]
        trial.remove(web.uid)
        assert in_use(state) == []
    assert (in_use(state), known(state).allocation) == (["d0"], of("d0"))


def test_a_claim_that_another_pod_uses_is_free_when_both_are_removed() -> None:
    state, web = placed("web", "db")
    with state.trial(frees_claims=True) as trial:
        trial.remove(web.uid)
        assert in_use(state) == ["d0"]
        trial.remove(uid_of("db"))
        assert in_use(state) == []
        trial.add(web, state.nodes.row_of["n1"])
        assert in_use(state) == ["d0"]
    assert in_use(state) == ["d0"]


def test_in_a_trial_a_claim_without_devices_may_ask_for_something_else() -> None:
    state = cluster(UNALLOCATED, node("a"), device_claim("taken", allocation=allocated("d0")))
    before, nothing = known(state), ClaimSpec((), (), ())
    taken = view(state).claims.get("default/taken")
    assert taken is not None
    with state.trial() as trial:
        trial.ask(before.uid, before.spec)
        trial.ask(before.uid, nothing)
        trial.ask(taken.uid, nothing)
        assert known(state) == replace(before, spec=nothing)
        assert view(state).claims.of_uid(before.uid) == replace(before, spec=nothing)
        assert view(state).claims.get("default/taken") == taken
    assert known(state) is before


def test_a_trial_frees_what_is_in_flight_for_an_assumed_pod() -> None:
    state = cluster(UNALLOCATED, node("n1"))
    state.assume(WEB, state.nodes.row_of["n1"])
    uid = known(state).uid
    state.hold_claims(WEB.uid, {uid: of("d0")})
    with state.trial(frees_claims=True) as trial:
        trial.remove(WEB.uid)
        assert (in_use(state), view(state).claims.in_flight(uid)) == ([], None)
        trial.add(WEB, state.nodes.row_of["n1"])
        state.hold_claims(WEB.uid, {uid: of("d1")})
        assert in_use(state) == ["d1"]
    assert (in_use(state), view(state).claims.held(WEB.uid)) == (["d0"], {uid: of("d0")})


def test_what_a_pod_that_a_trial_added_holds_is_released() -> None:
    state = cluster(UNALLOCATED, node("n1"))
    with state.trial() as trial:
        trial.add(WEB, state.nodes.row_of["n1"])
        state.hold_claims(WEB.uid, {known(state).uid: of("d0")})
        assert in_use(state) == ["d0"]
        trial.remove(WEB.uid)
        assert in_use(state) == []
        trial.add(WEB, state.nodes.row_of["n1"])
        state.hold_claims(WEB.uid, {known(state).uid: of("d0")})
    assert in_use(state) == []


def test_claims_are_settled_for_a_pod_that_a_simulation_places() -> None:
    shared = device_claim("shared", allocation=allocated("d1"), reserved_for=["db"])
    state = cluster(UNALLOCATED, shared)
    named = [{"name": n, "resourceClaimName": n} for n in ("claim", "shared", "missing")]
    web = parse_pod(pod("web", spec={"resourceClaims": named}))
    state.hold_claims(web.uid, {known(state).uid: of("d0")})
    state.settle_claims(web)
    assert (known(state).allocation, view(state).claims.held(web.uid)) == (of("d0"), {})
    assert view(state).claims.reserved_for(web.uid) == [
        known(state),
        view(state).claims.get("default/shared"),
    ]
    assert len(view(state).claims.reserved_for(DB.uid)) == 1
    assert in_use(state) == ["d0", "d1"]


def test_devices_of_a_claim_that_was_deleted_are_announced_when_they_are_free() -> None:
    """The devices were still in use when the claim was deleted."""
    state = cluster(UNALLOCATED)
    claim = known(state)
    state.hold_claims(WEB.uid, {claim.uid: of("d0")})
    state.delete(Kind.RESOURCE_CLAIM, KEY)
    seen: list[ClusterEvent] = []
    state.on_events(seen.extend)
    state.release_claims(WEB.uid)
    freed = replace(claim, allocation=of("d0"))
    assert seen == [ClusterEvent(Kind.RESOURCE_CLAIM, Action.UPDATE, freed, claim)]


def test_the_claims_for_a_pods_extended_resources_are_known_by_the_pod() -> None:
    raw = device_claim(owner="web")
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    state = cluster(raw, device_claim("other", owner="web"))
    assert view(state).claims.for_extended_resources(WEB) == [known(state)]
    assert view(state).claims.for_extended_resources(DB) == []
    state.delete(Kind.RESOURCE_CLAIM, KEY)
    assert view(state).claims.for_extended_resources(WEB) == []


def test_a_simulation_creates_the_claim_for_a_pods_extended_resources() -> None:
    state = cluster()
    state.hold_claims(WEB.uid, {"not-created": of("d0")})
    state.settle_claims(WEB)
    [made] = view(state).claims.for_extended_resources(WEB)
    assert (made.allocation, view(state).claims.reserved_for(WEB.uid)) == (of("d0"), [made])
    assert (in_use(state), view(state).claims.held(WEB.uid)) == (["d0"], {})


def test_a_trial_that_frees_claims_leaves_no_claim_for_extended_resources() -> None:
    raw = device_claim(owner="web", allocation=allocated("d0"), reserved_for=["web"])
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    state = cluster(node("n1"), pod("web", node="n1"), raw)
    with state.trial(frees_claims=True) as trial:
        trial.remove(WEB.uid)
        assert view(state).claims.for_extended_resources(WEB) == []
    assert view(state).claims.for_extended_resources(WEB) == [known(state)]
