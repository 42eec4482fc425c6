"""The SchedulingProfile that takes the pods, and PriorityClasses; both change while pods wait."""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.resources import NAMESPACE, PRIORITY_CLASS, SCHEDULING_PROFILE
from mooring.testing import builders
from mooring.testing.builders import api_object, priority_class
from simulation.actors.pods import NAMESPACE as TEAM
from simulation.invariants import SCHEDULER
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Profiles"]

_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}},
    {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}},
    {"percentageOfNodesToScore": 50},
)
_INVALID: Final[dict[str, Any]] = {"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}


class Profiles(Actor):
    """One profile, which is created, changed, broken, deleted and created again."""

    name = "profiles"

    def draw(self, plan: Plan) -> None:
        """Create it early, and change it sometimes."""
        random = plan.random
        at = 0.0 if plan.chance(0.7) else plan.time()
        plan.step(at, self.name, "create", spec=random.randrange(len(_SPECS)))
        for _ in range(random.choice((0, 0, 0, 1, 3))):
            does = random.choice(("change", "change", "break", "replace", "classes"))
            later, spec = plan.time(), random.randrange(len(_SPECS))
            if does == "replace":
                plan.step(later, self.name, "delete")
                plan.step(later + random.choice((0.0, 2.0)), self.name, "create", spec=spec)
            else:
                plan.step(later, self.name, does, spec=spec)

    def act(self, world: "World", step: Step) -> None:
        """Take one step."""
        server = world.server
        if step.does == "create":
            server.create(NAMESPACE, builders.namespace(TEAM), self.name)
            spec = _SPECS[step.args["spec"]]
            server.create(SCHEDULING_PROFILE, _profile(spec), self.name)
            return
        if step.does == "classes":
            self._toggle_class(world)
            return
        raw = server.storage.get(SCHEDULING_PROFILE, SCHEDULER)
        if raw is None:
            return
        if step.does == "delete":
            server.delete(SCHEDULING_PROFILE, raw, self.name)
        else:
            spec = _INVALID if step.does == "break" else _SPECS[step.args["spec"]]
            server.storage.put(SCHEDULING_PROFILE, _changed(raw, spec), self.name, step.does)

    def calm(self, world: "World") -> None:
        """See to it that a valid profile takes the pods."""
        raw = world.server.storage.get(SCHEDULING_PROFILE, SCHEDULER)
        if raw is None:
            world.server.create(SCHEDULING_PROFILE, _profile({}), self.name)
        elif raw["spec"] == _INVALID:
            world.server.storage.put(SCHEDULING_PROFILE, _changed(raw, {}), self.name, "mend")

    def _toggle_class(self, world: "World") -> None:
        raw = world.server.storage.get(PRIORITY_CLASS, "high")
        if raw is None:
            world.server.create(PRIORITY_CLASS, priority_class("high", 1000), self.name)
        else:
            world.server.delete(PRIORITY_CLASS, raw, self.name)


def _profile(spec: dict[str, Any]) -> dict[str, Any]:
    return api_object("SchedulingProfile", SCHEDULER, spec=spec)


def _changed(raw: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    generation = raw["metadata"]["generation"] + (raw["spec"] != spec)
    return {**raw, "spec": spec, "metadata": {**raw["metadata"], "generation": generation}}
