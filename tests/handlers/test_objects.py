"""What is done with the objects that kopf shows, and with those that a comparison found."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from handlers.small_api import status_writer
from kube.api_server import ApiServer
from mooring.engine.scheduler_state import SchedulerState
from mooring.handlers.objects import ObjectHandlers
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.testing import builders
from scheduler_states import scheduler_state, silent_pod_enqueuer


@asynccontextmanager
async def handlers(
    shared: SchedulerState, listed: list[int] | None = None
) -> AsyncIterator[ObjectHandlers]:
    """Yield the handlers over this state; each listing of kopf's is added to `listed`."""
    pod_enqueuer = silent_pod_enqueuer(shared)
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        profiles = status_writer(shared, pod_enqueuer, client)
        noted = listed if listed is not None else []
        yield ObjectHandlers(
            pod_enqueuer, profiles, shared.state, listed=lambda: noted.append(len(noted))
        )


async def test_a_pod_that_the_comparison_found_is_queued_unless_it_was_bound_meanwhile() -> None:
    shared = scheduler_state()
    async with handlers(shared) as taken:
        await taken.pod_found(builders.pod("web"))
        await taken.pod_found(builders.pod("bound", node="a"))
        await taken.pod_found({"metadata": {"name": "malformed"}, "spec": "none"})
    assert list(shared.without_profile) == [builders.uid_of("web")]


async def test_a_terminating_pod_is_not_queued_but_one_that_is_queued_gets_its_newer_version() -> (
    None
):
    shared = scheduler_state()
    async with handlers(shared) as taken:
        await taken.pod_found(builders.pod("web"))
        for name in ("web", "leaving"):
            await taken.pod_found(builders.pod(name, terminating=True))
    [web] = shared.without_profile.values()
    assert (web.key, web.terminating) == ("default/web", True)


async def test_a_pod_that_kopf_shows_is_queued_until_it_is_deleted() -> None:
    shared, listed = scheduler_state(), list[int]()
    async with handlers(shared, listed) as taken:
        await taken.on_pod({"type": None, "object": builders.pod("web")})
        assert list(shared.without_profile) == [builders.uid_of("web")]
        await taken.on_pod({"type": "DELETED", "object": builders.pod("web")})
    assert not shared.without_profile
    assert listed == [0]  # an event without a type is of a list


async def test_a_priority_class_is_known_until_it_is_deleted() -> None:
    shared = scheduler_state()
    known = shared.state.objects.of(Kind.PRIORITY_CLASS)
    async with handlers(shared) as taken:
        raw = builders.priority_class("high", 1000)
        await taken.on_priority_class({"type": "ADDED", "object": raw})
        assert [*known] == ["high"]
        await taken.on_priority_class({"type": "DELETED", "object": raw})
    assert not known
