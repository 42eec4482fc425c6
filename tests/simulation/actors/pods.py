"""Pods of Deployments and StatefulSets: they are created, deleted, finish and return."""

from typing import TYPE_CHECKING, Any

from devices.objects import MEMORY
from mooring.kube.api_resources import POD
from mooring.testing.builders import pod
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


class Pods(Actor):
    """Workloads of equal pods, and their controllers.

    New pods of a Deployment get new names; pods of a StatefulSet return with their names. Bare pods
    do not return.
    """

    name = "pods"

    def __init__(self) -> None:
        self._workloads: dict[str, dict[str, Any]] = {}
        self._made: dict[str, int] = {}

    def draw(self, plan: Plan) -> None:
        """Draw workloads, and deletions and ends of some of their pods."""
        random = plan.random
        for number in range(random.randint(1, 6)):
            name, at = f"w{number}", plan.time() if plan.chance(0.8) else 0.0
            kind = random.choice(("bare", "deployment", "statefulset"))
            plan.step(at, self.name, "create", name=name, kind=kind, **self._drawn(plan))
            for _ in range(random.choice((0, 1, 3))):
                later = at + random.expovariate(1.0) * random.choice((0.05, 3.0))
                does = random.choice(("delete", "delete", "finish", "remove", "label"))
                plan.step(later, self.name, does, name=name, index=random.randrange(6))
            if plan.chance(0.2):
                plan.step(at + random.uniform(1.0, 20.0), self.name, "end", name=name)

    def _drawn(self, plan: Plan) -> dict[str, Any]:
        random = plan.random
        return {
            "count": random.choice((1, 2, 3, 6)),
            "cpu": random.choice(("100m", "500m", "1", "2", "3")),
            "priority": random.choice((0, 0, 0, 100, 1000)),
            "zone": random.choice(("", "", "", "a", "b")),
            "gated": plan.chance(0.1),
            "card": random.choice((0, 1, 4, 5, 8)) if plan.has_cards else 0,
        }

    def act(self, world: "World", step: Step) -> None:
        name: str = step.args["name"]
        if step.does == "create":
            self._workloads[name] = dict(step.args)
            for index in range(step.args["count"]):
                self._create(world, name, index)
            if step.args["gated"]:
                world.after(3.0, lambda: self._open_gates(world, name))
            return
        if step.does == "end":
            self._workloads.pop(name, None)
            for raw in self._of(world, name):
                world.server.delete(POD, raw, self.name)
            return
        pods = self._of(world, name)
        if pods:
            self._do(world, step, pods[step.args["index"] % len(pods)])

    def _do(self, world: "World", step: Step, raw: "Raw") -> None:
        """Apply the step's action to a pod."""
        server, does = world.server, step.does
        if does == "delete":
            server.delete(POD, raw, self.name)
        elif does == "remove":
            server.remove(POD, raw, self.name)
        elif does == "finish":
            server.change(POD, raw, self.name, {"status": {"phase": "Succeeded"}})
        else:
            server.change(POD, raw, self.name, {"metadata": {"labels": {"changed": "yes"}}})

    def changed(self, world: "World", change: "Change") -> None:
        """Replace a deleted pod, as its controller does."""
        if change.resource is not POD or change.after is not None or world.is_calm:
            return
        raw = change.object
        name = (raw["metadata"].get("labels") or {}).get("workload", "")
        workload = self._workloads.get(name)
        if workload is None or workload["kind"] == "bare":
            return
        index = int(raw["metadata"]["name"].rpartition("-")[2])
        if workload["kind"] == "deployment":
            index = self._made[name]
        delay = world.random.choice((0.0, 0.02, 0.5))
        world.after(delay, lambda: self._create(world, name, index))

    def _create(self, world: "World", name: str, index: int) -> None:
        workload = self._workloads.get(name)
        if workload is None:
            return
        self._made[name] = max(self._made.get(name, 0), index + 1)
        world.server.create(POD, self._raw(f"{name}-{index}", name, workload), self.name)

    def _raw(self, called: str, name: str, workload: dict[str, Any]) -> "Raw":
        """Return the pod `called` of this workload."""
        card = workload.get("card", 0)
        return pod(
            called,
            namespace=NAMESPACE,
            cpu=workload["cpu"],
            priority=workload["priority"],
            requests={MEMORY: card} if card else {},
            labels={"workload": name},
            node_selector={"topology.kubernetes.io/zone": workload["zone"]}
            if workload["zone"]
            else {},
            gates=("simulation/gate",) if workload["gated"] else (),
            spec={"schedulerName": SCHEDULER},
        )

    def _open_gates(self, world: "World", name: str) -> None:
        if name in self._workloads:
            self._workloads[name]["gated"] = False
        for raw in self._of(world, name):
            world.server.change(POD, raw, self.name, {"spec": {"schedulingGates": None}})

    def _of(self, world: "World", name: str) -> list["Raw"]:
        """Return the pods of the workload that are not terminating."""
        return [
            raw
            for raw in world.server.storage.all(POD)
            if (raw["metadata"].get("labels") or {}).get("workload") == name
            and "deletionTimestamp" not in raw["metadata"]
        ]
