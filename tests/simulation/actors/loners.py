"""A pod that must not be beside certain other pods, which are on every node and leave.

Only one side has the anti-affinity: the pod or the others. No other rule keeps the pod from a node,
so only their leaving can cause a retry. At times kopf's watch is late and the pod finishes soon: it
has ended when kopf shows an older version of it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from faults.books import PodSeen
from mooring.kube.api_resources import NODE, POD
from mooring.model.node import HOSTNAME, ZONE
from mooring.testing.builders import pod
from simulation.cluster_books import BOUND_BY_ANOTHER
from simulation.kopf_stream import KOPF
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


_ROLE: Final = "role"
_LONER: Final = "loner"
_CROWD: Final = "crowd"
_LATE_SECONDS: Final = 4.0
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class Loners(Actor):
    """Binds pods to each node, creates one pod that must not be there, and removes the others."""

    name = "loners"

    def __init__(self) -> None:
        self._soon_finished = set[str]()

    def draw(self, plan: Plan) -> None:
        """Draw nodes, the side with anti-affinity, and the removal, in runs about this subject."""
        random = plan.random
        if plan.subject != self.name:
            return
        for name in plan.nodes:
            rest = {"pods": 20, "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=4, **rest)
        for number in range(random.choice((1, 1, 2))):
            at, key = plan.time() * 0.7, random.choice((HOSTNAME, HOSTNAME, ZONE))
            drawn = {"number": number, "says": random.choice((_LONER, _LONER, _CROWD)), "key": key}
            plan.step(at, self.name, "crowd", **drawn)
            plan.step(at + random.choice((-0.01, 0.5, 3.0)), self.name, "come", **drawn)
            later = at + random.uniform(4.0, 15.0)
            does = random.choice(("remove", "delete", "delete", "relabel"))
            plan.step(later, self.name, does, number=number, most=random.choice((1, 9)))
            if plan.chance(0.4):
                plan.step(later - 0.1, self.name, "late", number=number)

    def act(self, world: "World", step: Step) -> None:
        args = step.args
        if step.does == "crowd":
            self._bind_crowd(world, args["number"], args["says"], args["key"])
        elif step.does == "come":
            raw = _pod(_LONER, args["number"], args["says"], args["key"])
            world.server.create(POD, raw, self.name)
        elif step.does == "late":
            self._hold_back(world, args["number"])
        else:
            self._go(world, step.does, args["number"], args["most"])

    def _bind_crowd(self, world: "World", number: int, says: str, key: str) -> None:
        """Bind one of the other pods to each node with room."""
        for node in world.server.storage.all(NODE):
            name = node["metadata"]["name"]
            made = world.server.create(POD, _pod(_CROWD, number, says, key, name), self.name)
            if made is not None and world.books.takes(name, PodSeen.read(made)):
                patch = {"spec": {"nodeName": name}, "status": {"phase": "Running"}}
                world.server.change(POD, made, self.name, patch, BOUND_BY_ANOTHER)

    def _hold_back(self, world: "World", number: int) -> None:
        """Delay kopf's event about one change of the loner, and later events even longer."""
        raw = world.server.storage.get(POD, f"{_LONER}-{number}", NAMESPACE)
        if raw is None or raw["spec"].get("nodeName"):
            return
        streams = world.server.watches.of(lambda s: s.agent == KOPF and s.resource is POD)
        for stream in streams:
            stream.stall(_LATE_SECONDS)
        patch = {"metadata": {"annotations": {"noted": f"{world.now:.3f}"}}}
        world.server.change(POD, raw, self.name, patch)
        for stream in streams:
            stream.stall(2 * _LATE_SECONDS)
        self._soon_finished.add(raw["metadata"]["uid"])

    def changed(self, world: "World", change: "Change") -> None:
        """Finish a held-back loner soon after its binding."""
        raw = change.object
        if change.what == "bind" and raw["metadata"]["uid"] in self._soon_finished:
            world.after(0.3, lambda: self._finish(world, raw["metadata"]["name"]))

    def _finish(self, world: "World", name: str) -> None:
        raw = world.server.storage.get(POD, name, NAMESPACE)
        if raw is not None:
            world.server.change(POD, raw, self.name, {"status": {"phase": "Succeeded"}})

    def _go(self, world: "World", does: str, number: int, most: int) -> None:
        """Remove or relabel up to `most` of the other pods."""
        server, role = world.server, f"{_CROWD}-{number}"
        crowd = [raw for raw in server.storage.all(POD) if _role(raw) == role]
        for raw in crowd[:most]:
            if does == "relabel":
                server.change(POD, raw, self.name, {"metadata": {"labels": {_ROLE: "guest"}}})
            elif does == "delete":
                server.delete(POD, raw, self.name)
            else:
                server.remove(POD, raw, self.name)


def _pod(kind: str, number: int, says: str, key: str, node: str = "") -> dict[str, Any]:
    """Return the loner, or a pod of the crowd for `node`."""
    other = _CROWD if kind == _LONER else _LONER
    selector = {"matchLabels": {_ROLE: f"{other}-{number}"}}
    terms = [{"topologyKey": key, "labelSelector": selector}]
    return pod(
        f"{kind}-{number}-{node}".rstrip("-"),
        namespace=NAMESPACE,
        cpu="100m",
        labels={_ROLE: f"{kind}-{number}"},
        affinity={"podAntiAffinity": {_REQUIRED: terms}} if says == kind else {},
        spec={"schedulerName": SCHEDULER if kind == _LONER else "other"},
    )


def _role(raw: Mapping[str, Any]) -> str:
    return str((raw["metadata"].get("labels") or {}).get(_ROLE, ""))
