"""Budgets for pods that rebalancing moves, important pods among them, and clocks that jump.

Several budgets may select one pod, which then must not be evicted. Important pods preempt moved
pods, in some runs with a profile that has `disruptionBudgets: Strict`.
"""

from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.testing.builders import pod
from simulation.actors.faults import Faults
from simulation.actors.rebalancing import MOVED
from simulation.disruption_controller import DisruptionController
from simulation.scenario import NAMESPACE, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


_SELECTORS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"matchLabels": {MOVED: "m0"}},
    {"matchExpressions": [{"key": MOVED, "operator": "Exists"}]},
    {"matchExpressions": [{"key": MOVED, "operator": "In", "values": ["m0", "m8"]}]},
    {"matchExpressions": [{"key": MOVED, "operator": "NotIn", "values": ["m0", "big0"]}]},
    {"matchExpressions": [{"key": MOVED, "operator": "DoesNotExist"}]},
)
_CHANCES: Final = {"moves": 0.4, "preemption": 0.25}
"""How many of the runs about what have these budgets."""


class Protection(Actor):
    """Draws for runs about moves; budgets and clock jumps also for runs about preemption."""

    name = "protection"

    def __init__(self) -> None:
        self._budgets = DisruptionController()

    def draw(self, plan: Plan) -> None:
        """Draw budgets (perhaps while pods are moved), important pods and clock jumps."""
        random = plan.random
        if plan.subject in _CHANCES and plan.chance(0.15):
            replica, seconds = random.choice(plan.replicas), random.choice((-3600.0, 60.0))
            at = random.uniform(5.0, plan.seconds)
            plan.step(at, Faults.name, "jump", replica=replica, seconds=seconds)
        if plan.subject not in _CHANCES or not plan.chance(_CHANCES[plan.subject]):
            return
        for number, selector in enumerate(random.sample(_SELECTORS, random.choice((1, 1, 2, 3)))):
            at = random.choice((0.3, 0.3, random.uniform(5.0, plan.seconds)))
            least = random.choice((0, 0, 1, 1, 2, 6))
            plan.step(at, self.name, "budget", name=f"k{number}", selector=selector, least=least)
        if plan.subject == "preemption":
            return
        if plan.chance(0.5):
            limits = {"disruptionBudgets": random.choice(("Strict", "Strict", "Default"))}
            plan.step(0.4, self.name, "limits", **limits)
            for number in range(random.choice((1, 2))):
                cpu, at = random.choice(("500m", "1", "2")), random.uniform(8.0, plan.seconds)
                plan.step(at, self.name, "important", name=f"top{number}-0", cpu=cpu)

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _budget(self, world: "World", name: str, selector: Any, least: int) -> None:
        self._budgets.create(world, name, selector, least)

    def _limits(self, world: "World", **limits: Any) -> None:
        raw = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
        if raw is not None:
            patch = {"spec": {"preemption": limits}}
            world.server.change(SCHEDULING_PROFILE, raw, self.name, patch)

    def _important(self, world: "World", name: str, cpu: str) -> None:
        takes: dict[str, Any] = {"priority": 1000, "spec": {"schedulerName": MOVED}}
        raw = pod(name, namespace=NAMESPACE, cpu=cpu, **takes)
        world.server.create(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Let the disruption controller compute the budgets again."""
        self._budgets.changed(world, change)
