"""Finds the pods whose eviction makes a whole pod group fit (preemption/podgrouppreemption.go).

All pods of lower priority count as gone. If the group fits then, they are added back, the most
important first, while the group still fits; the others are the victims, on all nodes. A group that
may only be disrupted as a whole is one victim.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.framework.post_filter import (
    GroupNomination,
    GroupPreemption,
    NotEligible,
    PodGroupPostFilterState,
)
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.plugins.default_preemption.candidates import split_by_budgets
from mooring.plugins.default_preemption.victims import (
    DELAYED,
    leaves_for,
    may_be_victims,
    protected,
    started,
)

_NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."
_TERMINATING: Final = "preemption: not eligible due to terminating pods on the nominated nodes."
_NO_VICTIMS: Final = "preemption: No preemption victims found for incoming pod group."
_NOT_HELPFUL: Final = (
    "preemption: the group does not fit without the pods of lower priority either."
)
_MOST_SEARCHES: Final = 256
"""Searches for nodes for the group in one preemption; then no more pods are reprieved."""
_MOST_UNITS: Final = 2_000
"""The least important potential victims that one preemption looks at."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Pods that are evicted together: one pod, or a group that is disrupted as a whole.

    `surplus` says that the pod's group keeps its minimum without it.
    """

    pods: tuple[tuple[Pod, int], ...]
    """The pods with their rows."""
    priority: int
    is_group: bool = False
    surplus: bool = False

    @property
    def importance(self) -> tuple[int, bool, bool, int, float]:
        """The most important unit has the smallest (moreImportantVictim); surplus is the least."""
        size = len(self.pods) if self.is_group else 0
        earliest = min(started(pod) for pod, _ in self.pods)
        return (-self.priority, not self.is_group, self.surplus, -size, earliest)


def preempt_for_group(state: PodGroupPostFilterState) -> GroupPreemption:
    """Return the victims without which the group fits, and its nodes; or why there are none."""
    cluster, limits = state.cluster, state.limits
    if (why := _why_not_eligible(state)) is not None:
        return NotEligible(why)
    units = sorted(_potential(state), key=lambda unit: unit.importance)[-_MOST_UNITS:]
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
        return Unschedulable(_NO_VICTIMS, resolvable=True)
    reprieve = _Reprieve(state, [*violating, *others])
    if not reprieve.fits():
        return Unschedulable(_NOT_HELPFUL, resolvable=True)
    chosen = reprieve.victims(violating)
    chosen += reprieve.victims(others)
    if reprieve.ended_early:
        chosen = reprieve.on_the_nodes(chosen)
    rows = reprieve.rows
    victims = [pod for unit in chosen for pod, _ in unit.pods]
    if limits.max_victims is not None and len(victims) > limits.max_victims:
        text = f"preemption: the group needs more than {limits.max_victims} victims."
        return Unschedulable(text, resolvable=True)
    names, known = cluster.node_names, {victim.uid for victim in victims}
    freeing = (pod for pod, row in _evicting(state) if row in set(rows.values()))
    nodes = {uid: names[row] for uid, row in rows.items()}
    also = (pod for pod in freeing if pod.uid not in known)
    violations = sum(split.violating.get(unit, 0) for unit in chosen)
    groups = sum(unit.is_group for unit in chosen)
    disruptions = len(chosen) - groups, groups
    return GroupNomination(nodes, (*victims, *also), strict, violations, disruptions)


def _why_not_eligible(state: PodGroupPostFilterState) -> str | None:
    """Return why the group may not preempt, or not yet; None if it may."""
    definition = state.group.definition
    never = definition is not None and definition.preempts is False
    if never or not all(pod.spec.preempts for pod in state.members):
        return _NEVER
    if _awaits_victims(state):
        return _TERMINATING
    delay = state.limits.delay_seconds
    if state.unschedulable_seconds < delay and not _has_preempted(state):
        return f"preemption: {DELAYED.format(delay)}"
    return None


def _has_preempted(state: PodGroupPostFilterState) -> bool:
    """Return whether a member is nominated, and not by a reservation or as a replacement."""
    nominees = (state.cluster.nominations.get(pod.uid) for pod in state.members)
    return any(nominee is not None and nominee.has_preempted for nominee in nominees)


def _awaits_victims(state: PodGroupPostFilterState) -> bool:
    """Return whether victims of the group's last preemption are still on their nodes.

    The members that preempted then need not be those that need nodes now. See isOngoingPreemption
    in podgrouppreemption.go.
    """
    pause()  # there may be 50,000 members
    cluster, waiting = state.cluster, state.group.unscheduled
    if any(map(cluster.evictions.awaits_victims, waiting.values())):
        return True
    pause()
    nominees = map(cluster.nominations.get, waiting)
    rows = {nominee.row for nominee in nominees if nominee is not None}
    there = (placed.pod for row in rows for placed in cluster.pods_on(row))
    return any(leaves_for(pod, state.group.priority, state.limits) for pod in there)


def _potential(state: PodGroupPostFilterState) -> Iterator[_Unit]:
    """Yield the units of lower priority than the group, without pods that are being evicted.

    Of single pods at most _MOST_UNITS, the least important: no others can be among the least
    important of all units.
    """
    cluster, priority = state.cluster, state.group.priority
    whole = cluster.pod_groups.disrupted_whole
    lower = (g for g in whole if g.priority < priority and g.key != state.group.key)
    for group in may_be_victims(lower, cluster, state.limits, state.now):
        if pods := tuple((placed.pod, placed.row) for placed in group.on_nodes):
            yield _Unit(pods, group.priority, is_group=True)
    columns = cluster.pod_columns
    chosen = (columns.rows >= 0) & ~columns.nominated & (columns.priority < priority)
    chosen &= ~columns.evicting & ~columns.in_groups(group.number for group in whole)
    chosen &= ~protected(cluster, state.limits, state.now)
    surplus = _surplus(state)
    slots = np.flatnonzero(chosen)
    # As _Unit.importance of single pods; equal ones stay in the order in which they came.
    ranked = columns.by_importance(slots, -columns.priority[slots], surplus[slots])
    single = list[_Unit]()
    for slot in slots[ranked[::-1]].tolist():
        pod = columns.pods[slot]
        row = int(columns.rows[slot])
        if pod is None or cluster.node(row) is None:
            continue
        single.append(_Unit(((pod, row),), pod.spec.priority, surplus=bool(surplus[slot])))
        if len(single) >= _MOST_UNITS:
            break
    yield from reversed(single)


def _surplus(state: PodGroupPostFilterState) -> npt.NDArray[np.bool_]:
    """Return bool[slots]: the members beyond their group's minimum, those that started last."""
    columns, groups = state.cluster.pod_columns, state.cluster.pod_groups.with_surplus
    found = np.zeros(len(columns.pods), np.bool_)
    slots = np.flatnonzero(columns.in_groups(group.number for group in groups))
    slots = slots[columns.by_importance(slots, columns.groups[slots])]
    numbers, sorted_numbers = [group.number for group in groups], columns.groups[slots]
    starts = np.searchsorted(sorted_numbers, numbers)
    ends = np.searchsorted(sorted_numbers, numbers, side="right")
    for group, start, end in zip(groups, starts.tolist(), ends.tolist(), strict=True):
        if not group.roles:
            found[slots[end - group.surplus : end]] = True
            continue
        last_first = slots[start:end][::-1].tolist()
        pods = {pod: slot for slot in last_first if (pod := columns.pods[slot]) is not None}
        found[[pods[pod] for pod in group.surplus_of(pods)]] = True
    return found


def _evicting(state: PodGroupPostFilterState) -> Iterator[tuple[Pod, int]]:
    """Yield the pods of lower priority that this scheduler is evicting, with their rows."""
    columns = state.cluster.pod_columns
    chosen = (columns.rows >= 0) & ~columns.nominated & columns.evicting
    chosen &= columns.priority < state.group.priority
    for slot in np.flatnonzero(chosen).tolist():
        pod = columns.pods[slot]
        if pod is not None:
            yield pod, int(columns.rows[slot])


class _Reprieve:
    """Lets units stay while the group fits, and counts the searches.

    All `units` count as gone at first. `rows` has the row of each member by uid, with all units
    that stay. `ended_early` says that not all units were tried.
    """

    def __init__(self, state: PodGroupPostFilterState, units: Sequence[_Unit]) -> None:
        self.rows: Mapping[Uid, int] = {}
        self.ended_early = False
        self._state = state
        self._gone = dict.fromkeys(units)
        self._searches = 0

    def fits(self) -> bool:
        """Return whether the group fits now, with the units that stay."""
        self._searches += 1
        gone = [pod for pod, _ in _evicting(self._state)]
        gone += (pod for unit in self._gone for pod, _ in unit.pods)
        rows = self._state.place(gone)
        if rows is not None:
            self.rows = rows
        return rows is not None

    def victims(self, units: Sequence[_Unit]) -> list[_Unit]:
        """Return the units that cannot stay when they are added one after the other.

        Halves are added as a whole first: if a half can stay, each of its units can.
        """
        if not units:
            return []
        if self._searches >= _MOST_SEARCHES or self._state.is_last():
            self.ended_early = True
            return list(units)
        if self._can_stay(units):
            return []
        if len(units) == 1:
            return list(units)
        half = len(units) // 2
        first = self.victims(units[:half])
        return first + self.victims(units[half:])

    def on_the_nodes(self, units: Sequence[_Unit]) -> list[_Unit]:
        """Return the victims with a pod on the group's nodes if the others can stay, else all."""
        rows = set(self.rows.values())
        needed = [unit for unit in units if any(row in rows for _, row in unit.pods)]
        others = [unit for unit in units if not any(row in rows for _, row in unit.pods)]
        return needed if self._can_stay(others) else list(units)

    def _can_stay(self, units: Sequence[_Unit]) -> bool:
        """Return whether the group fits with these units too; then they stay."""
        for unit in units:
            del self._gone[unit]
        if self.fits():
            return True
        self._gone |= dict.fromkeys(units)
        return False
