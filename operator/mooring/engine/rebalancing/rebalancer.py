"""Plans moves for each profile with a section `rebalancing`, and carries them out in mode Apply.

It runs while this replica leads. A plan is made in slices, one profile after the other, and gives
way to decisions. What a move is about to do is in the profile's status before the pod is evicted,
so that another leader keeps to the limits and leaves alone what was moved. No place is kept over a
change of leader.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NoReturn

import orjson

from mooring.engine.groups.slices import Pausing
from mooring.engine.profiles import ActiveProfile
from mooring.engine.rebalancing.executor import CHANGED, LOOK_SECONDS, Ended, Executor, Result
from mooring.engine.rebalancing.expected import Expected
from mooring.engine.rebalancing.limits import Evictions, Rests
from mooring.engine.rebalancing.plan import Plan
from mooring.engine.rebalancing.plan_execution import PlanExecution, Stopped
from mooring.engine.rebalancing.record import (
    RebalancingReport,
    Record,
    UnderWay,
    whole,
)
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.decision import TextAboutPods
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.writes import ProfileWriter
from mooring.model.errors import ManifestError
from mooring.model.pod import Pod
from mooring.observe.metrics import Metrics
from mooring.policy.errors import ProfileInvalid
from mooring.policy.profile import API_VERSION, KIND
from mooring.policy.rebalancing import Rebalancing
from mooring.time_slices import REST, TimeSlices

__all__ = ["MakePlan", "Rebalancer"]

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 10.0
"""How long after a profile was put in force its first plan is made."""
STATUS_SECONDS: Final = 10.0
"""How often statuses are written that have changed."""
_PATIENCE_SECONDS: Final = 60.0
"""How long a plan gives way to pods that wait for a decision."""
_FORMER_SECONDS: Final = 5.0
"""How often it is looked whether the moves of a former leader have ended."""
_SLICE_SECONDS: Final = 0.005

_Owner = tuple[str, str]
"""The namespace and the uid of a controller."""
MakePlan = Callable[[ActiveProfile, Rebalancing, Collection[str], int], Pausing[Plan]]
"""Makes the plan of a profile with this section.

The uids are those of pods and controllers whose pods are left alone; the number is where the last
plan has ended.
"""


@dataclass(slots=True, eq=False)
class _Work:
    """The task that plans for a profile as it is in force."""

    entry: ActiveProfile
    task: "asyncio.Task[None]"


class Rebalancer:
    """Plans, shows plans, and carries them out, while `run` runs.

    `busy` says whether pods wait for a decision. `clock` is monotonic, `now` the time since the
    epoch, both in seconds.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        executor: Executor,
        make_plan: MakePlan,
        *,
        profiles: ProfileWriter,
        recorder: EventRecorder,
        metrics: Metrics,
        busy: Callable[[], bool],
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._make_plan = make_plan
        self._profiles = profiles
        self._recorder = recorder
        self._metrics = metrics
        self._busy = busy
        self._clock, self._now, self._sleep = clock, now, sleep
        self._rests = Rests(clock)
        self._records: dict[str, Record] = {}
        self._works: dict[str, _Work] = {}
        self._moves: dict[asyncio.Task[None], tuple[str, Expected]] = {}
        """By its task, each move that has begun: its profile's name, and what is expected."""
        self._planning = asyncio.Lock()

    async def run(self) -> None:
        """Work until cancelled; then no place is kept any more."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_profiles())
                tasks.create_task(self._write_statuses())
        finally:
            left = [*(work.task for work in self._works.values()), *self._moves]
            self._works.clear()
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def finish(self, seconds: float) -> None:
        """Wait until evictions that were sent are answered; cancel them after `seconds`."""
        await self._executor.finish(seconds)

    def profile_found(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Note a profile and its status, before it is put in force."""
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = self._new_record()
            record.found = status.get("rebalancing")
        record.uid = uid

    def report(self) -> tuple[RebalancingReport, ...]:
        """Return the documents about the profiles that have a section, by name."""
        works = sorted(self._works.items())
        return tuple(self._records[name].report(work.entry.profile) for name, work in works)

    def planned(self) -> dict[str, int]:
        """Return by profile how many moves its last plan has."""
        plans = {name: self._records[name].plan for name in self._works}
        return {name: len(plan.moves) for name, plan in plans.items() if plan is not None}

    def _new_record(self) -> Record:
        return Record(self._now, self._clock, Evictions(self._clock))

    async def _follow_profiles(self) -> NoReturn:
        """Plan for the profiles as they are in force, and for no others."""
        while True:
            self._follow()
            await self._sleep(LOOK_SECONDS)

    def _follow(self) -> None:
        in_force = self._scheduler.profiles.in_force
        wanted = {n: e for n, e in in_force.items() if e.profile.spec.rebalancing is not None}
        for name, work in tuple(self._works.items()):
            if wanted.get(name) is not work.entry:
                work.task.cancel()
                del self._works[name]
                self._give_back(name)
        for name, entry in wanted.items():
            if name not in self._works:
                record = self._records.setdefault(name, self._new_record())
                task = asyncio.create_task(self._work(entry, record))
                self._works[name] = _Work(entry, task)
        for name, record in tuple(self._records.items()):
            if name not in wanted and not record.in_flight and not len(record.evictions):
                del self._records[name]

    def _give_back(self, name: str) -> None:
        """Give the places back that are kept for a profile; its replacements are still awaited."""
        for profile, expected in self._moves.values():
            if profile == name:
                self._executor.expected.give_back(expected)

    async def _work(self, entry: ActiveProfile, record: Record) -> None:
        """Plan for a profile and carry the plans out, until cancelled."""
        section = entry.profile.spec.rebalancing
        if section is None:
            return
        self._restore(entry, section, record)
        await self._sleep(FIRST_SECONDS)
        while True:
            began = self._clock()
            try:
                await self._one_plan(entry, section, record)
            except PluginFailed as failed:
                record.message = f"no plan: {text_of(failed)}"
            except Exception as error:
                logger.exception("rebalancing for profile %s failed", entry.profile.name)
                record.message = f"no plan: {text_of(error)}"
            await self._sleep(max(0.0, began + section.interval_seconds - self._clock()))

    def _restore(self, entry: ActiveProfile, section: Rebalancing, record: Record) -> None:
        """Take over what a former leader has done, as the profile's status says."""
        found, record.found = record.found, None
        if found is None:
            return
        try:
            record.restore(found, section, self._rests)
        except (ProfileInvalid, ManifestError) as error:
            name = entry.profile.name
            logger.warning("the status of rebalancing of profile %s is unreadable: %s", name, error)

    async def _one_plan(self, entry: ActiveProfile, section: Rebalancing, record: Record) -> None:
        await self._settle_former(record, section.limits.rest_seconds)
        plan = await self._new_plan(entry, section, record.position)
        record.position = plan.position
        record.publish(plan)
        record.message = _said(plan, section)
        if section.mode != "Apply" or entry.profile.spec.mode != "Active" or not plan.steps:
            return
        execution = PlanExecution(
            plan,
            entry,
            section,
            record,
            self._executor,
            write=partial(self._write, entry.profile.name, record),
            begin=partial(self._begin, entry, section, record),
            resting=self._rests.resting,
            clock=self._clock,
            now=self._now,
            sleep=self._sleep,
        )
        try:
            await execution.run()
        except Stopped as stopped:
            record.message = stopped.why
            if stopped.warns:
                self._warn(entry.profile.name, record, stopped.why)
        else:
            record.message = "all moves of the last plan were carried out"

    async def _new_plan(self, entry: ActiveProfile, section: Rebalancing, position: int) -> Plan:
        """Return a plan, made in slices when nothing else is to be done."""
        async with self._planning:
            until = self._clock() + _PATIENCE_SECONDS
            while self._busy() and self._clock() < until:
                await self._sleep(LOOK_SECONDS)
            found = list[Plan]()

            def steps() -> Iterator[None]:
                resting = self._rests.resting()
                found.append((yield from self._make_plan(entry, section, resting, position)))

            slices = TimeSlices(_SLICE_SECONDS, rest=REST, clock=self._clock)
            await slices.run(steps())
            return found[0]

    async def _settle_former(self, record: Record, rest_seconds: float) -> None:
        """Wait until the moves that a former leader began have ended, or their time is over.

        A move has ended when a ready pod exists that its controller has created since it began, one
        for each move: that is its replacement, which is left alone. If its time is over before, all
        pods of its controller are.
        """
        known = set(self._rests.resting())  # replacements of moves that have ended before
        while record.former:
            pods = await self._pods_of({(each.namespace, each.owner) for each in record.former})
            late = self._clock()
            for former in tuple(record.former):
                placed = self._scheduler.state.pods.get(former.pod)
                of_owner = pods[former.namespace, former.owner]
                may_be = (p for p in of_owner if former.may_end_with(p) and p.uid not in known)
                new = next((pod.uid for pod in may_be if self._is_ready(pod)), None)
                if placed is not None and not placed.pod.terminating:
                    record.former.remove(former)  # it was not evicted
                elif new is not None or late >= former.until:
                    record.former.remove(former)
                    known.add(new or former.owner)
                    self._rests.rest(new or former.owner, rest_seconds)
            if record.former:
                await self._sleep(_FORMER_SECONDS)

    async def _pods_of(self, owners: Collection[_Owner]) -> defaultdict[_Owner, list[Pod]]:
        """Return the pods of these controllers that do not terminate.

        A pod of another namespace names a controller that is not its own.
        """
        found, state = defaultdict[_Owner, list[Pod]](list), self._scheduler.state
        slices = TimeSlices(clock=self._clock)
        placed = (placed.pod for placed in tuple(state.pods))
        for pod in chain(tuple(state.unscheduled.values()), placed):
            owner = (pod.namespace, pod.owner.uid) if pod.owner is not None else None
            if owner is not None and owner in owners and not pod.terminating:
                found[owner].append(pod)
            await slices.pause()
        return found

    def _is_ready(self, pod: Pod) -> bool:
        """Return whether the pod is bound and ready by now."""
        placed = self._scheduler.state.pods.get(pod.uid)
        return placed is not None and not placed.assumed and placed.pod.ready

    def _begin(
        self,
        entry: ActiveProfile,
        section: Rebalancing,
        record: Record,
        under_way: UnderWay,
        expected: Expected,
        ended: Callable[[Ended], object],
    ) -> None:
        """Begin a move in a task of its own, which goes on when the profile changes."""
        task = asyncio.create_task(self._move(entry, section, record, under_way, expected, ended))
        self._moves[task] = entry.profile.name, expected
        task.add_done_callback(self._moves.pop)

    async def _move(
        self,
        entry: ActiveProfile,
        section: Rebalancing,
        record: Record,
        under_way: UnderWay,
        expected: Expected,
        ended: Callable[[Ended], object],
    ) -> None:
        name, pod = entry.profile.name, under_way.move.pod
        how = Ended(Result.FAILED, "it was called off")
        evicted = partial(self._evicted, name, record, under_way)
        seconds = section.limits.replacement_seconds
        try:
            how = await self._executor.carry_out(expected, entry, seconds, evicted)
        except Exception as error:
            logger.exception("moving pod %s failed", pod.key)
            how = Ended(Result.FAILED, text_of(error), evicted=under_way.evicted)
        finally:
            record.under_way.pop(pod.uid, None)
            ended(how)
        self._metrics.rebalanced(name, how.result)
        if how.evicted:
            record.note(under_way, how)
        self._leave_alone(under_way, how, section.limits.rest_seconds)

    def _leave_alone(self, under_way: UnderWay, ended: Ended, seconds: float) -> None:
        """Have the replacement rest; if the move has failed, all pods of the controller.

        A pod rests, too, that the API server did not evict, for whatever reason.
        """
        pod = under_way.move.pod
        if ended.replacement is not None:
            self._rests.rest(ended.replacement.uid, seconds)
        if not ended.evicted and ended.why != CHANGED:  # it would be refused again
            self._rests.rest(pod.uid, seconds)
        if ended.result is not Result.MOVED and ended.evicted and pod.owner is not None:
            self._rests.rest(pod.owner.uid, seconds)

    def _evicted(self, name: str, record: Record, under_way: UnderWay) -> None:
        move, step = under_way.move, under_way.step
        under_way.evicted = True
        record.evictions.note()
        note = (
            f"Evicted from node {move.source} by profile {name}, so that it runs on node "
            f"{move.target} ({step.goal}): {_for_everybody(step.reason)}"
        )
        pod = move.pod
        regarding = ObjectRef("Pod", pod.name, pod.namespace, pod.uid)
        self._recorder.record(regarding, "Normal", "Rebalanced", "Rebalancing", note)

    def _warn(self, name: str, record: Record, why: str | TextAboutPods) -> None:
        """Tell in an Event of the profile why its plan is not carried out any further.

        The log and the profile's status name the pods; the Event is in the namespace default.
        """
        regarding = ObjectRef(KIND, name, uid=record.uid, api_version=API_VERSION)
        note = _for_everybody(why)
        self._recorder.record(regarding, "Warning", "RebalancingStopped", "Rebalancing", note)
        logger.warning("rebalancing for profile %s is stopped: %s", name, whole(why))

    async def _write_statuses(self) -> NoReturn:
        """Write from time to time the statuses that have changed."""
        while True:
            await self._sleep(STATUS_SECONDS)
            for name in tuple(self._works):
                if name not in self._works:
                    continue  # while another status was written, the profile went
                record = self._records[name]
                if _digest(record.status()) == record.written:
                    continue
                try:
                    await self._write(name, record)
                except NotFoundError:
                    continue  # kopf will tell that it was deleted
                except ApiError as error:
                    text = "the status of profile %s was not written: %s"
                    logger.warning(text, name, explain(error))

    async def _write(self, name: str, record: Record) -> None:
        """Write what the profile's status says of rebalancing; raise ApiError if that fails."""
        async with record.writing:
            status = record.status()
            await self._profiles.patch_status(name, {"rebalancing": status})
            record.written = _digest(status)


def _said(plan: Plan, section: Rebalancing) -> str | TextAboutPods:
    """Return what is told of a plan that was just made."""
    if not plan.steps:
        if plan.spent:
            return f"no move was found; {_left_out(plan)}"
        return plan.message or "nothing is to be gained by moves"
    count = len(plan.moves)
    planned = f"{count} moves are planned" if count > 1 else "1 move is planned"
    if section.mode != "Apply":
        planned = f"{planned}; mode Plan carries out none"
    return f"{planned}; {_left_out(plan)}" if plan.spent else planned


def _left_out(plan: Plan) -> str:
    """Return that the plan did not look at all, and what helps."""
    why = "the decisions that a plan may cost were spent before all was looked at"
    if plan.examined is not None and 0 < plan.examined < plan.pods:
        looked_at = f"{plan.examined:,} of {plan.pods:,} running pods were"
        return f"{why}: {looked_at}, and the next plan goes on with the others"
    return f"{why}: plan for fewer goals or pods"


def _for_everybody(text: str | TextAboutPods) -> str:
    """Return the text for an Event, which is read by people who may not get other pods."""
    return text.otherwise if isinstance(text, TextAboutPods) else text


def _digest(status: Mapping[str, Any]) -> bytes:
    """Return what is equal for equal statuses, whenever they are observed."""
    kept = {name: value for name, value in status.items() if name != "observedTime"}
    return sha256(orjson.dumps(kept)).digest()
