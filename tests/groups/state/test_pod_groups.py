"""The members of each group and their states; tests/property tries random orders of changes."""

from collections.abc import Callable
from typing import Any

import pytest

from mooring.groups.model.pod_group import (
    COSCHEDULING_LABEL,
    SIGS_LABEL,
    GroupFormat,
    GroupKey,
    GroupSource,
    parse_pod_group,
)
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.pausing import Work
from mooring.state.cluster import ClusterState
from mooring.testing.builders import (
    cluster,
    coscheduling_pod_group,
    node,
    pod,
    pod_group,
    uid_of,
    volcano_pod_group,
)

TRAIN = GroupKey(GroupSource.KUBERNETES, "default", "train")
SITE = GroupFormat("example.com/group", "example.com/minimum")


def heard(state: ClusterState, what: Callable[[], None]) -> list[ClusterEvent]:
    events: list[ClusterEvent] = []
    state._sink = events.extend
    what()
    return events


def group(state: ClusterState, key: GroupKey = TRAIN) -> PodGroupState:
    found = state.pod_groups.get(key)
    assert found is not None
    return found


def counts(state: ClusterState, key: GroupKey = TRAIN) -> tuple[int, int, int, int]:
    """Return the numbers of unscheduled, assumed, assigned and terminating members."""
    known = group(state, key)
    members = (known.unscheduled, known.assumed, known.assigned, known.terminating)
    unscheduled, assumed, assigned, terminating = map(len, members)
    return unscheduled, assumed, assigned, terminating


def member(name: str, **features: object) -> Pod:
    return parse_pod(pod(name, group="train", **features))  # type: ignore[arg-type] # as they are


def test_members_are_counted_by_their_state() -> None:
    state = cluster(
        node("n"),
        pod_group("train", 5),
        pod("a", group="train"),
        pod("b", group="train", node="n"),
        pod("c", group="train", terminating=True),
        pod("d", group="train", node="n", terminating=True),
        pod("e", group="train", node="n", phase="Succeeded"),
        pod("f", group="train", gates=["wait"]),
        pod("other"),
    )
    assert counts(state) == (2, 0, 1, 2)
    train = group(state)
    assert (train.all_pods_count, train.scheduled_pods_count, train.missing) == (3, 1, 2)
    assert state.pod_groups.of(member("a")) is train
    assert state.pod_groups.of(parse_pod(pod("other"))) is None


def test_an_assumed_member_is_unscheduled_again_once_it_is_forgotten() -> None:
    state = cluster(node("n"), pod_group("train", 2), pod("a", group="train"))
    state.assume(member("a"), 0)
    assert counts(state) == (0, 1, 0, 0)
    state.forget(member("a"))
    assert counts(state) == (1, 0, 0, 0)


@pytest.mark.parametrize("gone_first", [True, False])
def test_a_bound_member_is_assigned_and_gone_when_it_is_deleted(*, gone_first: bool) -> None:
    """The watches of pods with and without a node may show the binding in either order."""
    state = cluster(node("n"), pod_group("train", 2), pod("a", group="train"))
    pending = member("a")

    def show_it_left() -> None:
        state.delete_unscheduled(pending.uid)

    state.assume(pending, 0)
    if gone_first:
        assert heard(state, show_it_left) == []
    state.put(Kind.POD, pending.uid, member("a", node="n"))
    assert counts(state) == (0, 0, 1, 0)
    state.delete(Kind.POD, pending.uid)
    assert counts(state) == (0, 0, 0, 0)
    assert heard(state, show_it_left) == []


def test_a_group_that_a_trial_leaves_without_members_is_the_same_one_afterwards() -> None:
    """The pod columns refer to the group by number, and an attempt may hold the object itself."""
    state = cluster(node("n"))
    state.track_pod_groups((SITE,))
    key = GroupKey(GroupSource.PODS, "default", "train")
    placed = parse_pod(pod("a", labels={SITE.name_key: "train"}, node="n"))
    state.put(Kind.POD, placed.uid, placed)
    before, numbers = group(state, key), state.pod_columns.groups.tolist()
    with state.trial() as outer, state.trial() as inner:
        inner.remove(placed.uid)
        assert state.pod_groups.get(key) is None
        outer.add(placed, 0)
        outer.remove(placed.uid)
    assert group(state, key) is before
    assert state.pod_columns.groups.tolist() == numbers
    state.delete(Kind.POD, placed.uid)
    state.put(Kind.POD, placed.uid, placed)
    assert group(state, key) is not before


def test_a_trial_counts_and_is_undone() -> None:
    state = cluster(
        node("n"), pod_group("train", 2), pod("a", group="train"), pod("b", group="train", node="n")
    )
    with state.trial() as trial:
        trial.add(member("a"), 0)
        assert counts(state) == (0, 1, 1, 0)
        trial.remove(uid_of("b"))
        assert counts(state) == (0, 1, 0, 0)
    assert counts(state) == (1, 0, 1, 0)


def test_members_may_come_before_their_group_and_outlive_it() -> None:
    state = cluster(pod("a", group="train", priority=7))
    train = group(state)
    assert (train.definition, train.minimum, train.missing, train.priority) == (None, 0, 0, 7)
    raw = pod_group("train", 3, priority=4, created="2026-01-02T00:00:00Z")
    state.put(Kind.POD_GROUP, object_key(Kind.POD_GROUP, raw), parse_pod_group(raw))
    assert group(state) is train
    assert (train.minimum, train.missing, train.priority) == (3, 2, 4)
    assert train.created == parse_pod_group(raw).created
    state.delete(Kind.POD_GROUP, "default/train")
    assert (train.definition, train.all_pods_count) == (None, 1)
    state.delete_unscheduled(member("a").uid)
    assert state.pod_groups.get(TRAIN) is None
    assert len(state.pod_groups) == 0


def test_one_name_in_two_kinds_or_namespaces_means_as_many_groups() -> None:
    label = {COSCHEDULING_LABEL: "train"}
    state = cluster(
        pod_group("train", 3),
        coscheduling_pod_group("train", 4),
        pod_group("train", 5, namespace="other"),
        pod("a", group="train", labels=label),
        pod("b", labels=label),
        pod("c", labels=label),
    )
    other = GroupKey(GroupSource.COSCHEDULING, "default", "train")
    elsewhere = GroupKey(GroupSource.KUBERNETES, "other", "train")
    assert [group(state, key).minimum for key in (TRAIN, other, elsewhere)] == [3, 4, 5]
    assert [group(state, key).all_pods_count for key in (TRAIN, other, elsewhere)] == [1, 2, 0]


def test_groups_without_an_object_are_known_in_tracked_formats_only() -> None:
    named = {SITE.name_key: "train", str(SITE.minimum_key): "3"}
    state = cluster(node("n"), pod("a", labels=named), pod("b", annotations=named, node="n"))
    assert len(state.pod_groups) == 0
    state.track_pod_groups((SITE,))
    key = GroupKey(GroupSource.PODS, "default", "train")
    assert counts(state, key) == (1, 0, 1, 0)
    assert (group(state, key).minimum, group(state, key).missing) == (3, 1)
    state.track_pod_groups(())
    assert len(state.pod_groups) == 0


def test_a_format_may_name_a_group_by_its_object() -> None:
    older = GroupFormat(SIGS_LABEL, source=GroupSource.COSCHEDULING)
    named = {SIGS_LABEL: "train"}
    state = cluster(node("n"), coscheduling_pod_group("train", 2), pod("a", labels=named))
    key = GroupKey(GroupSource.COSCHEDULING, "default", "train")
    assert counts(state, key) == (0, 0, 0, 0)
    state.track_pod_groups((older,))
    assert counts(state, key) == (1, 0, 0, 0)
    assert (group(state, key).minimum, group(state, key).missing) == (2, 1)


def test_a_pod_that_names_volcanos_group_waits_for_its_object_unless_it_says_the_minimum() -> None:
    form = GroupFormat("volcano/name", "volcano/minimum", GroupSource.VOLCANO)
    named, alone = {"volcano/name": "train"}, {"volcano/name": "alone", "volcano/minimum": "3"}
    state = cluster(node("n"), pod("a", annotations=named), pod("b", annotations=alone))
    state.track_pod_groups((form,))
    key = GroupKey(GroupSource.VOLCANO, "default", "train")
    assert group(state, key).incomplete == "PodGroup default/train does not exist"
    raw = volcano_pod_group("train", 2)
    state.put(Kind.VOLCANO_POD_GROUP, "default/train", parse_object(Kind.VOLCANO_POD_GROUP, raw))
    assert (group(state, key).minimum, group(state, key).missing) == (2, 1)
    declared = GroupKey(GroupSource.PODS, "default", "alone")
    assert (group(state, declared).minimum, group(state, declared).missing) == (3, 2)


def test_a_group_of_the_same_name_in_another_format_has_what_that_declares() -> None:
    other = GroupFormat("other.example.com/group", "other.example.com/minimum")
    labels = {SITE.name_key: "train", str(SITE.minimum_key): "3"}
    labels |= {other.name_key: "train", str(other.minimum_key): "5"}
    state = cluster(node("n"), pod("a", labels=labels), pod("b", labels=labels, node="n"))
    key = GroupKey(GroupSource.PODS, "default", "train")
    state.track_pod_groups((SITE,))
    number = group(state, key).number
    state.track_pod_groups((other,))
    assert (group(state, key).minimum, group(state, key).number) == (5, number)


def test_pods_are_counted_by_other_labels_also_if_the_work_is_ended_in_a_pause() -> None:
    named = {SITE.name_key: "train"}
    pods = (pod("a", labels=named, node="n"), pod("b", labels=named, node="n"))
    state = cluster(node("n"), *pods)
    with Work(lambda: state.track_pod_groups((SITE,))) as work:
        assert not work.advance()
    key = GroupKey(GroupSource.PODS, "default", "train")
    assert counts(state, key) == (0, 0, 2, 0)
    assert state.pod_columns.in_groups([group(state, key).number]).sum() == 2


def test_a_bound_pod_may_join_and_leave_a_group_by_its_annotation() -> None:
    state = cluster(node("n"), pod("a", node="n"))
    state.track_pod_groups((SITE,))
    key = GroupKey(GroupSource.PODS, "default", "train")
    joined = parse_pod(pod("a", node="n", annotations={SITE.name_key: "train"}))
    state.put(Kind.POD, uid_of("a"), joined)
    assert counts(state, key) == (0, 0, 1, 0)
    state.put(Kind.POD, uid_of("a"), parse_pod(pod("a", node="n")))
    assert state.pod_groups.get(key) is None


def test_the_highest_minimum_that_a_member_declares_counts_in_any_order() -> None:
    key = GroupKey(GroupSource.PODS, "default", "train")
    members = [
        pod(f"p{minimum}", labels={SITE.name_key: "train", str(SITE.minimum_key): minimum})
        for minimum in ("2", "10", "3")
    ]
    for order in (members, members[::-1]):
        state = cluster(*order)
        state.track_pod_groups((SITE,))
        assert group(state, key).minimum == 10
        state.delete_unscheduled(parse_pod(members[1]).uid)
        assert group(state, key).minimum == 3


def test_a_successor_of_the_same_name_is_another_member() -> None:
    state = cluster(node("n"), pod("a", group="train", node="n", terminating=True))
    successor = pod("a", group="train")
    successor["metadata"]["uid"] = "second"
    state.put_unscheduled(parse_pod(successor))
    assert counts(state) == (1, 0, 0, 1)


def test_a_new_member_is_an_event_and_its_status_is_none() -> None:
    state = ClusterState()
    first = member("a")
    said = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "7 of 8"}]}
    assert [e.kind for e in heard(state, lambda: state.put_unscheduled(first))] == [
        Kind.UNSCHEDULED_POD
    ]
    assert heard(state, lambda: state.put_unscheduled(member("a", status=said))) == []
    (labelled,) = heard(state, lambda: state.put_unscheduled(member("a", labels={"a": "b"})))
    assert labelled.action is Action.UPDATE
    (deleted,) = heard(state, lambda: state.delete_unscheduled(first.uid))
    assert (deleted.kind, deleted.action) == (Kind.UNSCHEDULED_POD, Action.DELETE)


def test_a_pod_without_a_group_that_waits_for_a_node_is_no_event() -> None:
    state = ClusterState()
    assert heard(state, lambda: state.put_unscheduled(parse_pod(pod("web")))) == []
    assert heard(state, lambda: state.delete_unscheduled(Uid("pod-web"))) == []


def test_the_status_of_a_pod_group_is_no_event() -> None:
    state = ClusterState()

    def show(minimum: int, phase: str) -> list[Action]:
        raw = coscheduling_pod_group("train", minimum, status={"phase": phase})
        value = parse_object(Kind.COSCHEDULING_POD_GROUP, raw)
        put = heard(state, lambda: state.put(Kind.COSCHEDULING_POD_GROUP, "default/train", value))
        return [event.action for event in put]

    assert show(3, "") == [Action.ADD]
    assert show(3, "Running") == []
    key = GroupKey(GroupSource.COSCHEDULING, "default", "train")
    definition = group(state, key).definition
    assert definition is not None
    assert definition.initially_scheduled
    assert show(4, "Running") == [Action.UPDATE]


def test_surplus_is_what_a_group_can_lose() -> None:
    state = cluster(
        node("n"), pod_group("train", 2), *(pod(f"p{i}", group="train", node="n") for i in range(5))
    )
    assert group(state).surplus == 3
    assert list(state.pod_groups.with_surplus) == [group(state)]


ROLES = GroupFormat("scheduling.k8s.io/group-name", source=GroupSource.VOLCANO)
MPI = GroupKey(GroupSource.VOLCANO, "default", "mpi")


def with_role(name: str, role: str, **fields: Any) -> dict[str, Any]:
    """Return a member of Volcano's group mpi with this role."""
    annotations = {ROLES.name_key: "mpi", "volcano.sh/task-spec": role}
    return pod(name, annotations=annotations, **fields)


def of_roles(*raws: dict[str, Any], minimum: int = 0, **roles: int) -> PodGroupState:
    """Return the group mpi with these members; `roles` has the minimum of each role."""
    state = cluster(node("n"), volcano_pod_group("mpi", minimum, minTaskMember=roles), *raws)
    state.track_pod_groups((ROLES,))
    return group(state, MPI)


def test_a_group_waits_until_enough_members_of_each_role_exist() -> None:
    workers = [with_role(f"w{i}", "worker") for i in range(4)]
    mpi = of_roles(*workers, launcher=1, worker=2)
    assert (mpi.incomplete, mpi.missing) == ("0 of 1 members of role launcher exist", 1)
    leaving = with_role("l", "launcher", terminating=True)
    assert of_roles(*workers, leaving, launcher=1, worker=2).missing == 1
    launcher = with_role("l", "launcher")
    complete = of_roles(*workers, launcher, launcher=1, worker=2)
    assert (complete.incomplete, complete.missing) == (None, 0)
    assert complete.has_no_spare("launcher")
    assert not complete.has_no_spare("worker")
    assert of_roles(*workers, launcher, minimum=6, launcher=1, worker=2).incomplete == (
        "5 of 6 members exist"
    )


def test_a_group_waits_for_members_with_scheduling_gates() -> None:
    workers = [with_role(f"w{n}", "worker") for n in range(2)]
    gated = with_role("w2", "worker", gates=["later"])
    mpi = of_roles(*workers, gated, worker=3)
    assert mpi.incomplete == "2 of 3 members have no scheduling gates"
    assert mpi.missing == 0
    assert of_roles(*workers, gated, worker=2).incomplete is None
    launcher = with_role("l", "launcher", gates=["later"])
    assert of_roles(*workers, launcher, launcher=1, worker=1).incomplete == (
        "0 of 1 members of role launcher have no scheduling gates"
    )
    opened = mpi.with_members([parse_pod(with_role("w2", "worker"))], {uid_of("w2")})
    assert opened.incomplete is None


def test_the_needed_members_are_the_first_of_each_role() -> None:
    on_node = with_role("w0", "worker", node="n")
    mpi = of_roles(on_node, minimum=4, launcher=1, worker=2)
    names = [("w1", "worker"), ("w2", "worker"), ("o", "other"), ("l", "launcher"), ("l2", "")]
    pods = [parse_pod(with_role(*name)) for name in names]
    needed, others = mpi.needed_of(pods)
    assert ({p.name for p in needed}, {p.name for p in others}) == ({"w1", "w2", "l"}, {"o", "l2"})
    assert mpi.lacking == 3
    assert mpi.short_of(pods) is None
    assert mpi.short_of(pods[:3]) == "0 of 1 members of role launcher"
    assert mpi.short_of([pods[0], pods[3]]) == "2 of 3 members"
    assert mpi.is_enough([*pods[:2], pods[3]], 1)
    assert not mpi.is_enough(pods[:3], 1)


def test_a_group_loses_only_members_that_their_role_does_not_need() -> None:
    on_nodes = [with_role(f"w{i}", "worker", node="n") for i in range(4)]
    on_nodes += [with_role("l", "launcher", node="n")]
    mpi = of_roles(*on_nodes, launcher=1, worker=2)
    assert mpi.surplus == 2
    lost = mpi.surplus_of(parse_pod(raw) for raw in reversed(on_nodes))
    assert [pod.name for pod in lost] == ["w3", "w2"]
    assert of_roles(*on_nodes[:4], launcher=1, worker=2).surplus == 1  # the launcher is to come


def test_a_role_may_change_and_a_trial_counts_it() -> None:
    state = cluster(node("n"), volcano_pod_group("mpi", 0, minTaskMember={"a": 1, "b": 1}))
    state.track_pod_groups((ROLES,))
    state.put_unscheduled(parse_pod(with_role("p", "a")))
    state.put_unscheduled(parse_pod(with_role("q", "a")))
    mpi = group(state, MPI)
    assert mpi.missing == 1
    changed = parse_pod(with_role("q", "b"))
    state.put_unscheduled(changed)
    assert mpi.missing == 0
    with state.trial() as trial:
        trial.add(changed, 0)
        assert (dict(mpi.roles_on_nodes), mpi.lacking) == ({"b": 1}, 1)
        twin = mpi.with_members((), {changed.uid})
        assert (twin.lacking, twin.missing) == (2, 1)
    assert (dict(mpi.roles_on_nodes), mpi.lacking) == ({}, 2)


def test_groups_that_are_disrupted_as_a_whole_are_known_as_long_as_they_are() -> None:
    whole = pod_group("train", 2, disruption_mode="PodGroup")
    on_node = (pod(f"{name}-0", group=name, node="n") for name in ("train", "serve"))
    state = cluster(node("n"), whole, pod_group("serve", 2), *on_node)
    assert list(state.pod_groups.disrupted_whole) == [group(state)]
    state.put(Kind.POD_GROUP, "default/train", parse_object(Kind.POD_GROUP, pod_group("train", 2)))
    assert not state.pod_groups.disrupted_whole


def test_a_group_that_is_disrupted_as_a_whole_is_known_while_it_has_a_member_on_a_node() -> None:
    waiting = pod("train-0", group="train")
    state = cluster(node("n"), pod_group("train", 2, disruption_mode="PodGroup"), waiting)
    assert not state.pod_groups.disrupted_whole
    state.put(Kind.POD, "default/train-0", parse_pod(pod("train-0", group="train", node="n")))
    assert list(state.pod_groups.disrupted_whole) == [group(state)]
    state.delete(Kind.POD, uid_of("train-0"))
    assert not state.pod_groups.disrupted_whole


def test_a_group_with_more_members_leaves_the_group_as_it_is() -> None:
    members = [pod("a", group="train", node="n"), pod("b", group="train"), pod("c", group="train")]
    state = cluster(node("n"), pod_group("train", 2), *members)
    group = state.pod_groups.get(TRAIN)
    assert group is not None
    more = group.with_members([parse_pod(pod("d", group="train"))], {uid_of("a"), uid_of("b")})
    assert (more.all_pods_count, more.scheduled_pods_count) == (2, 0)
    assert {*more.unscheduled} == {uid_of("c"), uid_of("d")}
    assert (more.minimum, more.number, group.all_pods_count) == (2, group.number, 3)


def test_a_group_with_roles_loses_members_without_one() -> None:
    on_nodes = [with_role("l", "launcher", node="n")]
    on_nodes += [with_role(f"x{i}", "", node="n") for i in range(2)]
    mpi, pods = of_roles(*on_nodes, launcher=1), [parse_pod(raw) for raw in on_nodes]
    for found in (mpi, mpi.with_members((), set())):
        assert (found.surplus, [pod.name for pod in found.surplus_of(pods)]) == (2, ["x0", "x1"])
