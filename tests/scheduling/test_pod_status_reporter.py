"""The results of attempts for users: events and the PodScheduled condition."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from background import in_background
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import ApiCall
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import error_from_status
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodWriter
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_priority_class
from mooring.scheduling.pod_status_reporter import (
    PodScheduledReason,
    PodStatusReporter,
    failure_reason,
)
from mooring.state.cluster import ClusterState
from mooring.testing.builders import pod, priority_class

WEB = parse_pod(pod("web"))
OTHER = parse_pod(pod("other"))
FULL = "0/1 nodes are available: 1 Insufficient cpu."
TAINTED = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(Connection(server.url)) as session:
        yield session


@pytest.fixture
async def recorder(client: ApiClient) -> EventRecorder:
    """Return a recorder that keeps events; run it to write them."""
    return EventRecorder(client, "mooring", "test")


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def reports(
    client: ApiClient, recorder: EventRecorder, clock: VirtualClock
) -> AsyncIterator[PodStatusReporter]:
    made = PodStatusReporter(PodWriter(client), recorder, clock.sleep)
    async with in_background(made.run()):
        yield made


def unschedulable(
    reports: PodStatusReporter, pod: Pod, message: str, nominated: str | None = None
) -> None:
    """Report that no node fits the pod, and advance the clock by a second."""
    reports.unschedulable(pod, message, nominated)
    reports.report_new()


def about(request: Request) -> str:
    return request.path.removeprefix("/api/v1/namespaces/default/pods/").removesuffix("/status")


def condition(request: Request) -> dict[str, Any]:
    (only,) = request.body["status"]["conditions"]
    return dict(only)


async def answered(server: ApiServer) -> Request:
    request = await server.next()
    request.reply({})
    return request


async def event(server: ApiServer, recorder: EventRecorder) -> dict[str, Any]:
    """Return the only recorded event as it is written."""
    async with in_background(recorder.run()):
        return dict((await answered(server)).body)


async def test_an_unschedulable_pod_gets_the_condition_with_the_time_it_began(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    request = await answered(server)
    written = condition(request)
    assert request.body["metadata"]["uid"] == WEB.uid
    assert written.pop("lastTransitionTime").endswith("Z")
    assert written == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": FULL,
    }


async def test_nothing_is_written_about_a_pod_that_has_a_node_within_a_second(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    reports.unschedulable(WEB, FULL)
    reports.unschedulable(OTHER, FULL)
    reports.forget(WEB.uid)
    reports.scheduled(WEB, "a")
    reports.report_new()
    assert about(await answered(server)) == "other"
    async with in_background(recorder.run()):
        events = {(await answered(server)).body["reason"] for _ in range(2)}
    assert events == {"Scheduled", "FailedScheduling"}
    assert len(server.seen) == 3


async def test_of_several_messages_within_a_second_the_last_is_the_first_report(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    reports.unschedulable(WEB, FULL)
    reports.unschedulable(WEB, TAINTED)
    reports.report_new()
    reports.report_new()
    assert condition(await answered(server))["message"] == TAINTED
    assert (await event(server, recorder))["note"] == TAINTED
    assert len(server.seen) == 2


@pytest.mark.parametrize("nominated", ["a", None])
async def test_a_report_does_not_wait_if_the_pod_is_nominated_or_has_the_condition(
    server: ApiServer, reports: PodStatusReporter, nominated: str | None
) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    raw = pod("web", status={} if nominated else {"conditions": [said]})
    reports.unschedulable(parse_pod(raw), FULL, nominated)
    assert condition(await answered(server))["message"] == FULL


async def test_an_error_is_reported_at_once_and_replaces_what_waits(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    reports.unschedulable(WEB, FULL)
    reports.error(WEB, "plugin Gang failed")
    reports.report_new()
    assert condition(await answered(server))["message"] == "plugin Gang failed"
    unschedulable(reports, OTHER, FULL)
    assert about(await answered(server)) == "other"


async def test_conditions_say_which_generation_of_the_pod_they_are_about(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    assert "observedGeneration" not in condition(await answered(server)), "it has no generation"
    edited = replace(WEB, generation=3)
    unschedulable(reports, edited, FULL)
    unschedulable(reports, edited, TAINTED)
    assert condition(await answered(server))["observedGeneration"] == 3
    marking = asyncio.create_task(reports.mark_disrupted(edited, OTHER))
    assert condition(await answered(server))["observedGeneration"] == 3
    await marking


async def test_the_same_message_is_not_written_again(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    assert about(await answered(server)) == "web"
    unschedulable(reports, WEB, FULL)
    unschedulable(reports, OTHER, FULL)
    assert about(await answered(server)) == "other"
    assert len(server.seen) == 2


async def test_a_condition_that_the_pod_has_already_is_not_written_by_a_new_leader(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": FULL,
    }
    told = parse_pod(pod("told", status={"conditions": [said]}))
    unschedulable(reports, told, FULL)
    unschedulable(reports, OTHER, FULL)
    assert about(await answered(server)) == "other"


async def test_another_reason_is_written_even_with_the_same_message(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    assert condition(await answered(server))["reason"] == "Unschedulable"
    reports.error(WEB, FULL, PodScheduledReason.ADMISSION_DENIED)
    assert condition(await answered(server))["reason"] == "AdmissionDenied"


async def test_a_gated_pod_gets_condition_and_event_once_for_each_message(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    for _ in range(3):
        reports.gated(WEB, "waiting for 3 pods")
    written = condition(await answered(server))
    assert (written["reason"], written["message"]) == ("SchedulingGated", "waiting for 3 pods")
    found = await event(server, recorder)
    assert (found["note"], found.get("series")) == ("waiting for 3 pods", None)


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, "exceeded quota: small", "QuotaExceeded"),
        (403, 'User "x" cannot create resource "pods/binding"', "SchedulerError"),
        (
            422,
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            "AdmissionDenied",
        ),
        (409, "pod web is already assigned to node b", "BindingConflict"),
        (500, "etcdserver: request timed out", "SchedulerError"),
    ],
)
def test_the_reason_of_a_failed_binding_tells_who_forbids_it(
    status: int, message: str, reason: str
) -> None:
    call = ApiCall("create", "pods/binding", "", "default", "web")
    error = error_from_status(call, {"code": status, "message": message})
    assert failure_reason(error) == reason


def test_only_unschedulable_asks_a_cluster_autoscaler_for_nodes() -> None:
    """The cluster autoscaler reads this reason (utils/kubernetes/listers.go)."""
    assert [reason for reason in PodScheduledReason if reason == "Unschedulable"] == [
        PodScheduledReason.UNSCHEDULABLE
    ]


async def test_a_changed_message_leaves_the_time_of_the_transition(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    await answered(server)
    reports.error(WEB, "plugin Gang failed")
    written = condition(await answered(server))
    assert (written["reason"], written["message"]) == ("SchedulerError", "plugin Gang failed")
    assert "lastTransitionTime" not in written


async def test_only_the_newest_status_that_waits_is_written(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    held = await server.next()
    unschedulable(reports, WEB, TAINTED, "a")
    unschedulable(reports, WEB, "0/2 nodes are available: 2 Insufficient cpu.", "a")
    unschedulable(reports, OTHER, FULL)
    assert about(await answered(server)) == "other"  # another lane; no second one about web
    held.reply({})
    newest = await answered(server)
    assert condition(newest)["message"].startswith("0/2")
    assert newest.body["status"]["nominatedNodeName"] == "a"
    assert len(server.seen) == 3


async def test_a_cleared_nomination_is_written_without_repeating_the_message(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL, "a")
    assert (await answered(server)).body["status"]["nominatedNodeName"] == "a"
    reports.nomination_cleared(WEB)
    assert (await answered(server)).body["status"] == {"nominatedNodeName": None}


async def test_no_status_is_written_for_a_pod_that_is_about_to_be_bound(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    held = await server.next()
    unschedulable(reports, WEB, TAINTED)
    reports.forget(WEB.uid)
    written = asyncio.create_task(reports.written(WEB))
    unschedulable(reports, OTHER, FULL)
    assert about(await answered(server)) == "other"
    assert not written.done()
    held.reply({})
    await written
    assert len(server.seen) == 2


def shown(version: int, nominated: str | None = None) -> Pod:
    """Return this version of the pod as the watch shows it."""
    raw = pod("web", nominated=nominated)
    raw["metadata"]["resourceVersion"] = str(version)
    return parse_pod(raw)


async def test_a_status_counts_that_is_not_older_than_the_nomination_that_was_written(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    assert reports.is_nominated_by_status(shown(8, "other"))
    unschedulable(reports, WEB, FULL, "a")
    assert not reports.is_nominated_by_status(shown(9, "other"))
    (await server.next()).reply({"metadata": {"resourceVersion": "10"}})
    await reports.written(WEB)
    assert not reports.is_nominated_by_status(shown(9))
    assert reports.is_nominated_by_status(shown(10, "a"))
    assert reports.is_nominated_by_status(shown(11, "other"))


async def test_a_nomination_that_others_replaced_is_written_again(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL, "a")
    await answered(server)
    await reports.written(WEB)
    for replaced in (shown(11, "other"), shown(12)):
        assert reports.is_nominated_by_status(replaced)
        unschedulable(reports, replaced, FULL, "a")
        assert (await answered(server)).body["status"]["nominatedNodeName"] == "a"
        await reports.written(WEB)


@pytest.mark.parametrize("refusal", [403, 404])
async def test_a_nomination_that_could_not_be_written_hides_no_status(
    server: ApiServer, reports: PodStatusReporter, refusal: int
) -> None:
    unschedulable(reports, WEB, FULL, "a")
    (await server.next()).refuse(refusal, "Refused", "no")
    await reports.written(WEB)
    assert reports.is_nominated_by_status(shown(9, "other"))


async def test_a_pod_that_has_gone_is_forgotten(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    (await server.next()).refuse(404, "NotFound", "pods web not found")
    await reports.written(WEB)
    unschedulable(reports, WEB, FULL)
    assert "lastTransitionTime" in condition(await answered(server))


async def test_a_status_that_was_refused_is_written_when_it_is_told_again(
    server: ApiServer, reports: PodStatusReporter
) -> None:
    unschedulable(reports, WEB, FULL)
    (await server.next()).refuse(403, "Forbidden", "no")
    await reports.written(WEB)
    unschedulable(reports, WEB, FULL)
    assert condition(await answered(server))["message"] == FULL


async def test_a_status_without_an_answer_is_written_together_with_the_next(
    server: ApiServer, reports: PodStatusReporter, clock: VirtualClock
) -> None:
    unschedulable(reports, WEB, FULL, "a")
    (await server.next()).cut()
    await clock.sleepers()
    reports.nomination_cleared(WEB)
    await clock.advance(1.0)
    again = await answered(server)
    assert condition(again)["message"] == FULL
    assert again.body["status"]["nominatedNodeName"] is None


async def test_a_bound_pod_gets_an_event_with_its_node(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    reports.scheduled(WEB, "a")
    written = await event(server, recorder)
    assert (written["type"], written["reason"], written["action"], written["note"]) == (
        "Normal",
        "Scheduled",
        "Binding",
        "Successfully assigned default/web to a",
    )
    assert written["regarding"]["uid"] == WEB.uid


async def test_an_unschedulable_pod_gets_a_warning_with_the_text_of_its_condition(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    unschedulable(reports, WEB, FULL)
    await answered(server)
    written = await event(server, recorder)
    assert (written["type"], written["reason"], written["action"], written["note"]) == (
        "Warning",
        "FailedScheduling",
        "Scheduling",
        FULL,
    )


async def test_a_misspelt_scheduler_name_is_an_event_and_no_condition(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    """The pod may belong to another scheduler, which writes the pod's conditions."""
    reports.misspelt(WEB, 'no SchedulingProfile is for schedulerName "x"')
    written = await event(server, recorder)
    assert (written["type"], written["reason"]) == ("Warning", "FailedScheduling")
    assert written["note"] == 'no SchedulingProfile is for schedulerName "x"'
    reports.scheduled(WEB, "a")
    assert (await event(server, recorder))["reason"] == "Scheduled", "nothing came between"


async def test_a_victim_gets_an_event_with_the_preemptor_and_its_priority(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    high = parse_pod(pod("high", priority=1000))
    reports.preempted(WEB, high, "a")
    written = await event(server, recorder)
    assert (written["reason"], written["action"]) == ("Preempted", "Preempting")
    assert written["note"].startswith(f"Preempted by pod {high.uid} on node a")
    assert written["note"].endswith("to make room for priority 1000; its own is 0")
    assert written["related"]["name"] == "high"
    reports.preempting(high, [WEB], "a")
    assert (await event(server, recorder))["note"] == (
        "Making room on node a by evicting default/web (priority 0)"
    )


async def test_a_preemptor_gets_a_warning_when_its_victims_stay(
    server: ApiServer, reports: PodStatusReporter, recorder: EventRecorder
) -> None:
    reports.preemption_failed(WEB, "delete pods default/low: not today (422 Invalid)")
    written = await event(server, recorder)
    assert (written["type"], written["reason"], written["note"]) == (
        "Warning",
        "FailedPreemption",
        "Preemption is abandoned: delete pods default/low: not today (422 Invalid)",
    )


async def test_a_priority_is_named_by_the_priority_classes_of_its_value(
    server: ApiServer, client: ApiClient, recorder: EventRecorder
) -> None:
    state = ClusterState()
    classes = state.objects.of(Kind.PRIORITY_CLASS)
    reports = PodStatusReporter(PodWriter(client), recorder, priority_classes=classes)
    for name, value in (("high", 1000), ("batch", 0), ("also-high", 1000), ("higher", 2000)):
        state.put(Kind.PRIORITY_CLASS, name, parse_priority_class(priority_class(name, value)))
    reports.preempted(WEB, parse_pod(pod("high", priority=1000)), "a")
    note = (await event(server, recorder))["note"]
    assert note.endswith("to make room for priority 1000 (also-high, high); its own is 0 (batch)")
    state.delete(Kind.PRIORITY_CLASS, "batch")
    reports.preempting(WEB, [WEB], "a")
    note = (await event(server, recorder))["note"]
    assert note.endswith("by evicting default/web (priority 0)")
