"""Attempts that wait for extenders, some at a time for each profile."""

import asyncio

import pytest

from mooring.engine.extenders import extender_attempts
from mooring.engine.extenders.extender_attempts import ExtenderAttempts
from mooring.framework.queued_pod import QueuedPod
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline, queued_pod

PLUGINS = pipeline()


def queued(name: str, priority: int = 0) -> QueuedPod:
    return queued_pod(pod(name, priority=priority), PLUGINS)


async def test_pods_of_higher_priority_begin_first_among_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_ATTEMPTS", 1)
    attempts, began, done = ExtenderAttempts(), list[str](), asyncio.Event()

    def attempt(name: str) -> extender_attempts.Run:
        async def run() -> None:
            began.append(name)
            await asyncio.sleep(0)
            if len(began) == 4:
                done.set()

        return run

    for name, priority in (("first", 0), ("low", 0), ("high", 9), ("mid", 5)):
        attempts.add(queued(name, priority), attempt(name))
    await done.wait()
    assert began == ["first", "high", "mid", "low"]


async def test_all_attempts_are_given_up_at_once() -> None:
    attempts, ended = ExtenderAttempts(), list[str]()

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    attempts.add(queued("a"), run)
    attempts.add(queued("b"), run)
    await asyncio.sleep(0)
    await attempts.cancel(1.0)
    assert ended == ["ended", "ended"]


async def test_an_attempt_that_fails_unexpectedly_is_told_to_the_event_loop() -> None:
    attempts, told = ExtenderAttempts(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: told.set())

    async def run() -> None:
        raise RuntimeError("unexpected")

    attempts.add(queued("a"), run)
    await told.wait()


async def test_groups_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_ATTEMPTS", 1)
    monkeypatch.setattr(extender_attempts, "MOST_GROUPS", 1)
    attempts, began, go = ExtenderAttempts(), list[str](), asyncio.Event()

    def attempt(name: str) -> extender_attempts.Run:
        async def run() -> None:
            began.append(name)
            await go.wait()

        return run

    for name in ("group", "waits"):
        attempts.add_group(PLUGINS.profile, queued(name), attempt(name))
    attempts.add(queued("pod"), attempt("pod"))
    await asyncio.sleep(0)
    assert began == ["group", "pod"]
    assert attempts.groups_wait(PLUGINS.profile)
    assert not attempts.groups_wait("another")
    await attempts.cancel(1.0)
    assert began == ["group", "pod"]


async def test_groups_that_give_way_and_new_ones_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_GROUPS", 1)
    attempts, turns, done = ExtenderAttempts(), list[str](), asyncio.Event()

    def attempt(first: QueuedPod, left: int) -> extender_attempts.Run:
        async def run() -> None:
            turns.append(first.pod.name)
            await asyncio.sleep(0)
            if left:
                attempts.give_way(PLUGINS.profile, attempt(first, left - 1))
            if len(turns) == 9:
                done.set()

        return run

    for name, priority in (("long", 0), ("slow", 0), ("low", 1), ("mid", 5), ("high", 9)):
        first = queued(name, priority)
        attempts.add_group(
            PLUGINS.profile, first, attempt(first, 2 if name in ("long", "slow") else 0)
        )
    async with asyncio.timeout(60.0):
        await done.wait()
    assert turns == ["long", "high", "long", "mid", "long", "low", "slow", "slow", "slow"]
    await asyncio.sleep(0)
    assert not attempts.groups_wait(PLUGINS.profile)


async def test_a_group_whose_first_member_has_left_has_its_turn_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_GROUPS", 1)
    attempts, ran = ExtenderAttempts(), asyncio.Event()

    async def soon() -> None:
        await asyncio.sleep(0)

    async def run() -> None:
        ran.set()

    attempts.add_group(PLUGINS.profile, queued("other"), soon)
    first = queued("first")
    attempts.add_group(PLUGINS.profile, first, run)
    first.ticket += 1
    async with asyncio.timeout(60.0):
        await ran.wait()
