from collections.abc import Hashable
from dataclasses import replace

import pytest

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.kept_events import EventLog
from mooring.scheduling.queue.unschedulable import UnschedulablePods
from mooring.testing import builders
from mooring.testing.builders import uid_of
from mooring.testing.fakes import pipeline, queued_pod

PIPELINE = pipeline()


def waiting(name: str, app: str = "web", *, nominated: str | None = None) -> QueuedPod:
    raw = builders.pod(name, labels={"app": app}, nominated=nominated)
    return queued_pod(raw, PIPELINE)


class FakeHints:
    """Gives pods with one label `app` one signature; every event helps while `helps` is True."""

    def __init__(self) -> None:
        self.helps = True
        self.run: list[str] = []

    def signature(self, queued: QueuedPod) -> Hashable:
        return queued.pod.labels["app"]

    def nominated_node(self, queued: QueuedPod) -> str | None:
        """Return the nominated node in the pod's status."""
        return queued.pod.nominated_node

    def needs_no_hint(self, _queued: QueuedPod) -> bool:
        return False

    def is_admitted(self, _queued: QueuedPod) -> None:
        return None

    def is_worth_requeuing(
        self, queued: QueuedPod, _event: ClusterEvent, *, during_attempt: bool
    ) -> bool:
        self.run.append(f"{queued.pod.name}!" if during_attempt else queued.pod.name)
        return self.helps


def node_added(name: str) -> ClusterEvent:
    return ClusterEvent(Kind.NODE, Action.ADD, None, parse_node(builders.node(name)))


def pod_deleted(node: str) -> ClusterEvent:
    return ClusterEvent(Kind.POD, Action.DELETE, parse_pod(builders.pod("old", node=node)), None)


@pytest.fixture
def events() -> EventLog:
    return EventLog()


@pytest.fixture
def hints() -> FakeHints:
    return FakeHints()


@pytest.fixture
def rejected(events: EventLog, hints: FakeHints) -> UnschedulablePods:
    return UnschedulablePods(events, hints)


def add(rejected: UnschedulablePods, *pods: QueuedPod) -> None:
    for pod in pods:
        rejected.add(pod)


def moved(rejected: UnschedulablePods) -> list[str]:
    """Remove the pods to move; return their names, with * for pods tried only for themselves."""
    names = []
    while rejected.has_hints_to_run():
        for pod, for_all in rejected.run_hints():
            rejected.remove(pod.pod.uid)
            names.append(pod.pod.name if for_all else f"{pod.pod.name}*")
    return names


def test_the_first_of_each_signature_is_tried(
    rejected: UnschedulablePods, events: EventLog
) -> None:
    add(rejected, waiting("a", "web"), waiting("b", "web"), waiting("c", "db"))
    events.extend([node_added("n1")])
    assert moved(rejected) == ["a", "c"]


def test_hints_run_for_the_first_of_a_group_alone(
    rejected: UnschedulablePods, events: EventLog, hints: FakeHints
) -> None:
    add(rejected, waiting("a"), waiting("b"))
    hints.helps = False
    events.extend([node_added("n1")])
    assert (moved(rejected), hints.run) == ([], ["a"])


def test_what_a_pod_missed_during_its_attempt_counts_for_itself_alone(
    rejected: UnschedulablePods, events: EventLog, hints: FakeHints
) -> None:
    events.extend([node_added("n1")])
    add(rejected, waiting("a"))
    rejected.add(waiting("b"), since=0)
    assert (moved(rejected), hints.run) == (["b*"], ["b!"])


def test_a_removed_pod_is_not_tried(rejected: UnschedulablePods, events: EventLog) -> None:
    add(rejected, waiting("a"), waiting("b"))
    rejected.remove(uid_of("a"))
    events.extend([node_added("n1")])
    assert moved(rejected) == ["b"]
    events.extend([node_added("n1")])
    assert moved(rejected) == []


def test_pods_nominated_to_the_node_are_tried_as_well(
    rejected: UnschedulablePods, events: EventLog
) -> None:
    add(rejected, waiting("a"), waiting("b", nominated="n1"), waiting("c", nominated="n1"))
    events.extend([pod_deleted("n1")])
    assert moved(rejected) == ["b*", "c*", "a"]


def test_a_pod_that_is_nominated_while_it_waits_is_tried_for_what_happens_on_the_node(
    rejected: UnschedulablePods, events: EventLog, hints: FakeHints
) -> None:
    """Earlier events also count for the pod if its hints have not run yet."""
    first, second = waiting("a"), waiting("b")
    add(rejected, first, second)
    second.pod = replace(second.pod, nominated_node="n1")
    rejected.nominated(second)
    events.extend([pod_deleted("n1")])
    assert moved(rejected) == ["b*", "a"]
    add(rejected, first)
    events.extend([node_added("n2")])
    first.pod = replace(first.pod, nominated_node="n1")
    rejected.nominated(first)
    hints.run.clear()
    assert (moved(rejected), hints.run) == (["a*"], ["a!"])


def test_pods_nominated_to_a_node_are_tried_when_another_one_loses_its_nomination_there(
    events: EventLog, rejected: UnschedulablePods
) -> None:
    """The pod that is tried for the group may not use the room kept for nominated pods."""
    add(rejected, waiting("a"), waiting("b", nominated="n1"))
    renominated = replace(parse_pod(builders.pod("old")), nominated_node="n1")
    events.extend([ClusterEvent(Kind.POD, Action.DELETE, renominated, None)])
    assert moved(rejected) == ["b*", "a"]


def test_pods_nominated_elsewhere_are_not_tried_beside_those_nominated_here(
    rejected: UnschedulablePods, events: EventLog
) -> None:
    add(rejected, waiting("a", nominated="n2"), waiting("b", nominated="n1"))
    events.extend([pod_deleted("n1")])
    assert moved(rejected) == ["b*"]


def test_pods_without_a_nomination_are_tried_before_pods_nominated_elsewhere(
    rejected: UnschedulablePods, events: EventLog
) -> None:
    add(rejected, waiting("a", nominated="n2"), waiting("b"))
    events.extend([pod_deleted("n1")])
    assert moved(rejected) == ["b"]


def test_if_all_are_nominated_elsewhere_the_first_is_tried(
    rejected: UnschedulablePods, events: EventLog
) -> None:
    add(rejected, waiting("a", nominated="n2"), waiting("b", nominated="n3"))
    events.extend([pod_deleted("n1")])
    assert moved(rejected) == ["a"]


def test_the_longest_waiting_of_a_signature_is_its_first(
    rejected: UnschedulablePods,
) -> None:
    add(rejected, waiting("a"), waiting("b"))
    signature = rejected.signature_of(uid_of("a"))
    rejected.remove(uid_of("a"))
    first = rejected.first_of(signature)
    assert first is not None
    assert first.pod.name == "b"


def test_an_empty_group_has_no_first(
    rejected: UnschedulablePods,
) -> None:
    assert rejected.first_of("web") is None


def test_a_pod_is_removed_from_the_group_it_was_added_to_even_if_it_changed(
    rejected: UnschedulablePods,
) -> None:
    pod = waiting("a", "web")
    rejected.add(pod)
    pod.pod = waiting("a", "db").pod
    rejected.remove(uid_of("a"))
    assert rejected.first_of("web") is None


def test_the_pod_whose_nomination_is_withdrawn_is_found(rejected: UnschedulablePods) -> None:
    pod, other = waiting("a", nominated="n1"), waiting("b", nominated="n2")
    add(rejected, pod, other)
    withdrawn = ClusterEvent(Kind.POD, Action.DELETE, pod.pod, None)
    assert rejected.update_nominations(withdrawn) is None, "it is nominated still"
    pod.pod = waiting("a").pod
    assert rejected.update_nominations(withdrawn) is pod


def test_pods_nominated_to_a_deleted_node_are_tried_one_by_one(
    rejected: UnschedulablePods,
) -> None:
    pods = [waiting(name, nominated="n1") for name in "abcd"]
    add(rejected, *pods, waiting("e", nominated="n2"))
    deleted = ClusterEvent(Kind.NODE, Action.DELETE, parse_node(builders.node("n1")), None)
    for pod in pods[:3]:
        pod.pod = waiting(pod.pod.name).pod
    rejected.update_nominations(deleted)
    rejected.remove(uid_of("b"))
    assert rejected.has_hints_to_run()
    tried = []
    while rejected.has_hints_to_run():
        for queued, for_group in rejected.run_hints():
            assert not for_group
            tried.append(queued.pod.name)
            rejected.remove(queued.pod.uid)
    assert tried == ["a", "c"], "b is not here any more, d is nominated to a node of this name"
    assert pods[0].moved_by == deleted.label


def rejected_by(name: str, *plugins: str, profile: str = "mooring") -> QueuedPod:
    queued = waiting(name)
    queued.pipeline = replace(PIPELINE, profile=profile)
    queued.unschedulable_plugins = frozenset(plugins)
    return queued


def test_a_pod_rejected_by_two_plugins_counts_for_both(rejected: UnschedulablePods) -> None:
    add(
        rejected,
        rejected_by("a", "NodeResourcesFit", "TaintToleration"),
        rejected_by("b", "NodeResourcesFit"),
        rejected_by("c", "NodeResourcesFit", profile="team"),
    )
    assert rejected.counts() == {
        ("NodeResourcesFit", "mooring"): 2,
        ("NodeResourcesFit", "team"): 1,
        ("TaintToleration", "mooring"): 1,
    }


def test_a_pod_that_leaves_is_not_counted_even_if_another_profile_took_it(
    rejected: UnschedulablePods,
) -> None:
    pod = rejected_by("a", "NodeResourcesFit")
    rejected.add(pod)
    before = rejected.counts()
    pod.pipeline = replace(PIPELINE, profile="team")
    rejected.remove(uid_of("a"))
    assert rejected.counts() == {}
    assert before == {("NodeResourcesFit", "mooring"): 1}
