"""The scenario of a run: a list of steps, drawn from the seed before the run.

A step is a line of JSON: time, actor and action. Steps name objects, and do nothing if these do not
exist, so any step can be left out when a failure is shrunk. Random values during the run, for
example latencies, also come from the seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


SCHEDULER: Final = "mooring"
"""What the pods have as schedulerName."""
ACME: Final = "acme"
"""The profile of the plugin of another distribution, which some pods have as schedulerName."""
NAMESPACE: Final = "team"
"""Where the pods are."""


@dataclass(frozen=True)
class Step:
    """An action of an actor at a time, in seconds since the run's start."""

    at: float
    actor: str
    does: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = " ".join(
            f"{name}={orjson.dumps(value).decode()}" for name, value in self.args.items()
        )
        return f"{self.at:7.3f} {self.actor}: {self.does} {said}".rstrip()


class Plan:
    """The data that actors share while they draw their steps."""

    def __init__(self, random: Random, seconds: float) -> None:
        self.random = random
        self.seconds = seconds
        """Until then steps happen; afterwards all is calm."""
        self.nodes = [f"n{number}" for number in range(1, random.randint(2, 5) + 1)]
        """The names of the nodes, in the order of their coming."""
        self.replicas = ["a", "b"][: random.choice((1, 2, 2))]
        self.has_cards = self.chance(0.25)
        """Whether nodes have cards and the profile shares them."""
        self.extender = random.choice(("", "", "", "needed", "ignorable"))
        """Whether the profile has an extender, and what happens if it fails."""
        self.has_plugin = self.chance(0.3)
        """Whether there is a profile with a plugin of another distribution."""
        self.subject = ""
        """The actor that the whole run is about; empty for a run of all kinds of actors."""
        self.steps: list[Step] = []
        self.moments: list[float] = []
        """When something begins or ends."""

    def time(self) -> float:
        """Return a random time, often just before or after another step."""
        at = self.random.uniform(0.0, self.seconds)
        if self.moments and self.chance(0.6):
            at = self.random.choice(self.moments)
            at += self.random.choice((-0.02, 0.02, 0.3, 3.0)) * self.random.expovariate(1.0)
        return round(min(max(at, 0.0), self.seconds), 3)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    def step(self, at: float, actor: str, does: str, **args: Any) -> None:
        """Add a step; its time is at most the last moment of the run."""
        at = min(at, self.seconds)
        self.steps.append(Step(round(at, 3), actor, does, args))
        if at:
            self.moments.append(at)


class Actor:
    """Changes the world; see `simulation.actors` for how to add one."""

    name: str = ""

    def draw(self, plan: Plan) -> None:
        """Add the steps of a run to the plan."""

    def act(self, world: "World", step: Step) -> None:
        """Take one step; do nothing if an object that it names does not exist."""

    def changed(self, world: "World", change: "Change") -> None:
        """React to a change of the cluster, like a controller, perhaps later on the timeline."""

    def calm(self, world: "World") -> None:
        """End everything that would keep the cluster from coming to rest."""


@dataclass(frozen=True)
class Scenario:
    """A seed and its steps."""

    seed: int
    seconds: float
    replicas: Sequence[str]
    steps: Sequence[Step]

    def plain(self) -> dict[str, Any]:
        """Return the scenario as a JSON value."""
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "replicas": list(self.replicas),
            "steps": [[s.at, s.actor, s.does, dict(s.args)] for s in self.steps],
        }

    @classmethod
    def parsed(cls, raw: Mapping[str, Any]) -> "Scenario":
        steps = tuple(Step(at, actor, does, args) for at, actor, does, args in raw["steps"])
        return cls(raw["seed"], raw["seconds"], tuple(raw["replicas"]), steps)


_SECONDS: Final = (15.0, 60.0)


def draw(seed: int, actors: Sequence[Actor]) -> Scenario:
    """Return the scenario of a seed."""
    random = Random(seed)  # noqa: S311 - a simulation
    plan = Plan(random, random.uniform(*_SECONDS))
    for actor in actors:
        actor.draw(plan)
    steps = sorted(plan.steps, key=lambda step: step.at)
    return Scenario(seed, plan.seconds, tuple(plan.replicas), tuple(steps))
