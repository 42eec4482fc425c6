"""Attempts about which extenders are called, beside all others: so many at a time for a profile."""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

from mooring.engine.extenders.answers import Answers, ExtenderError, Needed
from mooring.engine.extenders.extenders import Extenders
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import text_of
from mooring.framework.queued_pod import QueuedPod
from mooring.state.cluster_view import ClusterView

__all__ = ["ExtenderAttempts"]

logger = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 64
"""Attempts of one profile that are under way; the others begin when one of these ends."""

Decide: TypeAlias = Callable[[Answers], Awaitable[Sequence[Needed]]]
"""Decides with these answers; returns what is still needed, and nothing once the attempt ends."""


@dataclass(slots=True, eq=False)
class _Attempt:
    pipeline: Pipeline
    decide: Decide
    answers: Answers = field(default_factory=Answers)


class ExtenderAttempts:
    """Runs attempts about pods and groups that an extender cares for.

    The loop decides, by `go_on`, and the extenders are called in tasks of their own. So a slow
    extender of one profile delays no other profile, and no pod that it does not care for.
    """

    def __init__(
        self, extenders: Extenders, cluster: ClusterView, wake: Callable[[], None]
    ) -> None:
        self._extenders = extenders
        self._cluster = cluster
        self._wake = wake
        self._numbers = count()
        self._waiting: dict[str, list[tuple[int, int, _Attempt]]] = {}
        """By profile the attempts that have not begun, by priority, then as in the queue."""
        self._under_way: dict[str, int] = {}
        self._ready = deque[_Attempt]()
        self._tasks = set[asyncio.Task[None]]()

    @property
    def ready(self) -> bool:
        """Whether an attempt begins, or begins anew because the extenders have answered."""
        return bool(self._ready)

    def add(self, first: QueuedPod, decide: Decide) -> None:
        """Begin the attempt about this pod in flight, or its group, when it is its turn."""
        pipeline, priority = first.pipeline, first.pod.spec.priority
        waiting = self._waiting.setdefault(pipeline.profile, [])
        heapq.heappush(waiting, (-priority, next(self._numbers), _Attempt(pipeline, decide)))
        self._begin(pipeline.profile)

    async def go_on(self) -> None:
        """Decide in the attempt that has been ready for longest, and call extenders if it must."""
        attempt = self._ready.popleft()
        needed: Sequence[Needed] = ()
        try:
            needed = await attempt.decide(attempt.answers)
        finally:
            if not needed:
                self._under_way[attempt.pipeline.profile] -= 1
                self._begin(attempt.pipeline.profile)
        if needed:
            task = asyncio.create_task(self._call(attempt, needed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def cancel(self, seconds: float) -> None:
        """Give up all attempts, and wait so many seconds at most until their calls have ended."""
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

    async def _call(self, attempt: _Attempt, needed: Sequence[Needed]) -> None:
        try:
            await self._extenders.answer(needed, attempt.pipeline, attempt.answers, self._cluster)
        except ExtenderError as error:
            attempt.answers.failure = str(error)
        except Exception as error:
            logger.exception("calling the extenders failed")
            attempt.answers.failure = text_of(error)
        self._ready.append(attempt)
        self._wake()
