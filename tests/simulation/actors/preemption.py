"""A subject: pods that preempt within the limits of their profile, and pods in their way.

Nodes are full of pods of low priority, which budgets with all kinds of selectors protect. Pods of
high priority come shortly after each other, some with a host port. After them come thieves that
would take the room while the victims terminate.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.testing.builders import api_object, pod
from pod_terms import spread_evenly
from simulation.actors.strangers import HANGS
from simulation.disruption_controller import DisruptionController
from simulation.scenario import NAMESPACE, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


LIMITED: Final = "limited"
"""The profile with limits, and what the pods have as schedulerName."""
_SELECTORS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"matchLabels": {"app": "x"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
    {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
)
_WRITES: Final = ("evict", "delete pods", "evict", "delete pods", "patch status of pods", "bind")
_OUTCOMES: Final = ("unavailable", "failed", "quota", "answer lost", "timed out late", "slow")
_SPREAD: Final = spread_evenly({"spread": "yes"})
_REMOVES: Final = {"Default": "delete pods", "Strict": "evict"}
"""How a victim is removed, by what the profile says of budgets."""


class Preemption(Actor):
    """The profile, its budgets and its pods; pods of low priority return."""

    name = "preemption"

    def __init__(self) -> None:
        self._budgets = DisruptionController()
        self._workloads: dict[str, dict[str, Any]] = {}
        self._made = 0
        self._over = False

    def draw(self, plan: Plan) -> None:
        """Draw pods that fill the nodes, and then important pods."""
        random = plan.random
        if plan.subject != self.name:
            return
        for name in plan.nodes[:3]:
            rest = {"pods": random.choice((4, 10)), "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=4, **rest)
        limits = {
            "disruptionBudgets": random.choice(("Default", "Strict", "Strict")),
            "maxVictims": random.choice((None, None, 1, 2)),
            "minRuntimeSeconds": random.choice((0, 0, 15)),
            "delaySeconds": random.choice((0, 0, 5)),
        }
        plan.step(0.0, self.name, "profile", **limits)
        for number, selector in enumerate(random.sample(_SELECTORS, random.choice((0, 1, 1, 2)))):
            least = random.choice((0, 1, 2, 3))
            plan.step(0.0, self.name, "budget", name=f"b{number}", selector=selector, least=least)
        cpu = random.choice(("1", "1", "2", "500m"))
        for number in range(random.randint(1, 3)):
            count, app = random.randint(2, 6), random.choice(("x", "y", ""))
            rest = {"hangs": random.choice((0, 0, 3, 8)), "port": 0}
            plan.step(
                0.1, self.name, "create", name=f"low{number}", count=count, cpu=cpu, app=app,
                priority=random.choice((0, 0, 10)), returns=plan.chance(0.7), **rest,
            )  # fmt: skip
        spread = plan.chance(0.4)
        port, removes = random.choice((0, 0, 8080)), _REMOVES[str(limits["disruptionBudgets"])]
        for number in range(random.choice((1, 2, 3))):
            self._draw_wave(plan, number, port, removes, spread=spread)

    def _draw_wave(self, plan: Plan, number: int, port: int, removes: str, *, spread: bool) -> None:
        """Draw important pods that come together, thieves after them, and faults.

        With `spread` both kinds are spread over the nodes together.
        """
        random = plan.random
        at = began = random.uniform(8.0, plan.seconds)
        for index in range(random.choice((1, 1, 2, 3))):
            plan.step(
                at, self.name, "create", name=f"high{number}-{index}", count=1, app="",
                cpu=random.choice(("1", "2", "3")), priority=random.choice((100, 100, 1000)),
                returns=False, hangs=0, port=port, spread=spread,
            )  # fmt: skip
            if plan.chance(0.2):
                later = at + random.expovariate(1.0)
                plan.step(later, self.name, "delete", name=f"high{number}-{index}")
            at += random.choice((0.02, 0.1, 0.3, 1.5))
        for index in range(random.choice((0, 1, 2))):
            rest = {"hangs": 0, "returns": False, "app": random.choice(("x", ""))}
            plan.step(
                at + random.expovariate(1.0), self.name, "create", name=f"thief{number}-{index}",
                count=random.choice((1, 2)), cpu=random.choice(("100m", "500m", "1")),
                priority=random.choice((20, 50, 100)), port=port if plan.chance(0.6) else 0,
                spread=spread and plan.chance(0.7), **rest,
            )  # fmt: skip
        if plan.chance(0.35):
            rule = {"what": random.choice(_WRITES), "replica": "", "times": random.choice((1, 3))}
            seconds = {"seconds": random.choice((0.3, 2.0)), "lasts": 5.0}
            outcome = random.choice(_OUTCOMES)
            plan.step(at - 0.3, "faults", "requests", outcome=outcome, **rule, **seconds)
        if plan.chance(0.25):
            rule = {"what": removes, "replica": "", "times": random.choice((1, 2, 4))}
            seconds = {"seconds": 0.3, "lasts": random.choice((3.0, 10.0))}
            outcome = random.choice(("quota", "quota", "timed out"))
            plan.step(began - 0.1, "faults", "requests", outcome=outcome, **rule, **seconds)

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _profile(self, world: "World", **limits: Any) -> None:
        wanted = {name: value for name, value in limits.items() if value is not None}
        profile = api_object("SchedulingProfile", LIMITED, spec={"preemption": wanted})
        world.server.create(SCHEDULING_PROFILE, profile, self.name)

    def _budget(self, world: "World", name: str, selector: Any, least: int) -> None:
        self._budgets.create(world, name, selector, least)

    def _create(self, world: "World", name: str, **drawn: Any) -> None:
        self._workloads[name] = drawn
        for _ in range(drawn["count"]):
            self._make(world, name)

    def _delete(self, world: "World", name: str) -> None:
        for raw in world.server.storage.all(POD):
            if (raw["metadata"].get("labels") or {}).get("of") == name:
                world.server.delete(POD, raw, self.name)

    def _make(self, world: "World", name: str) -> None:
        drawn = self._workloads[name]
        self._made += 1
        labels = {"of": name, "app": drawn["app"], HANGS: str(drawn["hangs"] or "")}
        spec: dict[str, Any] = {"schedulerName": LIMITED}
        if drawn.get("spread"):
            labels["spread"], spec["topologySpreadConstraints"] = "yes", [_SPREAD]
        is_bare = not drawn["app"] and not drawn["returns"] and name.startswith("low")
        raw = pod(
            f"{name}-{self._made}",
            namespace=NAMESPACE,
            cpu=drawn["cpu"],
            priority=drawn["priority"],
            labels={} if is_bare else {key: value for key, value in labels.items() if value},
            ports=[{"hostPort": drawn["port"]}] if drawn["port"] else (),
            spec=spec,
        )
        world.server.create(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Replace deleted pods of low priority; let running ones become ready."""
        self._budgets.changed(world, change)
        self._over |= change.by == "end"
        raw = change.object
        if change.resource is not POD or raw["spec"].get("schedulerName") != LIMITED:
            return
        name = (raw["metadata"].get("labels") or {}).get("of", "")
        if change.after is None and self._workloads.get(name, {}).get("returns"):
            if not self._over and not world.is_calm:
                world.after(world.random.choice((0.02, 1.0)), partial(self._make, world, name))
        elif raw["status"].get("phase") == "Running" and not _has_conditions(raw, "Ready"):
            world.after(world.random.choice((0.01, 0.5)), partial(self._ready, world, raw))

    def _ready(self, world: "World", raw: "Raw") -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        same = found is not None and found["metadata"]["uid"] == metadata["uid"]
        if found is not None and same and not _has_conditions(found, "Ready"):
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            world.server.change(POD, found, self.name, {"status": ready})


def _has_conditions(raw: "Raw", kind: str) -> bool:
    return any(each["type"] == kind for each in raw["status"].get("conditions") or ())
