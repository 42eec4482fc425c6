"""Nominated pods by row."""

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.state.nominations import Nominations
from mooring.state.pod_columns import PodColumns
from mooring.testing.builders import cluster, node, pod


def test_a_pod_is_nominated_to_one_row_at_a_time() -> None:
    nominations = Nominations(PodColumns())
    hoping = parse_pod(pod("hoping", priority=10))
    nominations.put(hoping, 1)
    nominations.put(hoping, 2)
    assert (len(nominations), nominations.rows()) == (1, [2])


def test_only_others_of_at_least_the_priority_count() -> None:
    nominations = Nominations(PodColumns())
    for name, priority in (("low", 1), ("equal", 5), ("high", 9)):
        nominations.put(parse_pod(pod(name, priority=priority)), 3)
    assert [p.name for p in nominations.at(3, 5, "default/high")] == ["equal"]


def test_those_of_lower_priority_are_found_by_their_row() -> None:
    nominations = Nominations(PodColumns())
    for name, priority in (("low", 1), ("equal", 5), ("high", 9)):
        nominations.put(parse_pod(pod(name, priority=priority)), 3)
    assert [p.name for p in nominations.below(3, 5)] == ["low"]
    assert nominations.below(4, 5) == []
    assert nominations.below(None, 5) == []


def test_a_dropped_nomination_leaves_nothing_behind() -> None:
    columns = PodColumns()
    nominations = Nominations(columns)
    nominations.put(parse_pod(pod("hoping", cpu="1")), 0)
    assert nominations.drop("default/hoping") is not None
    assert nominations.drop("default/hoping") is None
    assert nominations.rows() == []
    assert columns.rows.tolist() == [-1]


def test_an_assumed_pod_is_nominated_no_more() -> None:
    state = cluster(node("n1"))
    hoping = parse_pod(pod("hoping"))
    state.nominate(hoping, "n1")
    state.assume(hoping, state.nodes.row_of["n1"])
    assert len(state.nominations) == 0


def test_nobody_is_nominated_to_a_node_that_is_not_there() -> None:
    state = cluster(node("n1"))
    hoping = parse_pod(pod("hoping"))
    state.nominate(hoping, "elsewhere")
    assert len(state.nominations) == 0
    state.nominate(hoping, "n1")
    state.delete(Kind.NODE, "n1")
    assert len(state.nominations) == 0


def test_a_withdrawn_nomination_is_told_as_room_that_became_free() -> None:
    state = cluster(node("n1"))
    state.nominate(parse_pod(pod("hoping")), "n1")
    heard: list[ClusterEvent] = []
    state.on_events(heard.extend)
    for _ in range(2):
        state.withdraw("default/hoping")
    (change,) = heard
    assert isinstance(change.before, Pod)
    assert (change.action, change.before.nominated_node) == (Action.DELETE, "n1")
