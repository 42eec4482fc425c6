"""Runs attempts that need extenders in parallel, and limits their number per profile."""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final

from mooring.extenders.extenders import Extenders
from mooring.extenders.verdicts import ExtenderError, ExtenderResults, Needed
from mooring.framework.plugin_failures import text_of
from mooring.scheduling.scheduler_state import CurrentAttempt, SchedulerState

logger = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 64
"""The number of attempts per profile that may run at once; the next begins when one ends."""


class ExtenderAttempts:
    """Runs attempts about pods and groups in which an extender is interested.

    The loop makes the decisions; separate tasks call the extenders. So a slow extender delays only
    pods of its profile that need extenders.
    """

    def __init__(self, extenders: Extenders, scheduler: SchedulerState) -> None:
        self._extenders = extenders
        self._scheduler = scheduler
        self._numbers = count()
        self._waiting: dict[str, list[tuple[int, int, CurrentAttempt]]] = {}
        """Attempts that have not begun, by profile; sorted by priority, then in the queue's
        order."""
        self._under_way: dict[str, int] = {}
        self._ready = deque[CurrentAttempt]()
        self._tasks = set[asyncio.Task[None]]()

    @property
    def ready(self) -> bool:
        """Whether `pop` has an attempt that may begin, or continue with the extenders' answers."""
        return bool(self._ready)

    def add(self, attempt: CurrentAttempt) -> None:
        """Add an attempt; it begins when fewer than MOST_ATTEMPTS of its profile run."""
        attempt.answers = ExtenderResults()
        profile, priority = attempt.pipeline.profile, attempt.first.pod.spec.priority
        waiting = self._waiting.setdefault(profile, [])
        heapq.heappush(waiting, (-priority, next(self._numbers), attempt))
        self._begin(profile)

    def pop(self) -> CurrentAttempt:
        """Remove and return the attempt that has been ready for the longest time."""
        return self._ready.popleft()

    def decided(self, attempt: CurrentAttempt, needed: Sequence[Needed]) -> None:
        """Start a task that asks extenders the questions in `needed`.

        If `needed` is empty, the attempt has ended: begin the next attempt of its profile.
        """
        if needed:
            task = asyncio.create_task(self._call(attempt, needed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._under_way[attempt.pipeline.profile] -= 1
            self._begin(attempt.pipeline.profile)

    async def cancel(self, seconds: float) -> None:
        """Stop all calls, and wait at most `seconds` until they have ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def _begin(self, profile: str) -> None:
        waiting, number = self._waiting[profile], self._under_way.get(profile, 0)
        while waiting and number < MOST_ATTEMPTS:
            number += 1
            self._ready.append(heapq.heappop(waiting)[2])
        self._under_way[profile] = number
        if not number:
            del self._waiting[profile], self._under_way[profile]

    async def _call(self, attempt: CurrentAttempt, needed: Sequence[Needed]) -> None:
        answers = attempt.answers or ExtenderResults()
        try:
            await self._extenders.answer(needed, attempt.pipeline, answers, self._scheduler.cluster)
        except ExtenderError as error:
            answers.failure = str(error)
        except Exception as error:
            logger.exception("calling the extenders failed")
            answers.failure = text_of(error)
        self._ready.append(attempt)
        self._scheduler.work.set()
