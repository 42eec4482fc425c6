"""More faults of the third-party plugin, while each of its methods is called.

Pods come during the trouble, one of them too large for every node, and nodes change. If a method is
called only after another failure, that failure is drawn too.
"""

from typing import TYPE_CHECKING, Final

from simulation.actors.nodes import touch_all
from simulation.actors.plugins import WRONGS, Plugins
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World


_ALSO: Final = {
    "explain": ("filter", "refuses"),
    "post_filter": ("filter", "refuses"),
    "queueing_hint": ("filter", "refuses"),
    "unreserve": ("permit", "refuses"),
}
"""By method, what has to go wrong so that it is called."""
_WAYS: Final = tuple((method, how) for method, ways in WRONGS.items() for how in ways)


class PluginTrials(Actor):
    """Draws faults of the third-party plugin in the runs with it; `Plugins` takes most steps."""

    name = "plugin trials"

    def draw(self, plan: Plan) -> None:
        """Draw some kinds of faults, one after the other."""
        random = plan.random
        if plan.subject or not plan.has_plugin:
            return
        for number, (method, how) in enumerate(random.sample(_WAYS, 6)):
            at = random.uniform(1.0, plan.seconds)
            lasts = random.choice((2.0, 5.0))
            troubles = [(method, how)] + ([_ALSO[method]] if method in _ALSO else [])
            for wrong, way in troubles:
                plan.step(at, Plugins.name, "trouble", method=wrong, how=way)
                plan.step(at + lasts, Plugins.name, "trouble", method=wrong, how="")
            for name, cpu in ((f"t{number}", "100m"), (f"u{number}", "100")):
                rest = {"count": 1, "priority": random.choice((0, 100))}
                plan.step(at + 0.1, Plugins.name, "pods", name=name, cpu=cpu, **rest)
            plan.step(at + 1.5, self.name, "touch")

    def act(self, world: "World", step: Step) -> None:  # noqa: ARG002 - there is one step
        """Change a label of all nodes."""
        touch_all(world, self.name)
