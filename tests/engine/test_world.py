"""What the engine's parts share."""

from dataclasses import FrozenInstanceError

import pytest

from mooring.engine.cures import Cures
from mooring.engine.order import QueueOrder
from mooring.engine.profiles import Profiles
from mooring.engine.world import World
from mooring.framework.registry import Registry
from mooring.framework.waiting import WaitingRoom
from mooring.model.changes import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.plugins import SHIPPED
from mooring.state.queue import SchedulingQueue
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle


def world() -> World:
    """A world of one node, in which nothing happened yet."""
    state = cluster(node("a"))
    snapshot = Snapshot(state)
    profiles = Profiles(Registry(SHIPPED, {}), handle(state))
    cures = Cures(profiles, snapshot)
    queue = SchedulingQueue(QueueOrder(profiles, snapshot).of, cures.signature, cures.may_cure)
    return World(state, snapshot, queue, profiles, WaitingRoom())


def test_no_part_can_be_exchanged_under_those_who_share_it() -> None:
    with pytest.raises(FrozenInstanceError):
        world().waiting = WaitingRoom()  # type: ignore[misc]  # the assignment must fail


def test_a_new_world_has_no_pods_that_nobody_takes_and_no_binding_to_call_off() -> None:
    first, second = world(), world()
    nobodys = parse_pod(pod("web"))
    first.unclaimed[nobodys.key] = nobodys
    first.preparing[nobodys.uid] = nobodys.key.upper
    assert second.unclaimed == {}
    assert second.preparing == {}


def test_what_decisions_read_is_what_the_engine_changes() -> None:
    shared = world()
    shared.state.put(Kind.NODE, "b", parse_node(node("b")))
    assert shared.cluster.node_count == 2
