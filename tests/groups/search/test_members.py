"""The members of a group leave the queue together, after the longest backoff of a member."""

from functools import partial

from mooring.groups.search.members import GroupBackoffs, take_members
from mooring.model.pod import Pod, parse_pod
from mooring.pausing import Work
from mooring.runtime.queued_pod import QueuedPod
from mooring.testing.builders import pod, pod_group
from scheduler_states import put_profile, scheduler_state


def test_the_backoff_of_a_group_is_the_longest_of_the_members_that_are_in_the_queue() -> None:
    raws = [pod(f"g-{i}", group="g") for i in range(4)]
    scheduler = scheduler_state(pod_group("g", 2))
    pipeline, queue, backoffs = put_profile(scheduler).pipeline, scheduler.queue, GroupBackoffs()
    pods = [parse_pod(raw) for raw in raws]
    for member in pods:
        scheduler.state.put_unscheduled(member)
    group = scheduler.cluster.pod_groups.of(pods[0])
    assert group is not None

    def popped(member: Pod, failed_at: float | None = None) -> QueuedPod:
        if queue.get(member.uid) is None:
            queue.add(member, pipeline, 0.0)
        queued = queue.pop_specific(member.uid, 0.0)
        assert queued is not None
        if failed_at is not None:
            queue.add_unschedulable(queued, frozenset(), failed_at)
        return queued

    popped(pods[0], failed_at=4.0)
    popped(pods[1], failed_at=6.0)
    new = popped(pods[2])
    assert backoffs.postpone(group, new, scheduler, 4.5)
    assert new.backoff_expiration == 7.0
    queue.remove(new.pod.uid, 4.5)
    scheduler.state.delete_unscheduled(new.pod.uid)

    queue.remove(pods[1].uid, 4.5)
    scheduler.state.delete_unscheduled(pods[1].uid)
    last = popped(pods[3])
    assert backoffs.postpone(group, last, scheduler, 4.5)
    assert last.backoff_expiration == 5.0
    assert not backoffs.postpone(group, popped(pods[3]), scheduler, 5.0)


def test_members_are_taken_in_slices() -> None:
    scheduler = scheduler_state(pod_group("g", 3))
    pipeline, queue = put_profile(scheduler).pipeline, scheduler.queue
    for i in range(3):
        member = parse_pod(pod(f"g-{i}", group="g"))
        scheduler.state.put_unscheduled(member)
        queue.add(member, pipeline, 0.0)
    first = queue.pop(0.0)
    assert first is not None
    group = scheduler.cluster.pod_groups.of(first.pod)
    assert group is not None
    taking = partial(take_members, group, first, scheduler, 0.0)
    with Work(taking) as work:
        assert not work.advance()
        assert (queue.counts()["active"], len([*queue.in_flight])) == (2, 1)
        assert not work.advance()
        assert (queue.counts()["active"], len([*queue.in_flight])) == (1, 2)
