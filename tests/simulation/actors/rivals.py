"""A second profile that takes the same pods while their namespace has a label; other changes.

The API server is upgraded and downgraded, and pods are resized in place to smaller requests.
"""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import NAMESPACE as NAMESPACES
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.testing.builders import api_object
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


_RIVAL: Final = "rival"
_MATCH: Final = {
    "schedulerNames": [SCHEDULER],
    "namespaceSelector": {"matchLabels": {"tier": "gold"}},
    "precedence": 10,
}
_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"percentageOfNodesToScore": 50},
    {"preemption": {"disruptionBudgets": "Strict"}},
    {"pluginConfig": [{"name": "GangScheduling", "args": {"reserveAfter": "4s"}}]},
    {"plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}},
)


class Rivals(Actor):
    """The second profile; it has no extender and no cards, so it is absent in runs with these."""

    name = "rivals"

    def draw(self, plan: Plan) -> None:
        """Draw when the profile and the label come and go."""
        random = plan.random
        if plan.chance(0.2):
            for _ in range(random.choice((1, 1, 2, 4))):
                plan.step(plan.time(), self.name, "upgrade", minor=random.choice((34, 35, 36, 37)))
        if plan.chance(0.2):
            for _ in range(random.choice((1, 3, 6))):
                plan.step(plan.time(), self.name, "shrink", number=random.randrange(100))
        if plan.extender or plan.has_cards or not plan.chance(0.4):
            return
        for _ in range(random.choice((1, 2, 4))):
            does = random.choice(("profile", "profile", "delete"))
            plan.step(plan.time(), self.name, does, spec=random.randrange(len(_SPECS)))
        for _ in range(random.choice((1, 2, 4, 8))):
            plan.step(plan.time(), self.name, "label", tier=random.choice(("gold", "none")))

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _upgrade(self, world: "World", minor: int) -> None:
        world.server.minor = minor

    def _shrink(self, world: "World", number: int) -> None:
        """Reduce the requests of a pod, unless it is made from a template."""
        found = [
            raw
            for raw in world.server.storage.all(POD)
            if "workload" in (raw["metadata"].get("labels") or {})
        ]
        if not found:
            return
        raw = found[number % len(found)]
        container = raw["spec"]["containers"][0]
        resources = container["resources"]
        less = {**resources, "requests": {**resources["requests"], "cpu": "50m"}}
        patch = {"spec": {"containers": [{**container, "resources": less}]}}
        world.server.change(POD, raw, self.name, patch)

    def _profile(self, world: "World", spec: int) -> None:
        raw = world.server.storage.get(SCHEDULING_PROFILE, _RIVAL)
        wanted = {"match": _MATCH, **_SPECS[spec]}
        if raw is None:
            made = api_object("SchedulingProfile", _RIVAL, spec=wanted)
            world.server.create(SCHEDULING_PROFILE, made, self.name)
        elif raw["spec"] != wanted:
            metadata = {**raw["metadata"], "generation": raw["metadata"]["generation"] + 1}
            changed = {**raw, "spec": wanted, "metadata": metadata}
            world.server.storage.put(SCHEDULING_PROFILE, changed, self.name, "change")

    def _delete(self, world: "World", **_: object) -> None:
        raw = world.server.storage.get(SCHEDULING_PROFILE, _RIVAL)
        if raw is not None:
            world.server.delete(SCHEDULING_PROFILE, raw, self.name)

    def _label(self, world: "World", tier: str) -> None:
        raw = world.server.storage.get(NAMESPACES, NAMESPACE)
        if raw is not None:
            patch = {"metadata": {"labels": {"tier": tier}}}
            world.server.change(NAMESPACES, raw, self.name, patch)
