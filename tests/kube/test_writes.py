"""The scheduler's writes to pods, pod groups and profiles, as the server receives them."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from kube.api_server import ApiServer, budget_refusal
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    POD,
    POD_GROUP,
    SCHEDULING_PROFILE,
    SIGS_POD_GROUP,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import (
    ApiError,
    ConflictError,
    DisruptionBudgetError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnansweredError,
)
from mooring.kube.transport import RETRIES
from mooring.kube.writes import PodGroupWriter, PodWriter, ProfileWriter

POD_PATH = "/api/v1/namespaces/team-a/pods/web"


@pytest.fixture
def writer(client: ApiClient) -> PodWriter:
    return PodWriter(client)


def binding(writer: PodWriter) -> asyncio.Task[None]:
    return asyncio.create_task(writer.bind("team-a", "web", "u1", "node-1"))


def bound(
    uid: str, node: str | None, annotations: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "uid": uid, "annotations": dict(annotations)},
        "spec": {"nodeName": node} if node else {},
    }


async def test_a_binding_names_pod_uid_and_node(server: ApiServer, writer: PodWriter) -> None:
    task = binding(writer)
    request = await server.next()
    request.reply({}, 201)
    await task
    assert (request.method, request.path) == ("POST", f"{POD_PATH}/binding")
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "team-a", "name": "web", "uid": "u1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }


@pytest.mark.parametrize(("status", "error"), [(403, ForbiddenError), (404, NotFoundError)])
async def test_a_binding_that_can_never_succeed_is_not_repeated(
    server: ApiServer, writer: PodWriter, status: int, error: type[ApiError]
) -> None:
    task = binding(writer)
    (await server.next()).refuse(status, "Reason", "words")
    with pytest.raises(error):
        await task
    assert len(server.seen) == 1


async def test_a_binding_is_sent_again_when_an_overloaded_server_asks_to_wait(
    server: ApiServer,
) -> None:
    clock = VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep) as client:
        task = binding(PodWriter(client))
        first = await server.next()
        first.refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
        await clock.end_sleep(3.0)
        second = await server.next()
        second.reply({}, 201)
        await task
    assert (second.path, second.body) == (first.path, first.body)


async def test_a_server_that_stays_overloaded_refuses_a_binding_after_some_tries(
    server: ApiServer,
) -> None:
    clock = VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep) as client:
        task = binding(PodWriter(client))
        for _ in range(RETRIES):
            (await server.next()).refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
            await clock.end_sleep(3.0)
        (await server.next()).refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
        with pytest.raises(TooManyRequestsError):
            await task
    assert len(server.seen) == RETRIES + 1


async def test_a_conflict_with_an_earlier_try_of_the_same_binding_is_a_success(
    server: ApiServer,
) -> None:
    clock = VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep) as client:
        task = binding(PodWriter(client))
        (await server.next()).refuse(504, "Timeout", "it may be done", Retry_After="1")
        await clock.end_sleep(1.0)
        (await server.next()).refuse(409, "Conflict", "pod web is already assigned to a node")
        look = await server.next()
        look.reply(bound("u1", "node-1"))
        await task
    assert (look.method, look.path) == ("GET", POD_PATH)


@pytest.mark.parametrize("found", [bound("u1", "node-2"), bound("u1", None)])
async def test_a_pod_that_is_bound_elsewhere_is_a_conflict(
    server: ApiServer, writer: PodWriter, found: dict[str, Any]
) -> None:
    task = binding(writer)
    (await server.next()).refuse(409, "Conflict", "pod web is already assigned to a node")
    (await server.next()).reply(found)
    with pytest.raises(ConflictError, match="already assigned"):
        await task


@pytest.mark.parametrize("was_lost", [False, True])
@pytest.mark.parametrize("successor", [bound("u2", "node-1"), bound("u2", None), None])
async def test_a_pod_that_cannot_be_bound_because_it_has_gone_is_not_found(
    server: ApiServer, writer: PodWriter, successor: dict[str, Any] | None, *, was_lost: bool
) -> None:
    """No watch may report the pod's end, and another pod may have its name."""
    task = binding(writer)
    request = await server.next()
    if was_lost:
        request.cut()
    else:
        request.refuse(409, "Conflict", "Precondition failed: UID in precondition: u1")
    look = await server.next()
    if successor is None:
        look.refuse(404, "NotFound", "no pod")
    else:
        look.reply(successor)
    with pytest.raises(NotFoundError):
        await task


CARD = "ALIYUN_COM_GPU_MEM_IDX"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"


async def test_a_binding_carries_annotations(server: ApiServer, writer: PodWriter) -> None:
    task = asyncio.create_task(writer.bind("team-a", "web", "u1", "node-1", {CARD: "0"}))
    request = await server.next()
    request.reply({}, 201)
    await task
    assert request.body["metadata"]["annotations"] == {CARD: "0"}


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ({CARD: "0", ASSIGNED: "false", TIME: "7", "of-the-user": "x"}, True),
        ({CARD: "0", ASSIGNED: "true", TIME: "5"}, True),
        ({CARD: "1", ASSIGNED: "false", TIME: "7"}, False),
        ({}, False),
    ],
)
async def test_a_conflict_with_an_earlier_binding_is_a_success_only_for_the_same_cards(
    server: ApiServer, writer: PodWriter, found: dict[str, str], *, same: bool
) -> None:
    wanted = {CARD: "0", ASSIGNED: "false", TIME: "7"}
    task = asyncio.create_task(writer.bind("team-a", "web", "u1", "node-1", wanted))
    (await server.next()).refuse(409, "Conflict", "pod web is already assigned to a node")
    (await server.next()).reply(bound("u1", "node-1", found))
    if same:
        await task
    else:
        with pytest.raises(ConflictError, match="already assigned"):
            await task


async def test_a_lost_answer_is_a_failure_if_the_pod_names_other_cards(
    server: ApiServer, writer: PodWriter
) -> None:
    task = asyncio.create_task(writer.bind("team-a", "web", "u1", "node-1", {CARD: "0"}))
    (await server.next()).cut()
    (await server.next()).reply(bound("u1", "node-1", {CARD: "1"}))
    with pytest.raises(UnansweredError):
        await task


async def test_a_binding_whose_answer_is_lost_is_looked_up(
    server: ApiServer, writer: PodWriter
) -> None:
    task = binding(writer)
    (await server.next()).cut()
    look = await server.next()
    look.reply(bound("u1", "node-1"))
    await task
    assert (look.method, look.path) == ("GET", POD_PATH)


@pytest.mark.parametrize("found", [bound("u1", None), bound("u1", "node-2")])
async def test_a_lost_answer_counts_as_failure_unless_this_very_binding_is_seen(
    server: ApiServer, writer: PodWriter, found: dict[str, Any]
) -> None:
    task = binding(writer)
    (await server.next()).cut()
    (await server.next()).reply(found)
    with pytest.raises(UnansweredError):
        await task


async def test_a_binding_that_the_server_failed_at_is_looked_up(
    server: ApiServer, writer: PodWriter
) -> None:
    task = binding(writer)
    (await server.next()).refuse(500, "InternalError", "etcdserver: request timed out")
    (await server.next()).reply(bound("u1", "node-1"))
    await task


async def test_a_pod_is_looked_at_until_the_server_answers(
    server: ApiServer, client: ApiClient
) -> None:
    clock = VirtualClock()
    task = binding(PodWriter(client, sleep=clock.sleep))
    (await server.next()).cut()
    (await server.next()).refuse(500, "InternalError", "no leader")
    await clock.sleepers()
    await clock.advance(1.0)
    (await server.next()).refuse(503, "ServiceUnavailable", "starting")
    await clock.sleepers()
    await clock.advance(2.0)
    (await server.next()).reply(bound("u1", "node-1"))
    await task


@pytest.mark.parametrize("sequence", [list, tuple])
async def test_a_status_patch_touches_only_the_status_of_this_pod(
    server: ApiServer, writer: PodWriter, sequence: Callable[[list[Any]], Any]
) -> None:
    """A plugin may pass a tuple; the server must merge its conditions as for a list."""
    conditions = [{"type": "PodScheduled", "status": "False"}]
    status = {"conditions": sequence(conditions)}
    task = asyncio.create_task(writer.patch_pod_status("team-a", "web", "u1", status))
    request = await server.next()
    request.reply({})
    await task
    assert (request.method, request.path) == ("PATCH", f"{POD_PATH}/status")
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.body == {"metadata": {"uid": "u1"}, "status": {"conditions": conditions}}


async def test_a_status_patch_tells_another_pod_of_the_name_from_a_bad_status(
    server: ApiServer, writer: PodWriter
) -> None:
    for words, error in (
        (
            'Pod "web" is invalid: metadata.uid: Invalid value: "u1": field is immutable',
            ConflictError,
        ),
        ('Pod "web" is invalid: status.conditions[0].type: Required value', InvalidError),
    ):
        task = asyncio.create_task(writer.patch_pod_status("team-a", "web", "u1", {}))
        (await server.next()).refuse(422, "Invalid", words)
        with pytest.raises(error, match="is invalid"):
            await task


async def test_a_deletion_names_the_uid(server: ApiServer, writer: PodWriter) -> None:
    task = asyncio.create_task(writer.delete_pod("team-a", "web", "u1"))
    request = await server.next()
    request.reply({})
    await task
    assert (request.method, request.path) == ("DELETE", POD_PATH)
    assert request.body == {"preconditions": {"uid": "u1"}}


async def test_an_eviction_names_the_uid(server: ApiServer, writer: PodWriter) -> None:
    task = asyncio.create_task(writer.evict_pod("team-a", "web", "u1"))
    request = await server.next()
    request.reply({}, 201)
    await task
    assert (request.method, request.path) == ("POST", f"{POD_PATH}/eviction")
    assert request.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "team-a", "name": "web"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }


async def test_an_eviction_that_a_budget_forbids_is_not_repeated(
    server: ApiServer, writer: PodWriter
) -> None:
    task = asyncio.create_task(writer.evict_pod("team-a", "web", "u1"))
    (await server.next()).reply(budget_refusal(), 429, Retry_After="10")
    with pytest.raises(DisruptionBudgetError):
        await task
    assert len(server.seen) == 1


async def test_an_eviction_is_sent_again_when_an_overloaded_server_asks_to_wait(
    server: ApiServer,
) -> None:
    clock = VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep) as client:
        task = asyncio.create_task(PodWriter(client).evict_pod("team-a", "web", "u1"))
        (await server.next()).refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
        await clock.end_sleep(3.0)
        (await server.next()).reply({}, 201)
        assert await task


@pytest.mark.parametrize("write", ["delete_pod", "evict_pod"])
@pytest.mark.parametrize(
    ("read", "gone"),
    [
        (bound("u1", "node-1"), False),
        (bound("successor", "node-1"), True),
        ({"metadata": {"uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    ],
)
async def test_a_conflict_on_a_deletion_says_gone_only_if_the_pod_is_gone_or_terminating(
    server: ApiServer, writer: PodWriter, write: str, read: dict[str, Any], *, gone: bool
) -> None:
    task = asyncio.create_task(getattr(writer, write)("team-a", "web", "u1"))
    (await server.next()).refuse(409, "Conflict", "the precondition failed")
    question = await server.next()
    question.reply(read)
    assert (question.method, question.path) == ("GET", POD_PATH)
    if gone:
        assert not await task
    else:
        with pytest.raises(ConflictError):
            await task


@pytest.mark.parametrize("write", ["delete_pod", "evict_pod"])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(
    ("read", "gone"),
    [
        (bound("u1", "node-1"), False),
        (bound("successor", "node-1"), True),
        ({"metadata": {"uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    ],
)
async def test_a_deletion_without_an_answer_counts_if_the_pod_is_gone_or_terminating(
    server: ApiServer,
    writer: PodWriter,
    write: str,
    read: dict[str, Any],
    *,
    lost: bool,
    gone: bool,
) -> None:
    """A server that answers with an error may have deleted the pod."""
    task = asyncio.create_task(getattr(writer, write)("team-a", "web", "u1"))
    request = await server.next()
    if lost:
        request.cut()
    else:
        request.refuse(500, "InternalError", "etcdserver: request timed out")
    question = await server.next()
    question.reply(read)
    assert (question.method, question.path) == ("GET", POD_PATH)
    if gone:
        assert await task
    else:
        with pytest.raises(UnansweredError if lost else ServerError):
            await task


@pytest.mark.parametrize("write", ["delete_pod", "evict_pod"])
async def test_a_deletion_without_an_answer_fails_if_the_pod_may_not_be_read(
    server: ApiServer, writer: PodWriter, write: str
) -> None:
    """A server that has just started refuses all requests for a moment."""
    task = asyncio.create_task(getattr(writer, write)("team-a", "web", "u1"))
    (await server.next()).cut()
    (await server.next()).refuse(403, "Forbidden", "user may not get pods")
    with pytest.raises(UnansweredError):
        await task


@pytest.mark.parametrize("write", ["delete_pod", "evict_pod"])
async def test_a_pod_that_is_not_found_was_gone_before_its_deletion(
    server: ApiServer, writer: PodWriter, write: str
) -> None:
    task = asyncio.create_task(getattr(writer, write)("team-a", "web", "u1"))
    (await server.next()).refuse(404, "NotFound", "pods web not found")
    assert not await task


@pytest.mark.parametrize("resource", [POD, POD_GROUP])
async def test_a_status_without_lists_is_patched_in_the_way_that_costs_the_server_least(
    server: ApiServer, client: ApiClient, resource: Resource
) -> None:
    status = {"nominatedNodeName": "n", "extendedResourceClaimStatus": {"requestMappings": [{}]}}
    task = asyncio.create_task(
        PodGroupWriter(client).patch_status(resource, "team-a", "web", "u1", "7", status)
    )
    request = await server.next()
    request.reply({})
    await task
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.body == {"metadata": {"uid": "u1"}, "status": status}


@pytest.mark.parametrize(
    ("resource", "content_type", "metadata"),
    [
        (POD_GROUP, "application/strategic-merge-patch+json", {"uid": "u1"}),
        *(
            (custom, "application/merge-patch+json", {"uid": "u1", "resourceVersion": "7"})
            for custom in (COSCHEDULING_POD_GROUP, SIGS_POD_GROUP)
        ),
    ],
)
async def test_the_status_of_a_pod_group_is_patched_as_its_kind_allows(
    server: ApiServer,
    client: ApiClient,
    resource: Resource,
    content_type: str,
    metadata: dict[str, str],
) -> None:
    """For custom resources, the server has no strategic merge patch and ignores the uid."""
    status = {"phase": "Running", "conditions": []}
    task = asyncio.create_task(
        PodGroupWriter(client).patch_status(resource, "team-a", "train", "u1", "7", status)
    )
    request = await server.next()
    request.reply({})
    await task
    assert (request.method, request.path) == ("PATCH", resource.path("team-a", "train", "status"))
    assert request.headers["Content-Type"] == content_type
    assert request.body == {"metadata": metadata, "status": status}


async def test_finished_pods_are_counted_by_label_and_phase(
    server: ApiServer, client: ApiClient
) -> None:
    task = asyncio.create_task(PodGroupWriter(client).count_finished("team-a", "group", "train"))
    for phase, count in (("Succeeded", 2), ("Failed", 1)):
        request = await server.next()
        assert request.path == "/api/v1/namespaces/team-a/pods"
        assert request.query["labelSelector"] == "group=train"
        assert request.query["fieldSelector"] == f"status.phase={phase}"
        items = [{"metadata": {"name": str(i), "uid": str(i)}} for i in range(count)]
        request.reply({"metadata": {"resourceVersion": "1"}, "items": items})
    assert await task == (2, 1)


PROFILE_STATUS = SCHEDULING_PROFILE.path(None, "packed", "status")
CHANGED = (409, "Conflict", "the object has been modified")


@pytest.fixture
def profiles(client: ApiClient) -> ProfileWriter:
    """Return a writer that knows version 1 of the profile `packed`."""
    writer = ProfileWriter(client)
    writer.seen("packed", "u1", "1")
    return writer


def written(writer: ProfileWriter, generation: int) -> asyncio.Task[None]:
    return asyncio.create_task(
        writer.patch_status("packed", {"observedGeneration": generation}),
    )


def profile(version: str, uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"name": "packed", "uid": uid, "resourceVersion": version}}


def to_version(version: str, generation: int) -> dict[str, Any]:
    """Return the patch that writes this generation to the status, for this version."""
    status = {"observedGeneration": generation}
    return {"metadata": {"resourceVersion": version}, "status": status}


async def test_a_profiles_status_is_written_to_the_version_that_the_last_answer_had(
    server: ApiServer, profiles: ProfileWriter
) -> None:
    for version in (1, 2):
        task = written(profiles, 7)
        request = await server.next()
        request.reply(profile(str(version + 1)))
        await task
        assert (request.method, request.path) == ("PATCH", PROFILE_STATUS)
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        assert request.body == to_version(str(version), 7)


async def test_a_profile_that_has_changed_is_read_by_an_empty_patch(
    server: ApiServer, profiles: ProfileWriter
) -> None:
    task = written(profiles, 7)
    (await server.next()).refuse(*CHANGED)
    look = await server.next()
    look.reply(profile("5"))
    again = await server.next()
    again.reply(profile("6"))
    await task
    assert (look.method, look.path, look.body) == ("PATCH", PROFILE_STATUS, {})
    assert again.body == to_version("5", 7)


async def test_a_status_whose_answer_is_lost_cannot_arrive_after_the_next(
    server: ApiServer, profiles: ProfileWriter
) -> None:
    """Both writes name the same version, so the server carries out only one of them."""
    first = written(profiles, 7)
    lost = await server.next()
    lost.cut()
    with pytest.raises(UnansweredError):
        await first
    second = written(profiles, 8)
    request = await server.next()
    request.reply(profile("2"))
    await second
    assert lost.body == to_version("1", 7)
    assert request.body == to_version("1", 8)


async def test_a_status_is_not_written_to_another_profile_of_the_name(
    server: ApiServer, profiles: ProfileWriter
) -> None:
    """The new profile may become known before the write, or only by the server's refusal."""
    task = written(profiles, 7)
    (await server.next()).refuse(*CHANGED)
    (await server.next()).reply(profile("5", uid="u2"))
    with pytest.raises(NotFoundError):
        await task
    profiles.seen("packed", "u1", "1")
    first, waiting = written(profiles, 8), written(profiles, 9)
    request = await server.next()
    profiles.seen("packed", "u2", "5")
    request.reply(profile("2"))
    await first
    with pytest.raises(NotFoundError):
        await waiting
    assert len(server.seen) == 3


@pytest.mark.parametrize("gone", ["u1", "another"])
async def test_nothing_is_written_to_a_profile_that_is_gone(
    server: ApiServer, profiles: ProfileWriter, gone: str
) -> None:
    profiles.gone("packed", gone)
    task = written(profiles, 7)
    if gone == "u1":
        with pytest.raises(NotFoundError):
            await task
        assert server.seen == []
    else:
        (await server.next()).reply(profile("2"))
        await task


async def test_a_profile_that_changes_all_the_time_is_given_up(
    server: ApiServer, profiles: ProfileWriter
) -> None:
    task = written(profiles, 7)
    for version in range(2, 6):
        (await server.next()).refuse(*CHANGED)
        (await server.next()).reply(profile(str(version)))
    (await server.next()).refuse(*CHANGED)
    with pytest.raises(ConflictError):
        await task
