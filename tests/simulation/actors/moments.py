"""Events in short moments: while a pod is active, tried, or being bound.

A step of this actor waits until the leader has a pod in such a state; this is checked after each
step of the leader's tasks. Then the turn ends, and a fault strikes, a reader asks, or the pod
changes or goes. Such states often last only from one await to the next, so steps at random times
hardly meet them.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD
from mooring.model.pod import Uid
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.pod_report import pod_state
from mooring.scheduling.scheduler_state import SchedulerState
from simulation.actors.faults import FAULTS, Faults, drawn
from simulation.actors.readers import QUESTIONS, Readers
from simulation.network import Outcome
from simulation.scenario import Actor, Plan, Step
from simulation.state_invariants import leader

if TYPE_CHECKING:
    from simulation.replica import Replica
    from simulation.world import World


_HAS: Final[dict[PodState, Callable[[SchedulerState], object]]] = {
    PodState.ACTIVE: lambda scheduler: scheduler.queue.has_active,
    PodState.IN_FLIGHT: lambda scheduler: [*scheduler.queue.in_flight],
    PodState.BACKOFF: lambda scheduler: scheduler.queue.counts()[PodState.BACKOFF],
    PodState.BINDING: lambda scheduler: scheduler.being_bound,
}
"""Whether a pod may be in a state, told quickly."""
_STATES: Final = (
    *(PodState.ACTIVE, PodState.ACTIVE, PodState.IN_FLIGHT, PodState.IN_FLIGHT),
    *(PodState.BACKOFF, PodState.BINDING),
)
_LASTS: Final = 6.0
"""So long a step waits for its moment."""
_NAME: Final = "moments"
_EVENTS: Final = (
    *((Faults.name, fault) for fault in sorted(FAULTS)),
    *((Faults.name, "requests") for _ in range(5)),
    *((Readers.name, question) for question in QUESTIONS),
    *((_NAME, change) for change in ("change", "remove", "delete")),
)
"""Who does what."""
_READ_OR_TOLD: Final = ("get", "watch", "patch status")
"""Requests that faults of other actors are seldom about."""


class Moments(Actor):
    """Waits for moments; then another actor takes a step, or the pod in this state changes."""

    name = _NAME

    def __init__(self) -> None:
        self._awaited: list[Step] = []

    def draw(self, plan: Plan) -> None:
        """Draw the states and the events, for runs without a subject."""
        random = plan.random
        if plan.subject or plan.chance(0.4):
            return
        for _ in range(random.choice((2, 4, 6))):
            of, does = random.choice(_EVENTS)
            args: dict[str, Any] = {"number": random.randrange(20)}
            args = drawn(does, plan) if of == Faults.name else args
            if does == "requests" and plan.chance(0.5):
                args["what"] = random.choice(_READ_OR_TOLD)
            state = str(random.choice(_STATES))
            plan.step(plan.time(), self.name, "wait", state=state, of=of, then=does, args=args)

    def act(self, world: "World", step: Step) -> None:
        """Wait for the moment of a step, or change a pod in its state."""
        if step.does == "wait":
            self._awaited.append(step)
            world.after(_LASTS, partial(self._give_up, world, step))
            self._look_out(world)
        elif found := leader(world):
            self._change(world, found[1].scheduler, step)

    def calm(self, world: "World") -> None:
        """Stop waiting for moments."""
        self._awaited.clear()
        self._look_out(world)

    def _give_up(self, world: "World", step: Step) -> None:
        self._awaited = [each for each in self._awaited if each is not step]
        self._look_out(world)

    def _look_out(self, world: "World") -> None:
        """Check all replicas after each step of their tasks while a step waits for a moment."""
        for replica in world.replicas.values():
            replica.end_turns_when(
                partial(self._has_come, world, replica) if self._awaited else None
            )

    def _has_come(self, world: "World", replica: "Replica") -> bool:
        """Return whether a step has waited for this moment, and let the step be taken."""
        scheduler = replica.scheduler
        if scheduler is None or replica.identity != world.books.holder:
            return False
        for step in self._awaited:
            has = _HAS[PodState(step.args["state"])]
            if has(scheduler.engine.scheduler) and leader(world) is not None:
                self._give_up(world, step)
                world.after(0.0, partial(self._take, world, step))
                return True
        return False

    def _take(self, world: "World", step: Step) -> None:
        args = step.args
        if not world.is_calm:
            more = {"state": args["state"]} if args["of"] == self.name else {}
            world.take(Step(world.now, args["of"], args["then"], {**args["args"], **more}))

    def _change(self, world: "World", scheduler: SchedulerState, step: Step) -> None:
        """Change, delete or remove a pod that is in the state."""
        state = PodState(step.args["state"])
        pods = [
            raw
            for raw in world.server.storage.all(POD)
            if pod_state(scheduler, Uid(raw["metadata"]["uid"])) is state
        ]
        if not pods:
            return
        raw = pods[step.args["number"] % len(pods)]
        if step.does == "change":
            patch = {"metadata": {"annotations": {"noted": f"{world.now:.3f}"}}}
            world.server.change(POD, raw, self.name, patch)
        elif step.does == "delete":
            world.server.delete(POD, raw, self.name)
        else:
            world.server.remove(POD, raw, self.name)


class RareMoments(Actor):
    """Draws more of the rare situations; `Moments` takes the steps."""

    name = "rare moments"

    def draw(self, plan: Plan) -> None:
        """Draw faults while a pod is tried, and failing reads."""
        random = plan.random
        if plan.subject or plan.chance(0.7):
            return
        tried = {"state": str(PodState.IN_FLIGHT), "of": Faults.name}
        does = random.choice(("pause", "rotate", "half open", "expire"))
        args = drawn(does, plan)
        plan.step(plan.time(), Moments.name, "wait", **tried, then=does, args=args)
        soon = {
            "state": str(random.choice((PodState.BACKOFF, PodState.BINDING))),
            "of": Faults.name,
        }
        args = {**drawn("requests", plan), "outcome": str(random.choice([*Outcome]))}
        args |= {"what": random.choice(("get", "get", "watch")), "times": random.choice((1, 2))}
        plan.step(plan.time(), Moments.name, "wait", **soon, then="requests", args=args)
