"""The invariants of chosen devices and of claims for extended resources.

How to add one: see `simulation.invariants`.
"""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Final

from faults.books import Amount, PodSeen
from mooring.claims.model.resource_claims import FINALIZER
from mooring.kube.api_resources import POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mooring.model.pod import Uid
from simulation.actors.accelerators import EXTENDED, suits
from simulation.actors.devices import pool_of
from simulation.scenario import NAMESPACE
from simulation.state_invariants import leader
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World


_LOOK_SECONDS: Final = 0.1
_LEAVES_SECONDS: Final = 0.3
_LEAVES_MESSAGES: Final = 12
"""A claim is read, freed of its finalizer and deleted within so long, and so many messages."""


def _allocated(world: "World", change: Change) -> bool:
    """Return whether this change is a replica's allocation of devices to a claim."""
    by_replica = change.by.partition("-")[0] in world.replicas
    if change.resource is not RESOURCE_CLAIM or change.after is None or change.before is None:
        return False
    return by_replica and bool(pool_of(change.after)) and not pool_of(change.before)


def no_claim_has_devices_without_the_finalizer(world: "World", change: Change) -> str | None:
    """Check that an allocated claim has the finalizer, so that it cannot vanish."""
    if not _allocated(world, change):
        return None
    finalizers = change.object["metadata"].get("finalizers") or ()
    return None if FINALIZER in finalizers else f"{change.name} has {list(finalizers)}"


def a_claim_gets_devices_that_suit_it(world: "World", change: Change) -> str | None:
    """Check the attributes and taints of each allocated device."""
    if not _allocated(world, change):
        return None
    known = {(pool, one["name"]): one for pool, one in _devices(world)}
    for result in change.object["status"]["allocation"]["devices"]["results"]:
        one = known.get((result["pool"], result["device"]))
        if one is not None and not suits(change.object, one):
            return f"{change.name} gets {one}"
    return None


def _devices(world: "World") -> Iterator[tuple[str, Raw]]:
    """Yield each device with its pool, whose name is the node's."""
    for slice_ in world.server.storage.all(RESOURCE_SLICE):
        for one in slice_["spec"].get("devices") or ():
            yield slice_["spec"]["pool"]["name"], one


def _wanted(raw: Raw) -> int:
    return int((raw["metadata"].get("labels") or {}).get("extended", 0))


def the_extended_resources_of_a_bound_pod_are_on_its_node(
    world: "World", change: Change
) -> str | None:
    """Check that the bound pod names a claim with enough devices of its node."""
    if change.what != "bind" or not _wanted(change.object):
        return None
    status = change.object["status"].get("extendedResourceClaimStatus") or {}
    name, node = status.get("resourceClaimName", ""), change.object["spec"]["nodeName"]
    claim = world.server.storage.get(RESOURCE_CLAIM, name, NAMESPACE)
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return f"{change.name} is bound to {node}, and has no claim {name}"
    results = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results", ())
    pools = [result["pool"] for result in results]
    if pools == [node] * _wanted(change.object):
        return None
    return f"{change.name} is bound to {node}, and {name} has devices of {pools}"


def no_claim_for_extended_resources_is_left(world: "World") -> str | None:
    """Check that each such claim belongs to a pod with a node."""
    bound = {
        raw["metadata"]["uid"]
        for raw in world.server.storage.all(POD)
        if raw["spec"].get("nodeName")
    }
    for claim in world.server.storage.all(RESOURCE_CLAIM):
        is_made = "generateName" in claim["metadata"]
        owners = [owner["uid"] for owner in claim["metadata"].get("ownerReferences") or ()]
        if is_made and not bound.issuperset(owners):
            return f"{claim['metadata']['name']} is left of {owners}"
    return None


def no_claim_outlives_the_attempt_for_it(world: "World", change: Change) -> str | None:
    """Check repeatedly that a claim created by a replica does not stay while its pod waits."""
    by_replica = change.by.partition("-")[0] in world.replicas
    if change.resource is RESOURCE_CLAIM and change.verb == "ADDED" and by_replica:
        _look(world, change, inf)
    return None


def _look(world: "World", created: Change, since: float) -> None:
    """Check whether the claim still exists; `since` is when this was first seen.

    After a failed write of claims, the claim may stay until the next attempt.
    """
    now, network = world.timeline.now, world.network
    stays = _stays(world, created)
    about_claims = (
        at
        for what, at in network.failed_at.items()
        if not what or "resourceclaims" in what or what.startswith("connect")
    )
    if stays is None or any(at >= created.at for at in about_claims):
        return
    since = min(since, now) if stays else inf
    if now > since + _LEAVES_SECONDS + _LEAVES_MESSAGES * network.latency:
        world.fail(
            "no claim outlives the attempt for it: "
            f"{created.name} is left by {created.by} since {since - world.began:.3f}"
        )
        return
    world.after(_LOOK_SECONDS, lambda: _look(world, created, since))


def _stays(world: "World", created: Change) -> bool | None:
    """Return whether the claim's pod waits and no attempt is running.

    Returns None if the claim is gone or in use, or if its replica no longer leads.
    """
    owner = created.object["metadata"]["ownerReferences"][0]["uid"]
    claim = world.server.storage.get(RESOURCE_CLAIM, created.name.rpartition("/")[2], NAMESPACE)
    pod, found = world.books.pods.get(owner), leader(world)
    if claim is None or pod is None or pod.node or found is None or found[0] != created.by:
        return None
    scheduler, process = found[1].scheduler, world.replicas[created.by.partition("-")[0]]
    waits = scheduler.queue.get(Uid(owner)) is not None
    is_tried = owner in scheduler.being_bound or scheduler.state.pods.get(Uid(owner)) is not None
    return waits and not is_tried and process.paused_until < world.timeline.now


def every_pod_whose_extended_resources_are_free_is_bound(world: "World") -> str | None:
    """Check that no pod waits for devices while a node has enough free devices."""
    books = world.books
    used = {
        (result["pool"], result["device"])
        for claim in world.server.storage.all(RESOURCE_CLAIM)
        for result in ((claim["status"].get("allocation") or {}).get("devices") or {}).get(
            "results", ()
        )
    }
    for raw in world.server.storage.all(POD):
        pod, wanted = PodSeen.read(raw), _wanted(raw)
        if not wanted or pod.node or pod.leaving or pod.finished:
            continue
        if pod.scheduler not in books.profiles:
            continue
        for name in books.nodes:
            free = [
                one
                for pool, one in _devices(world)
                if pool == name and (pool, one["name"]) not in used and suits({"metadata": {}}, one)
            ]
            plain = Amount(pod.need.cpu, pod.need.memory, 1)
            if len(free) >= wanted and books.free(name).covers(plain):
                return f"{pod.key} ({pod.uid}) waits for {EXTENDED}, and {name} has {len(free)}"
    return None
