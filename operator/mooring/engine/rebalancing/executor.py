"""Carries out one move: keeps a place, evicts the pod, and waits until its replacement is ready.

Pods are evicted through the Eviction API only, so that disruption budgets hold, and each by its
uid, once: what became of an eviction without an answer is read from the API server. Whatever
happens, the place is given back in the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from mooring.engine.outcome import ScheduleResult
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.profiles import ActiveProfile
from mooring.engine.rebalancing.comparing import violation
from mooring.engine.rebalancing.expected import Expected, ExpectedReplacements, as_new, place_uid
from mooring.engine.rebalancing.movable import Movable, created_anew
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.what_if import WhatIf, without_preemption
from mooring.framework.card_plugin import assign_devices
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.kube.errors import DisruptionBudgetError, KubeError, NotWantedError, explain
from mooring.kube.writes import PodWriter
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal
from mooring.shielding import shielded
from mooring.state.cluster import Trial
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

__all__ = ["CHANGED", "Ended", "Executor", "Result"]

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often it is looked whether a replacement is ready."""
BUDGET_SECONDS: Final = 30.0
"""How long a disruption budget is waited for that allows no eviction at the moment.

Its status follows a moment after the last replacement has become ready.
"""
_ALL_NODES: Final = 100
"""The percentage of nodes that is looked at: that a node was found once must not hide another."""
_STATEFUL: Final = "StatefulSet"
CHANGED: Final = "the profile has changed"
"""Why nothing is evicted any more by a former version of a profile."""


class Result(StrEnum):
    """How a move ended."""

    MOVED = "moved"
    """The replacement is ready on the node that it is meant for."""
    ELSEWHERE = "elsewhere"
    """The replacement is bound to another node."""
    LATE = "late"
    """In time no replacement came, or it was not bound, or not ready."""
    GONE = "gone"
    """The pod, its replacement or the target node has gone, or the controller makes other pods."""
    REFUSED = "refused"
    """A disruption budget, or by now the profile, allows no eviction; nothing has happened."""
    FAILED = "failed"
    """The API server did not evict the pod; nothing has happened."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a move ended, why as a sentence without a full stop, and the replacement if one came.

    `evicted` says whether the pod was evicted for it.
    """

    result: Result
    why: str | TextAboutPods = ""
    evicted: bool = False
    replacement: Pod | None = None


class Executor:
    """Carries out moves, each in a task of its caller.

    `evicted` is called with what is expected when the API server has evicted the pod.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        writer: PodWriter,
        preemptions: PreemptionExecutor,
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._scheduler = scheduler
        self._writer = writer
        self._preemptions = preemptions
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._requests: set[asyncio.Task[bool]] = set()
        self.expected = ExpectedReplacements(scheduler.state, scheduler.queue)

    async def finish(self, seconds: float) -> None:
        """Wait until all evictions that were sent are answered; cancel them after `seconds`."""
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=max(0.0, seconds))
            for task in late:
                task.cancel()

    def why_not(
        self, step: Step, moves: Sequence[Move], entry: ActiveProfile, resting: Collection[str]
    ) -> str | TextAboutPods | None:
        """Return why these moves of a step are not to be carried out now; None if they are.

        Everything is looked at again that was looked at when the plan was made, and whether the
        step, with the moves of it that are under way or yet to come, still is for something.

        Raises:
            StillEvaluating: a plugin needs values that are being evaluated; try again later.
        """
        section = entry.profile.spec.rebalancing
        if not self._is_in_force(entry) or section is None:
            return CHANGED
        if (why_changed := self.changed(step, moves, entry)) is not None:
            return why_changed
        pipeline, cluster = without_preemption(entry.pipeline), self._scheduler.cluster
        movable = Movable(section, cluster, pipeline, resting, self._now)
        for move in moves:
            refusal = movable.refusal(move.pod, with_group=bool(step.group))
            if refusal is not None:
                return _about(f"{{}} {refusal}", move.pod)
        try:
            return self._why_in_vain(step, moves, _Trying(self._what_if(), movable))
        except StillEvaluating:
            raise
        except PluginFailed as failed:
            return text_of(failed)

    def is_left(self, step: Step) -> bool:
        """Return whether the pods that were evicted to make room have left their nodes."""
        evicting = self._scheduler.state.evictions.evicting
        return not step.fits or not any(evicting(move.pod) for move in step.moves)

    def unreached(self, step: Step, entry: ActiveProfile) -> str | TextAboutPods | None:
        """Return what is not as the step was to make it, once its moves have ended; None if all is.

        That is also that the profile has changed.
        """
        section = entry.profile.spec.rebalancing
        if not self._is_in_force(entry) or section is None:
            return CHANGED
        pipeline, cluster = without_preemption(entry.pipeline), self._scheduler.cluster
        trying = _Trying(self._what_if(), Movable(section, cluster, pipeline, (), self._now))
        try:
            with trying.what_if.trial() as trial:
                return self._why_missed(step, trying, trial)
        except PluginFailed as failed:
            return text_of(failed)

    def changed(
        self, step: Step, moves: Sequence[Move], entry: ActiveProfile
    ) -> str | TextAboutPods | None:
        """Return what of these moves of a step is not as it was planned; None if all is.

        A pod that is moved may have changed, or no pod waits for the room any more. None, too, if
        the profile has changed.
        """
        if not self._is_in_force(entry):
            return None
        if step.fits and not any(map(self._waits, step.fits)):
            return "what it makes room for waits no more"
        return next((why for move in moves if (why := self._why_not_moved(move, entry))), None)

    def exhausted_budget(self, moves: Sequence[Move]) -> str | None:
        """Return the disruption budget that does not allow these evictions now; None if all do."""
        return self._scheduler.state.evictions.exhausted_budget(move.pod for move in moves)

    async def wait_for_budgets(self, moves: Sequence[Move]) -> str | None:
        """Return None as soon as all budgets allow these evictions, else which one does not."""
        until = self._clock() + BUDGET_SECONDS
        while (budget := self.exhausted_budget(moves)) is not None and self._clock() < until:
            await self._sleep(LOOK_SECONDS)
        return budget

    async def carry_out(
        self,
        expected: Expected,
        entry: ActiveProfile,
        seconds: float,
        evicted: Callable[[], object],
    ) -> Ended:
        """Evict the pod, and wait at most so many seconds until its replacement is ready.

        The place is kept already, and given back in the end. `evicted` is called when the pod is.
        No eviction is sent once the profile is not in force any more as it was planned with.
        """
        try:
            failed = await self._evict(expected, entry)
            if failed is not None:
                return failed
            evicted()
            return await self._replaced(expected, seconds)
        finally:
            self.expected.forget(expected)

    def _is_in_force(self, entry: ActiveProfile) -> bool:
        return self._scheduler.profiles.in_force.get(entry.profile.name) is entry

    def _why_not_moved(self, move: Move, entry: ActiveProfile) -> TextAboutPods | None:
        """Return why the pod is not to be moved any more; None if it is as it was planned."""
        scheduler, pod = self._scheduler, move.pod
        placed = scheduler.state.pods.get(pod.uid)
        if placed is None or placed.pod.terminating or placed.pod.finished:
            return _about("{} has gone", pod)
        changed = placed.pod.spec is not pod.spec or placed.pod.labels != pod.labels
        if changed or placed.pod.annotations != pod.annotations:
            return _about("{} has changed", pod)
        if scheduler.profiles.of(placed.pod, scheduler.cluster) is not entry:
            return _about("{} has another profile", pod)
        return None

    def _what_if(self) -> WhatIf:
        state = self._scheduler.state
        return WhatIf(self._scheduler.cluster, ResultCache(state.nodes), now=self._now)

    def _why_in_vain(
        self, step: Step, moves: Sequence[Move], trying: "_Trying"
    ) -> str | TextAboutPods | None:
        """Return why these moves are not possible, or what the step is for will not be reached.

        The moves must be possible beside those that are under way. In the end these have been made
        as well, and the ones that follow in the step.
        """
        first, last = step.moves.index(moves[0]), step.moves.index(moves[-1])
        what_if, under_way = trying.what_if, self.expected.of(step.moves[:first])
        with what_if.trial() as trial:
            if (why := trying.why_impossible(trial, moves)) is not None:
                return why
        if (why := trying.why_no_gain(step)) is not None:
            return why
        with what_if.trial() as trial:
            for expected in under_way:
                self._end(expected, trying, trial)
            if step.fits or step.emptied:
                with what_if.trial() as without:
                    if self._why_missed(step, trying, without) is None:
                        return "what it is for is reached without it"
            for batch in (moves, *((move,) for move in step.moves[last + 1 :])):
                if (why := trying.why_impossible(trial, batch)) is not None:
                    return why
            return self._why_missed(step, trying, trial)

    def _end(self, expected: Expected, trying: "_Trying", trial: Trial) -> None:
        """Have a move that is under way end in the trial, with the replacement on its target."""
        move, replacement = expected.move, expected.replacement
        placed = replacement and self._scheduler.state.pods.get(replacement.uid)
        trial.remove(move.pod.uid)
        trial.withdraw(expected.place.uid)
        if replacement is not None:
            trial.withdraw(replacement.uid)
        row = trying.what_if.cluster.row(move.target)
        if row is not None and not placed:
            trying.put(trial, expected.place, row)

    def _why_missed(
        self, step: Step, trying: "_Trying", trial: Trial
    ) -> TextAboutPods | str | None:
        """Return what the step is for and the trial has not reached; None if it has all.

        Pods of the step that terminate are regarded as gone.
        """
        cluster = trying.what_if.cluster
        for move in step.moves:
            if cluster.evictions.evicting(move.pod):
                trial.remove(move.pod.uid)
        for ref in step.fits:
            trial.withdraw(place_uid(ref.uid))
        for pod, node in self.expected.waiting(step):
            trial.withdraw(pod.uid)
            row = cluster.row(node)
            if row is None or row not in trying.feasible_rows(pod):
                return _about(f"{{}} does not fit on node {node} once the moves are made", pod)
            trying.put(trial, pod, row)
        for node in step.emptied:
            if not trying.is_empty(node):
                return f"node {node} is not empty once the moves are made"
        return None

    async def _evict(self, expected: Expected, entry: ActiveProfile) -> Ended | None:
        """Evict the pod; return how the move ended if that has failed."""
        state, pod = self._scheduler.state, expected.move.pod
        if not state.begin_evictions(expected.place, (pod,)):
            return Ended(Result.GONE, _about("{} has gone", pod))
        wanted = partial(self._is_in_force, entry)
        evicting = self._writer.evict_pod(pod.namespace, pod.name, pod.uid, wanted=wanted)
        request = asyncio.create_task(evicting)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        failed = None
        try:
            if not await shielded(request):
                failed = Ended(Result.GONE, _about("{} was deleted by somebody else", pod))
        except DisruptionBudgetError:
            state.eviction_refused(pod, by_budget=True)
            failed = Ended(Result.REFUSED, _about("a disruption budget keeps {}", pod))
        except NotWantedError:
            failed = Ended(Result.REFUSED, CHANGED)
        except KubeError as error:
            failed = Ended(Result.FAILED, _why_failed(pod, error))
        if failed is not None:
            self._preemptions.stays(pod)
        return failed

    async def _replaced(self, expected: Expected, seconds: float) -> Ended:
        """Return how the move ended once the replacement is ready, or it is clear that it fails."""
        pod = expected.move.pod
        if pod.owner is not None and pod.owner.kind == _STATEFUL:
            seconds += pod.termination_grace_period_seconds  # it comes when the pod has gone
        until = self._clock() + seconds
        while (ended := self._looked(expected)) is None:
            if self._clock() >= until:
                return self._ended(expected, Result.LATE, _why_late(expected, seconds))
            await self._sleep(LOOK_SECONDS)
        return ended

    def _looked(self, expected: Expected) -> Ended | None:
        """Return how the move has ended by now; None while it goes on."""
        why = self._why_gone(expected)
        if why is not None:
            return self._ended(expected, Result.GONE, why)
        move, replacement = expected.move, expected.replacement
        placed = self._scheduler.state.pods.get(replacement.uid) if replacement else None
        if placed is None or placed.assumed:
            return None
        if placed.pod.node_name != move.target:
            there = f"is on node {placed.pod.node_name} and not on {move.target}"
            why = _about(f"{{}}, the replacement of {{}}, {there}", placed.pod, move.pod)
            return self._ended(expected, Result.ELSEWHERE, why)
        return self._ended(expected, Result.MOVED, "") if placed.pod.ready else None

    def _why_gone(self, expected: Expected) -> str | TextAboutPods | None:
        """Return why the move can come to no good end; None if it still may."""
        move, replacement = expected.move, expected.replacement
        if self._scheduler.cluster.row(move.target) is None:
            return f"node {move.target} has gone"
        if replacement is not None:
            exists = self._exists(replacement)
            gone = _about("{}, the replacement of {}, has gone", replacement, move.pod)
            return None if exists else gone
        if expected.changed:
            return _about("the controller of {} makes pods of another spec by now", move.pod)
        return None

    def _waits(self, pod: PodRef) -> bool:
        """Return whether a pod waits for a node."""
        return pod.uid in self._scheduler.state.unscheduled

    def keep(self, move: Move) -> Expected:
        """Keep a place for the replacement of a pod that `why_not` has nothing against."""
        node = _node(self._scheduler.cluster, move.source)
        if node is None:
            raise ValueError(f"node {move.source} does not exist")
        return self.expected.keep(move, as_new(move.pod, node))

    def _exists(self, pod: Pod) -> bool:
        """Return whether the pod is on a node or waits for one."""
        scheduler = self._scheduler
        waits = scheduler.queue.get(pod.uid) is not None or pod.uid in scheduler.state.unscheduled
        return waits or scheduler.state.pods.get(pod.uid) is not None

    def _ended(self, expected: Expected, result: Result, why: str | TextAboutPods) -> Ended:
        return Ended(result, why, evicted=True, replacement=expected.replacement)


def _node(cluster: ClusterView, name: str) -> Node | None:
    row = cluster.row(name)
    return cluster.node(row) if row is not None else None


@dataclass(frozen=True, slots=True)
class _Trying:
    """What moves of a step would do, tried in trials."""

    what_if: WhatIf
    movable: Movable

    def why_impossible(self, trial: Trial, moves: Sequence[Move]) -> str | TextAboutPods | None:
        """Make these moves together in the trial; return why that is impossible, None if it is not.

        A pod fits beside those that are nominated to its target.
        """
        cluster = self.what_if.cluster
        for move in moves:
            trial.remove(move.pod.uid)
        for move in moves:
            row, source = cluster.row(move.target), _node(cluster, move.source)
            if row is None or source is None:
                return f"node {move.target if row is None else move.source} has gone"
            new = created_anew(move.pod, source)
            if row not in self.feasible_rows(new):
                return _about(f"{{}} does not fit on node {move.target} any more", move.pod)
            self.put(trial, new, row)
        return None

    def why_no_gain(self, step: Step) -> TextAboutPods | None:
        """Return which pods are moved for their own good and gain nothing; None if there are none.

        Of a group that is moved whole, one member has to gain.
        """
        if step.goal not in (Goal.VIOLATIONS, Goal.SPREAD) or any(
            self._gains(step.goal, move) for move in step.moves
        ):
            return None
        move = step.moves[0]
        return _about(f"{{}} gains nothing on node {move.target} any more", move.pod)

    def _gains(self, goal: Goal, move: Move) -> bool:
        cluster, what_if = self.what_if.cluster, self.what_if
        target, here = cluster.row(move.target), cluster.row(move.source)
        node = _node(cluster, move.source)
        if target is None or here is None or node is None:
            return True  # why it is impossible is said of the move
        new, pipeline = created_anew(move.pod, node), self.movable.pipeline
        with what_if.trial() as trial:
            trial.remove(move.pod.uid)
            if goal is Goal.VIOLATIONS:
                return bool(violation(what_if.search(new, pipeline), here))
            all_nodes = replace(pipeline, percentage_of_nodes_to_score=_ALL_NODES)
            outcome = what_if.decide(new, all_nodes)
        if not isinstance(outcome, ScheduleResult):
            return True
        there, own = outcome.score_of(target), outcome.score_of(here)
        least = self.movable.section.minimum_gain
        return there is not None and own is not None and there.total - own.total >= least

    def feasible_rows(self, pod: Pod) -> IntArray:
        """Return the rows on which the pod fits in the trial that is open."""
        return self.what_if.feasible_rows(pod, self.movable.pipeline)

    def put(self, trial: Trial, pod: Pod, row: int) -> None:
        """Add the pod on the row, with devices."""
        trial.add(pod, row)
        assign_devices(self.movable.pipeline.reserve, pod, row)

    def is_empty(self, node: str) -> bool:
        """Return whether only pods that belong to the node, or leave it, are on it or will be."""
        cluster = self.what_if.cluster
        row = cluster.row(node)
        if row is None:
            return True
        here = (placed.pod for placed in cluster.pods_on(row))
        stay = (pod for pod in here if not pod.terminating and not self.movable.stays(pod))
        return not any(True for _ in stay) and not cluster.nominations.on(row)


def _why_late(expected: Expected, seconds: float) -> TextAboutPods:
    pod, replacement = expected.move.pod, expected.replacement
    if replacement is None:
        return _about(f"no replacement of {{}} has come within {seconds:.0f} s", pod)
    late = f"was not ready on node {expected.move.target} within {seconds:.0f} s"
    return _about(f"{{}}, the replacement of {{}}, {late}", replacement, pod)


def _why_failed(pod: Pod, error: KubeError) -> TextAboutPods:
    """Return why the pod was not evicted; errors of the API server name it."""
    return TextAboutPods(explain(error), (PodRef.of(pod),), "a pod could not be evicted")


def _about(text: str, *pods: Pod) -> TextAboutPods:
    """Return the text with each `{}` replaced by a pod."""
    whole = text.format(*(f"pod {pod.key}" for pod in pods))
    otherwise = text.format(*("a pod" for _ in pods))
    return TextAboutPods(whole, tuple(map(PodRef.of, pods)), otherwise)
