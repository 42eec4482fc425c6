"""Finds the node on which a pod fits after the eviction of pods of lower priority.

`potential_victims` compares all nodes at once, by the requests of pods. Where requests alone do not
decide, the best nodes are examined one at a time. kube-scheduler makes a dry run on each node
(framework/plugins/defaultpreemption, framework/preemption).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.handle import Handle
from mooring.framework.post_filter import (
    Candidates,
    GroupNomination,
    GroupPreemption,
    Nomination,
    NotEligible,
    PodGroupPostFilterState,
    PostFilterResult,
    PostFilterState,
    PreemptionCandidate,
    ProcessedCandidates,
)
from mooring.framework.verdicts import Unschedulable
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.plugins.default_preemption.candidates import Candidate, select_candidate
from mooring.plugins.default_preemption.dry_runs import (
    REMOVALS_PER_CHECK,
    DryRuns,
    checks_of,
)
from mooring.plugins.default_preemption.groups import preempt_for_group
from mooring.plugins.default_preemption.potential_victims import PotentialVictims
from mooring.plugins.default_preemption.reclaim import reclaim
from mooring.plugins.default_preemption.units import Preemptor
from mooring.plugins.default_preemption.victims import (
    DELAYED,
    Victim,
    WholeGroup,
    by_importance,
    leaves_for,
    may_be_victims,
    pods_of,
    protected,
)
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel
from mooring.quota.state.queue_tree import QueueState
from mooring.state.columns import IntArray


class DefaultPreemptionArgs(PolicyModel):
    """The number of candidate nodes that preemption compares before it chooses one."""

    min_candidate_nodes_percentage: int = Field(10, ge=0, le=100)
    """The smallest number of candidates to find, as a percentage of all nodes."""
    min_candidate_nodes_absolute: int = Field(100, ge=0, le=2**31 - 1)
    """The smallest number of candidates to find; the larger of the two minima is used."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield mistakes if both minima are zero: preemption would look for no candidate."""
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            yield FieldError(percentage, f"must not be 0 when {absolute} is 0 too")
            yield FieldError(absolute, f"must not be 0 when {percentage} is 0 too")


_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
_NOT_TRIED: Final = "node(s) were not tried in this attempt, because each needs a dry run"
_COMPARED_ALWAYS: Final = 100
"""If at most this many nodes can be candidates, all of them are compared, even if it takes long."""
_MOST_CHECKS: Final = 600
"""The most runs of the filters on a node (0.1 ms each) that a decision spends on dry runs. After
them, it makes dry runs only on the nodes that it must compare in any case."""
_UNITS_PER_CHECK: Final = 1_000
"""The units of `Evaluations` for one run of the filters on a node."""
_MOST_LOOKED_AT: Final = 8_000
"""About the most potential victims that a decision compares with disruption budgets. One comparison
takes 8 us."""
_MOST_IN_DRY_RUN: Final = 200
"""The most pods that a dry run removes and restores, at 60 us for each pod. Pod groups that would
exceed this number are left out; their members on other nodes count, too."""
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_PREEMPT_VERB: Final = "preemption: extenders with a preemptVerb are not asked for pods in a queue"
_NO_CANDIDATE: Final = "no candidate node for preemption"


class DefaultPreemption:
    """Nominates the node whose victims cost the least."""

    name: ClassVar[str] = "DefaultPreemption"
    depends_on_node_only: ClassVar[bool] = False
    Args: ClassVar[type[DefaultPreemptionArgs]] = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._evaluations = handle.evaluations
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._says_placement = handle.kubernetes.placement_in_preemption_message
        self._knows_groups = handle.kubernetes.groups_in_pod_preemption
        self._extenders_add = handle.kubernetes.extenders_add_victims

    def post_filter(self, state: PostFilterState) -> PostFilterResult:
        """Return a nomination to the node with the cheapest victims, or why there is none.

        If extenders take part, return all candidates, from which the extenders choose.
        """
        not_eligible = _not_eligible_to_preempt_others(state)
        if not_eligible is not None:
            return NotEligible(f"preemption: {not_eligible}")
        queue, why_in_none = state.cluster.queues.membership(state.pod)
        if why_in_none is not None:
            return Unschedulable("")  # no eviction changes that
        return self._reclaim(state, queue) if queue is not None else self._by_priority(state)

    def _by_priority(self, state: PostFilterState) -> PostFilterResult:
        # The second call, with the candidates that the extenders accepted.
        if state.processed is not None:
            return self._of_processed(state, state.processed)
        rows = state.diagnosis.resolvable_rows
        by_extenders = np.isin(rows, state.diagnosis.extender_rows)
        rows, fitting = rows[~by_extenders], rows[by_extenders]
        rejections: Counter[str] = Counter()
        candidates = self._find_candidates(state, rows, rejections)
        may_add = state.preempt_extenders and self._extenders_add
        outranked = _with_victims(state, fitting, rejections) if may_add or not candidates else []
        if may_add:
            candidates += [Candidate(row, ()) for row in outranked]
        elif self._extenders_add:
            rejections[_NO_VICTIMS] += len(outranked)
        elif outranked:
            return NotEligible(f"preemption: {_expected_victims(state, outranked)}", is_error=True)
        if candidates and state.preempt_extenders:
            return Candidates(tuple(_for_extenders(state, found) for found in candidates))
        if candidates:
            return self._nomination(state, candidates)
        rejections[_NOT_HELPFUL] += state.diagnosis.total - len(state.diagnosis.resolvable_rows)
        histogram = ", ".join(sorted(f"{n} {reason}" for reason, n in rejections.items() if n))
        text = f"0/{state.diagnosis.total} nodes are available: {histogram}."
        return Unschedulable(f"preemption: {text}", resolvable=True)

    def pod_group_post_filter(self, state: PodGroupPostFilterState) -> GroupPreemption:
        """Return the victims whose eviction lets the whole pod group fit, or why there are none."""
        return preempt_for_group(state)

    def _reclaim(self, state: PostFilterState, queue: QueueState) -> PostFilterResult:
        if state.preempt_extenders:
            return Unschedulable(_PREEMPT_VERB)
        if state.cluster.evictions.awaits_victims(state.pod):
            return NotEligible(f"preemption: {_TERMINATING}")

        def place(without: Collection[Pod]) -> Mapping[Uid, int] | None:
            checks = 1 + len(without) / REMOVALS_PER_CHECK
            self._evaluations.spend(math.ceil(_UNITS_PER_CHECK * checks))
            return state.dry_run.place(without)

        preemptor = Preemptor(
            "pod",
            (state.pod,),
            state.pod.spec.priority,
            state.cluster,
            place,
            lambda: self._evaluations.is_exhausted,
            state.limits,
            state.now,
            by_requests=state.dry_run.depends_on_requests_only(),
        )
        found = reclaim(preemptor, queue)
        if not isinstance(found, GroupNomination):
            return found
        (node,) = found.nodes.values()
        return Nomination(node, found.victims, found.strict, found.reason, found.violations)

    def _find_candidates(
        self, state: PostFilterState, rows: IntArray, rejections: Counter[str]
    ) -> list[Candidate]:
        if not len(rows):
            return []
        groups = self._groups(state)
        if not groups and not state.cluster.pod_columns.has_below(state.pod.spec.priority):
            rejections[_NO_VICTIMS] += len(rows)
            return []
        needs = state.dry_run.resource_requests
        dry_runs = DryRuns(state, members_first=self._knows_groups)
        wholes = {n: partial(dry_runs.whole_group, g) for n, g in groups.items()}

        def potential_victims(needs: Mapping[str, int]) -> PotentialVictims:
            barred = _protected(state, groups)  # by slots, which dry runs change
            first = self._knows_groups
            return PotentialVictims(
                state.pod, needs, rows, state.cluster, barred, wholes, members_first=first
            )

        potential = potential_victims(needs or {})
        if needs is None:
            return self._dry_run(state, potential, potential_victims, rejections, dry_runs)
        if not potential.fits.any():
            _count_insufficient(potential, rejections)
            return []
        victims = potential.victims()
        ranked = potential.ranked(victims)
        is_exact = not (potential.has_groups or potential.may_match_budgets(state.cluster))
        if state.limits.max_victims or not is_exact:
            return self._by_requests(state, potential, ranked, rejections, dry_runs)
        most = self._wanted(len(rows)) if state.preempt_extenders else 1
        return [potential.candidate(position, victims) for position in ranked[:most].tolist()]

    def _groups(self, state: PostFilterState) -> dict[int, PodGroupState]:
        cluster = state.cluster
        if not self._knows_groups or not cluster.pod_groups.disrupted_whole:
            return {}
        priority = state.pod.spec.priority
        lower = (g for g in cluster.pod_groups.disrupted_whole if g.priority < priority)
        may_be = may_be_victims(lower, cluster, state.limits, state.now)
        return {group.number: group for group in may_be}

    def _wanted(self, nodes: int) -> int:
        # As calculateNumCandidates.
        return max(nodes * self._percentage // 100, self._absolute)

    def _enough(self, state: PostFilterState, candidates: list[Candidate], nodes: int) -> bool:
        # As DryRunPreemption in preemption.go.
        if len(candidates) < self._wanted(nodes):
            return False
        # While there are too few, none was looked at; then only the last one is new.
        new = candidates if len(candidates) == self._wanted(nodes) else candidates[-1:]
        return any(
            not candidate.violations and _exceeded_limit(state, candidate) is None
            for candidate in new
        )

    def _by_requests(
        self,
        state: PostFilterState,
        potential: PotentialVictims,
        ranked: IntArray,
        rejections: Counter[str],
        dry_runs: DryRuns,
    ) -> list[Candidate]:
        """Return the candidates for a pod that nodes reject only because of its requests."""
        candidates, looked = list[Candidate](), 0
        for position in _looked_at(ranked, potential.counts, state.seed):
            row, looked = int(potential.rows[position]), looked + 1
            victims, free = potential.victims_at(position), potential.free_on(row)
            found = dry_runs.candidate(row, victims, free)
            if isinstance(found, Candidate):
                candidates.append(found)
            else:
                rejections.update(found)
            if self._enough(state, candidates, len(potential.rows)):
                break
        allowed = _allowed(state, candidates, rejections)
        if not allowed and looked < len(ranked):
            rejections[_NOT_TRIED] += len(ranked) - looked
        return allowed

    def _dry_run(
        self,
        state: PostFilterState,
        potential: PotentialVictims,
        by_requests: Callable[[Mapping[str, int]], PotentialVictims],
        rejections: Counter[str],
        dry_runs: DryRuns,
    ) -> list[Candidate]:
        rejections[_NO_VICTIMS] += int((potential.counts == 0).sum())
        if not potential.counts.any():
            return []
        self._evaluations.pause("finding victims by dry runs")
        each = checks_of(state.pod)
        left = _MOST_CHECKS / each
        order, always = self._order(state, potential, by_requests, each)
        candidates = list[Candidate]()
        for number, position in enumerate(order.tolist()):
            if (left <= 0 and number >= always) or self._evaluations.is_exhausted:
                rejections[_NOT_TRIED] += len(order) - number
                break
            victims = _few_enough(potential.victims_at(position))
            try:
                found = dry_runs.candidate(int(potential.rows[position]), victims)
            except AttemptTooLongError:
                if not candidates:
                    raise
                rejections[_NOT_TRIED] += len(order) - number
                break
            checks = 1 + sum(len(pods_of(victim)) for victim in victims) / REMOVALS_PER_CHECK
            if isinstance(found, Candidate):
                candidates.append(found)
                checks += len(victims)
            else:
                rejections.update(found)
            left -= checks
            self._evaluations.spend(math.ceil(_UNITS_PER_CHECK * each * checks))
            if self._enough(state, candidates, len(potential.rows)):
                break
        return _allowed(state, candidates, rejections)

    def _order(
        self,
        state: PostFilterState,
        potential: PotentialVictims,
        by_requests: Callable[[Mapping[str, int]], PotentialVictims],
        each: float,
    ) -> tuple[IntArray, int]:
        """Return the positions in `potential.rows` in the order to try them, and a number n.

        The first n nodes are tried even if this takes too long.
        """
        left, most = _MOST_CHECKS / each, self._evaluations.left / _UNITS_PER_CHECK / each
        order = np.flatnonzero(potential.counts)
        best, always = np.zeros(0, np.int64), len(order)
        all_checks = len(order) + potential.counts.sum()
        may_have_more = len(order) > _COMPARED_ALWAYS and all_checks > left
        if may_have_more or all_checks > most:
            best, always = _cheapest(by_requests(state.pod.spec.demand.resources), left / 2)
            always = always if may_have_more else len(order)
            # The second half of the time begins at another node in each attempt.
            order = np.roll(order, -(state.seed % len(order)))
        order = order[np.argsort(~potential.fits[order], kind="stable")]
        return np.concatenate((best, order[~np.isin(order, best)])), always

    def _nomination(self, state: PostFilterState, candidates: Sequence[Candidate]) -> Nomination:
        best, message = select_candidate(candidates), ""
        node, victims = state.cluster.nodes.name(best.row), best.all_pods
        if self._says_placement:
            message = (
                f"preemption: found a potential placement for pod on node {node}, "
                f"preempting {len(victims)} victims"
            )
        return Nomination(node, victims, state.limits.strict, message, best.violations)

    def _of_processed(
        self, state: PostFilterState, processed: ProcessedCandidates
    ) -> Nomination | NotEligible:
        # See SelectCandidate.
        if processed.error is not None:
            return NotEligible(f"preemption: {processed.error}", is_error=True)
        cluster, resolvable = state.cluster, frozenset(state.diagnosis.resolvable_rows.tolist())
        candidates: list[Candidate] = []
        for left in processed.candidates:
            row = cluster.row(left.node)
            if row is None or row not in resolvable:
                continue
            there = cluster.disrupted_with(row)
            victims = [there[v.uid] for v in by_importance(left.victims) if v.uid in there]
            if len(victims) < len(left.victims):
                continue
            evicting = tuple(victim for victim in victims if cluster.evictions.evicting(victim))
            staying = tuple(victim for victim in victims if victim not in evicting)
            candidates.append(Candidate(row, staying, left.violations, evicting))
        allowed = _allowed(state, candidates, Counter())
        if not allowed:
            return NotEligible(f"preemption: {_NO_CANDIDATE}")
        return self._nomination(state, allowed)


def _few_enough(victims: list[Victim]) -> list[Victim]:
    """Return all single pods, and the smallest groups that one dry run can still remove."""
    left = _MOST_IN_DRY_RUN - sum(not isinstance(victim, WholeGroup) for victim in victims)
    chosen = list[Victim]()
    for victim in sorted(victims, key=lambda victim: len(pods_of(victim))):
        if isinstance(victim, WholeGroup):
            left -= len(victim.pods)
            if left < 0:
                break
        chosen.append(victim)
    return chosen


def _cheapest(potential: PotentialVictims, checks: float) -> tuple[IntArray, int]:
    """Return positions in `potential.rows`, the cheapest first, and how many to try in any case."""
    ranked = potential.ranked(potential.victims())
    if len(ranked) <= _COMPARED_ALWAYS:
        return ranked, len(ranked)
    most = int(np.searchsorted(np.cumsum(1 + potential.counts[ranked]), checks))
    return ranked[:most], 0


def _looked_at(ranked: IntArray, counts: IntArray, seed: int) -> Iterator[int]:
    """Yield the nodes of `ranked` to try: all nodes, or some if they have too many victims."""
    looked, half = np.cumsum(counts[ranked]), _MOST_LOOKED_AT // 2
    if len(ranked) <= _COMPARED_ALWAYS or looked[-1] <= _MOST_LOOKED_AT:
        yield from ranked.tolist()
        return
    # Half of the comparisons are for the best nodes. The others begin at another node in each
    # attempt.
    best = max(int(np.searchsorted(looked, half, "right")), 1)
    others = np.roll(ranked[best:], -(seed % max(len(ranked) - best, 1)))
    yield from ranked[:best].tolist()
    yield from others[: np.searchsorted(np.cumsum(counts[others]), half, "right")].tolist()


def _for_extenders(state: PostFilterState, candidate: Candidate) -> PreemptionCandidate:
    node = state.cluster.nodes.name(candidate.row)
    return PreemptionCandidate(node, candidate.all_pods, candidate.violations)


def _with_victims(state: PostFilterState, rows: IntArray, rejections: Counter[str]) -> list[int]:
    # Only extenders reject these nodes. They may name pods of lower priority as victims.
    found: list[int] = []
    for row in rows.tolist():
        pods = (placed.pod for placed in state.cluster.pods_on(row))
        if any(pod.spec.priority < state.pod.spec.priority for pod in pods):
            found.append(row)
        else:
            rejections[_NO_VICTIMS] += 1
    return found


def _expected_victims(state: PostFilterState, rows: list[int]) -> str:
    names = sorted(map(state.cluster.nodes.name, rows))
    texts = [f'expected at least one victim pod on node "{node}"' for node in names]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _not_eligible_to_preempt_others(state: PostFilterState) -> str | None:
    # See PodEligibleToPreemptOthers.
    pod, cluster = state.pod, state.cluster
    if not pod.spec.preempts:
        return "not eligible due to preemptionPolicy=Never."
    nominee, diagnosis = cluster.nominations.get(pod.uid), state.diagnosis
    delay = state.limits.delay_seconds
    if state.unschedulable_seconds < delay and not (nominee and nominee.has_preempted):
        return DELAYED.format(delay)
    # A rejection at PreFilter makes every node unresolvable.
    is_unresolvable = diagnosis.pre_filter is not None
    if nominee is None or is_unresolvable or nominee.row in diagnosis.unresolvable_rows:
        return None
    if cluster.evictions.awaits_victims(pod):
        return _TERMINATING
    there = (placed.pod for placed in cluster.pods_on(nominee.row))
    if any(leaves_for(victim, pod.spec.priority, state.limits) for victim in there):
        return _TERMINATING
    return None


def _protected(
    state: PostFilterState, groups: Mapping[int, PodGroupState]
) -> npt.NDArray[np.bool_]:
    cluster = state.cluster
    whole = {group.number for group in cluster.pod_groups.disrupted_whole} - groups.keys()
    barred = protected(cluster, state.limits, state.now)
    return barred | cluster.pod_columns.in_groups(whole) if whole else barred


def _allowed(
    state: PostFilterState, candidates: list[Candidate], rejections: Counter[str]
) -> list[Candidate]:
    allowed = list[Candidate]()
    for candidate in candidates:
        exceeded = _exceeded_limit(state, candidate)
        if exceeded is None:
            allowed.append(candidate)
        else:
            rejections[exceeded] += 1
    return allowed


def _exceeded_limit(state: PostFilterState, candidate: Candidate) -> str | None:
    limits = state.limits
    if limits.strict and candidate.violations:
        return "node(s) need a disruption that a PodDisruptionBudget does not allow"
    if limits.max_victims is not None and len(candidate.pods) > limits.max_victims:
        return f"node(s) need more than {limits.max_victims} victims"
    return None


def _count_insufficient(potential: PotentialVictims, rejections: Counter[str]) -> None:
    has_victims = potential.counts > 0
    rejections[_NO_VICTIMS] += int((~has_victims).sum())
    for reason, where in potential.insufficient():
        rejections[reason] += int((where & has_victims).sum())
