"""Another scheduler, which binds its own pods and some of Mooring's; a profile in mode Shadow.

Some of its pods terminate slowly, and some have a disruption budget.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.books import PodSeen
from mooring.kube.api_resources import NODE, POD, POD_DISRUPTION_BUDGET, SCHEDULING_PROFILE
from mooring.testing.builders import api_object, pdb, pod
from simulation.cluster_books import BOUND_BY_ANOTHER
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


HANGS: Final = "hangs"
"""The label of pods that terminate for so many seconds."""
_OTHER: Final = "other"
"""What its pods have as schedulerName."""
_SPEC: Final = {"mode": "Shadow", "match": {"schedulerNames": [_OTHER]}}


class Strangers(Actor):
    """Binds its own pods to nodes with room, and sometimes one of Mooring's pods."""

    name = "strangers"

    def __init__(self) -> None:
        self._made = 0
        self._least: int | None = None
        """How many of its pods the budget keeps."""

    def draw(self, plan: Plan) -> None:
        """Draw its pods, and the times when it binds a pod of Mooring's."""
        random = plan.random
        if not plan.chance(0.3):
            return
        least = random.choice((None, None, 0, 1, 3))
        plan.step(0.0, self.name, "begin", shadow=plan.chance(0.5), least=least)
        for _ in range(random.randint(1, 5)):
            plan.step(
                plan.time(),
                self.name,
                "create",
                count=random.choice((1, 2, 4)),
                cpu=random.choice(("100m", "500m", "1", "2")),
                priority=random.choice((-10, 0, 0, 500)),
                hangs=random.choice((0, 0, 0, 10, 60)),
                number=random.randrange(100),
            )
        for _ in range(random.choice((0, 0, 1, 3))):
            plan.step(plan.time(), self.name, "take", number=random.randrange(100))
        for _ in range(random.choice((0, 1, 3))):
            plan.step(plan.time(), self.name, "delete", number=random.randrange(100))

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _begin(self, world: "World", *, shadow: bool, least: int | None) -> None:
        server = world.server
        if shadow:
            profile = api_object("SchedulingProfile", "shadow", spec=_SPEC)
            server.create(SCHEDULING_PROFILE, profile, self.name)
        self._least = least
        if least is not None:
            budget = pdb(_OTHER, {"of": _OTHER}, namespace=NAMESPACE)
            server.create(POD_DISRUPTION_BUDGET, budget, self.name)

    def _create(
        self, world: "World", count: int, cpu: str, priority: int, hangs: int, number: int
    ) -> None:
        for _ in range(count):
            self._made += 1
            labels = {"of": _OTHER, **({HANGS: str(hangs)} if hangs else {})}
            raw = pod(
                f"{_OTHER}-{self._made}",
                namespace=NAMESPACE,
                cpu=cpu,
                priority=priority,
                labels=labels,
                spec={"schedulerName": _OTHER},
            )
            if (made := world.server.create(POD, raw, self.name)) is not None:
                delay = world.random.choice((0.001, 0.05, 1.0))
                world.after(delay, partial(self._bind, world, made, number))

    def _take(self, world: "World", number: int) -> None:
        """Bind a pod that Mooring is trying."""
        waiting = [
            raw
            for raw in world.server.storage.all(POD)
            if raw["spec"]["schedulerName"] == SCHEDULER
            and "workload" in (raw["metadata"].get("labels") or {})
            and not raw["spec"].get("schedulingGates")
        ]
        if waiting:
            self._bind(world, waiting[number % len(waiting)], number)

    def _delete(self, world: "World", number: int) -> None:
        own = [raw for raw in world.server.storage.all(POD) if _is_own(raw)]
        if own:
            world.server.delete(POD, own[number % len(own)], self.name)

    def _bind(self, world: "World", raw: "Raw", number: int) -> None:
        """Bind the pod to a node with room, unless it is bound already."""
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return
        seen = PodSeen.read(found)
        if seen.node or seen.finished or seen.leaving or seen.wants_cards:
            return
        names = [name for name in world.books.nodes if world.books.takes(name, seen)]
        if names:
            patch = {"spec": {"nodeName": names[number % len(names)]}}
            world.server.change(POD, found, self.name, patch, BOUND_BY_ANOTHER)
            world.after(0.5, lambda: self._run(world, found))

    def _run(self, world: "World", raw: "Raw") -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return
        if world.server.storage.get(NODE, found["spec"]["nodeName"]) is None:
            world.server.remove(POD, found, self.name)
        elif (found["status"] or {}).get("phase") == "Pending":
            ready: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
            world.server.change(POD, found, self.name, {"status": {"phase": "Running", **ready}})

    def changed(self, world: "World", change: "Change") -> None:
        """Let the disruption controller compute the budgets a moment later."""
        if self._least is not None and change.resource is POD and _is_own(change.object):
            delay = world.random.choice((0.01, 0.5))
            world.after(delay, lambda: self._count(world))

    def _count(self, world: "World") -> None:
        budget = world.server.storage.get(POD_DISRUPTION_BUDGET, _OTHER, NAMESPACE)
        if budget is None or self._least is None:
            return
        own = (raw for raw in world.server.storage.all(POD) if _is_own(raw))
        healthy = sum(
            raw["status"].get("phase") == "Running" and "deletionTimestamp" not in raw["metadata"]
            for raw in own
        )
        allowed = max(0, healthy - self._least)
        if budget["status"].get("disruptionsAllowed") != allowed:
            patch = {"status": {"disruptionsAllowed": allowed}}
            world.server.change(POD_DISRUPTION_BUDGET, budget, self.name, patch)


def _is_own(raw: "Raw") -> bool:
    return (raw["metadata"].get("labels") or {}).get("of") == _OTHER
