"""Attempts that wait for extenders: so many at a time for each profile, in the queue's order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mooring.framework.queued_pod import QueuedPod
from mooring.queueing.active import ActivePods

__all__ = ["TwoHalves"]

MOST_ATTEMPTS: Final = 64
"""Attempts of one profile that are under way; the others begin when one of these ends."""

Run = Callable[[], Coroutine[Any, Any, None]]


class TwoHalves:
    """Runs attempts as tasks of their own.

    A slow extender of one profile delays no other profile, and of the pods of one profile those
    that the queue would pop first begin first.
    """

    def __init__(self) -> None:
        self._profiles: dict[str, _Profile] = {}

    def add(self, queued: QueuedPod, run: Run) -> None:
        """Runs the attempt of a pod in flight, now or when its turn comes."""
        name = queued.pipeline.profile
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = _Profile(lambda: self._profiles.pop(name, None))
        profile.add(queued, run)

    async def cancel(self, seconds: float) -> None:
        """Gives up all attempts; waits until they have ended, for so many seconds at most."""
        tasks = [task for profile in self._profiles.values() for task in profile.stop()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


class _Profile:
    """The attempts of one profile; `emptied` is called when the last has ended."""

    def __init__(self, emptied: Callable[[], object]) -> None:
        self._emptied = emptied
        self._waiting = ActivePods()
        self._runs: dict[QueuedPod, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, queued: QueuedPod, run: Run) -> None:
        if len(self._tasks) < MOST_ATTEMPTS:
            self._start(run)
        else:
            self._runs[queued] = run
            self._waiting.add(queued)

    def stop(self) -> set["asyncio.Task[None]"]:
        """Cancels the attempts that have begun; the others never begin."""
        self._waiting = ActivePods()
        self._runs.clear()
        for task in self._tasks:
            task.cancel()
        return set(self._tasks)

    def _start(self, run: Run) -> None:
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "an attempt with extenders failed", "exception": error}
            task.get_loop().call_exception_handler({**context, "task": task})
        while len(self._tasks) < MOST_ATTEMPTS and (queued := self._waiting.pop()) is not None:
            self._start(self._runs.pop(queued))
        if not self._tasks:
            self._runs.clear()
            self._emptied()
