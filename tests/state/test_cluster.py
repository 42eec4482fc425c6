"""The effect of each event; tests/property/test_cluster.py tests events in any order."""

from collections.abc import Callable
from functools import partial

import pytest

from driving import driven
from mooring.groups.model.pod_group import GroupKey, GroupSource, Reservation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import REGION, ZONE, parse_node
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.pausing import Work
from mooring.state.cluster import ClusterState
from mooring.state.nominations import Nominee
from mooring.testing.builders import CREATED, cluster, namespace, node, pod, uid_of
from relists import replace_all


def delivered(state: ClusterState, what: Callable[[], None]) -> list[ClusterEvent]:
    """Run `what`; return the events that the state delivers meanwhile."""
    events: list[ClusterEvent] = []
    state._sink = events.extend
    what()
    return events


def actions(state: ClusterState, what: Callable[[], None]) -> list[Action]:
    return [event.action for event in delivered(state, what)]


def seen(state: ClusterState, raw: dict[str, object]) -> list[Action]:
    """Let the watch show the pod; return the actions of the delivered events."""
    shown = parse_pod(raw)
    return actions(state, lambda: state.put(Kind.POD, shown.uid, shown))


def waiting(name: str, **features: object) -> Pod:
    return parse_pod(pod(name, **features))  # type: ignore[arg-type] # passed on as they are


def cpu(state: ClusterState) -> list[int]:
    return [state.nodes.requested.at("cpu", row) for row in range(state.nodes.row_count)]


def test_an_object_is_added_once_and_updated_after() -> None:
    state = ClusterState()
    first, second = parse_node(node("n1")), parse_node(node("n1", cpu="9"))
    heard: list[ClusterEvent] = []
    state.on_events(heard.extend)
    state.put(Kind.NODE, "n1", first)
    state.put(Kind.NODE, "n1", second)
    state.delete(Kind.NODE, "n1")
    state.delete(Kind.NODE, "n1")
    assert heard == [
        ClusterEvent(Kind.NODE, Action.ADD, None, first),
        ClusterEvent(Kind.NODE, Action.UPDATE, first, second),
        ClusterEvent(Kind.NODE, Action.DELETE, second, None),
    ]


@pytest.mark.parametrize("raw", [node("n1", cpu="4"), namespace("web", labels={"a": "b"})])
def test_an_object_that_is_shown_as_it_is_known_causes_no_event(raw: dict[str, object]) -> None:
    """A node's heartbeat or a new list shows unchanged objects again."""
    state, kind = ClusterState(), Kind(str(raw["kind"]))

    def show() -> None:
        value = parse_object(kind, raw)
        state.put(kind, value.name, value)

    assert actions(state, show) == [Action.ADD]
    assert actions(state, show) == []


def test_a_relist_of_known_objects_causes_no_event() -> None:
    state = cluster(node("n1"))
    assert (
        actions(state, lambda: replace_all(state, Kind.NODE, {"n1": parse_node(node("n1"))})) == []
    )


def test_events_have_one_sink() -> None:
    state = ClusterState()
    state.on_events(lambda _: None)
    with pytest.raises(RuntimeError, match="one sink"):
        state.on_events(lambda _: None)


def test_a_relist_delivers_each_event_when_its_step_is_done_and_removals_last() -> None:
    state = cluster(node("gone"))
    heard: list[tuple[int, list[Action]]] = []
    state.on_events(lambda es: heard.append((state.nodes.present_count, [e.action for e in es])))
    replace_all(state, Kind.NODE, {name: parse_node(node(name)) for name in ("n1", "n2")})
    assert heard == [(2, [Action.ADD]), (3, [Action.ADD]), (2, [Action.DELETE])]


def test_a_trial_delivers_no_events() -> None:
    state = cluster(node("n1"), pod("web", node="n1"))

    def try_it() -> None:
        with state.trial() as trial:
            trial.remove(uid_of("web"))
            trial.add(waiting("other"), 0)

    assert delivered(state, try_it) == []


def test_a_pod_without_a_node_and_a_pod_that_ended_use_no_resources() -> None:
    state = cluster(node("n1"))
    assert seen(state, pod("web")) == []
    assert seen(state, pod("web", cpu="1", node="n1")) == [Action.ADD]
    assert seen(state, pod("web", cpu="1", node="n1", phase="Failed")) == [Action.DELETE]
    assert cpu(state) == [0]


def test_an_assumed_pod_uses_resources_before_the_watch_shows_it() -> None:
    state = cluster(node("n1"))
    web = waiting("web", cpu="1")
    assert delivered(state, lambda: state.assume(web, 0)) == []
    (change,) = delivered(state, lambda: state.announce(web))
    assert delivered(state, lambda: state.announce(web)) == []
    assert (change.kind, change.action) == (Kind.POD, Action.ADD)
    assert isinstance(change.after, Pod)
    assert change.after.node_name == "n1"
    assert cpu(state) == [1000]
    assert state.pods.assumed.keys() == {uid_of("web")}


def test_a_confirmed_assumption_is_no_event() -> None:
    state = cluster(node("n1"))
    web = waiting("web", cpu="1")
    state.assume(web, 0)
    state.announce(web)
    assert seen(state, pod("web", cpu="1", node="n1")) == []
    assert (cpu(state), state.pods.assumed) == ([1000], {})


def test_a_pod_is_assumed_with_the_labels_that_its_binding_gives_it() -> None:
    state = cluster(node("n1", labels={ZONE: "a", REGION: "r", "rack": "7"}))
    own, given = {"app": "web", ZONE: "own"}, {"app": "web", ZONE: "a", REGION: "r"}
    web = waiting("web", cpu="1", labels=own)
    state.assume(web, 0)
    state.announce(web)
    before = state.nodes.changes.position
    assert seen(state, pod("web", cpu="1", node="n1", labels=given)) == []
    assert state.nodes.changes.position == before
    (placed,) = state.pods
    assert (placed.assumed, placed.equivalent.labels) == (False, given)
    assert web.labels == own


@pytest.mark.parametrize(("version", "events"), [("1.34", []), ("1.35", [Action.UPDATE])])
def test_a_pod_that_is_bound_without_labels_of_its_node_is_counted_without_them(
    version: str, events: list[Action]
) -> None:
    """Since 1.35 an API server adds these labels, unless its admission plugin is off."""
    state = cluster(node("n1", labels={ZONE: "a"}))
    state.follow_server(version)
    web = waiting("web", cpu="1")
    state.assume(web, 0)
    state.announce(web)
    assert seen(state, pod("web", cpu="1", node="n1")) == events
    (placed,) = state.pods
    assert (placed.equivalent.labels, [*placed.equivalent.pods_on.items()]) == ({}, [(0, 1)])


def test_a_confirmation_with_other_labels_changes_its_row_once() -> None:
    state = cluster(node("n1"))
    web, zone = waiting("web", cpu="1"), {"topology.kubernetes.io/zone": "a"}
    state.assume(web, 0)
    state.announce(web)
    before = state.nodes.changes.position
    assert seen(state, pod("web", cpu="1", node="n1", labels=zone)) == [Action.UPDATE]
    assert (cpu(state), state.pods.assumed) == ([1000], {})
    changed = state.nodes.changes.since(before)
    assert changed is not None
    assert changed.tolist() == [0]
    (placed,) = state.pods
    assert placed.equivalent.labels == zone
    assert [*placed.equivalent.pods_on.items()] == [(0, 1)]


def test_only_changes_that_a_decision_may_read_are_events_of_a_bound_pod() -> None:
    state = cluster(node("n1"), pod("web", node="n1", phase="Pending"))
    assert seen(state, pod("web", node="n1", phase="Running", started=CREATED)) == []
    assert seen(state, pod("web", node="n1", annotations={"card": "0"})) == [Action.UPDATE]
    assert seen(state, pod("web", node="n1", labels={"app": "web"})) == [Action.UPDATE]


def test_a_pod_bound_to_another_node_than_assumed_frees_the_assumed_node() -> None:
    state = cluster(node("n1"), node("n2"))
    web = waiting("web", cpu="1")
    state.assume(web, 0)
    state.announce(web)
    assert seen(state, pod("web", cpu="1", node="n2")) == [Action.DELETE, Action.ADD]
    assert cpu(state) == [0, 1000]


def test_a_forgotten_pod_frees_its_node_once() -> None:
    state, web = cluster(node("n1")), waiting("web", cpu="1")
    state.assume(web, 0)
    state.announce(web)
    assert actions(state, lambda: state.forget(web)) == [Action.DELETE]
    assert actions(state, lambda: state.forget(web)) == []
    assert cpu(state) == [0]


def test_a_pod_that_was_never_announced_is_forgotten_without_an_event() -> None:
    state, web = cluster(node("n1")), waiting("web", cpu="1")
    state.assume(web, 0)
    assert actions(state, lambda: state.forget(web)) == []
    assert cpu(state) == [0]


def test_an_assumption_that_is_seen_bound_before_it_was_announced_is_added() -> None:
    state = cluster(node("n1"))
    for name, labels in (("as-it-was", None), ("relabelled", {"app": "web"})):
        state.assume(waiting(name), 0)
        assert seen(state, pod(name, node="n1", labels=labels)) == [Action.ADD]


def test_a_confirmed_pod_cannot_be_forgotten() -> None:
    state, web = cluster(node("n1")), waiting("web", cpu="1")
    state.assume(web, 0)
    seen(state, pod("web", cpu="1", node="n1"))
    assert actions(state, lambda: state.forget(web)) == []
    assert cpu(state) == [1000]


def test_a_pod_counts_beside_an_earlier_one_of_its_name_until_that_is_gone() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))
    successor = pod("web", cpu="2", node="n1")
    successor["metadata"]["uid"] = "another"
    assert seen(state, successor) == [Action.ADD]
    assert cpu(state) == [3000]
    assert actions(state, lambda: state.delete(Kind.POD, uid_of("web"))) == [Action.DELETE]
    assert cpu(state) == [2000]


def test_the_end_of_a_predecessor_does_not_end_its_successor() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))
    assert actions(state, lambda: state.delete(Kind.POD, "predecessor")) == []
    assert cpu(state) == [1000]


def test_an_updated_request_is_counted_anew() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))
    assert seen(state, pod("web", cpu="3", node="n1")) == [Action.UPDATE]
    assert cpu(state) == [3000]


def test_a_relist_removes_pods_that_it_does_not_contain_except_assumed_ones() -> None:
    state = cluster(node("n1"), pod("old", cpu="1", node="n1"), pod("kept", cpu="1", node="n1"))
    state.assume(waiting("assumed", cpu="1"), 0)
    kept, new = parse_pod(pod("kept", cpu="1", node="n1")), parse_pod(pod("new", node="n1"))
    shown: dict[str, Pod] = {kept.uid: kept, new.uid: new}
    assert actions(state, lambda: replace_all(state, Kind.POD, shown)) == [
        Action.ADD,
        Action.DELETE,
    ]
    assert {p.pod.name for p in state.pods} == {"kept", "new", "assumed"}


def listed(*raws: dict[str, object]) -> dict[str, Pod]:
    return {found.uid: found for found in map(parse_pod, raws)}


def test_a_pod_that_was_confirmed_while_it_was_listed_stays() -> None:
    """A GET may show the pod bound in a newer version than the list."""
    state = cluster(node("n1"))
    state.assume(waiting("young", cpu="1"), 0)
    before = state.keys(Kind.POD)
    seen(state, pod("young", cpu="1", node="n1"))
    state.replacing(Kind.POD, {}, before)
    assert cpu(state) == [1000]


def test_a_pod_that_was_assumed_while_it_was_listed_stays() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))
    before = state.keys(Kind.POD)
    state.delete(Kind.POD, uid_of("web"))
    state.assume(waiting("web", cpu="1"), 0)
    state.replacing(Kind.POD, {}, before)
    assert cpu(state) == [1000]


def test_what_is_listed_and_unreadable_stays_as_it_is_known() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))
    replace_all(state, Kind.POD, {uid_of("web"): None, uid_of("never-known"): None})
    assert cpu(state) == [1000]


def test_pods_of_a_node_that_were_resized_change_in_one_step() -> None:
    """Otherwise the node could look freer than before: one pod shrank and one grew."""
    state = cluster(node("n1"), pod("a", cpu="1", node="n1"), pod("b", cpu="3", node="n1"))
    shown = listed(pod("b", cpu="1", node="n1"), pod("a", cpu="3", node="n1"))
    requested = [cpu(state)]
    replacing = partial(state.replacing, Kind.POD, shown, state.keys(Kind.POD))
    driven(replacing, lambda: requested.append(cpu(state)))
    requested.append(cpu(state))
    assert {tuple(amounts) for amounts in requested} == {(4000,)}


@pytest.mark.parametrize("kind", [Kind.NODE, Kind.NAMESPACE])
def test_a_relist_of_other_kinds_replaces_the_whole_set(kind: Kind) -> None:
    state = cluster(node("gone"), namespace("gone"))
    raw = node("new") if kind is Kind.NODE else namespace("new")
    events = delivered(state, lambda: replace_all(state, kind, {"new": parse_object(kind, raw)}))
    assert [(event.kind, event.action) for event in events] == [
        (kind, Action.ADD),
        (kind, Action.DELETE),
    ]
    assert state.known(kind, "gone") is None
    assert state.known(kind, "new") is not None


def test_only_assumptions_whose_binding_went_through_can_be_overdue() -> None:
    state = cluster(node("n1"))
    bound, binding = waiting("bound"), waiting("binding")
    state.assume(bound, 0)
    state.assume(binding, 0)
    state.expect_confirmation(bound, 10.0)
    assert state.overdue(9.9) == []
    assert [late.name for late in state.overdue(10.0)] == ["bound"]


def test_a_nomination_ends_when_its_pod_is_assumed_or_its_node_deleted() -> None:
    state = cluster(node("n1"), node("n2"))
    first, second = waiting("first"), waiting("second")
    state.nominate(first, "n1")
    state.nominate(second, "n2")
    state.nominate(waiting("third"), "no-such-node")
    assert len(state.nominations) == 2
    state.assume(first, 0)
    state.delete(Kind.NODE, "n2")
    assert len(state.nominations) == 0


def test_a_nomination_is_of_the_pod_as_it_is_now() -> None:
    """A nominated pod may be resized or relabelled while it waits for its victims."""
    state = cluster(node("n1"))
    state.put_unscheduled(waiting("web", cpu="3"))
    kept = Reservation(GroupKey(GroupSource.KUBERNETES, "default", "g"), 9.0, 1, 7.0)
    state.nominate(waiting("web", cpu="3"), "n1", reservation=kept)
    resized = waiting("web", cpu="1", labels={"app": "web"})
    assert not delivered(state, lambda: state.put_unscheduled(resized))
    assert state.nominations.get(resized.uid) == Nominee(resized, 0, kept)
    counts, requested = state.pod_columns.nominated_demand(["cpu"], 0, Uid("other"), 1)
    assert (counts.tolist(), requested["cpu"].tolist()) == ([1], [1000])
    state.withdraw(resized.uid)
    assert not state.pod_columns.nominated_demand(["cpu"], 0, Uid("other"), 1)[1]["cpu"].any()


def test_a_nomination_that_is_passed_on_keeps_the_node_without_an_event() -> None:
    state = cluster(node("n1"), node("n2"))
    first, second = waiting("first"), waiting("second")
    assert not state.pass_nomination(first.uid, second)
    state.nominate(first, "n2")

    def pass_on() -> None:
        assert state.pass_nomination(first.uid, second)

    assert delivered(state, pass_on) == []
    [nominee] = state.nominations
    assert (nominee.pod, state.nodes.names[nominee.row]) == (second, "n2")


def test_a_nomination_that_ends_is_an_event_like_the_deletion_of_a_pod_on_its_node() -> None:
    state = cluster(node("n1"), node("n2"))
    web = waiting("web")
    state.nominate(web, "n1")
    assert actions(state, lambda: state.assume(web, 1)) == [Action.DELETE]
    state.nominate(waiting("other"), "n1")
    (withdrawn,) = delivered(state, lambda: state.withdraw(uid_of("other")))
    assert isinstance(withdrawn.before, Pod)
    assert withdrawn.before.nominated_node == "n1"
    assert delivered(state, lambda: state.withdraw(uid_of("other"))) == []


def test_a_trial_leaves_pods_of_a_vanished_node_alone() -> None:
    state = cluster(pod("lost", cpu="1", node="no-such-node"))
    with state.trial() as trial:
        trial.remove(uid_of("lost"))
        trial.remove(uid_of("never-heard-of"))
    assert cpu(state) == [1000]


def test_a_pod_that_a_trial_removes_and_adds_on_its_node_again_is_as_it_was() -> None:
    state = cluster(node("a"), node("b"), pod("web", node="a"))
    before = state.pods.get(uid_of("web"))
    assert before is not None
    with state.trial() as trial:
        trial.remove(uid_of("web"))
        trial.add(before.pod, before.row)
        assert state.pods.get(uid_of("web")) is before
        trial.remove(uid_of("web"))
        trial.add(before.pod, state.nodes.row_of["b"])
        trial.remove(uid_of("web"))
        trial.add(before.pod, state.nodes.row_of["b"])
    assert state.pods.get(uid_of("web")) is before
    assert state.nodes.pod_count.data[:2].tolist() == [1, 0]


def test_a_pod_that_is_on_a_node_cannot_be_added_by_a_trial_and_stays_there() -> None:
    state = cluster(node("a"), node("b"), pod("web", node="a"))
    before = state.pods.get(uid_of("web"))
    with state.trial() as trial, pytest.raises(ValueError, match="placed already"):
        trial.add(waiting("web"), state.nodes.row_of["b"])
    assert state.pods.get(uid_of("web")) is before
    assert state.nodes.pod_count.data[:2].tolist() == [1, 0]


def test_a_trial_is_undone_when_it_ends_in_an_error() -> None:
    state = cluster(node("n1"), pod("web", cpu="1", node="n1"))

    def fail() -> None:
        with state.trial() as trial:
            trial.remove(uid_of("web"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert cpu(state) == [1000]


def test_after_pods_of_many_invented_resources_are_deleted_no_column_is_left() -> None:
    state = ClusterState()
    for i in range(100):
        state.put(Kind.NODE, f"n{i}", parse_node(node(f"n{i}")))
    before = state.nodes.bytes, state.pod_columns.bytes
    hostile = [
        parse_pod(
            pod(
                f"p{i}",
                namespace=f"ns{i}",
                node=f"n{i}",
                requests={f"example.com/r{n}": 1 for n in range(200)},
            )
        )
        for i in range(100)
    ]
    for bound in hostile:
        state.put(Kind.POD, bound.uid, bound)
    assert state.nodes.bytes > before[0]
    for bound in hostile:
        state.delete(Kind.POD, bound.uid)
    grown = state.pod_columns.bytes / before[1]
    assert (state.nodes.bytes, [*state.nodes.requested]) == (before[0], [])
    assert grown <= 2  # the slots of 100 pods instead of 64, and no resource


def test_pods_on_invented_nodes_take_one_row_together() -> None:
    state = cluster(*(node(f"n{number}") for number in range(100)))
    for number in range(20_000):
        lost = waiting(f"p{number}", node=f"invented-{number}", cpu="1")
        state.put(Kind.POD, lost.uid, lost)
    assert state.nodes.row_count == 101
    assert state.nodes.requested.at("cpu", state.nodes.unknown_row) == 20_000_000
    for placed in tuple(state.pods):
        state.delete(Kind.POD, placed.pod.uid)
    assert cpu(state) == [0] * 101


def test_pods_are_on_their_node_while_it_exists_whichever_comes_first() -> None:
    state = cluster(pod("early", node="n1", cpu="1"), pod("other", node="n2", cpu="4"))
    state.put(Kind.NODE, "n1", parse_node(node("n1")))
    late = waiting("late", node="n1", cpu="2")
    state.put(Kind.POD, late.uid, late)
    row, unknown = state.nodes.row_of["n1"], state.nodes.unknown_row
    assert (cpu(state)[row], cpu(state)[unknown]) == (3000, 4000)
    state.delete(Kind.NODE, "n1")
    assert cpu(state) == [7000]
    assert {placed.pod.name for placed in state.pods_of("n1")} == {"early", "late"}
    state.put(Kind.NODE, "n1", parse_node(node("n1")))
    assert cpu(state)[state.nodes.row_of["n1"]] == 3000


def test_a_node_can_be_deleted_again_after_its_deletion_was_ended_in_a_pause() -> None:
    state = cluster(node("n1"), *(pod(name, node="n1", cpu="1") for name in "abc"))
    with Work(lambda: state.delete(Kind.NODE, "n1")) as deletion:
        assert not deletion.advance()
    state.delete(Kind.NODE, "n1")
    assert cpu(state)[state.nodes.unknown_row] == 3000
    assert {placed.row for placed in state.pods} == {state.nodes.unknown_row}
    for placed in tuple(state.pods):
        state.delete(Kind.POD, placed.pod.uid)
    assert not any(cpu(state))


def test_a_node_comes_and_goes_whose_pods_request_more_than_an_int64_holds() -> None:
    """Users who create pods can name a node and request any amounts."""
    huge = [pod(name, node="n1", cpu="7E", memory="7Ei") for name in "ab"]
    state = cluster(*huge, node("n1"))
    assert len(state.pods.on(state.nodes.row_of["n1"])) == 2
    state.delete(Kind.NODE, "n1")
    assert "n1" not in state.nodes.row_of
    for placed in tuple(state.pods):
        state.delete(Kind.POD, placed.pod.uid)
    scored = state.nodes.requested_scored_cpu, state.nodes.requested_scored_memory
    assert not any(column.data.any() for column in scored)


def test_a_pod_that_is_assumed_on_a_node_that_goes_can_be_forgotten_and_confirmed() -> None:
    for confirmed in (True, False):
        state = cluster(node("n1"), node("n2"))
        bound = waiting("web", cpu="1")
        state.assume(bound, state.nodes.row_of["n1"])
        state.delete(Kind.NODE, "n1")
        if confirmed:
            state.put(Kind.POD, bound.uid, waiting("web", node="n1", cpu="1"))
        else:
            state.forget(bound)
        assert cpu(state)[state.nodes.unknown_row] == (1000 if confirmed else 0)
        assert not state.pods.assumed


def test_pods_that_are_resized_count_by_the_rules_of_the_servers_version() -> None:
    """Before 1.37, two containers that swap their sizes count with the larger size each."""
    amounts = {"a": ("900m", "200m"), "b": ("100m", "700m")}
    status = [
        {
            "name": name,
            "resources": {"requests": {"cpu": used}},
            "allocatedResources": {"cpu": used},
        }
        for name, (_, used) in amounts.items()
    ]
    containers = [
        {"name": name, "image": "i", "resources": {"requests": {"cpu": asked}}}
        for name, (asked, _) in amounts.items()
    ]
    raw = pod("web", node="n1", spec={"containers": containers})
    raw["status"]["containerStatuses"] = status
    state, web = cluster(node("n1")), parse_pod(raw)
    assert seen(state, raw) == [Action.ADD]
    assert cpu(state) == [1000]
    assert actions(state, lambda: state.follow_server("1.36")) == [Action.UPDATE]
    assert cpu(state) == [1600]
    assert seen(state, raw) == [], "the pod is the same"
    assert cpu(state) == [1600]
    assert actions(state, lambda: state.follow_server("1.37")) == [Action.UPDATE]
    assert cpu(state) == [1000]
    state.delete(Kind.POD, web.uid)
    assert cpu(state) == [0]


def test_only_the_pods_that_ended_last_are_known_to_have_ended() -> None:
    state = ClusterState()
    for number in range(10_000):
        state.delete(Kind.POD, f"{number:036}")
    ended = [number for number in range(10_000) if state.has_ended(Uid(f"{number:036}"))]
    assert 2_000 < len(ended) < 4_000
    assert ended == [*range(10_000 - len(ended), 10_000)]
