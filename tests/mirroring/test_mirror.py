"""Parses the objects of reflectors, and puts them into the state."""

import logging
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from device_builders import (
    DRIVER,
    allocated,
    device_claim,
    device_class,
    device_taint_rule,
    resource_slice,
)
from driving import driven
from mooring.claims.model.resource_claims import DeviceId
from mooring.kube.api_resources import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE_V1BETA2,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SERVICE,
    Resource,
)
from mooring.mirroring.mirror import MIRRORED, MIRRORED_IF_SERVED, Mirror
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import parse_pod
from mooring.pausing import Work
from mooring.state.cluster import ClusterState
from mooring.testing.builders import node, pod, service
from relists import relisted


class Mirrored:
    """A state, the mirror that fills it, and the events of the state."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.heard: list[ClusterEvent] = []
        self.state.on_events(self.heard.extend)
        self.mirror = Mirror(self.state)

    def relisted(self, resource: Resource, raws: list[dict[str, Any]]) -> None:
        """Replace the objects of the resource by this list."""
        relisted(self.mirror, resource, raws)

    def nodes(self) -> set[str]:
        return {known.name for known in self.state.nodes.nodes if known is not None}

    def actions(self) -> list[Action]:
        """Return the actions of all events since the last call."""
        actions = [change.action for change in self.heard]
        self.heard.clear()
        return actions


@pytest.fixture
def mirrored() -> Mirrored:
    return Mirrored()


def malformed(name: str) -> dict[str, Any]:
    return node(name, cpu="four")


def incarnation(uid: str, on: str = "a") -> dict[str, Any]:
    raw = pod("web", node=on or None, cpu="1")
    raw["metadata"]["uid"] = uid
    return raw


def test_every_kind_a_decision_reads_is_mirrored_but_those_that_kopf_shows() -> None:
    mirrored = {*MIRRORED.values(), *MIRRORED_IF_SERVED.values()}
    assert mirrored == set(Kind) - {Kind.PRIORITY_CLASS, Kind.UNSCHEDULED_POD}
    assert all(resource.kind == kind.value for resource, kind in MIRRORED.items())


def test_a_relist_replaces_everything_that_was_known_of_the_resource(mirrored: Mirrored) -> None:
    mirrored.relisted(SERVICE, [service("front", {"app": "web"})])
    mirrored.relisted(NODE, [node("a"), node("b")])
    mirrored.actions()
    mirrored.relisted(NODE, [node("b", cpu="8"), node("c")])
    assert mirrored.nodes() == {"b", "c"}
    assert sorted(mirrored.actions()) == [Action.ADD, Action.DELETE, Action.UPDATE]
    assert mirrored.state.known(Kind.SERVICE, "default/front") is not None


def test_events_add_change_and_delete_one_object(mirrored: Mirrored) -> None:
    mirrored.mirror.apply(NODE, "ADDED", node("a"))
    mirrored.mirror.apply(NODE, "MODIFIED", node("a", unschedulable=True))
    changed = mirrored.state.known(Kind.NODE, "a")
    assert changed is not None
    assert changed.unschedulable
    mirrored.mirror.apply(NODE, "DELETED", node("a"))
    assert mirrored.nodes() == set()
    assert mirrored.actions() == [Action.ADD, Action.UPDATE, Action.DELETE]


def test_the_time_that_each_event_takes_is_told() -> None:
    now = 0.0
    handled: list[tuple[str, float]] = []

    def clock() -> float:
        return now

    def slowly(_events: tuple[ClusterEvent, ...]) -> None:
        nonlocal now
        now += 2.0

    state = ClusterState()
    state.on_events(slowly)
    mirror = Mirror(state, handled=lambda *told: handled.append(told), clock=clock)
    mirror.apply(NODE, "ADDED", node("a"))
    mirror.apply(NODE, "MODIFIED", node("a", unschedulable=True))
    mirror.apply(POD, "ADDED", pod("web", node="a"))
    mirror.apply(POD, "DELETED", pod("web", node="a"))
    events = ["NodeAdd", "NodeUpdate", "AssignedPodAdd", "AssignedPodDelete"]
    assert handled == [(event, 2.0) for event in events]


def test_the_time_in_which_others_run_while_a_pod_is_taken_over_is_not_told() -> None:
    now = 0.0
    handled: list[tuple[str, float]] = []
    mirror = Mirror(ClusterState(), handled=lambda *told: handled.append(told), clock=lambda: now)

    def others() -> None:
        nonlocal now
        now += 5.0

    driven(partial(mirror.apply, POD, "ADDED", pod("web", node="a")), others, lambda: now)
    assert (now, handled) == (10.0, [("AssignedPodAdd", 0.0)])


def pauses(call: Callable[[], object]) -> int:
    return driven(call)[1]


MEANWHILE: dict[str, Callable[[Mirrored], object]] = {
    "its node comes": lambda m: m.mirror.apply(NODE, "ADDED", node("b")),
    "its node goes": lambda m: m.mirror.apply(NODE, "DELETED", node("a")),
    "all nodes are listed again": lambda m: m.relisted(NODE, [node("a", cpu="2")]),
    "it is assumed on another node": lambda m: m.state.assume(parse_pod(incarnation("1", "")), 1),
    "what was assumed is forgotten": lambda m: m.state.forget(parse_pod(incarnation("2", ""))),
    "the end of its predecessor": lambda m: m.mirror.apply(POD, "DELETED", incarnation("0")),
    "the server is of another version": lambda m: m.state.follow_server("1.34"),
}


def books(mirrored: Mirrored) -> dict[str, tuple[int, set[str]]]:
    """Return, by node, the requested cpu and the uids of the node's pods."""
    state = mirrored.state
    return {
        name: (
            state.nodes.requested.at("cpu", row),
            {placed.pod.uid for placed in state.pods if placed.row == row},
        )
        for row, name in enumerate(state.nodes.names)
    }


NUMBERS = count()


def large(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with 3,000 new tolerations, so that parsing takes many steps."""
    unknown = next(NUMBERS)
    raw["spec"]["tolerations"] = [{"key": f"key-{unknown}-{n}"} for n in range(3000)]
    return raw


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("on", ["a", "b"])
@pytest.mark.parametrize("size", ["ordinary", "large"])
def test_what_happens_while_a_pod_is_taken_over_is_as_if_its_watch_told_of_it_later(
    size: str, on: str, what: str
) -> None:
    found = []
    for pauses_before in (0, 1, 12) if size == "large" else (0, 1):
        mirrored = Mirrored()
        mirrored.relisted(NODE, [node("a"), node("c")])
        mirrored.relisted(POD, [incarnation("0")])
        mirrored.state.assume(parse_pod(incarnation("2", "")), 1)
        raw = incarnation("1", on)
        raw = large(raw) if size == "large" else raw
        with Work(partial(mirrored.mirror.apply, POD, "ADDED", raw)) as work:
            for _ in range(pauses_before):
                assert not work.advance()
                assert "1" not in {placed.pod.uid for placed in mirrored.state.pods}
            MEANWHILE[what](mirrored)
            while not work.advance():
                pass
            work.result()
        found.append((books(mirrored), [change.label for change in mirrored.heard]))
        assert "1" in {placed.pod.uid for placed in mirrored.state.pods}
    assert found[1:] == found[:-1]


def test_a_list_with_a_large_pod_is_read_in_several_steps(mirrored: Mirrored) -> None:
    mirrored.relisted(NODE, [node("a")])
    relist = mirrored.mirror.relist(POD)
    assert pauses(partial(relist.add, large(incarnation("1")))) > 10
    assert pauses(relist.apply) > 0
    assert {placed.pod.uid for placed in mirrored.state.pods} == {"1"}


def test_a_claim_is_taken_over_at_once_because_it_may_be_malformed(mirrored: Mirrored) -> None:
    claim = device_claim("train")
    assert pauses(partial(mirrored.mirror.apply, RESOURCE_CLAIM, "ADDED", claim)) == 0


def test_a_malformed_object_is_logged_and_leaves_what_was_known(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored.mirror.apply(NODE, "ADDED", node("a", cpu="2"))
    known = mirrored.state.known(Kind.NODE, "a")
    with caplog.at_level(logging.WARNING):
        mirrored.mirror.apply(NODE, "MODIFIED", malformed("a"))
    assert mirrored.state.known(Kind.NODE, "a") is known
    assert mirrored.actions() == [Action.ADD]
    (line,) = caplog.messages
    assert "Node a" in line
    assert "cpu" in line


def test_a_malformed_object_in_a_relist_holds_up_nothing_else(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored.relisted(NODE, [node("a"), node("b")])
    with caplog.at_level(logging.WARNING):
        mirrored.relisted(NODE, [malformed("a"), malformed("new"), node("c")])
    assert mirrored.nodes() == {"a", "c"}
    assert len(caplog.messages) == 2


def test_what_is_deleted_before_a_list_is_complete_is_gone(mirrored: Mirrored) -> None:
    mirrored.relisted(NODE, [node("a"), node("b")])
    relist = mirrored.mirror.relist(NODE)
    for name in ("a", "b"):
        relist.add(node(name))
    relist.remove(node("b"))
    assert mirrored.nodes() == {"a", "b"}
    relist.apply()
    assert mirrored.nodes() == {"a"}


def test_a_list_that_breaks_off_changes_nothing(mirrored: Mirrored) -> None:
    mirrored.relisted(NODE, [node("a")])
    mirrored.mirror.relist(NODE).add(node("b"))
    assert mirrored.nodes() == {"a"}


def test_a_list_that_is_begun_anew_while_one_is_taken_over_has_the_last_word(
    mirrored: Mirrored,
) -> None:
    mirrored.relisted(NODE, [node("a")])
    first = mirrored.mirror.relist(NODE)
    first.add(node("b"))
    with Work(first.apply) as work:
        work.advance()
        assert mirrored.nodes() == {"a", "b"}
        mirrored.relisted(NODE, [node("c")])
    assert mirrored.nodes() == {"c"}


def test_an_object_that_becomes_malformed_while_it_is_listed_stays_as_it_was_listed(
    mirrored: Mirrored,
) -> None:
    mirrored.relisted(NODE, [node("a", cpu="2"), malformed("a")])
    assert mirrored.nodes() == {"a"}


def test_a_list_keeps_nothing_of_the_json(mirrored: Mirrored) -> None:
    """The JSON of 150,000 pods takes two gigabytes."""

    class Raw(dict[str, Any]):
        """A dict to which weak references are possible."""

    raw = Raw(node("a"))
    gone = weakref.ref(raw)
    relist = mirrored.mirror.relist(NODE)
    relist.add(raw)
    del raw
    assert gone() is None
    relist.apply()
    assert mirrored.nodes() == {"a"}


def test_a_pod_that_has_not_changed_is_not_kept_twice_while_it_is_listed(
    mirrored: Mirrored,
) -> None:
    web, other = pod("web", node="a"), pod("other", node="a")
    mirrored.relisted(POD, [web, other])
    before = {placed.pod.name: placed.pod for placed in mirrored.state.pods}
    mirrored.relisted(POD, [web, pod("other", node="a", labels={"new": "yes"})])
    after = {placed.pod.name: placed.pod for placed in mirrored.state.pods}
    assert after["web"] is before["web"]
    assert after["other"].labels == {"new": "yes"}


def test_the_end_of_a_predecessor_leaves_its_successor_in_place(mirrored: Mirrored) -> None:
    mirrored.mirror.apply(NODE, "ADDED", node("a"))
    mirrored.mirror.apply(POD, "ADDED", incarnation("second"))
    mirrored.actions()
    mirrored.mirror.apply(POD, "DELETED", incarnation("first"))
    successor = mirrored.state.known(Kind.POD, "second")
    assert successor is not None
    assert successor.uid == "second"
    assert mirrored.actions() == []
    mirrored.mirror.apply(POD, "DELETED", incarnation("second"))
    assert mirrored.state.known(Kind.POD, "second") is None


def test_a_list_makes_those_overdue_that_were_bound_before_it_was_asked_for_and_are_not_in_it(
    mirrored: Mirrored,
) -> None:
    mirrored.mirror.apply(NODE, "ADDED", node("a"))
    before, binding, late = (parse_pod(pod(name)) for name in ("before", "binding", "late"))
    for waiting in (before, binding):
        mirrored.state.assume(waiting, 0)
    mirrored.state.expect_confirmation(before, 60.0)
    relist = mirrored.mirror.relist(POD)
    relist.add(pod("other", node="a"))
    mirrored.state.assume(late, 0)
    mirrored.state.expect_confirmation(late, 60.0)
    relist.apply()
    assert [overdue.name for overdue in mirrored.state.overdue(0.0)] == ["before"]


def test_devices_are_in_use_as_claims_come_and_go_with_their_watch(mirrored: Mirrored) -> None:
    taken = device_claim("train", allocation=allocated("d0", node="a"))
    mirrored.relisted(RESOURCE_CLAIM, [taken, device_claim("idle")])
    in_use = mirrored.state.dynamic_resources.claims.allocated.dedicated
    assert [device.device for device in in_use] == ["d0"]
    mirrored.mirror.apply(RESOURCE_CLAIM, "DELETED", taken)
    assert not in_use


def broken(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the claim with a malformed allocation."""
    claim["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"memory": "lots"}
    return claim


def test_the_devices_of_a_claim_that_cannot_be_read_stay_in_use(mirrored: Mirrored) -> None:
    """Neither the devices that it names nor its earlier devices may be allocated twice."""
    in_use = mirrored.state.dynamic_resources.claims.allocated.dedicated
    mirrored.relisted(RESOURCE_CLAIM, [broken(device_claim("new", allocation=allocated("d0")))])
    assert {device.device for device in in_use} == {"d0"}
    mirrored.mirror.apply(RESOURCE_CLAIM, "ADDED", device_claim("idle"))
    taken = broken(device_claim("idle", allocation=allocated("d1")))
    mirrored.mirror.apply(RESOURCE_CLAIM, "MODIFIED", taken)
    assert {device.device for device in in_use} == {"d0", "d1"}
    nothing_said = device_claim("idle")
    nothing_said["status"] = {"allocation": {"devices": {"results": "d2"}}}
    mirrored.mirror.apply(RESOURCE_CLAIM, "MODIFIED", nothing_said)
    assert {device.device for device in in_use} == {"d0", "d1"}
    mirrored.mirror.apply(RESOURCE_CLAIM, "MODIFIED", device_claim("idle"))
    mirrored.mirror.apply(RESOURCE_CLAIM, "DELETED", device_claim("new"))
    assert not in_use


def test_a_claim_that_cannot_be_read_is_logged_once_while_the_reason_is_the_same(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    for version in range(3):
        raw = broken(device_claim(version=version, allocation=allocated("d0")))
        mirrored.mirror.apply(RESOURCE_CLAIM, "MODIFIED", raw)
    (known,) = mirrored.state.dynamic_resources.claims.allocated.holders(
        DeviceId(DRIVER, "pool", "d0")
    )
    claim = mirrored.state.dynamic_resources.claims.of_uid(known)
    assert claim is not None
    assert claim.allocation is not None
    assert len(claim.allocation.results) == 1
    (line,) = caplog.messages
    assert line.startswith(
        "a claim cannot be read, and its devices stay in use: ResourceClaim default/claim "
        "status.allocation.devices.results[0].consumedCapacity.memory: "
    )


def test_slices_have_the_taints_of_rules_of_whatever_version(mirrored: Mirrored) -> None:
    mirrored.relisted(RESOURCE_SLICE, [resource_slice("s", ["d0", "d1"], node="a")])
    mirrored.relisted(DEVICE_CLASS, [device_class("gpu")])
    rule = device_taint_rule("sick", "sick:NoSchedule", device="d1")
    mirrored.mirror.apply(DEVICE_TAINT_RULE_V1BETA2, "ADDED", rule)
    (found,) = mirrored.state.dynamic_resources.slices.all()
    assert [len(device.taints) for device in found.devices] == [0, 1]
    assert mirrored.state.dynamic_resources.classes.get("gpu") is not None


def test_a_malformed_slice_leaves_the_devices_that_were_known(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored.relisted(RESOURCE_SLICE, [resource_slice("s", ["d0"], node="a")])
    broken = resource_slice("s", [{"name": "d0", "capacity": {"memory": {"value": "lots"}}}])
    mirrored.mirror.apply(RESOURCE_SLICE, "MODIFIED", broken)
    (found,) = mirrored.state.dynamic_resources.slices.all()
    assert [device.name for device in found.devices] == ["d0"]
    assert "ResourceSlice s spec.devices[0].capacity.memory.value" in caplog.text
