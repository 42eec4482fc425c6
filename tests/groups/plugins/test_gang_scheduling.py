"""Members of a gang are gated until enough of them exist."""

from typing import Any

from mooring.framework.hints import QueueingHint
from mooring.framework.placements import GroupPolicy
from mooring.groups.model.pod_group import GroupFormat, GroupSource
from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.groups.plugins.gang_scheduling import GangScheduling
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.policy.reading import read
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, pod, pod_group
from mooring.testing.fakes import handle


def plugin(state: ClusterState, **args: Any) -> GangScheduling:
    return GangScheduling(read(GangSchedulingArgs, args, "args"), handle(state))


def reason(state: ClusterState, **fields: Any) -> str | None:
    answer = plugin(state).pre_enqueue(parse_pod(pod("m0", **fields)))
    return answer.reason if answer is not None else None


def test_a_pod_without_a_group_is_not_gated() -> None:
    assert reason(cluster()) is None


def test_a_member_is_gated_while_the_object_of_its_group_is_missing() -> None:
    assert reason(cluster(pod("m0", group="g")), group="g") == "PodGroup default/g does not exist"


def test_a_member_is_gated_until_the_minimum_exists() -> None:
    state = cluster(pod("m0", group="g"), pod_group("g", 2))
    assert reason(state, group="g") == "1 of 2 members exist"
    state.put_unscheduled(parse_pod(pod("m1", group="g")))
    assert reason(state, group="g") is None


def test_a_group_that_is_no_gang_gates_none_of_its_members() -> None:
    assert reason(cluster(pod("m0", group="g"), pod_group("g")), group="g") is None


def test_another_member_makes_the_pod_schedulable_and_a_stranger_does_not() -> None:
    state = cluster(pod_group("g", 2))
    gang, own = plugin(state), parse_pod(pod("m0", group="g"))

    def hint(after: Any, kind: Kind = Kind.UNSCHEDULED_POD) -> QueueingHint:
        event = ClusterEvent(kind, Action.ADD, None, after)
        return gang.queueing_hint(own, event, handle(state).cluster)

    assert hint(parse_pod(pod("m1", group="g"))) is QueueingHint.QUEUE
    assert hint(parse_pod(pod("m1", group="h"))) is QueueingHint.SKIP
    assert hint(parse_pod(pod("m1"))) is QueueingHint.SKIP
    group = parse_object(Kind.POD_GROUP, pod_group("g", 1))
    assert hint(group, Kind.POD_GROUP) is QueueingHint.QUEUE
    other = parse_object(Kind.POD_GROUP, pod_group("h", 1))
    assert hint(other, Kind.POD_GROUP) is QueueingHint.SKIP


def test_the_arguments_become_formats_and_a_policy() -> None:
    gang = plugin(
        cluster(),
        podGroupLabels=[{"name": "example.com/group", "minimum": "example.com/min"}],
    )
    assert gang.pod_group_formats == (GroupFormat("example.com/group", "example.com/min"),)
    assert gang.group_policy == GroupPolicy(None, 25)
    koordinator = plugin(cluster(), podGroupPresets=["Koordinator"]).pod_group_formats
    assert [(form.name_key, form.source) for form in koordinator] == [
        ("pod-group.scheduling.sigs.k8s.io", GroupSource.COSCHEDULING),
        ("gang.scheduling.koordinator.sh/name", GroupSource.PODS),
    ]
    changed = plugin(cluster(), reserveAfter="5m", deleteBoundMembers=True)
    assert changed.group_policy == GroupPolicy(300.0, 25, delete_bound_members=True)
