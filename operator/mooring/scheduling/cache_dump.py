"""Dumps the scheduler's cache and queue, for a comparison with the API server's objects.

kube-scheduler writes the same to its log when it gets SIGUSR2 (backend/cache/debugger/dumper.go).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.pods import PlacedPod

Record = Mapping[str, Any]


def cache_dump(scheduler: SchedulerState) -> Iterator[Record]:
    """Yield a JSON record of each node, placed pod, nomination and pending pod.

    Each record shows the state when it is yielded. The last record has `kind` "end" and the number
    of the other records.
    """
    number = 0
    parts = (_nodes(scheduler), _nominations(scheduler), _pending(scheduler))
    for part in parts:
        for record in part:
            number += 1
            yield record
    yield {"kind": "end", "records": number}


def _nodes(scheduler: SchedulerState) -> Iterator[Record]:
    state = scheduler.state
    # Between two records nodes come and go, and their rows with them.
    for name in tuple(state.nodes.row_of):
        row = state.nodes.row_of.get(name)
        if row is None or (node := state.nodes.nodes[row]) is None:
            continue
        placed = tuple(state.pods.on(row))
        yield _node(scheduler, row, node)
        for each in placed:
            yield _pod(scheduler, each)
    for each in state.pods_without_node():
        yield _pod(scheduler, each)


def _node(scheduler: SchedulerState, row: int, node: Node) -> Record:
    table, allocatable = scheduler.state.nodes, dict(node.allocatable)
    resources = {CPU: 0, MEMORY: 0} | allocatable
    return {
        "kind": "node",
        "node": node.name,
        "allocatable": allocatable,
        "podSlots": int(table.pod_slots.data[row]),
        "requested": {name: table.requested.at(name, row) for name in resources},
        "podCount": int(table.pod_count.data[row]),
        "cards": [
            {
                "pod": owner.key,
                "uid": owner.uid,
                "cards": owner.cards,
                "known": owner.known,  # False: guessed, because no annotation names the cards
            }
            for cards in scheduler.state.devices.tracked
            for owner in cards.owners(row)
        ],
    }


def _pod(scheduler: SchedulerState, placed: PlacedPod) -> Record:
    pod = placed.pod
    state = "terminating" if pod.terminating else "added"
    return {
        "kind": "pod",
        **_identity(pod),
        "node": pod.node_name,
        "state": "assumed" if placed.assumed else state,
        "requests": dict(pod.spec.demand.resources),
        "started": pod.started,
        "evicting": scheduler.state.evictions.evicting(pod),
    }


def _nominations(scheduler: SchedulerState) -> Iterator[Record]:
    state = scheduler.state
    for nominee in state.nominations:
        if state.nominations.get(nominee.pod.uid) is not nominee:
            continue  # withdrawn meanwhile, maybe with its node and row
        yield {
            "kind": "nomination",
            **_identity(nominee.pod),
            "node": state.nodes.names[nominee.row],
            "awaitsVictims": state.evictions.awaits_victims(nominee.pod),
        }


def _pending(scheduler: SchedulerState) -> Iterator[Record]:
    for queued in scheduler.queue:
        yield {"kind": "pending", **_identity(queued.pod), "state": queued.times.state.value}
    for pod in tuple(scheduler.without_profile.values()):
        yield {"kind": "pending", **_identity(pod), "state": "without a profile"}


def _identity(pod: Pod) -> Record:
    return {"pod": pod.key, "uid": pod.uid}
