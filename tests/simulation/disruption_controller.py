"""A model of the disruption controller, which writes the budgets' statuses a moment late."""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD, POD_DISRUPTION_BUDGET
from mooring.testing.builders import pdb
from simulation.constraints import selects
from simulation.scenario import NAMESPACE
from simulation.storage import Raw

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


_NAME: Final = "disruption controller"


class DisruptionController:
    """Keeps the statuses of its budgets; a budget requires a number of ready pods."""

    def __init__(self) -> None:
        self._least: dict[str, int] = {}

    def create(self, world: "World", name: str, selector: Raw, least: int) -> None:
        """Create a budget that requires at least `least` of the selected pods."""
        raw = pdb(name, {}, namespace=NAMESPACE)
        raw["spec"] = {"minAvailable": least, "selector": selector}
        if world.server.create(POD_DISRUPTION_BUDGET, raw, _NAME) is not None:
            self._least[name] = least
            self._count(world)

    def changed(self, world: "World", change: "Change") -> None:
        """Compute the budgets again a moment after a pod has changed."""
        if self._least and change.resource is POD:
            world.after(world.random.choice((0.01, 0.3, 1.0)), lambda: self._count(world))

    def _count(self, world: "World") -> None:
        pods = [*world.server.storage.all(POD)]
        for name, least in self._least.items():
            budget = world.server.storage.get(POD_DISRUPTION_BUDGET, name, NAMESPACE)
            if budget is not None:
                self._write(world, budget, pods, least)

    def _write(self, world: "World", budget: Raw, pods: list[Raw], least: int) -> None:
        """Write the allowed disruptions; evicted pods count until they terminate."""
        chosen = [
            raw
            for raw in pods
            if raw["metadata"]["namespace"] == NAMESPACE
            and selects(budget["spec"]["selector"], raw)
            and "deletionTimestamp" not in raw["metadata"]
        ]
        names = {raw["metadata"]["name"] for raw in chosen}
        disrupted = {n: None for n in budget["status"].get("disruptedPods") or {} if n not in names}
        ready = sum(is_ready(raw) for raw in chosen)
        allowed = max(0, ready - least)
        patch: dict[str, Any] = {"disruptionsAllowed": allowed, "currentHealthy": ready}
        if disrupted:
            patch["disruptedPods"] = disrupted
        world.server.change(POD_DISRUPTION_BUDGET, budget, _NAME, {"status": patch})


def is_ready(raw: Raw) -> bool:
    """Return whether the pod has the condition Ready."""
    conditions = raw["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
