"""Finds the pods whose eviction makes a whole pod group fit (preemption/podgrouppreemption.go).

The search first removes all pods of lower priority. Then it adds back each pod with which the group
still fits, the most important pod first. The other pods are the victims.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.framework.post_filter import (
    GroupPreemption,
    NotEligible,
    PodGroupPostFilterState,
)
from mooring.pausing import pause
from mooring.plugins.default_preemption.reclaim import reclaim
from mooring.plugins.default_preemption.units import (
    MOST_UNITS,
    Preemptor,
    Unit,
    importance,
    with_leaving,
    without_units,
)
from mooring.plugins.default_preemption.victims import (
    DELAYED,
    leaves_for,
    may_be_victims,
    protected,
)

_NEVER: Final = "preemption: not eligible due to preemptionPolicy=Never."
_TERMINATING: Final = "preemption: not eligible due to terminating pods on the nominated nodes."


def preempt_for_group(state: PodGroupPostFilterState) -> GroupPreemption:
    """Return the victims to evict and the nodes for the group, or why preemption does not help."""
    if (why := _why_not_eligible(state)) is not None:
        return NotEligible(why)
    group = state.group
    preemptor = Preemptor(
        "pod group",
        state.members,
        group.priority,
        state.cluster,
        state.place,
        state.is_last,
        state.limits,
        state.now,
        place_by_requests=state.place_by_requests,
    )
    if (queue := state.cluster.queues.of(state.members[0])) is not None:
        return reclaim(preemptor, queue)
    preemptor = with_leaving(preemptor)
    return without_units(preemptor, sorted(_potential(state), key=importance)[-MOST_UNITS:])


def _why_not_eligible(state: PodGroupPostFilterState) -> str | None:
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
    nominees = (state.cluster.nominations.get(pod.uid) for pod in state.members)
    return any(nominee is not None and nominee.has_preempted for nominee in nominees)


def _awaits_victims(state: PodGroupPostFilterState) -> bool:
    pause()  # there may be 50,000 members
    # See isOngoingPreemption in podgrouppreemption.go.
    cluster, waiting = state.cluster, state.group.unscheduled
    if any(map(cluster.evictions.awaits_victims, waiting.values())):
        return True
    pause()
    nominees = map(cluster.nominations.get, waiting)
    rows = {nominee.row for nominee in nominees if nominee is not None}
    there = (placed.pod for row in rows for placed in cluster.pods_on(row))
    return any(leaves_for(pod, state.group.priority, state.limits) for pod in there)


def _potential(state: PodGroupPostFilterState) -> Iterator[Unit]:
    """Yield single pods and whole groups with a lower priority than the preempting group."""
    cluster, priority = state.cluster, state.group.priority
    whole = cluster.pod_groups.disrupted_whole
    lower = (g for g in whole if g.priority < priority and g.key != state.group.key)
    for group in may_be_victims(lower, cluster, state.limits, state.now):
        if pods := tuple((placed.pod, placed.row) for placed in group.on_nodes):
            yield Unit(pods, group.priority, is_group=True)
    columns = cluster.pod_columns
    chosen = (columns.rows >= 0) & ~columns.nominated & (columns.priority < priority)
    chosen &= ~columns.evicting & ~columns.in_groups(group.number for group in whole)
    chosen &= ~protected(cluster, state.limits, state.now)
    surplus = _surplus(state)
    slots = np.flatnonzero(chosen)
    # As importance of single pods; equal ones stay in the order in which they came.
    ranked = columns.by_importance(slots, -columns.priority[slots], surplus[slots])
    single = list[Unit]()
    for slot in slots[ranked[::-1]].tolist():
        pod = columns.pods[slot]
        row = int(columns.rows[slot])
        if pod is None or cluster.node(row) is None:
            continue
        single.append(Unit(((pod, row),), pod.spec.priority, surplus=bool(surplus[slot])))
        if len(single) >= MOST_UNITS:
            break
    yield from reversed(single)


def _surplus(state: PodGroupPostFilterState) -> npt.NDArray[np.bool_]:
    """Return bool[pod slots]: True for the youngest members of a group, beyond its minimum."""
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
