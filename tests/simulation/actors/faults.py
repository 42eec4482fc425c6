"""Faults of requests, watches, the server, and the processes of replicas.

To add a fault: add its name to `_DRAWS` with a function that draws its arguments, and add a method
`_name` that causes it. The step contains everything that the fault needs.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD
from simulation.network import API, Outcome, Rule
from simulation.scenario import Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.watches import Stream
    from simulation.world import World


_WRITES: Final = (
    *("bind", "bind", "bind", "evict", "patch status", "update leases"),
    *("get", "get pods", "watch", "create", ""),
)
_PLURALS: Final = ("pods", "pods", "pods", "nodes", "schedulingprofiles", "")
_ENDS: Final = (Outcome.KILLS, Outcome.KILLS_FIRST, Outcome.GONE_BEFORE)
_HIDES_SECONDS: Final = 3.0
"""So long at most a watch waits for a pod that it does not tell of when it comes."""
_COMPARED_SECONDS: Final = 26.0
"""The first comparison of all pods reads those that it does not know before this."""
_AGENTS: Final = ("mooring", "kopf", "")


class Faults(Actor):
    """Draws faults for some runs, and causes them.

    Attributes:
        over_at: When the last fault so far ends; infinite if only `calm` ends it.
    """

    name = "faults"

    def __init__(self) -> None:
        self.over_at = 0.0
        self._hides_until = 0.0
        self._jumps: list[tuple[float, str, float]] = []
        """When whose clock has jumped, and from which error."""

    def draw(self, plan: Plan) -> None:
        """Draw the network's general quality, and single faults."""
        random = plan.random
        plan.step(
            0.0,
            self.name,
            "weather",
            latency=random.choice((0.0002, 0.002, 0.05)),
            lag=random.choice((0.0005, 0.005, 0.3)),
            looking=random.choice((0.0, 0.0, 0.00001, 0.0005)),
            behind=random.choice((0.0, 0.0, 0.0, 1.0, 3.0)),
        )
        for _ in range(random.choice((0, 1, 2, 4, 8))):
            does = random.choice((*_DRAWS, "requests", "requests"))
            at, args = plan.time(), drawn(does, plan)
            plan.step(at, self.name, does, **args)
            if does in {"pause", "stall", "restart server"}:
                plan.moments += [at + args["seconds"]] * 3
        if plan.seconds > _COMPARED_SECONDS and plan.chance(0.1):
            self._draw_late_read(plan)

    def _draw_late_read(self, plan: Plan) -> None:
        """Draw a pod that the first comparison sees before kopf does, and that ends meanwhile.

        The comparison reads the pod; the answer is slow, so kopf shows the pod's end first.
        """
        of = {"replica": "", "plural": "pods", "agent": "kopf"}
        fields = {"kind": "bare", "count": 1, "cpu": "100", "priority": 0}
        rest = {"zone": "", "gated": False, "card": 0}
        slow = {"outcome": str(Outcome.ANSWER_SLOW), "what": "get pods", "replica": ""}
        gone_at = plan.random.uniform(22.0, 23.5)
        plan.step(3.0, self.name, "stall", **of, seconds=gone_at - 2.0)
        plan.step(5.0, "pods", "create", name="unseen", **fields, **rest)
        plan.step(19.0, self.name, "requests", **slow, times=1000, seconds=4.0, lasts=5.0)
        plan.step(gone_at, "pods", "remove", name="unseen", index=0)

    def act(self, world: "World", step: Step) -> None:
        """Cause one fault."""
        if step.does != "weather":
            seconds = max(step.args.get("seconds", 0.0), step.args.get("lasts", 0.0))
            lasts = inf if step.does == "half open" else max(seconds, 0.0)
            self.over_at = max(self.over_at, world.timeline.now + lasts)
        getattr(self, f"_{step.does.replace(' ', '_')}")(world, **step.args)

    def calm(self, world: "World") -> None:
        """End all faults; half-open connections are noticed."""
        self.over_at = world.timeline.now
        world.network.rules.clear()
        world.server.watches.behind = 0.0
        world.network.servers[API] = world.server
        for replica in world.replicas.values():
            replica.paused_until = min(replica.paused_until, world.timeline.now)
        for stream in world.server.watches.streams:
            stream.stalled_until, stream.behind, stream.hides_next = 0.0, 0.0, False
        world.network.end_all(lambda link: link.half_open)  # the server may know no stream of it

    def _weather(
        self, world: "World", latency: float, lag: float, looking: float, behind: float = 0.0
    ) -> None:
        world.network.latency, world.server.watches.lag = latency, lag
        world.server.watches.behind = behind
        for replica in world.replicas.values():
            replica.looking_costs = looking

    def _requests(self, world: "World", outcome: str, seconds: float, **rule: Any) -> None:
        until = world.timeline.now + rule.pop("lasts")
        world.network.rules.append(Rule(Outcome(outcome), until, seconds=seconds, **rule))

    def _rotate(self, world: "World") -> None:
        world.network.token = world.server.renew_token()

    def _hide(self, world: "World", replica: str) -> None:
        """Let kopf's watches hide the next new pod until it changes."""
        self._hides_until = world.timeline.now + _HIDES_SECONDS
        for stream in _streams(world, replica, "pods", "kopf"):
            stream.hides_next = True
            world.after(_HIDES_SECONDS, stream.tell_all)

    def changed(self, world: "World", change: "Change") -> None:
        """Change a new pod that a watch may have hidden."""
        comes = change.resource is POD and change.verb == "ADDED"
        if comes and world.timeline.now <= self._hides_until:
            world.after(0.4, partial(self._change, world, change.object))

    def _change(self, world: "World", raw: "Raw") -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is not None and found["metadata"]["uid"] == metadata["uid"]:
            patch = {"metadata": {"annotations": {"shown": "late"}}}
            world.server.change(POD, found, self.name, patch)

    def _stall(self, world: "World", seconds: float, **of: str) -> None:
        for stream in _streams(world, **of):
            stream.stall(seconds)

    def _repeat(self, world: "World", **of: str) -> None:
        for stream in _streams(world, **of):
            stream.repeat()

    def _break_watches(self, world: "World", **of: str) -> None:
        for stream in _streams(world, **of):
            stream.link.reset()

    def _end_watches(self, world: "World", **of: str) -> None:
        for stream in _streams(world, **of):
            stream.end()

    def _half_open(self, world: "World", **of: str) -> None:
        for stream in _streams(world, **of):
            stream.link.half_open = True

    def _expire(self, world: "World", **of: str) -> None:
        world.server.forget_history()
        for stream in _streams(world, **of):
            world.server.watches.expire(stream)

    def _compact(self, world: "World") -> None:
        world.server.forget_history()

    def _restart_server(self, world: "World", seconds: float) -> None:
        world.network.servers.pop(API, None)
        world.network.end_all()
        world.server.forget_history()
        world.after(seconds, lambda: world.network.servers.setdefault(API, world.server))

    def _kill(self, world: "World", replica: str, steps: int = 0) -> None:
        if replica in world.replicas:
            self._after(world, replica, steps, world.replicas[replica].kill)

    def _stop(self, world: "World", replica: str) -> None:
        if replica in world.replicas:
            world.replicas[replica].ask_to_stop()

    def _pause(self, world: "World", replica: str, seconds: float, steps: int = 0) -> None:
        if replica in world.replicas:
            paused = world.replicas[replica]
            self._after(world, replica, steps, lambda: paused.pause(seconds))

    def _after(self, world: "World", replica: str, steps: int, call: Callable[[], object]) -> None:
        """Make the call now, or after this number of steps of the process, in a turn.

        Calls that are not made before everything is calm are dropped.
        """
        if steps and world.replicas[replica].alive:
            world.replicas[replica].after_steps(steps, lambda: world.is_calm or call())
        else:
            call()

    def _jump(self, world: "World", replica: str, seconds: float) -> None:
        if replica in world.replicas:
            error = world.replicas[replica].wall_clock_error
            self._jumps.append((world.timeline.now, replica, error))
            world.replicas[replica].wall_clock_error += seconds

    def clock_errors(self, world: "World", identity: str, since: float) -> list[float]:
        """Return all errors of the replica's clock since this time, in seconds."""
        name = identity.partition("-")[0]
        before = [error for at, jumped, error in self._jumps if jumped == name and at >= since]
        return [*before, world.replicas[name].wall_clock_error]


def drawn(name: str, plan: Plan) -> dict[str, Any]:
    """Return random arguments for the fault of this name."""
    return _DRAWS[name](plan.random, plan)


def _streams(world: "World", replica: str, plural: str, agent: str) -> "list[Stream]":
    """Return the open watches with these properties; "" matches all."""
    return world.server.watches.of(
        lambda stream: (
            replica in {"", stream.process.name}
            and plural in {"", stream.resource.plural}
            and agent in {"", stream.agent}
        )
    )


def _which(random: Random, plan: Plan) -> dict[str, Any]:
    return {
        "replica": random.choice(("", *plan.replicas)),
        "plural": random.choice(_PLURALS),
        "agent": random.choice(_AGENTS),
    }


def _requests(random: Random, plan: Plan) -> dict[str, Any]:
    return {
        "outcome": (outcome := random.choice([*map(str, Outcome)])),
        "what": random.choice(_WRITES),
        "replica": random.choice(("", *plan.replicas)),
        "times": random.choice((1, 2, 10, 1000)) if outcome not in _ENDS else 1,
        "seconds": random.choice((0.1, 1.0, 4.0)),
        "lasts": random.choice((1.0, 5.0, 20.0)),
    }


def _one(random: Random, plan: Plan) -> dict[str, Any]:
    return {"replica": random.choice(plan.replicas)}


def _steps(random: Random) -> dict[str, Any]:
    """Draw after how many task steps the fault strikes; so it may strike at any await."""
    return {"steps": random.choice((0, 1, 2, 5, random.randint(1, 400)))}


_DRAWS: Final[dict[str, Callable[[Random, Plan], dict[str, Any]]]] = {
    "requests": _requests,
    "stall": lambda r, p: {**_which(r, p), "seconds": r.choice((0.5, 3.0, 12.0))},
    "repeat": _which,
    "break watches": _which,
    "end watches": _which,
    "half open": _which,
    "expire": _which,
    "compact": lambda _r, _p: {},
    "restart server": lambda r, _: {"seconds": r.choice((0.2, 2.0, 10.0))},
    "kill": lambda r, p: {**_one(r, p), **_steps(r)},
    "stop": _one,
    "pause": lambda r, p: {**_one(r, p), **_steps(r), "seconds": r.choice((0.5, 6.0, 14.0, 25.0))},
    "rotate": lambda _r, _p: {},
    "hide": lambda r, p: {"replica": r.choice(("", *p.replicas))},
    "jump": lambda r, p: {**_one(r, p), "seconds": r.choice((-3600.0, 3600.0))},
}
"""The kinds of faults, and what is drawn of each."""
FAULTS: Final = frozenset(_DRAWS)
"""Their names."""
