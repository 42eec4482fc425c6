"""Finds which units must leave so that a pod or a whole pod group fits, on all nodes.

A unit is one pod, or the pods of a group that are evicted together. All given units count as gone
at first; then they are added back, the most important first, while the preemptor still fits. The
others are the victims (preemption/podgrouppreemption.go).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from mooring.framework.post_filter import GroupNomination, GroupPreemption
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid
from mooring.plugins.default_preemption.candidates import split_by_budgets
from mooring.plugins.default_preemption.victims import started
from mooring.policy.profile import Preemption
from mooring.state.cluster_view import ClusterView

MOST_UNITS: Final = 2_000
"""The least important potential victims that one preemption looks at."""
_NO_VICTIMS: Final = "preemption: No preemption victims found for incoming {}."
_NOT_HELPFUL: Final = "preemption: the {} does not fit without the pods {} either."
_MOST_SEARCHES: Final = 256
"""Searches for nodes for the group in one preemption; then no more pods are reprieved."""


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """The pod or pod group (`what`) that needs nodes.

    `place` and `is_last` are those of `PodGroupPostFilterState`. `tree` has the numbers of all
    queues of its tree; it is empty for one in no queue.
    """

    what: Literal["pod", "pod group"]
    pods: Sequence[Pod]
    priority: int
    cluster: ClusterView
    place: Callable[[Collection[Pod]], Mapping[Uid, int] | None]
    is_last: Callable[[], bool]
    limits: Preemption
    now: float
    tree: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods, with their rows, that are evicted together: one, or those of a group.

    `surplus` says that the pod's group keeps its minimum without it, `borrows` that its queue uses
    what belongs to the preemptor's.
    """

    pods: tuple[tuple[Pod, int], ...]
    priority: int
    is_group: bool = False
    surplus: bool = False
    borrows: bool = False


def importance(unit: Unit) -> tuple[bool, int, bool, bool, int, float]:
    """Return a sort key: the most important unit comes first (moreImportantVictim).

    Units that borrow are the least important, then those of low priority, then the surplus.
    """
    size = len(unit.pods) if unit.is_group else 0
    earliest = min(started(pod) for pod, _ in unit.pods)
    return (unit.borrows, -unit.priority, not unit.is_group, unit.surplus, -size, earliest)


def without_units(preemptor: Preemptor, units: Sequence[Unit]) -> GroupPreemption:
    """Return the victims among the units, the most important first, or why there are none."""
    cluster, limits = preemptor.cluster, preemptor.limits
    evictions, strict = cluster.evictions, limits.strict
    split = split_by_budgets(
        units,
        lambda unit: evictions.budgets_of_many(
            (pod for pod, _ in unit.pods), by_eviction_api=strict
        ),
        evictions,
        strict=strict,
    )
    violating, others = [] if strict else [*split.violating], split.others
    if not violating and not others:
        return Unschedulable(_NO_VICTIMS.format(preemptor.what), resolvable=True)
    reprieve = _Reprieve(preemptor, [*violating, *others])
    if not reprieve.fits():
        return not_helpful(preemptor)
    chosen = reprieve.victims(violating)
    chosen += reprieve.victims(others)
    if reprieve.ended_early:
        chosen = reprieve.on_the_nodes(chosen)
    rows = reprieve.rows
    victims = [pod for unit in chosen for pod, _ in unit.pods]
    if limits.max_victims is not None and len(victims) > limits.max_victims:
        name = preemptor.what.removeprefix("pod ")
        text = f"preemption: the {name} needs more than {limits.max_victims} victims."
        return Unschedulable(text, resolvable=True)
    names, known = cluster.node_names, {victim.uid for victim in victims}
    freeing = (pod for pod, row in leaving(preemptor) if row in set(rows.values()))
    nodes = {uid: names[row] for uid, row in rows.items()}
    also = (pod for pod in freeing if pod.uid not in known)
    violations = sum(split.violating.get(unit, 0) for unit in chosen)
    groups = sum(unit.is_group for unit in chosen)
    disruptions = len(chosen) - groups, groups
    return GroupNomination(nodes, (*victims, *also), strict, violations, disruptions)


def not_helpful(preemptor: Preemptor) -> Unschedulable:
    """Return that the preemptor does not fit without all potential victims either."""
    name = preemptor.what.removeprefix("pod ")
    whose = "that its queue may preempt" if preemptor.tree else "of lower priority"
    return Unschedulable(_NOT_HELPFUL.format(name, whose), resolvable=True)


def leaving(preemptor: Preemptor) -> Iterator[tuple[Pod, int]]:
    """Yield the pods that leave without further victims, with their rows.

    This scheduler is evicting those of lower priority. Of the preemptor's tree of queues, all that
    terminate count too, because they free quota.
    """
    columns = preemptor.cluster.pod_columns
    chosen = columns.evicting & (columns.priority < preemptor.priority)
    if preemptor.tree:
        chosen |= columns.leaving & np.isin(columns.queues, [*preemptor.tree])
    chosen &= (columns.rows >= 0) & ~columns.nominated
    for slot in np.flatnonzero(chosen).tolist():
        pod = columns.pods[slot]
        if pod is not None:
            yield pod, int(columns.rows[slot])


class _Reprieve:
    """Lets units stay while the preemptor fits, and counts the searches.

    All `units` count as gone at first. `rows` has the row of each member by uid, with all units
    that stay. `ended_early` says that not all units were tried.
    """

    def __init__(self, preemptor: Preemptor, units: Sequence[Unit]) -> None:
        self.rows: Mapping[Uid, int] = {}
        self.ended_early = False
        self._preemptor = preemptor
        self._gone = dict.fromkeys(units)
        self._searches = 0

    def fits(self) -> bool:
        """Return whether the preemptor fits now, with the units that stay."""
        self._searches += 1
        gone = [pod for pod, _ in leaving(self._preemptor)]
        gone += (pod for unit in self._gone for pod, _ in unit.pods)
        rows = self._preemptor.place(gone)
        if rows is not None:
            self.rows = rows
        return rows is not None

    def victims(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units that cannot stay when they are added one after the other.

        Halves are added as a whole first: if a half can stay, each of its units can.
        """
        if not units:
            return []
        if self._searches >= _MOST_SEARCHES or self._preemptor.is_last():
            self.ended_early = True
            return list(units)
        if self._can_stay(units):
            return []
        if len(units) == 1:
            return list(units)
        half = len(units) // 2
        first = self.victims(units[:half])
        return first + self.victims(units[half:])

    def on_the_nodes(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the victims on the preemptor's nodes if the others can stay, else all."""
        rows = set(self.rows.values())
        needed = [unit for unit in units if any(row in rows for _, row in unit.pods)]
        others = [unit for unit in units if not any(row in rows for _, row in unit.pods)]
        return needed if self._can_stay(others) else list(units)

    def _can_stay(self, units: Sequence[Unit]) -> bool:
        """Return whether the preemptor fits with these units too; then they stay."""
        for unit in units:
            del self._gone[unit]
        if self.fits():
            return True
        self._gone |= dict.fromkeys(units)
        return False
