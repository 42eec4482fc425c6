"""A pod that is put on reserved nodes never delays the group, if pods run until their deadline."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from mooring.groups.search.reservation import GroupReservation
from mooring.model.pod import parse_pod
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.testing.builders import node, pod, pod_group
from scheduler_states import put_profile, scheduler_state

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Runs:
    """A pod on a node: what it takes, and when it ends (seconds after NOW)."""

    node: str
    cpu: int
    ends: float


running = st.tuples(
    st.integers(0, 2),
    st.integers(1, 4),
    st.sampled_from((300, 400, 100, 200, None)),
    st.sampled_from((0, 150, 500)),
)
"""Node, cpus, deadline, and when a pod without a deadline ends."""
coming = st.tuples(
    st.integers(1, 2), st.sampled_from((240, 40, 140, 241, 340, None)), st.sampled_from((0, 30))
)
"""Cpus, deadline and grace period of a pod that comes after the reservation."""


def start_of(
    members: Mapping[str, int], capacity: Mapping[str, int], pods: Iterable[Runs]
) -> float:
    """Return when all members (cpus by node) can start, by trying all moments at which pods end."""
    pods = list(pods)
    for moment in sorted({0.0, *(p.ends for p in pods)}):
        taken = defaultdict[str, int](int, members)
        for one in pods:
            if one.ends > moment:
                taken[one.node] += one.cpu
        if all(taken[name] <= capacity[name] for name in members):
            return moment
    return math.inf


def running_on(
    capacity: Mapping[str, int], wanted: Iterable[tuple[int, int, int | None, int]]
) -> tuple[list[dict[str, Any]], list[Runs]]:
    """Return those of the wanted running pods that fit on their nodes, and what they take."""
    raws, known, names = list[dict[str, Any]](), list[Runs](), list(capacity)
    for i, (at, cpu, deadline, unknown_end) in enumerate(wanted):
        name = names[at % len(names)]
        taken = sum(p.cpu for p in known if p.node == name)
        if taken + cpu <= capacity[name]:
            known.append(Runs(name, cpu, unknown_end if deadline is None else deadline))
            limit = {"activeDeadlineSeconds": deadline} if deadline is not None else {}
            started = "2026-01-01T00:00:00Z"
            raws.append(pod(f"r{i}", cpu=str(cpu), node=name, started=started, spec=limit))
    return raws, known


@given(
    st.lists(st.integers(2, 4), min_size=2, max_size=3),
    st.lists(running, min_size=1, max_size=4),
    st.integers(3, 8),
    st.lists(coming, min_size=2, max_size=6),
)
def test_backfilled_pods_never_delay_the_group(
    cpus: list[int],
    on_nodes: list[tuple[int, int, int | None, int]],
    size: int,
    later: list[tuple[int, int | None, int]],
) -> None:
    capacity = {f"n{i}": cpu for i, cpu in enumerate(cpus)}
    raws, known = running_on(capacity, on_nodes)
    nodes = [node(name, cpu=str(cpu)) for name, cpu in capacity.items()]
    scheduler = scheduler_state(*nodes, *raws, pod_group("g", size))
    args = {"reserveAfter": "5m", "reservedNodesPercent": 100}
    config = [{"name": "GangScheduling", "args": args}]
    pipeline = put_profile(scheduler, pluginConfig=config).pipeline
    state = scheduler.state
    members = [parse_pod(pod(f"g{i}", group="g", cpu="1", priority=1)) for i in range(size)]
    for member in members:
        state.put_unscheduled(member)
    group = state.pod_groups.of(members[0])
    assert group is not None
    cache = ResultCache(scheduler.cluster)
    waiting = list[QueuedPod]()
    for member in members:
        scheduler.queue.add(member, pipeline, 0.0)
        queued = scheduler.queue.pop_specific(member.uid, 0.0)
        assert queued is not None
        waiting.append(queued)
    reservation = GroupReservation(scheduler, cache)
    reservation.update(group, waiting, 300.0)
    reserved = defaultdict[str, int](int)
    for nominee in state.nominations:
        reserved[state.nodes.names[nominee.row]] += 1
    without = start_of(reserved, capacity, known)
    backfilled = list[Runs]()
    for i, (cpu, deadline, grace) in enumerate(later):
        spec: dict[str, Any] = {"terminationGracePeriodSeconds": grace}
        if deadline is not None:
            spec["activeDeadlineSeconds"] = deadline
        small = parse_pod(pod(f"s{i}", cpu=str(cpu), spec=spec))
        found = decide(small, pipeline, cache, seed=i, now=NOW)
        if isinstance(found, ScheduleResult):
            state.assume(small, found.row)
            ends = math.inf if deadline is None else 60.0 + deadline + grace
            backfilled.append(Runs(found.node, cpu, ends))
            on_reserved = found.node in reserved and math.isfinite(ends)
            event(f"with a deadline, on a reserved node: {on_reserved}")
    assert start_of(reserved, capacity, [*known, *backfilled]) == without
