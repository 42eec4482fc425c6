"""An extender that filters and scores, and is slow, fails, lies or never answers for a while."""

from typing import TYPE_CHECKING, Any, Final

from deterministic_extender import filtered, preempted, prioritized
from simulation.network import Reply, Request
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Extenders", "extender"]

_ADDRESS: Final = "extender:80"
_ANSWERS: Final = {"filter": filtered, "prioritize": prioritized, "preempt": preempted}
_LIES: Final[tuple[Any, ...]] = (
    {},
    [],
    "no",
    {"NodeNames": ["no-such-node"], "FailedNodes": {}},
    {"NodeNames": [7]},
    {"Error": "it does not work"},
    [{"Host": "no-such-node", "Score": 2**62}],
    {"NodeNameToMetaVictims": {"no-such-node": {"Pods": [{"UID": "nobody"}]}}},
)
_TROUBLES: Final = ("slow", "fails", "lies", "silent", "resets")


class Extenders(Actor):
    """The server of the extender that the run's profile has, if it has one.

    Attributes:
        is_needed: Whether nothing may be bound without its answer.
        has_lied: Whether an answer was not what the extender stands for.
    """

    name = "extenders"

    def __init__(self) -> None:
        self.is_needed = self.has_lied = False
        self._trouble = ""

    def draw(self, plan: Plan) -> None:
        """Start the server, and draw when it is in trouble."""
        if not plan.extender:
            return
        plan.step(0.0, self.name, "start", kind=plan.extender)
        for _ in range(plan.random.choice((0, 1, 3))):
            at, trouble = plan.time(), plan.random.choice(_TROUBLES)
            plan.step(at, self.name, "trouble", trouble=trouble)
            plan.step(at + plan.random.choice((0.2, 3.0, 9.0)), self.name, "trouble", trouble="")

    def act(self, world: "World", step: Step) -> None:
        """Take one step."""
        if step.does == "start":
            self.is_needed = step.args["kind"] == "needed"
            world.network.servers[_ADDRESS] = _Server(self, world)
            world.books.refuses = lambda node, pod: _refuses(node, pod.key.partition("/")[2])
        else:
            self._trouble = step.args["trouble"]

    def calm(self, _world: "World") -> None:
        """Answer at once, and the truth."""
        self._trouble = ""

    def answer(self, world: "World", request: Request) -> Reply | None:
        """Answer one call, or not."""
        trouble, random = self._trouble, world.random
        if trouble == "resets":
            request.link.reset()
        if trouble in {"resets", "silent"}:
            return None
        if trouble == "fails":
            return Reply(500, {"error": "it does not work"})
        if trouble == "lies":
            self.has_lied = True
            return Reply(200, random.choice(_LIES))
        verb = request.path.rpartition("/")[2]
        said: Any = _ANSWERS[verb](request.json())
        reply = Reply(200, said)
        if trouble == "slow":
            seconds = random.choice((0.3, 0.9, 4.0))
            world.after(seconds, lambda: request.link.deliver(reply.wire))
            return None
        return reply


class _Server:
    """What the network reaches at the extender's address."""

    def __init__(self, actor: Extenders, world: "World") -> None:
        self._actor, self._world = actor, world

    def answer(self, request: Request) -> Reply | None:
        """Answer one call; None if the answer comes later or never."""
        return self._actor.answer(self._world, request)


def extender(*, ignorable: bool) -> dict[str, Any]:
    """Return what a profile says of the extender."""
    return {
        "urlPrefix": f"http://{_ADDRESS}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 2,
        "nodeCacheCapable": True,
        "httpTimeout": "1s",
        "ignorable": ignorable,
    }


def _refuses(node: str, pod: str) -> bool:
    """Return whether the extender takes this node for a pod of this name."""
    args = {"Pod": {"metadata": {"name": pod}}, "NodeNames": [node], "Nodes": None}
    return not filtered(args)["NodeNames"]
