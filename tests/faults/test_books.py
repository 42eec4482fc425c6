"""What the auditor says about histories that a test makes up."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from controlplane import ControlPlane
from controlplane.nodes import create_nodes, delete_nodes
from e2e.replicas import create_pods, delete_now, eventually, pod
from faults.books import (
    GPU_COUNT,
    GPU_MEMORY,
    GPUSHARE,
    Amount,
    Books,
    LeaseSeen,
    NodeSeen,
    Object,
    PodSeen,
    Seen,
    Verdict,
    audit,
    counts,
    differences,
    left_devices,
    placeable,
    read_metrics,
    relisted,
)
from faults.claims import ClaimSeen, claims_of

Raw = Mapping[str, Any]

LONG_AGO: Final = -math.inf
"""Times of the monotonic clock count from the machine's start, which may be minutes ago."""


class History:
    """Events a second apart, unless said otherwise, ending a minute ago."""

    def __init__(self) -> None:
        self.events: list[Seen] = []
        self.now = time.monotonic() - 1000.0

    def add(self, *objects: Object, deleted: bool = False) -> "History":
        for found in objects:
            self.now += 1.0
            self.events.append(Seen(len(self.events), self.now, found, deleted))
        return self

    def later(self, seconds: float) -> "History":
        self.now += seconds
        return self

    def verdict(self, **journals: list[Raw]) -> Verdict:
        return audit(self.events, journals, quiet_since=self.now)


def node_seen(name: str = "n", cpu: int = 1000, *, schedulable: bool = True) -> NodeSeen:
    return NodeSeen(name, name, Amount(cpu, 10**9, 10), schedulable)


def seen(name: str, cpu: int = 1000, **fields: Any) -> PodSeen:
    return PodSeen(f"ns/{name}", name, Amount(cpu, 0, 1), **fields)


def victim(cpu: int = 1000, name: str = "low") -> PodSeen:
    return seen(name, cpu, node="n")


def marked(pod_: PodSeen, *, leaving: bool = True) -> PodSeen:
    return seen(pod_.uid, pod_.need.cpu, node=pod_.node, preempted=True, leaving=leaving)


def preemptor(**fields: Any) -> PodSeen:
    return seen("high", priority=10, **fields)


def write(path: str, at: float, status: int | None = 200, **fields: Any) -> Raw:
    return {"method": "POST", "path": path, "received": at, "at": at, "status": status, **fields}


def test_a_pod_that_is_bound_once_on_a_node_with_room_is_no_fault() -> None:
    history = History().add(node_seen(), seen("a"), seen("a", node="n"))
    verdict = history.verdict(r=[])
    assert verdict.faults == []
    assert verdict.bound == 1


def test_a_pod_that_could_be_placed_and_still_waits_is_lost() -> None:
    assert [text for _, text in History().add(node_seen(), seen("a")).verdict().lost]


def test_a_pod_that_fits_nowhere_is_not_lost() -> None:
    history = History().add(node_seen(cpu=500), node_seen("m", schedulable=False), seen("a"))
    assert history.verdict().lost == ()


def test_a_pod_that_could_be_placed_by_preemption_and_still_waits_is_lost() -> None:
    assert History().add(node_seen(), victim(), preemptor()).verdict().lost


def test_a_pod_that_has_only_just_come_is_not_lost() -> None:
    history = History().add(node_seen(), seen("a"))
    assert audit(history.events, {}, quiet_since=history.now - 0.5).lost == ()
    assert [found.key for found in placeable(history.events)] == ["ns/a"]


def test_a_pod_seen_on_two_nodes_is_bound_twice() -> None:
    history = History().add(node_seen("n"), node_seen("m"), seen("a", node="n"))
    assert len(history.add(seen("a", node="m")).verdict().doubled) == 1


def test_a_host_port_is_one_pods_at_a_time() -> None:
    one, two = (seen(name, 1, node="n", host_ports=frozenset({8080})) for name in "ab")
    other = seen("c", 1, node="n", host_ports=frozenset({8081}))
    [(_, text)] = History().add(node_seen(), one, other, two).verdict().overcommitted
    assert text == f"n after ns/b ({two.uid}): port 8080 twice"
    followed = History().add(node_seen(), one).add(one, deleted=True).add(two)
    assert followed.verdict().overcommitted == ()
    elsewhere = replace(two, node="m")
    assert History().add(node_seen(), node_seen("m"), one, elsewhere).verdict().faults == []


def test_cards_and_host_ports_are_read_where_a_pod_has_them() -> None:
    raw = pod("a", requests={GPU_MEMORY: "12"}, limits={GPU_MEMORY: "12"})
    raw["metadata"] |= {"namespace": "ns", "uid": "u"}
    raw["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    raw["metadata"]["annotations"] = {f"{GPUSHARE}_IDX": "3", f"{GPUSHARE}_POD": "12"}
    read = PodSeen.read(raw)
    assert (read.cards, read.wants_cards, read.host_ports) == (((3, 12),), True, frozenset({8080}))


def test_two_accepted_bindings_of_a_pod_are_one_too_many() -> None:
    path = "/api/v1/namespaces/ns/pods/a/binding"
    first, second = write(path, 1.0, 201, uid="u"), write(path, 2.0, 201, uid="u")
    assert len(History().verdict(one=[first], two=[second]).doubled) == 1
    assert History().verdict(one=[first], two=[write(path, 2.0, 409, uid="u")]).doubled == ()


def test_a_node_is_over_its_allocatable_at_the_moment_of_the_binding() -> None:
    history = History().add(node_seen(), seen("a", node="n"), seen("b", 1, node="n"))
    assert len(history.verdict().overcommitted) == 1
    history.add(seen("a", node="n"), deleted=True)
    assert len(history.verdict().overcommitted) == 1, "that it ended is no excuse"


def test_room_that_was_free_before_is_no_overcommitment() -> None:
    history = History().add(node_seen(), seen("a", node="n"))
    history.add(seen("a", node="n"), deleted=True).add(seen("b", node="n"))
    assert history.verdict().overcommitted == ()


def test_a_victim_that_its_preemptor_needs_is_no_fault() -> None:
    history = History().add(node_seen(), victim(), preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim())).add(victim(), deleted=True)
    verdict = history.add(preemptor(node="n")).verdict()
    assert verdict.faults == []
    assert verdict.evicted == 1


def test_a_victim_that_leaves_for_nobody_is_needless() -> None:
    history = History().add(node_seen(), victim()).later(60).add(marked(victim()))
    assert len(history.verdict().needless) == 1


def test_a_victim_beside_which_its_preemptor_fitted_all_along_is_needless() -> None:
    history = History().add(node_seen(cpu=2000), victim(), preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim()), preemptor(node="n"))
    assert len(history.verdict().needless) == 1


def test_one_victim_more_than_needed_is_needless() -> None:
    two = victim(500, "low-1"), victim(500, "low-2")
    smaller = seen("high", 500, priority=10, nominated="n")
    history = History().add(node_seen(), *two).later(60).add(smaller, *map(marked, two))
    history.add(*two, deleted=True).add(seen("high", 500, priority=10, node="n"))
    assert len(history.verdict().needless) == 2, "either would have been enough"


def test_several_victims_that_are_all_needed_are_no_fault() -> None:
    two = victim(500, "low-1"), victim(500, "low-2")
    history = History().add(node_seen(), *two).later(60).add(preemptor(nominated="n"))
    history.add(*map(marked, two)).add(*two, deleted=True).add(preemptor(node="n"))
    assert history.verdict().faults == []


def test_a_preemptor_that_is_nominated_there_again_later_needed_its_victims_at_first() -> None:
    history = History().add(node_seen(), victim(), preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim()), preemptor()).later(40)
    history.add(preemptor(nominated="n")).add(victim(), deleted=True).add(preemptor(node="n"))
    assert history.verdict().needless == ()


def test_a_mark_alone_is_no_eviction() -> None:
    history = History().add(node_seen(), victim()).later(60).add(marked(victim(), leaving=False))
    verdict = history.verdict()
    assert (verdict.faults, verdict.evicted) == ([], 0)


def test_a_victim_that_was_marked_for_one_preemption_may_leave_for_another() -> None:
    history = History().add(node_seen(), victim()).later(60).add(marked(victim(), leaving=False))
    history.add(preemptor()).later(60).add(preemptor(nominated="n"), marked(victim()))
    assert history.add(preemptor(node="n")).verdict().needless == ()


@pytest.mark.parametrize("said", ["nothing", "nomination", "event"])
def test_a_preemption_that_was_abandoned_is_known_by_what_was_to_be_written(said: str) -> None:
    """One of its two victims has left, the other has not even been marked."""
    lows = [victim(500, f"low-{number}") for number in range(2)]
    history = History().add(node_seen(), *lows, preemptor()).later(60).add(marked(lows[0]))
    written: dict[str, dict[str, str]] = {
        "nothing": {},
        "nomination": {"uid": "high", "nominated": "n"},
        "event": {"victim": "low-0", "preemptor": "high"},
    }
    journal = [write("/status", history.now, 503, **written[said])]
    assert bool(history.verdict(one=journal).needless) == (said == "nothing")


def test_a_victim_is_needless_where_another_node_was_free_all_along() -> None:
    history = History().add(node_seen(), node_seen("free"), victim(), preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim()), preemptor(node="n"))
    assert len(history.verdict().needless) == 1


def test_a_victim_is_not_needless_if_room_came_only_shortly_before() -> None:
    history = History().add(node_seen(), node_seen("m"), victim(), seen("x", node="m")).later(60)
    history.add(seen("x", node="m"), deleted=True)
    history.add(preemptor(nominated="n"), marked(victim()), preemptor(node="n"))
    assert history.verdict().needless == ()


def test_room_that_is_made_elsewhere_later_was_no_room() -> None:
    far = seen("far", node="m")
    history = History().add(node_seen(), node_seen("m"), victim(), far, preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim()), preemptor(node="n")).later(60)
    second = seen("second", priority=10, nominated="m")
    history.add(second, marked(far)).add(far, deleted=True)
    assert history.add(seen("second", priority=10, node="m")).verdict().needless == ()


def test_a_write_after_the_lease_was_anothers_is_told() -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/x/leases/mooring"
    history = History().add(LeaseSeen("mooring", "l", "one")).later(10)
    history.add(LeaseSeen("mooring", "l", "two"))
    before, after = history.now - 5, history.now + 5
    leads = write(lease, LONG_AGO, holder="one")
    in_time, late = write("/pods/a", before), write("/pods/b", after)
    assert history.verdict(one=[leads, in_time]).unauthorised == ()
    assert len(history.verdict(one=[leads, in_time, late]).unauthorised) == 1
    never_sent = write("/pods/b", after, None)
    assert history.verdict(one=[leads, never_sent]).unauthorised == ()


def test_a_write_by_who_has_just_taken_the_lease_is_not_told() -> None:
    """The auditor saw the lease change only afterwards."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/x/leases/mooring"
    history = History().add(LeaseSeen("mooring", "l", "one")).later(10)
    takes, early = history.now - 3, history.now - 2
    history.add(LeaseSeen("mooring", "l", "two"))
    asked = write(lease, takes, holder="two")
    assert history.verdict(two=[asked, write("/pods/a", early)]).unauthorised == ()
    refused = write(lease, takes, 409, holder="two")
    assert len(history.verdict(two=[refused, write("/pods/a", early)]).unauthorised) == 1
    refused = write(lease, LONG_AGO, 409, holder="two")
    journal = [refused, write("/pods/a", takes - 1), asked]
    assert len(history.verdict(two=journal).unauthorised) == 1
    held_up = {**asked, "received": takes - 2, "at": takes}
    journal = [held_up, write("/pods/a", takes - 1), write("/pods/b", early)]
    assert len(history.verdict(two=journal).unauthorised) == 1


def test_a_replica_without_the_lease_may_ask_who_reads_its_endpoints() -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/x/leases/mooring"
    history = History().add(LeaseSeen("mooring", "l", "one")).later(10)
    leads = write(lease, LONG_AGO, holder="one")
    asks = write("/apis/authorization.k8s.io/v1/subjectaccessreviews", history.now, 201)
    assert history.verdict(one=[leads], two=[asks]).unauthorised == ()


def test_a_stall_is_the_longest_time_without_a_binding_while_a_pod_waits() -> None:
    history = History().add(node_seen(), seen("a"))
    begun = history.now
    history.later(9.0).add(seen("a", node="n"))
    verdict = history.verdict()
    assert verdict.longest_stall(LONG_AGO, history.now + 100) == pytest.approx(10.0)
    assert verdict.longest_stall(begun + 4, history.now) == pytest.approx(6.0)


def test_a_wait_ends_with_the_last_binding_also_right_after_another_event() -> None:
    history = History().add(node_seen(), seen("a")).later(8.9).add(node_seen("m", cpu=500))
    bound = Seen(len(history.events), history.now + 0.1, seen("a", node="n"), deleted=False)
    history.events.append(bound)
    history.later(60.0).add(node_seen("m", cpu=600))
    assert history.verdict().longest_stall(LONG_AGO, history.now) == pytest.approx(10.0)


def gpu_node_seen() -> NodeSeen:
    """Return a node with two cards of 16."""
    others = ((GPU_COUNT, 2), (GPU_MEMORY, 32))
    return NodeSeen("n", "n", Amount(1000, 10**9, 10, others))


def share(name: str, memory: int, card: int | None, **fields: Any) -> PodSeen:
    """Return a pod on the node, with this much memory of a card if there is one."""
    need = Amount(1, 0, 1, ((GPU_MEMORY, memory),))
    cards = ((card, memory),) if card is not None else ()
    key = f"ns/{name}"
    return PodSeen(key, name, need, node="n", cards=cards, wants_cards=True, **fields)


def test_a_card_that_is_given_twice_is_overcommitted_though_its_node_is_not() -> None:
    history = History().add(gpu_node_seen(), share("a", 10, 1), share("b", 6, 1))
    assert history.verdict().faults == []
    [fault] = history.add(share("c", 1, 1)).verdict().faults
    assert fault == "overcommitted: card 1 of n after ns/c (c): 17 of 16"


def test_extended_resources_are_overcommitted_like_others() -> None:
    history = History().add(gpu_node_seen(), share("a", 16, 0), share("b", 16, 1))
    history.add(share("a", 16, 0), share("c", 4, None))
    [(_, text)] = history.verdict().overcommitted
    assert text.startswith("n after ns/c (c): ")


def test_a_pod_that_is_bound_without_its_card_is_a_fault() -> None:
    verdict = History().add(gpu_node_seen(), share("a", 10, None)).verdict()
    assert verdict.faults == ["without its card: ns/a on n"]


def test_a_pod_with_a_constraint_that_the_auditor_does_not_know_is_not_lost() -> None:
    history = History().add(node_seen(), seen("a", constrained=True))
    assert history.verdict().faults == []
    assert placeable(history.events) == []


def test_a_pod_whose_only_victims_are_protected_is_not_lost() -> None:
    protected = seen("low", node="n", protected=True)
    assert History().add(node_seen(), protected, preemptor()).verdict().lost == ()


def test_a_list_after_a_gap_shows_the_end_of_a_pod_whose_name_has_returned() -> None:
    before = PodSeen("ns/web-0", "u1", Amount(1000), node="n")
    after = PodSeen("ns/web-0", "u2", Amount(1000), node="n")
    changes = list(relisted({"u1": before}, {7: after}, since=5))
    assert changes == [(5, before, True), (7, after, False)]
    assert list(relisted({"u2": after}, {7: after}, since=7)) == []


METRICS = """# TYPE scheduler_cache_size gauge
scheduler_cache_size{type="nodes"} 1.0
scheduler_cache_size{type="pods"} 1.0
scheduler_cache_size{type="assumed_pods"} 0.0
scheduler_pending_pods{queue="active"} 0.0
scheduler_pending_pods{queue="unschedulable"} 1.0
mooring_bindings_in_flight 0.0
"""


@pytest.fixture
def clean(control_plane: ControlPlane, namespace: str) -> Callable[..., None]:
    """Return what creates a bound and a pending pod, and a node, in the shared control plane."""

    def create() -> None:
        with control_plane.access.client() as client:
            create_nodes(control_plane.access, 1)
            create_pods(client, namespace, pod("bound", nodeName="node-1"), pod("pending"))

    return create


def test_books_are_those_of_the_api_server(
    control_plane: ControlPlane, namespace: str, clean: Callable[..., None]
) -> None:
    with control_plane.access.client() as client, Books(control_plane.access) as books:
        clean()
        assert differences(read_metrics(METRICS), client) == []
        delete_now(client, namespace, "bound")
        left = {"pending": 1, "nodes": 1, "bound": 0}
        eventually(lambda: counts(books.seen), lambda now: now == left, "one pod left")
        assert len(differences(read_metrics(METRICS), client)) == 1
    delete_nodes(control_plane.access)


def test_an_eviction_that_the_auditor_saw_late_was_not_after_what_it_saw_earlier() -> None:
    """The thread that reads pods may be late while that of nodes is not."""
    history = History().add(node_seen("n"), victim(), preemptor()).later(60)
    history.add(preemptor(nominated="n"), marked(victim()))
    evicted = len(history.events)
    history.later(1).add(node_seen("m")).later(5)
    assert history.verdict().needless == ()
    for index in (evicted - 2, evicted - 1):
        history.events[index] = replace(history.events[index], at=history.now + 40)
    assert history.verdict().needless == ()


def claim_seen(name: str, *devices: str, used_by: tuple[str, ...] = ()) -> ClaimSeen:
    consumers = tuple((pod, pod) for pod in used_by)
    return ClaimSeen(f"ns/{name}", name, bool(devices), devices, consumers)


def with_claim(name: str, claim: str = "c", **fields: Any) -> PodSeen:
    return seen(name, constrained=True, claims=(claim,), **fields)


def test_a_device_of_two_claims_at_once_is_a_fault_and_one_after_the_other_is_not() -> None:
    history = History().add(node_seen(), with_claim("a"), claim_seen("c", "d0", used_by=("a",)))
    history.add(claim_seen("c"), claim_seen("other", "d0", used_by=("a",)))
    assert history.verdict().devices == ()
    history.add(claim_seen("third", "d0", used_by=("a",)))
    (found,) = history.verdict().devices
    assert found[1] == "d0 is allocated to ns/third, and to ns/other already"
    assert history.verdict().faults == [f"devices: {found[1]}"]


@pytest.mark.parametrize("claim", [claim_seen("c"), claim_seen("c", "d0", used_by=("b",))])
def test_a_pod_that_is_bound_before_its_claim_is_reserved_for_it_is_a_fault(
    claim: ClaimSeen,
) -> None:
    history = History().add(node_seen(), with_claim("b", "other"), with_claim("a"), claim)
    history.add(with_claim("a", node="n"), claim_seen("c", "d0", used_by=("a",)))
    (found,) = history.verdict().devices
    assert found[1] == "ns/a is on n, and its claim c is not reserved for it"


def test_a_claim_that_is_reserved_for_a_pod_that_is_gone_is_left_behind() -> None:
    history = History().add(with_claim("a", node="n"), claim_seen("c", "d0", used_by=("a",)))
    assert left_devices(history.events) == []
    history.add(with_claim("a", node="n"), deleted=True)
    (found,) = left_devices(history.events)
    assert found == "ns/c is reserved for a, which does not exist"


def test_an_allocated_claim_is_left_behind_unless_a_pod_waits_that_uses_it() -> None:
    history = History().add(with_claim("a"), claim_seen("c", "d0"))
    assert left_devices(history.events) == []
    history.add(with_claim("a", finished=True))
    assert left_devices(history.events) == ["ns/c is allocated, and no pod uses it"]
    history.add(claim_seen("c", "d0"), deleted=True)
    assert left_devices(history.events) == []


def test_claims_are_read_as_the_api_has_them() -> None:
    common = {"driver": "gpu", "pool": "n", "request": "r"}
    results = [
        {**common, "device": "d0"},
        {**common, "device": "d1", "adminAccess": True},
        {**common, "device": "d2", "shareID": "s"},
    ]
    consumers = [
        {"resource": "pods", "name": "a", "uid": "u"},
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "v"},
    ]
    metadata = {"namespace": "default", "name": "c", "uid": "c"}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": consumers}
    found = ClaimSeen.read({"metadata": metadata, "status": status})
    assert found == ClaimSeen(
        "default/c", "c", allocated=True, devices=("gpu/n/d0",), consumers=(("a", "u"),)
    )
    entries = [{"name": "x", "resourceClaimName": "c"}, {"name": "y"}]
    made = {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}, {"name": "z"}]}
    assert claims_of({"spec": {"resourceClaims": entries}, "status": made}) == ("c", "made")
