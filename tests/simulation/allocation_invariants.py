"""The invariants of claims for devices. How to add one: see `simulation.invariants`."""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Final

from faults.books import PodSeen
from mooring.claims.model.resource_claims import DeviceId
from mooring.kube.api_resources import POD, RESOURCE_CLAIM, RESOURCE_SLICE
from simulation.actors.accelerators import MEMORY, suits, wanted_memory
from simulation.actors.devices import Devices, claim_of
from simulation.actors.groups import group_of
from simulation.cluster_books import LATE_SECONDS, kept_for_others
from simulation.state_invariants import engines
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World


_GI: Final = 2**30 * 10**9
"""In billionths."""


def no_device_is_allocated_twice(world: "World", change: Change) -> str | None:
    """Check that no other claim has the device, as far as the allocating replica knew."""
    if change.resource is not RESOURCE_CLAIM or change.after is None or change.before is None:
        return None
    taken = {*_own_devices(change.after)} - {*_own_devices(change.before)}
    for claim in _known_claims(world, change) if taken else ():
        if twice := taken & {*_own_devices(claim)}:
            name = claim["metadata"]["name"]
            return f"{change.by} gives {sorted(twice)} to {change.name}: {name} has them"
    return None


def no_device_gives_more_than_it_has(world: "World", change: Change) -> str | None:
    """Check the memory of shared devices, as far as the allocating replica knew."""
    if change.resource is not RESOURCE_CLAIM or change.after is None or change.before is None:
        return None
    wanted = wanted_memory(change.after)
    for device in {*_devices(change.after)} - {*_devices(change.before)} if wanted else ():
        others = [each for each in _known_claims(world, change) if device in _devices(each)]
        used = wanted + sum(map(wanted_memory, others))
        if used > MEMORY:
            return f"{change.by} gives {device} to {change.name}, and {used} Gi of it to all"
    return None


def _known_claims(world: "World", change: Change) -> Iterator[Raw]:
    """Yield other allocated claims that the replica has allocated or knows."""
    told = world.server.watches.told(
        change.by, RESOURCE_CLAIM, at=world.timeline.now - LATE_SECONDS
    )
    for claim in world.server.storage.all(RESOURCE_CLAIM):
        uid = claim["metadata"]["uid"]
        if uid == change.object["metadata"]["uid"] or not any(_devices(claim)):
            continue
        allocated = world.actor(Devices).allocated[uid]
        if allocated.by == change.by or allocated.version <= told:
            yield claim


def the_devices_of_a_bound_pod_are_on_its_node(world: "World", change: Change) -> str | None:
    """Check that the pod's claim is allocated on its node and reserved for it before the binding.

    Claims that were deleted during the binding, or freed afterwards, are not checked.
    """
    if change.what != "bind" or not change.object["spec"].get("resourceClaims"):
        return None
    pod, claim = PodSeen.read(change.object), claim_of(world, change.object)
    if claim is None or "deletionTimestamp" in claim["metadata"] or pod.finished:
        return None
    name = claim["metadata"]["name"]
    wrong = _wrong_with(claim, pod)
    if wrong is None or _was_another(world, name, change.at):
        return None
    return f"{pod.key} is bound to {pod.node}, and claim {name} {wrong}"


def _was_another(world: "World", name: str, at: float) -> bool:
    """Return whether another claim of the name was deleted just before this time or later."""
    return world.actor(Devices).gone_at.get(name, -inf) > at - LATE_SECONDS


def _wrong_with(claim: Raw, pod: PodSeen) -> str | None:
    """Return the mistake in the claim of a pod with a node; None if it is right."""
    pools = {device.pool for device in _devices(claim)}
    if pools != {pod.node}:
        return f"has devices of {sorted(pools)}"
    consumers = {consumer["uid"] for consumer in claim["status"].get("reservedFor") or ()}
    return None if pod.uid in consumers else f"is reserved for {sorted(consumers)}"


def the_claim_of_a_bound_pod_is_reserved_for_it(world: "World") -> str | None:
    """Check that no one has removed the reservation of a bound pod."""
    for raw in world.server.storage.all(POD):
        pod = PodSeen.read(raw)
        if not raw["spec"].get("resourceClaims") or not pod.node or pod.finished or pod.leaving:
            continue
        claim = claim_of(world, raw)
        bound = world.books.bound_by.get(pod.uid)
        if claim is None or bound is None:
            continue
        name = claim["metadata"]["name"]
        wrong = _wrong_with(claim, pod)
        if wrong is not None and not _was_another(world, name, bound.at):
            return f"{pod.key} is on {pod.node}, and claim {name} {wrong}"
    return None


def no_claim_is_kept_for_a_pod_that_has_ended(world: "World") -> str | None:
    """Check that reserved claims have an existing pod, and template claims an existing owner."""
    live = {uid for uid, pod in world.books.pods.items() if not pod.finished}
    for claim in world.server.storage.all(RESOURCE_CLAIM):
        metadata = claim["metadata"]
        reserved = {consumer["uid"] for consumer in claim["status"].get("reservedFor") or ()}
        owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
        if left := (reserved | owners) - live:
            return f"{metadata['name']} is kept for {sorted(left)}"
        if reserved and not [*_devices(claim)]:
            return f"{metadata['name']} is reserved for {sorted(reserved)} without devices"
    return None


def the_devices_in_use_equal_a_recount(world: "World") -> str | None:
    """Check, when nothing is in flight, that replicas count the devices of all claims."""
    claims = world.server.storage.all(RESOURCE_CLAIM)
    there = {device for claim in claims for device in _own_devices(claim)}
    memory = _memory_in_use(world)
    for identity, engine in engines(world):
        allocated = engine.scheduler.state.dynamic_resources.claims.allocated
        counted = {*allocated.dedicated}
        if counted != there:
            more, less = sorted(counted - there), sorted(there - counted)
            return f"{identity} counts {more}, which are free, and does not count {less}"
        consumed = {device: each["memory"] / _GI for device, each in allocated.consumed.items()}
        if consumed != memory:
            return f"{identity} counts {consumed} Gi of shared devices, and {memory} are in use"
    return None


def every_pod_whose_devices_are_free_is_bound(world: "World") -> str | None:
    """Check, some time after the last fault, that no pod waits for free devices."""
    books = world.books
    for raw in world.server.storage.all(POD):
        pod = PodSeen.read(raw)
        ready = not (pod.node or pod.leaving or pod.finished)
        if not ready or not raw["spec"].get("resourceClaims") or group_of(raw) is not None:
            continue
        claim = claim_of(world, raw)
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            continue
        names = [*_nodes_for(world, claim)]
        fitting = [name for name in names if name in books.nodes and books.takes(name, pod)]
        if fitting and not kept_for_others(books, pod, fitting):
            return f"{pod.key} ({pod.uid}) waits, and the devices of {fitting} would do"
    return None


def _nodes_for(world: "World", claim: Raw) -> Iterator[str]:
    """Yield the nodes of the claim's devices, or with enough free devices for the claim."""
    if has := {device.pool for device in _devices(claim)}:
        yield from has
        return
    storage, memory = world.server.storage, _memory_in_use(world)
    used = {device for each in storage.all(RESOURCE_CLAIM) for device in _own_devices(each)}
    used |= {device for device in memory if memory[device] + wanted_memory(claim) > MEMORY}
    wanted = claim["spec"]["devices"]["requests"][0]["exactly"]["count"]
    for slice_ in storage.all(RESOURCE_SLICE):
        spec = slice_["spec"]
        pool = spec["pool"]["name"]
        devices = {
            DeviceId(spec["driver"], pool, device["name"])
            for device in spec.get("devices") or ()
            if suits(claim, device)
        }
        if len(devices - used) >= wanted:
            yield pool


def _memory_in_use(world: "World") -> Counter[DeviceId]:
    """Return the Gi of each shared device that claims use."""
    used = Counter[DeviceId]()
    for claim in world.server.storage.all(RESOURCE_CLAIM):
        if wanted := wanted_memory(claim):
            used.update(dict.fromkeys(_devices(claim), wanted))
    return used


def _own_devices(claim: Raw) -> Iterator[DeviceId]:
    """Yield the devices that the claim does not share."""
    return iter(()) if wanted_memory(claim) else _devices(claim)


def _devices(claim: Raw) -> Iterator[DeviceId]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        yield DeviceId(result["driver"], result["pool"], result["device"])
