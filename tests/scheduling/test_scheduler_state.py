"""The state that the parts of the engine share."""

from dataclasses import FrozenInstanceError

import pytest

from mooring.framework.waiting_pods import WaitingPods
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.scheduling.scheduler_state import (
    DeletedUids,
    SchedulerState,
    cache_sizes,
    configuration,
)
from mooring.testing.builders import node, pod
from scheduler_states import put_profile, scheduler_state


def one_node() -> SchedulerState:
    """Return a new scheduler state with one node."""
    return scheduler_state(node("a"))


def test_the_parts_of_the_scheduler_state_cannot_be_replaced() -> None:
    with pytest.raises(FrozenInstanceError):
        one_node().waiting = WaitingPods()  # type: ignore[misc]  # the assignment must fail


def test_a_new_state_has_no_pods_without_a_profile_and_no_binding_to_call_off() -> None:
    first, second = one_node(), scheduler_state()
    unmatched = parse_pod(pod("web"))
    first.without_profile[unmatched.uid] = unmatched
    first.in_pre_bind[unmatched.uid] = unmatched.key.upper
    assert second.without_profile == {}
    assert second.in_pre_bind == {}


def test_the_snapshot_of_decisions_shows_what_the_engine_writes() -> None:
    shared = one_node()
    shared.state.put(Kind.NODE, "b", parse_node(node("b")))
    assert shared.cluster.node_count == 2


def test_assumed_pods_are_counted_among_the_pods_and_by_themselves() -> None:
    shared = scheduler_state(node("a"), node("b"), pod("bound", node="a"))
    shared.state.assume(parse_pod(pod("assumed")), shared.state.nodes.row_of["b"])
    assert cache_sizes(shared) == {
        "nodes": 2,
        "pods": 2,
        "assumed_pods": 1,
        "pod_groups": 0,
    }


def test_the_configuration_is_that_in_force_with_its_defaults() -> None:
    shared = one_node()
    extenders = [{"urlPrefix": "http://gpu", "filterVerb": "filter"}]
    put_profile(shared, "team", percentageOfNodesToScore=50, extenders=extenders)
    [(name, policy)] = configuration(shared).items()
    assert name == "team"
    assert policy["schedulerNames"] == ["team"]
    assert policy["percentageOfNodesToScore"] == 50
    assert {"name": "NodeResourcesFit", "weight": 1} in policy["plugins"]["score"]
    assert [shown["urlPrefix"] for shown in policy["extenders"]] == ["http://gpu"]


def test_every_reader_is_told_what_has_gone_since_it_began_and_nothing_else() -> None:
    departures = DeletedUids()
    departures.note("before")
    with departures.meanwhile() as first:
        departures.note("early")
        with departures.meanwhile() as second:
            departures.note("late")
        departures.note("after the second")
        told = {uid: (uid in first, uid in second) for uid in ("before", "early", "late")}
        assert "after the second" in first
        assert "after the second" not in second
    departures.note("after both")
    assert told == {"before": (False, False), "early": (True, False), "late": (True, True)}
    assert "after both" not in first
