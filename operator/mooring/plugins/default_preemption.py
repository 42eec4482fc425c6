"""Room for a pod by evicting pods of lower priority (defaultpreemption/, framework/preemption/).

Candidates are found and ranked for all nodes at once by counting (`mooring.framework.room`). Where
counting cannot be exact, because a disruption budget or another filter has a say, the best of them
are tried one by one in a trial on the live state, as upstream does with all.
"""

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.attempt import Attempt, Nomination, NotEligible
from mooring.framework.handle import Handle
from mooring.framework.room import Room
from mooring.framework.verdicts import Refused
from mooring.framework.victims import Plan, cheapest, chosen_victims
from mooring.model.pod import Pod
from mooring.policy.args import DefaultPreemptionArgs
from mooring.state.columns import IntArray

__all__ = ["DefaultPreemption"]

_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_LEAVING: Final = "not eligible due to a terminating pod on the nominated node."
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"


class DefaultPreemption:
    """Nominates the node on which evictions cost least."""

    name: ClassVar[str] = "DefaultPreemption"
    row_local: ClassVar[bool] = False
    Args: ClassVar[type[DefaultPreemptionArgs]] = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute

    def post_filter(self, attempt: Attempt) -> Nomination | Refused | NotEligible:
        """The cheapest node and its victims, or why there is none."""
        obstacle = _not_eligible(attempt)
        if obstacle is not None:
            return NotEligible(f"preemption: {obstacle}")
        rows = attempt.diagnosis.resolvable_rows
        refusals: Counter[str] = Counter()
        plan = self._plan(attempt, rows, refusals)
        if plan is not None:
            strict = attempt.limits.disruption_budgets == "Strict"
            return Nomination(attempt.cluster.node_names[plan.row], plan.gone, strict)
        refusals[_NOT_HELPFUL] += attempt.diagnosis.total - len(rows)
        histogram = ", ".join(sorted(f"{n} {reason}" for reason, n in refusals.items() if n))
        text = f"0/{attempt.diagnosis.total} nodes are available: {histogram}."
        return Refused(f"preemption: {text}", resolvable=True)

    def _plan(self, attempt: Attempt, rows: IntArray, refusals: Counter[str]) -> Plan | None:
        """The best plan; `refusals` gets the reason of every node without one if there is none."""
        if not len(rows):
            return None
        needs = attempt.what_if.needs
        room = Room(attempt.pod, needs or {}, rows, attempt.cluster, _spared(attempt))
        if needs is None:
            return self._tried(attempt, room, refusals)
        if not room.suffices.any():
            _count_lacking(room, refusals)
            return None
        victims = room.victims()
        ranked = room.ranked(victims)
        if attempt.limits.max_victims or room.meets_budgets(attempt.cluster):
            plans = list[Plan]()
            for position in ranked.tolist():
                plans.append(self._counted(attempt, room, position))
                if self._enough(attempt, plans, len(rows)):
                    break
            return _best(attempt, plans, refusals)
        return room.plan(int(ranked[0]), victims)

    def _enough(self, attempt: Attempt, plans: list[Plan], nodes: int) -> bool:
        """Whether as many plans were compared as the profile asks for, and one breaks nothing.

        See calculateNumCandidates and DryRunPreemption in framework/preemption/preemption.go.
        """
        if len(plans) < max(nodes * self._percentage // 100, self._absolute):
            return False
        return any(not plan.violations and _obstacle(attempt, plan) is None for plan in plans)

    def _counted(self, attempt: Attempt, room: Room, position: int) -> Plan:
        """The plan for one row by counting, budgets respected."""
        row, candidates = int(room.rows[position]), room.candidates_at(position)
        return chosen_victims(row, candidates, room.left(position).take, attempt.cluster.evictions)

    def _tried(self, attempt: Attempt, room: Room, refusals: Counter[str]) -> Plan | None:
        """The best of the plans that trials find, as many as upstream would compare."""
        order = np.argsort(-room.suffices.astype(np.int64), kind="stable")
        plans = list[Plan]()
        for position in order.tolist():
            pods = room.candidates_at(position)
            if not pods:
                refusals[_NO_VICTIMS] += 1
                continue
            plan = _trial(attempt, int(room.rows[position]), pods, refusals)
            if plan is not None:
                plans.append(plan)
            if self._enough(attempt, plans, len(room.rows)):
                break
        return _best(attempt, plans, refusals)


def _not_eligible(attempt: Attempt) -> str | None:
    """Why the pod may not preempt at all, or not again yet (PodEligibleToPreemptOthers)."""
    pod, cluster = attempt.pod, attempt.cluster
    if not pod.shape.preempts:
        return "not eligible due to preemptionPolicy=Never."
    if cluster.evictions.leaving(pod):
        return _LEAVING
    nominee = cluster.nominations.get(pod.key)
    if nominee is None or nominee.row in attempt.diagnosis.unresolvable_rows:
        return None
    for placed in cluster.pods_on(nominee.row):
        victim = placed.pod
        leaving = victim.terminating and victim.disrupted
        if victim.shape.priority < pod.shape.priority and leaving:
            return _LEAVING
    return None


def _spared(attempt: Attempt) -> npt.NDArray[np.bool_] | None:
    """Slots of pods that have not run long enough to be displaced; None where nobody asks."""
    if not attempt.limits.min_runtime_seconds:
        return None
    since = attempt.now - attempt.limits.min_runtime_seconds
    return np.asarray(attempt.cluster.pod_columns.started > since)


def _trial(
    attempt: Attempt, row: int, candidates: Iterable[Pod], refusals: Counter[str]
) -> Plan | None:
    """The plan for one row by trial, or None with the reasons counted."""
    with attempt.what_if.trial() as trial:
        for pod in candidates:
            trial.remove(pod.key)
        refusal = attempt.what_if.refusal(row)
        if refusal:
            refusals.update(refusal)
            return None

        def keeps(pod: Pod) -> bool:
            trial.add(pod, row)
            if not attempt.what_if.refusal(row):
                return True
            trial.remove(pod.key)
            return False

        return chosen_victims(row, candidates, keeps, attempt.cluster.evictions)


def _best(attempt: Attempt, plans: list[Plan], refusals: Counter[str]) -> Plan | None:
    """The cheapest plan within the profile's limits."""
    obstacles = [_obstacle(attempt, plan) for plan in plans]
    refusals.update(obstacle for obstacle in obstacles if obstacle is not None)
    allowed = [plan for plan, why in zip(plans, obstacles, strict=True) if why is None]
    return cheapest(allowed) if allowed else None


def _obstacle(attempt: Attempt, plan: Plan) -> str | None:
    """Which of the profile's limits the plan exceeds."""
    limits = attempt.limits
    if limits.disruption_budgets == "Strict" and plan.violations:
        return "node(s) need a disruption that a PodDisruptionBudget does not allow"
    if limits.max_victims is not None and len(plan.victims) > limits.max_victims:
        return f"node(s) need more than {limits.max_victims} victims"
    return None


def _count_lacking(room: Room, refusals: Counter[str]) -> None:
    """Why no node has room even without all of its candidates."""
    has_candidates = room.candidates > 0
    refusals[_NO_VICTIMS] += int((~has_candidates).sum())
    for reason, where in room.lacking():
        refusals[reason] += int((where & has_candidates).sum())
