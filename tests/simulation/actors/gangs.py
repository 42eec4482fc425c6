"""Gangs whose members have gates, constraints, volumes or devices; see also `Groups`."""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import SCHEDULING_PROFILE
from simulation.actors.groups import Groups
from simulation.actors.neighbours import KINDS
from simulation.scenario import SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


_KINDS: Final = ("gates", "local", "made", "devices", "never", "labels", "labels", *KINDS)
_APPS: Final = ("x", "y")
_POLICIES: Final[tuple[dict[str, Any], ...]] = (
    {"reserveAfter": "3s", "reservedNodesPercent": 100},
    {"reserveAfter": "8s", "deleteBoundMembers": True},
    {"reserveAfter": "0s"},
    {"podGroupPresets": ["Coscheduling"]},
    {"podGroupPresets": ["Coscheduling"]},
)
_NAMING: Final = tuple(i for i, each in enumerate(_POLICIES) if "podGroupPresets" in each)


class Gangs(Actor):
    """Draws gangs with gates, constraints, volumes or devices; `Groups` creates the members.

    The actor also draws the profile's settings for gangs.
    """

    name = "gangs"

    def draw(self, plan: Plan) -> None:
        """Draw gangs, and let members come and go."""
        random = plan.random
        if not plan.chance(0.4):
            return
        if plan.chance(0.5):
            plan.step(plan.time(), self.name, "policy", policy=random.randrange(len(_POLICIES)))
        kinds = random.choice((_KINDS, random.sample(_KINDS, 1)))
        for number in range(random.choice((1, 1, 2, 3))):
            name, at = f"h{number}", plan.time() * 0.7
            minimum, kind = random.choice((2, 2, 3, 4)), random.choice(kinds)
            self._create(plan, at, name, minimum, kind)
            for _ in range(random.choice((0, 1, 2, 4))):
                later = at + random.expovariate(1.0) * random.choice((0.02, 0.5, 4.0))
                does = random.choice(("leave", "remove", "finish", "join", "minimum", "relabel"))
                args = {"index": random.randrange(5), "minimum": minimum}
                plan.step(later, Groups.name, does, name=name, app=random.choice(_APPS), **args)
            for _ in range(2 * minimum if kind == "gates" else 0):
                later = at + random.expovariate(1.0) * random.choice((0.1, 3.0))
                plan.step(later, Groups.name, "open", name=name, index=random.randrange(5))
            if plan.chance(0.2):
                plan.step(at + random.uniform(0.0, 5.0), Groups.name, "undefine", name=name)

    def _create(self, plan: Plan, at: float, name: str, minimum: int, kind: str) -> None:
        random, more = plan.random, dict[str, Any]()
        if kind == "gates":
            more = {"gates": 1}
        elif kind in {"local", "made"}:
            more = {"claim": kind, "more": kind}
            plan.step(0.0, "claims", "classes", fails=random.choice((0, 0, 1, 3)))
            for index in range(random.randint(0, 5) if kind == "local" else 0):
                node = random.choice(plan.nodes)
                plan.step(at * 0.5, "claims", "volume", name=f"{name}-v{index}", node=node)
        elif kind == "devices":
            more = {"devices": random.choice((1, 1, 2)), "more": kind}
            counts = {node: random.choice((0, 1, 2, 2, 4)) for node in plan.nodes}
            plan.step(0.0, "devices", "drivers", counts=counts)
        elif kind == "never":
            more = {"never": 1}
        elif kind == "labels":
            more = {"labels_name_it": 1}
            for _ in range(random.choice((1, 2, 4))):
                plan.step(plan.time(), self.name, "policy", policy=random.choice(_NAMING))
        else:
            app = {"app": random.choice(_APPS)}
            more = {"pod": KINDS[kind](random), "labels": app, "more": kind}
        plan.step(
            at,
            Groups.name,
            "create",
            name=name,
            minimum=minimum,
            count=minimum + random.choice((-1, 0, 0, 0, 1, 2)),
            cpu=random.choice(("100m", "500m", "1", "1900m")),
            priority=random.choice((0, 100, 1000)),
            gap=random.choice((0.0, 0.0, 0.01, 0.4)),
            topology=["topology.kubernetes.io/zone"] if plan.chance(0.2) else [],
            late=plan.chance(0.2),
            card=0,
            whole=plan.chance(0.3),
            **more,
        )

    def act(self, world: "World", step: Step) -> None:
        """Change the profile's settings for gangs."""
        raw = world.server.storage.get(SCHEDULING_PROFILE, SCHEDULER)
        if raw is None:
            return
        args = _POLICIES[step.args["policy"]]
        config = [{"name": "GangScheduling", "args": args}]
        spec = {**raw["spec"], "pluginConfig": config}
        generation = raw["metadata"]["generation"] + 1
        changed = {**raw, "spec": spec, "metadata": {**raw["metadata"], "generation": generation}}
        world.server.storage.put(SCHEDULING_PROFILE, changed, self.name, "change")
