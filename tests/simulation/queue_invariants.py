"""The invariants of Queues: their usage, the quota they give back, and pods that wait.

How to add one: see `simulation.invariants`.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from bench.audit import quantity
from faults.books import PodSeen
from mooring.kube.api_resources import QUEUE
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.quota.model.queue import QUEUE_LABEL, parse_queue
from simulation.actors.queues import Queues, queue_of
from simulation.cluster_books import LATE_SECONDS, known_pods
from simulation.preemption_invariants import victim_of
from simulation.state_invariants import engine_of, engines, leader
from simulation.storage import Change, Raw
from slow_queues import SlowQueues

if TYPE_CHECKING:
    from mooring.run.build import Engine
    from simulation.world import Sent, World


_TRIED_SECONDS: Final = 30.0
"""So long after quota became free the pods that waited for it are tried again at the latest."""
_RESTS_SECONDS: Final = 11.0
"""The same when all is calm: longer than the longest backoff."""


def _model(world: "World", raws: Iterable[Raw]) -> SlowQueues:
    """Return a model of the server's Queues with existing parents, and of these pods on nodes."""
    queues = {each.name: each for each in map(parse_queue, world.server.storage.all(QUEUE))}
    while lost := [name for name, each in queues.items() if each.parent not in {"", *queues}]:
        del queues[lost[0]]
    pods = (parse_pod(raw) for raw in raws if queue_of(raw) is not None)
    return SlowQueues(queues, pods, "cpu")


def _on_nodes(world: "World") -> list[Raw]:
    uids = chain.from_iterable(world.books.on_node.values())
    return [world.books.raw[uid] for uid in uids]


def quota_refuses(world: "World", _node: str, pod: PodSeen) -> bool:
    """Return whether the pod's Queue lacks quota, or has had enough only for a moment."""
    books = world.books
    if (name := queue_of(books.raw[pod.uid])) is None:
        return False
    wait = _RESTS_SECONDS if world.is_calm else _TRIED_SECONDS
    if world.actor(Queues).changed_at + wait > world.timeline.now:
        return True
    nominated = (
        books.raw[other.uid]
        for other in books.pods.values()
        if other.nominated and not other.node and other.uid != pod.uid
    )
    model = _model(world, [*_on_nodes(world), *nominated])
    if (found := leader(world)) is not None:
        _count_assumed(model, found[1])
    return name not in model.queues or model.available(name) < pod.need.cpu


def _count_assumed(model: SlowQueues, engine: "Engine") -> None:
    """Add a replica's assumed pods to the model; such a pod may have ended before its binding."""
    known = {pod.uid for pod in model.pods}
    assumed = [placed.pod for placed in engine.scheduler.state.pods.assumed.values()]
    model.pods += [pod for pod in assumed if pod.uid not in known]


# At every change.


def no_queue_gets_more_than_it_may_use(world: "World", change: Change) -> str | None:
    """Check the Queue of a bound pod, with all pods that the replica knew."""
    if change.what != "bind" or (name := queue_of(change.object)) is None:
        return None
    decided_at = world.decisions.decided_at(change.by, change.object["metadata"]["uid"], change.at)
    if world.actor(Queues).queues_changed_at >= decided_at - LATE_SECONDS:
        return None
    books = world.books
    nodes = tuple(books.on_node)
    known = {pod.uid for node in nodes for pod in known_pods(world, change.by, node, decided_at)}
    known.add(change.object["metadata"]["uid"])
    model = _model(world, [books.raw[uid] for uid in known])
    left = model.available(name) if name in model.queues else None
    if left is not None and left >= 0:
        return None
    return f"{change.name} is bound in queue {name}, which has {left} left then"


# At every request.


def no_queue_gives_more_than_it_has_borrowed(world: "World", sent: "Sent") -> str | None:
    """Check the preemptor of a pod in a Queue, and the quota that the victim's Queue keeps.

    The preemptor of a pod must not be evicted in turn for this pod or its replacement.
    """
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None or (name := queue_of(raw)) is None:
        return None
    state, uid = engine.scheduler.state, raw["metadata"]["uid"]
    preemptors = [*state.evictions._records.awaited_by.get(Uid(uid), {}).values()]
    said = [_gives_too_much(world, sent, raw, each, engine) for each in preemptors]
    if said and None not in said:
        return said[0]
    queues = world.actor(Queues)
    for each in preemptors:
        own = each.labels.get(QUEUE_LABEL)
        world.coverage.note_reclaim("its own queue" if own == name else "another queue")
        queues.preempted.setdefault((each.uid, _workload(raw["metadata"])), world.timeline.now)
        began = queues.preempted.get((uid, _workload({"labels": each.labels})))
        if began is None or own == name or queues.queues_changed_at >= began - LATE_SECONDS:
            continue
        if queues.bound_at.get(name, 0.0) < began:
            return f"{raw['metadata']['name']} leaves for {each.name}, which it has preempted"
    return None


def _workload(metadata: Mapping[str, Any]) -> str:
    return str((metadata.get("labels") or {}).get("of", metadata.get("name")))


def _gives_too_much(
    world: "World", sent: "Sent", victim: Raw, preemptor: Pod, engine: "Engine"
) -> str | None:
    """Return the victim's Queue that falls below its quota, or another error; else None."""
    queues, uid, name = world.actor(Queues), victim["metadata"]["uid"], str(queue_of(victim))
    own, now = preemptor.labels.get(QUEUE_LABEL, ""), world.timeline.now
    since = min(now, world.decisions.nominated_since(sent.identity, preemptor.uid)) - LATE_SECONDS
    who = f"{victim['metadata']['name']} of queue {name} leaves for {preemptor.name} of {own}"
    if queues.queues_changed_at >= since:
        return None
    if own == name:
        lower = victim["spec"].get("priority", 0) <= preemptor.spec.priority
        return None if lower else f"{who}, and has a higher priority"
    stay = [raw for raw in _on_nodes(world) if not PodSeen.read(raw).leaving]
    before = _model(world, stay)
    _count_assumed(before, engine)
    after = SlowQueues(before.queues, (p for p in before.pods if p.uid != uid), before.resource)
    if own not in before.queues or name not in before.queues:
        return f"{who}, and one of them does not exist"
    sides = [each for each in before.path(name) if each not in before.path(own)]
    left = (leaf for leaf in queues.left if {*sides} & {*before.path(leaf)})
    if any(at >= since and by != sent.identity for leaf in left for at, by in queues.left[leaf]):
        return None
    for each in sides:
        used, nominal = before.used(each), before.nominal(each)
        if used <= nominal or after.used(each) < nominal:
            return f"{who}, and {each} uses {used} of {nominal}, then {after.used(each)}"
    return None


# When all is calm.


def what_queues_use_equals_a_recount(world: "World") -> str | None:
    """Check the usage in each replica, and in the statuses that the leader has written."""
    model = _model(world, _on_nodes(world))
    for identity, engine in engines(world):
        states = engine.scheduler.cluster.queues.states
        if states.keys() != model.queues.keys():
            return f"{identity} has the queues {sorted(states)}, there are {sorted(model.queues)}"
        for name, state in states.items():
            counted = state.nominal["cpu"], state.used["cpu"], state.available("cpu")
            right = model.nominal(name), model.used(name), model.available(name)
            if counted != right:
                return f"{identity} counts {counted} in queue {name}, and these are {right}"
    for raw in world.server.storage.all(QUEUE) if leader(world) else ():
        name, resources = raw["metadata"]["name"], raw.get("status", {}).get("resources", ())
        used = [model.used(name)] if name in model.queues else []  # else it is not in force
        if [quantity(each["used"]) * 1000 for each in resources] != used:
            return f"the status of {name} has {resources}, and {used} is used"
    return None
