"""The scheduling loop: pops a pod, and makes an attempt (`mooring.scheduling.schedule_one`).

Decisions are synchronous. The loop yields to the event loop after every slice of work, so that
watches and bindings continue.
"""

import asyncio
from functools import partial
from typing import Final

from mooring.pausing import Interrupted
from mooring.process.time_slices import TimeSlices
from mooring.scheduling.schedule_one import ScheduleOne
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.shadow_profiles import Shadow

_HINT_SECONDS: Final = 0.001
"""The seconds for queueing hints between two decisions; at least one hint runs."""
_MOST_BINDING: Final = 256
_IDLE_SECONDS: Final = 10.0
"""The maximum seconds that the loop waits for work; then it runs once to show that it is alive."""
_STUCK_SECONDS: Final = 60.0
"""The most seconds for which the loop may stand still; then the scheduler must be restarted."""


class SchedulingLoop:
    """Schedules pods; `SchedulerState.work` wakes the loop."""

    _alarm: asyncio.TimerHandle | None = None
    """A timer that wakes the loop at the time of the next work, or earlier."""

    def __init__(
        self,
        scheduler: SchedulerState,
        schedule_one: ScheduleOne,
        shadow: Shadow,
    ) -> None:
        self._scheduler = scheduler
        self.schedule_one = schedule_one
        self._shadow = shadow
        self._clock = scheduler.clock
        self._turned: float | None = None

    @property
    def binding(self) -> int:
        """The number of pods between their decision and the end of their binding."""
        return self.schedule_one.binding

    @property
    def has_begun(self) -> bool:
        """Whether `run` has begun to look for pods."""
        return self._turned is not None

    def halt(self) -> None:
        """Make no more decisions; bindings that have begun continue."""
        self.schedule_one.attempts.halted = True
        self._scheduler.work.set()

    def stuck(self) -> str | None:
        """Return a message if the loop has stood still for over a minute; None otherwise.

        Returns None, too, before the loop has begun and after `halt`.
        """
        if self._turned is None or self.schedule_one.attempts.halted:
            return None
        seconds = self._clock() - self._turned
        if seconds <= _STUCK_SECONDS:
            return None
        return f"the scheduling loop has not turned for {seconds:.0f} seconds"

    async def run(self) -> None:
        """Schedule until cancelled or halted; wait when there is nothing to do."""
        slices, attempts = TimeSlices(clock=self._clock), self.schedule_one.attempts
        try:
            while not attempts.halted:
                self._turned = now = self._clock()
                # Not after the turn: others bring work in its pauses, and just at its end.
                self._scheduler.work.clear()
                async with self._scheduler.turn:
                    work = partial(self._work_once, now, slices)
                    has_worked = await slices.run(work, lambda: not attempts.halted)
                if not has_worked:
                    await self._idle(now)
                    slices.begin()
                await slices.pause()
        except Interrupted:
            pass  # it was halted
        finally:
            self._set_alarm(None)

    def _work_once(self, now: float, slices: TimeSlices) -> bool:
        """Make one scheduling attempt, or do other work; return whether more work may follow."""
        more_hints = self._run_hints(now)
        if goes_on := self.schedule_one.extender_attempts.ready and self._may_bind():
            self.schedule_one.go_on()
        if self._may_bind() and (queued := self._scheduler.queue.pop(now)) is not None:
            self.schedule_one.attempt(queued)
            return True
        if goes_on or more_hints:
            return True
        return self._may_bind() and self._shadow.compare(slices.end)

    async def finish(self, seconds: float) -> None:
        """End all bindings and all attempts that wait for extenders, see `ScheduleOne.finish`."""
        await self.schedule_one.finish(seconds)

    def _run_hints(self, now: float) -> bool:
        until = now + _HINT_SECONDS
        while self._scheduler.queue.run_hints(now):
            if self._clock() >= until:
                return True
        return False

    def _may_bind(self) -> bool:
        # If it may not begin, the end of a binding wakes the loop.
        self.schedule_one.waits = self.schedule_one.requesting >= _MOST_BINDING
        return not self.schedule_one.waits

    async def _idle(self, now: float) -> None:
        due = self._scheduler.queue.next_due() if self._may_bind() else None
        seconds = _IDLE_SECONDS if due is None else min(max(due - now, 0.0), _IDLE_SECONDS)
        self._set_alarm(asyncio.get_running_loop().time() + seconds)
        await self._scheduler.work.wait()

    def _set_alarm(self, at: float | None) -> None:
        if self._alarm is not None:
            if at is not None and self._alarm.when() <= at:
                return  # it may wake the loop in vain, but a new alarm for each pod takes longer
            self._alarm.cancel()
        self._alarm = None if at is None else asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._scheduler.work.set()
