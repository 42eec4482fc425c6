"""Finds victims for a preemptor (a pod or a group) in a Queue. Three kinds of pods may be victims.

- Pods of the preemptor's Queue that `preemption.withinQueue` allows.
- Pods of another Queue of the tree that borrows quota, if `preemption.reclaimWithinCohort` allows
  it. The evictions take back only borrowed quota.
- Pods of lower priority that are in no Queue, or in a Queue of another tree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.framework.post_filter import GroupNomination, GroupPreemption
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.model.wording import listed, plural
from mooring.pausing import pause
from mooring.plugins.default_preemption.units import (
    MOST_UNITS,
    Preemptor,
    Unit,
    importance,
    not_helpful,
    with_leaving,
    without_units,
)
from mooring.plugins.default_preemption.victims import protected
from mooring.quota.model.queue import Preempts
from mooring.quota.state.queue_tree import QueueState
from mooring.quota.state.queues import below, demand_of
from mooring.quota.usage import leaving_usage, nominated_usage
from mooring.state.cluster_view import ClusterView

_MOST_FOR_POD: Final = 100
"""The most pods in each of the two sets of potential victims for a single pod (see `_regarded`). A
search takes 60 us for each pod that it removes."""
_TRIED_FIRST: Final = 8
"""The number of units that the first try for a single pod removes, the least important ones."""
_MOST_NAMED: Final = 3
_Slots = npt.NDArray[np.bool_]


def reclaim(preemptor: Preemptor, queue: QueueState) -> GroupPreemption:
    """Return the victims for a preemptor in this Queue, or why there are none."""
    numbers = frozenset(state.number for state in below(queue.root))
    preemptor = with_leaving(replace(preemptor, tree=numbers))
    gone = preemptor.leaving
    # If the preemptor fits without the leaving pods, only these pods are victims.
    if gone and (fits := preemptor.place(())) is not None:
        return _nominated(preemptor, fits, gone)
    found = _cheapest(preemptor, _Rules(preemptor, queue))
    if isinstance(found, GroupNomination):
        found = replace(found, reason=_by_queue(found.victims, preemptor.cluster))
    return found


def _cheapest(preemptor: Preemptor, rules: "_Rules") -> GroupPreemption:
    with rules.without_leaving():
        units = sorted(rules.units(), key=importance)
    if preemptor.what == "pod" and units:  # the first search for a group determines its placement
        first = _without(preemptor, rules, units[-_TRIED_FIRST:])
        if _is_cheapest(first, units):
            return first
    nodes = preemptor.place([pod for unit in units for pod, _ in unit.pods])
    if nodes is None:
        return not_helpful(preemptor) if units else without_units(preemptor, units)
    rows = set(nodes.values())
    there = [unit for unit in units if any(row in rows for _, row in unit.pods)]
    elsewhere = [unit for unit in units if not any(row in rows for _, row in unit.pods)]
    # The least important units, and the units on the nodes where the preemptor fits best.
    return min(
        (_without(preemptor, rules, order) for order in (units, [*elsewhere, *there])), key=_cost
    )


def _without(preemptor: Preemptor, rules: "_Rules", units: Sequence[Unit]) -> GroupPreemption:
    with rules.without_leaving():
        # If not all units may leave together, the last units have precedence.
        safe = rules.within_nominal(units[::-1])
    return without_units(preemptor, sorted(safe, key=importance))


def _nominated(
    preemptor: Preemptor, rows: Mapping[Uid, int], gone: Mapping[Pod, int]
) -> GroupNomination:
    names, there = preemptor.cluster.node_names, {*rows.values()}
    nodes = {uid: names[row] for uid, row in rows.items()}
    victims = tuple(pod for pod, row in gone.items() if row in there)
    return GroupNomination(nodes, victims, preemptor.limits.strict)


def _by_queue(victims: Sequence[Pod], cluster: ClusterView) -> str:
    states = map(cluster.queues.numbered, map(cluster.pod_columns.queue_of, victims))
    counts = Counter(f"queue {state.name}" if state is not None else "no queue" for state in states)
    texts = [f"{plural(count, 'pod')} of {name}" for name, count in counts.most_common()]
    return f"preemption: evicts {listed(texts, _MOST_NAMED)}."


def _is_cheapest(found: GroupPreemption, units: Sequence[Unit]) -> bool:
    if not isinstance(found, GroupNomination) or found.violations:
        return False
    lowest = min(unit.priority for unit in units)
    return found.disruptions == (1, 0) and found.victims[0].spec.priority == lowest


def _cost(found: GroupPreemption) -> tuple[float, int, int, int]:
    if not isinstance(found, GroupNomination):
        return inf, 0, 0, 0
    victims = found.victims
    highest = max((pod.spec.priority for pod in victims), default=0)
    nodes = {pod.node_name for pod in victims}
    return found.violations, highest, len(victims), len(nodes)


class _Rules:
    """The rules that say which pods the preemptor may evict together."""

    def __init__(self, preemptor: Preemptor, queue: QueueState) -> None:
        self._preemptor = preemptor
        self._queue = queue
        cluster = self._cluster = preemptor.cluster
        self._path = queue.path
        self._leaving = leaving_usage(preemptor.tree, cluster)
        coming = nominated_usage(preemptor.pods, cluster)
        with self.without_leaving(), cluster.queues.with_more(coming):
            asked = cluster.queues.in_devices(queue.number, demand_of(preemptor.pods))
            self._demand = {r: amount for r, amount in asked.items() if r in queue.used and amount}
            self._entitled = [each for each in self._path if self._stays_below(each)]
        """The preemptor's Queue and its ancestors, without Queues that would exceed their nominal
        quota if the preemptor and the nominated pods were counted."""

    def without_leaving(self) -> AbstractContextManager[None]:
        """Return a context manager in which leaving pods of the Queue's tree use no quota.

        Leaving pods are terminating, or this scheduler is evicting them.
        """
        return self._cluster.queues.without(self._leaving)

    def _stays_below(self, state: QueueState) -> bool:
        used, nominal = state.used, state.nominal
        return all(used[r] + amount <= nominal[r] for r, amount in self._demand.items())

    def units(self) -> Iterator[Unit]:
        """Yield units of pods that the preemptor may evict; the pods of a unit must leave together.

        The caller checks the quotas of the victims' Queues with `within_nominal`.
        """
        cluster, columns = self._cluster, self._cluster.pod_columns
        borrow, others = self._allowed()
        found = borrow | others
        regarded = self._regarded(found, borrow)
        numbers = {*np.unique(columns.groups[found & (columns.groups >= 0)]).tolist()}
        groups = [group for group in cluster.pod_groups if group.number in numbers]
        for group in groups:
            pause()
            slots = columns.slots_of([placed.pod for placed in group.on_nodes])
            kept, whole = self._of_group(group, slots)
            if kept is None or not len(kept):
                continue
            may_leave = whole and found[kept].all() and regarded[kept].any()
            found[kept] = False
            if may_leave:
                pods = tuple((columns.pods[s], int(columns.rows[s])) for s in kept.tolist())
                yield Unit(
                    tuple((pod, row) for pod, row in pods if pod is not None),
                    group.priority,
                    is_group=True,
                    borrows=bool(borrow[kept].all()),
                )
        for slot in np.flatnonzero(found & regarded).tolist():
            pod, row = columns.pods[slot], int(columns.rows[slot])
            if pod is not None and cluster.node(row) is not None:
                yield Unit(((pod, row),), pod.spec.priority, borrows=bool(borrow[slot]))
            pause()

    def _regarded(self, found: _Slots, borrow: _Slots) -> _Slots:
        """Reduce `found`, bool[pod slots], to the least important pods, few enough to examine."""
        columns, nodes = self._cluster.pod_columns, self._cluster.nodes
        slots = np.flatnonzero(found)
        least = slots[columns.by_importance(slots, borrow[slots])]
        if self._preemptor.what != "pod":
            regarded = np.zeros(len(found), np.bool_)
            regarded[least[-MOST_UNITS:]] = True
            return regarded
        # For a single pod, also the pods of some nodes whose removal makes its requests fit.
        at = columns.rows[slots]
        counts = np.bincount(at, minlength=len(nodes))
        fits = nodes.present.copy()
        for resource, amount in self._preemptor.pods[0].spec.demand.resources.items():
            free = nodes.allocatable(resource) - nodes.requested_wrapped(resource)
            np.add.at(free, at, columns.requests(resource)[slots])
            fits &= free >= amount
        rows = np.flatnonzero(fits)
        rows = rows[np.argsort(counts[rows], kind="stable")]
        rows = rows[: max(1, np.searchsorted(np.cumsum(counts[rows]), _MOST_FOR_POD, "right"))]
        regarded = found & np.isin(columns.rows, rows)
        regarded[least[-_MOST_FOR_POD:]] = True
        return regarded

    def _of_group(
        self, group: PodGroupState, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64] | None, bool]:
        """Return the slots of members that only leave together, and whether they may be evicted."""
        if group.key == self._cluster.pod_groups.key_of(self._preemptor.pods[0]):
            return slots, False
        if group in self._cluster.pod_groups.disrupted_whole:
            return slots, True
        if not group.minimum:
            return None, False
        columns = self._cluster.pod_columns
        order = columns.by_importance(slots)[::-1]
        pods = {pod: s for s in slots[order].tolist() if (pod := columns.pods[s]) is not None}
        surplus = [pods[pod] for pod in group.surplus_of(pods)]
        return slots[~np.isin(slots, surplus)], True

    def _allowed(self) -> tuple[_Slots, _Slots]:
        """Return two bool[pod slots]: evictable pods in borrowing Queues, other evictable pods."""
        preemptor, columns = self._preemptor, self._cluster.pod_columns
        chosen = (columns.rows >= 0) & ~columns.nominated & ~columns.leaving
        chosen &= ~protected(self._cluster, preemptor.limits, preemptor.now)
        lower = columns.priority < preemptor.priority
        in_tree = np.isin(columns.queues, [*preemptor.tree])
        others = chosen & ~in_tree & lower
        own = chosen & (columns.queues == self._queue.number)
        within = self._queue.queue.within
        if within is Preempts.LOWER_PRIORITY:
            others |= own & lower
        elif within is Preempts.ANY:
            others |= own & (lower | self._newer_equals(own))
        reclaims = self._queue.queue.reclaims
        if reclaims is Preempts.NEVER:
            return np.zeros(len(others), np.bool_), others
        lenders = [number for number in preemptor.tree if self._may_reclaim_from(number)]
        borrow = chosen & np.isin(columns.queues, lenders)
        return (borrow & lower if reclaims is Preempts.LOWER_PRIORITY else borrow), others

    def _newer_equals(self, own: _Slots) -> _Slots:
        columns, oldest = self._cluster.pod_columns, min(p.created for p in self._preemptor.pods)
        found = np.zeros(len(own), np.bool_)
        for slot in np.flatnonzero(own & (columns.priority == self._preemptor.priority)).tolist():
            pod = columns.pods[slot]
            found[slot] = pod is not None and pod.created > oldest
        return found

    def _may_reclaim_from(self, number: int) -> bool:
        state = self._cluster.queues.numbered(number)
        if state is None or state is self._queue:
            return False
        own_side, its_side = self._sides(state)
        borrows = all(any(map(each.borrowed, self._demand)) for each in its_side)
        return own_side in self._entitled and bool(its_side) and borrows

    def _sides(self, state: QueueState) -> tuple[QueueState, tuple[QueueState, ...]]:
        """Return the top Queue of the preemptor's branch, and all Queues of `state`'s branch."""
        its = state.path
        # The branches begin below the common ancestor.
        common = next(each for each in self._path if each in its)
        own = self._path[: self._path.index(common)]
        return (own[-1] if own else common), its[: its.index(common)]

    def within_nominal(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units that may be evicted together; the first units have precedence.

        Evicting these units takes only borrowed quota from other Queues of the tree.
        """
        chosen, queues = list[Unit](), self._cluster.queues
        with ExitStack() as gone:
            for unit in units:
                pause()
                usage = self._usage(unit)
                with ExitStack() as undo:
                    before = self._used_by(usage)
                    undo.enter_context(queues.without(usage))
                    if not unit.borrows or self._stays_nominal(before):
                        gone.push(undo.pop_all())
                        chosen.append(unit)
        return chosen

    def _usage(self, unit: Unit) -> Mapping[int, Mapping[str, int]]:
        columns, by_queue = self._cluster.pod_columns, defaultdict[int, list[Pod]](list)
        for pod, _ in unit.pods:
            by_queue[columns.queue_of(pod)].append(pod)
        return {number: demand_of(pods) for number, pods in by_queue.items()}

    def _used_by(self, usage: Mapping[int, object]) -> dict[QueueState, dict[str, int]]:
        states = map(self._cluster.queues.numbered, usage)
        others = (state for state in states if state is not None and state is not self._queue)
        in_tree = (state for state in others if state.number in self._preemptor.tree)
        return {each: each.used.copy() for state in in_tree for each in self._sides(state)[1]}

    def _stays_nominal(self, before: Mapping[QueueState, Mapping[str, int]]) -> bool:
        """Return whether each Queue gave back borrowed quota that the preemptor needs.

        `before` has the former usage. Returns False, too, if a Queue fell below its nominal quota.
        """
        for state, used in before.items():
            nominal, now = state.nominal, state.used
            if any(now[r] < nominal[r] <= used[r] for r in used):
                return False
            if not any(now[r] < used[r] > nominal[r] for r in self._demand):
                return False
        return True
