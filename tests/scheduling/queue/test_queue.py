"""The queue's transitions, each in one test; tests/property/test_queue.py combines them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from mooring.framework.plugin import QueuedPodInfo
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.pausing import Work
from mooring.runtime.queued_pod import PodState, QueuedPod, StateTimes, SubQueue
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.testing import builders
from mooring.testing.builders import uid_of
from mooring.testing.fakes import pipeline

FIT = frozenset({"NodeResourcesFit"})
TAINTS = frozenset({"TaintToleration"})
NODE_ADDED = ClusterEvent(Kind.NODE, Action.ADD, None, None)
TAINT_REMOVED = ClusterEvent(Kind.NODE, Action.UPDATE, None, None)
VICTIM = parse_pod(builders.pod("victim", node="node-b"))
VICTIM_GONE = ClusterEvent(Kind.POD, Action.DELETE, VICTIM, None)
QUOTA = frozenset({"CapacityScheduling"})
QUOTA_FREED = ClusterEvent(Kind.QUEUE, Action.UPDATE, None, None)
HELPS = {QUOTA_FREED: QUOTA, NODE_ADDED: FIT | TAINTS, TAINT_REMOVED: TAINTS, VICTIM_GONE: FIT}
"""The plugins that may let a pod pass after each event."""
DEFAULT, OTHER = pipeline(), pipeline()


class FakeHints:
    """Groups pods by spec, pipeline and rejecting plugins; `HELPS` has the events that help.

    If `reads_labels` is set, labels, owner and annotations belong to the signature, too.
    """

    def signature(self, queued: QueuedPod) -> tuple[Any, ...]:
        pod = queued.pod
        strings = frozenset(pod.labels.items()), frozenset(pod.annotations.items())
        read = (*strings, pod.owner) if self.reads_labels else ()
        return pod.spec, queued.pipeline, queued.unschedulable_plugins, read

    def __init__(self) -> None:
        self.in_vain = False
        """Whether others have taken the room that events made."""
        self.without_hint: set[str] = set()
        """The names of pods that preemption may help."""
        self.admitted: dict[str, bool] = {}
        """By name, whether the quota of pods that wait for quota suffices."""
        self.reads_labels = False
        self.nominated: dict[str, str] = {}
        self.run: list[tuple[str, ClusterEvent, bool]] = []
        """Pod, event and whether it came during the pod's attempt, of each hint that has run."""

    def nominated_node(self, queued: QueuedPod) -> str | None:
        return self.nominated.get(queued.pod.name)

    def needs_no_hint(self, queued: QueuedPod) -> bool:
        return queued.pod.name in self.without_hint

    def is_admitted(self, queued: QueuedPod) -> bool | None:
        return self.admitted.get(queued.pod.name)

    def is_worth_requeuing(
        self, queued: QueuedPod, event: ClusterEvent, *, during_attempt: bool
    ) -> bool:
        self.run.append((queued.pod.name, event, during_attempt))
        helped = queued.unschedulable_plugins & HELPS.get(event, FIT)
        return bool(helped) and not self.in_vain


def make_pod(name: str, *, uid: str | None = None, **fields: Any) -> Pod:
    raw = builders.pod(name, **fields)
    if uid is not None:
        raw["metadata"]["uid"] = uid
    return parse_pod(raw)


@pytest.fixture
def hints() -> FakeHints:
    return FakeHints()


@pytest.fixture
def queue(hints: FakeHints) -> SchedulingQueue:
    return SchedulingQueue(hints)


def popped(queue: SchedulingQueue, now: float) -> QueuedPod:
    queued = queue.pop(now)
    assert queued is not None
    return queued


def pop_all(queue: SchedulingQueue, now: float) -> list[str]:
    """Pop all pods; return their names in order. Their attempts do not end."""
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.name)
    return names


def reject(
    queue: SchedulingQueue, *names: str, plugins: frozenset[str] = FIT, now: float = 0.0
) -> None:
    """Add new pods, pop each of them, and let the `plugins` reject it."""
    for name in names:
        queue.add(make_pod(name), DEFAULT, now)
        queue.add_unschedulable(popped(queue, now), plugins, now)


def run_all_hints(queue: SchedulingQueue, now: float) -> None:
    while queue.run_hints(now):
        pass


def happens(queue: SchedulingQueue, event: ClusterEvent, now: float) -> bool:
    """Pass the event to the queue and run all hints; return whether a pod was moved."""
    before = queue.counts()
    queue.move_on_events([event], now)
    run_all_hints(queue, now)
    return queue.counts() != before


def queue_of(queue: SchedulingQueue, name: str) -> str | None:
    queued = queue.get(uid_of(name))
    assert queued is not None
    return queued.queue


def test_a_new_pod_is_active_and_known_by_its_uid(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    assert queue_of(queue, "web") == "active"
    assert queue.counts() == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_the_highest_priority_is_tried_first_then_the_oldest(queue: SchedulingQueue) -> None:
    for now, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 5)]):
        queue.add(make_pod(name, priority=priority), DEFAULT, float(now))
    assert pop_all(queue, 9.0) == ["b", "d", "a", "c"]


def test_pop_of_an_empty_queue_returns_none(queue: SchedulingQueue) -> None:
    assert queue.pop(0.0) is None


def test_a_popped_pod_is_in_flight_and_counted_nowhere(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    assert (queued.queue, queued.attempts) == (None, 1)
    assert not any(queue.counts().values())
    assert list(queue) == [queued]
    assert queue.get(uid_of("web")) is queued


def test_the_time_in_each_queue_is_kept_with_the_pod(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0, gated=True)
    queue.add(make_pod("web"), DEFAULT, 3.0)
    queued = popped(queue, 5.0)
    queue.add_unschedulable(queued, TAINTS, 6.0)
    assert happens(queue, TAINT_REMOVED, 6.25)
    assert popped(queue, 9.0) is queued
    assert queued.times.seconds(10.0) == {
        "gated": 3.0,
        "active": 2.0,
        "in flight": 2.0,
        "unschedulable": 0.25,
        "backoff": 2.75,
    }


def test_a_pod_that_is_queued_again_goes_on_with_the_times_it_had(queue: SchedulingQueue) -> None:
    times = StateTimes(0.0, PodState.NO_PROFILE)
    queue.add(make_pod("web"), DEFAULT, 4.0, times=times)
    assert popped(queue, 5.0).times is times
    assert times.seconds(5.0) == {"without a profile": 4.0, "active": 1.0}


def test_a_bound_pod_is_known_no_more(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queue.done(popped(queue, 0.0), 0.0)
    assert queue.get(uid_of("web")) is None


def test_an_unschedulable_pod_is_not_tried_again_without_an_event(queue: SchedulingQueue) -> None:
    reject(queue, "web")
    assert queue_of(queue, "web") == "unschedulable"
    assert queue.pop(299.0) is None


def test_an_event_that_does_not_help_moves_no_pod(queue: SchedulingQueue) -> None:
    reject(queue, "web", plugins=FIT)
    assert not happens(queue, TAINT_REMOVED, 100.0)
    assert queue.pop(100.0) is None


def test_an_event_that_helps_moves_the_pod_to_the_active_queue(queue: SchedulingQueue) -> None:
    reject(queue, "web", plugins=TAINTS)
    assert happens(queue, TAINT_REMOVED, 100.0)
    assert queue_of(queue, "web") == "active"


def test_an_event_within_the_backoff_moves_the_pod_to_the_backoff_queue(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "web", now=5.0)
    assert happens(queue, NODE_ADDED, 5.5)
    assert queue_of(queue, "web") == "backoff"


def test_a_moved_pod_is_popped_early_when_nothing_else_is_active(queue: SchedulingQueue) -> None:
    reject(queue, "web", now=5.0)
    happens(queue, NODE_ADDED, 5.5)
    queue.add(make_pod("other"), DEFAULT, 5.5)
    assert pop_all(queue, 5.5) == ["other", "web"]


def test_backoff_after_unschedulable_attempts_doubles_from_one_second_to_ten(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    waits, now = [], 0.0
    for _ in range(6):
        queued = popped(queue, now)
        queue.add_unschedulable(queued, FIT, now)
        waits.append(queued.backoff_expiration - now)
        now += 20.0
        happens(queue, NODE_ADDED, now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_pod_without_quota_is_tried_after_its_backoff_although_one_event_came_in_vain(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "web", plugins=QUOTA)
    hints.admitted = {"web": False}
    queue.move_on_events([QUOTA_FREED], 0.1)
    run_all_hints(queue, 0.1)
    hints.in_vain = True  # others have taken the quota
    assert pop_all(queue, 0.1) == []
    hints.in_vain = False
    queue.move_on_events([QUOTA_FREED], 0.2)
    run_all_hints(queue, 0.2)
    assert pop_all(queue, 1.0) == ["web"]


def test_a_pod_without_quota_is_tried_after_its_backoff_even_if_it_waits_for_a_delay(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queue.add_unschedulable(popped(queue, 0.0), QUOTA, 0.0, retry_at=0.5)
    hints.admitted = {"web": False}
    queue.move_on_events([QUOTA_FREED], 0.1)
    run_all_hints(queue, 0.1)
    assert pop_all(queue, 1.0) == ["web"]


def test_failed_preemptions_for_quota_lengthen_the_backoff(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    waits, now = [], 0.0
    for _ in range(5):
        queued = popped(queue, now)
        queue.add_unschedulable(queued, QUOTA, now)
        queue.retry(queued.pod.uid, now)
        assert queue.pop(now) is None
        waits.append(queued.backoff_expiration - now)
        now = queued.backoff_expiration
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0]


def test_a_pod_does_not_wait_out_its_backoff_once_its_quota_suffices(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.admitted = {"web": False}
    reject(queue, "web", plugins=QUOTA, now=5.0)
    queue.add(make_pod("other"), DEFAULT, 5.0)
    for _ in range(100):
        assert not happens(queue, QUOTA_FREED, 5.2)
    assert queue_of(queue, "web") == "unschedulable"
    hints.admitted = {"web": True}
    assert happens(queue, QUOTA_FREED, 5.5)
    assert queue_of(queue, "web") == "active"
    assert sorted(pop_all(queue, 5.5)) == ["other", "web"]
    assert queue.pop(20.0) is None


def test_an_event_during_an_attempt_without_quota_leaves_the_pod_unschedulable(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.admitted = {"web": False}
    queue.add(make_pod("web"), DEFAULT, 5.0)
    queued = popped(queue, 5.0)
    queue.move_on_events([QUOTA_FREED], 5.1)
    queue.add_unschedulable(queued, QUOTA, 5.2)
    run_all_hints(queue, 5.3)
    assert queue_of(queue, "web") == "unschedulable"


def test_a_pod_without_quota_is_tried_at_the_end_of_its_backoff_for_all_equal_pods(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    """It may preempt, which no event need tell."""
    hints.admitted = dict.fromkeys(("a", "b"), False)
    reject(queue, "a", "b", plugins=QUOTA, now=5.0)
    queue.add(make_pod("other"), DEFAULT, 5.0)
    happens(queue, QUOTA_FREED, 5.2)
    assert pop_all(queue, 5.9) == ["other", "a"]  # nothing else is active
    first = queue.get(make_pod("a").uid)
    assert first is not None
    queue.assumed(first, 5.9)
    assert queue_of(queue, "b") != "unschedulable"


def test_a_failed_pod_comes_back_after_its_backoff_and_not_earlier(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queue.add_after_error(popped(queue, 3.0), 3.0)
    assert queue_of(queue, "web") == "backoff"
    assert queue.next_due() == 4.0
    assert queue.pop(3.9) is None
    assert popped(queue, 4.0).pod.name == "web"


def test_backoff_after_errors_counts_those_in_a_row(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    now = 0.0
    for wait in (1.0, 2.0, 4.0):
        queued = popped(queue, now)
        queue.add_after_error(queued, now)
        assert queued.backoff_expiration - now == wait
        now += wait
    queue.add_unschedulable(popped(queue, now), FIT, now)
    happens(queue, NODE_ADDED, now)
    queued = popped(queue, now)
    queue.add_after_error(queued, now)
    assert queued.backoff_expiration - now == 1.0


def test_a_pod_whose_attempt_is_given_up_is_tried_after_the_others_of_its_priority(
    queue: SchedulingQueue,
) -> None:
    for name in ("changing", "other"):
        queue.add(make_pod(name), DEFAULT, 0.0)
    queue.put_back(popped(queue, 1.0), 2.0)
    assert pop_all(queue, 2.0) == ["other", "changing"]


def test_nothing_is_due_while_no_error_backs_off(queue: SchedulingQueue) -> None:
    reject(queue, "web")
    assert queue.next_due() is None


def test_a_pod_unschedulable_for_five_minutes_is_tried_whatever_happened(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "web", now=10.0)
    assert not queue.flush_unschedulable(309.9)
    assert queue.flush_unschedulable(310.0) == 1
    assert pop_all(queue, 310.0) == ["web"]


def test_of_equal_pods_whose_time_has_come_one_is_tried_at_each_flush(
    queue: SchedulingQueue,
) -> None:
    for name in ("a", "b", "c"):
        queue.add(make_pod(name), DEFAULT, 0.0)
        queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0, retry_at=30.0)
    assert not queue.flush_unschedulable(29.9)
    assert queue.flush_unschedulable(30.0) == 1
    tried = popped(queue, 30.0)
    assert (tried.pod.name, tried.flushed) == ("a", False)
    queue.add_unschedulable(tried, FIT, 30.0, retry_at=60.0)
    assert pop_all(queue, 40.0) == [], "it was tried for all"
    assert queue.flush_unschedulable(60.0) == 1
    queue.assumed(popped(queue, 60.0), 60.0)
    assert pop_all(queue, 60.0) == ["c"], "the next one follows"
    queue.add(make_pod("d"), DEFAULT, 60.0)
    queue.add_unschedulable(popped(queue, 60.0), FIT, 60.0)
    assert queue.flush_unschedulable(359.0) == 1, "a has waited for five minutes"


def test_one_of_equal_pods_is_tried_for_all(queue: SchedulingQueue) -> None:
    reject(queue, "a", "b", "c")
    happens(queue, NODE_ADDED, 100.0)
    assert pop_all(queue, 100.0) == ["a"]


def test_equal_pods_follow_one_another_as_long_as_they_find_nodes(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "a", "b", "c")
    happens(queue, NODE_ADDED, 100.0)
    queue.assumed(popped(queue, 100.0), 100.0)
    second = popped(queue, 100.0)
    assert second.pod.name == "b"
    queue.add_unschedulable(second, FIT, 100.0)
    assert queue.pop(100.0) is None


def test_the_next_is_tried_when_a_moved_pod_is_rejected_by_other_plugins(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "a", "b", "c", plugins=FIT)
    happens(queue, NODE_ADDED, 100.0)
    queue.add_unschedulable(popped(queue, 100.0), TAINTS, 100.0)
    second = popped(queue, 100.0)
    assert second.pod.name == "b"
    queue.add_unschedulable(second, FIT, 100.0)
    assert queue.pop(100.0) is None


def test_the_next_is_tried_when_a_moved_pod_is_rejected_at_permit(queue: SchedulingQueue) -> None:
    reject(queue, "a", "b", plugins=FIT)
    happens(queue, NODE_ADDED, 100.0)
    waits_at_permit = popped(queue, 100.0)
    queue.assumed(waits_at_permit, 100.0)
    assert popped(queue, 100.0).pod.name == "b"
    queue.add_unschedulable(waits_at_permit, frozenset({"Gang"}), 100.0)
    assert queue.pop(100.0) is None


def test_an_equal_pod_that_was_never_unschedulable_moves_no_other(queue: SchedulingQueue) -> None:
    reject(queue, "a")
    queue.add(make_pod("fresh"), DEFAULT, 1.0)
    queue.assumed(popped(queue, 1.0), 1.0)
    assert queue_of(queue, "a") == "unschedulable"


def test_pods_rejected_by_other_plugins_are_tried_for_themselves(queue: SchedulingQueue) -> None:
    reject(queue, "a", plugins=FIT)
    reject(queue, "b", plugins=TAINTS)
    happens(queue, NODE_ADDED, 100.0)
    assert sorted(pop_all(queue, 100.0)) == ["a", "b"]


def deleted(queue: SchedulingQueue) -> None:
    queue.remove(uid_of("a"), 100.0)


def deleted_during_its_attempt(queue: SchedulingQueue) -> None:
    popped(queue, 100.0)
    queue.remove(uid_of("a"), 100.0)


def tried_in_vain(queue: SchedulingQueue) -> None:
    queue.add_after_error(popped(queue, 100.0), 100.0)


def gated(queue: SchedulingQueue) -> None:
    queue.add(make_pod("a"), DEFAULT, 100.0, gated=True)


def equal_no_more(queue: SchedulingQueue) -> None:
    queue.add(make_pod("a", cpu=2), DEFAULT, 100.0)


@pytest.mark.parametrize(
    ("becomes", "tried"),
    [
        (deleted, ["b"]),
        (deleted_during_its_attempt, ["b"]),
        (tried_in_vain, ["b"]),
        (gated, ["b"]),
        (equal_no_more, ["a", "b"]),
    ],
)
def test_the_next_is_tried_when_a_moved_pod_does_not_stand_for_it_any_more(
    queue: SchedulingQueue, becomes: Callable[[SchedulingQueue], None], tried: list[str]
) -> None:
    reject(queue, "a", "b")
    happens(queue, NODE_ADDED, 100.0)
    becomes(queue)
    assert sorted(pop_all(queue, 100.0)) == tried


def test_the_end_of_a_pod_that_was_not_moved_moves_no_other(queue: SchedulingQueue) -> None:
    reject(queue, "a", "b")
    queue.remove(uid_of("a"), 100.0)
    assert queue.pop(100.0) is None


def test_a_gated_pod_is_not_tried_until_its_gates_have_gone(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0, gated=True)
    assert queue_of(queue, "web") == "gated"
    assert queue.pop(1000.0) is None
    queue.add(make_pod("web"), DEFAULT, 1000.0)
    queued = popped(queue, 1000.0)
    assert (
        queued.initial_attempt_timestamp == 1000.0
    )  # what it waited at its gates is not the scheduler's time


def test_a_gated_pod_stays_where_it_is_when_its_gates_do(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0, gated=True)
    queue.add(make_pod("web", labels={"a": "b"}), DEFAULT, 1.0, gated=True)
    assert queue_of(queue, "web") == "gated"
    assert queue.counts()["gated"] == 1


@pytest.mark.parametrize(
    "changed",
    [
        make_pod("web", cpu="100m"),
        # It may be put on reserved nodes now, as backfill.
        make_pod("web", spec={"activeDeadlineSeconds": 60}),
        replace(make_pod("web"), claim_names={"gpu": "web-gpu"}),
    ],
    ids=["requests", "deadline", "claim"],
)
def test_an_unschedulable_pod_that_changed_is_tried_again(
    queue: SchedulingQueue, changed: Pod
) -> None:
    reject(queue, "web", "api")
    queue.add(changed, DEFAULT, 100.0)
    assert popped(queue, 100.0).pod is changed
    assert queue.pop(100.0) is None


@pytest.mark.parametrize("are_read", [True, False])
@pytest.mark.parametrize("is_in_group", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        make_pod("web", labels={"app": "web"}),
        # A rule may read the kind of its owner.
        make_pod("web", owner={"apiVersion": "v1", "kind": "X", "name": "web", "uid": "1"}),
    ],
    ids=["labels", "owner"],
)
def test_a_relabelled_pod_is_tried_again_if_the_plugins_that_rejected_it_may_read_that(
    queue: SchedulingQueue, hints: FakeHints, changed: Pod, *, is_in_group: bool, are_read: bool
) -> None:
    hints.reads_labels = are_read
    reject(queue, "web", "api")
    queued = queue.get(changed.uid)
    assert queued is not None
    queued.decided_by_specs = is_in_group
    queue.add(changed, DEFAULT, 100.0)
    assert queued.pod is changed
    assert pop_all(queue, 100.0) == (["web"] if are_read or is_in_group else [])


@pytest.mark.parametrize("are_read", [True, False])
@pytest.mark.parametrize("is_in_group", [True, False])
def test_annotations_matter_only_if_they_are_read(
    queue: SchedulingQueue, hints: FakeHints, *, is_in_group: bool, are_read: bool
) -> None:
    hints.reads_labels = are_read
    reject(queue, "web", "api")
    changed = make_pod("web", annotations={"approved": "yes"})
    queued = queue.get(changed.uid)
    assert queued is not None
    queued.decided_by_specs = is_in_group
    queue.add(changed, DEFAULT, 100.0)
    assert queued.pod is changed
    assert pop_all(queue, 100.0) == (["web"] if are_read else [])


def test_a_pod_is_tried_after_an_event_of_its_own_that_helps(queue: SchedulingQueue) -> None:
    reject(queue, "web", plugins=FIT)
    queue.try_after(uid_of("web"), TAINT_REMOVED, 100.0)
    queue.try_after(uid_of("unknown"), NODE_ADDED, 100.0)
    assert queue.pop(100.0) is None
    queue.try_after(uid_of("web"), NODE_ADDED, 100.0)
    assert pop_all(queue, 100.0) == ["web"]


def test_a_pod_whose_group_changed_is_tried_again(queue: SchedulingQueue) -> None:
    reject(queue, "web", "api")
    queue.try_again(uid_of("web"), 100.0)
    queued = popped(queue, 100.0)
    assert (queued.pod.name, queue_of(queue, "api")) == ("web", "unschedulable")
    queue.try_again(uid_of("web"), 100.0)
    queue.add_unschedulable(queued, FIT, 100.0)
    assert queue_of(queue, "web") == "backoff"


def test_a_pod_whose_status_alone_changed_stays_where_it_is(queue: SchedulingQueue) -> None:
    reject(queue, "web")
    queue.add(make_pod("web", status={"conditions": []}), DEFAULT, 100.0)
    assert queue_of(queue, "web") == "unschedulable"


def test_a_pod_changed_during_its_attempt_is_tried_again_though_rejected(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add(make_pod("web", cpu=1), DEFAULT, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    assert queue_of(queue, "web") == "backoff"
    queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0)
    assert queue_of(queue, "web") == "unschedulable"


def test_an_event_that_came_during_the_attempt_counts(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    happens(queue, NODE_ADDED, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    run_all_hints(queue, 0.0)
    assert queue_of(queue, "web") == "backoff"


def test_hints_know_whether_an_event_came_during_the_attempt(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    """A pod is not retried because of an assumption that its own attempt made and undid."""
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.move_on_events([TAINT_REMOVED], 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    queue.move_on_events([TAINT_REMOVED], 0.0)
    run_all_hints(queue, 0.0)
    assert hints.run == [("web", TAINT_REMOVED, True), ("web", TAINT_REMOVED, False)]


def test_an_event_that_came_before_the_attempt_does_not_count(queue: SchedulingQueue) -> None:
    queue.add(make_pod("early"), DEFAULT, 0.0)
    queue.add(make_pod("late"), DEFAULT, 1.0)
    early = popped(queue, 1.0)
    happens(queue, NODE_ADDED, 1.0)
    queue.add_unschedulable(popped(queue, 1.0), FIT, 1.0)
    queue.add_unschedulable(early, FIT, 1.0)
    run_all_hints(queue, 1.0)
    assert queue_of(queue, "late") == "unschedulable"
    assert queue_of(queue, "early") == "backoff"


def test_a_pod_that_goes_to_its_nominated_node_moves_no_other(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.nominated = {"a": "node-a", "b": "node-b"}
    reject(queue, "a", "b")
    assert happens(queue, VICTIM_GONE, 100.0)
    moved = popped(queue, 100.0)
    assert moved.pod.name == "b"
    queue.assumed(moved, 100.0)
    queue.done(moved, 100.0)
    assert queue.pop(100.0) is None


def test_a_pod_whose_nomination_was_withdrawn_is_tried_like_the_others(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.nominated = {"a": "node-a", "b": "node-b"}
    reject(queue, "a", "b")
    del hints.nominated["b"]
    withdrawn = ClusterEvent(Kind.POD, Action.DELETE, make_pod("b", nominated="node-b"), None)
    happens(queue, withdrawn, 100.0)
    assert popped(queue, 100.0).pod.name == "b"


def test_a_moved_pod_is_not_tried_once_its_hints_say_that_no_event_helps(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a", "b")
    happens(queue, NODE_ADDED, 100.0)
    hints.in_vain = True
    queue.add(make_pod("new"), DEFAULT, 100.0)
    assert pop_all(queue, 100.0) == ["new"]
    assert (queue_of(queue, "a"), queue_of(queue, "b")) == ("unschedulable", "unschedulable")
    hints.in_vain = False
    happens(queue, NODE_ADDED, 100.0)
    queue.assumed(popped(queue, 100.0), 100.0)
    assert len(pop_all(queue, 100.0)) == 1, "the other one follows"


def test_the_next_pod_of_a_group_does_not_follow_into_room_that_is_taken(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a", "b")
    happens(queue, NODE_ADDED, 100.0)
    moved = popped(queue, 100.0)
    hints.in_vain = True
    queue.assumed(moved, 100.0)
    assert queue_of(queue, "b") == "unschedulable"


def test_a_moved_pod_is_tried_if_an_event_helps_that_came_after_it_was_moved(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a", plugins=TAINTS)
    happens(queue, VICTIM_GONE, 100.0)
    happens(queue, TAINT_REMOVED, 100.0)
    hints.run.clear()
    queue.move_on_events([VICTIM_GONE, TAINT_REMOVED, TAINT_REMOVED], 100.0)
    assert popped(queue, 100.0).pod.name == "a"
    assert [event for _, event, _ in hints.run] == [TAINT_REMOVED], "those since it was moved"


def test_a_pod_that_was_moved_many_events_ago_is_tried_without_its_hints(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a")
    happens(queue, NODE_ADDED, 100.0)
    hints.in_vain = True
    queue.move_on_events([TAINT_REMOVED] * 64, 100.0)
    run_all_hints(queue, 100.0)
    assert popped(queue, 100.0).pod.name == "a"


def is_nominated(_queue: SchedulingQueue, hints: FakeHints) -> None:
    hints.nominated["a"] = "node-b"


def may_preempt(_queue: SchedulingQueue, hints: FakeHints) -> None:
    hints.without_hint.add("a")


def has_changed(queue: SchedulingQueue, _hints: FakeHints) -> None:
    queue.add(make_pod("a", cpu=2), DEFAULT, 0.0)


def has_another_group(queue: SchedulingQueue, _hints: FakeHints) -> None:
    queue.try_again(uid_of("a"), 0.0)


def awaits_no_victims(queue: SchedulingQueue, _hints: FakeHints) -> None:
    queue.retry(uid_of("a"), 0.0)


@pytest.mark.parametrize(
    "becomes", [is_nominated, may_preempt, has_changed, has_another_group, awaits_no_victims]
)
def test_a_moved_pod_is_tried_in_any_case_if(
    queue: SchedulingQueue,
    hints: FakeHints,
    becomes: Callable[[SchedulingQueue, FakeHints], None],
) -> None:
    reject(queue, "a")
    happens(queue, NODE_ADDED, 0.0)
    becomes(queue, hints)
    hints.in_vain = True
    assert pop_all(queue, 100.0) == ["a"]


def test_a_pod_that_only_time_has_moved_is_tried_whatever_its_hints_say(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a")
    happens(queue, TAINT_REMOVED, 0.0)
    hints.in_vain = True
    queue.flush_unschedulable(300.0)
    assert pop_all(queue, 300.0) == ["a"]


@pytest.mark.parametrize("ending", ["rejected", "failed", "done"])
def test_the_end_of_an_attempt_does_not_queue_a_pod_that_was_deleted(
    queue: SchedulingQueue, ending: str
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    assert queue.remove(uid_of("web"), 0.0) is queued
    end(queue, queued, ending)
    assert queue.get(uid_of("web")) is None
    assert not any(queue.counts().values())


@pytest.mark.parametrize("ending", ["rejected", "failed", "done"])
def test_a_pod_is_queued_beside_another_one_of_its_name_whose_attempt_ends(
    queue: SchedulingQueue, ending: str
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add(make_pod("web", uid="successor"), DEFAULT, 0.0)
    end(queue, queued, ending)
    successor = queue.named("default/web")
    assert successor is not None
    assert (successor.pod.uid, successor.queue) == ("successor", SubQueue.ACTIVE)
    assert popped(queue, 0.0) is successor


def test_of_two_pods_of_a_name_the_latest_is_found_by_it(queue: SchedulingQueue) -> None:
    first, second = make_pod("web"), make_pod("web", uid="successor")
    for pod in (first, second):
        queue.add(pod, DEFAULT, 0.0)
    assert queue.get(first.uid) is not queue.get(second.uid)
    assert queue.named("default/web") is queue.get(second.uid)
    queue.remove(second.uid, 0.0)
    assert queue.named("default/web") is queue.get(first.uid)
    queue.remove(first.uid, 0.0)
    assert queue.named("default/web") is None


def end(queue: SchedulingQueue, queued: QueuedPod, ending: str) -> None:
    match ending:
        case "rejected":
            queue.add_unschedulable(queued, FIT, 0.0)
        case "failed":
            queue.add_after_error(queued, 0.0)
        case _:
            queue.done(queued, 0.0)


def test_removing_an_unknown_pod_returns_none(queue: SchedulingQueue) -> None:
    assert queue.remove(uid_of("web"), 0.0) is None


def test_a_successor_of_the_same_name_has_no_history(queue: SchedulingQueue) -> None:
    reject(queue, "web")
    queue.add(make_pod("web", uid="successor"), DEFAULT, 50.0)
    queued = popped(queue, 50.0)
    assert (queued.attempts, queued.unschedulable_count, queued.initial_attempt_timestamp) == (
        1,
        0,
        50.0,
    )


def test_the_backoff_is_configurable() -> None:
    queue = SchedulingQueue(FakeHints(), initial_backoff=0.5, max_backoff=3.0)
    queue.add(make_pod("web"), DEFAULT, 0.0)
    now, waits = 0.0, []
    for _ in range(4):
        queued = popped(queue, now)
        queue.add_after_error(queued, now)
        waits.append(queued.backoff_expiration - now)
        now = queued.backoff_expiration
    assert waits == [0.5, 1.0, 2.0, 3.0]


def test_an_unschedulable_pod_is_tried_again_with_another_pipeline(queue: SchedulingQueue) -> None:
    reject(queue, "a", "b")
    queue.add(make_pod("a"), OTHER, 100.0)
    queue.add(make_pod("b"), DEFAULT, 100.0)
    queued = popped(queue, 100.0)
    assert (queued.pod.name, queued.pipeline) == ("a", OTHER)
    assert queue.pop(100.0) is None


def test_an_active_pod_is_sorted_by_its_new_pipeline(queue: SchedulingQueue) -> None:
    class LastFirst:
        name: ClassVar[str] = "LastFirst"
        depends_on_node_only: ClassVar[bool] = True

        def sort_key(self, queued: QueuedPodInfo) -> tuple[float]:
            return (-queued.timestamp,)

    last_first = replace(DEFAULT, queue_sort=LastFirst())
    for now, name in enumerate("abc"):
        queue.add(make_pod(name), DEFAULT, float(now))
    for name in "abc":
        queue.add(make_pod(name), last_first, 3.0)
    assert pop_all(queue, 3.0) == ["c", "b", "a"]


def test_a_pipeline_that_was_replaced_during_the_attempt_has_the_pod_tried_again(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add(make_pod("web"), OTHER, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    assert queue_of(queue, "web") == "backoff"


@pytest.mark.parametrize("ending", ["rejected", "failed"])
def test_a_pod_that_was_gated_during_its_attempt_is_gated_afterwards(
    queue: SchedulingQueue, ending: str
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add(make_pod("web"), OTHER, 0.0, gated=True)
    end(queue, queued, ending)
    assert queue_of(queue, "web") == "gated"
    assert queue.pop(100.0) is None


def test_a_pod_that_was_gated_for_a_while_during_its_attempt_is_tried_again(
    queue: SchedulingQueue,
) -> None:
    web = make_pod("web")
    queue.add(web, DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    for gated in (True, False):
        queue.add(web, DEFAULT, 0.0, gated=gated)
    queue.add_unschedulable(queued, FIT, 0.0)
    assert queue_of(queue, "web") == "backoff"


class TestNamespacesTakeTurns:
    """A namespace waits for one attempt of each other namespace, not for all their pods."""

    @staticmethod
    def attempts_before_modest(queue: SchedulingQueue, greedy: int) -> int:
        """Return how many pods of `greedy` are popped before the third pod of `modest`."""
        pod = make_pod("greedy", namespace="greedy")
        for i in range(greedy):
            name = f"greedy-{i}"
            queue.add(replace(pod, key=f"greedy/{name}", uid=Uid(name)), DEFAULT, 0.0)
        for i in range(3):
            queue.add(make_pod(f"modest-{i}", namespace="modest"), DEFAULT, 1.0)
        attempts = 1
        while popped(queue, 2.0).pod.name != "modest-2":
            attempts += 1
        return attempts - 3

    @pytest.mark.deep
    @pytest.mark.parametrize("greedy", [10, 100_000])
    def test_the_pods_of_another_namespace_do_not_count(
        self, hints: FakeHints, greedy: int
    ) -> None:
        queue = SchedulingQueue(hints, namespaces_take_turns=True)
        assert self.attempts_before_modest(queue, greedy) == 3

    def test_without_the_setting_the_order_is_kube_schedulers(self, queue: SchedulingQueue) -> None:
        assert self.attempts_before_modest(queue, 1000) == 1000

    def test_a_flush_of_unschedulable_pods_delays_another_namespace_by_one_attempt(
        self, hints: FakeHints
    ) -> None:
        queue = SchedulingQueue(hints, namespaces_take_turns=True)
        for i in range(100):
            queue.add(make_pod(f"greedy-{i}", namespace="greedy", cpu=i + 1), DEFAULT, 0.0)
        while (queued := queue.pop(0.0)) is not None:
            queue.add_unschedulable(queued, FIT, 0.0)
        assert queue.flush_unschedulable(300.0)
        queue.add(make_pod("modest", namespace="modest"), DEFAULT, 301.0)
        assert "modest" in [popped(queue, 302.0).pod.name for _ in range(2)]

    def test_a_higher_priority_still_comes_first(self, hints: FakeHints) -> None:
        queue = SchedulingQueue(hints, namespaces_take_turns=True)
        queue.add(make_pod("low", namespace="modest"), DEFAULT, 0.0)
        for i in range(5):
            queue.add(make_pod(f"h{i}", namespace="greedy", priority=9), DEFAULT, 1.0)
        assert pop_all(queue, 2.0) == ["h0", "h1", "h2", "h3", "h4", "low"]

    def test_a_namespace_that_comes_back_has_the_last_turn(self, hints: FakeHints) -> None:
        queue = SchedulingQueue(hints, namespaces_take_turns=True)
        for namespace in ("x", "y"):
            for i in range(2):
                queue.add(make_pod(f"{namespace}{i}", namespace=namespace), DEFAULT, 0.0)
        assert popped(queue, 1.0).pod.name == "x0"
        queue.add(make_pod("z0", namespace="z"), DEFAULT, 0.0)
        assert pop_all(queue, 1.0) == ["y0", "x1", "z0", "y1"]


def test_a_flush_moves_at_most_ten_thousand_pods_and_the_next_one_the_others(
    queue: SchedulingQueue,
) -> None:
    reject(queue, *(f"p{i}" for i in range(10_002)))
    moved = [queue.flush_unschedulable(1000.0) for _ in range(3)]
    assert moved == [10_000, 2, 0]


def test_a_flush_pauses_before_each_pod_and_leaves_those_that_have_gone_meanwhile(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "a", "b", "c")
    with Work(partial(queue.flush_unschedulable, 1000.0)) as flushing:
        flushing.advance()
        flushing.advance()
        assert queue.counts()["active"] == 1
        queue.remove(uid_of("b"), 1000.0)
        while not flushing.advance():
            pass
        assert flushing.result() == 2
    assert pop_all(queue, 1000.0) == ["a", "c"]


def test_one_pop_moves_only_some_of_the_pods_whose_backoff_has_ended(
    queue: SchedulingQueue,
) -> None:
    for i in range(1200):
        queue.add(make_pod(f"p{i}"), DEFAULT, 0.0)
    while (queued := queue.pop(0.0)) is not None:
        queue.add_after_error(queued, 0.0)
    left = [1200]
    while queue.pop(100.0) is not None:
        left.append(queue.counts()["backoff"])
    assert max(before - after for before, after in pairwise(left)) == 500
    assert left[-1] == 0
    assert len(left) == 1201


def test_a_retry_is_not_popped_early_even_if_an_event_moved_the_pod_before(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    happens(queue, NODE_ADDED, 0.0)
    queue.retry(uid_of("web"), 0.0)
    assert queue.pop(0.0) is None
    assert queue.next_due() == queued.backoff_expiration
    assert queue.pop(queued.backoff_expiration) is queued


def test_a_retry_after_the_backoff_is_active_at_once(queue: SchedulingQueue) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    later = queued.backoff_expiration
    queue.retry(uid_of("web"), later)
    assert queue.counts()["active"] == 1


def test_a_retry_of_a_pod_that_is_active_or_unknown_changes_nothing(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queue.retry(uid_of("web"), 0.0)
    queue.retry(uid_of("other"), 0.0)
    assert queue.counts()["active"] == 1


@pytest.mark.parametrize(
    "event",
    [
        ClusterEvent(Kind.NODE, Action.DELETE, parse_node(builders.node("node-b")), None),
        ClusterEvent(Kind.POD, Action.DELETE, make_pod("web", nominated="node-b"), None),
    ],
)
def test_a_pod_whose_nomination_ends_is_tried_again_whatever_rejected_it(
    queue: SchedulingQueue, hints: FakeHints, event: ClusterEvent
) -> None:
    hints.nominated = {"web": "node-b"}
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queue.add_unschedulable(popped(queue, 0.0), TAINTS, 0.0)
    hints.nominated = {}
    assert happens(queue, event, 100.0)
    assert popped(queue, 100.0).pod.name == "web"


def test_a_specific_pod_is_popped_from_whatever_queue_it_is_in(queue: SchedulingQueue) -> None:
    reject(queue, "waits")
    queue.add(make_pod("active"), pipeline(), 0.0)
    for name in ("waits", "active"):
        queued = queue.pop_specific(uid_of(name), 0.0)
        assert queued is not None
        assert queued.queue is None
    assert not any(queue.counts().values())
    assert queue.pop_specific(uid_of("waits"), 0.0) is None


def test_a_gated_pod_is_not_popped_with_its_group(queue: SchedulingQueue) -> None:
    queue.add(make_pod("gated"), pipeline(), 0.0, gated=True)
    assert queue.pop_specific(uid_of("gated"), 0.0) is None
    assert queue_of(queue, "gated") == "gated"


def test_a_postponed_pod_is_not_popped_before_its_time_and_has_not_been_tried(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("a"), pipeline(), 0.0)
    queued = popped(queue, 0.0)
    queue.postpone(queued, 5.0, 0.0)
    assert queue.pop(4.0) is None
    assert queue.next_due() == 5.0
    assert popped(queue, 5.0) is queued
    assert queued.attempts == 1


def test_after_a_long_attempt_pods_of_other_namespaces_come_first(queue: SchedulingQueue) -> None:
    for number, (namespace, name) in enumerate([("a", "1"), ("a", "2"), ("a", "3"), ("b", "x")]):
        queue.add(make_pod(name, namespace=namespace), pipeline(), float(number))
    popped(queue, 4.0)
    queue.attempted("a", 1.0, 5.0)
    assert popped(queue, 5.0).pod.key == "b/x"
    assert popped(queue, 5.5).pod.key == "a/2", "nobody else waits"
    queue.add(make_pod("y", namespace="b"), pipeline(), 5.6)
    assert popped(queue, 6.0).pod.key == "a/3", "it has rested as long as the attempt took"


def test_of_two_namespaces_that_rest_the_first_pod_is_next(queue: SchedulingQueue) -> None:
    for number in range(100):
        for namespace in "ab":
            queue.add(make_pod(f"p{number}", namespace=namespace), pipeline(), float(number))
    queue.attempted("a", 1.0, 200.0)
    queue.attempted("b", 0.1, 200.0)
    names = [popped(queue, 200.0).pod.key for _ in range(4)]
    assert names == ["a/p0", "b/p0", "a/p1", "b/p1"]
    assert {popped(queue, 200.5).pod.namespace for _ in range(98)} == {"b"}
    assert {popped(queue, 200.5).pod.namespace for _ in range(98)} == {"a"}


def test_a_namespace_rests_only_where_others_wait_and_after_long_attempts(
    queue: SchedulingQueue,
) -> None:
    for number, (namespace, name) in enumerate([("a", "1"), ("a", "2"), ("a", "3"), ("b", "x")]):
        queue.add(make_pod(name, namespace=namespace), pipeline(), float(number))
    popped(queue, 4.0)
    queue.attempted("a", 0.05, 4.05)
    assert popped(queue, 4.05).pod.key == "a/2"
    queue.remove(uid_of("x", "b"), 4.1)
    queue.add(make_pod("low", namespace="b", priority=-1), pipeline(), 4.2)
    queue.attempted("a", 1.0, 5.1)
    assert popped(queue, 5.1).pod.key == "a/3", "a pod of lower priority waits"


def test_each_move_into_a_queue_is_counted_with_the_event_that_caused_it(
    queue: SchedulingQueue,
) -> None:
    queue.add(make_pod("a"), DEFAULT, 0.0)
    queue.add(make_pod("gated"), DEFAULT, 0.0, gated=True)
    queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.move_on_events([NODE_ADDED], 0.5)
    run_all_hints(queue, 0.5)
    assert popped(queue, 0.5).pod.name == "a"
    assert queue.incoming() == {
        ("active", "UnscheduledPodAdd"): 1,
        ("unschedulable", "UnscheduledPodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "NodeAdd"): 1,
        ("active", "PopFromBackoffQ"): 1,
    }


def test_a_backoff_that_ends_and_a_changed_pod_are_counted_too(queue: SchedulingQueue) -> None:
    queue.add(make_pod("a"), DEFAULT, 0.0)
    queue.add_after_error(popped(queue, 0.0), 0.0)
    assert popped(queue, 5.0).pod.name == "a"
    reject(queue, "b", now=5.0)
    queue.add(make_pod("b", cpu="100m"), DEFAULT, 100.0)
    queue.add(make_pod("b", labels={"new": "yes"}), DEFAULT, 100.0)
    incoming = queue.incoming()
    assert incoming["backoff", "ScheduleAttemptFailure"] == 1
    assert incoming["active", "BackoffComplete"] == 1
    assert incoming["active", "UnscheduledPodUpdate"] == 1


def test_the_next_pod_of_a_group_is_counted_with_the_event_that_moved_the_first(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "a", "b")
    queue.move_on_events([NODE_ADDED], 100.0)
    run_all_hints(queue, 100.0)
    queue.assumed(popped(queue, 100.0), 100.0)
    assert queue.incoming()["active", "NodeAdd"] == 2


def test_a_pod_that_only_time_moved_is_marked_until_it_is_rejected_again(
    queue: SchedulingQueue,
) -> None:
    reject(queue, "a")
    assert queue.flush_unschedulable(300.0)
    queued = popped(queue, 300.0)
    assert queued.flushed
    assert queue.incoming()["active", "UnschedulableTimeout"] == 1
    queue.add_unschedulable(queued, FIT, 300.0)
    assert not queued.flushed


def test_events_kept_for_pods_in_flight_are_counted_by_name(queue: SchedulingQueue) -> None:
    assert queue.in_flight_events() == {"PodPopped": 0}
    queue.add(make_pod("a"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.move_on_events([NODE_ADDED, VICTIM_GONE], 0.0)
    expected = {"NodeAdd": 1, "AssignedPodDelete": 1, "PodPopped": 1}
    assert queue.in_flight_events() == expected
    queue.done(queued, 0.0)
    run_all_hints(queue, 0.0)
    assert queue.in_flight_events() == {"PodPopped": 0}


def reject_unlike(queue: SchedulingQueue, number: int) -> None:
    """Reject `number` pods with different signatures at time 0."""
    for index in range(number):
        queue.add(make_pod(f"pod-{index}", cpu=f"{index + 1}m"), DEFAULT, 0.0)
    for _ in range(number):
        queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0)


def test_an_event_runs_no_hint_until_there_is_time_for_it(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject_unlike(queue, 3)
    assert queue.move_on_events([NODE_ADDED], 100.0)
    assert (hints.run, queue.counts()["unschedulable"]) == ([], 3)


def test_one_hint_runs_at_a_time_and_other_pods_are_popped_between_them(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject_unlike(queue, 3)
    queue.move_on_events([NODE_ADDED], 100.0)
    for number in (1, 2, 3):
        queue.add(make_pod(f"new-{number}", priority=1), DEFAULT, 100.0)
        assert queue.run_hints(100.0)
        assert popped(queue, 100.0).pod.name == f"new-{number}"
        assert (len(hints.run), queue.counts()["active"]) == (number, number)
    assert not queue.run_hints(100.0)


def test_a_pod_that_is_moved_stands_for_its_group_after_all_events_so_far(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    reject(queue, "a", "b")
    queue.move_on_events([TAINT_REMOVED, NODE_ADDED, TAINT_REMOVED, NODE_ADDED], 100.0)
    run_all_hints(queue, 100.0)
    assert [event for _, event, _ in hints.run] == [TAINT_REMOVED, NODE_ADDED]
    assert (queue_of(queue, "a"), queue_of(queue, "b")) == ("active", "unschedulable")


def test_after_a_pod_of_the_group_is_moved_those_nominated_to_later_nodes_are_still_found(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.nominated = {"b": "node-b"}
    reject(queue, "a", "b")
    queue.move_on_events([NODE_ADDED, VICTIM_GONE], 100.0)
    run_all_hints(queue, 100.0)
    assert (queue_of(queue, "a"), queue_of(queue, "b")) == ("active", "active")


def test_a_pod_does_not_stand_for_its_group_in_an_event_before_it_came(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    """Its attempt ended after the event, so the attempt has seen the changed cluster."""
    reject(queue, "a")
    queue.add(make_pod("b"), DEFAULT, 0.0)
    queue.move_on_events([NODE_ADDED], 0.0)
    queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.remove(uid_of("a"), 0.0)
    run_all_hints(queue, 100.0)
    assert (hints.run, queue_of(queue, "b")) == ([], "unschedulable")


def test_a_nominated_pod_is_found_though_the_pods_without_a_nomination_came_after_the_event(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.nominated = {"a": "node-b"}
    reject(queue, "a")
    queue.add(make_pod("b"), DEFAULT, 0.0)
    queue.move_on_events([VICTIM_GONE], 0.0)
    queue.add_unschedulable(popped(queue, 0.0), FIT, 0.0)
    run_all_hints(queue, 100.0)
    assert (queue_of(queue, "a"), queue_of(queue, "b")) == ("active", "unschedulable")


@pytest.mark.parametrize(("groups", "events"), [(1, 30_001), (2_000, 17)])
def test_groups_that_fall_far_behind_are_tried_without_their_hints(
    queue: SchedulingQueue, hints: FakeHints, groups: int, events: int
) -> None:
    reject_unlike(queue, groups)
    queue.move_on_events([TAINT_REMOVED] * events, 100.0)
    assert queue.run_hints(100.0)
    assert (hints.run, queue.counts()["active"]) == ([], 1)


def test_a_group_that_is_tried_without_hints_is_tried_for_each_nominated_pod_too(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    hints.nominated = {"b": "node-b", "c": "node-c"}
    reject(queue, "a", "b", "c", "d")
    queue.move_on_events([TAINT_REMOVED] * 30_001, 100.0)
    queue.run_hints(100.0)
    assert [queue_of(queue, name) for name in "abcd"] == [*["active"] * 3, "unschedulable"]


def test_a_pod_that_missed_too_many_events_is_tried_without_hints(
    queue: SchedulingQueue, hints: FakeHints
) -> None:
    queue.add(make_pod("web"), DEFAULT, 0.0)
    queued = popped(queue, 0.0)
    queue.move_on_events([TAINT_REMOVED] * 30_001, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    run_all_hints(queue, 0.0)
    assert (hints.run, queue_of(queue, "web")) == ([], "backoff")


def test_the_queue_says_whether_pods_wait_for_their_turn_or_for_their_backoff(
    queue: SchedulingQueue,
) -> None:
    assert (queue.has_active, queue.has_next) == (False, False)
    queue.add(make_pod("web"), DEFAULT, 0.0)
    assert (queue.has_active, queue.has_next) == (True, True)
    queued = popped(queue, 0.0)
    assert (queue.has_active, queue.has_next) == (False, False)
    queue.add_after_error(queued, 0.0)
    assert (queue.has_active, queue.has_next) == (False, True)
