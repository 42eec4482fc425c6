"""Finds the units that must leave, on any nodes, so that a pod or a whole pod group fits.

A unit is one pod, or the pods of a group that are evicted together. kube-scheduler finds the same
victims (preemption/podgrouppreemption.go): in its copy of the cluster, it removes all units, and
then adds back each unit with which the preemptor still fits, the most important unit first. This
module needs fewer trial removals, because each of them takes long.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, Literal

import numpy as np

from mooring.framework.post_filter import GroupNomination, GroupPreemption
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid
from mooring.plugins.default_preemption.candidates import split_by_budgets
from mooring.plugins.default_preemption.victims import started
from mooring.policy.profile import Preemption
from mooring.quota.usage import used_at
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

MOST_UNITS: Final = 2_000
"""The most potential victims that one preemption examines: the least important ones."""
_NO_VICTIMS: Final = "preemption: No preemption victims found for incoming {}."
_NOT_HELPFUL: Final = "preemption: the {} does not fit without the pods {} either."
_GROWTH: Final = 4
"""Each try removes this many times as many units as the try before it."""
_MOST_SEARCHES: Final = 256
"""The most searches for nodes in one preemption; after them, all remaining units are victims."""


_Place = Callable[[Collection[Pod]], Mapping[Uid, int] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """The pod or pod group that needs nodes.

    `tree` has the numbers of all Queues in the tree of its Queue. For `place`, `is_last` and
    `place_by_requests` see `PodGroupPostFilterState`, for `leaving` see `with_leaving`.
    """

    what: Literal["pod", "pod group"]
    pods: Sequence[Pod]
    priority: int
    cluster: ClusterView
    place: _Place
    is_last: Callable[[], bool]
    limits: Preemption
    now: float
    tree: frozenset[int] = frozenset()
    leaving: Mapping[Pod, int] = field(default_factory=dict)
    by_requests: bool = False
    place_by_requests: _Place | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One pod, or pods of a group that are evicted together; each pod with its node's row.

    `surplus`: the group keeps its minimum without the pod. `borrows`: the unit uses borrowed
    quota, which the preemptor's Queue may reclaim.
    """

    pods: tuple[tuple[Pod, int], ...]
    priority: int
    is_group: bool = False
    surplus: bool = False
    borrows: bool = False


def importance(unit: Unit) -> tuple[bool, int, bool, bool, int, float]:
    """Return a sort key by which the most important unit comes first (moreImportantVictim).

    Units that use borrowed quota are less important than all other units.
    """
    size = len(unit.pods) if unit.is_group else 0
    earliest = min(started(pod) for pod, _ in unit.pods)
    return (unit.borrows, -unit.priority, not unit.is_group, unit.surplus, -size, earliest)


def without_units(preemptor: Preemptor, units: Sequence[Unit]) -> GroupPreemption:
    """Return the victims among the units, or why there are none.

    `units` must be sorted by `importance`.
    """
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
    reprieve, chosen = _Reprieve(preemptor, [*violating, *others]), None
    if preemptor.tree or preemptor.what == "pod" or reprieve.fits_without_all():
        chosen = reprieve.victims()  # `reclaim` has made the first search for a group
    if chosen is None:
        return not_helpful(preemptor)
    rows = reprieve.rows
    victims = [pod for unit in chosen for pod, _ in unit.pods]
    if limits.max_victims is not None and len(victims) > limits.max_victims:
        name = preemptor.what.removeprefix("pod ")
        text = f"preemption: the {name} needs more than {limits.max_victims} victims."
        return Unschedulable(text, resolvable=True)
    names, known = cluster.node_names, {victim.uid for victim in victims}
    there = set(rows.values())
    freeing = (pod for pod, row in preemptor.leaving.items() if row in there)
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


def with_leaving(preemptor: Preemptor) -> Preemptor:
    """Return the preemptor with the pods that are already leaving; searches remove these, too."""
    cluster, columns = preemptor.cluster, preemptor.cluster.pod_columns
    chosen = columns.evicting & (columns.priority < preemptor.priority)
    # The end of any leaving pod in the tree of Queues frees quota.
    if preemptor.tree:
        chosen |= columns.leaving & np.isin(columns.queues, [*preemptor.tree])
    slots = np.flatnonzero(chosen & (columns.rows >= 0) & ~columns.nominated)
    at = columns.rows[slots].tolist()
    pods = zip((columns.pods[slot] for slot in slots.tolist()), at, strict=True)
    leaving = {pod: row for pod, row in pods if pod is not None}
    always, beside_victims = list[Pod](), defaultdict[int, list[Pod]](list)
    fits = [True] * len(cluster.nodes)
    # To save time, pods whose end makes no room are removed only from nodes with a victim.
    if preemptor.by_requests and len(slots):
        fits = _fits_only_after(preemptor.pods[0], slots, cluster).tolist()
    for pod, row in leaving.items():
        (always if fits[row] else beside_victims[row]).append(pod)
    elsewhere = [*chain.from_iterable(beside_victims.values())]
    quota = used_at(columns.slots_of(elsewhere), cluster) if elsewhere else {}

    def place(search: _Place, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        if not elsewhere:
            return search([*always, *without])
        rows = {placed.row for pod in without if (placed := cluster.pod(pod.uid)) is not None}
        also = [pod for row in rows for pod in beside_victims.get(row, ())]
        removed = used_at(columns.slots_of(also), cluster)
        with cluster.queues.without(quota), cluster.queues.with_more(removed):
            return search([*always, *also, *without])

    by_requests = preemptor.place_by_requests
    return replace(
        preemptor,
        leaving=leaving,
        place=partial(place, preemptor.place),
        place_by_requests=partial(place, by_requests) if by_requests is not None else None,
    )


def _fits_only_after(pod: Pod, slots: IntArray, cluster: ClusterView) -> BoolArray:
    """Return, for each node, whether the pod's requests fit only without the pods in `slots`."""
    columns, nodes, demand = cluster.pod_columns, cluster.nodes, pod.spec.demand.resources
    at, number = columns.rows[slots], len(cluster.nodes)
    nominated, amounts = columns.nominated_demand(demand, pod.spec.priority, pod.uid, number)
    places = nodes.pod_slots - nodes.pod_count - nominated
    before, after = places > 0, places + np.bincount(at, minlength=number) > 0
    for resource, amount in demand.items():
        free = nodes.allocatable(resource) - nodes.requested(resource) - amounts[resource]
        before &= free >= amount
        np.add.at(free, at, columns.requests(resource)[slots])
        after &= free >= amount
    return np.asarray(after & ~before)


class _Reprieve:
    """Finds the units that must leave, and counts the searches for nodes."""

    def __init__(self, preemptor: Preemptor, units: Sequence[Unit]) -> None:
        # The nodes' rows by pod uid, of the last successful search.
        self.rows: Mapping[Uid, int] = {}
        self._preemptor = preemptor
        self._place = preemptor.place
        self._units = units
        self._gone = dict[Unit, None]()
        self._ended_early = False
        self._searches = 0

    def victims(self) -> list[Unit] | None:
        """Return the units that must be evicted; None if evicting all units is not enough."""
        if (by_requests := self._preemptor.place_by_requests) is not None:
            self._place = by_requests
            chosen = self._found()
            self._place = self._preemptor.place
            if chosen is not None and self._fits_without(chosen):
                return chosen
            self._searches, self._ended_early = 0, False
        return self._found()

    def _found(self) -> list[Unit] | None:
        few, some, units = 0, False, self._units
        # A group probably needs as many units as it has members.
        number = 0 if self._preemptor.what == "pod" else min(len(self._preemptor.pods), len(units))
        while not self._fits_without(units[len(units) - number :]):
            if number == len(units):
                return None
            some = True
            few, number = number, min(max(1, _GROWTH * number), len(units))
            if self._is_last():
                number = len(units)
        last = units[len(units) - number :]
        chosen = self._needed(last[: number - few], some=some)
        chosen += self._needed(last[number - few :])
        return self._on_the_nodes(chosen) if self._ended_early else chosen

    def fits_without_all(self) -> bool:
        return self._fits_without(self._units)

    def _fits_without(self, units: Sequence[Unit]) -> bool:
        self._gone = dict.fromkeys(units)
        return self._fits()

    def _fits(self) -> bool:
        self._searches += 1
        rows = self._place([pod for unit in self._gone for pod, _ in unit.pods])
        if rows is not None:
            self.rows = rows
        return rows is not None

    def _is_last(self) -> bool:
        return self._searches >= _MOST_SEARCHES or self._preemptor.is_last()

    def _needed(self, units: Sequence[Unit], *, some: bool = False) -> list[Unit]:
        """Find, by halving, which of `units` must leave; put the others back on their nodes."""
        if not units:
            return []
        # After the last search, all remaining units must leave.
        if self._is_last():
            self._ended_early = True
            return list(units)
        # With `some`, at least one unit must leave.
        if not some and self._can_stay(units):
            return []
        if len(units) == 1:
            return list(units)
        half = len(units) // 2
        first = self._needed(units[:half])
        return first + self._needed(units[half:], some=not first)

    def _on_the_nodes(self, units: Sequence[Unit]) -> list[Unit]:
        rows = set(self.rows.values())
        needed = [unit for unit in units if any(row in rows for _, row in unit.pods)]
        others = [unit for unit in units if not any(row in rows for _, row in unit.pods)]
        return needed if self._can_stay(others) else list(units)

    def _can_stay(self, units: Sequence[Unit]) -> bool:
        for unit in units:
            del self._gone[unit]
        if self._fits():
            return True
        self._gone |= dict.fromkeys(units)
        return False
