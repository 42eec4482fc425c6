"""Attempts that wait for extenders: so many at a time for each profile, in the queue's order.

Groups have places of their own, because one waits for the answers about all of its members.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final, Generic, TypeVar

from mooring.framework.plugin import by_priority
from mooring.framework.queued_pod import QueuedPod
from mooring.queueing.active import ActivePods

__all__ = ["ExtenderAttempts"]

MOST_ATTEMPTS: Final = 64
"""Attempts of one profile that are under way; the others begin when one of these ends."""
MOST_GROUPS: Final = 16
"""Groups of one profile about which extenders are called; the others have their turn after them."""

Run = Callable[[], Coroutine[Any, Any, None]]


class ExtenderAttempts:
    """Runs attempts as tasks of their own.

    A slow extender of one profile delays no other profile, and of the pods of one profile those
    that the queue would pop first begin first.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _Places[_Pods]] = {}
        self._groups: dict[str, _Places[_Groups]] = {}

    def add(self, queued: QueuedPod, run: Run) -> None:
        """Run the attempt of a pod in flight, now or when its turn comes."""
        name = queued.pipeline.profile
        if (places := self._pods.get(name)) is None:
            places = _Places(MOST_ATTEMPTS, _Pods(), lambda: self._pods.pop(name, None))
            self._pods[name] = places
        places.add(queued, run)

    def add_group(self, profile: str, first: QueuedPod, run: Run) -> None:
        """Run the attempt of a group, now or when its turn comes; `first` is its first member."""
        if (places := self._groups.get(profile)) is None:
            places = _Places(MOST_GROUPS, _Groups(), lambda: self._groups.pop(profile, None))
            self._groups[profile] = places
        places.add(first, run)

    def give_way(self, profile: str, run: Run) -> None:
        """Run the attempt of a group after others; to be called by its `run` before that ends."""
        self._groups[profile].waiting.add_again(run)

    def groups_wait(self, profile: str) -> bool:
        """Return whether groups of this profile wait for their turn."""
        places = self._groups.get(profile)
        return places is not None and len(places.waiting) > 0

    async def cancel(self, seconds: float) -> None:
        """Give up all attempts, and wait so many seconds at most until they have ended."""
        tasks = [task for pods in self._pods.values() for task in pods.stop()]
        tasks += [task for groups in self._groups.values() for task in groups.stop()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


class _Pods:
    """Attempts of pods that wait for a place, in the queue's order; a pod that moves has left."""

    def __init__(self) -> None:
        self._order = ActivePods()
        self._runs: dict[QueuedPod, Run] = {}

    def add(self, queued: QueuedPod, run: Run) -> None:
        """Add an attempt that waits."""
        self._runs[queued] = run
        self._order.add(queued)

    def pop(self) -> Run | None:
        """Return the attempt whose turn it is; None if there is none."""
        queued = self._order.pop()
        if queued is None:
            self._runs.clear()
            return None
        return self._runs.pop(queued)


class _Groups:
    """Attempts of groups that wait for a place; none leaves, because others of its members wait.

    New ones are in the order of priority and time, and take turns with those that have given way.
    """

    def __init__(self) -> None:
        self._new: list[tuple[tuple[int, float], int, Run]] = []
        self._again: deque[Run] = deque()
        self._numbers = count()
        self._again_is_next = False

    def __len__(self) -> int:
        return len(self._new) + len(self._again)

    def add(self, queued: QueuedPod, run: Run) -> None:
        """Add an attempt that waits."""
        heapq.heappush(self._new, (by_priority(queued), next(self._numbers), run))

    def add_again(self, run: Run) -> None:
        """Add an attempt that has given way, behind those that did so before."""
        self._again.append(run)

    def pop(self) -> Run | None:
        """Return the attempt whose turn it is; None if there is none."""
        from_again = self._again and (self._again_is_next or not self._new)
        self._again_is_next = not from_again
        if from_again:
            return self._again.popleft()
        return heapq.heappop(self._new)[2] if self._new else None


_Waiting = TypeVar("_Waiting", bound=_Pods | _Groups)


class _Places(Generic[_Waiting]):
    """So many attempts of one profile; `emptied` is called when the last has ended."""

    def __init__(self, most: int, waiting: _Waiting, emptied: Callable[[], object]) -> None:
        self.waiting = waiting
        self._most = most
        self._emptied = emptied
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, queued: QueuedPod, run: Run) -> None:
        if len(self._tasks) < self._most:
            self._start(run)
        else:
            self.waiting.add(queued, run)

    def stop(self) -> set["asyncio.Task[None]"]:
        """Cancel the attempts that have begun; the others never begin."""
        self._stopped = True
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
        while not self._stopped and len(self._tasks) < self._most:
            if (run := self.waiting.pop()) is None:
                break
            self._start(run)
        if not self._tasks:
            self._emptied()
