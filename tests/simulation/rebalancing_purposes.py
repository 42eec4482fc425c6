"""The purposes of moves: no pod is moved in vain, and pods that should be moved are moved.

How to add an invariant: see `simulation.invariants`.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import orjson

from faults.books import Amount, PodSeen
from mooring.kube.api_resources import NODE, POD, SCHEDULING_PROFILE
from simulation.actors.faults import Faults
from simulation.actors.groups import group_of
from simulation.actors.rebalancing import MOVED, REPLACEMENT_SECONDS
from simulation.api_server import EPOCH
from simulation.cluster_books import LATE_SECONDS, known_nodes
from simulation.constraints import Surroundings, is_suitable, refusal
from simulation.state_invariants import leader
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import Sent, World


_KNOWN_SECONDS: Final = 1.5
"""What a replica was told so long ago counts when it sends an eviction."""
_DAY: Final = 86_400.0


def _moved(world: "World", sent: "Sent") -> Raw | None:
    """Return the pod that this request evicts for a move; None for other requests."""
    parts = sent.path.split("/")
    if parts[-1] != "eviction":
        return None
    raw = world.server.storage.get(POD, parts[-2], parts[-4])
    uid = orjson.loads(sent.body)["deleteOptions"]["preconditions"]["uid"]
    if raw is None or raw["spec"].get("schedulerName") != MOVED or uid in world.preempted:
        return None
    if raw["metadata"]["uid"] != uid or "deletionTimestamp" in raw["metadata"]:
        return None
    world.removals.asked_to_move += 1
    return raw


def no_pod_is_moved_outside_of_the_windows(world: "World", sent: "Sent") -> str | None:
    """Check the time of day on the replica's clock when it sends the eviction."""
    raw, section = _moved(world, sent), _section(world)
    if raw is None or not section.get("windows") or _was_changed(world):
        return None
    now = world.timeline.now
    errors = world.actor(Faults).clock_errors(world, sent.identity, now - LATE_SECONDS)
    times = [EPOCH + now + error + late for error in errors for late in (0.0, -1.0)]
    if any(_is_open(window, at) for window in section["windows"] for at in times):
        return None
    name, windows = raw["metadata"]["name"], section["windows"]
    return f"{sent.identity} evicts {name}, and the windows are {windows}"


def _is_open(window: dict[str, str], now: float) -> bool:
    start, end = (_seconds(window[name]) for name in ("start", "end"))
    return (now - start) % _DAY < ((end - start) % _DAY or _DAY)


def _seconds(time_of_day: str) -> float:
    hours, minutes = time_of_day.split(":")
    return 3600.0 * int(hours) + 60.0 * int(minutes)


def _section(world: "World") -> Raw:
    profile = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
    return (profile["spec"].get("rebalancing") or {}) if profile is not None else {}


def _status(world: "World") -> Raw:
    profile = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
    status = (profile.get("status") or {}) if profile is not None else {}
    return status.get("rebalancing") or {}


def _was_changed(world: "World") -> bool:
    """Return whether the profile changes or is deleted during the run."""
    does = [step.does for step in world.scenario.steps if step.actor == "rebalancing"]
    return "delete profile" in does or does.count("profile") > 1


def no_pod_is_moved_in_vain(world: "World", sent: "Sent") -> str | None:
    """Check that the move, with the moves planned beside it, reaches its goal.

    The replica need not know changes of the last moment on the nodes of the move.
    """
    raw = _moved(world, sent)
    if raw is None or _was_changed(world):
        return None
    metadata, status = raw["metadata"], _status(world)
    begun = next((m for m in status.get("underWay", ()) if m["uid"] == metadata["uid"]), None)
    key = f"{metadata['namespace']}/{metadata['name']}"
    planned = next((m for m in status.get("plan", ()) if m["pod"] == key), None)
    if begun is None or planned is None:
        return None
    source, target = raw["spec"]["nodeName"], begun["to"]
    if (group := group_of(raw)) is not None:
        why = _why_group_stays(world, sent.identity, group)
    else:
        why = _why_unreached(world, sent.identity, planned["goal"], source, status)
        if why is None and all(_is_known(world, sent.identity, node) for node in (source, target)):
            why = _why_in_vain(world, raw, planned["goal"], source, target)
    return f"{sent.identity} moves {key} from {source} to {target}: {why}" if why else None


def _why_group_stays(world: "World", identity: str, group: str) -> str | None:
    """Return why moving the whole group is in vain; None if a member gains or has left."""
    told = world.server.watches.told(identity, NODE, at=world.timeline.now - _KNOWN_SECONDS)
    members = [raw for raw in world.server.storage.all(POD) if group_of(raw) == group]
    for raw in members:
        name = raw["spec"].get("nodeName")
        if "deletionTimestamp" in raw["metadata"] or name not in world.books.nodes:
            return None
        change = world.books.versions[name][-1][0]
        if change.version > told or not is_suitable(raw, change.object):
            return None
    return f"all {len(members)} members suit their nodes"


def _is_known(world: "World", identity: str, node: str) -> bool:
    """Return whether the replica knows all changes on the node."""
    now, told = world.timeline.now, world.server.watches.told
    versions = {kind: told(identity, kind, at=now - _KNOWN_SECONDS) for kind in (POD, NODE)}
    for change in reversed(world.server.storage.history):
        if change.version <= min(versions.values()):
            break
        raw = change.object
        is_there = change.resource is POD and raw["spec"].get("nodeName") == node
        is_node = change.resource is NODE and raw["metadata"]["name"] == node
        if (is_there or is_node) and change.version > versions[change.resource]:
            return False
    return True


def _why_in_vain(world: "World", raw: Raw, goal: str, source: str, target: str) -> str | None:
    books = world.books
    if target not in books.nodes or source not in books.nodes:
        return None if world.timeline.now - books.changed_at[target] < LATE_SECONDS else "no node"
    node = books.versions[source][-1][0].object
    has_room = books.free(source).covers(Amount())  # it may have been resized
    if goal == "Violations" and has_room and is_suitable(raw, node):
        return "it suits its node"
    return None if _takes(world, target, raw) else "its target does not take it"


def _why_unreached(
    world: "World", identity: str, goal: str, source: str, status: Raw
) -> str | None:
    """Return why the moves would empty no node, or make no room; None if they reach their goal.

    Only pods that the replica knows count, without pods that leave or are to be moved.
    """
    moving = {m["pod"] for m in status["plan"] if m["goal"] == goal}
    if goal == "Pack":
        stay = [pod for pod in _known_on(world, identity, source) if pod.key not in moving]
        return f"{stay[0].key} stays there" if stay else None
    if goal != "MakeRoom":
        return None
    shown = (*status["plan"], *status.get("underWay", ()), *status.get("lastMoves", ()))
    moved = {_workload(m["pod"]) for m in shown}
    books, since = world.books, world.timeline.now - LATE_SECONDS
    bound = [books.pods[uid] for uid, at in books.bound_at.items() if at > since]
    gone = [pod for change, pod in books.gone if change.at > since]
    if any(pod.scheduler == MOVED and _workload(pod.key) not in moved for pod in (*bound, *gone)):
        return None  # somebody has got the room, or has gone
    waiting = [pod for pod in _waiting(world) if _workload(pod.key) not in moved]
    for name in books.nodes:
        stay = [pod for pod in _known_on(world, identity, name) if pod.key not in moving]
        used = sum((pod.need for pod in stay), Amount())
        for node in known_nodes(world, identity, name):
            if any((node.allocatable - used).covers(pod.need) for pod in waiting):
                return None
    return f"no node will have room for {[pod.key for pod in waiting]}"


def _known_on(world: "World", identity: str, name: str) -> Iterator[PodSeen]:
    """Yield the pods that stay on the node and that the replica has known for a while."""
    told = world.server.watches.told(identity, POD, at=world.timeline.now - _KNOWN_SECONDS)
    for pod in world.books.on_node[name].values():
        binding = world.books.bound_by.get(pod.uid)
        if not pod.leaving and (binding is None or binding.version <= told):
            yield pod


def _workload(key: str) -> str:
    return key.rpartition("-")[0]


def _waiting(world: "World") -> Iterator[PodSeen]:
    for pod in world.books.pods.values():
        if pod.scheduler == MOVED and not pod.node and not pod.finished:
            yield pod


def _takes(world: "World", name: str, raw: Raw) -> bool:
    """Return whether the node would accept the pod, which is on another node now."""
    books = world.books
    pod = PodSeen.read(raw)
    anew = {**raw, "spec": {**raw["spec"], "nodeName": None}}
    nodes = [books.versions[each][-1][0].object for each in books.nodes]
    others = [uid for there in books.on_node.values() for uid in there if uid != pod.uid]
    around = Surroundings.known_exactly(nodes, [books.raw[uid] for uid in others])
    return books.free(name).covers(pod.need) and refusal(anew, name, around) is None


def no_workload_misses_more_pods_than_its_limit(world: "World", change: Change) -> str | None:
    """Count the workload's moved pods that have no ready replacement yet.

    All replicas' moves count. A move ends when a ready pod exists that was created since, or when
    its time limit has passed.
    """
    if change.what != "evict" or change.before is None or _was_changed(world):
        return None
    raw = change.before
    uid, owners = raw["metadata"]["uid"], raw["metadata"].get("ownerReferences")
    if raw["spec"].get("schedulerName") != MOVED or not owners or uid in world.preempted:
        return None
    owner, limits = owners[0]["uid"], _section(world).get("limits") or {}
    moves = world.removals.moves_of.setdefault(owner, [])
    under_way = [at for at in moves if at > change.at - REPLACEMENT_SECONDS + 1.0]
    moves.append(change.at)
    if not under_way or _has_jumped(world):
        return None
    ready = sum(
        _is_ready(each) and _created_at(world, each) >= under_way[0]
        for each in world.server.storage.all(POD)
        if (each["metadata"].get("ownerReferences") or [{}])[0].get("uid") == owner
    )
    missing = len(under_way) - ready + 1
    most = limits.get("movesAtATimePerWorkload", missing)
    if missing <= most:
        return None
    return f"{change.by} evicts {change.name}: {missing} pods of {owner} are missing, {most} may be"


def _has_jumped(world: "World") -> bool:
    return any(replica.wall_clock_error for replica in world.replicas.values())


def _created_at(world: "World", raw: Raw) -> float:
    uid = raw["metadata"]["uid"]
    return world.removals.created_at.get(uid, 0.0)


def _is_ready(raw: Raw) -> bool:
    conditions = raw["status"].get("conditions") or ()
    leaves = "deletionTimestamp" in raw["metadata"]
    return not leaves and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def what_is_not_moved(world: "World", seconds: float) -> str | None:
    """Return a pod that should have been moved, if no pod was moved; None if all is well.

    For `seconds`, nothing has prevented moves.
    """
    section, since = _section(world), world.timeline.now - seconds
    if section.get("mode") != "Apply" or world.removals.asked_to_move or leader(world) is None:
        return None
    if section.get("windows") or _has_jumped(world) or _was_changed(world):
        return None
    for raw, name in _movable(world, since):
        node = world.books.versions[name][-1][0].object
        seen = PodSeen.read(raw)
        targets = [n for n in world.books.nodes if n != name and _takes(world, n, raw)]
        targets = [n for n in targets if world.books.changed_at[n] < since]
        targets = [n for n in targets if _left_for(world, n, seen).covers(seen.need)]
        if not targets:
            continue
        called = raw["metadata"]["name"]
        cordoned = (node.get("spec") or {}).get("unschedulable")  # that is for a drain
        if "Violations" in section["goals"] and not cordoned and not is_suitable(raw, node):
            return f"{called} is on {name}, which does not suit it, and {targets} would take it"
        if "MakeRoom" in section["goals"] and (pod := _who_fits_then(world, raw, name, since)):
            return (
                f"{pod.key} waits, and would fit on {name} without {called}, which fits {targets}"
            )
    return _group_not_moved(world, section, since) if "Violations" in section["goals"] else None


def _left_for(world: "World", name: str, pod: PodSeen) -> Amount:
    """Return what is free on the node beside other nominated pods of at least its priority."""
    books = world.books
    kept = (
        other.need
        for other in books.pods.values()
        if other.nominated == name and not other.node and other.uid != pod.uid
        if other.priority >= pod.priority
    )
    return books.free(name) - sum(kept, Amount())


def _group_not_moved(world: "World", section: Raw, since: float) -> str | None:
    """Return a whole group whose nodes do not suit a member, and that would fit on other nodes."""
    groups = defaultdict[str, list[Raw]](list)
    for raw in world.server.storage.all(POD):
        if raw["spec"].get("schedulerName") == MOVED and (group := group_of(raw)) is not None:
            groups[group].append(raw)
    limits = section.get("limits") or {}
    most = min(limits.get("movesAtATime", 1), limits.get("movesAtATimePerWorkload", 1))
    for group, members in groups.items():
        if len(members) > most or not all(_rests(world, raw, since) for raw in members):
            continue
        nodes = {r["spec"]["nodeName"]: _node_of(world, r["spec"]["nodeName"]) for r in members}
        stays = all(is_suitable(raw, nodes[raw["spec"]["nodeName"]]) for raw in members)
        cordoned = any((node.get("spec") or {}).get("unschedulable") for node in nodes.values())
        if not stays and not cordoned and _fit_anew(world, members, since):
            return f"group {group} is on {sorted(nodes)}, of which not all suit it, and fits"
    return None


def _node_of(world: "World", name: str) -> Raw:
    return world.books.versions[name][-1][0].object


def _rests(world: "World", raw: Raw, since: float) -> bool:
    """Return whether the pod is ready, no budget protects it, and its node has not changed."""
    name, books = raw["spec"].get("nodeName"), world.books
    rests = name in books.nodes and books.changed_at[name] < since
    return rests and _is_ready(raw) and not world.server.budgets_of(raw)


def _fit_anew(world: "World", members: list[Raw], since: float) -> bool:
    """Return whether all these equal pods, once evicted, fit on suitable nodes."""
    books, uids = world.books, {raw["metadata"]["uid"] for raw in members}
    first, room = PodSeen.read(members[0]), 0
    for name in books.nodes:
        if books.changed_at[name] >= since or not is_suitable(members[0], _node_of(world, name)):
            continue
        leave = [pod.need for uid, pod in books.on_node[name].items() if uid in uids]
        left = sum(leave, _left_for(world, name, first)) - first.need
        while left.covers(Amount()) and room < len(members):
            left, room = left - first.need, room + 1
    return room >= len(members)


def _movable(world: "World", since: float) -> Iterator[tuple[Raw, str]]:
    """Yield the profile's pods that may be moved, with their nodes, which have not changed."""
    for raw in world.server.storage.all(POD):
        name = raw["spec"].get("nodeName")
        owned = raw["metadata"].get("ownerReferences") and group_of(raw) is None
        if raw["spec"].get("schedulerName") != MOVED or not owned or not _is_ready(raw):
            continue
        rests = name in world.books.nodes and world.books.changed_at[name] < since
        if rests and _may_be_evicted(world, raw, since):
            yield raw, name


def _may_be_evicted(world: "World", raw: Raw, since: float) -> bool:
    """Return whether no budget has forbidden the pod's eviction since this time."""
    budgets = world.server.budgets_of(raw)
    if not budgets:
        return True
    allowed = (budgets[0].get("status") or {}).get("disruptionsAllowed", 0)
    uid, history = budgets[0]["metadata"]["uid"], world.server.storage.history
    changed = (c.at for c in reversed(history) if c.object["metadata"]["uid"] == uid)
    return len(budgets) == 1 and allowed > 0 and next(changed, since) < since


def _who_fits_then(world: "World", raw: Raw, name: str, since: float) -> PodSeen | None:
    """Return a waiting pod that would fit on the node without `raw`; None if there is none."""
    books, need = world.books, PodSeen.read(raw).need
    node = books.versions[name][-1][0].object
    for pod in _waiting(world):
        known = books.waits_since.get(pod.uid, world.timeline.now) < since
        ready = known and not pod.constrained and not pod.gated and not pod.leaving
        free = _left_for(world, name, pod) + need
        if ready and free.covers(pod.need) and is_suitable(books.raw[pod.uid], node):
            return pod
    return None
