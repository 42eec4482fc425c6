"""An extender that filters and scores; at times it is slow, fails, gives wrong answers or none."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from deterministic_extender import filtered, preempted, prioritized
from faults.books import PodSeen
from mooring.kube.api_resources import SCHEDULING_PROFILE
from simulation.actors.nodes import touch_all
from simulation.network import Reply, Request
from simulation.scenario import SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


_ADDRESS: Final = "extender:80"


def _preempted(args: Any) -> dict[str, Any]:
    """Return only candidates that pass the extender's filter.

    Otherwise the pod would preempt on other candidates again and again.
    """
    found = preempted(args)
    key = "NodeNameToMetaVictims"
    passed = filtered({"Pod": args["Pod"], "NodeNames": [*found[key]], "Nodes": None})["NodeNames"]
    return {**found, key: {name: found[key][name] for name in passed}}


_ANSWERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "filter": filtered,
    "prioritize": prioritized,
    "preempt": _preempted,
}
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
_LATE_NODE: Final = "n9"
_TROUBLES: Final = ("slow", "fails", "lies", "silent", "resets")


class Extenders(Actor):
    """The server of the extender; it runs from the moment when a profile names it.

    Attributes:
        is_needed: Whether no pod may be bound without the extender's answer.
        has_lied: Whether it has given a wrong answer.
    """

    name = "extenders"

    def __init__(self) -> None:
        self.is_needed = self.has_lied = self._serves = False
        self._trouble = ""
        self._seconds: float | None = None
        """How slow it is; None: now and then."""

    def draw(self, plan: Plan) -> None:
        """Draw the times of the server's troubles."""
        if not plan.extender:
            return
        for _ in range(plan.random.choice((0, 1, 3))):
            at, trouble = plan.time(), plan.random.choice(_TROUBLES)
            plan.step(at, self.name, "trouble", trouble=trouble)
            plan.step(at + plan.random.choice((0.2, 3.0, 9.0)), self.name, "trouble", trouble="")
        if plan.chance(0.3):
            self._draw_late_pod(plan)

    def _draw_late_pod(self, plan: Plan) -> None:
        """Draw a pod that fits only on a node that arrives while the extender is called.

        Nothing happens afterwards, so no other event causes a retry.
        """
        names = (f"late{number}" for number in range(5_000))
        suits = (
            name
            for name in names
            if not _refuses(_LATE_NODE, f"/{name}-0")
            and all(_refuses(node, f"/{name}-0") for node in plan.nodes)
        )
        if (name := next(suits, None)) is None:
            return
        kind = {"kind": "bare", "count": 1, "cpu": "100m", "priority": 0}
        rest = {"zone": "", "gated": False, "card": 0}
        plan.step(plan.seconds - 1.0, self.name, "trouble", trouble="slow", seconds=0.7)
        plan.step(plan.seconds - 0.6, "pods", "create", name=name, **kind, **rest)
        at = plan.seconds - 0.6 + plan.random.uniform(0.1, 0.5)
        node = {"name": _LATE_NODE, "cpu": 8, "pods": 110, "zone": "a", "cards": 0}
        plan.step(at, "nodes", "create", **node)

    def act(self, _world: "World", step: Step) -> None:
        if step.does == "trouble":
            self._trouble, self._seconds = step.args["trouble"], step.args.get("seconds")

    def changed(self, world: "World", change: "Change") -> None:
        """Start the server when a profile names it."""
        if change.resource is SCHEDULING_PROFILE and not self._serves:
            for described in change.object["spec"].get("extenders", ()):
                self.is_needed, self._serves = not described["ignorable"], True
                world.network.servers[_ADDRESS] = _Server(self, world)

    def calm(self, world: "World") -> None:
        """Answer correctly and at once; change nodes, so that wrongly rejected pods are retried."""
        self._trouble = ""
        if self.has_lied:
            touch_all(world, self.name)

    @property
    def is_troubled(self) -> bool:
        """Whether answers are late, wrong or missing now."""
        return bool(self._trouble)

    def refuses(self, node: str, pod: PodSeen) -> bool:
        """Return whether a correct answer rejects the node for the pod."""
        return self._serves and pod.scheduler == SCHEDULER and _refuses(node, pod.key)

    def answer(self, world: "World", request: Request) -> Reply | None:
        """Return the answer to one call; None if it comes later or never."""
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
            seconds = self._seconds or random.choice((0.3, 0.9, 4.0))
            world.after(seconds, lambda: request.link.deliver(reply.wire))
            return None
        return reply


class _Server:
    """The server at the extender's address."""

    def __init__(self, actor: Extenders, world: "World") -> None:
        self._actor, self._world = actor, world

    def answer(self, request: Request) -> Reply | None:
        """Return the answer to one call; None if it comes later or never."""
        return self._actor.answer(self._world, request)


def extender(*, ignorable: bool) -> dict[str, Any]:
    """Return the extender's configuration in a profile."""
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
    """Return whether the extender rejects the node for the pod with this key."""
    name = pod.partition("/")[2]
    args = {"Pod": {"metadata": {"name": name}}, "NodeNames": [node], "Nodes": None}
    return not filtered(args)["NodeNames"]
