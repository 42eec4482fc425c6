"""More that goes wrong with the plugin of another distribution, while each method is called.

Pods come in the middle of the trouble, of which one is too large for every node, and nodes change.
Where a method is called only if something else fails, that fails, too.
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
    """Draws troubles for runs with the plugin; `Plugins` takes most steps."""

    name = "plugin trials"

    def draw(self, plan: Plan) -> None:
        """Draw some of the ways, one after the other."""
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
        """Change all nodes."""
        touch_all(world, self.name)
