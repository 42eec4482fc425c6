"""A running step of a plan: its purpose, and whether it can still reach this purpose.

The cluster changes between two moves. So all checks of the plan are repeated before each move, in
trials on the current state.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.plan import Move, Step, Why, about
from mooring.rebalancing.plan_trial import PlanTrial
from mooring.rebalancing.under_way import ExpectedReplacements, UnderWay, place_uid
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState


class Stopped(Exception):  # noqa: N818 - the text says why, and nothing need be wrong
    """Raised to end a plan; the text says why.

    `warns` says that a move did not end as planned.
    """

    def __init__(self, why: Why, *, warns: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.warns = warns


class PassedOver(Stopped):
    """Raised to end one step of a plan; later steps can still be carried out."""


@dataclass(slots=True, eq=False)
class RunningStep:
    """A step in execution.

    While it runs, nominations of placeholder pods (see `place_uid`) keep room for the waiting pods.
    The pods' own nominations would end with their next attempt, because there is no room yet.

    Attributes:
        begun: How many of its moves have begun.
        is_over: Whether no more of its moves will begin.
        until: The time, on the monotonic clock, until which a step that is over waits for pods to
            leave their nodes.
        why: Why the step was skipped; None if it was not.
    """

    step: Step
    entry: ActiveProfile
    section: Rebalancing
    scheduler: SchedulerState
    expected: ExpectedReplacements
    begun: int = 0
    is_over: bool = False
    until: float = math.inf
    why: Stopped | None = None

    @property
    def under_way(self) -> list[UnderWay]:
        """The step's moves that have begun and not ended."""
        moves = self.expected.moves
        return [each for each in moves if each.step is self.step and each.place and not each.result]

    @property
    def is_left(self) -> bool:
        """Whether no pod of this step is still being evicted.

        Always True if the step does not make room for waiting pods.
        """
        evicting = self.scheduler.state.evictions.evicting
        return not self.step.fits or not any(evicting(move.pod) for move in self.step.moves)

    def check_unchanged(self, moves: Sequence[Move]) -> None:
        """Raise PassedOver if a pod to be moved has changed, or if no pod waits for the room."""
        fits = self.step.fits
        if fits and not any(ref.uid in self.scheduler.state.unscheduled for ref in fits):
            raise PassedOver("what it makes room for waits no more")
        for move in moves:
            if (why := self._why_not_moved(move.pod)) is not None:
                raise PassedOver(why)

    def _why_not_moved(self, pod: Pod) -> Why | None:
        scheduler = self.scheduler
        placed = scheduler.state.pods.get(pod.uid)
        if placed is None or placed.pod.terminating or placed.pod.finished:
            return about("{} has gone", pod)
        changed = placed.pod.spec is not pod.spec or placed.pod.labels != pod.labels
        if changed or placed.pod.annotations != pod.annotations:
            return about("{} has changed", pod)
        if scheduler.profiles.of(placed.pod, scheduler.cluster) is not self.entry:
            return about("{} has another profile", pod)
        return None

    def why_not(self, moves: Sequence[Move], resting: Collection[str]) -> Why | None:
        """Return why these moves must not begin now; None if they may begin.

        Pods and controllers with a uid in `resting` must not move. Raises AttemptTooLongError if
        the check takes too long; the next call continues it.
        """
        trial = self._trial(resting)
        for move in moves:
            refusal = trial.movable.refusal(move.pod, with_group=bool(self.step.group))
            if refusal is not None:
                return about(f"{{}} {refusal}", move.pod)
        try:
            return self._why_in_vain(trial, moves)
        except AttemptTooLongError:
            raise
        except PluginFailed as failed:
            return text_of(failed)

    def unreached(self) -> Why | None:
        """Return which part of its purpose the step has not reached; None if it has reached all."""
        trial = self._trial(())
        try:
            with trial.undone():
                return self._why_missed(trial)
        except PluginFailed as failed:
            return text_of(failed)

    def hold_room(self) -> None:
        """Nominate a placeholder for each waiting pod; placeholders keep room for the pods.

        A node gets no placeholder as long as a pod of this step must still move to it.
        """
        to_come = self.step.moves[self.begun :], (each.move for each in self.under_way)
        targets = {move.target for move in chain.from_iterable(to_come)}
        for pod, node in self._waiting():
            if node not in targets:
                self.scheduler.state.nominate(replace(pod, uid=place_uid(pod.uid)), node)

    def give_room(self, *, to_pods: bool) -> None:
        """Withdraw the placeholders of waiting pods; with `to_pods`, nominate the pods instead.

        A pod that has a nomination keeps it.
        """
        state = self.scheduler.state
        for pod, node in self._waiting() if to_pods else ():
            if state.nominations.get(pod.uid) is None:
                state.nominate(pod, node)
                self.scheduler.queue.nominated(pod.uid)
        # Each withdrawal is an event: all waiting pods are retried, not one of several equal pods.
        for ref in self.step.fits:
            state.withdraw(place_uid(ref.uid))

    def _waiting(self) -> list[tuple[Pod, str]]:
        state, step = self.scheduler.state, self.step
        pods = (state.unscheduled.get(ref.uid) for ref in step.fits)
        return [
            (pod, node)
            for pod, node in zip(pods, step.nodes, strict=True)
            if pod is not None and state.pods.get(pod.uid) is None
        ]

    def _trial(self, resting: Collection[str]) -> PlanTrial:
        return PlanTrial(
            ResultCache(self.scheduler.cluster),
            self.entry.pipeline,
            self.section,
            now=self.scheduler.now,
            budget=SearchBudget(),
            resting=resting,
        )

    def _why_in_vain(self, trial: PlanTrial, moves: Sequence[Move]) -> Why | None:
        """Return why the next moves are impossible, useless or not needed any more, or None."""
        step = self.step
        # The moves must be possible while other moves are running.
        with trial.undone():
            if (why := trial.why_impossible(moves)) is not None:
                return why
        if (why := self._why_no_gain(trial)) is not None:
            return why
        with trial.undone():
            for each in self.under_way:
                _end(trial, each)
            if step.fits or step.emptied:
                with trial.undone():
                    if self._why_missed(trial) is None:
                        return "what it is for is reached without it"
            following = step.moves[self.begun + len(moves) :]
            for batch in (moves, *((move,) for move in following)):
                if (why := trial.why_impossible(batch)) is not None:
                    return why
            return self._why_missed(trial)

    def _why_no_gain(self, trial: PlanTrial) -> Why | None:
        moves = self.step.moves
        if self.step.goal is Goal.VIOLATIONS:
            gains = any(trial.violation(move.pod) for move in moves)
        else:
            gains = self.step.goal is not Goal.SPREAD or self._scores_more(trial, moves[0])
        if gains:
            return None
        why = f"{{}} gains nothing on node {moves[0].target} any more"
        return about(why, moves[0].pod)

    def _scores_more(self, trial: PlanTrial, move: Move) -> bool:
        with trial.undone():
            trial.remove(move.pod)
            outcome = trial.what_if.decide(trial.anew(move), trial.pipeline)
            if not isinstance(outcome, ScheduleResult):
                return True  # another check says why
            rows = trial.cluster.rows([move.target, move.source]).tolist()
            there, own = map(outcome.score_of, rows)
        if there is None or own is None:
            return False
        return there.total - own.total >= self.section.minimum_gain

    def _why_missed(self, trial: PlanTrial) -> Why | None:
        """Return which part of the step's purpose the trial has not reached, or None."""
        for move in self.step.moves:
            if trial.cluster.evictions.evicting(move.pod):
                trial.remove(move.pod)
        for ref in self.step.fits:
            trial.withdraw(place_uid(ref.uid))
        for pod, node in self._waiting():
            trial.withdraw(pod.uid)
            if not trial.fits(pod, node):
                return about(f"{{}} does not fit on node {node} once the moves are made", pod)
            trial.add(pod, node)
        for node in self.step.emptied:
            if not _is_empty(trial, node):
                return f"node {node} is not empty once the moves are made"
        return None


def _end(trial: PlanTrial, under_way: UnderWay) -> None:
    """Finish a running move in the trial: put its replacement on the target."""
    replacement, place = under_way.replacement, under_way.place
    trial.remove(under_way.move.pod)
    for kept in filter(None, (place, replacement)):
        trial.withdraw(kept.uid)
    is_placed = replacement is not None and trial.cluster.is_placed(replacement)
    if place is not None and not is_placed:
        trial.add(place, under_way.move.target)


def _is_empty(trial: PlanTrial, node: str) -> bool:
    """Return whether only terminating, static and DaemonSet pods are on the node."""
    if (row := trial.cluster.row(node)) is None:
        return True
    here = (placed.pod for placed in trial.cluster.pods_on(row))
    stay = any(not pod.terminating and not trial.movable.stays(pod) for pod in here)
    return not stay and not trial.cluster.nominations.on(row)
