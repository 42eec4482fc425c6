"""The SchedulingProfile of the pods, and PriorityClasses; both change while pods wait."""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import NAMESPACE, PRIORITY_CLASS, SCHEDULING_PROFILE
from mooring.testing import builders
from mooring.testing.builders import api_object, priority_class
from simulation.actors.extenders import extender
from simulation.scenario import NAMESPACE as TEAM
from simulation.scenario import SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}},
    {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}},
    {"percentageOfNodesToScore": 50},
)
_INVALID: Final[dict[str, Any]] = {"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}


class Profiles(Actor):
    """A profile that is created, changed, made invalid, deleted and created again."""

    name = "profiles"

    def draw(self, plan: Plan) -> None:
        """Draw an early creation of the profile, and some changes."""
        random = plan.random
        at = 0.0 if plan.chance(0.7) else plan.time()
        with_ = {"cards": plan.has_cards, "extender": plan.extender}
        plan.step(at, self.name, "create", spec=random.randrange(len(_SPECS)), **with_)
        for _ in range(random.choice((0, 0, 0, 1, 3))):
            does = random.choice(("change", "change", "break", "replace", "classes"))
            later, spec = plan.time(), random.randrange(len(_SPECS))
            if does == "replace":
                plan.step(later, self.name, "delete")
                later, does = later + random.choice((0.0, 2.0)), "create"
            plan.step(later, self.name, does, spec=spec, **with_)

    def act(self, world: "World", step: Step) -> None:
        server = world.server
        if step.does == "create":
            server.create(NAMESPACE, builders.namespace(TEAM), self.name)
            server.create(SCHEDULING_PROFILE, _profile(_spec(step)), self.name)
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
            spec = _INVALID if step.does == "break" else _spec(step)
            server.storage.put(SCHEDULING_PROFILE, _changed(raw, spec), self.name, step.does)

    def calm(self, world: "World") -> None:
        """Make sure that a valid profile takes the pods."""
        steps = (step for step in world.scenario.steps if step.actor == self.name)
        spec = next((_spec(step) for step in steps if step.does == "create"), {})
        raw = world.server.storage.get(SCHEDULING_PROFILE, SCHEDULER)
        if raw is None:
            world.server.create(SCHEDULING_PROFILE, _profile(spec), self.name)
        elif _is_invalid(raw):
            changed = _changed(raw, spec)
            world.server.storage.put(SCHEDULING_PROFILE, changed, self.name, "mend")

    @staticmethod
    def is_valid(world: "World") -> bool:
        """Return whether a valid profile takes the pods now."""
        raw = world.server.storage.get(SCHEDULING_PROFILE, SCHEDULER)
        return raw is not None and not _is_invalid(raw)

    def _toggle_class(self, world: "World") -> None:
        raw = world.server.storage.get(PRIORITY_CLASS, "high")
        if raw is None:
            world.server.create(PRIORITY_CLASS, priority_class("high", 1000), self.name)
        else:
            world.server.delete(PRIORITY_CLASS, raw, self.name)


def _spec(step: Step) -> dict[str, Any]:
    """Return the profile's spec for a step, with the run's plugin for cards and extender."""
    spec = dict(_SPECS[step.args["spec"]])
    if step.args.get("cards"):
        enabled = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}
        spec["plugins"] = {**spec.get("plugins", {}), **enabled}
    if kind := step.args.get("extender"):
        spec["extenders"] = [extender(ignorable=kind == "ignorable")]
    return spec


def _is_invalid(raw: dict[str, Any]) -> bool:
    """Return whether the profile is invalid, even if other writers changed other fields."""
    return bool(raw["spec"].get("plugins") == _INVALID["plugins"])


def _profile(spec: dict[str, Any]) -> dict[str, Any]:
    return api_object("SchedulingProfile", SCHEDULER, spec=spec)


def _changed(raw: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    generation = raw["metadata"]["generation"] + (raw["spec"] != spec)
    return {**raw, "spec": spec, "metadata": {**raw["metadata"], "generation": generation}}
