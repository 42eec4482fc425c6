"""Gangs in the formats of Volcano, KAI, Grove and YuniKorn, some in a HyperNode; see `Groups`."""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import HYPER_NODE, SCHEDULING_PROFILE
from mooring.testing.builders import api_object, hyper_node
from simulation.actors.group_formats import FORMATS, KUBERNETES
from simulation.actors.groups import Groups
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


FRAMEWORKS: Final = "frameworks"
"""The name of the profile that knows these formats, and the schedulerName of their members."""
_PRESETS: Final = ("Volcano", "KAI", "Grove", "YuniKorn")
_LATE_SECONDS: Final = 20.0
"""Longer than a gang may take to be bound whole, from its first Binding on."""
_FORMATS: Final = tuple(name for name in FORMATS if name != KUBERNETES)


class Frameworks(Actor):
    """Draws gangs in other schedulers' formats, with a profile; `Groups` creates the members."""

    name = FRAMEWORKS

    def draw(self, plan: Plan) -> None:
        """Draw gangs, let members come and go, and change minimums."""
        random = plan.random
        if plan.subject or not plan.chance(0.25):
            return
        plan.step(0.0, self.name, "profile")
        leaves = [random.randrange(2) for _ in plan.nodes]
        plan.step(0.0, self.name, "topology", leaves=leaves, nodes=plan.nodes)
        formats = random.choice((_FORMATS, random.sample(_FORMATS, 1)))
        for number in range(random.choice((1, 1, 2, 3))):
            name, at = f"f{number}", plan.time() * 0.7
            minimum = random.choice((1, 2, 3, 4))
            if self._create(plan, at, name, minimum, random.choice(formats)):
                continue
            for _ in range(random.choice((0, 1, 2, 4))):
                later = at + random.expovariate(1.0) * random.choice((0.02, 0.5, 4.0))
                does = random.choice(("leave", "remove", "finish", "join", "minimum"))
                plan.step(later, Groups.name, does, name=name, index=random.randrange(5))
            if plan.chance(0.15):
                plan.step(at + random.uniform(0.0, 5.0), Groups.name, "undefine", name=name)

    def _create(self, plan: Plan, at: float, name: str, minimum: int, form: str) -> bool:
        """Draw a gang; return True if nothing else may happen to it (its leader comes late)."""
        random = plan.random
        near = form == "volcano" and plan.chance(0.4)
        count, more = minimum + random.choice((-1, 0, 0, 0, 1, 2)), dict[str, Any]()
        if near:
            more |= {"near": True, "more": "near"}
        is_late = plan.chance(0.3)  # there are enough members, but none is the leader
        if is_late:
            count, more = minimum, more | {"leader_from": at + _LATE_SECONDS}
            later = at + _LATE_SECONDS + random.choice((0.1, 5.0))
            plan.step(later, Groups.name, "join", name=name, index=0)
        plan.step(
            at,
            Groups.name,
            "create",
            name=name,
            minimum=minimum,
            count=count,
            cpu=random.choice(("100m", "500m", "1", "1900m")),
            priority=random.choice((0, 100, 1000)),
            gap=random.choice((0.0, 0.0, 0.01, 0.4)),
            topology=[],
            late=plan.chance(0.2),
            card=0,
            scheduler=FRAMEWORKS,
            format=form,
            roles=form in {"grove", "yunikorn"} or plan.chance(0.7),
            **more,
        )
        return is_late

    def act(self, world: "World", step: Step) -> None:
        """Create the profile, or one HyperNode for each half of the nodes."""
        if step.does == "profile":
            config = [{"name": "GangScheduling", "args": {"podGroupPresets": [*_PRESETS]}}]
            raw = api_object("SchedulingProfile", FRAMEWORKS, spec={"pluginConfig": config})
            world.server.create(SCHEDULING_PROFILE, raw, self.name)
            return
        members: dict[int, list[dict[str, Any]]] = {}
        for node, leaf in zip(step.args["nodes"], step.args["leaves"], strict=True):
            chosen = {"exactMatch": {"name": node}}
            members.setdefault(leaf, []).append({"type": "Node", "selector": chosen})
        for leaf, nodes in members.items():
            raw = hyper_node(f"leaf-{leaf}", 1, *nodes)
            world.server.create(HYPER_NODE, raw, self.name)
