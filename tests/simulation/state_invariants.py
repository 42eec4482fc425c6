"""The invariants of a replica's own state: its books, its queue and its caches.

They read the running engine of each replica, and compare it with the model server's history. How to
add one: see `simulation.invariants`.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holders import Holders
from mooring.kube.api_resources import NODE, POD, QUEUE, SCHEDULING_PROFILE
from mooring.model.pod import Uid
from mooring.run.build import Engine

if TYPE_CHECKING:
    from simulation.cluster_books import Books
    from simulation.replica import Replica
    from simulation.world import World


_SETTLE_SECONDS: Final = 20.0
"""How long after its deadline an assumption may take to be settled while nothing is wrong."""
_UID: Final = re.compile(rb"^uid-(\d{4,})$")
_WALKS: Final = 4
"""One of so many seeds walks over all objects at its end."""
_KEPT: Final = ("._comparer._unusable[", ".shadow._", "._not_gated[", "._records[]._last[")
"""Where the comparison keeps uids of its last list until the next one, minutes later, where so many
of bound pods are kept for profiles in mode Shadow as may be compared, one pod by group, and the
last fifty moves of a profile."""
_FEW: Final = 2
"""What a task has in its hands may be left of so many pods."""


def engines(world: "World") -> Iterator[tuple[str, Engine]]:
    """Yield the engine of each running replica that has seen the whole cluster.

    Replicas with a paused attempt are left out, because a trial may be open.
    """
    for replica in world.replicas.values():
        if (engine := engine_of(world, replica.identity)) is not None:
            yield replica.identity, engine


def engine_of(world: "World", identity: str) -> Engine | None:
    """Return the engine of this replica, if `engines` yields it; else None."""
    for replica in world.replicas.values():
        if replica.identity == identity:
            engine = _engine(replica)
            paused = engine is not None and engine.scheduler.turn.holder is not None
            return None if paused else engine
    return None


def leader(world: "World") -> tuple[str, Engine] | None:
    """Return identity and engine of the leader if it runs and no attempt is paused; else None."""
    engine = engine_of(world, world.books.holder)
    return (world.books.holder, engine) if engine is not None else None


def _engine(replica: "Replica") -> Engine | None:
    """Return the engine of a running replica that has seen the whole cluster; else None."""
    scheduler = replica.scheduler
    if not replica.alive or scheduler is None:
        return None
    # Not asked of one whose attempt pauses: to look notes what devices are known.
    is_paused = scheduler.engine.scheduler.turn.holder is not None
    with replica.looked_into():
        return scheduler.engine if is_paused or scheduler.is_current() else None


def a_replica_leads(world: "World") -> str | None:
    """Check, some time after the last fault, that a replica with a current mirror leads."""
    leaders = (r for r in world.replicas.values() if r.identity == world.books.holder)
    if all(_engine(replica) is None for replica in leaders):
        lives = {replica.identity: replica.alive for replica in world.replicas.values()}
        return f"{world.books.holder or 'nobody'} holds the lease, and there are {lives}"
    return None


def nothing_is_assumed_beyond_its_deadline(world: "World") -> str | None:
    """Check that an assumed pod that no watch shows is read after a minute."""
    for identity, engine in engines(world):
        for placed in engine.scheduler.state.pods.assumed.values():
            if placed.deadline is None:
                return f"{identity} binds {placed.pod.key} ({placed.pod.uid}) for ever"
            if placed.deadline + _SETTLE_SECONDS < world.timeline.now:
                return f"{identity} assumes {placed.pod.key} ({placed.pod.uid})"
    return None


def the_books_equal_a_recount(world: "World") -> str | None:
    """Check the uids and the requests of the pods on each node."""
    for identity, engine in engines(world):
        state, books = engine.scheduler.state, world.books
        known = {name for name in state.nodes.row_of if name}
        if known != books.nodes.keys():
            return f"{identity} knows nodes {sorted(known)}, there are {sorted(books.nodes)}"
        for name in books.nodes:
            if (wrong := _difference(engine, books, name)) is not None:
                return f"{identity} on {name}: {wrong}"
    return None


def _difference(engine: Engine, books: "Books", name: str) -> str | None:
    """Return the difference between the replica's and the model's data about a node, or None."""
    state, there = engine.scheduler.state, books.on_node[name]
    uids = {placed.pod.uid for placed in state.pods_of(name)}
    if uids != there.keys():
        return f"it has {sorted(there)}, and {sorted(uids)} are counted"
    row = state.nodes.row_of[name]
    cpu = sum(pod.need.cpu for pod in there.values())
    memory = sum(pod.need.memory for pod in there.values())
    counted = (
        state.nodes.requested.at("cpu", row),
        state.nodes.requested.at("memory", row),
        state.nodes.pod_count.data.item(row),
    )
    taken = (cpu, memory, len(there))
    if counted != taken:
        return f"cpu, memory and pods taken are {taken}, and {counted} are counted"
    has = books.nodes[name].allocatable
    if state.nodes.allocatable.at("cpu", row) != has.cpu:
        return f"it has {has}, and cpu {state.nodes.allocatable.at('cpu', row)} is counted"
    return None


def every_pod_without_a_node_is_queued_once(world: "World") -> str | None:
    """Check that the leader has each such pod in its queue or among pods without a profile."""
    if (found := leader(world)) is None:
        return None
    identity, engine = found
    queued = [entry.pod.uid for entry in engine.scheduler.queue]
    if len(queued) != len(set(queued)):
        return f"{identity} has a pod twice in its queue: {sorted(queued)}"
    knows = {*queued, *engine.scheduler.without_profile}
    waiting = {
        Uid(uid)
        for uid, pod in world.books.pods.items()
        if not pod.node and not pod.leaving and not pod.finished
    }
    if knows == waiting:
        return None
    return f"{identity} misses {sorted(waiting - knows)}, and has {sorted(knows - waiting)} still"


def nothing_is_kept_of_pods_that_are_gone(world: "World") -> str | None:
    """Check that no table of the engine has the uids of many deleted pods.

    Objects that count their own bytes are left out, because they forget when they are full. The
    walk costs a tenth of a run, so only some seeds do it.
    """
    if world.scenario.seed % _WALKS:
        return None
    exist = {
        raw["metadata"]["uid"].removeprefix("uid-").encode()
        for kind in (POD, NODE, QUEUE, SCHEDULING_PROFILE)
        for raw in world.server.storage.all(kind)
    }
    for identity, engine in engines(world):
        for where, uids in Holders(_UID, ("engine", engine)).marks.items():
            left = uids - exist
            if len(left) > _FEW and not any(place in where for place in _KEPT):
                return f"{identity} keeps {sorted(left)} in {where}"
    return None
