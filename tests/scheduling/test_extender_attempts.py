"""Attempts that call extenders; their number per profile is limited."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from extending import GivenObjects
from mooring.extenders.extenders import Extenders
from mooring.extenders.verdicts import ExtenderError, Needed
from mooring.model.pod import Pod
from mooring.scheduling import extender_attempts
from mooring.scheduling.extender_attempts import ExtenderAttempts
from mooring.scheduling.scheduler_state import CurrentAttempt
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline, queued_pod
from scheduler_states import scheduler_state

PLUGINS = pipeline()


class Stage:
    """Attempts that each need one answer; the pods' objects are read when `go` is set."""

    def __init__(self) -> None:
        scheduler = scheduler_state()
        self.work, self.decided = scheduler.work, list[str]()
        self.attempts = ExtenderAttempts(Extenders(self), scheduler)
        self.go = asyncio.Event()
        self.asked = list[str]()
        self.error: Exception | None = None

    async def pod(self, pod: Pod) -> bytes | None:
        self.asked.append(pod.name)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return None

    nodes = GivenObjects().nodes

    def add(self, name: str, priority: int = 0, plugins: Any = PLUGINS) -> None:
        queued = queued_pod(pod(name, priority=priority), plugins)
        self.attempts.add(CurrentAttempt(plugins, 0.0, {queued.pod.uid: queued}))

    def _decide(self, attempt: CurrentAttempt) -> Sequence[Needed]:
        answers, pod = attempt.answers, attempt.first.pod
        assert answers is not None
        if answers.failure or not answers.lack(pod):
            self.decided.append(f"{pod.name} {answers.failure}".strip())
            return ()
        return (Needed(pod, ("n1",)),)

    async def run(self) -> None:
        while self.attempts.ready:
            attempt = self.attempts.pop()
            self.attempts.decided(attempt, self._decide(attempt))
        for _ in range(5):  # so that the calls begin
            await asyncio.sleep(0)

    async def run_until_decided(self, number: int) -> None:
        async with asyncio.timeout(60.0):
            while len(self.decided) < number:
                await self.work.wait()
                self.work.clear()
                await self.run()


async def test_pods_of_higher_priority_begin_first_among_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_ATTEMPTS", 1)
    stage = Stage()
    for name, priority in (("first", 0), ("low", 0), ("high", 9), ("mid", 5), ("last", 0)):
        stage.add(name, priority)
    await stage.run()
    assert stage.asked == ["first"]
    stage.go.set()
    await stage.run_until_decided(5)
    assert stage.decided == ["first", "high", "mid", "low", "last"]


async def test_profiles_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender_attempts, "MOST_ATTEMPTS", 1)
    stage = Stage()
    for name in ("a", "b"):
        stage.add(name)
    stage.add("other", plugins=replace(PLUGINS, profile="another"))
    await stage.run()
    assert stage.asked == ["a", "other"]
    stage.go.set()
    await stage.run_until_decided(3)


async def test_all_attempts_are_given_up_at_once() -> None:
    stage = Stage()
    stage.add("a")
    stage.add("b")
    await stage.run()
    await stage.attempts.cancel(60.0)
    assert stage.asked == ["a", "b"]
    assert not stage.attempts.ready


@pytest.mark.parametrize(
    "error", [ExtenderError("no pod can be read"), RuntimeError("no pod can be read")], ids=repr
)
async def test_a_failure_ends_the_attempt(error: Exception) -> None:
    stage = Stage()
    stage.error = error
    stage.add("a")
    await stage.run()
    stage.go.set()
    await stage.run_until_decided(1)
    assert stage.decided == ["a no pod can be read"]
