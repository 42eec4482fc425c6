"""Carries out the steps of a plan, as fast as the limits of the profile allow.

Each step is checked on the cluster as it is when its turn comes, and before each of its moves. One
that cannot be carried out, or not any further, is passed over, and so is one with a pod that the
API server does not evict: a tenant may hold up no moves of others. The first move that evicts a
pod and ends otherwise than planned ends the plan: the next one is made for the cluster of then.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mooring.engine.profiles import ActiveProfile
from mooring.engine.rebalancing.executor import LOOK_SECONDS, Ended, Executor, Result
from mooring.engine.rebalancing.expected import Expected
from mooring.engine.rebalancing.limits import is_open
from mooring.engine.rebalancing.plan import Move, Plan, Step
from mooring.engine.rebalancing.record import Record, UnderWay
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.evaluations import StillEvaluating
from mooring.kube.errors import ApiError, explain
from mooring.model.wording import plural
from mooring.policy.rebalancing import MoveLimits, Rebalancing

__all__ = ["PlanExecution", "Stopped"]

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 60.0
"""How long a move waits for values that its check needs."""
_SHORTEST_LIFE: Final = 300.0
"""A plan is carried out for so long at least, or for the interval between two plans."""
_NONE: Final = "allows no eviction"
_CLOSED: Final = "it is outside of the windows for moves"
_WARNED: Final = frozenset((Result.ELSEWHERE, Result.LATE, Result.GONE, Result.FAILED))
"""Ends of moves that are told in an Event of the profile."""


class Stopped(Exception):  # noqa: N818 - the text says why, and nothing need be wrong
    """The plan is not carried out any further.

    `warns` says that a move has ended otherwise than planned.
    """

    def __init__(self, why: str | TextAboutPods, *, warns: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.warns = warns


class _PassedOver(Stopped):
    """The moves are not carried out, but the steps behind them may be."""


@dataclass(slots=True, eq=False)
class _Taken:
    """A step that has begun: how many of its moves are under way, and until when it may last.

    `why` says why no more of its moves are begun, `is_over` that none are.
    """

    step: Step
    under_way: int = 0
    has_begun: bool = False
    is_over: bool = False
    until: float = math.inf
    why: Stopped | None = None


class PlanExecution:
    """One plan of a profile as it is in force.

    `write` writes the profile's status and raises ApiError if that fails. `begin` begins a move in
    a task of its own, which takes it out of `record.under_way` and makes the given call in the end.
    `resting` returns the uids of pods and controllers whose pods are left alone.
    """

    def __init__(
        self,
        plan: Plan,
        entry: ActiveProfile,
        section: Rebalancing,
        record: Record,
        executor: Executor,
        *,
        write: Callable[[], Awaitable[None]],
        begin: Callable[[UnderWay, Expected, Callable[[Ended], object]], object],
        resting: Callable[[], Collection[str]],
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._plan = plan
        self._entry = entry
        self._section = section
        self._record = record
        self._executor = executor
        self._write = write
        self._begin = begin
        self._resting = resting
        self._clock, self._now, self._sleep = clock, now, sleep
        self._stopped: Stopped | None = None
        """Why no further step is begun."""
        self._passed_over: Stopped | None = None
        """Why the first step was passed over that was, or has not reached what it was for."""
        self._under_way = 0
        self._taken: list[_Taken] = []
        """The steps whose moves have not all ended; the last one is begun now."""

    @property
    def _limits(self) -> MoveLimits:
        return self._section.limits

    async def run(self) -> None:
        """Carry out all steps, and wait until every move that was begun has ended.

        Raises:
            Stopped: The plan is not carried out to its end.
        """
        try:
            await self._take_all()
            await self._until_all_end()
        finally:
            for taken in self._taken:
                self._executor.expected.give_room(taken.step, to_pods=False)
        if stopped := self._stopped or self._passed_over:
            raise stopped

    async def _take_all(self) -> None:
        """Take the steps one after the other, until the plan is stopped."""
        until = self._clock() + max(self._section.interval_seconds, _SHORTEST_LIFE)
        try:
            for step in self._plan.steps:
                await self._take(step, until)
        except Stopped as stopped:
            self._stopped = self._stopped or stopped

    async def _until_all_end(self) -> None:
        self._settle()
        while self._taken:
            await self._sleep(LOOK_SECONDS)
            self._settle()

    async def _take(self, step: Step, begin_by: float) -> None:
        """Begin all moves of a step, the first one by that time, or pass the step over."""
        taken = _Taken(step)
        self._taken.append(taken)
        try:
            for moves in (step.moves,) if step.group else ((m,) for m in step.moves):
                # The rest of a step follows its first move.
                await self._carry_out(taken, moves, math.inf if taken.has_begun else begin_by)
        except _PassedOver as why:
            taken.why = why
        finally:
            self._no_more_of(taken)

    def _no_more_of(self, taken: _Taken) -> None:
        """Note that no more moves of the step begin."""
        taken.is_over = True
        taken.until = self._clock() + self._limits.replacement_seconds

    def _settle(self) -> None:
        """End the steps that are over: pods get the room that was made for them.

        Such a step waits for its pods to leave their nodes, but not without an end.
        """
        for taken in tuple(self._taken):
            if not taken.is_over or taken.under_way:
                continue
            step, waits = taken.step, taken.why is None and self._clock() < taken.until
            if waits and not self._executor.is_left(step):
                continue
            self._taken.remove(taken)
            missed = self._executor.unreached(step, self._entry) if taken.has_begun else None
            self._executor.expected.give_room(step, to_pods=taken.has_begun and missed is None)
            why = taken.why or (Stopped(missed) if missed is not None else None)
            self._passed_over = self._passed_over or why

    async def _carry_out(self, taken: _Taken, moves: Sequence[Move], begin_by: float) -> None:
        """Begin these moves together, as soon as the limits allow them, and by that time.

        Raises:
            Stopped: They cannot be carried out.
        """
        step = taken.step
        self._check_size(step, moves)
        self._check_unchanged(step, moves)
        await self._until_allowed(moves)
        if self._clock() >= begin_by:
            raise Stopped("the cluster has changed since the plan was made: a new one follows")
        begun = {move.pod.uid: UnderWay(move, step, self._now()) for move in moves}
        self._record.under_way |= begun
        try:
            await self._write_down()
            await self._until_possible(step, moves)
        except BaseException:
            for uid in begun:
                del self._record.under_way[uid]
            raise
        self._executor.expected.hold_room(step, step.moves[step.moves.index(moves[0]) :])
        taken.has_begun = True
        for each in begun.values():
            self._under_way += 1
            taken.under_way += 1
            self._begin(each, self._executor.keep(each.move), partial(self._ended, taken))

    async def _until_allowed(self, moves: Sequence[Move]) -> None:
        """Wait until limits and disruption budgets allow these moves.

        Raises:
            Stopped: They do not.
        """
        while True:
            while not self._may_begin(moves):
                await self._look_again()
            budget = await self._executor.wait_for_budgets(moves)
            if budget is None:
                return
            if not self._under_way:  # else a replacement may become ready that counts for it
                raise _PassedOver(
                    _about(moves, f"disruption budget {budget}", "a disruption budget", _NONE)
                )
            self._raise_if_stopped()

    def _check_size(self, step: Step, moves: Sequence[Move]) -> None:
        limits = self._limits
        largest = max(Counter(map(_owner, moves)).values())
        if len(moves) > limits.moves_at_a_time:
            name = f"limits.movesAtATime is {limits.moves_at_a_time}"
        elif largest > limits.moves_at_a_time_per_workload:
            name = f"limits.movesAtATimePerWorkload is {limits.moves_at_a_time_per_workload}"
        elif len(moves) > limits.moves_per_hour:
            name = f"limits.movesPerHour is {limits.moves_per_hour}"
        else:
            return
        why = f"has {len(moves)} members to be moved together, and {name}"
        raise _PassedOver(_about(moves, f"group {step.group}", "a group", why))

    def _check_unchanged(self, step: Step, moves: Sequence[Move]) -> None:
        if (why := self._executor.changed(step, moves, self._entry)) is not None:
            raise _PassedOver(why)

    def _may_begin(self, moves: Sequence[Move]) -> bool:
        """Return whether the limits allow these moves now, or may after a while.

        Raises:
            Stopped: The window has ended, or as many pods were evicted as may be within an hour.
        """
        self._raise_if_stopped()
        limits, record = self._limits, self._record
        if not is_open(self._section.windows, self._now()):
            raise Stopped(_CLOSED)
        if record.used_of_hour + len(moves) > limits.moves_per_hour:
            raise Stopped(f"at most {plural(limits.moves_per_hour, 'pod')} an hour may be moved")
        most = limits.moves_at_a_time_per_workload
        return record.in_flight + len(moves) <= limits.moves_at_a_time and all(
            record.in_flight_of(owner) + count <= most
            for owner, count in Counter(map(_owner, moves)).items()
        )

    async def _write_down(self) -> None:
        """Write into the status what is about to be done, for the leader that may come next."""
        try:
            await self._write()
        except ApiError as error:
            why = f"the profile's status is not written: {explain(error)}"
            raise Stopped(why, warns=True) from error

    async def _until_possible(self, step: Step, moves: Sequence[Move]) -> None:
        """Return if the moves are possible now, or as soon as moves before them have ended.

        Raises:
            Stopped: They are not.
        """
        until = self._clock() + _PATIENCE_SECONDS
        while True:
            self._raise_if_stopped()
            if not is_open(self._section.windows, self._now()):
                raise Stopped(_CLOSED)
            self._check_unchanged(step, moves)
            try:
                why: str | TextAboutPods | None = self._executor.why_not(
                    step, moves, self._entry, self._resting()
                )
                waits = self._under_way > 0
            except StillEvaluating as evaluating:
                why, waits = str(evaluating), self._clock() < until
            if why is None:
                return
            if not waits:
                raise _PassedOver(why)
            await self._look_again()

    async def _look_again(self) -> None:
        await self._sleep(LOOK_SECONDS)
        self._raise_if_stopped()

    def _raise_if_stopped(self) -> None:
        """Raise what has stopped the plan, or the step that is being begun."""
        self._settle()
        if stopped := self._stopped or (self._taken and self._taken[-1].why):
            raise stopped

    def _ended(self, taken: _Taken, ended: Ended) -> None:
        """Note the end of a move that was begun."""
        self._under_way -= 1
        taken.under_way -= 1
        taken.until = self._clock() + self._limits.replacement_seconds
        warns = ended.result in _WARNED
        if not ended.evicted:
            taken.why = taken.why or _PassedOver(ended.why, warns=warns)
        elif ended.result is not Result.MOVED and self._stopped is None:
            self._stopped = Stopped(ended.why, warns=warns)


def _about(moves: Sequence[Move], named: str, otherwise: str, what: str) -> TextAboutPods:
    """Return a text that only those may read with the name who may get the pods."""
    pods = tuple(PodRef.of(move.pod) for move in moves)
    return TextAboutPods(f"{named} {what}", pods, f"{otherwise} {what}")


def _owner(move: Move) -> str:
    return move.pod.owner.uid if move.pod.owner is not None else ""
