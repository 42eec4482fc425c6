"""Pods arrive, get their profile, and leave."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from background import in_background
from device_builders import allocated, device_claim
from driving import driven
from holders import Holders
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.pod_group import (
    COSCHEDULING_LABEL,
    NODES_RESERVED,
    GroupFormat,
    GroupKey,
    GroupSource,
    Reservation,
    parse_pod_group,
)
from mooring.groups.model.task_groups import TASK_GROUP_NAME, TASK_GROUPS
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.workloads import Namespace, parse_namespace
from mooring.observe.documents import plain
from mooring.observe.records import DecisionLog
from mooring.pausing import Work
from mooring.plugins import SHIPPED
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.queue.queue import UNSCHEDULABLE_TIMEOUT
from mooring.testing.builders import (
    coscheduling_pod_group,
    hyper_node,
    namespace,
    node,
    pod,
    pod_group,
    uid_of,
    volcano_pod_group,
)
from scheduler_states import HeardReports, put_profile, scheduler_state

BATCH = {
    "schedulerNames": ["default-scheduler"],
    "namespaceSelector": {"matchLabels": {"env": "batch"}},
}


MINE = {"schedulerName": "mine"}
FIRST = {"precedence": 1}
LEFT_OUT = {**BATCH, "schedulerNames": ["mine"]}
"""Selects the scheduler name `mine`, but no pod of the namespace that these pods are in."""


class Gatekeeper:
    """A PreEnqueue plugin that follows the pod's label `gate`, or else `told`."""

    name: ClassVar[str] = "Gatekeeper"
    depends_on_node_only: ClassVar[bool] = True
    pod_group_formats: ClassVar[tuple[GroupFormat, ...]] = (GroupFormat("team", "size"),)
    told: str = ""

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        match self.told or pod.labels.get("gate"):
            case "fail":
                raise KeyError("quota")
            case "close":
                return Unschedulable("no quota")
        return None


GATEKEEPER = Registry((*SHIPPED, Gatekeeper), {})
GATED: dict[str, Any] = {"plugins": {"preEnqueue": {"enabled": [{"name": "Gatekeeper"}]}}}


class Door:
    """A pod enqueuer for a cluster of one node, and the calls that it makes."""

    def __init__(self, decisions: DecisionLog | None = None) -> None:
        self.now = 0.0
        objects = node("a"), namespace("default")
        made = scheduler_state(*objects, registry=GATEKEEPER, clock=lambda: self.now)
        log = made.decisions if decisions is None else decisions
        self.scheduler_state = replace(made, decisions=log)
        self.state = self.scheduler_state.state
        self.without_profile = self.scheduler_state.without_profile
        self.left: list[str] = []
        self.heard = HeardReports()
        self.failed, self.gated = self.heard.errors, self.heard.gates
        self.alone, self.misspelt = self.heard.alone, self.heard.misspellings
        self.pod_enqueuer = PodEnqueuer(
            self.scheduler_state, self.heard, not_pending=self.left.append
        )
        self.state.on_events(self.pod_enqueuer.on_events)

    def woken(self) -> bool:
        """Return whether the loop was woken since the last call."""
        work = self.scheduler_state.work
        was_set = work.is_set()
        work.clear()
        return was_set

    def comes(self, name: str = "web", **fields: Any) -> Pod:
        """Pass the pod to the pod enqueuer; return the parsed pod."""
        pending = parse_pod(pod(name, **fields))
        self.pod_enqueuer.pending(pending)
        return pending

    def flush(self) -> int:
        """Run `flush` of the pod enqueuer; return the number of its pauses."""
        return driven(self.pod_enqueuer.flush)[1]

    def find_profiles(self, in_pause: Callable[[], object] = lambda: None) -> int:
        """Run `find_profiles` of the pod enqueuer; return the number of its pauses."""
        return driven(self.pod_enqueuer.find_profiles, in_pause)[1]

    def queue(self, name: str = "web", namespace: str = "default") -> SubQueue | None:
        """Return the part of the queue in which the pod waits; None if it is not queued."""
        queued = self.scheduler_state.queue.get(uid_of(name, namespace))
        return queued.queue if queued is not None else None

    def popped(self) -> QueuedPod:
        """Pop the first pod, and return it."""
        queued = self.scheduler_state.queue.pop(self.now)
        assert queued is not None
        return queued

    def rejected(self, name: str = "web") -> QueuedPod:
        """Add a pod that fits on no node, and end its attempt; return the queued pod."""
        self.comes(name, cpu="100")
        queued = self.popped()
        self.scheduler_state.queue.add_unschedulable(
            queued, frozenset({"NodeResourcesFit"}), self.now
        )
        return queued

    def gets_profile(
        self, name: str = "default-scheduler", *, registry: Registry = GATEKEEPER, **spec: Any
    ) -> ActiveProfile:
        """Put the profile in force; waiting pods get it, too."""
        made = put_profile(self.scheduler_state, name, registry=registry, **spec)
        self.pod_enqueuer.profiles_changed()
        return made

    def loses_profile(self) -> None:
        self.scheduler_state.profiles.remove("default-scheduler")
        self.pod_enqueuer.profiles_changed()

    def put_group(self, name: str, minimum: int) -> None:
        """Put a PodGroup of Kubernetes' own kind into the state."""
        group = parse_pod_group(pod_group(name, minimum))
        self.state.put(Kind.POD_GROUP, f"default/{name}", group)

    def reports(self) -> None:
        """Advance the clock by ten seconds, and report to waiting pods why they wait."""
        self.now += 10.0
        self.pod_enqueuer.report()

    def namespace_is(self, **labels: str) -> None:
        """Set the labels of the pods' namespace."""
        labelled = parse_namespace(namespace("default", labels))
        self.state.put(Kind.NAMESPACE, "default", labelled)


@pytest.fixture
def door() -> Door:
    """Return a door with no profile in force."""
    return Door()


@pytest.fixture
def open_door() -> Door:
    """Return a door with the default profile in force."""
    made = Door()
    put_profile(made.scheduler_state)
    return made


def test_a_pod_that_another_scheduler_binds_is_bound_and_not_gone(open_door: Door) -> None:
    open_door.comes()
    bound = parse_pod(pod("web", node="a"))
    open_door.state.put(Kind.POD, bound.uid, bound)
    open_door.pod_enqueuer.gone(bound.uid)
    path = open_door.scheduler_state.decisions.path("default/web")
    assert path is not None
    assert [(step.step, step.node) for step in path.steps[-1:]] == [("bound", "a")]
    assert path.state == "bound"


def test_a_pod_of_a_profile_is_queued_and_the_loop_is_woken(open_door: Door) -> None:
    open_door.comes()
    assert (open_door.queue(), open_door.woken()) == (SubQueue.ACTIVE, True)


def test_a_pod_without_a_profile_is_queued_when_its_profile_comes(door: Door) -> None:
    without_profile = door.comes()
    assert door.queue() is None
    assert door.pod_enqueuer.known() == {without_profile.uid}
    door.gets_profile()
    assert door.queue() is SubQueue.ACTIVE
    assert door.without_profile == {}


def steps(door: Door, name: str = "web") -> list[str]:
    path = plain(door.scheduler_state.decisions.path(f"default/{name}"))
    return [step["step"] for step in path["steps"]] if path is not None else []


def test_the_path_of_a_pod_begins_before_it_has_a_profile_and_goes_on_when_it_has(
    door: Door,
) -> None:
    door.comes()
    door.now = 4.0
    door.gets_profile()
    door.comes()
    assert steps(door) == ["seen", "noProfile", "queued"]
    path = plain(door.scheduler_state.decisions.path("default/web"))
    assert path is not None
    assert path["seconds"]["without a profile"] == 4.0


def test_the_path_of_a_gated_pod_says_which_plugin_holds_it_back(open_door: Door) -> None:
    gated = open_door.comes(gates=("example.com/wait",))
    open_door.comes()
    open_door.pod_enqueuer.gone(gated.uid)
    assert steps(open_door) == ["seen", "gated", "queued", "gone"]
    path = plain(open_door.scheduler_state.decisions.path("default/web"))
    assert path is not None
    assert path["steps"][1]["plugins"] == ["SchedulingGates"]


def test_a_pod_without_a_profile_is_queued_when_its_namespace_gets_the_label(door: Door) -> None:
    put_profile(door.scheduler_state, match=BATCH)
    door.namespace_is(env="web")
    door.comes()
    assert door.queue() is None
    door.namespace_is(env="batch")
    assert door.queue() is SubQueue.ACTIVE
    door.namespace_is(env="web")
    assert door.queue() is None
    assert list(door.without_profile) == [uid_of("web")]


def test_pods_whose_profile_is_untouched_stay_where_they_are(open_door: Door) -> None:
    queued = open_door.rejected()
    open_door.now = 20.0
    open_door.gets_profile("other")
    open_door.namespace_is(env="other")
    assert queued.queue is SubQueue.UNSCHEDULABLE


def test_an_unschedulable_pod_is_tried_again_with_its_profile_of_now(open_door: Door) -> None:
    queued = open_door.rejected()
    open_door.now = 20.0
    renewed = open_door.gets_profile(percentageOfNodesToScore=50)
    assert (queued.queue, queued.pipeline) == (SubQueue.ACTIVE, renewed.pipeline)


def test_labels_of_its_namespace_give_a_pod_another_profile(open_door: Door) -> None:
    queued = open_door.rejected()
    open_door.now = 20.0
    batch = open_door.gets_profile("batch", match=BATCH)
    assert queued.queue is SubQueue.UNSCHEDULABLE
    open_door.namespace_is(env="batch")
    assert (queued.queue, queued.pipeline) == (SubQueue.ACTIVE, batch.pipeline)


def test_a_pod_in_flight_gets_its_new_profile_for_the_next_attempt(open_door: Door) -> None:
    open_door.comes()
    queued = open_door.popped()
    renewed = open_door.gets_profile(percentageOfNodesToScore=50)
    assert queued.pipeline is renewed.pipeline
    open_door.scheduler_state.queue.add_unschedulable(queued, frozenset({"Fit"}), 0.0)
    assert queued.queue is SubQueue.BACKOFF


def test_a_pod_that_loses_its_profile_in_flight_waits_for_another(open_door: Door) -> None:
    in_flight = open_door.comes()
    queued = open_door.popped()
    open_door.loses_profile()
    open_door.scheduler_state.queue.add_after_error(queued, 0.0)
    assert open_door.queue() is None
    assert open_door.without_profile == {in_flight.uid: in_flight}


def bound_without_a_profile(door: Door) -> QueuedPod:
    """Return a pod whose profile is removed while the pod is being bound."""
    pod, state = door.comes(), door.state
    queued = door.popped()
    state.assume(pod, 0)
    state.announce(pod)
    door.loses_profile()
    return queued


def test_a_pod_whose_profile_came_back_while_it_was_bound_is_queued_if_that_fails(
    open_door: Door,
) -> None:
    queued = bound_without_a_profile(open_door)
    open_door.gets_profile()
    assert open_door.queue() is None
    open_door.state.forget(queued.pod)
    open_door.scheduler_state.queue.add_after_error(queued, 0.0)
    assert open_door.queue() is SubQueue.ACTIVE
    assert open_door.without_profile == {}


def test_so_is_one_that_no_event_was_delivered_about(open_door: Door) -> None:
    """The members of a group are assumed some time before they are announced."""
    pod, state = open_door.comes(), open_door.state
    open_door.popped()
    state.assume(pod, 0)
    open_door.loses_profile()
    open_door.gets_profile()
    open_door.reports()
    assert open_door.queue() is None
    state.forget(pod)
    assert open_door.queue() is None
    open_door.reports()
    assert open_door.queue() is SubQueue.ACTIVE
    assert open_door.without_profile == {}


def test_a_pod_whose_profile_goes_waits_for_another(open_door: Door) -> None:
    left_alone = open_door.comes()
    open_door.loses_profile()
    assert open_door.queue() is None
    assert open_door.without_profile == {left_alone.uid: left_alone}


def test_no_more_pods_are_nominated_to_a_node_than_it_has_pod_slots(open_door: Door) -> None:
    """Nominated pods of lower priority do not prevent another nomination."""
    state = open_door.state
    slots = int(state.nodes.pod_slots.data[state.nodes.row_of["a"]])
    for number in range(slots + 1):
        open_door.comes(f"low-{number}", nominated="a")
    assert len(state.nominations) == slots
    high = open_door.comes("high", nominated="a", priority=1)
    assert state.nominations.get(high.uid) is not None
    last = uid_of(f"low-{slots}")
    assert state.nominations.get(last) is None
    assert open_door.scheduler_state.queue.get(last) is not None


def test_a_new_leader_keeps_no_nodes_that_a_former_one_had_reserved(open_door: Door) -> None:
    """A nomination after preemption stays, so that the group keeps its freed room."""
    state = open_door.state
    for number, message in enumerate(("", "reserved for the group: a, until 2026-01-01T00:01:00Z")):
        reserved = {"type": NODES_RESERVED, "status": "True" if message else "False"}
        status = {"conditions": [{**reserved, "message": message}]}
        raw = pod_group(f"g{number}", 1, status=status)
        state.put(Kind.POD_GROUP, f"default/g{number}", parse_object(Kind.POD_GROUP, raw))
        open_door.comes(f"m{number}", nominated="a", group=f"g{number}")
    assert [nominee.pod.name for nominee in state.nominations] == ["m0"]


def test_a_pod_whose_profile_goes_is_nominated_no_more(open_door: Door) -> None:
    open_door.comes(nominated="a")
    assert len(open_door.state.nominations) == 1
    open_door.loses_profile()
    assert len(open_door.state.nominations) == 0
    assert list(open_door.without_profile) == [uid_of("web")]


def test_a_gated_pod_waits_until_its_gates_are_gone(open_door: Door) -> None:
    open_door.comes(gates=["quota"])
    assert open_door.queue() is SubQueue.GATED
    assert open_door.scheduler_state.queue.pop(0.0) is None
    open_door.comes()
    assert open_door.queue() is SubQueue.ACTIVE


def test_an_older_version_of_a_bound_pod_is_ignored(open_door: Door) -> None:
    placed = parse_pod(pod("web"))
    open_door.state.assume(placed, 0)
    open_door.comes()
    assert (open_door.queue(), open_door.woken()) == (None, False)


def test_an_older_version_of_a_bound_pod_that_has_ended_is_ignored(open_door: Door) -> None:
    state, placed = open_door.state, parse_pod(pod("web", node="a"))
    state.put(Kind.POD, placed.uid, placed)
    state.delete(Kind.POD, placed.uid)
    open_door.woken()
    open_door.comes()
    assert (open_door.queue(), open_door.woken()) == (None, False)


def test_a_successor_of_a_bound_pod_is_queued(open_door: Door) -> None:
    raw = pod("web")
    raw["metadata"]["uid"] = "predecessor"
    open_door.state.assume(parse_pod(raw), 0)
    open_door.comes()
    assert open_door.queue() is SubQueue.ACTIVE


def test_a_nomination_made_before_the_pod_was_known_is_kept(open_door: Door) -> None:
    nominated = open_door.comes(nominated="a")
    nominee = open_door.state.nominations.get(nominated.uid)
    assert nominee is not None
    assert nominee.pod == nominated


def test_a_nomination_that_another_component_writes_or_clears_is_taken_over(
    open_door: Door,
) -> None:
    nominations = open_door.state.nominations
    for gates in (["quota"], ()):
        open_door.comes(gates=gates)
        shown = open_door.comes(gates=gates, nominated="a")
        assert nominations.get(shown.uid) is not None
        open_door.comes(gates=gates)
        assert nominations.get(shown.uid) is None
        open_door.comes(gates=gates, nominated="a")
        open_door.comes(gates=gates, nominated="no-node")
        assert nominations.get(shown.uid) is None


def test_a_member_for_which_a_node_is_reserved_keeps_it_whatever_its_status_says(
    open_door: Door,
) -> None:
    state = open_door.state
    web = open_door.comes(group="train")
    key = GroupKey(GroupSource.KUBERNETES, "default", "train")
    state.nominate(web, "a", reservation=Reservation(key, 60.0, 0))
    for nominated in ("no-node", None, "b"):
        open_door.comes(group="train", nominated=nominated)
        nominee = state.nominations.get(web.uid)
        assert nominee is not None
        assert nominee.reservation is not None


def test_a_version_that_changes_no_nomination_in_the_status_withdraws_none(
    open_door: Door,
) -> None:
    """The status may be older than the preemption, or lack a nomination by rebalancing."""
    web = open_door.comes()
    open_door.state.nominate(web, "a")
    open_door.comes(labels={"app": "web"})
    assert open_door.state.nominations.get(web.uid) is not None


def test_a_status_that_is_older_than_a_nomination_of_ours_changes_nothing(
    open_door: Door,
) -> None:
    open_door.heard.is_newest = False
    web = open_door.comes(nominated="a")
    open_door.comes()
    assert open_door.state.nominations.get(web.uid) is not None


def test_a_pod_that_is_assumed_on_a_node_is_nominated_by_nobody(open_door: Door) -> None:
    state = open_door.state
    web = open_door.comes()
    open_door.scheduler_state.queue.pop(0.0)
    state.assume(web, state.nodes.row_of["a"])
    open_door.comes(nominated="a")
    assert state.nominations.get(web.uid) is None


def test_a_nomination_that_stays_on_its_node_still_waits_for_its_victims(open_door: Door) -> None:
    """The watch also shows nominations that this scheduler itself has written."""
    state, victim = open_door.state, parse_pod(pod("victim", node="a"))
    state.put(Kind.POD, victim.uid, victim)
    web = open_door.comes(priority=1)
    state.nominate(web, "a")
    state.begin_evictions(web, [victim])
    assert state.evictions.awaits_victims(open_door.comes(priority=1, nominated="a"))


def test_a_deleted_pod_is_removed_everywhere(door: Door) -> None:
    without_profile = door.comes("other")
    put_profile(door.scheduler_state)
    queued = door.comes("web", nominated="a")
    for gone in (without_profile, queued):
        door.pod_enqueuer.gone(gone.uid)
    assert door.pod_enqueuer.known() == set()
    assert door.state.nominations.get(queued.uid) is None
    assert door.left == [without_profile.uid, queued.uid]


def test_the_end_of_a_predecessor_leaves_its_successor_in_the_queue(open_door: Door) -> None:
    successor = open_door.comes(nominated="a")
    open_door.pod_enqueuer.gone(Uid("predecessor"))
    assert open_door.queue() is SubQueue.ACTIVE
    assert open_door.state.nominations.get(successor.uid) is not None
    assert open_door.left == ["predecessor"]


@pytest.mark.parametrize("late", ["deleted", "changed"])
def test_late_news_of_a_pod_leave_the_next_one_of_its_name_alone(
    open_door: Door, late: str
) -> None:
    """Kopf handles events of two uids in parallel, so these may come in any order."""
    labels = {COSCHEDULING_LABEL: "train"}
    predecessor = open_door.comes(labels=labels)
    successor = replace(predecessor, uid=Uid("successor"))
    open_door.pod_enqueuer.pending(successor)
    if late == "deleted":
        open_door.pod_enqueuer.gone(predecessor.uid)
        assert open_door.left == [predecessor.uid]
    else:
        open_door.pod_enqueuer.pending(replace(predecessor, labels={**labels, "new": ""}))
        assert open_door.left == []
    group = open_door.state.pod_groups.of(successor)
    assert group is not None
    assert "successor" in group.unscheduled
    assert open_door.pod_enqueuer.knows(successor.uid)
    assert open_door.pod_enqueuer.knows(predecessor.uid) == (late == "changed")


def test_so_it_is_with_pods_that_no_profile_takes(door: Door) -> None:
    predecessor = door.comes()
    door.pod_enqueuer.pending(replace(predecessor, uid=Uid("successor")))
    assert [*door.without_profile] == [predecessor.uid, "successor"]
    door.pod_enqueuer.gone(predecessor.uid)
    assert [*door.without_profile] == ["successor"]


def test_a_pod_gone_at_permit_is_rejected(open_door: Door) -> None:
    rejections: list[Unschedulable | None] = []
    waiting = parse_pod(pod("web"))
    open_door.scheduler_state.waiting.enter(
        waiting, "a", {"Gang": 10.0}, 0.0, lambda rejection, _: rejections.append(rejection)
    )
    open_door.pod_enqueuer.gone(waiting.uid)
    (rejection,) = rejections
    assert rejection is not None
    assert rejection.reason == "the pod was deleted while it waited to be bound"


def test_the_binding_of_a_pod_gone_in_pre_bind_is_called_off(open_door: Door) -> None:
    called_off: list[str] = []
    in_pre_bind = parse_pod(pod("web"))
    open_door.scheduler_state.in_pre_bind[in_pre_bind.uid] = lambda: called_off.append(
        in_pre_bind.uid
    )
    open_door.pod_enqueuer.gone(Uid("predecessor"))
    assert called_off == []
    open_door.pod_enqueuer.gone(in_pre_bind.uid)
    assert called_off == [in_pre_bind.uid]


def test_an_event_wakes_the_loop_if_hints_of_an_unschedulable_pod_have_to_run(
    open_door: Door,
) -> None:
    state, queue = open_door.state, open_door.scheduler_state.queue
    open_door.woken()
    state.put(Kind.NODE, "a", parse_node(node("a", cpu="4")))
    assert not open_door.woken()
    open_door.rejected()
    open_door.now, _ = 20.0, open_door.woken()
    for cpu, expected in (("8", SubQueue.UNSCHEDULABLE), ("100", SubQueue.ACTIVE)):
        state.put(Kind.NODE, "b", parse_node(node("b", cpu=cpu)))
        assert open_door.woken()
        while queue.run_hints(open_door.now):
            pass
        assert open_door.queue() is expected


def test_a_pre_enqueue_that_fails_gates_that_pod_alone_and_is_reported(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    for name, gate in (("first", "open"), ("broken", "fail"), ("last", "open")):
        door.comes(name, labels={"gate": gate})
    door.gets_profile(**GATED)
    assert [door.queue(name) for name in ("first", "broken", "last")] == [
        SubQueue.ACTIVE,
        SubQueue.GATED,
        SubQueue.ACTIVE,
    ]
    ((name, text),) = door.failed
    assert (name, text.partition(" (")[0]) == (
        "broken",
        "running PreEnqueue plugin \"Gatekeeper\": 'quota'",
    )
    (message,) = caplog.messages
    assert message.partition(" (")[0] == (
        "plugin Gatekeeper of mooring-scheduler: failed at PreEnqueue: KeyError: 'quota'"
    )


def test_a_pre_enqueue_that_fails_is_logged_once(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    put_profile(door.scheduler_state, registry=GATEKEEPER, **GATED)
    for name in ("a", "b"):
        door.comes(name, labels={"gate": "fail"})
    assert len(door.failed) == 2
    assert len(caplog.messages) == 1


def test_gated_pods_are_queued_when_pre_enqueue_accepts_them_later(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_profile(door.scheduler_state, registry=GATEKEEPER, **GATED)
    monkeypatch.setattr(Gatekeeper, "told", "fail")
    door.comes("broken")
    monkeypatch.setattr(Gatekeeper, "told", "")
    door.comes("closed", labels={"gate": "close"})
    door.woken()
    door.flush()
    assert (door.queue("broken"), door.queue("closed")) == (SubQueue.ACTIVE, SubQueue.GATED)
    assert door.woken()


def test_a_pod_that_stays_gated_is_told_why_later_and_not_when_it_comes(door: Door) -> None:
    """Most gates are removed soon, and thousands of pods may come at once."""
    put_profile(door.scheduler_state, registry=GATEKEEPER, **GATED)
    door.comes(labels={"gate": "close"})
    assert door.gated == []
    door.flush()
    assert door.gated == [("web", "no quota")]


def test_many_gated_pods_are_flushed_some_at_a_time(door: Door) -> None:
    """Each takes 10 us, so 100,000 pods together would block all other work for a second."""
    put_profile(door.scheduler_state, registry=GATEKEEPER, **GATED)
    pods = [door.comes(f"web-{number}", labels={"gate": "close"}) for number in range(450)]
    with Work(door.pod_enqueuer.flush) as flushing:
        flushing.advance()
        assert len(door.gated) == 200
        door.pod_enqueuer.gone(pods[300].uid)
        assert not flushing.advance()
        assert flushing.advance()
        flushing.result()
    assert len(door.gated) == 449


def test_a_member_that_completes_its_group_is_queued_before_the_others_hear_of_it(
    open_door: Door,
) -> None:
    open_door.put_group("g", 2)
    open_door.comes("first", group="g")
    assert open_door.queue("first") is SubQueue.GATED
    open_door.comes("second", group="g")
    assert [open_door.popped().pod.name for _ in range(2)] == ["second", "first"]


def test_a_member_that_another_scheduler_bound_completes_its_group(open_door: Door) -> None:
    """The watch of assigned pods may be the first to show the member."""
    open_door.put_group("g", 2)
    open_door.comes("first", group="g")
    assert open_door.queue("first") is SubQueue.GATED
    bound = parse_pod(pod("second", group="g", node="a"))
    open_door.state.put(Kind.POD, bound.uid, bound)
    assert open_door.popped().pod.name == "first"


@pytest.mark.parametrize("before", [{}, {COSCHEDULING_LABEL: "h"}], ids=["none", "another"])
def test_a_member_that_comes_by_a_change_of_its_labels_completes_its_group(
    open_door: Door, before: dict[str, str]
) -> None:
    state, kind = open_door.state, Kind.COSCHEDULING_POD_GROUP
    state.put(kind, "default/g", parse_object(kind, coscheduling_pod_group("g", 2)))
    open_door.comes("first", labels={COSCHEDULING_LABEL: "g"})
    open_door.comes("second", labels=before, cpu="100")
    assert open_door.queue("first") is SubQueue.GATED
    open_door.comes("second", labels={COSCHEDULING_LABEL: "g"}, cpu="100")
    assert open_door.queue("first") is SubQueue.ACTIVE


def test_members_wait_for_those_with_scheduling_gates(open_door: Door) -> None:
    """Kueue removes gates pod by pod; an attempt before the last one would begin a backoff."""
    open_door.put_group("g", 3)
    for name in ("g-0", "g-1", "g-2"):
        open_door.comes(name, group="g", gates=["later"])
    for name in ("g-2", "g-0"):
        open_door.comes(name, group="g")
        assert open_door.queue(name) is SubQueue.GATED
    open_door.comes("g-1", group="g")
    assert open_door.scheduler_state.queue.counts()[SubQueue.ACTIVE] == 3


def test_a_group_does_not_wait_for_members_that_it_can_spare(open_door: Door) -> None:
    open_door.put_group("g", 2)
    open_door.comes("g-0", group="g", gates=["later"])
    for name in ("g-1", "g-2"):
        open_door.comes(name, group="g")
    assert open_door.scheduler_state.queue.counts()[SubQueue.ACTIVE] == 2


@pytest.mark.parametrize("change", ["goes", "declares less", "leaves by its labels"])
def test_the_others_are_enough_when_the_member_that_declared_most_changes(
    open_door: Door, change: str
) -> None:
    open_door.gets_profile(**BY_TEAM)
    for name, size in (("c", "5"), ("a", "2"), ("b", "2")):
        open_door.comes(name, labels={"team": "red", "size": size})
    assert open_door.scheduler_state.queue.counts()["gated"] == 3
    if change == "goes":
        open_door.pod_enqueuer.gone(uid_of("c"))
    else:
        less = {"team": "red", "size": "1"}
        open_door.comes("c", labels=less if change == "declares less" else {})
    assert [open_door.queue(name) for name in ("a", "b")] == [SubQueue.ACTIVE] * 2


BY_TEAM: dict[str, Any] = {
    "pluginConfig": [
        {
            "name": "GangScheduling",
            "args": {"podGroupLabels": [{"name": "team", "minimum": "size"}]},
        }
    ]
}
"""Labels of the members name groups and how many are needed."""


def test_a_group_that_is_placed_in_hyper_nodes_is_tried_again_when_they_change(
    open_door: Door,
) -> None:
    args = {"podGroupPresets": ["Volcano"]}
    open_door.gets_profile(pluginConfig=[{"name": "GangScheduling", "args": args}])
    for name, network in (("g", {"highestTierAllowed": 1}), ("h", {})):
        kind, raw = Kind.VOLCANO_POD_GROUP, volcano_pod_group(name, 1, networkTopology=network)
        open_door.state.put(kind, f"default/{name}", parse_object(kind, raw))
        open_door.comes(name, annotations={"scheduling.k8s.io/group-name": name})
        queued = open_door.popped()
        open_door.scheduler_state.queue.add_unschedulable(
            queued, frozenset({"NodeResourcesFit"}), open_door.now
        )
    raw = hyper_node("leaf", 1)
    open_door.state.put(Kind.HYPER_NODE, "leaf", parse_object(Kind.HYPER_NODE, raw))
    assert open_door.queue("g") is SubQueue.UNSCHEDULABLE  # there may be many
    assert open_door.find_profiles() > 0
    assert open_door.queue("g") is SubQueue.BACKOFF
    assert open_door.queue("h") is SubQueue.UNSCHEDULABLE


BY_TASK_GROUP: dict[str, Any] = {
    "pluginConfig": [{"name": "GangScheduling", "args": {"podGroupPresets": ["YuniKorn"]}}]
}
"""The members are in applications of YuniKorn."""


def in_task_group(name: str, groups: str = "") -> dict[str, Any]:
    """Return the labels and annotations of a pod of the YuniKorn application `job`."""
    annotations = {TASK_GROUP_NAME: name} | ({TASK_GROUPS: groups} if groups else {})
    return {"labels": {"applicationId": "job"}, "annotations": annotations}


TWO_ROLES = '[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]'


def test_members_wait_for_the_one_that_declares_their_task_groups(open_door: Door) -> None:
    open_door.gets_profile(**BY_TASK_GROUP)
    for name in ("b1", "b2"):
        open_door.comes(name, **in_task_group("b"))
        assert open_door.queue(name) is SubQueue.GATED
    open_door.comes("b3", **in_task_group("b", TWO_ROLES))
    assert open_door.queue("b1") is SubQueue.GATED  # its launcher is missing
    open_door.comes("a1", **in_task_group("a"))
    assert [open_door.queue(name) for name in ("a1", "b1", "b3")] == [SubQueue.ACTIVE] * 3


def test_the_only_member_that_declares_something_completes_the_group(open_door: Door) -> None:
    open_door.gets_profile(**BY_TASK_GROUP)
    for name in ("b1", "b2"):
        open_door.comes(name, **in_task_group("b"))
    open_door.comes("b3", **in_task_group("b", '[{"name": "b", "minMember": 1}]'))
    assert [open_door.queue(name) for name in ("b1", "b2")] == [SubQueue.ACTIVE] * 2


@pytest.mark.parametrize(
    ("role", "groups"), [("b", TWO_ROLES), ("a", "[{")], ids=["role", "annotation"]
)
def test_a_member_that_is_corrected_completes_its_group(
    open_door: Door, role: str, groups: str
) -> None:
    open_door.gets_profile(**BY_TASK_GROUP)
    open_door.comes("b1", **in_task_group("b"))
    open_door.comes("a1", **in_task_group(role, groups), cpu="100")
    assert open_door.queue("b1") is SubQueue.GATED
    open_door.comes("a1", **in_task_group("a", TWO_ROLES), cpu="100")
    assert open_door.queue("b1") is SubQueue.ACTIVE


def test_a_successor_of_the_declaring_member_is_awaited_again(open_door: Door) -> None:
    """If the new pod of this name lacks the annotation, the others wait, with a reason."""
    open_door.gets_profile(**BY_TASK_GROUP)
    open_door.comes("a1", **in_task_group("a", TWO_ROLES))
    open_door.pod_enqueuer.gone(uid_of("a1"))
    open_door.comes("a1", **in_task_group("a"))
    open_door.comes("b1", **in_task_group("b"))
    assert [open_door.queue(name) for name in ("a1", "b1")] == [SubQueue.GATED] * 2
    group = open_door.state.pod_groups.of(open_door.comes("b1", **in_task_group("b")))
    assert group is not None
    assert group.incomplete == (
        "no pod of application default/job has the annotation yunikorn.apache.org/task-groups"
    )


def test_pods_are_counted_by_other_labels_before_any_of_them_is_tried(open_door: Door) -> None:
    """Of the members counted first, each declares less than the last one."""
    for number in range(250):
        labels = {"team": "red", "size": "300" if number == 0 else "2"}
        open_door.comes(f"red-{number}", labels=labels)
    alone = open_door.comes("alone", priority=9)
    open_door.gets_profile(**BY_TEAM)
    settle = open_door.pod_enqueuer.settle
    first, second = open_door.popped(), open_door.popped()
    assert (first.pod, settle(first)) == (alone, True)
    assert not settle(second)
    open_door.comes("red-250", labels={"team": "red", "size": "2"})
    open_door.pod_enqueuer.gone(open_door.comes("red-251", labels={"team": "red"}).uid)
    open_door.find_profiles()
    assert open_door.scheduler_state.queue.counts()["gated"] == 251
    assert second.queue is SubQueue.GATED


def test_a_large_group_that_changes_is_tried_again_in_steps(open_door: Door) -> None:
    open_door.put_group("g", 1)
    for number in range(250):
        open_door.comes(f"g-{number}", group="g")
    queue, now = open_door.scheduler_state.queue, open_door.now
    while (queued := queue.pop(now)) is not None:
        queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), now)
    open_door.put_group("g", 2)
    assert (queue.counts()["backoff"], queue.counts()["unschedulable"]) == (100, 150)
    open_door.pod_enqueuer.gone(uid_of("g-200"))
    open_door.find_profiles()
    assert (queue.counts()["backoff"], queue.counts()["unschedulable"]) == (249, 0)


def test_a_large_group_is_queued_in_steps_and_not_tried_before_all_members_are(
    open_door: Door,
) -> None:
    for number in range(250):
        open_door.comes(f"g-{number}", group="g")
    open_door.put_group("g", 250)
    queue = open_door.scheduler_state.queue
    assert (queue.counts()["active"], queue.counts()["gated"]) == (100, 150)
    first = open_door.popped()
    assert not open_door.pod_enqueuer.settle(first)
    assert (queue.counts()["active"], queue.counts()["gated"]) == (200, 50)
    assert open_door.pod_enqueuer.settle(open_door.popped())
    assert queue.counts()["gated"] == 0


def test_a_large_group_that_changes_all_the_time_is_gone_through_and_tried(
    open_door: Door,
) -> None:
    for number in range(350):
        open_door.comes(f"g-{number}", group="g")
    open_door.put_group("g", 350)
    settled = []
    for minimum in range(349, 339, -1):
        settled.append(open_door.pod_enqueuer.settle(open_door.popped()))
        open_door.put_group("g", minimum)
    assert settled[:3] == [False, False, True]
    assert settled.count(True) == 2
    steps = open_door.find_profiles()
    assert steps <= 2 * 351, "twice at most, however often the group has changed"
    assert open_door.scheduler_state.queue.counts()["gated"] == 0


def test_members_that_become_the_first_ones_meanwhile_are_not_passed_over(
    open_door: Door,
) -> None:
    open_door.put_group("g", 1)
    for number in range(350):
        open_door.comes(f"g-{number}", group="g")
    queue, now = open_door.scheduler_state.queue, open_door.now
    while (queued := queue.pop(now)) is not None:
        queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), now)
    open_door.put_group("g", 2)
    with Work(open_door.pod_enqueuer.find_profiles) as finding:
        for _ in range(249):
            assert not finding.advance()
        while (queued := queue.pop(now + 60)) is not None:
            queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), now + 60)
        open_door.put_group("g", 1)
        for number in range(120):
            open_door.pod_enqueuer.gone(uid_of(f"g-{number}"))
        while not finding.advance():
            pass
        finding.result()
    assert queue.counts()["unschedulable"] == 0


def test_members_are_told_that_others_are_missing_if_that_lasts(open_door: Door) -> None:
    """The members of a group come one by one, and usually the group is complete soon."""
    open_door.put_group("g", 3)
    for name in ("g-0", "g-1"):
        open_door.comes(name, group="g")
    open_door.now = 1.9
    open_door.pod_enqueuer.report()
    assert open_door.gated == []
    open_door.now = 2.0
    open_door.pod_enqueuer.report()
    assert open_door.gated == [("g-0", "2 of 3 members exist"), ("g-1", "2 of 3 members exist")]
    open_door.pod_enqueuer.report()
    assert len(open_door.gated) == 2


def rejected_member(open_door: Door, name: str) -> None:
    """Reject the active member, so that it is unschedulable and not in backoff."""
    queued = open_door.popped()
    assert queued.pod.name == name
    queue = open_door.scheduler_state.queue
    queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), open_door.now)
    assert open_door.queue(name) is SubQueue.UNSCHEDULABLE
    open_door.now += 100


@pytest.mark.parametrize("comes", ["new", "ungated", "forgotten", "of another group"])
def test_the_first_member_without_a_gate_is_tried_again_when_another_goes(
    open_door: Door, comes: str
) -> None:
    for name in ("g", "h"):
        open_door.put_group(name, 1)
    gated: dict[str, Any] = {"group": "g", "gates": ["later"]}
    scheduler = open_door.scheduler_state
    if comes == "forgotten":
        assumed = open_door.comes("web", group="g")
        queued = open_door.popped()
        scheduler.state.assume(assumed, 0)
    for i in range(5):
        open_door.comes(f"g-{i}", **gated)
    if comes == "of another group":
        open_door.comes("web", group="h")
        rejected_member(open_door, "web")
    if comes == "ungated":
        open_door.comes("web", **gated)
    for i in (0, 1):  # all others are gated when these go
        open_door.pod_enqueuer.gone(uid_of(f"g-{i}"))
    if comes == "forgotten":
        scheduler.state.forget(assumed)
        scheduler.queue.put_back(queued, open_door.now)
    else:
        open_door.comes("web", group="g")
    if comes != "of another group":
        rejected_member(open_door, "web")
    open_door.pod_enqueuer.gone(uid_of("g-2"))
    assert open_door.queue("web") is SubQueue.ACTIVE
    rejected_member(open_door, "web")
    open_door.comes("web", **gated)
    open_door.comes("last", group="g")
    rejected_member(open_door, "last")
    open_door.pod_enqueuer.gone(uid_of("g-3"))
    assert open_door.queue("last") is SubQueue.ACTIVE


@pytest.mark.parametrize("change", ["its object changes", "a member goes", "another binds one"])
def test_a_group_that_changes_is_tried_again(open_door: Door, change: str) -> None:
    open_door.put_group("g", 1)
    open_door.comes("g-gated", group="g", gates=["later"])
    members = [open_door.comes(name, group="g") for name in ("g-0", "g-1")]
    for _ in members:
        queue, queued = open_door.scheduler_state.queue, open_door.popped()
        queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), open_door.now)
    assert open_door.queue("g-1") is SubQueue.UNSCHEDULABLE
    if change == "a member goes":
        open_door.pod_enqueuer.gone(members[0].uid)
    elif change == "another binds one":
        bound = parse_pod(pod("g-x", group="g", node="a"))
        open_door.state.put(Kind.POD, bound.uid, bound)
    else:
        open_door.put_group("g", 2)
    assert open_door.scheduler_state.queue.counts()[SubQueue.BACKOFF]


def test_nothing_is_said_about_members_that_were_gated_for_a_moment(open_door: Door) -> None:
    open_door.put_group("g", 3)
    for name in ("g-0", "g-1", "g-2"):
        open_door.comes(name, group="g")
    gone = open_door.comes("h-0", group="h")
    open_door.pod_enqueuer.gone(gone.uid)
    open_door.now = 5.0
    open_door.pod_enqueuer.report()
    assert open_door.gated == []


def test_the_condition_of_scheduling_gates_is_the_api_servers(open_door: Door) -> None:
    open_door.comes(spec={"schedulingGates": [{"name": "acme.example/quota"}]})
    open_door.flush()
    assert open_door.gated == []


def test_pods_unschedulable_for_five_minutes_are_flushed(open_door: Door) -> None:
    queued = open_door.rejected()
    open_door.now, _ = UNSCHEDULABLE_TIMEOUT, open_door.woken()
    open_door.flush()
    assert (queued.queue, open_door.woken()) == (SubQueue.ACTIVE, True)
    open_door.flush()
    assert not open_door.woken()


def test_a_pod_is_known_while_it_is_queued_in_flight_or_has_a_node(open_door: Door) -> None:
    scheduler, web = open_door.scheduler_state, open_door.comes()
    assert open_door.pod_enqueuer.knows(web.uid)
    assert not open_door.pod_enqueuer.knows(Uid("successor"))
    queued = scheduler.queue.pop(0.0)
    assert queued is not None
    assert open_door.pod_enqueuer.knows(web.uid)
    scheduler.queue.done(queued, 0.0)
    assert not open_door.pod_enqueuer.knows(web.uid)
    scheduler.state.put(Kind.POD, web.uid, parse_pod(pod("web", node="a")))
    assert open_door.pod_enqueuer.knows(web.uid)


def test_a_pod_that_lost_its_profile_while_it_was_bound_is_compared_until_its_end_is_told(
    open_door: Door,
) -> None:
    """If kopf misses the binding, the pod would otherwise wait for a profile for ever."""
    scheduler, web = open_door.scheduler_state, open_door.comes()
    open_door.popped()
    scheduler.state.assume(web, 0)
    scheduler.profiles.remove("default-scheduler")
    open_door.pod_enqueuer.profiles_changed()
    scheduler.state.put(Kind.POD, web.uid, parse_pod(pod("web", node="a")))
    assert open_door.pod_enqueuer.known() == {web.uid}
    open_door.pod_enqueuer.gone(web.uid)
    assert open_door.pod_enqueuer.known() == set()


def test_a_pod_whose_attempt_has_ended_is_compared_until_its_end_is_told(open_door: Door) -> None:
    """If kopf misses the pod's end, its group would otherwise count it for ever."""
    scheduler, web = open_door.scheduler_state, open_door.comes()
    queued = open_door.popped()
    assert open_door.pod_enqueuer.known() == set()
    scheduler.queue.done(queued, 0.0)
    assert open_door.pod_enqueuer.known() == {web.uid}
    open_door.pod_enqueuer.gone(web.uid)
    assert open_door.pod_enqueuer.known() == set()


def test_a_pod_that_another_scheduler_has_bound_is_compared_until_that_is_told(
    open_door: Door,
) -> None:
    """The watch of assigned pods shows it; the watch of pending pods may miss it."""
    web = open_door.comes()
    open_door.state.put(Kind.POD, web.uid, parse_pod(pod("web", node="a")))
    assert open_door.pod_enqueuer.known() == {web.uid}
    open_door.pod_enqueuer.gone(web.uid)
    assert open_door.pod_enqueuer.known() == set()
    assert open_door.scheduler_state.queue.get(web.uid) is None


def test_a_pod_that_no_profile_takes_is_known(door: Door) -> None:
    without_profile = door.comes()
    assert door.pod_enqueuer.knows(without_profile.uid)


class TestPodsWithoutProfile:
    """Reports to pods without a profile; `Door.reports` lets ten seconds pass."""

    def test_a_pod_that_profiles_for_its_scheduler_name_leave_out_is_told_which(
        self, door: Door
    ) -> None:
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match=LEFT_OUT)
        door.comes(spec=MINE)
        door.reports()
        ((name, why),) = door.alone
        assert name == "web"
        assert why == (
            'no SchedulingProfile takes the pod: those for schedulerName "mine" (batch) select '
            "other namespaces or pods"
        )

    @pytest.mark.parametrize(("labels", "takes"), [({"env": "batch"}, "batch"), ({}, "all")])
    def test_it_waits_until_the_labels_are_known_that_decide_which_profile_takes_it(
        self, door: Door, labels: dict[str, str], takes: str
    ) -> None:
        """The watch of namespaces may be later than the watch of pods."""
        mine = {"schedulerNames": ["mine"]}
        put_profile(door.scheduler_state, "all", registry=GATEKEEPER, match=mine)
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match={**LEFT_OUT, **FIRST})
        door.comes(namespace="new", spec=MINE)
        assert door.queue("web", "new") is None
        door.reports()
        assert "which has not been seen" in door.alone[0][1]
        door.state.put(Kind.NAMESPACE, "new", Namespace("new", labels))
        assert door.popped().pipeline.profile == takes

    def test_it_is_told_once_and_not_at_once(self, door: Door) -> None:
        """When a scheduler starts, pods may come before their profiles."""
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match=LEFT_OUT)
        door.comes(spec=MINE)
        door.pod_enqueuer.report()
        assert door.alone == []
        for _ in range(3):
            door.comes(spec=MINE)
            door.reports()
        assert len(door.alone) == 1

    def test_a_pod_that_may_be_another_schedulers_is_told_nothing(self, door: Door) -> None:
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match=BATCH)
        door.comes("of-volcano", spec={"schedulerName": "volcano"})
        door.comes("of-kube-scheduler")
        door.reports()
        assert door.alone == []

    def test_a_profile_that_only_compares_takes_no_pods_and_misses_none(self, door: Door) -> None:
        shadow = {"mode": "Shadow", "match": LEFT_OUT}
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match=LEFT_OUT)
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, **shadow)
        door.comes(spec=MINE)
        door.reports()
        door.scheduler_state.profiles.remove("batch")
        door.reports()
        assert door.alone == []

    def test_the_waiting_pods_of_a_deleted_profile_are_told(self, door: Door) -> None:
        put_profile(door.scheduler_state, "mine", registry=GATEKEEPER)
        door.comes(cpu="100", spec=MINE)
        door.scheduler_state.profiles.remove("mine")
        door.pod_enqueuer.profiles_changed()
        door.reports()
        ((name, why),) = door.alone
        assert name == "web"
        assert why.startswith("SchedulingProfile mine was deleted or is no longer for")

    def test_a_pod_of_a_profile_that_never_was_valid_is_told_to_look_at_it(
        self, door: Door
    ) -> None:
        door.scheduler_state.profiles.not_in_force("packed", ["mine"])
        door.comes(spec=MINE)
        door.reports()
        assert "see kubectl get sprof packed -o wide" in door.alone[0][1]

    def test_a_pod_that_is_being_bound_is_not_told(self, door: Door) -> None:
        put_profile(door.scheduler_state, "mine", registry=GATEKEEPER)
        web = door.comes(spec=MINE)
        door.popped()
        state = door.state
        state.assume(web, state.nodes.row_of["a"])
        door.scheduler_state.profiles.remove("mine")
        door.pod_enqueuer.profiles_changed()
        door.reports()
        assert door.alone == []
        state.forget(web)
        door.reports()
        assert len(door.alone) == 1

    def test_another_reason_is_told_too_and_a_pod_that_has_gone_is_told_nothing(
        self, door: Door
    ) -> None:
        put_profile(door.scheduler_state, "batch", registry=GATEKEEPER, match=LEFT_OUT)
        web = door.comes(spec=MINE)
        door.reports()
        door.scheduler_state.profiles.remove("batch")
        door.reports()
        assert len(door.alone) == 2
        door.pod_enqueuer.gone(web.uid)
        door.scheduler_state.profiles.not_in_force("packed", ["mine"])
        door.reports()
        assert len(door.alone) == 2


class TestLimits:
    def test_a_pod_beyond_a_limit_is_gated_and_told_which_limit(self, open_door: Door) -> None:
        resources = {f"example.com/r{i}": 1 for i in range(201)}
        open_door.comes(requests=resources)
        assert open_door.queue() is SubQueue.GATED
        sentence = "the pod has 201 requested resources; Mooring schedules at most 200"
        assert open_door.failed == [("web", sentence)]

    def test_it_is_told_once_for_each_version_and_is_never_attempted(self, open_door: Door) -> None:
        large = {f"label-{i}": "x" for i in range(1001)}
        open_door.comes(labels=large)
        for _ in range(5):
            open_door.now += UNSCHEDULABLE_TIMEOUT
            open_door.flush()
        assert len(open_door.failed) == 1
        assert open_door.scheduler_state.queue.pop(open_door.now) is None
        open_door.comes(labels={**large, "one": "more"})
        assert len(open_door.failed) == 2

    def test_it_is_queued_once_it_is_small_enough(self, open_door: Door) -> None:
        open_door.comes(labels={f"label-{i}": "x" for i in range(1001)})
        open_door.comes(labels={"app": "web"})
        assert open_door.queue() is SubQueue.ACTIVE

    def test_others_are_scheduled_meanwhile(self, open_door: Door) -> None:
        open_door.comes("large", labels={f"label-{i}": "x" for i in range(1001)})
        open_door.comes("web")
        assert open_door.popped().pod.name == "web"

    def test_its_nomination_counts_against_nobody(self, open_door: Door) -> None:
        open_door.comes(labels={f"l-{i}": "x" for i in range(1001)}, nominated="a")
        assert len(open_door.state.nominations) == 0


def test_a_pod_without_a_node_is_a_member_of_its_group_until_it_is_gone(door: Door) -> None:
    """This also holds without a profile: the group must not be complete without the member."""
    web = door.comes(group="train")
    train = door.state.pod_groups.of(web)
    assert train is not None
    assert list(train.unscheduled) == [web.uid]
    door.pod_enqueuer.gone(web.uid)
    assert len(door.state.pod_groups) == 0


def test_an_old_version_of_a_bound_pod_does_not_make_it_unscheduled(open_door: Door) -> None:
    state = open_door.state
    state.put(Kind.POD, uid_of("web"), parse_pod(pod("web", group="train", node="a")))
    web = open_door.comes(group="train")
    train = state.pod_groups.of(web)
    assert train is not None
    assert (len(train.unscheduled), len(train.assigned)) == (0, 1)


def test_the_formats_of_groups_are_those_of_the_plugins_in_force(open_door: Door) -> None:
    state = open_door.state
    open_door.comes(labels={"team": "train", "size": "2"})
    assert len(state.pod_groups) == 0
    open_door.gets_profile("gated", **GATED)
    (train,) = state.pod_groups
    assert (train.key.name, train.minimum, train.all_pods_count) == ("train", 2, 1)
    open_door.scheduler_state.profiles.remove("gated")
    open_door.pod_enqueuer.profiles_changed()
    assert len(state.pod_groups) == 0


def test_whoever_reads_a_pod_is_told_that_it_goes_meanwhile(open_door: Door) -> None:
    with open_door.scheduler_state.departures.meanwhile() as gone:
        open_door.pod_enqueuer.gone(Uid("never-seen"))
        assert "never-seen" in gone


def many(door: Door, count: int = 250) -> list[str]:
    """Add so many pods that their profiles are found in several slices; return their names."""
    return [door.comes(f"web-{number}").name for number in range(count)]


def settled(door: Door, names: list[str]) -> int:
    """Return how many of these pods are already known to have no profile."""
    return sum(uid_of(name) in door.without_profile for name in names)


def test_the_profiles_of_many_pods_are_found_in_slices(open_door: Door) -> None:
    names = many(open_door)
    open_door.loses_profile()
    found = [settled(open_door, names)]
    open_door.find_profiles(lambda: found.append(settled(open_door, names)))
    assert found == [*range(100, 251)]


def test_a_pod_whose_profile_is_yet_to_be_found_is_not_tried_with_the_one_that_was_removed(
    open_door: Door,
) -> None:
    many(open_door)
    open_door.loses_profile()
    first = open_door.popped()
    assert not open_door.pod_enqueuer.settle(first)
    assert first.pod.uid in open_door.without_profile
    assert open_door.queue(first.pod.name) is None


def test_a_pod_whose_profile_is_yet_to_be_found_is_tried_with_the_one_that_replaces_it(
    open_door: Door,
) -> None:
    many(open_door)
    first = open_door.popped()
    former = first.pipeline
    open_door.scheduler_state.queue.put_back(first, 0.0)
    open_door.gets_profile()
    popped = open_door.popped()
    assert popped.pipeline is former
    assert open_door.pod_enqueuer.settle(popped)
    pod = popped.pod
    profile = open_door.scheduler_state.profiles.of(pod, open_door.scheduler_state.cluster)
    assert profile is not None
    assert popped.pipeline is profile.pipeline
    assert not popped.outdated


def test_a_pod_that_the_new_profile_gates_is_not_tried(open_door: Door) -> None:
    for number in range(250):
        open_door.comes(f"web-{number}", labels={"gate": "close"})
    open_door.gets_profile(**GATED)
    popped = open_door.popped()
    assert not open_door.pod_enqueuer.settle(popped)
    assert open_door.queue(popped.pod.name) is SubQueue.GATED


def test_members_of_a_group_get_their_new_profile_together(open_door: Door) -> None:
    open_door.put_group("train", 3)
    members = [open_door.comes(f"train-{number}", group="train", priority=9) for number in range(3)]
    many(open_door)
    open_door.gets_profile()
    popped = open_door.popped()
    assert popped.pod in members
    assert open_door.pod_enqueuer.settle(popped)
    for member in members:
        queued = open_door.scheduler_state.queue.get(member.uid)
        assert queued is not None
        assert queued.pipeline is popped.pipeline


def test_the_newest_version_of_a_pod_counts_when_its_binding_fails_without_a_profile(
    open_door: Door,
) -> None:
    queued = bound_without_a_profile(open_door)
    old = queued.pod
    open_door.comes(labels={"new": "yes"})
    open_door.gets_profile()
    open_door.state.forget(old)
    open_door.scheduler_state.queue.add_after_error(queued, 0.0)
    found = open_door.scheduler_state.queue.get(old.uid)
    assert found is not None
    assert found.pod.labels == {"new": "yes"}


def test_attempts_in_flight_do_not_go_on_before_their_profile_is_found(open_door: Door) -> None:
    many(open_door)
    in_flight = [open_door.popped() for _ in range(250)]
    open_door.loses_profile()
    queue = open_door.scheduler_state.queue
    assert all(each.outdated for each in in_flight if queue.get(each.pod.uid) is each)


def test_a_second_change_while_profiles_are_found_has_the_last_word(open_door: Door) -> None:
    names = many(open_door)
    open_door.loses_profile()
    with Work(open_door.pod_enqueuer.find_profiles) as work:
        work.advance()
    open_door.gets_profile()
    assert open_door.find_profiles() > 0
    assert settled(open_door, names) == 0
    assert {open_door.queue(name) for name in names} == {SubQueue.ACTIVE}


def test_pods_that_come_change_or_go_while_profiles_are_found_end_where_they_belong(
    open_door: Door,
) -> None:
    names = many(open_door)
    open_door.loses_profile()
    changed = open_door.comes(names[0], labels={"changed": "yes"})
    new, gone = open_door.comes("new"), uid_of(names[1])
    open_door.pod_enqueuer.gone(gone)
    assert open_door.find_profiles() > 0
    left = open_door.without_profile
    assert left[changed.uid] is changed
    assert left[new.uid] is new
    assert gone not in left
    assert len(left) == len(names)
    assert [*open_door.scheduler_state.queue] == []


def test_a_namespace_that_is_relabelled_has_its_pods_looked_at_in_slices_too(door: Door) -> None:
    put_profile(door.scheduler_state, match=BATCH)
    names = many(door)
    door.namespace_is(env="batch")
    assert door.find_profiles() > 0
    assert settled(door, names) == 0


def test_no_pod_is_lost_while_profiles_are_found_and_the_log_of_decisions_is_full() -> None:
    door = Door(DecisionLog(limit=20_000))
    names = many(door)
    door.gets_profile()
    door.find_profiles()
    assert {door.queue(name) for name in names} == {SubQueue.ACTIVE}


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)


async def test_the_rest_is_found_while_the_pod_enqueuer_runs(open_door: Door) -> None:
    names = many(open_door)
    async with in_background(open_door.pod_enqueuer.run()):
        for _ in range(2):  # it waits for the next change each time
            open_door.loses_profile()
            await until(lambda: settled(open_door, names) == len(names))
            open_door.gets_profile()
            await until(lambda: settled(open_door, names) == 0)


async def test_profiles_of_the_rest_are_found_in_nobody_elses_turn(open_door: Door) -> None:
    names = many(open_door)
    open_door.loses_profile()
    async with in_background(open_door.pod_enqueuer.run()):
        async with open_door.scheduler_state.turn:
            before = settled(open_door, names)
            for _ in range(10):
                await asyncio.sleep(0)
            assert settled(open_door, names) == before < len(names)
        await until(lambda: settled(open_door, names) == len(names))


class TestPodsWithAMisspeltSchedulerName:
    """Reports to pods of unknown schedulers; `Door.reports` lets ten seconds pass."""

    def test_after_half_a_minute_the_pod_is_told_once_which_name_may_be_meant(
        self, door: Door
    ) -> None:
        put_profile(door.scheduler_state, "mooring", registry=GATEKEEPER)
        door.comes(spec={"schedulerName": "moring"})
        for _ in range(3):
            door.reports()
            assert door.misspelt == []
        for _ in range(6):
            door.reports()
            put_profile(door.scheduler_state, "other", registry=GATEKEEPER)
        assert door.misspelt == [
            (
                "web",
                'no SchedulingProfile is for schedulerName "moring", did you mean mooring?',
            )
        ]
        assert door.alone == []

    @pytest.mark.parametrize("name", ["volcano", "default-scheduler", "compared", "m" * 300])
    def test_a_pod_of_a_name_that_is_not_similar_or_another_schedulers_is_told_nothing(
        self, door: Door, name: str
    ) -> None:
        for active in ("mooring", "defaultscheduler", "compare"):
            put_profile(door.scheduler_state, active, registry=GATEKEEPER)
        put_profile(door.scheduler_state, "compared", registry=GATEKEEPER, mode="Shadow")
        door.comes(spec={"schedulerName": name})
        for _ in range(6):
            door.reports()
        assert door.misspelt == []

    def test_a_pod_that_another_scheduler_has_tried_is_told_nothing(self, door: Door) -> None:
        put_profile(door.scheduler_state, "mooring", registry=GATEKEEPER)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        tried = {"conditions": [{**condition, "message": "0/1 nodes are available"}]}
        door.comes(spec={"schedulerName": "moring"}, status=tried)
        for _ in range(6):
            door.reports()
        assert door.misspelt == []

    def test_of_many_pods_of_one_name_some_are_told_each_time(self, door: Door) -> None:
        put_profile(door.scheduler_state, "mooring", registry=GATEKEEPER)
        for number in range(450):
            door.comes(f"p{number}", spec={"schedulerName": "moring"})
        told = []
        for _ in range(6):
            door.reports()
            told.append(len(door.misspelt))
        assert told == [0, 0, 0, 200, 400, 450]

    def test_of_many_names_some_are_looked_at_each_time(self, door: Door) -> None:
        put_profile(door.scheduler_state, "mooring", registry=GATEKEEPER)
        for number in range(60):
            door.comes(f"p{number}", spec={"schedulerName": f"mooring{number // 2}"})
        for _ in range(4):
            door.reports()
        assert len(door.misspelt) == 40
        door.reports()
        assert len(door.misspelt) == 60


# ---- Claims for devices

CLAIMING: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]}
"""Part of the spec of a pod that names a claim."""


def put_claim(door: Door, **fields: Any) -> None:
    claim = parse_resource_claim(device_claim(**fields))
    door.state.put(Kind.RESOURCE_CLAIM, claim.key, claim)


def test_a_pod_is_gated_until_its_claim_comes(open_door: Door) -> None:
    open_door.comes(spec=CLAIMING)
    assert open_door.queue() is SubQueue.GATED
    put_claim(open_door, name="other")
    assert open_door.queue() is SubQueue.GATED
    put_claim(open_door)
    assert open_door.queue() is SubQueue.ACTIVE


@pytest.mark.parametrize("entries", [1, 2])
@pytest.mark.parametrize("told", [True, False])
def test_the_claim_of_a_pod_is_forgotten_although_the_watch_shows_its_node_before_kopf_its_end(
    open_door: Door, entries: int, *, told: bool
) -> None:
    """This also holds if the pod names the claim twice, or if kopf never shows its end."""
    state = open_door.state
    (entry,) = CLAIMING["resourceClaims"]
    named = [{**entry, "name": f"gpu{number}"} for number in range(entries)]
    web = open_door.comes(spec={"resourceClaims": named})
    state.put(Kind.POD, web.uid, parse_pod(pod(node="a")))
    if told:
        open_door.pod_enqueuer.gone(web.uid)
    state.delete(Kind.POD, web.uid)
    kept = Holders(re.compile(rb"^default/claim$"), ("enqueuer", open_door.pod_enqueuer))
    assert {where: found for where, found in kept.marks.items() if found} == {}


def test_a_pod_whose_binding_fails_is_tried_after_its_claim_still(open_door: Door) -> None:
    """The pod was nominated, so the end of its assumption delivers a DELETE event."""
    put_claim(open_door)
    web = open_door.comes(spec=CLAIMING, nominated="a")
    queued = open_door.popped()
    state = open_door.state
    state.assume(web, 0)
    state.forget(web)
    rejected_by = frozenset({"DynamicResources"})
    open_door.scheduler_state.queue.add_unschedulable(queued, rejected_by, open_door.now)
    open_door.now = 100.0
    put_claim(open_door, version=3, allocation=allocated("d0"))
    while open_door.scheduler_state.queue.run_hints(open_door.now):
        pass
    assert open_door.queue() is SubQueue.ACTIVE


def test_of_many_pods_that_wait_for_a_claim_the_others_follow_in_slices(open_door: Door) -> None:
    names = [f"p{number}" for number in range(300)]
    for name in names:
        open_door.comes(name, spec=CLAIMING)
    put_claim(open_door)
    waiting = {open_door.queue(name) for name in names}
    assert waiting == {SubQueue.ACTIVE, SubQueue.GATED}
    open_door.find_profiles()
    assert {open_door.queue(name) for name in names} == {SubQueue.ACTIVE}


def test_a_pod_is_gated_until_the_name_of_its_templates_claim_is_known(open_door: Door) -> None:
    raw = pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]})
    open_door.pod_enqueuer.pending(parse_pod(raw))
    put_claim(open_door, owner="web")
    assert open_door.queue() is SubQueue.GATED
    raw["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    open_door.pod_enqueuer.pending(parse_pod(raw))
    assert open_door.queue() is SubQueue.ACTIVE


def of_template(name: str) -> Pod:
    """Return a pod with its own claim, which has the pod's name."""
    raw = pod(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]})
    raw["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
    return parse_pod(raw)


def test_an_unschedulable_pod_is_tried_again_when_its_own_claim_changes(open_door: Door) -> None:
    """An equal pod is not retried in its place."""
    for name in ("db", "web"):
        put_claim(open_door, name=name, owner=name)
        open_door.pod_enqueuer.pending(of_template(name))
        queue = open_door.scheduler_state.queue
        queue.add_unschedulable(open_door.popped(), frozenset({"DynamicResources"}), open_door.now)
    open_door.now = 100.0
    put_claim(open_door, name="web", owner="web", version=2)
    assert open_door.queue() is SubQueue.UNSCHEDULABLE
    put_claim(open_door, name="web", owner="web", version=3, allocation=allocated("d0"))
    assert (open_door.queue(), open_door.queue("db")) == (
        SubQueue.ACTIVE,
        SubQueue.UNSCHEDULABLE,
    )


def test_pods_that_share_a_claim_are_tried_again_when_it_changes(open_door: Door) -> None:
    put_claim(open_door)
    for name in ("web", "db"):
        open_door.comes(name, spec=CLAIMING)
        queue = open_door.scheduler_state.queue
        queue.add_unschedulable(open_door.popped(), frozenset({"DynamicResources"}), open_door.now)
    open_door.now = 100.0
    put_claim(open_door, version=2, allocation=allocated("d0"))
    while queue.run_hints(open_door.now):
        pass
    assert SubQueue.ACTIVE in {open_door.queue("web"), open_door.queue("db")}


def test_a_claim_that_changes_all_the_time_costs_its_gated_pods_nothing(open_door: Door) -> None:
    """PreEnqueue runs again only if the claim is created, deleted or readable again."""
    names = [f"p{number}" for number in range(300)]
    for name in names:
        open_door.comes(name, spec=CLAIMING)
    for version in range(1, 10):
        raw = device_claim(version=version)
        raw["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "uid": "first"}
        claim = parse_resource_claim(raw)
        open_door.state.put(Kind.RESOURCE_CLAIM, claim.key, claim)
        steps = open_door.find_profiles()
        assert steps == (200 if version == 1 else 0)
    assert {open_door.queue(name) for name in names} == {SubQueue.GATED}
    put_claim(open_door)
    open_door.find_profiles()
    assert {open_door.queue(name) for name in names} == {SubQueue.ACTIVE}


def test_a_pod_is_tried_again_when_the_claim_for_its_extended_resources_is_gone(
    open_door: Door,
) -> None:
    """An equal pod is not retried in its place."""
    state = open_door.state
    raw = device_claim(owner="web")
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    state.put(Kind.RESOURCE_CLAIM, "default/claim", parse_resource_claim(raw))
    for name in ("db", "web"):
        open_door.comes(name, requests={"example.com/gpu": 1})
        queue = open_door.scheduler_state.queue
        queue.add_unschedulable(open_door.popped(), frozenset({"DynamicResources"}), open_door.now)
    open_door.now = 100.0
    state.delete(Kind.RESOURCE_CLAIM, "default/claim")
    found = (open_door.queue("web"), open_door.queue("db"))
    assert found == (SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE)


def test_nothing_is_kept_of_the_claims_of_pods_that_are_gone(open_door: Door) -> None:
    first = open_door.comes(spec=CLAIMING)
    open_door.pod_enqueuer.gone(first.uid)
    put_claim(open_door)
    assert open_door.queue() is None


class TestDevicesThatAreNotKnown:
    """Pods with claims wait while claims, slices or device classes cannot be read."""

    WHY = "devices cannot be allocated: Mooring may not list them"

    def test_a_pod_with_a_claim_is_gated_and_told_so(self, open_door: Door) -> None:
        open_door.state.devices_known(self.WHY)
        open_door.comes(spec=CLAIMING)
        open_door.comes("plain")
        assert open_door.queue() is SubQueue.GATED
        assert open_door.queue("plain") is SubQueue.ACTIVE
        open_door.reports()
        open_door.reports()
        assert open_door.gated == [("web", self.WHY)]

    def test_it_is_queued_when_they_are_known(self, open_door: Door) -> None:
        state = open_door.state
        state.devices_known(self.WHY)
        put_claim(open_door)
        for name in ("web", "db"):
            open_door.comes(name, spec=CLAIMING)
        state.devices_known("another reason")
        assert open_door.queue() is SubQueue.GATED
        state.devices_known(None)
        open_door.find_profiles()
        assert open_door.queue() is open_door.queue("db") is SubQueue.ACTIVE

    def test_one_that_was_rejected_for_it_is_tried_again(self, open_door: Door) -> None:
        """A pod with extended resources is rejected, because it has no claim yet."""
        state = open_door.state
        state.devices_known(self.WHY)
        for name, plugin in (("web", "DynamicResources"), ("db", "NodeResourcesFit")):
            open_door.comes(name, requests={"example.com/gpu": 1})
            queue = open_door.scheduler_state.queue
            queue.add_unschedulable(open_door.popped(), frozenset({plugin}), open_door.now)
        open_door.now = 100.0
        state.devices_known(None)
        while open_door.scheduler_state.queue.run_hints(open_door.now):
            pass
        found = open_door.queue(), open_door.queue("db")
        assert found == (SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE)
