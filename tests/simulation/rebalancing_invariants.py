"""The invariants of pods that rebalancing moves.

How to add one: see `simulation.invariants`.
"""

from typing import TYPE_CHECKING, Any

import orjson

from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.rebalancing.under_way import is_placeholder
from simulation.actors.rebalancing import MOVED
from simulation.state_invariants import engine_of, engines

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import Sent, World


def an_eviction_is_told_in_the_status_before(world: "World", sent: "Sent") -> str | None:
    """Check the profile's status when the eviction of one of its pods leaves a replica.

    The status must list the pod as a running move, within the limits, and not as a moved pod.
    """
    profile = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
    raw = _evicted(world, sent)
    if raw is None or profile is None:
        return None
    uid = orjson.loads(sent.body)["deleteOptions"]["preconditions"]["uid"]
    # Who is nominated cannot be read while an attempt is paused.
    if engine_of(world, sent.identity) is None or _is_preempted(world, raw):
        world.preempted.add(uid)
        return None
    status = (profile.get("status") or {}).get("rebalancing") or {}
    if not status and _was_deleted(world):
        return None  # it is another object since a moment ago
    under_way = [move["uid"] for move in status.get("underWay", ())]
    if uid not in under_way and not _was_deleted(world):
        return f"{raw['metadata']['name']} ({uid}) is not among {under_way}"
    if len(under_way) > _limits(world)["moves"]:
        return f"{under_way} are under way, and {_limits(world)['moves']} are allowed"
    moved = uid in (move["uid"] for move in status.get("lastMoves", ()))
    # By a clock that has jumped, the last move may be long ago.
    moved = moved and all(step.does != "jump" for step in world.scenario.steps)
    return f"{raw['metadata']['name']} ({uid}) was moved already" if moved else None


def _evicted(world: "World", sent: "Sent") -> "Raw | None":
    """Return the profile's pod that this request evicts; None for other requests."""
    parts = sent.path.split("/")
    if parts[-1] != "eviction":
        return None
    raw = world.server.storage.get(POD, parts[-2], parts[-4])
    return raw if raw is not None and raw["spec"].get("schedulerName") == MOVED else None


def _is_preempted(world: "World", raw: "Raw") -> bool:
    """Return whether a replica has nominated a pod of higher priority to this pod's node.

    It may be any node while the pod's Binding is under way.
    """
    node, priority = raw["spec"].get("nodeName"), raw["spec"].get("priority", 0)
    return any(
        node in (None, state.nodes.names[nominee.row]) and nominee.pod.spec.priority > priority
        for state in (engine.scheduler.state for _, engine in engines(world))
        for nominee in state.nominations
        if not is_placeholder(nominee.pod.uid)
    )


def _was_deleted(world: "World") -> bool:
    """Return whether the profile is deleted at some time of this run."""
    return any(step.does == "delete profile" for step in world.scenario.steps)


def _limits(world: "World") -> dict[str, Any]:
    """Return the limits of the profile, which are the same during the whole run."""
    steps = world.scenario.steps
    return next(dict(s.args) for s in steps if s.actor == "rebalancing" and s.does == "profile")


def no_more_pods_are_moved_than_the_limits_say(world: "World", change: "Change") -> str | None:
    """Check the number of evictions within an hour, and that no pod was evicted twice."""
    if change.what != "evict" or change.before is None:
        return None
    if change.before["spec"].get("schedulerName") != MOVED:
        return None
    uid = change.before["metadata"]["uid"]
    if uid in world.preempted:
        return None
    if uid in world.moved:
        return f"{change.name} ({uid}) is evicted twice"
    world.moved.append(uid)
    does = [step.does for step in world.scenario.steps]
    if "jump" in does or "delete profile" in does or does.count("profile") > 1:
        return None  # a clock or an object without the section may hide what was evicted
    most = _limits(world)["hour"]
    return f"{len(world.moved)} pods, {most} are allowed" if len(world.moved) > most else None


def no_place_is_kept_that_nobody_waits_for(world: "World") -> str | None:
    """Check, some time after the last move, that no replica keeps room or awaits a replacement."""
    for identity, engine in engines(world):
        kept = [n.pod.key for n in engine.scheduler.state.nominations if is_placeholder(n.pod.uid)]
        if kept:
            return f"{identity} keeps places for {kept}"
        if moves := engine.expected.moves:
            return f"{identity} awaits {len(moves)} replacements"
    return None
