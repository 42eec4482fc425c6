"""Nominations by node row."""

import math
from datetime import UTC, datetime

from mooring.groups.model.pod_group import GroupKey, GroupSource, Reservation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.quota.state.queues import demand_of
from mooring.state.nominations import Nominations
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import NO_QUEUE, PodTable
from mooring.testing.builders import cluster, node, pod, uid_of


def reserved(priority: int = 1, backfill_until: float = -math.inf) -> Reservation:
    until = datetime(2026, 11, 28, 13, 12, 59, tzinfo=UTC).timestamp()
    key = GroupKey(GroupSource.KUBERNETES, "default", "g")
    return Reservation(key, until, priority, backfill_until)


def no_queue(_: Pod) -> int:
    return NO_QUEUE


def nominated(*priorities: int, row: int) -> Nominations:
    """Return nominations to this row of one pod per priority, named after the priority."""
    writer = Nominations(PodColumns(PodTable()), no_queue, demand_of)
    for priority in priorities:
        writer.put(parse_pod(pod(f"p{priority}", priority=priority)), row)
    return writer


def test_a_pod_is_nominated_to_one_row_at_a_time() -> None:
    writer = nominated(10, row=1)
    writer.put(parse_pod(pod("p10", priority=10)), 2)
    assert (len(writer), writer.rows()) == (1, [2])


def test_only_others_of_at_least_the_priority_count() -> None:
    nominations = nominated(1, 5, 9, row=3)
    assert [p.name for p in nominations.at(3, 5, uid_of("p9"))] == ["p5"]


def test_those_of_lower_priority_are_found_by_their_row() -> None:
    nominations = nominated(1, 5, 9, row=3)
    assert [p.name for p in nominations.below(3, 5)] == ["p1"]
    assert nominations.below(4, 5) == []
    assert nominations.below(None, 5) == []


def test_a_nominated_pod_has_the_priority_of_its_victims_if_that_is_higher() -> None:
    nominations = nominated(1, row=3)
    for evicted, priority in ((-7, 1), (4, 4)):
        nominations.put(parse_pod(pod("p1", priority=1)), 3, evicted=evicted)
        assert nominations.below(3, priority) == []
        assert [p.name for p in nominations.below(3, priority + 1)] == ["p1"]
        assert len(nominations.at(3, priority, None)) == 1
        assert nominations.at(3, priority + 1, None) == []


def test_a_dropped_nomination_leaves_nothing_behind() -> None:
    columns = PodColumns(PodTable())
    writer = Nominations(columns, no_queue, demand_of)
    writer.put(parse_pod(pod("new", cpu="1")), 0)
    assert writer.drop(uid_of("new")) is not None
    assert writer.drop(uid_of("new")) is None
    assert writer.rows() == []
    assert columns.rows.tolist() == [-1]


def test_an_assumed_pod_is_nominated_no_more() -> None:
    state = cluster(node("n1"))
    new = parse_pod(pod("new"))
    state.nominate(new, "n1")
    state.assume(new, state.nodes.row_of["n1"])
    assert len(state.nominations) == 0


def test_no_pod_is_nominated_to_a_node_that_does_not_exist() -> None:
    state = cluster(node("n1"))
    new = parse_pod(pod("new"))
    state.nominate(new, "elsewhere")
    assert len(state.nominations) == 0
    state.nominate(new, "n1")
    state.delete(Kind.NODE, "n1")
    assert len(state.nominations) == 0


def test_a_withdrawn_nomination_is_an_event_like_the_deletion_of_a_pod() -> None:
    state = cluster(node("n1"))
    state.nominate(parse_pod(pod("hoping")), "n1")
    heard: list[ClusterEvent] = []
    state.on_events(heard.extend)
    for _ in range(2):
        state.withdraw(uid_of("hoping"))
    (change,) = heard
    assert isinstance(change.before, Pod)
    assert (change.action, change.before.nominated_node) == (Action.DELETE, "n1")


def test_a_nominated_pod_does_not_count_for_one_that_ends_before_its_node_is_free() -> None:
    writer = Nominations(PodColumns(PodTable()), no_queue, demand_of)
    writer.put(parse_pod(pod("g0", priority=1)), 1, reserved(priority=1, backfill_until=100.0))
    assert [p.name for p in writer.at(1, 0, None, ends=101.0)] == ["g0"]
    assert writer.at(1, 0, None, ends=100.0) == []


def test_a_reservation_keeps_out_only_pods_of_lower_priority_than_the_group() -> None:
    writer = Nominations(columns := PodColumns(PodTable()), no_queue, demand_of)
    writer.put(parse_pod(pod("g0", cpu="1", priority=9)), 1, reserved(priority=5))
    for priority, kept in ((4, ["g0"]), (5, [])):
        assert [p.name for p in writer.at(1, priority, None)] == kept
        counts, _ = columns.nominated_demand(["cpu"], priority, Uid("other"), 2)
        assert counts.tolist() == [0, len(kept)]


def test_pods_of_other_namespaces_do_not_learn_the_name_of_the_group() -> None:
    kept = reserved()
    assert kept.text_for("default") == "reserved for podgroup/g until 13:12 UTC"
    assert kept.text_for("other") == (
        "reserved for a pod group of another namespace until 13:12 UTC"
    )
    assert kept.text == "reserved for podgroup/default/g until 13:12 UTC"


def test_a_trial_gives_a_nomination_back_as_it_was() -> None:
    state = cluster(node("n1"))
    state.nominate(parse_pod(pod("g0")), "n1", reservation=reserved())
    before = state.nominations.get(uid_of("g0"))
    with state.trial() as trial:
        trial.withdraw(uid_of("g0"))
    assert state.nominations.get(uid_of("g0")) == before
