"""A subject: pods with several volumes, drivers with limits, and claims that come late.

A claim of the class `csi` gets a volume of a driver on the selected node; the driver has a limit
and limited space there. A claim of the class `now` is bound some time after its creation, to a
volume that every node can use. Some claims are ReadWriteOncePod, and two pods name them.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.books import CONSTRAINED
from mooring.kube.api_resources import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from mooring.model.node import HOSTNAME
from mooring.testing.builders import pod
from mooring.volumes.model.storage_objects import BIND_COMPLETED, SELECTED_NODE
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


DRIVER: Final = "disks.example.com"
_LATER: Final = "csi"
_NOW: Final = "now"
_WRITES: Final = ("patch persistentvolumeclaims", "patch persistentvolumes", "bind", "bind")
_OUTCOMES: Final = ("lost", "answer lost", "unavailable", "failed", "quota", "timed out late")


class Volumes(Actor):
    """The driver, its provisioner, the claims and the pods."""

    name = "volumes"

    def __init__(self) -> None:
        self._made = 0

    def draw(self, plan: Plan) -> None:
        """Draw the driver's limits, then claims and pods in any order."""
        random = plan.random
        if plan.subject != self.name:
            return
        nodes = plan.nodes[:3]
        for name in nodes:
            rest = {"pods": 20, "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=8, **rest)
        limits = {name: random.choice((1, 2, 3)) for name in nodes}
        space = {name: random.choice((1, 2, 8)) for name in nodes} if plan.chance(0.5) else {}
        plan.step(0.0, self.name, "driver", limits=limits, space=space)
        shared = random.choice(("ReadWriteOncePod", "ReadWriteOnce"))
        for number in range(random.randint(2, 5)):
            at, names = plan.time() * 0.7, [f"x{number}-{i}" for i in range(random.choice((1, 2)))]
            for name in names:
                kind = random.choice((_LATER, _LATER, _NOW))
                later = max(0.0, at + random.choice((-0.5, 0.0, 0.3, 6.0)))
                mode = shared if plan.chance(0.5) else "ReadWriteOnce"
                size = random.choice((1, 1, 4))
                plan.step(later, self.name, "claim", name=name, kind=kind, mode=mode, size=size)
            for index in range(random.choice((1, 1, 2))):
                plan.step(at, self.name, "pod", name=f"x{number}-p{index}", claims=names)
                if plan.chance(0.5):
                    later = at + random.uniform(2.0, 25.0)
                    does = random.choice(("delete", "remove"))
                    plan.step(later, self.name, does, name=f"x{number}-p{index}")
        if plan.chance(0.5):
            node, limit = random.choice(nodes), random.choice((1, 4))
            plan.step(plan.time(), self.name, "limit", node=node, limit=limit)
        for _ in range(random.choice((0, 1, 2))):
            rule = {"what": random.choice(_WRITES), "replica": "", "times": random.choice((1, 3))}
            seconds = {"seconds": 0.5, "lasts": 8.0}
            outcome = random.choice(_OUTCOMES)
            plan.step(plan.time(), "faults", "requests", outcome=outcome, **rule, **seconds)

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _driver(self, world: "World", limits: dict[str, int], space: dict[str, int]) -> None:
        server = world.server
        server.create(STORAGE_CLASS, storage_class(_LATER, provisioner=DRIVER), self.name)
        at_once = storage_class(_NOW, provisioner=DRIVER, waits=False)
        server.create(STORAGE_CLASS, at_once, self.name)
        server.create(CSI_DRIVER, csi_driver(DRIVER, storage_capacity=bool(space)), self.name)
        for node, limit in limits.items():
            server.create(CSI_NODE, csi_node(node, {DRIVER: limit}), self.name)
        for node, size in space.items():
            raw = storage_capacity(f"on-{node}", _LATER, f"{size}Gi", {HOSTNAME: node})
            server.create(CSI_STORAGE_CAPACITY, raw, self.name)

    def _limit(self, world: "World", node: str, limit: int) -> None:
        raw = world.server.storage.get(CSI_NODE, node)
        if raw is not None:
            drivers = csi_node(node, {DRIVER: limit})["spec"]["drivers"]
            world.server.change(CSI_NODE, raw, self.name, {"spec": {"drivers": drivers}})

    def _claim(self, world: "World", name: str, kind: str, mode: str, size: int) -> None:
        raw = pvc(name, namespace=NAMESPACE, storage_class=kind, modes=[mode], size=f"{size}Gi")
        made = world.server.create(PERSISTENT_VOLUME_CLAIM, raw, self.name)
        if made is not None and kind == _NOW:
            world.after(
                world.random.choice((0.05, 1.0, 5.0)), partial(self._provision, world, made)
            )

    def _pod(self, world: "World", name: str, claims: list[str]) -> None:
        raw = pod(
            name,
            namespace=NAMESPACE,
            cpu="100m",
            claims=claims,
            labels={CONSTRAINED: "by its claims", "with-volumes": "yes"},
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)

    def _delete(self, world: "World", name: str) -> None:
        raw = world.server.storage.get(POD, name, NAMESPACE)
        if raw is not None:
            world.server.delete(POD, raw, self.name)

    def _remove(self, world: "World", name: str) -> None:
        raw = world.server.storage.get(POD, name, NAMESPACE)
        if raw is not None:
            world.server.remove(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Create the volume of a claim whose node was selected."""
        if change.resource is not PERSISTENT_VOLUME_CLAIM or change.after is None:
            return
        raw = change.after
        selected = SELECTED_NODE in (raw["metadata"].get("annotations") or {})
        is_late = raw["spec"]["storageClassName"] == _LATER
        if is_late and selected and "volumeName" not in raw["spec"]:
            delay = world.random.choice((0.05, 0.5))
            world.after(delay, partial(self._provision, world, raw))

    def _provision(self, world: "World", raw: "Raw") -> None:
        """Create a volume and bind it; the selected node (or every node) can use it."""
        server, metadata = world.server, raw["metadata"]
        found = server.storage.get(PERSISTENT_VOLUME_CLAIM, metadata["name"], NAMESPACE)
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return
        if "volumeName" in found["spec"]:
            return
        self._made += 1
        node = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        nodes = [node] if node else [each["metadata"]["name"] for each in _nodes(world)]
        name, kind = f"disk-{self._made}", found["spec"]["storageClassName"]
        volume = pv(
            name,
            storage_class=kind,
            modes=found["spec"]["accessModes"],
            nodes=nodes,
            claim=f"{NAMESPACE}/{metadata['name']}",
            spec={"csi": {"driver": DRIVER, "volumeHandle": name}},
        )
        volume["spec"]["claimRef"]["uid"] = metadata["uid"]
        server.create(PERSISTENT_VOLUME, volume, self.name)
        patch: dict[str, Any] = {
            "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": name},
            "status": {"phase": "Bound"},
        }
        server.change(PERSISTENT_VOLUME_CLAIM, found, self.name, patch)


def _nodes(world: "World") -> "list[Raw]":
    return [*world.server.storage.all(NODE)]
