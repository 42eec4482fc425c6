"""Nodes come and go; a name may return with another node."""

from typing import TYPE_CHECKING, Final

from devices.objects import COUNT, MEMORY
from mooring.kube.api_resources import NODE
from mooring.testing.builders import node
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


_ZONES: Final = ("a", "b")


class Nodes(Actor):
    """Creates, removes and changes nodes."""

    name = "nodes"

    def draw(self, plan: Plan) -> None:
        """Draw early creations of all nodes, and changes of some nodes."""
        random = plan.random
        for name in plan.nodes:
            at = 0.0 if plan.chance(0.8) else plan.time()
            plan.step(at, self.name, "create", **self._drawn(plan, name))
        for _ in range(random.choice((0, 0, 1, 2, 4))):
            name, at = random.choice(plan.nodes), plan.time()
            does = random.choice(("delete", "return", "cordon", "uncordon", "resize", "taint"))
            if does == "delete":
                plan.step(at, self.name, "delete", name=name)
            elif does == "return":
                plan.step(at, self.name, "delete", name=name)
                later = at + random.choice((0.0, 0.01, 0.5, 8.0))
                plan.step(later, self.name, "create", **self._drawn(plan, name))
            elif does == "resize":
                plan.step(at, self.name, "resize", name=name, cpu=random.choice((2, 4, 8)))
            else:
                plan.step(at, self.name, does, name=name)

    def _drawn(self, plan: Plan, name: str) -> dict[str, object]:
        random = plan.random
        return {
            "name": name,
            "cpu": random.choice((2, 4, 4, 8)),
            "pods": random.choice((3, 10, 110)),
            "zone": random.choice(_ZONES),
            "cards": random.choice((0, 1, 2, 2)) if plan.has_cards else 0,
        }

    def act(self, world: "World", step: Step) -> None:
        args, server = step.args, world.server
        name: str = args["name"]
        if step.does == "create":
            cards = args.get("cards", 0)
            offered = {MEMORY: 8 * cards, COUNT: cards} if cards else {}
            raw = node(
                name, cpu=args["cpu"], pods=args["pods"], zone=args["zone"], resources=offered
            )
            server.create(NODE, raw, self.name)
            return
        found = server.storage.get(NODE, name)
        if found is None:
            return
        if step.does == "delete":
            server.delete(NODE, found, self.name)
        elif step.does == "resize":
            patch = {"status": {"allocatable": {"cpu": str(args["cpu"])}}}
            server.change(NODE, found, self.name, patch)
        elif step.does == "taint":
            taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
            server.change(NODE, found, self.name, {"spec": {"taints": [taint]}})
        else:
            cordoned = True if step.does == "cordon" else None
            server.change(NODE, found, self.name, {"spec": {"unschedulable": cordoned}})


def touch_all(world: "World", by: str) -> None:
    """Change a label of every node, so that wrongly rejected pods are tried again."""
    for raw in world.server.storage.all(NODE):
        world.server.change(NODE, raw, by, {"metadata": {"labels": {"touched-by": by}}})
