"""The reflectors' feed, parsed and put into the state."""

import logging
from typing import Any

import pytest

from mooring.kube.resources import NODE, POD, SERVICE
from mooring.mirroring.mirror import MIRRORED, MIRRORED_IF_SERVED, Mirror
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.state.cluster import ClusterState
from mooring.testing.builders import node, pod, service


class Mirrored:
    """A state, the mirror that fills it, and what others hear of it."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.heard: list[ClusterEvent] = []
        self.state.on_events(self.heard.extend)
        self.mirror = Mirror(self.state)

    def nodes(self) -> set[str]:
        return {known.name for known in self.state.nodes.nodes if known is not None}

    def actions(self) -> list[Action]:
        """What was heard since the last time."""
        actions = [change.action for change in self.heard]
        self.heard.clear()
        return actions


@pytest.fixture
def mirrored() -> Mirrored:
    return Mirrored()


def malformed(name: str) -> dict[str, Any]:
    return node(name, cpu="four")


def incarnation(uid: str, on: str = "a") -> dict[str, Any]:
    """A pod of the one name with this uid."""
    raw = pod("web", node=on)
    raw["metadata"]["uid"] = uid
    return raw


def test_every_kind_a_decision_reads_is_mirrored_but_those_that_kopf_shows() -> None:
    mirrored = {*MIRRORED.values(), *MIRRORED_IF_SERVED.values()}
    assert mirrored == set(Kind) - {Kind.PRIORITY_CLASS, Kind.UNSCHEDULED_POD}
    assert all(resource.kind == kind.value for resource, kind in MIRRORED.items())


def test_a_relist_replaces_everything_that_was_known_of_the_resource(mirrored: Mirrored) -> None:
    mirrored.mirror.replace(SERVICE, [service("front", {"app": "web"})])
    mirrored.mirror.replace(NODE, [node("a"), node("b")])
    mirrored.actions()
    mirrored.mirror.replace(NODE, [node("b", cpu="8"), node("c")])
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
    mirrored.mirror.replace(NODE, [node("a"), node("b")])
    with caplog.at_level(logging.WARNING):
        mirrored.mirror.replace(NODE, [malformed("a"), malformed("new"), node("c")])
    assert mirrored.nodes() == {"a", "c"}
    assert len(caplog.messages) == 2


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
