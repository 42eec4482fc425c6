"""Room for a pod by evicting pods of lower priority (defaultpreemption/, framework/preemption/).

Candidates are found and ranked for all nodes at once by counting (`potential_victims`). Where
counting cannot be exact, because a disruption budget or another filter has a say, the best of them
are tried one by one in a trial on the live state, as upstream does with all.
"""

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.handle import Handle
from mooring.framework.post_filter import Nomination, NotEligible, PostFilterState
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.plugins.default_preemption.candidates import (
    Candidate,
    select_candidate,
    select_victims,
)
from mooring.plugins.default_preemption.potential_victims import PotentialVictims
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

    def post_filter(self, state: PostFilterState) -> Nomination | Unschedulable | NotEligible:
        """The cheapest node and its victims, or why there is none."""
        obstacle = _not_eligible(state)
        if obstacle is not None:
            return NotEligible(f"preemption: {obstacle}")
        rows = state.diagnosis.resolvable_rows
        rejections: Counter[str] = Counter()
        candidate = self._find_candidate(state, rows, rejections)
        if candidate is not None:
            strict = state.limits.disruption_budgets == "Strict"
            return Nomination(state.cluster.node_names[candidate.row], candidate.gone, strict)
        rejections[_NOT_HELPFUL] += state.diagnosis.total - len(rows)
        histogram = ", ".join(sorted(f"{n} {reason}" for reason, n in rejections.items() if n))
        text = f"0/{state.diagnosis.total} nodes are available: {histogram}."
        return Unschedulable(f"preemption: {text}", resolvable=True)

    def _find_candidate(
        self, state: PostFilterState, rows: IntArray, rejections: Counter[str]
    ) -> Candidate | None:
        """The best candidate; if there is none, `rejections` gets the reason of every node."""
        if not len(rows):
            return None
        needs = state.dry_run.resource_requests
        potential = PotentialVictims(state.pod, needs or {}, rows, state.cluster, _protected(state))
        if needs is None:
            return self._tried(state, potential, rejections)
        if not potential.suffices.any():
            _count_lacking(potential, rejections)
            return None
        victims = potential.victims()
        ranked = potential.ranked(victims)
        if state.limits.max_victims or potential.meets_budgets(state.cluster):
            candidates = list[Candidate]()
            for position in ranked.tolist():
                candidates.append(self._counted(state, potential, position))
                if self._enough(state, candidates, len(rows)):
                    break
            return _best(state, candidates, rejections)
        return potential.candidate(int(ranked[0]), victims)

    def _enough(self, state: PostFilterState, candidates: list[Candidate], nodes: int) -> bool:
        """Whether as many plans were compared as the profile asks for, and one breaks nothing.

        See calculateNumCandidates and DryRunPreemption in framework/preemption/preemption.go.
        """
        if len(candidates) < max(nodes * self._percentage // 100, self._absolute):
            return False
        return any(
            not candidate.violations and _obstacle(state, candidate) is None
            for candidate in candidates
        )

    def _counted(
        self, state: PostFilterState, potential: PotentialVictims, position: int
    ) -> Candidate:
        """The plan for one row by counting, budgets respected."""
        row, candidates = int(potential.rows[position]), potential.candidates_at(position)
        return select_victims(
            row, candidates, potential.left(position).take, state.cluster.evictions
        )

    def _tried(
        self, state: PostFilterState, potential: PotentialVictims, rejections: Counter[str]
    ) -> Candidate | None:
        """The best of the plans that trials find, as many as upstream would compare."""
        order = np.argsort(-potential.suffices.astype(np.int64), kind="stable")
        candidates = list[Candidate]()
        for position in order.tolist():
            pods = potential.candidates_at(position)
            if not pods:
                rejections[_NO_VICTIMS] += 1
                continue
            candidate = _trial(state, int(potential.rows[position]), pods, rejections)
            if candidate is not None:
                candidates.append(candidate)
            if self._enough(state, candidates, len(potential.rows)):
                break
        return _best(state, candidates, rejections)


def _not_eligible(state: PostFilterState) -> str | None:
    """Why the pod may not preempt at all, or not again yet (PodEligibleToPreemptOthers)."""
    pod, cluster = state.pod, state.cluster
    if not pod.shape.preempts:
        return "not eligible due to preemptionPolicy=Never."
    if cluster.evictions.leaving(pod):
        return _LEAVING
    nominee = cluster.nominations.get(pod.key)
    if nominee is None or nominee.row in state.diagnosis.unresolvable_rows:
        return None
    for placed in cluster.pods_on(nominee.row):
        victim = placed.pod
        leaving = victim.terminating and victim.disrupted
        if victim.shape.priority < pod.shape.priority and leaving:
            return _LEAVING
    return None


def _protected(state: PostFilterState) -> npt.NDArray[np.bool_] | None:
    """Slots of pods that have not run long enough to be displaced; None where nobody asks."""
    if not state.limits.min_runtime_seconds:
        return None
    since = state.now - state.limits.min_runtime_seconds
    return np.asarray(state.cluster.pod_columns.started > since)


def _trial(
    state: PostFilterState, row: int, candidates: Iterable[Pod], rejections: Counter[str]
) -> Candidate | None:
    """The plan for one row by trial, or None with the reasons counted."""
    with state.dry_run.trial() as trial:
        for pod in candidates:
            trial.remove(pod.key)
        rejection = state.dry_run.rejection(row)
        if rejection:
            rejections.update(rejection)
            return None

        def reprieve(pod: Pod) -> bool:
            trial.add(pod, row)
            if not state.dry_run.rejection(row):
                return True
            trial.remove(pod.key)
            return False

        return select_victims(row, candidates, reprieve, state.cluster.evictions)


def _best(
    state: PostFilterState, candidates: list[Candidate], rejections: Counter[str]
) -> Candidate | None:
    """The cheapest plan within the profile's limits."""
    obstacles = [_obstacle(state, candidate) for candidate in candidates]
    rejections.update(obstacle for obstacle in obstacles if obstacle is not None)
    allowed = [
        candidate for candidate, why in zip(candidates, obstacles, strict=True) if why is None
    ]
    return select_candidate(allowed) if allowed else None


def _obstacle(state: PostFilterState, candidate: Candidate) -> str | None:
    """Which of the profile's limits the plan exceeds."""
    limits = state.limits
    if limits.disruption_budgets == "Strict" and candidate.violations:
        return "node(s) need a disruption that a PodDisruptionBudget does not allow"
    if limits.max_victims is not None and len(candidate.victims) > limits.max_victims:
        return f"node(s) need more than {limits.max_victims} victims"
    return None


def _count_lacking(potential: PotentialVictims, rejections: Counter[str]) -> None:
    """Why no node has room even without all of its candidates."""
    has_candidates = potential.candidates > 0
    rejections[_NO_VICTIMS] += int((~has_candidates).sum())
    for reason, where in potential.lacking():
        rejections[reason] += int((where & has_candidates).sum())
