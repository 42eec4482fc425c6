"""The invariants of claims and volumes. How to add one: see `simulation.invariants`."""

from typing import TYPE_CHECKING

from mooring.kube.api_resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from mooring.model.node import HOSTNAME
from mooring.volumes.model.storage_objects import BIND_COMPLETED
from simulation.scenario import NAMESPACE
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World


def no_volume_is_taken_from_its_claim(world: "World", change: Change) -> str | None:
    """Check that a volume reserved for an existing claim is not given to another claim."""
    if change.resource is not PERSISTENT_VOLUME or change.before is None or change.after is None:
        return None
    before = change.before["spec"].get("claimRef") or {}
    after = change.after["spec"].get("claimRef") or {}
    if not before.get("uid") or before["uid"] == after.get("uid"):
        return None
    claim = world.server.storage.get(PERSISTENT_VOLUME_CLAIM, before["name"], before["namespace"])
    if claim is None or claim["metadata"]["uid"] != before["uid"]:
        return None
    return f"{change.name} was kept for {before['name']}, and {change.by} gives it to {after}"


def the_volumes_of_a_bound_pod_are_on_its_node(world: "World", change: Change) -> str | None:
    """Check that each claim of the pod is bound to a volume that its node can use."""
    if change.what != "bind":
        return None
    node = change.object["spec"]["nodeName"]
    for volume in change.object["spec"].get("volumes") or ():
        name = volume["persistentVolumeClaim"]["claimName"]
        claim = world.server.storage.get(PERSISTENT_VOLUME_CLAIM, name, NAMESPACE)
        if claim is None:
            continue  # it was deleted while the pod was on its way, which nothing forbids
        bound = (claim["metadata"].get("annotations") or {}).get(BIND_COMPLETED)
        found = world.server.storage.get(PERSISTENT_VOLUME, claim["spec"].get("volumeName", ""))
        if not bound or (found is not None and node not in _hosts(found)):
            where = _hosts(found) if found is not None else "no volume"
            return f"{change.name} is on {node}, and claim {name} has {where}"
    return None


def _hosts(volume: Raw) -> list[str]:
    """Return the nodes that can use the volume."""
    required = volume["spec"]["nodeAffinity"]["required"]
    terms = required["nodeSelectorTerms"][0]["matchExpressions"]
    return [host for term in terms if term["key"] == HOSTNAME for host in term["values"]]
