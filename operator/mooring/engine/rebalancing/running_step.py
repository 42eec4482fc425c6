"""One step of a plan while it is carried out: what it is for, and whether that can be reached.

Between two moves the cluster changes. So everything that was looked at when the plan was made is
looked at again before each move, in trials on the state of now.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.engine.outcome import ScheduleResult
from mooring.engine.profiles import ActiveProfile
from mooring.engine.rebalancing.comparing import violation
from mooring.engine.rebalancing.expected import place_uid
from mooring.engine.rebalancing.movable import Movable, created_anew
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.under_way import UnderWay, about
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.what_if import WhatIf, without_preemption
from mooring.framework.card_plugin import assign_devices
from mooring.framework.decision import TextAboutPods
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray

__all__ = ["PassedOver", "RunningStep", "Stopped", "Why"]

Why = str | TextAboutPods
"""A reason, as a sentence without a full stop."""
_ALL_NODES: Final = 100
"""The percentage of nodes that is looked at: that a node was found once must not hide another."""


class Stopped(Exception):  # noqa: N818 - the text says why, and nothing need be wrong
    """The plan is not carried out any further.

    `warns` says that a move has ended otherwise than planned.
    """

    def __init__(self, why: Why, *, warns: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.warns = warns


class PassedOver(Stopped):
    """The step is not carried out any further, but the steps behind it may be."""


@dataclass(slots=True, eq=False)
class RunningStep:
    """A step whose moves begin, or have not all ended.

    A step is for pods that wait and fit afterwards, for nodes that are empty then, or, with
    neither, for the good of the pods that move. While it runs, places are kept for the pods that
    wait: a nomination of their own would end with their next attempt, which finds no room yet.

    Attributes:
        begun: Its moves that have begun.
        is_over: Whether no more of them begin.
        until: How long it may wait then for its pods to leave their nodes.
        why: Why it was passed over.
    """

    step: Step
    entry: ActiveProfile
    section: Rebalancing
    scheduler: SchedulerState
    now: Callable[[], float]
    begun: list[UnderWay] = field(default_factory=list)
    is_over: bool = False
    until: float = math.inf
    why: Stopped | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether moves of it have begun and not ended."""
        return any(each.result is None for each in self.begun)

    @property
    def is_left(self) -> bool:
        """Whether the pods that were evicted to make room have left their nodes."""
        evicting = self.scheduler.state.evictions.evicting
        return not self.step.fits or not any(evicting(move.pod) for move in self.step.moves)

    def changed(self, moves: Sequence[Move]) -> Why | None:
        """Return what of these moves is not as it was planned; None if all is.

        A pod that is moved may have changed, or no pod waits for the room any more.
        """
        fits = self.step.fits
        if fits and not any(ref.uid in self.scheduler.state.unscheduled for ref in fits):
            return "what it makes room for waits no more"
        return next((why for move in moves if (why := self._why_not_moved(move.pod))), None)

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
        """Return why these moves, the next ones, are not to be made now; None if they are.

        Pods and controllers of the uids in `resting` are left alone.

        Raises:
            AttemptTooLongError: the next call goes on.
        """
        look = self._look(resting)
        for move in moves:
            refusal = look.movable.refusal(move.pod, with_group=bool(self.step.group))
            if refusal is not None:
                return about(f"{{}} {refusal}", move.pod)
        try:
            return self._why_in_vain(moves, look)
        except AttemptTooLongError:
            raise
        except PluginFailed as failed:
            return text_of(failed)

    def unreached(self) -> Why | None:
        """Return what is not as the step was to make it, once its moves have ended."""
        look = self._look(())
        try:
            with look.what_if.trial() as trial:
                return self._why_missed(look, trial)
        except PluginFailed as failed:
            return text_of(failed)

    def hold_room(self) -> None:
        """Keep places for the pods that wait, before its next moves begin.

        None is kept on a node to which a pod of the step is yet to come.
        """
        to_come = list(self.step.moves[len(self.begun) :])
        to_come += (each.move for each in self.begun if each.result is None)
        targets = {move.target for move in to_come}
        for pod, node in self._waiting():
            if node not in targets:
                self.scheduler.state.nominate(replace(pod, uid=place_uid(pod.uid)), node)

    def give_room(self, *, to_pods: bool) -> None:
        """Give back the places of the pods that wait, or give them to the pods.

        That they end is told, so that the pods are tried again: each of them, because of equal pods
        that are not nominated one is tried for all.
        """
        state = self.scheduler.state
        for pod, node in self._waiting() if to_pods else ():
            if state.nominations.get(pod.uid) is None:
                state.nominate(pod, node)
                self.scheduler.queue.nominated(pod.uid)
        for ref in self.step.fits:
            state.withdraw(place_uid(ref.uid))

    def _waiting(self) -> list[tuple[Pod, str]]:
        """Return the pods that the step makes room for and that have no node yet, with theirs."""
        state, step = self.scheduler.state, self.step
        pods = (state.unscheduled.get(ref.uid) for ref in step.fits)
        return [
            (pod, node)
            for pod, node in zip(pods, step.nodes, strict=True)
            if pod is not None and state.pods.get(pod.uid) is None
        ]

    def _look(self, resting: Collection[str]) -> "_Look":
        cluster = self.scheduler.cluster
        pipeline = without_preemption(self.entry.pipeline)
        what_if = WhatIf(cluster, ResultCache(self.scheduler.state.nodes), now=self.now)
        return _Look(what_if, Movable(self.section, cluster, pipeline, resting, self.now))

    def _why_in_vain(self, moves: Sequence[Move], look: "_Look") -> Why | None:
        """Return why the next moves are not possible, or what the step is for is not reached.

        They must be possible beside those that are under way. In the end these have been made as
        well, and the ones that follow.
        """
        step, what_if = self.step, look.what_if
        with what_if.trial() as trial:
            if (why := look.why_impossible(trial, moves)) is not None:
                return why
        if (why := self._why_no_gain(look)) is not None:
            return why
        with what_if.trial() as trial:
            for each in self.begun:
                if each.result is None:
                    look.end(trial, each)
            if step.fits or step.emptied:
                with what_if.trial() as without:
                    if self._why_missed(look, without) is None:
                        return "what it is for is reached without it"
            following = step.moves[len(self.begun) + len(moves) :]
            for batch in (moves, *((move,) for move in following)):
                if (why := look.why_impossible(trial, batch)) is not None:
                    return why
            return self._why_missed(look, trial)

    def _why_no_gain(self, look: "_Look") -> Why | None:
        """Return which pods are moved for their own good and gain nothing; None if there are none.

        Of a group that is moved whole, one member has to gain.
        """
        step = self.step
        if step.goal not in (Goal.VIOLATIONS, Goal.SPREAD) or any(
            look.gains(step.goal, move) for move in step.moves
        ):
            return None
        move = step.moves[0]
        return about(f"{{}} gains nothing on node {move.target} any more", move.pod)

    def _why_missed(self, look: "_Look", trial: Trial) -> Why | None:
        """Return what the step is for and the trial has not reached; None if it has all.

        Pods of the step that terminate are regarded as gone.
        """
        cluster = look.what_if.cluster
        for move in self.step.moves:
            if cluster.evictions.evicting(move.pod):
                trial.remove(move.pod.uid)
        for ref in self.step.fits:
            trial.withdraw(place_uid(ref.uid))
        for pod, node in self._waiting():
            trial.withdraw(pod.uid)
            row = cluster.row(node)
            if row is None or row not in look.feasible_rows(pod):
                return about(f"{{}} does not fit on node {node} once the moves are made", pod)
            look.put(trial, pod, row)
        for node in self.step.emptied:
            if not look.is_empty(node):
                return f"node {node} is not empty once the moves are made"
        return None


@dataclass(frozen=True, slots=True)
class _Look:
    """What moves would do to the state of now, tried in trials."""

    what_if: WhatIf
    movable: Movable

    def why_impossible(self, trial: Trial, moves: Sequence[Move]) -> Why | None:
        """Make these moves together in the trial; return why that is impossible, None if it is not.

        A pod fits beside those that are nominated to its target.
        """
        for move in moves:
            trial.remove(move.pod.uid)
        for move in moves:
            row, source = self.what_if.cluster.row(move.target), self._node(move.source)
            if row is None or source is None:
                return f"node {move.target if row is None else move.source} has gone"
            new = created_anew(move.pod, source)
            if row not in self.feasible_rows(new):
                return about(f"{{}} does not fit on node {move.target} any more", move.pod)
            self.put(trial, new, row)
        return None

    def end(self, trial: Trial, under_way: UnderWay) -> None:
        """Have a move that is under way end in the trial, with the replacement on its target."""
        cluster, replacement, place = self.what_if.cluster, under_way.replacement, under_way.place
        trial.remove(under_way.move.pod.uid)
        if place is not None:
            trial.withdraw(place.uid)
        if replacement is not None:
            trial.withdraw(replacement.uid)
        row = cluster.row(under_way.move.target)
        is_placed = replacement is not None and cluster.pod(replacement.uid) is not None
        if row is not None and place is not None and not is_placed:
            self.put(trial, place, row)

    def gains(self, goal: Goal, move: Move) -> bool:
        """Return whether the pod gains by the move what the goal asks for."""
        cluster, what_if = self.what_if.cluster, self.what_if
        target, here = cluster.row(move.target), cluster.row(move.source)
        node = self._node(move.source)
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
        self.movable.pipeline.evaluations.begin_attempt()
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

    def _node(self, name: str) -> Node | None:
        row = self.what_if.cluster.row(name)
        return self.what_if.cluster.node(row) if row is not None else None
