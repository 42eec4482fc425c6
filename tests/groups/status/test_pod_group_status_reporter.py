"""Reports about pod groups: statuses, events, and the document on request."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from background import in_background
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.groups.model.pod_group import (
    COSCHEDULING_LABEL,
    NODES_RESERVED,
    SIGS_LABEL,
    Reservation,
)
from mooring.groups.search.group_decision import DomainTried, GroupDecision
from mooring.groups.state.pod_groups import PodGroupState
from mooring.groups.status.pod_group_status_reporter import PodGroupStatusReporter
from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    KAI_POD_GROUP,
    POD,
    POD_GROUP,
    POD_GROUP_V1ALPHA2,
    POD_GROUP_V1ALPHA3,
    SIGS_POD_GROUP,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodGroupWriter
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import parse_pod
from mooring.observe.documents import plain
from mooring.testing.builders import (
    coscheduling_pod_group,
    kai_pod_group,
    node,
    pod,
    pod_group,
    uid_of,
    volcano_pod_group,
)
from scheduler_states import put_profile, scheduler_state

LABEL = {COSCHEDULING_LABEL: "train"}
SERVED = {
    Kind.POD_GROUP: POD_GROUP_V1ALPHA2,
    Kind.COSCHEDULING_POD_GROUP: COSCHEDULING_POD_GROUP,
    Kind.VOLCANO_POD_GROUP: VOLCANO_POD_GROUP,
    Kind.KAI_POD_GROUP: KAI_POD_GROUP,
}
CUSTOM = {
    "scheduling.x-k8s.io": Kind.COSCHEDULING_POD_GROUP,
    "scheduling.volcano.sh": Kind.VOLCANO_POD_GROUP,
    "scheduling.run.ai": Kind.KAI_POD_GROUP,
}
WAIT_SECONDS = 60.0

FULL = GroupDecision(
    rows={},
    message="needs 12 CPUs more in rack=r3",
    tried=(DomainTried("rack", "r3", 7, "7 of 8 fit"),),
    tries=2,
    bounded=True,
)


class Groups:
    """A cluster with a status reporter, and the server that gets its patches.

    `now` is the time of both clocks.
    """

    def __init__(self, objects: list[dict[str, Any]], client: ApiClient, server: "Server") -> None:
        self._clock = VirtualClock()
        self.scheduler = scheduler_state(
            *objects, clock=lambda: self.now, now=lambda: self.now, sleep=self._clock.sleep
        )
        self.state = self.scheduler.state
        self.server = server
        self.now = 1_767_225_600.0
        self.served = dict(SERVED)
        self.recorder = EventRecorder(client, "mooring", "test")
        self.events: list[tuple[str, str]] = []
        self.reports = PodGroupStatusReporter(
            self.scheduler,
            PodGroupWriter(client),
            self.recorder,
            served=lambda: self.served,
        )
        self.state.on_events(self.reports.on_events)
        self.own()

    def placed(self) -> tuple[float | None, float | None]:
        """Return the metric of placed groups: their number, and the sum of their seconds."""
        name = "mooring_pod_group_scheduling_duration_seconds"
        sample = self.scheduler.metrics.registry.get_sample_value
        return sample(f"{name}_count"), sample(f"{name}_sum")

    def own(self, *, owned: bool = True) -> None:
        """Put the members' profile in force; if `owned` is False, take it out of force."""
        if owned:
            put_profile(self.scheduler)
        else:
            self.scheduler.profiles.remove("default-scheduler")

    async def round(self) -> None:
        """Wait until the reporter has examined the changed groups once more."""
        await self.first_round()
        await self._clock.advance(1.0)
        await self.first_round()

    async def first_round(self) -> None:
        """Wait until everything is written and both loops of the reporter sleep."""
        await self._clock.sleepers(2)

    def group(self) -> PodGroupState:
        (only,) = self.state.pod_groups
        return only

    def show(self, raw: dict[str, Any]) -> None:
        """Let the watch show this object."""
        group, _, _ = raw["apiVersion"].partition("/")
        kind = CUSTOM.get(group) or Kind(raw["kind"])
        value = parse_object(kind, raw)
        self.state.put(kind, object_key(kind, raw), value)

    def report(self) -> dict[str, Any]:
        (only,) = plain(self.reports.report("default", "train"))
        found: dict[str, Any] = only
        return found


class Server:
    """Answers patches of PodGroups and lists of pods; if `refusal` is set, refuses all requests."""

    def __init__(self) -> None:
        self.patches: list[Request] = []
        self.lists: list[Request] = []
        self.events: list[Request] = []
        self.finished: dict[str, int] = {}
        self.refusal: tuple[int, str] | None = None

    def __call__(self, request: Request) -> None:
        if self.refusal is not None:
            request.refuse(*self.refusal, "not now")
        elif request.method == "PATCH":
            self.patches.append(request)
            request.reply({})
        elif request.path.endswith("/pods"):
            self.lists.append(request)
            phase = request.query["fieldSelector"].removeprefix("status.phase=")
            names = map(str, range(self.finished.get(phase, 0)))
            items = [{"metadata": {"name": name, "uid": name}} for name in names]
            request.reply({"metadata": {"resourceVersion": "1"}, "items": items})
        else:
            self.events.append(request)
            request.reply({})

    def patched(self) -> list[dict[str, Any]]:
        """Return the statuses written since the last call."""
        statuses = [request.body["status"] for request in self.patches]
        self.patches.clear()
        return statuses


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def objects() -> list[dict[str, Any]]:
    """Return the objects that are in the cluster at the start."""
    return [
        node("n"),
        coscheduling_pod_group("train", 3),
        *(pod(f"p{i}", labels=LABEL) for i in range(2)),
    ]


@pytest.fixture
async def groups(server: Server, objects: list[dict[str, Any]]) -> AsyncIterator[Groups]:
    async with ApiServer(server) as running, ApiClient(Connection(running.url)) as client:
        made = Groups(objects, client, server)
        async with in_background(made.reports.run(), made.recorder.run()):
            await made.first_round()
            yield made


def message(status: dict[str, Any]) -> str:
    (condition,) = status["conditions"]
    return str(condition["message"])


async def test_the_status_of_a_group_says_what_it_waits_for(groups: Groups) -> None:
    (request,) = groups.server.patches
    assert request.path == COSCHEDULING_POD_GROUP.path("default", "train", "status")
    assert request.body["metadata"] == {"uid": "podgroup-default-train"}
    (status,) = groups.server.patched()
    assert (status["phase"], message(status)) == ("Pending", "2 of 3 members exist")
    assert [each["type"] for each in status["conditions"]] == ["PodGroupScheduled"]


async def test_a_status_is_written_once_for_many_changes_and_not_without_one(
    groups: Groups,
) -> None:
    groups.server.patched()
    await groups.round()
    assert groups.server.patched() == []
    for i in range(2, 30):
        groups.state.put_unscheduled(parse_pod(pod(f"p{i}", labels=LABEL)))
    await groups.round()
    (status,) = groups.server.patched()
    assert status["phase"] == "Scheduling"


async def test_a_server_that_drops_the_conditions_is_not_written_to_again_and_again(
    groups: Groups,
) -> None:
    groups.server.patched()
    groups.show(coscheduling_pod_group("train", 3, status={"phase": "Pending"}))
    await groups.round()
    (first,) = groups.server.patched()
    assert first.keys() == {"conditions"}
    groups.show(coscheduling_pod_group("train", 3, status={"phase": "Pending", "running": 0}))
    await groups.round()
    assert groups.server.patched() == []


async def test_the_cause_of_a_failed_decision_is_in_condition_event_and_report(
    groups: Groups,
) -> None:
    groups.server.patched()
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    groups.reports.decided(groups.group(), FULL)
    await groups.round()
    (status,) = groups.server.patched()
    assert message(status) == FULL.message
    assert status["scheduleStartTime"] == "2026-01-01T00:00:00Z"
    await groups.recorder.drain(WAIT_SECONDS)
    (event,) = groups.server.events
    assert event.body["regarding"]["kind"] == "PodGroup"
    assert event.body["regarding"]["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert (event.body["reason"], event.body["note"]) == ("FailedScheduling", FULL.message)
    report = groups.report()
    assert report["message"] == FULL.message
    assert report["decision"]["tried"] == [
        {"key": "rack", "value": "r3", "fits": 7, "message": "7 of 8 fit"}
    ]


async def test_reserved_nodes_are_in_condition_event_report_and_metric_until_they_are_free(
    groups: Groups,
) -> None:
    groups.show(node("n1"))
    groups.reports.decided(groups.group(), FULL)
    member = next(iter(groups.group().unscheduled.values()))
    until = groups.now + 60.0
    kept = Reservation(groups.group().key, until, 0)
    groups.state.nominate(member, "n1", reservation=kept)
    groups.server.patched()
    await groups.round()
    text = "reserved for the group: n1, until 2026-01-01T00:01:00Z"
    (status,) = groups.server.patched()
    condition = status["conditions"][1]
    assert (condition["type"], condition["status"]) == (NODES_RESERVED, "True")
    assert condition["message"] == groups.report()["reserved"] == text
    assert groups.reports.reserved_nodes() == 1
    await groups.recorder.drain(WAIT_SECONDS)
    told = [(event.body["reason"], event.body["note"]) for event in groups.server.events]
    assert ("NodesReserved", text) in told
    shown = coscheduling_pod_group("train", 2, status=status)
    groups.show(shown)
    assert groups.state.pod_groups.reservation_of(member) == kept._replace(priority=0)
    groups.state.withdraw(member.uid)
    groups.reports.look_at(groups.group())
    await groups.round()
    (status,) = groups.server.patched()
    assert status["conditions"][1]["status"] == "False"
    assert (groups.report()["reserved"], groups.reports.reserved_nodes()) == (None, 0)


async def test_what_is_said_of_the_group_is_not_said_of_each_member(groups: Groups) -> None:
    def waiting(name: str, message: str) -> dict[str, Any]:
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        return pod(name, labels=LABEL, status={"conditions": [condition]})

    for name, message in (("p0", FULL.message), ("p1", FULL.message), ("p2", "no profile")):
        groups.state.put_unscheduled(parse_pod(waiting(name, message)))
    groups.reports.decided(groups.group(), FULL)
    messages = {member["pod"]: member["message"] for member in groups.report()["pods"]}
    assert messages == {"default/p0": None, "default/p1": None, "default/p2": "no profile"}


async def test_a_group_that_is_placed_gets_an_event_with_its_domain(groups: Groups) -> None:
    groups.server.patched()
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    members = [parse_pod(pod(f"p{i}", labels=LABEL)) for i in range(3)]
    groups.now += 5.0
    rows = {member.uid: 0 for member in members}
    groups.reports.decided(groups.group(), GroupDecision(rows=rows, domain=("rack", "r1")))
    assert groups.placed() == (1, 5.0)
    for member in members:
        groups.state.assume(member, 0)
    await groups.round()
    assert message(groups.server.patched()[0]).startswith("0 of 3 members are bound")
    for member in members:
        groups.state.put(Kind.POD, member.uid, parse_pod(pod(member.name, labels=LABEL, node="n")))
    await groups.round()
    (status,) = groups.server.patched()
    assert (status["phase"], status["running"]) == ("Running", 3)
    assert status["conditions"][0]["status"] == "True"
    await groups.recorder.drain(WAIT_SECONDS)
    (event,) = groups.server.events
    assert (event.body["reason"], event.body["note"]) == (
        "Scheduled",
        "3 members are bound in rack=r1",
    )
    groups.reports.decided(groups.group(), GroupDecision(rows=rows))
    assert groups.placed() == (1, 5.0)


async def test_a_group_that_is_placed_at_once_is_written_once(groups: Groups) -> None:
    """Neither the wait for the first attempt nor the binding causes a write."""
    groups.server.patched()
    groups.show(pod_group("serve", 2))
    pods = [parse_pod(pod(f"s{i}", group="serve")) for i in range(2)]
    for member in pods:
        groups.state.put_unscheduled(member)
    await groups.round()
    assert groups.server.patched() == []
    serve = groups.state.pod_groups.of(pods[0])
    assert serve is not None
    groups.reports.decided(serve, GroupDecision(rows={member.uid: 0 for member in pods}))
    for member in pods:
        groups.state.assume(member, 0)
    await groups.round()
    assert groups.server.patched() == []
    for member in pods:
        bound = parse_pod(pod(member.name, group="serve", node="n"))
        groups.state.put(Kind.POD, member.uid, bound)
    await groups.round()
    (status,) = groups.server.patched()
    assert status["conditions"][0]["status"] == "True"


async def test_a_group_that_is_being_bound_for_long_says_so(groups: Groups) -> None:
    groups.server.patched()
    groups.show(pod_group("serve", 1))
    member = parse_pod(pod("s", group="serve"))
    groups.state.put_unscheduled(member)
    serve = groups.state.pod_groups.of(member)
    assert serve is not None
    groups.reports.decided(serve, GroupDecision(rows={member.uid: 0}))
    groups.state.assume(member, 0)
    await groups.round()
    assert groups.server.patched() == []
    groups.now += 10.0
    await groups.round()
    (status,) = groups.server.patched()
    assert message(status) == "0 of 1 members are bound; the others will be soon"


async def test_an_error_is_told_until_the_next_decision(groups: Groups) -> None:
    groups.server.patched()
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    groups.reports.failed(groups.group(), "plugin Mine failed")
    await groups.round()
    (status,) = groups.server.patched()
    assert status["conditions"][0]["reason"] == "SchedulerError"
    groups.reports.decided(groups.group(), FULL)
    await groups.round()
    (status,) = groups.server.patched()
    assert message(status) == FULL.message


async def test_finished_members_are_counted_once_some_have_left(groups: Groups) -> None:
    bound = [parse_pod(pod(f"p{i}", labels=LABEL, node="n")) for i in range(3)]
    for member in bound:
        groups.state.put(Kind.POD, member.uid, member)
    await groups.round()
    assert groups.server.lists == []
    groups.server.patched()
    groups.server.finished = {"Succeeded": 3}
    for member in bound:
        groups.state.delete(Kind.POD, member.uid)
    await groups.round()
    assert [request.query["labelSelector"] for request in groups.server.lists] == [
        f"{COSCHEDULING_LABEL}=train"
    ] * 2
    assert {request.path for request in groups.server.lists} == {POD.path("default")}
    (status,) = groups.server.patched()
    assert (status["phase"], status["succeeded"]) == ("Finished", 3)
    await groups.round()
    assert len(groups.server.lists) == 2


async def test_members_of_an_older_group_are_counted_by_their_label(groups: Groups) -> None:
    groups.served[Kind.COSCHEDULING_POD_GROUP] = SIGS_POD_GROUP
    member = parse_pod(pod("p0", labels=LABEL, node="n"))
    groups.state.put(Kind.POD, member.uid, member)
    await groups.round()
    groups.server.patched()
    groups.state.delete(Kind.POD, member.uid)
    await groups.round()
    assert {request.query["labelSelector"] for request in groups.server.lists} == {
        f"{SIGS_LABEL}=train"
    }


async def test_a_group_is_written_when_the_profile_of_its_members_comes(groups: Groups) -> None:
    """A new leader has no profile in force at first, and the group may never change."""
    groups.server.patched()
    groups.own(owned=False)
    groups.show(coscheduling_pod_group("other", 2))
    member = pod("m", node="n", labels={COSCHEDULING_LABEL: "other"}, phase="Running")
    groups.state.put(Kind.POD, uid_of("m"), parse_pod(member))
    await groups.round()
    assert groups.server.patched() == []
    groups.own()
    await groups.round()
    (status,) = groups.server.patched()
    assert message(status) == "1 of 2 members are bound; 1 of 2 members exist"
    await groups.round()
    assert groups.server.patched() == []


async def test_a_group_whose_members_another_scheduler_has_by_now_is_not_written_any_more(
    groups: Groups,
) -> None:
    """The profile was deleted, so another scheduler may schedule the members now."""
    groups.server.patched()
    groups.own(owned=False)
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    await groups.round()
    assert groups.server.patched() == []
    groups.own()
    await groups.round()
    assert len(groups.server.patched()) == 1


async def test_the_groups_of_other_schedulers_are_not_written(groups: Groups) -> None:
    groups.server.patched()
    groups.own(owned=False)
    label = {COSCHEDULING_LABEL: "other"}
    groups.show(coscheduling_pod_group("other", 3))
    groups.state.put_unscheduled(parse_pod(pod("theirs", labels=label)))
    groups.show(coscheduling_pod_group("without-members", 3))
    await groups.round()
    assert groups.server.patched() == []


@pytest.mark.parametrize(
    ("scheduler", "presets", "written"),
    [("volcano", ["Volcano"], True), ("mooring", ["Volcano"], False), ("volcano", [], False)],
)
async def test_a_group_of_volcano_is_queued_without_pods_where_a_profile_takes_those_to_come(
    groups: Groups, scheduler: str, presets: list[str], *, written: bool
) -> None:
    """Volcano's controller creates the pods of a job only when the group's status allows it."""
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": presets}}]
    match = {"schedulerNames": [scheduler]}
    put_profile(groups.scheduler, "jobs", match=match, pluginConfig=config)
    await groups.round()
    groups.server.patched()
    groups.show(volcano_pod_group("job", 3))
    await groups.round()
    found = groups.server.patched()
    assert [status["phase"] for status in found] == ["Inqueue"] * written


async def test_of_a_group_of_kai_only_events_tell(groups: Groups) -> None:
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["KAI"]}}]
    put_profile(groups.scheduler, pluginConfig=config)
    groups.state.track_pod_groups(groups.scheduler.profiles.pod_group_formats)
    await groups.round()
    groups.server.patched()
    groups.show(kai_pod_group("kai", 2, queue="team-a", preemptibility="preemptible"))
    groups.state.put_unscheduled(parse_pod(pod("k", annotations={"pod-group-name": "kai"})))
    for _ in range(2):
        await groups.round()
    assert groups.server.patched() == []
    await groups.recorder.drain(WAIT_SECONDS)
    (event,) = (request.body for request in groups.server.events)
    assert event["reason"] == "FieldsIgnored"
    fields = "spec.preemptibility"
    assert event["note"] == f"without effect (docs/gangs.md): {fields}"
    assert event["regarding"]["apiVersion"] == "scheduling.run.ai/v2alpha2"


@pytest.mark.parametrize(("status", "again"), [(500, True), (403, False)])
async def test_a_status_that_a_server_in_trouble_refuses_is_written_in_the_next_round(
    groups: Groups, status: int, *, again: bool
) -> None:
    groups.server.patched()
    groups.server.refusal = (status, "Refused")
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    await groups.round()
    groups.server.refusal = None
    await groups.round()
    assert [each["phase"] for each in groups.server.patched()] == ["Scheduling"] * again
    groups.state.put_unscheduled(parse_pod(pod("p3", labels=LABEL)))
    await groups.round()
    assert len(groups.server.patched()) == (not again)


async def test_a_group_that_is_made_anew_under_its_name_gets_a_status(groups: Groups) -> None:
    groups.server.patched()
    raw = coscheduling_pod_group("train", 3)
    raw["metadata"] |= {"uid": "another", "resourceVersion": "9"}
    groups.show(raw)
    await groups.round()
    (request,) = groups.server.patches
    assert request.body["metadata"] == {"uid": "another", "resourceVersion": "9"}


async def test_a_status_for_another_version_of_the_group_is_written_when_the_group_is_shown(
    groups: Groups,
) -> None:
    """The server compares only the version; another group may have this name by now."""
    groups.server.patched()
    raw = coscheduling_pod_group("train", 3)
    raw["metadata"]["resourceVersion"] = "1"
    groups.show(raw)
    groups.state.put_unscheduled(parse_pod(pod("p2", labels=LABEL)))
    groups.server.refusal = (409, "Conflict")
    await groups.round()
    groups.server.refusal = None
    await groups.round()
    assert groups.server.patched() == []
    raw["metadata"]["resourceVersion"] = "2"
    groups.show(raw)
    await groups.round()
    (request,) = groups.server.patches
    assert request.body["metadata"]["resourceVersion"] == "2"
    assert request.body["status"]["phase"] == "Scheduling"


async def test_groups_are_counted_by_phase_until_they_are_gone(groups: Groups) -> None:
    groups.show(pod_group("serve", 1))
    await groups.round()
    assert {p: n for p, n in groups.reports.phases().items() if n} == {"Pending": 2}
    groups.state.delete(Kind.POD_GROUP, "default/serve")
    await groups.round()
    assert {p: n for p, n in groups.reports.phases().items() if n} == {"Pending": 1}


@pytest.mark.parametrize(
    ("resource", "condition"),
    [
        (POD_GROUP, "PodGroupInitiallyScheduled"),
        (POD_GROUP_V1ALPHA3, "PodGroupInitiallyScheduled"),
        (POD_GROUP_V1ALPHA2, "PodGroupScheduled"),
    ],
)
async def test_the_condition_of_kubernetes_is_merged_with_the_others(
    groups: Groups, resource: Resource, condition: str
) -> None:
    groups.served[Kind.POD_GROUP] = resource
    groups.server.patched()
    groups.show(pod_group("serve", 2))
    groups.state.put_unscheduled(parse_pod(pod("s", group="serve")))
    await groups.round()
    (request,) = groups.server.patches
    assert request.path == resource.path("default", "serve", "status")
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.body["status"]["conditions"][0]["type"] == condition


async def test_a_report_lists_the_members_and_what_keeps_each(groups: Groups) -> None:
    gated = pod("gated", labels=LABEL, gates=["wait"])
    bound = pod("bound", labels=LABEL, node="n")
    groups.state.put_unscheduled(parse_pod(gated))
    groups.state.put(Kind.POD, uid_of("bound"), parse_pod(bound))
    report = groups.report()
    assert report["members"]["unscheduled"] == 3
    assert report["pods"][2:] == [
        {
            "pod": "default/gated",
            "state": "gated",
            "node": None,
            "message": "scheduling gates: wait",
        },
        {"pod": "default/bound", "state": "assigned", "node": "n", "message": None},
    ]
    assert groups.reports.report("default", "other") == []
