"""The invariants of claims in runs about volumes: limits, space, and sharing of claims.

How to add one: see `simulation.invariants`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from faults.books import PodSeen
from mooring.kube.api_resources import (
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Resource,
)
from mooring.model.node import HOSTNAME
from mooring.model.pod import Uid
from mooring.volumes.model.storage_objects import BIND_COMPLETED, SELECTED_NODE
from simulation.actors.volumes import DRIVER
from simulation.cluster_books import LATE_SECONDS, kept_for_others, known_pods
from simulation.scenario import NAMESPACE
from simulation.state_invariants import engine_of, engines
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import Sent, World


def _claims(world: "World", pod: Raw) -> Iterator[Raw | None]:
    for volume in pod["spec"].get("volumes") or ():
        if (named := volume.get("persistentVolumeClaim")) is not None:
            name = named["claimName"]
            yield world.server.storage.get(PERSISTENT_VOLUME_CLAIM, name, NAMESPACE)


def no_claim_of_one_pod_has_two(world: "World", change: Change) -> str | None:
    """Check that no pod known to the replica on a node uses the same ReadWriteOncePod claim."""
    if change.what != "bind":
        return None
    once = {
        claim["metadata"]["name"]
        for claim in _claims(world, change.object)
        if claim is not None and "ReadWriteOncePod" in claim["spec"]["accessModes"]
    }
    own, decided_at = change.object["metadata"]["uid"], _decided_at(world, change)
    for name in world.books.nodes if once else ():
        for other in known_pods(world, change.by, name, decided_at):
            if other.uid != own and _decided_before(world, change, other.uid, decided_at):
                names = {
                    volume["persistentVolumeClaim"]["claimName"]
                    for volume in _volumes(world, other)
                }
                if both := names & once:
                    return f"{change.name} is bound, and {other.key} uses {sorted(both)}"
    return None


def _volumes(world: "World", pod: PodSeen) -> list[Raw]:
    volumes = world.books.raw[pod.uid]["spec"].get("volumes") or ()
    return [volume for volume in volumes if "persistentVolumeClaim" in volume]


def _decided_at(world: "World", change: Change) -> float:
    return world.decisions.decided_at(change.by, change.object["metadata"]["uid"], change.at)


def _decided_before(world: "World", change: Change, uid: str, at: float) -> bool:
    """Return whether the other pod was bound, or decided by this replica, before this time."""
    bound_at = world.books.bound_at.get(uid, at)
    return min(world.decisions.decided_at(change.by, uid, bound_at), bound_at) < at - 1.0


def _attached(world: "World", pod: PodSeen) -> set[str]:
    found = (claim for claim in _claims(world, world.books.raw[pod.uid]) if claim is not None)
    names = {claim["spec"].get("volumeName", "") for claim in found}
    volumes = (world.server.storage.get(PERSISTENT_VOLUME, name) for name in names)
    return {v["metadata"]["name"] for v in volumes if v is not None and "csi" in v["spec"]}


def no_node_has_more_volumes_than_it_can_attach(world: "World", change: Change) -> str | None:
    """Check the volumes of the node's known pods against the highest known limit."""
    if change.what != "bind":
        return None
    own, node = PodSeen.read(change.object), change.object["spec"]["nodeName"]
    limits = [
        driver["allocatable"]["count"]
        for raw in _known(world, change.by, CSI_NODE, node)
        for driver in raw["spec"]["drivers"]
        if driver["name"] == DRIVER
    ]
    mine = _attached(world, own)
    if not limits or not mine:
        return None
    volumes, decided_at = set(mine), _decided_at(world, change)
    for other in known_pods(world, change.by, node, decided_at):
        if other.uid == own.uid or _decided_before(world, change, other.uid, decided_at):
            volumes |= _attached(world, other)
    if len(volumes) <= max(limits):
        return None
    return f"{node} has {sorted(volumes)} with {change.name}, and attaches {max(limits)}"


def _known(world: "World", identity: str, resource: Resource, name: str) -> list[Raw]:
    """Return the versions of an object that the replica may have known lately."""
    at = world.timeline.now - 3.0 * LATE_SECONDS  # claims are waited for before the Binding
    told, found = world.server.watches.told(identity, resource, at=at), list[Raw]()
    for change in reversed(world.server.storage.history):
        if change.resource is resource and change.object["metadata"]["name"] == name:
            found.append(change.object)
            if change.version <= told:
                break
    return found


def no_volume_is_asked_for_where_there_is_no_space(world: "World", change: Change) -> str | None:
    """Check the free space of the node that a replica selects for a claim."""
    if change.resource is not PERSISTENT_VOLUME_CLAIM or change.before is None:
        return None
    raw, by_replica = change.object, change.by.partition("-")[0] in world.replicas
    node = (raw["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    before = (change.before["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    if not by_replica or node is None or node == before:
        return None
    wanted = int(raw["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    for space in world.server.storage.all(CSI_STORAGE_CAPACITY):
        same = space["storageClassName"] == raw["spec"]["storageClassName"]
        is_there = space["nodeTopology"]["matchLabels"][HOSTNAME] == node
        if same and is_there and int(space["capacity"].removesuffix("Gi")) < wanted:
            return f"{change.name} wants {wanted}Gi on {node}, which has {space['capacity']}"
    return None


def no_volume_is_held_for_a_pod_that_is_not_bound(world: "World") -> str | None:
    """Check that no volume is assumed for a pod that waits for its next attempt."""
    for identity, engine in engines(world):
        scheduler = engine.scheduler
        for raw in world.server.storage.all(POD):
            uid = Uid(raw["metadata"]["uid"])
            if raw["spec"].get("nodeName") or uid in scheduler.being_bound:
                continue
            if uid not in scheduler.state.pods.assumed and scheduler.state.storage.volumes.holds(
                uid
            ):
                return f"{identity} holds volumes for {raw['metadata']['name']} ({uid})"
    return None


def no_volume_is_held_for_a_pod_that_is_queued(world: "World", sent: "Sent") -> str | None:
    """Check that the sending replica assumes no volumes for pods between two attempts."""
    engine = engine_of(world, sent.identity)
    if engine is None:
        return None
    scheduler = engine.scheduler
    for queued in scheduler.queue:
        uid = queued.pod.uid
        is_tried = queued.queue is None or uid in scheduler.state.pods.assumed
        if is_tried or uid in scheduler.being_bound:
            continue
        if scheduler.state.storage.volumes.holds(uid):
            return f"{sent.identity} holds volumes for {queued.pod.key} ({uid})"
    return None


def every_pod_whose_claims_would_do_is_bound(world: "World") -> str | None:
    """Check that no pod waits if a node has room for it and its volumes."""
    books = world.books
    for raw in world.server.storage.all(POD):
        pod = PodSeen.read(raw)
        if "with-volumes" not in (raw["metadata"].get("labels") or {}):
            continue
        if pod.node or pod.leaving or pod.finished or pod.scheduler not in books.profiles:
            continue
        claims = [*_claims(world, raw)]
        usable = [c for c in claims if c is not None and "deletionTimestamp" not in c["metadata"]]
        if len(usable) < len(claims) or any(_is_in_use(world, claim) for claim in usable):
            continue
        fitting = [n for n in books.nodes if _would_do(world, n, usable) and books.takes(n, pod)]
        if fitting and not kept_for_others(books, pod, fitting):
            return f"{pod.key} ({pod.uid}) waits, and {fitting} would take it with its volumes"
    return None


def _is_in_use(world: "World", claim: Raw) -> bool:
    """Return whether the claim is ReadWriteOncePod and a pod on a node uses it."""
    if "ReadWriteOncePod" not in claim["spec"]["accessModes"]:
        return False
    name = claim["metadata"]["name"]
    there = (pod for pods in world.books.on_node.values() for pod in pods.values())
    return any(
        volume["persistentVolumeClaim"]["claimName"] == name
        for pod in there
        for volume in _volumes(world, pod)
    )


def _would_do(world: "World", node: str, claims: list[Raw]) -> bool:
    """Return whether all claims are usable on the node; unbound ones need a new volume there."""
    storage = world.server.storage
    there = {v for pod in world.books.on_node[node].values() for v in _attached(world, pod)}
    for claim in claims:
        annotations = claim["metadata"].get("annotations") or {}
        volume = storage.get(PERSISTENT_VOLUME, claim["spec"].get("volumeName", ""))
        if claim["spec"]["storageClassName"] == "now" and volume is None:
            return False
        if volume is None and annotations.get(SELECTED_NODE, node) != node:
            return False  # it is being made elsewhere
        if volume is not None and (BIND_COMPLETED not in annotations or not _reaches(volume, node)):
            return False
        if volume is None and not _has_space(world, node, claim):
            return False
        there.add(volume["metadata"]["name"] if volume is not None else claim["metadata"]["name"])
    drivers = storage.get(CSI_NODE, node)
    counts = (
        [each["allocatable"]["count"] for each in drivers["spec"]["drivers"]] if drivers else []
    )
    return bool(counts) and len(there) <= counts[0]


def _reaches(volume: Raw, node: str) -> bool:
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    return any(node in term["values"] for term in terms)


def _has_space(world: "World", node: str, claim: Raw) -> bool:
    spaces = [*world.server.storage.all(CSI_STORAGE_CAPACITY)]
    wanted = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    return not spaces or any(
        space["nodeTopology"]["matchLabels"][HOSTNAME] == node
        and int(space["capacity"].removesuffix("Gi")) >= wanted
        for space in spaces
    )
