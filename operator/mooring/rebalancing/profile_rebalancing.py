"""Makes the plans of one profile and executes their moves.

The first plan waits until the moves of a former leader have ended. A plan is made in slices,
between decisions. In mode Apply its steps then begin one after the other, as fast as the limits
allow. Each move is written into the profile's status before the pod is evicted, so that a new
leader respects the limits. A pod is evicted only through the Eviction API, by its uid, and once. If
no answer comes, the result is read from the API server.

A step is skipped if it cannot begin or continue, or if the API server does not evict one of its
pods. So one user cannot block the moves of others. A move that evicts its pod but does not end as
planned ends the plan. The next plan starts from the new state.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.kube.errors import ApiError, DisruptionBudgetError, KubeError, NotWantedError, explain
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.writes import PodWriter, ProfileWriter
from mooring.model.manifest_error import ManifestError
from mooring.model.wording import plural
from mooring.policy.profile import API_VERSION, KIND
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rebalancing import Rebalancing
from mooring.process.shielding import shielded
from mooring.rebalancing.movable import owner_of
from mooring.rebalancing.plan import Move, Plan, Step, Why, about
from mooring.rebalancing.record import Record, Rests, is_open, take_ended, whole
from mooring.rebalancing.running_step import PassedOver, RunningStep, Stopped
from mooring.rebalancing.under_way import ExpectedReplacements, Result, UnderWay
from mooring.scheduling.preemption_executor import PreemptionExecutor
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.scheduler_state import SchedulerState

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

FIRST_SECONDS: Final = 10.0
"""The seconds between the time when a profile comes into force and its first plan."""
LOOK_SECONDS: Final = 0.5
"""The seconds between two checks whether a move may begin, or a replacement is ready."""
BUDGET_SECONDS: Final = 30.0
"""The seconds that a move waits if a disruption budget allows no eviction. The status of a budget
changes shortly after the last replacement has become ready."""
_PATIENCE_SECONDS: Final = 60.0
"""The maximum seconds that a new plan waits while pods wait for decisions."""
_SHORTEST_LIFE: Final = 300.0
"""The steps of a plan may begin within this number of seconds, or within the interval of plans if
that is longer. A step that would begin later ends the plan."""
_FORMER_SECONDS: Final = 5.0
"""The seconds between two checks whether the moves of a former leader have ended."""
_CHANGED: Final = "the profile has changed"
"""The reason why a former version of a profile evicts no more pods."""
_WARNED: Final = frozenset((Result.ELSEWHERE, Result.LATE, Result.GONE, Result.FAILED))
"""The results of moves that cause a warning Event about the profile."""


MakePlan = Callable[[ActiveProfile, Rebalancing, Collection[str], int], Plan]
"""Makes the plan of a profile: (profile, section, uids, position) to Plan.

The uids are of pods and controllers to leave alone. The position is where the last plan ended.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The objects that all profiles share for rebalancing.

    `busy` returns whether pods wait for a decision.
    """

    scheduler: SchedulerState
    expected: ExpectedReplacements
    make_plan: MakePlan
    pods: PodWriter
    preemptions: PreemptionExecutor
    profiles: ProfileWriter
    recorder: EventRecorder
    rests: Rests
    busy: Callable[[], bool]
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a plan is made, so that the profiles' plans are made one after the other."""
    moves: set[asyncio.Task[None]] = field(default_factory=set)
    """The tasks of moves that have begun. They continue when their profile changes."""
    evictions: set[asyncio.Task[bool]] = field(default_factory=set)
    """The requests of evictions that have no answer yet."""


@dataclass(eq=False, repr=False)
class ProfileRebalancing:
    """Plans moves for one version of a profile, and carries them out in mode Apply.

    `write_status` writes the rebalancing section of the profile's status, or raises ApiError.
    """

    entry: ActiveProfile
    section: Rebalancing
    record: Record
    parts: Parts
    write_status: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._limits = self.section.limits
        self._turn = self.parts.scheduler.turn
        self._name = self.entry.profile.name
        self._steps: list[RunningStep] = []
        """The steps that have begun and not ended; only the last one may still begin moves."""
        self._stopped: Stopped | None = None
        """Why no more steps begin; None if they may begin."""
        self._passed_over: Stopped | None = None
        """The first reason why a step was skipped or missed its purpose; None if there is none."""

    async def run(self) -> NoReturn:
        """Make a plan in each interval, and carry it out, until the task is cancelled.

        After an error, `record.message` says why there is no plan, and the next interval begins.
        """
        self._take_over()
        parts, record = self.parts, self.record
        await parts.scheduler.sleep(FIRST_SECONDS)
        while True:
            began = parts.scheduler.clock()
            try:
                await self._until_former_moves_end()
                await self._carry_out(await self._new_plan())
            except PluginFailed as failed:
                record.message = f"no plan: {text_of(failed)}"
            except Exception as error:
                logger.exception("rebalancing for profile %s failed", self._name)
                record.message = f"no plan: {text_of(error)}"
            next_at = began + self.section.interval_seconds
            await parts.scheduler.sleep(max(0.0, next_at - parts.scheduler.clock()))

    def _take_over(self) -> None:
        """Take over the moves of a former leader from the profile's status."""
        found, self.record.found = self.record.found, None
        if found is None:
            return
        try:
            self.record.restore(found, self.section, self.parts.rests)
        except (ProfileInvalid, ManifestError) as error:
            text = "the status of rebalancing of profile %s is unreadable: %s"
            logger.warning(text, self._name, error)

    async def _until_former_moves_end(self) -> None:
        parts, former = self.parts, self.record.former
        known = set(parts.rests.resting())  # replacements of moves that have ended before
        while former:
            state, now = parts.scheduler.state, parts.scheduler.clock()
            for uid in await self._turn.run(partial(take_ended, former, known, state, now)):
                parts.rests.rest(uid, self._limits.rest_seconds)
            if former:
                await parts.scheduler.sleep(_FORMER_SECONDS)

    async def _new_plan(self) -> Plan:
        parts, record, section = self.parts, self.record, self.section
        async with parts.planning:
            until = parts.scheduler.clock() + _PATIENCE_SECONDS
            while parts.busy() and parts.scheduler.clock() < until:
                await parts.scheduler.sleep(LOOK_SECONDS)
            resting, position = parts.rests.resting(), record.position
            make_plan = partial(parts.make_plan, self.entry, section, resting, position)
            plan = await self._turn.run(make_plan)
        record.position = plan.position
        record.publish(self._name, section, plan)
        return plan

    async def _carry_out(self, plan: Plan) -> None:
        section, record = self.section, self.record
        if section.mode != "Apply" or self.entry.profile.spec.mode != "Active" or not plan.steps:
            return
        self._stopped = self._passed_over = None
        lasts = max(section.interval_seconds, _SHORTEST_LIFE)
        begin_by = self.parts.scheduler.clock() + lasts
        try:
            try:
                for step in plan.steps:
                    await self._take(step, begin_by)
            except Stopped as why:
                await self._turn.run(self._settled)  # an ended move may have stopped it before
                self._stopped = self._stopped or why
            while not await self._turn.run(self._settled):
                await self.parts.scheduler.sleep(LOOK_SECONDS)
        finally:
            for running in self._steps:
                running.give_room(to_pods=False)
            self._steps.clear()
        stopped = self._stopped or self._passed_over
        record.message = stopped.why if stopped else "all moves of the last plan were carried out"
        if stopped and stopped.warns:
            self._warn(stopped.why)

    async def _take(self, step: Step, begin_by: float) -> None:
        """Begin the moves of a step; do not wait for their end."""
        parts = self.parts
        running = RunningStep(step, self.entry, self.section, parts.scheduler, parts.expected)
        self._steps.append(running)
        try:
            for moves in step.batches:
                # The rest of a step follows its first move.
                await self._begin(running, moves, math.inf if running.begun else begin_by)
        except PassedOver as why:
            running.why = why
        finally:
            running.is_over = True

    async def _begin(self, running: RunningStep, moves: Sequence[Move], begin_by: float) -> None:
        """Wait until the moves are allowed, write them into the status, and begin them."""
        parts, expected = self.parts, self.parts.expected
        self._check_size(running.step, moves)
        running.check_unchanged(moves)
        await self._until_allowed(moves)
        if parts.scheduler.clock() >= begin_by:
            raise Stopped("the cluster has changed since the plan was made: a new one follows")
        now = parts.scheduler.now()
        begun = [UnderWay(move, running.step, self._name, now) for move in moves]
        expected.moves += begun
        try:
            await self.write_status()  # for the leader that may come next
            while not await self._turn.run(partial(self._begins, running, begun)):
                await parts.scheduler.sleep(LOOK_SECONDS)
        except ApiError as error:
            why = f"the profile's status is not written: {explain(error)}"
            raise Stopped(why, warns=True) from error
        finally:
            for each in begun:
                if each.place is None:
                    expected.moves.remove(each)

    def _check_size(self, step: Step, moves: Sequence[Move]) -> None:
        limits, count = self._limits, len(moves)
        for name, most, wanted in (
            ("movesAtATime", limits.moves_at_a_time, count),
            (
                "movesAtATimePerWorkload",
                limits.moves_at_a_time_per_workload,
                max(_by_owner(moves).values()),
            ),
            ("movesPerHour", limits.moves_per_hour, count),
        ):
            if wanted > most:
                why = f"has {count} members to be moved together, and limits.{name} is {most}"
                text, otherwise = f"group {step.group} {why}", f"a group {why}"
                raise PassedOver(_about(moves, text, otherwise))

    async def _until_allowed(self, moves: Sequence[Move]) -> None:
        parts, limits = self.parts, self._limits
        until = parts.scheduler.clock() + BUDGET_SECONDS
        while True:
            await self._turn.run(self._check_going_on)
            if self.record.used_of_hour + len(moves) > limits.moves_per_hour:
                most = plural(limits.moves_per_hour, "pod")
                raise Stopped(f"at most {most} an hour may be moved")
            evictions, waits = parts.scheduler.state.evictions, not self._may_begin(moves)
            budget = evictions.exhausted_budget(move.pod for move in moves)
            if budget is None and not waits:
                return
            # A replacement that becomes ready may allow one more eviction.
            if waits or self._is_under_way:
                until = parts.scheduler.clock() + BUDGET_SECONDS
            elif parts.scheduler.clock() >= until:
                why = "allows no eviction"
                named = f"disruption budget {budget} {why}"
                raise PassedOver(_about(moves, named, f"a disruption budget {why}"))
            await parts.scheduler.sleep(LOOK_SECONDS)

    def _may_begin(self, moves: Sequence[Move]) -> bool:
        limits, record = self._limits, self.record
        return record.in_flight + len(moves) <= limits.moves_at_a_time and all(
            record.in_flight_of(owner) + count <= limits.moves_at_a_time_per_workload
            for owner, count in _by_owner(moves).items()
        )

    @property
    def _is_under_way(self) -> bool:
        return any(running.under_way for running in self._steps)

    def _begins(self, running: RunningStep, begun: Sequence[UnderWay]) -> bool:
        """Begin the moves if they are possible now; return whether they have begun."""
        parts, moves = self.parts, [each.move for each in begun]
        self._check_going_on()
        running.check_unchanged(moves)
        try:
            why = running.why_not(moves, parts.rests.resting())
        except AttemptTooLongError:
            return False  # the next call continues the check
        # Other moves that are running may make these moves possible.
        if why is not None and not self._is_under_way:
            raise PassedOver(why)
        if why is None:
            running.hold_room()
            for each in begun:
                parts.expected.keep(each)
                running.begun += 1
                # In its own task, the move ends even if the work for this profile is cancelled.
                _in_task(parts.scheduler.turn.between(self._move, each, running), parts.moves)
        return why is None

    def _check_going_on(self) -> None:
        self._settled()
        if stopped := self._stopped or self._steps[-1].why:
            raise stopped
        if not self._is_in_force():
            raise Stopped(_CHANGED)
        if not is_open(self.section.windows, self.parts.scheduler.now()):
            raise Stopped("it is outside of the windows for moves")

    def _settled(self) -> bool:
        """End finished steps; return whether all steps have ended."""
        now = self.parts.scheduler.clock()
        for running in tuple(self._steps):
            if not running.is_over or running.under_way:
                running.until = now + self._limits.replacement_seconds
            # A step that makes room waits until its evicted pods have left their nodes.
            elif running.why is not None or now >= running.until or running.is_left:
                self._end(running)
        return not self._steps

    def _end(self, running: RunningStep) -> None:
        self._steps.remove(running)
        missed: Why | None = None
        if running.begun:
            missed = running.unreached() if self._is_in_force() else _CHANGED
        running.give_room(to_pods=running.begun > 0 and missed is None)
        why = running.why or (Stopped(missed) if missed is not None else None)
        self._passed_over = self._passed_over or why

    def _is_in_force(self) -> bool:
        return self.parts.scheduler.profiles.in_force.get(self._name) is self.entry

    async def _move(self, under_way: UnderWay, running: RunningStep) -> None:
        parts, record, pod = self.parts, self.record, under_way.move.pod
        try:
            if await self._evict(under_way):
                self._evicted(under_way)
                await self._until_replaced(under_way)
        except Exception as error:
            logger.exception("moving pod %s failed", pod.key)
            under_way.end(Result.FAILED, text_of(error))
        finally:
            parts.expected.forget(under_way)
        warns = under_way.result in _WARNED
        if not under_way.evicted:
            running.why = running.why or PassedOver(under_way.why, warns=warns)
        elif under_way.result is not Result.MOVED and running in self._steps:
            self._stopped = self._stopped or Stopped(under_way.why, warns=warns)
        parts.scheduler.metrics.rebalanced(self._name, str(under_way.result))
        if under_way.evicted:
            record.note(under_way)
            parts.rests.rest(under_way.rests, self._limits.rest_seconds)
        elif under_way.why != _CHANGED:  # it would be refused again
            parts.rests.rest(pod.uid, self._limits.rest_seconds)

    async def _evict(self, under_way: UnderWay) -> bool:
        """Evict the pod; on failure, record the move's result and return False."""
        parts, state, pod = self.parts, self.parts.scheduler.state, under_way.move.pod
        if not state.begin_evictions(under_way.place or pod, (pod,)):
            under_way.end(Result.GONE, about("{} has gone", pod))
            return False
        request = _in_task(
            parts.pods.evict_pod(pod.namespace, pod.name, pod.uid, wanted=self._is_in_force),
            parts.evictions,
        )
        try:
            if await shielded(request):
                return True
            under_way.end(Result.GONE, about("{} was deleted by somebody else", pod))
        except DisruptionBudgetError:
            state.eviction_refused(pod, by_budget=True)
            under_way.end(Result.REFUSED, about("a disruption budget keeps {}", pod))
        except NotWantedError:
            under_way.end(Result.REFUSED, _CHANGED)
        except KubeError as error:  # whose text names the pod
            why = TextAboutPods(explain(error), (PodRef.of(pod),), "a pod could not be evicted")
            under_way.end(Result.FAILED, why)
        parts.preemptions.stays(pod)
        return False

    def _evicted(self, under_way: UnderWay) -> None:
        move, step = under_way.move, under_way.step
        under_way.evicted = True
        self.record.evictions.note()
        note = (
            f"Evicted from node {move.source} by profile {self._name}, so that it runs on node "
            f"{move.target} ({step.goal}): {_for_everybody(step.reason)}"
        )
        pod = move.pod
        regarding = ObjectRef("Pod", pod.name, pod.namespace, pod.uid)
        self.parts.recorder.record(regarding, "Normal", "Rebalanced", "Rebalancing", note)

    async def _until_replaced(self, under_way: UnderWay) -> None:
        clock, seconds = self.parts.scheduler.clock, float(self._limits.replacement_seconds)
        pod = under_way.move.pod
        if pod.owner is not None and pod.owner.kind == "StatefulSet":
            seconds += pod.termination_grace_period_seconds  # it comes when the pod has gone
        until = clock() + seconds
        while (ended := self._ended(under_way)) is None:
            if clock() >= until:
                ended = Result.LATE, _why_late(under_way, seconds)
                break
            await self.parts.scheduler.sleep(LOOK_SECONDS)
        under_way.end(*ended)

    def _ended(self, under_way: UnderWay) -> tuple[Result, Why] | None:
        """Return the move's result with the reason; None while it is running."""
        move, replacement = under_way.move, under_way.replacement
        scheduler, state = self.parts.scheduler, self.parts.scheduler.state
        if scheduler.cluster.row(move.target) is None:
            return Result.GONE, f"node {move.target} has gone"
        if replacement is None:
            why = "the controller of {} makes pods of another spec by now"
            return (Result.GONE, about(why, move.pod)) if under_way.changed else None
        placed = state.pods.get(replacement.uid)
        if placed is None:
            waits = replacement.uid in state.unscheduled or scheduler.queue.get(replacement.uid)
            why = "{}, the replacement of {}, has gone"
            return None if waits else (Result.GONE, about(why, replacement, move.pod))
        if not placed.assumed and placed.pod.node_name != move.target:
            there = f"is on node {placed.pod.node_name} and not on {move.target}"
            why = f"{{}}, the replacement of {{}}, {there}"
            return Result.ELSEWHERE, about(why, placed.pod, move.pod)
        return (Result.MOVED, "") if placed.pod.ready and not placed.assumed else None

    def _warn(self, why: Why) -> None:
        regarding = ObjectRef(KIND, self._name, uid=self.record.uid, api_version=API_VERSION)
        reason = "RebalancingStopped"
        # Readers of the Event may not be allowed to see the pods.
        self.parts.recorder.record(regarding, "Warning", reason, "Rebalancing", _for_everybody(why))
        logger.warning("rebalancing for profile %s is stopped: %s", self._name, whole(why))


def _in_task(work: Coroutine[Any, Any, _T], tasks: set[asyncio.Task[_T]]) -> asyncio.Task[_T]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _by_owner(moves: Sequence[Move]) -> Counter[str]:
    return Counter(owner_of(move.pod) for move in moves)


def _about(moves: Sequence[Move], text: str, otherwise: str) -> TextAboutPods:
    return TextAboutPods(text, tuple(PodRef.of(move.pod) for move in moves), otherwise)


def _for_everybody(text: Why) -> str:
    return text.otherwise if isinstance(text, TextAboutPods) else text


def _why_late(under_way: UnderWay, seconds: float) -> TextAboutPods:
    move, replacement = under_way.move, under_way.replacement
    if replacement is None:
        return about(f"no replacement of {{}} has come within {seconds:.0f} s", move.pod)
    late = f"was not ready on node {move.target} within {seconds:.0f} s"
    return about(f"{{}}, the replacement of {{}}, {late}", replacement, move.pod)
