"""Finds which units must leave so that a pod or a whole pod group fits, on all nodes.

A unit is one pod, or the pods of a group that are evicted together. At first all units count as
removed. Then they are added back, the most important first, while the preemptor still fits. The
units that cannot be added back are the victims (preemption/podgrouppreemption.go).
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
"""One preemption examines at most this number of potential victims, the least important ones."""
_NO_VICTIMS: Final = "preemption: No preemption victims found for incoming {}."
_NOT_HELPFUL: Final = "preemption: the {} does not fit without the pods {} either."
_MOST_SEARCHES: Final = 256
"""The most searches for nodes in one preemption; after them, all remaining units are victims."""


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """The pod or pod group (`what`) that needs nodes.

    For `place` and `is_last` see `PodGroupPostFilterState`. `tree` has the numbers of all Queues in
    the tree of the preemptor's Queue; it is empty if the preemptor is in no Queue.
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
    """One pod, or several pods of a group that are evicted together; each pod with its node's row.

    `surplus` is True if the pod's group keeps its minimum without the pod, `borrows` if the pods
    use quota that belongs to the preemptor's Queue.
    """

    pods: tuple[tuple[Pod, int], ...]
    priority: int
    is_group: bool = False
    surplus: bool = False
    borrows: bool = False


def importance(unit: Unit) -> tuple[bool, int, bool, bool, int, float]:
    """Return a sort key by which the most important unit comes first (moreImportantVictim).

    Units that use borrowed quota are the least important, then units of low priority, then surplus
    pods.
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
    there = set(rows.values())
    freeing = (pod for pod, row in reprieve.leaving.items() if row in there)
    nodes = {uid: names[row] for uid, row in rows.items()}
    also = (pod for pod in freeing if pod.uid not in known)
    violations = sum(split.violating.get(unit, 0) for unit in chosen)
    groups = sum(unit.is_group for unit in chosen)
    disruptions = len(chosen) - groups, groups
    return GroupNomination(nodes, (*victims, *also), strict, violations, disruptions)


def not_helpful(preemptor: Preemptor) -> Unschedulable:
    """Return the reason that the preemptor would not fit even without all potential victims."""
    name = preemptor.what.removeprefix("pod ")
    whose = "that its queue may preempt" if preemptor.tree else "of lower priority"
    return Unschedulable(_NOT_HELPFUL.format(name, whose), resolvable=True)


def leaving(preemptor: Preemptor) -> Iterator[tuple[Pod, int]]:
    """Yield the pods that are already leaving, each with its node's row.

    These are pods of lower priority that this scheduler is evicting, and all terminating pods in
    the preemptor's tree of Queues, because their end frees quota.
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
    """Adds units back while the preemptor fits, and counts the searches for nodes.

    At first all `units` count as removed. `rows` has, by uid of the preemptor's pods, the node's
    row in the last search that found nodes. `ended_early` is True if not all units were tried.
    `leaving` has the pods that leave without being victims, with their nodes' rows.
    """

    def __init__(self, preemptor: Preemptor, units: Sequence[Unit]) -> None:
        self.rows: Mapping[Uid, int] = {}
        self.ended_early = False
        self.leaving: Mapping[Pod, int] = dict(leaving(preemptor))
        self._preemptor = preemptor
        self._gone = dict.fromkeys(units)
        self._searches = 0

    def fits(self) -> bool:
        """Return whether the preemptor fits beside the units that were added back."""
        self._searches += 1
        gone = [*self.leaving, *(pod for unit in self._gone for pod, _ in unit.pods)]
        rows = self._preemptor.place(gone)
        if rows is not None:
            self.rows = rows
        return rows is not None

    def victims(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the subset of `units` that must be evicted for the preemptor.

        Half of the units are tried together: if the half can stay, each unit in it can stay.
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
        """Return only the victims on the preemptor's nodes if that is enough; else all victims."""
        rows = set(self.rows.values())
        needed = [unit for unit in units if any(row in rows for _, row in unit.pods)]
        others = [unit for unit in units if not any(row in rows for _, row in unit.pods)]
        return needed if self._can_stay(others) else list(units)

    def _can_stay(self, units: Sequence[Unit]) -> bool:
        """Add the units back if the preemptor fits beside them; return whether it does."""
        for unit in units:
            del self._gone[unit]
        if self.fits():
            return True
        self._gone |= dict.fromkeys(units)
        return False
