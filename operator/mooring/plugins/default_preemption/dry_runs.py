"""Victims on single nodes, by the filters or by requests alone, in as many steps as that takes.

To check 100 nodes with 30 potential victims each takes 0.3 s, in which nothing else could run. By
requests alone, against disruption budgets, it takes as long if they have 300 victims each. So the
search pauses, and the cluster may change. What has been found out about a node is kept, and holds
while its pods are the same; the node that is chosen in the end is checked once more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.framework.post_filter import PostFilterState
from mooring.model.pod import Pod, Uid
from mooring.model.workloads import PodDisruptionBudget
from mooring.plugins.default_preemption.candidates import BudgetsOf, Candidate, select_victims
from mooring.plugins.default_preemption.potential_victims import FreeResources
from mooring.plugins.default_preemption.victims import (
    Victim,
    WholeGroup,
    key_of,
    pods_of,
    pods_on,
    with_rows,
)
from mooring.state.evictions import Evictions
from mooring.state.pod_groups import PodGroupState

__all__ = ["REMOVALS_PER_CHECK", "DryRuns", "StepEnds", "checks_of"]

_TERMS_PER_CHECK: Final = 6
"""So many inter-pod terms and topology spread constraints of the pod take as long as a check."""
_VOLUMES_PER_CHECK: Final = 8
_PORTS_PER_CHECK: Final = 32
_RESOURCES_PER_CHECK: Final = 8
_REQUIREMENTS_PER_CHECK: Final = 64
REMOVALS_PER_CHECK: Final = 8
"""So many potential victims are removed from a node, and put back, in the time of a check."""
_REPRIEVES_PER_CHECK: Final = 16
"""Where requests alone decide, so many potential victims are looked at in the time of a check."""
_MATCHES_PER_CHECK: Final = 100
"""So many disruption budgets are, too, each for every potential victim that it is for."""
_MEMBERS_PER_CHECK: Final = 25
"""So many members of a group are looked at in the time of a check."""
_CHECKS_PER_STEP: Final = 200
"""Checks of the pod on a node in one step; each takes about 0.1 ms."""
_LEAST_PER_STEP: Final = 25
"""So many checks are made in any step, however many pods must be removed before."""
_MOST_TIMES: Final = 3
"""A node whose pods change so often during one search is left out."""
_CHANGES: Final = "node(s) changed again and again while they were tried"


class StepEnds(Exception):  # noqa: N818 - it is no error
    """The search goes on in another step."""


@dataclass(slots=True, eq=False)
class _OnNode:
    """What is known of one node: what was there, and how each check of it ended, in their order.

    `was_there` has the node, its pods and those nominated to it by their ids. The first check is
    without all potential victims; each other one decides about the pod of that uid, or the group of
    that number. `found` is the result: a candidate, or why the node is none. `verified_in` is the
    step in which that was found, or checked once more. `by_requests` says that nothing had to be
    checked.
    """

    was_there: dict[int, object]
    potential: tuple[Victim, ...]
    by_requests: bool
    rejection: tuple[str, ...] | None = None
    reprieves: list[tuple[Uid | int, bool]] = field(default_factory=list)
    found: Candidate | tuple[str, ...] | None = None
    verified_in: int = 0

    def is_like(self, other: "_OnNode") -> bool:
        """Return whether the same objects are there."""
        return (
            self.by_requests == other.by_requests
            and self.was_there.keys() == other.was_there.keys()
            and {*map(id, self.potential)} == {*map(id, other.potential)}
        )


def checks_of(pod: Pod) -> float:
    """Return how many checks of an ordinary pod take as long as one of this pod.

    The few volumes, ports, resources and requirements of an ordinary pod count nothing.
    """
    spec = pod.spec
    required = spec.required_nodes.terms if spec.required_nodes is not None else ()
    requirements = sum(len(term.expressions) + len(term.fields) for term in required)
    return (
        1
        + (spec.affinity.term_count + len(spec.spread)) / _TERMS_PER_CHECK
        + len(pod.volumes) // _VOLUMES_PER_CHECK
        + len(spec.host_ports) // _PORTS_PER_CHECK
        + len(spec.demand.resources) // _RESOURCES_PER_CHECK
        + requirements // _REQUIREMENTS_PER_CHECK
    )


class DryRuns:
    """The dry runs of one attempt about a pod, in one step or more.

    For `members_first` see `by_importance`.
    """

    def __init__(self, pod: Pod, *, members_first: bool = False) -> None:
        self._members_first = members_first
        self._cost = checks_of(pod)
        self._nodes: dict[str, _OnNode] = {}
        self._groups: dict[int, WholeGroup] = {}
        self._budgets: dict[WholeGroup, Sequence[tuple[Sequence[PodDisruptionBudget], int]]] = {}
        self._times: Counter[str] = Counter()
        self._step = 0
        self._spent, self._checked = 0.0, 0.0

    def begin_step(self) -> None:
        """Begin the next step."""
        self._step += 1
        self._spent, self._checked = 0.0, 0.0
        self._budgets = {}

    def whole_group(self, group: PodGroupState, state: PostFilterState) -> WholeGroup:
        """Return the group as a victim: what an earlier step had, if nothing of it has changed."""
        known = self._groups.get(group.number)
        if known is None or not known.is_current(state.cluster):
            known = self._groups[group.number] = WholeGroup(group, state.cluster)
            self._spend(len(known.pods) / _MEMBERS_PER_CHECK)
        return known

    def _spend(self, checks: float) -> None:
        """Count what took as long as so many checks, and will not be done again."""
        self._spent += checks
        self._checked += checks

    def candidate(
        self,
        state: PostFilterState,
        row: int,
        potential: Sequence[Victim],
        free: FreeResources | None = None,
    ) -> Candidate | tuple[str, ...]:
        """Return the candidate of the row without some of these victims, or why there is none.

        Where only requests reject the pod, and not without all of these victims, `free` is what is
        free there then, beside the pod.

        Raises:
            StepEnds: before that is known; what was found out is kept.
        """
        name = state.cluster.nodes.name(row)
        known, now = self._nodes.get(name), _there(state, row, potential, free)
        if known is None or not known.is_like(now):
            self._times[name] += 1
            known = self._nodes[name] = now
        if self._times[name] > _MOST_TIMES:
            return (_CHANGES,)
        if known.found is None:
            if free is None:
                known.found = self._try(state, row, known)
            else:
                known.found = self._by_requests(state, row, known, free)
            known.verified_in = self._step
        return known.found

    def still_holds(
        self, state: PostFilterState, found: Candidate, free: FreeResources | None = None
    ) -> bool:
        """Return whether the candidate holds now; if not, its node is to be tried anew.

        Disruption budgets and pods on other nodes may have changed since it was found.

        Raises:
            StepEnds: before that is known.
        """
        name = state.cluster.nodes.name(found.row)
        known = self._nodes[name]
        if known.verified_in == self._step:
            return True
        if free is None:
            holds = self._is_found_again(state, found, known)
        else:
            again = self._by_requests(state, found.row, known, free)
            holds = again.violations == found.violations and again.victims == found.victims
        if holds:
            known.verified_in = self._step
        else:
            del self._nodes[name]
        return holds

    def _is_found_again(self, state: PostFilterState, found: Candidate, known: _OnNode) -> bool:
        """Return whether the victims are the same, and the pod fits without them."""
        order, answers = list[Uid | int](), dict(known.reprieves)

        def reprieve(victim: Victim) -> bool:
            key = key_of(victim)
            order.append(key)
            return answers.get(key, False)

        again = self._select(state, found.row, known, reprieve)
        if order != [*answers] or again.violations != found.violations:
            return False
        with state.dry_run.trial() as trial:
            for pod in again.all_pods:
                trial.remove(pod.uid)
            return not self._check(state, found.row)

    def _try(self, state: PostFilterState, row: int, known: _OnNode) -> Candidate | tuple[str, ...]:
        """Find the candidate of the row; what an earlier step has checked is not checked again."""
        decided, known.reprieves = iter(known.reprieves), []
        with state.dry_run.trial() as trial:
            pods = [pod for victim in known.potential for pod in pods_of(victim)]
            for pod in pods:
                trial.remove(pod.uid)
            self._spent += len(pods) / REMOVALS_PER_CHECK
            if known.rejection is None:
                known.rejection = self._check(state, row)
            if known.rejection:
                return known.rejection

            def reprieve(victim: Victim) -> bool:
                nonlocal decided
                key, reprieved = next(decided, (None, False))
                was_checked = key == key_of(victim)
                if not was_checked:  # or in another order
                    decided = iter(())
                if not was_checked or reprieved:
                    for pod, at in with_rows(victim, row):
                        trial.add(pod, at)
                if not was_checked:
                    reprieved = not self._check(state, row)
                    for pod in () if reprieved else pods_of(victim):
                        trial.remove(pod.uid)
                known.reprieves.append((key_of(victim), reprieved))
                return reprieved

            return self._select(state, row, known, reprieve)

    def _by_requests(
        self, state: PostFilterState, row: int, known: _OnNode, free: FreeResources
    ) -> Candidate:
        """Find the candidate of the row where only requests reject the pod."""
        self._end_step_if_over(state)
        found = self._select(state, row, known, lambda victim: free.reprieve(*pods_on(victim, row)))
        checks = len(known.potential) / _REPRIEVES_PER_CHECK + found.matches / _MATCHES_PER_CHECK
        self._spend(checks)
        return found

    def _select(
        self,
        state: PostFilterState,
        row: int,
        known: _OnNode,
        reprieve: Callable[[Victim], bool],
    ) -> Candidate:
        """Return the candidate of the row, see `select_victims`."""
        evictions, strict = state.cluster.evictions, state.limits.strict
        return select_victims(
            row,
            known.potential,
            reprieve,
            evictions,
            self._budgets_of(evictions, strict=strict),
            members_first=self._members_first,
            strict=strict,
        )

    def _budgets_of(self, evictions: Evictions, *, strict: bool) -> BudgetsOf[Victim]:
        """Return what looks up the budgets of victims; those of a group once in a step."""

        def budgets_of(victim: Victim) -> Iterable[tuple[Sequence[PodDisruptionBudget], int]]:
            if not isinstance(victim, WholeGroup):
                return ((evictions.matching_budgets(victim, by_eviction_api=strict), 1),)
            found = self._budgets.get(victim)
            if found is None:
                found = evictions.budgets_of_many(victim.pods, by_eviction_api=strict)
                self._budgets[victim] = found
                self._spent += len(victim.pods) / _MEMBERS_PER_CHECK
            return found

        return budgets_of

    def _check(self, state: PostFilterState, row: int) -> tuple[str, ...]:
        """Return why the row rejects the pod now; () if it does not."""
        self._end_step_if_over(state)
        self._spend(self._cost)
        return state.dry_run.rejection(row)

    def _end_step_if_over(self, state: PostFilterState) -> None:
        is_over = self._spent >= _CHECKS_PER_STEP and self._checked >= _LEAST_PER_STEP
        if state.may_pause and is_over:
            raise StepEnds


def _there(
    state: PostFilterState, row: int, potential: Sequence[Victim], free: FreeResources | None
) -> _OnNode:
    cluster = state.cluster
    pods = [placed.pod for placed in cluster.pods_on(row)]
    there = (cluster.node(row), *pods, *cluster.nominations.on(row))
    return _OnNode({id(each): each for each in there}, tuple(potential), free is not None)
