"""A subject: Queues whose quotas change; their pods and gangs lend, borrow and reclaim quota.

The nodes have little more room than the quotas, so borrowers are soon in the way.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.books import PodSeen
from mooring.kube.api_resources import POD, QUEUE
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.testing.builders import pod, queue_object
from simulation.actors.groups import Groups
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_PARENTS: Final = {"a": "all", "b": "all", "mid": "all", "c": "mid", "d": "mid"}
_LEAVES: Final = ("a", "b", "c", "d")
_CHANGES: Final = ("quota", "quota", "delete", "finish", "remove", "leave")


class Queues(Actor):
    """Three levels of Queues for cpu, and their pods; some pods return.

    Attributes:
        changed_at: When a Queue, or the use or nomination of a pod in a Queue, last changed.
        queues_changed_at: When a Queue was last created, deleted or got another spec.
        left: By Queue, when each of its pods began to leave or ended, and by whose write.
        bound_at: By Queue, when one of its pods was last bound.
        preempted: By uid, when the pod's preemption first evicted a pod of a workload.
    """

    name = "queues"

    def __init__(self) -> None:
        self.changed_at = self.queues_changed_at = 0.0
        self.left: dict[str, list[tuple[float, str]]] = {}
        self.bound_at: dict[str, float] = {}
        self.preempted: dict[tuple[str, str], float] = {}
        self._workloads: dict[str, dict[str, Any]] = {}
        self._made = 0
        self._over = False

    def draw(self, plan: Plan) -> None:
        """Draw nodes, Queues, borrowing pods, and pods that take their quota back."""
        random = plan.random
        if plan.subject != self.name:
            return
        for name in plan.nodes[:3]:
            rest = {"pods": random.choice((4, 10, 10)), "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=4, **rest)
        plan.step(0.0, self.name, "quota", name="all", nominal=random.choice((0, 0, 2)))
        plan.step(0.0, self.name, "quota", name="mid", nominal=0)
        for name in _LEAVES:
            plan.step(0.0, self.name, "quota", name=name, **self._quota(plan))
        for number in range(random.randint(3, 7)):
            at = plan.time() if number > 1 else 0.1
            if plan.chance(0.4):
                self._draw_gang(plan, at, f"q{number}")
            else:
                plan.step(
                    at, self.name, "create", name=f"w{number}", queue=random.choice(_LEAVES),
                    count=random.choice((1, 2, 4, 8)), cpu=random.choice(("500m", "1", "1", "2")),
                    priority=random.choice((0, 0, 0, 100)), returns=plan.chance(0.6),
                )  # fmt: skip
        for _ in range(random.randint(0, 8)):
            does, at = random.choice(_CHANGES), plan.time()
            name = random.choice(_LEAVES)
            if does == "delete":
                plan.step(at, self.name, does, name=name)
                at += random.choice((0.0, 0.5, 8.0))
            which = random.randrange(8)
            more = {"which": which} if does in _CHANGES[3:] else self._quota(plan)
            plan.step(at, self.name, "quota" if does == "delete" else does, name=name, **more)

    def _draw_gang(self, plan: Plan, at: float, name: str) -> None:
        random, minimum = plan.random, plan.random.choice((2, 2, 3, 4))
        plan.step(
            at, Groups.name, "create", name=name, minimum=minimum, more="queue",
            count=minimum + random.choice((-1, 0, 0, 1)), gap=random.choice((0.0, 0.01, 0.4)),
            cpu=random.choice(("500m", "1", "1", "2")), priority=random.choice((0, 0, 100)),
            labels={QUEUE_LABEL: random.choice(_LEAVES)}, whole=plan.chance(0.3),
            topology=[], late=plan.chance(0.2), card=0,
        )  # fmt: skip

    def _quota(self, plan: Plan) -> dict[str, Any]:
        random, policies = plan.random, ("Any", "Any", "LowerPriority", "Never")
        return {
            "nominal": random.choice((0, 2, 3, 3, 4)),
            "borrows": random.choice((None, None, None, 0, 2)),
            "lends": random.choice((None, None, None, 0, 1)),
            "reclaims": random.choice(policies),
            "within": random.choice(policies),
        }

    def act(self, world: "World", step: Step) -> None:
        name: str = step.args["name"]
        if step.does == "quota":
            self._put(world, **step.args)
        elif step.does == "delete":
            if (raw := world.server.storage.get(QUEUE, name)) is not None:
                world.server.delete(QUEUE, raw, self.name)
        elif step.does == "create":
            self._workloads[name] = dict(step.args)
            for _ in range(step.args["count"]):
                self._make(world, name)
        else:
            pods = [raw for raw in world.server.storage.all(POD) if queue_of(raw) == name]
            if pods:
                self._end(world, step.does, pods[step.args["which"] % len(pods)])

    def _put(self, world: "World", name: str, nominal: int, **drawn: Any) -> None:
        """Create the Queue, or change its quota."""
        limits = {"borrowingLimit": drawn.get("borrows"), "lendingLimit": drawn.get("lends")}
        quota = {"nominalQuota": nominal, **{k: v for k, v in limits.items() if v is not None}}
        policies = {
            "reclaimWithinCohort": drawn.get("reclaims"),
            "withinQueue": drawn.get("within"),
        }
        preemption = {key: value for key, value in policies.items() if value}
        parent = _PARENTS.get(name, "")
        raw = queue_object(name, {"cpu": quota}, parent=parent, preemption=preemption)
        before = world.server.storage.get(QUEUE, name)
        if before is None:
            world.server.create(QUEUE, raw, self.name)
        elif before["spec"] != raw["spec"]:
            metadata = before["metadata"]
            metadata = {**metadata, "generation": metadata.get("generation", 1) + 1}
            changed = {**before, "spec": raw["spec"], "metadata": metadata}
            world.server.storage.put(QUEUE, changed, self.name, "change")

    def _end(self, world: "World", does: str, raw: "Raw") -> None:
        if does == "finish":
            world.server.change(POD, raw, self.name, {"status": {"phase": "Succeeded"}})
        elif does == "remove":
            world.server.remove(POD, raw, self.name)
        else:
            world.server.delete(POD, raw, self.name)

    def _make(self, world: "World", name: str) -> None:
        drawn = self._workloads[name]
        self._made += 1
        raw = pod(
            f"{name}-{self._made}",
            namespace=NAMESPACE,
            cpu=drawn["cpu"],
            priority=drawn["priority"],
            labels={QUEUE_LABEL: drawn["queue"], "of": name},
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Replace deleted pods; note events that excuse a decision or change which pods fit."""
        self._over |= change.by == "end"
        if change.resource is QUEUE and "status" not in change.what:
            self.changed_at = self.queues_changed_at = change.at
        name = queue_of(change.object) if change.resource is POD else None
        if name is None:
            return
        before = _place(change.before) if change.before is not None else None
        after = _place(change.after) if change.after is not None else None
        if before != after:
            self.changed_at = change.at
        if change.what == "bind":
            self.bound_at[name] = change.at
        if after is None or (before is not None and after[2] and not before[2]):
            self.left.setdefault(name, []).append((change.at, change.by))
        workload = change.object["metadata"]["labels"].get("of", "")
        returns = self._workloads.get(workload, {}).get("returns")
        if change.after is None and returns and not self._over and not world.is_calm:
            world.after(world.random.choice((0.02, 1.0)), partial(self._make, world, workload))


def queue_of(raw: "Raw") -> str | None:
    """Return the name of the pod's Queue; None if it names none."""
    return (raw["metadata"].get("labels") or {}).get(QUEUE_LABEL)


def _place(raw: "Raw") -> tuple[str, str, bool]:
    """Return the pod's node, its nominated node, and whether it is ending."""
    seen = PodSeen.read(raw)
    return seen.node, seen.nominated, seen.leaving or seen.finished
