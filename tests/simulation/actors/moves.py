"""A subject: situations in which rebalancing helps, and disturbances between two moves.

Pods wait for room that moves can make; nodes have few pods; whole groups are on nodes that no
longer meet their requirements. Meanwhile small pods take the room, controllers are slow, leaders
end, and windows open and close. `Rebalancing` has the profile and the workloads.
"""

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.books import PodSeen
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.testing.builders import pod
from simulation.actors.rebalancing import MOVED, STOPPED_AFTER
from simulation.api_server import EPOCH
from simulation.cluster_books import BOUND_BY_ANOTHER
from simulation.rebalancing_purposes import what_is_not_moved
from simulation.scenario import NAMESPACE, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_BEGIN: Final = 1000.0
"""The time of the world when a run begins."""
_FULL: Final = (
    *((4, "1", "3"), (6, "500m", "3500m"), (6, "500m", "3"), (4, "1", "2500m")),
    *((4, "1", "4"), (6, "500m", "4"), (8, "500m", "3500m")),
)
"""How many pods fill two nodes, how large each is, and a pod that fits only if some are moved."""
_TRIES: Final = 40
"""How often a thief looks whether the node has room for it, four times a second."""
_GOALS: Final = {
    "room": ["MakeRoom"],
    "both": ["Violations", "MakeRoom"],
    "pack": ["Pack"],
    "labels": ["Violations"],
    "whole": ["Violations"],
}


class Moves(Actor):
    """Draws situations in which rebalancing helps, and checks that the right pods are moved."""

    name = "moves"

    def __init__(self) -> None:
        self._thieves: list[dict[str, Any]] = []
        self._stolen = 0

    def draw(self, plan: Plan) -> None:
        """Draw the profile, nodes, workloads, and disturbances of moves."""
        random = plan.random
        if plan.subject != self.name:
            return
        kind = random.choice(("room", "room", "both", "pack", "labels", "whole"))
        plan.step(0.0, self.name, "about", kind=kind)
        section: dict[str, Any] = {
            "moves": random.choice((1, 1, 2, 3)) if kind != "whole" else 4,
            "per": random.choice((1, 1, 1, 2)) if kind != "whole" else 4,
            "hour": 20,
            "spread": False,
            "goals": _GOALS[kind],
        }
        if plan.chance(0.3):
            section["windows"] = [_window(random.choice((-30, 1, 2)), random.choice((1, 3, 40)))]
        plan.step(0.0, "rebalancing", "profile", **section, mode="Apply")
        for name in plan.nodes[: 2 if kind == "room" else 3]:
            rest = {"pods": 20, "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=4, **rest)
            plan.step(0.1, "rebalancing", "label", node=name, value="yes")
        getattr(self, f"_draw_{kind}")(plan)
        for _ in range(random.choice((0, 0, 1, 1, 2)) if kind != "whole" else 0):
            cpu = random.choice(("500m", "1", "100m"))
            plan.step(0.2, self.name, "thief", cpu=cpu, delay=random.choice((0.05, 0.5, 2.0)))
        for _ in range(random.choice((0, 0, 1, 2))):
            replica, at = random.choice(plan.replicas), random.uniform(10.0, plan.seconds)
            does = random.choice(("kill", "stop", "kill"))
            plan.step(
                at, "faults", does, replica=replica, **({"steps": 0} if does == "kill" else {})
            )

    def _create(self, plan: Plan, at: float, name: str, count: int, cpu: str) -> None:
        random = plan.random
        plan.step(
            at,
            "rebalancing",
            "create",
            name=name,
            kind=random.choice(("ReplicaSet", "ReplicaSet", "StatefulSet")),
            count=count,
            cpu=cpu,
            late=random.choice((0.1, 0.1, 3.0, 8.0)),
            slow=random.choice((0.0, 0.0, 2.0, 6.0)),
            anywhere=True,
        )

    def _draw_room(self, plan: Plan) -> None:
        """Draw nodes that are half full, a pod that waits for room on one of them, and thieves."""
        random = plan.random
        count, cpu, large = random.choice(_FULL)
        parts = random.choice((1, 2))
        for number in range(parts):
            self._create(plan, 1.0, f"m{number}", count // parts, cpu)
        for number in range(random.choice((1, 1, 1, 2))):
            self._create(plan, random.uniform(4.0, 9.0), f"big{number}", 1, large)
        for number in range(random.choice((0, 0, 1, 2))):
            at = random.uniform(10.0, 20.0)
            self._create(plan, at, f"s{number}", 1, random.choice(("500m", "1", "1500m")))

    def _draw_both(self, plan: Plan) -> None:
        self._draw_room(plan)
        self._draw_labels(plan)

    def _draw_pack(self, plan: Plan) -> None:
        """Draw nodes with few pods, and pods that come to these nodes meanwhile."""
        random = plan.random
        self._create(plan, 1.0, "m0", random.randint(2, 5), random.choice(("500m", "1")))
        for number in range(random.choice((0, 1, 2, 3))):
            at = random.uniform(10.0, plan.seconds)
            self._create(plan, at, f"s{number}", random.choice((1, 2)), "100m")

    def _draw_labels(self, plan: Plan) -> None:
        """Draw a workload that requires a node label, and remove the label from a node."""
        random = plan.random
        rest = {"late": random.choice((0.1, 3.0)), "slow": random.choice((0.0, 2.0, 6.0))}
        count = random.choice((2, 4, 6))
        drawn = {"kind": random.choice(("ReplicaSet", "StatefulSet")), "count": count, **rest}
        plan.step(1.0, "rebalancing", "create", name="m8", cpu="500m", **drawn)
        at = random.uniform(4.0, 20.0)
        for node in random.sample(plan.nodes[:3], min(len(plan.nodes), random.choice((1, 2)))):
            plan.step(at, "rebalancing", "label", node=node, value="no")
            if plan.chance(0.7):
                later = at + random.uniform(4.0, 25.0)
                plan.step(later, "rebalancing", "label", node=node, value="yes")

    def _draw_whole(self, plan: Plan) -> None:
        """Draw gangs whose members must all leave if one of them must leave its node."""
        random = plan.random
        for number in range(random.choice((1, 2))):
            count = random.choice((2, 3))
            owner = {"apiVersion": "batch/v1", "kind": "ReplicaSet", "name": f"g{number}"}
            extra = {
                "owner": {**owner, "uid": f"controller-g{number}"},
                "node_selector": {"suits": "yes"},
            }
            args = {"minimum": count, "count": count, "cpu": random.choice(("500m", "1"))}
            flags = {"late": False, "whole": plan.chance(0.5), "card": 0, "topology": []}
            plan.step(
                1.0, "groups", "create", name=f"g{number}", priority=0, gap=0.0, more="labels",
                scheduler=MOVED, pod=extra, **args, **flags,
            )  # fmt: skip
        for node in random.sample(plan.nodes[:3], min(len(plan.nodes), random.choice((1, 2)))):
            at = random.uniform(4.0, 20.0)
            plan.step(at, "rebalancing", "label", node=node, value="no")
            if plan.chance(0.4):
                later = at + random.uniform(4.0, 25.0)
                plan.step(later, "rebalancing", "label", node=node, value="yes")

    def act(self, _world: "World", step: Step) -> None:
        """Let a thief wait for a move; other actors take all other steps."""
        if step.does == "thief":
            self._thieves.append(dict(step.args))

    def changed(self, world: "World", change: "Change") -> None:
        """Let running members of gangs become ready, as pods of workloads do.

        A thief comes to the node that a moved pod leaves.
        """
        raw = change.object
        if change.resource is not POD or raw["spec"].get("schedulerName") != MOVED:
            return
        if change.what == "evict" and self._thieves:
            thief, node = self._thieves.pop(0), raw["spec"]["nodeName"]
            steal = partial(self._steal, world, node, thief["cpu"], _TRIES)
            world.after(thief["delay"], steal)
        running = change.after is not None and raw["status"].get("phase") == "Running"
        if running and raw["spec"].get("schedulingGroup"):
            world.after(0.5, partial(self._ready, world, raw))

    def _steal(self, world: "World", node: str, cpu: str, tries: int) -> None:
        """Let another scheduler bind a pod to the node as soon as the node has room."""
        raw = pod(f"thief-{self._stolen}", namespace=NAMESPACE, cpu=cpu, priority=1000)
        raw["spec"]["schedulerName"] = "other"
        books = world.books
        if node not in books.nodes or not books.free(node).covers(PodSeen.read(raw).need):
            if tries:
                world.after(0.25, partial(self._steal, world, node, cpu, tries - 1))
            return
        self._stolen += 1
        if (made := world.server.create(POD, raw, self.name)) is not None:
            bound = {"spec": {"nodeName": node}, "status": {"phase": "Running"}}
            world.server.change(POD, made, self.name, bound, BOUND_BY_ANOTHER)

    def _ready(self, world: "World", raw: "Raw") -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        if not any(each["type"] == "Ready" for each in found["status"].get("conditions") or ()):
            world.server.change(POD, found, self.name, {"status": ready})

    def calm(self, world: "World") -> None:
        """Check, shortly before rebalancing ends, that all pods that should be moved were moved."""
        if world.server.storage.get(SCHEDULING_PROFILE, MOVED) is not None:
            world.after(STOPPED_AFTER - 1.0, partial(self._look, world))

    def _look(self, world: "World") -> None:
        if (wrong := what_is_not_moved(world, STOPPED_AFTER - 5.0)) is not None:
            world.fail(f"what should be moved is moved: {wrong} (at {world.now:.3f})")


def _window(begins: int, minutes: int) -> dict[str, str]:
    """Return a window that begins `begins` minutes after the run's start and lasts `minutes`."""
    start = EPOCH + _BEGIN + 60.0 * begins
    times = (time.gmtime(start), time.gmtime(start + 60.0 * minutes))
    return {
        name: time.strftime("%H:%M", at) for name, at in zip(("start", "end"), times, strict=True)
    }
