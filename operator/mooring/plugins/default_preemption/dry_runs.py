"""Finds the victims on one node, either by running the filters or by comparing requests only."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mooring.framework.post_filter import PostFilterState
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.pausing import pause
from mooring.plugins.default_preemption.candidates import Candidate, select_victims
from mooring.plugins.default_preemption.potential_victims import FreeResources
from mooring.plugins.default_preemption.victims import (
    Victim,
    WholeGroup,
    pods_of,
    pods_on,
    with_rows,
)

_TERMS_PER_CHECK: Final = 6
"""The number of inter-pod terms or spread constraints that take as long as all other filters."""
_VOLUMES_PER_CHECK: Final = 8
_PORTS_PER_CHECK: Final = 32
_RESOURCES_PER_CHECK: Final = 8
_REQUIREMENTS_PER_CHECK: Final = 64
REMOVALS_PER_CHECK: Final = 8
"""The number of victims that can be removed and put back in the time of one run of the filters."""


def checks_of(pod: Pod) -> float:
    """Estimate the time of the pod's filters on one node; 1.0 is the time of an ordinary pod."""
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
    """Finds a node's victims by trials; for `members_first` see `victims.by_importance`."""

    def __init__(self, state: PostFilterState, *, members_first: bool = False) -> None:
        self._state = state
        self._members_first = members_first
        self._groups: dict[int, WholeGroup] = {}
        self._budgets: dict[WholeGroup, Sequence[tuple[Sequence[PodDisruptionBudget], int]]] = {}

    def whole_group(self, group: PodGroupState) -> WholeGroup:
        """Return the group as a single victim; compute it at the first call only."""
        known = self._groups.get(group.number)
        if known is None:
            known = self._groups[group.number] = WholeGroup(group, self._state.cluster)
            pause()
        return known

    def candidate(
        self, row: int, potential: Sequence[Victim], free: FreeResources | None = None
    ) -> Candidate | tuple[str, ...]:
        """Return the candidate for this row, or why the pod does not fit even without `potential`.

        Give `free` if only requests can reject the pod: the node's free resources with the pod and
        without `potential`.
        """
        pause()
        if free is not None:
            return self._select(row, potential, lambda each: free.reprieve(*pods_on(each, row)))
        with self._state.dry_run.trial() as trial:
            for victim in potential:
                for pod in pods_of(victim):
                    trial.remove(pod.uid)
            if rejection := self._check(row):
                return rejection

            def reprieve(victim: Victim) -> bool:
                for pod, at in with_rows(victim, row):
                    trial.add(pod, at)
                if not self._check(row):
                    return True
                for pod in pods_of(victim):
                    trial.remove(pod.uid)
                return False

            return self._select(row, potential, reprieve)

    def _check(self, row: int) -> tuple[str, ...]:
        pause()
        return self._state.dry_run.rejection(row)

    def _select(
        self, row: int, potential: Sequence[Victim], reprieve: Callable[[Victim], bool]
    ) -> Candidate:
        return select_victims(
            row,
            potential,
            reprieve,
            self._state.cluster.evictions,
            self._budgets_of,
            members_first=self._members_first,
            strict=self._state.limits.strict,
        )

    def _budgets_of(self, victim: Victim) -> Iterable[tuple[Sequence[PodDisruptionBudget], int]]:
        evictions, strict = self._state.cluster.evictions, self._state.limits.strict
        if not isinstance(victim, WholeGroup):
            return ((evictions.matching_budgets(victim, by_eviction_api=strict), 1),)
        found = self._budgets.get(victim)
        if found is None:
            found = evictions.budgets_of_many(victim.pods, by_eviction_api=strict)
            self._budgets[victim] = found
        return found
