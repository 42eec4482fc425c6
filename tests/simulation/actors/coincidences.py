"""Changes right after other changes, at moments that random times hardly meet.

Each waits for its cause: a pod finishes while it terminates; a node goes and returns under such a
pod; a claim is deleted after its node was selected; pods come and go while a claim has devices and
is reserved for no pod; a slice returns whose devices are in use; an incomplete gang loses its node
or its group.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.books import CONSTRAINED
from mooring.kube.api_resources import (
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_GROUP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Resource,
)
from mooring.testing.builders import pod
from mooring.volumes.model.storage_objects import SELECTED_NODE
from simulation.actors.claims import Claims
from simulation.actors.devices import Devices, pool_of
from simulation.actors.groups import Groups, group_of
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_KINDS: Final = {
    "finish": "",
    "node": "",
    "claim": Claims.name,
    "consumers": Devices.name,
    "slice": Devices.name,
    "group": Groups.name,
}
"""What may be waited for, and the actor without which it would be in vain."""


class Coincidences(Actor):
    """Draws the causes to wait for, in runs without a subject; each happens once."""

    name = "coincidences"

    def __init__(self) -> None:
        self._awaited: list[str] = []
        self._made = 0

    def draw(self, plan: Plan) -> None:
        """Draw some of the coincidences that other actors of the run make possible."""
        random = plan.random
        if plan.subject or plan.chance(0.4):
            return
        actors = {"", *(step.actor for step in plan.steps)}
        kinds = [kind for kind, actor in _KINDS.items() if actor in actors]
        for kind in random.sample(kinds, 2):
            plan.step(random.uniform(0.0, 0.7 * plan.seconds), self.name, "wait", kind=kind)

    def act(self, _world: "World", step: Step) -> None:
        """Begin to wait for the cause."""
        self._awaited.append(step.args["kind"])

    def calm(self, _world: "World") -> None:
        """Stop waiting for causes."""
        self._awaited.clear()

    def changed(self, world: "World", change: "Change") -> None:
        """Let the effect of the change follow a moment later, if the change is an awaited cause."""
        if not self._awaited or change.after is None or change.by == self.name:
            return
        for kind in self._awaited:
            seconds = getattr(self, f"_after_{kind}")(world, change, change.after)
            if seconds is not None:
                self._awaited.remove(kind)
                follow = getattr(self, f"_{kind}")
                world.after(seconds, partial(self._follow, world, follow, change.after))
                return

    def _follow(self, world: "World", follow: Any, raw: "Raw") -> None:
        if not world.is_calm:
            follow(world, raw)

    def _after_finish(self, world: "World", change: "Change", raw: "Raw") -> float | None:
        return 0.02 if change.resource is POD and _terminates(world, raw) else None

    def _finish(self, world: "World", raw: "Raw") -> None:
        if (found := _found(world, POD, raw)) is not None:
            world.server.change(POD, found, self.name, {"status": {"phase": "Succeeded"}})

    def _after_node(self, world: "World", change: "Change", raw: "Raw") -> float | None:
        return 0.02 if change.resource is POD and _terminates(world, raw) else None

    def _node(self, world: "World", raw: "Raw") -> None:
        node = world.server.storage.get(NODE, raw["spec"]["nodeName"])
        if node is not None and _found(world, POD, raw) is not None:
            world.server.delete(NODE, node, self.name)
            world.after(0.03, partial(world.server.create, NODE, _anew(node), self.name))

    def _after_claim(self, _world: "World", change: "Change", raw: "Raw") -> float | None:
        if change.resource is not PERSISTENT_VOLUME_CLAIM or "volumeName" in raw["spec"]:
            return None
        return 0.0 if SELECTED_NODE in (raw["metadata"].get("annotations") or {}) else None

    def _claim(self, world: "World", raw: "Raw") -> None:
        if (found := _found(world, PERSISTENT_VOLUME_CLAIM, raw)) is not None:
            world.server.delete(PERSISTENT_VOLUME_CLAIM, found, self.name)

    def _after_consumers(self, _world: "World", change: "Change", raw: "Raw") -> float | None:
        if change.resource is not RESOURCE_CLAIM or raw["metadata"].get("ownerReferences"):
            return None
        return 1.0 if pool_of(raw) and raw["status"].get("reservedFor") else None

    def _consumers(self, world: "World", raw: "Raw") -> None:
        """Remove the claim's consumers, create two new ones, and remove one of them at once.

        In between the claim has devices and no reservation, as after a failed attempt.
        """
        claim = _found(world, RESOURCE_CLAIM, raw)
        if claim is None or not pool_of(claim):
            return
        consumers = {each["uid"] for each in claim["status"].get("reservedFor") or ()}
        for found in world.server.storage.all(POD):
            if found["metadata"]["uid"] in consumers:
                world.server.remove(POD, found, self.name)
        free = {"status": {"reservedFor": None}}
        world.server.change(RESOURCE_CLAIM, claim, self.name, free)
        for goes in (True, False):
            self._made += 1
            entry = {"name": "device", "resourceClaimName": claim["metadata"]["name"]}
            labels = {CONSTRAINED: "by its devices"}
            spec = {"schedulerName": SCHEDULER, "resourceClaims": [entry]}
            name = f"late-{self._made}"
            consumer = pod(name, namespace=NAMESPACE, cpu="100m", labels=labels, spec=spec)
            made = world.server.create(POD, consumer, self.name)
            if made is not None and goes:
                world.server.remove(POD, made, self.name)

    def _after_slice(self, _world: "World", change: "Change", raw: "Raw") -> float | None:
        return 0.02 if change.resource is RESOURCE_CLAIM and pool_of(raw) else None

    def _slice(self, world: "World", raw: "Raw") -> None:
        pool = pool_of(raw)
        for found in world.server.storage.all(RESOURCE_SLICE):
            if found["spec"]["pool"]["name"] == pool:
                world.server.delete(RESOURCE_SLICE, found, self.name)
                world.after(
                    0.03, partial(world.server.create, RESOURCE_SLICE, _anew(found), self.name)
                )

    def _after_group(self, world: "World", change: "Change", raw: "Raw") -> float | None:
        """Return the effect's delay if this change binds the last needed member; else None."""
        if change.what != "bind" or (name := group_of(raw)) is None:
            return None
        group = world.server.storage.get(POD_GROUP, name, NAMESPACE)
        if group is None:
            return None
        least = group["spec"]["schedulingPolicy"]["gang"]["minCount"]
        return 2.0 if len(_bound(world, name)) >= max(least, 2) else None

    def _group(self, world: "World", raw: "Raw") -> None:
        """Remove all bound members but one, then replace the group and its last member's node."""
        name = str(group_of(raw))
        group = world.server.storage.get(POD_GROUP, name, NAMESPACE)
        first, *others = _bound(world, name) or (None,)
        if group is None or first is None:
            return
        for other in others:
            world.server.remove(POD, other, self.name)
        world.server.delete(POD_GROUP, group, self.name)
        world.server.create(POD_GROUP, _anew(group), self.name)
        node = world.server.storage.get(NODE, first["spec"]["nodeName"])
        if node is not None:
            world.server.delete(NODE, node, self.name)
            world.after(1.0, partial(world.server.create, NODE, _anew(node), self.name))


def _terminates(world: "World", raw: "Raw") -> bool:
    """Return whether the pod is on a node and terminating."""
    ended = raw["status"].get("phase") in {"Succeeded", "Failed"}
    terminates = "deletionTimestamp" in raw["metadata"] and not ended
    node = raw["spec"].get("nodeName")
    return terminates and bool(node) and world.server.storage.get(NODE, node) is not None


def _found(world: "World", resource: Resource, raw: "Raw") -> "Raw | None":
    """Return the object's current version; None if it is gone."""
    metadata = raw["metadata"]
    found = world.server.storage.get(resource, metadata["name"], metadata.get("namespace"))
    return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None


def _bound(world: "World", group: str) -> "list[Raw]":
    pods = world.server.storage.all(POD)
    return [raw for raw in pods if group_of(raw) == group and raw["spec"].get("nodeName")]


def _anew(raw: "Raw") -> "Raw":
    """Return a new object with the name and the content of a deleted one."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: raw["metadata"][name] for name in kept if name in raw["metadata"]}
    return {**raw, "metadata": metadata}
