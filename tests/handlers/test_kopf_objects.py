"""Handles objects that kopf reports, and objects that only a comparison has found."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from handlers.small_api import status_writer
from kube.api_server import ApiServer
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Action, Kind, event_label
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing import builders
from scheduler_states import put_profile, scheduler_state, silent_pod_enqueuer


@asynccontextmanager
async def handlers(
    shared: SchedulerState,
    listed: list[int] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    told: list[tuple[str, float]] | None = None,
) -> AsyncIterator[ObjectHandlers]:
    """Yield handlers that use this state; `listed` gets an item for each list of kopf.

    `told` gets the name of each event of a pod, and the seconds that its handler took.
    """
    pod_enqueuer = silent_pod_enqueuer(shared)
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        profiles = status_writer(shared, pod_enqueuer, client)
        noted = listed if listed is not None else []
        handled = told if told is not None else []
        yield ObjectHandlers(
            pod_enqueuer,
            profiles,
            shared.state,
            turn=shared.turn,
            listed=lambda: noted.append(len(noted)),
            handled=lambda *event: handled.append(event),
            clock=clock,
        )


async def test_a_pod_that_the_comparison_found_is_queued_unless_it_was_bound_meanwhile() -> None:
    shared = scheduler_state()
    async with handlers(shared) as taken:
        await taken.pod_read(builders.pod("web"))
        await taken.pod_read(builders.pod("bound", node="a"))
        await taken.pod_read({"metadata": {"name": "malformed"}, "spec": "none"})
    assert list(shared.without_profile) == [builders.uid_of("web")]


async def test_profiles_that_were_read_are_in_force_but_for_those_that_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = scheduler_state()
    found = [
        {"metadata": {"name": name, "uid": name, "generation": 1}, "spec": {}}
        for name in ("gone", "here")
    ]
    malformed = {"metadata": {"name": "malformed", "uid": "malformed"}}
    async with handlers(shared) as taken:
        await taken.profiles_read([malformed, *found], {"gone"})
    assert list(shared.profiles.in_force) == ["here"]
    assert "a profile is not put in force: {'apiVersion'" in caplog.text


def large(**fields: Any) -> dict[str, Any]:
    """Return a pod with so many tolerations that it is parsed in several steps."""
    tolerations = [{"key": f"key-{n}"} for n in range(3000)]
    return builders.pod("large", tolerations=tolerations, **fields)


class Steps:
    """A clock that moves by one second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def test_a_pod_that_is_deleted_while_it_is_read_is_not_queued() -> None:
    shared = scheduler_state()
    async with handlers(shared, clock=Steps()) as taken:
        reading = asyncio.create_task(taken.pod_read(large()))
        await asyncio.sleep(0)
        assert not shared.without_profile
        await taken.on_pod({"type": "DELETED", "object": builders.pod("large")})
        await reading
    assert not shared.without_profile


async def test_a_pod_that_the_watch_shows_while_an_older_version_is_read_stays_as_it_is() -> None:
    shared = scheduler_state()
    async with handlers(shared, clock=Steps()) as taken:
        reading = asyncio.create_task(taken.pod_read(large()))
        await asyncio.sleep(0)
        await taken.on_pod({"type": "ADDED", "object": builders.pod("large", labels={"new": ""})})
        await reading
    [known] = shared.without_profile.values()
    assert known.labels == {"new": ""}


async def test_other_tasks_run_while_a_large_pod_is_read_and_their_time_is_not_told() -> None:
    shared, told, clock = scheduler_state(), list[tuple[str, float]](), Steps()
    async with handlers(shared, clock=clock, told=told) as taken:
        reading = asyncio.create_task(taken.on_pod({"type": "ADDED", "object": large()}))
        await asyncio.sleep(0)
        assert not shared.without_profile
        clock.now += 1000.0
        await reading
    assert list(shared.without_profile) == [builders.uid_of("large")]
    [(event, seconds)] = told
    assert event == event_label(Kind.UNSCHEDULED_POD, Action.ADD)
    assert 0 < seconds < 1000.0


@pytest.mark.parametrize("names", [(), ("default-scheduler",)])
async def test_a_terminating_pod_does_not_wait_for_a_node(names: tuple[str, ...]) -> None:
    shared = scheduler_state()
    for name in names:
        put_profile(shared, name)
    async with handlers(shared) as taken:
        await taken.on_pod({"type": "ADDED", "object": builders.pod("web")})
        assert len([*shared.queue, *shared.without_profile]) == 1
        for name in ("web", "leaving"):
            raw = builders.pod(name, terminating=True)
            await taken.on_pod({"type": "MODIFIED", "object": raw})
        assert [*shared.queue, *shared.without_profile] == []
        await taken.on_pod({"type": "DELETED", "object": builders.pod("web")})
    assert not list(shared.state.unscheduled)


async def test_a_pod_that_kopf_shows_is_queued_until_it_is_deleted() -> None:
    shared, listed = scheduler_state(), list[int]()
    async with handlers(shared, listed) as taken:
        await taken.on_pod({"type": None, "object": builders.pod("web")})
        assert list(shared.without_profile) == [builders.uid_of("web")]
        await taken.on_pod({"type": "DELETED", "object": builders.pod("web")})
    assert not shared.without_profile
    assert listed == [0]  # an event without a type is of a list


async def test_an_event_that_comes_during_an_attempt_is_taken_in_after_it() -> None:
    shared = scheduler_state()
    put_profile(shared)
    async with handlers(shared) as taking_in:
        async with shared.turn:
            event = {"type": "ADDED", "object": builders.pod("web")}
            await asyncio.create_task(taking_in.on_pod(event))
            assert not list(shared.queue)
        await shared.turn.until_free()
        assert [queued.pod.name for queued in shared.queue] == ["web"]


async def test_a_priority_class_is_known_until_it_is_deleted() -> None:
    shared = scheduler_state()
    known = shared.state.objects.of(Kind.PRIORITY_CLASS)
    async with handlers(shared) as taken:
        raw = builders.priority_class("high", 1000)
        await taken.on_priority_class({"type": "ADDED", "object": raw})
        assert [*known] == ["high"]
        await taken.on_priority_class({"type": "DELETED", "object": raw})
    assert not known
