"""Pods with PersistentVolumeClaims: local volumes, provisioned volumes, and their controllers."""

from typing import TYPE_CHECKING, Any, Final

from faults.books import CONSTRAINED
from mooring.kube.api_resources import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from mooring.testing.builders import pod
from mooring.volumes.model.storage_objects import BIND_COMPLETED, SELECTED_NODE
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step
from storage_builders import pv, pvc, storage_class

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_LOCAL: Final = "local"
_MADE: Final = "made"
_PROVISIONER: Final = "simulation.example"


class Claims(Actor):
    """Claims that wait for their first consumer, the pods that use them, and both controllers.

    The volume controller binds a claim to the volume whose claimRef names it. The provisioner
    creates a volume on the selected node, or removes the annotation that selects the node.
    """

    name = "claims"

    def __init__(self) -> None:
        self._made = 0
        self._fails = 0

    def draw(self, plan: Plan) -> None:
        """Draw volumes, claims and pods for some runs; pods and claims leave and return."""
        random = plan.random
        if plan.chance(0.6):
            return
        plan.step(0.0, self.name, "classes", fails=random.choice((0, 0, 1, 3)))
        for number in range(random.randint(0, 4)):
            node = random.choice(plan.nodes)
            plan.step(plan.time() * 0.3, self.name, "volume", name=f"v{number}", node=node)
        for number in range(random.randint(1, 5)):
            at, name = plan.time(), f"c{number}"
            kind = random.choice((_LOCAL, _MADE))
            plan.step(at, self.name, "claim", name=name, kind=kind)
            shift = random.choice((-0.3, 0.0, 0.0, 0.5))
            cpu = random.choice(("100m", "1", "2"))
            plan.step(max(0.0, at + shift), self.name, "pod", name=name, cpu=cpu)
            for _ in range(random.choice((0, 0, 1, 3))):
                later = at + random.expovariate(1.0) * random.choice((0.02, 3.0))
                does = random.choice(("leave", "return", "return", "unclaim", "relabel"))
                plan.step(later, self.name, does, name=name, cpu=cpu, kind=kind)

    def act(self, world: "World", step: Step) -> None:
        server, args = world.server, step.args
        if step.does == "classes":
            self._fails = args["fails"]
            server.create(STORAGE_CLASS, storage_class(_LOCAL), self.name)
            made = storage_class(_MADE, provisioner=_PROVISIONER)
            server.create(STORAGE_CLASS, made, self.name)
        elif step.does == "volume":
            raw = pv(args["name"], storage_class=_LOCAL, nodes=[args["node"]])
            server.create(PERSISTENT_VOLUME, raw, self.name)
        elif step.does == "claim":
            self._claim(world, args)
        elif step.does == "pod":
            self._pod(world, args)
        else:
            self._do(world, step.does, args)

    def _do(self, world: "World", does: str, args: Any) -> None:
        server = world.server
        found = server.storage.get(POD, args["name"], NAMESPACE)
        if does in {"leave", "return"} and found is not None:
            remove = server.remove if does == "return" else server.delete
            remove(POD, found, self.name)
        if does == "return":
            self._pod(world, args)
        claim = server.storage.get(PERSISTENT_VOLUME_CLAIM, args["name"], NAMESPACE)
        if does == "relabel" and claim is not None:
            labels = {"metadata": {"labels": {"changed": "yes"}}}
            server.change(PERSISTENT_VOLUME_CLAIM, claim, self.name, labels)
        if does == "unclaim" and claim is not None and found is None:
            server.delete(PERSISTENT_VOLUME_CLAIM, claim, self.name)
            world.after(1.0, lambda: self._claim(world, args))

    def _claim(self, world: "World", args: Any) -> None:
        raw = pvc(args["name"], namespace=NAMESPACE, storage_class=args["kind"])
        world.server.create(PERSISTENT_VOLUME_CLAIM, raw, self.name)

    def _pod(self, world: "World", args: Any) -> None:
        raw = pod(
            args["name"],
            namespace=NAMESPACE,
            cpu=args["cpu"],
            claims=[args["name"]],
            labels={CONSTRAINED: "by its claim"},
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Bind claims, create volumes, and free the volumes of deleted claims."""
        delay = world.random.choice((0.001, 0.05, 1.0))
        if change.resource is PERSISTENT_VOLUME and change.after is not None:
            if "claimRef" in change.after["spec"]:
                world.after(delay, lambda: self._bind(world, change.object))
        elif change.resource is PERSISTENT_VOLUME_CLAIM:
            raw = change.object
            if change.after is None:
                world.after(delay, lambda: self._release(world, raw))
            elif SELECTED_NODE in _annotations(raw) and "volumeName" not in raw["spec"]:
                before = _annotations(change.before) if change.before is not None else {}
                if SELECTED_NODE not in before:
                    world.after(delay, lambda: self._provision(world, raw))

    def _bind(self, world: "World", volume: "Raw") -> None:
        """Bind the claim that the volume's claimRef names, as the controller of volumes does."""
        server, name = world.server, volume["metadata"]["name"]
        found = server.storage.get(PERSISTENT_VOLUME, name)
        wanted = found["spec"].get("claimRef") if found is not None else None
        if wanted is None:
            return
        claim = server.storage.get(PERSISTENT_VOLUME_CLAIM, wanted["name"], wanted["namespace"])
        if claim is None or claim["metadata"]["uid"] != wanted["uid"]:
            return
        if "volumeName" not in claim["spec"]:
            patch = {
                "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
                "spec": {"volumeName": name},
                "status": {"phase": "Bound"},
            }
            server.change(PERSISTENT_VOLUME_CLAIM, claim, self.name, patch)

    def _provision(self, world: "World", claim: "Raw") -> None:
        """Create a volume on the selected node, or remove the selection."""
        server, metadata = world.server, claim["metadata"]
        found = server.storage.get(PERSISTENT_VOLUME_CLAIM, metadata["name"], NAMESPACE)
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return
        node, spec = _annotations(found).get(SELECTED_NODE), found["spec"]
        if node is None or "volumeName" in spec or spec["storageClassName"] != _MADE:
            return
        if self._fails and not world.is_calm:
            self._fails -= 1
            patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            server.change(PERSISTENT_VOLUME_CLAIM, found, self.name, patch)
            return
        self._made += 1
        key = f"{NAMESPACE}/{metadata['name']}"
        raw = pv(f"made-{self._made}", storage_class=_MADE, nodes=[node], claim=key)
        raw["spec"]["claimRef"]["uid"] = metadata["uid"]
        server.create(PERSISTENT_VOLUME, raw, self.name)

    def _release(self, world: "World", claim: "Raw") -> None:
        """Free the volume of a deleted claim."""
        for volume in world.server.storage.all(PERSISTENT_VOLUME):
            wanted = volume["spec"].get("claimRef") or {}
            if wanted.get("uid") == claim["metadata"]["uid"]:
                world.server.delete(PERSISTENT_VOLUME, volume, self.name)


def _annotations(raw: "Raw") -> dict[str, str]:
    return raw["metadata"].get("annotations") or {}
