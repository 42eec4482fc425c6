"""DaemonSets, which have a pod on each node, and Jobs, whose pods finish by themselves."""

from typing import TYPE_CHECKING, Any

from mooring.kube.api_resources import NODE, POD
from mooring.testing.builders import pod
from node_selectors import named, required_nodes
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


class DaemonSets(Actor):
    """Pods that each name one node and tolerate its cordon.

    Each node has one such pod, which comes and goes with the node even if it is not bound.
    """

    name = "daemon sets"

    def __init__(self) -> None:
        self._sets: dict[str, dict[str, Any]] = {}
        self._made = 0

    def draw(self, plan: Plan) -> None:
        """Draw a DaemonSet for some runs."""
        random = plan.random
        for number in range(random.choice((0, 0, 0, 1, 2))):
            name, at = f"d{number}", plan.time()
            cpu, priority = random.choice(("100m", "1")), random.choice((0, 2000))
            plan.step(at, self.name, "create", name=name, cpu=cpu, priority=priority)
            if plan.chance(0.3):
                plan.step(at + random.uniform(0.0, 9.0), self.name, "end", name=name)

    def act(self, world: "World", step: Step) -> None:
        name, server = step.args["name"], world.server
        if step.does == "create":
            self._sets[name] = dict(step.args)
            for node in server.storage.all(NODE):
                self._create(world, name, node["metadata"]["name"])
        else:
            self._sets.pop(name, None)
            for raw in server.storage.all(POD):
                if _label(raw, "daemon-set") == name:
                    server.delete(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Create and delete pods with their nodes, and replace deleted pods."""
        raw = change.object
        if change.resource is NODE and change.verb != "MODIFIED":
            node = raw["metadata"]["name"]
            follow = self._leave if change.after is None else self._come
            world.after(world.random.choice((0.0, 0.5)), lambda: follow(world, node))
        elif change.resource is POD and change.after is None and not world.is_calm:
            name, node = _label(raw, "daemon-set"), _label(raw, "for-node")
            delay = world.random.choice((0.0, 0.5))
            world.after(delay, lambda: self._create(world, name, node))

    def _come(self, world: "World", node: str) -> None:
        for name in self._sets:
            self._create(world, name, node)

    def _leave(self, world: "World", node: str) -> None:
        """Delete the pods that wait for a deleted node."""
        if world.server.storage.get(NODE, node) is None:
            for raw in world.server.storage.all(POD):
                if _label(raw, "for-node") == node and not raw["spec"].get("nodeName"):
                    world.server.delete(POD, raw, self.name)

    def _create(self, world: "World", name: str, node: str) -> None:
        """Create the pod for a node, unless it exists."""
        drawn, storage = self._sets.get(name), world.server.storage
        there = any(
            (_label(raw, "daemon-set"), _label(raw, "for-node")) == (name, node)
            and "deletionTimestamp" not in raw["metadata"]
            for raw in storage.all(POD)
        )
        if drawn is None or there or storage.get(NODE, node) is None:
            return
        self._made += 1
        raw = pod(
            f"{name}-{self._made}",
            namespace=NAMESPACE,
            cpu=drawn["cpu"],
            priority=drawn["priority"],
            labels={"daemon-set": name, "for-node": node},
            affinity=required_nodes(named(node)),
            tolerations=[{"operator": "Exists"}],
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)


class Jobs(Actor):
    """Pods that finish some time after their binding, until enough have; some run in parallel."""

    name = "jobs"

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Any]] = {}
        self._made = 0

    def draw(self, plan: Plan) -> None:
        """Draw Jobs for some runs."""
        random = plan.random
        for number in range(random.choice((0, 0, 0, 1, 2))):
            plan.step(
                plan.time(),
                self.name,
                "create",
                name=f"j{number}",
                parallelism=random.choice((1, 2, 4)),
                completions=random.choice((2, 6)),
                seconds=random.choice((0.0, 0.05, 2.0)),
                cpu=random.choice(("500m", "1", "2")),
                priority=random.choice((0, 0, 100)),
            )

    def act(self, world: "World", step: Step) -> None:
        name: str = step.args["name"]
        self._jobs[name] = {**step.args, "left": step.args["completions"]}
        for _ in range(step.args["parallelism"]):
            self._create(world, name)

    def changed(self, world: "World", change: "Change") -> None:
        """Finish a running pod later; create the next pod after one has finished or gone."""
        if change.resource is not POD or not (name := _label(change.object, "job")):
            return
        drawn, raw = self._jobs[name], change.object
        if change.what == "bind":
            seconds = drawn["seconds"] * world.random.uniform(0.5, 1.5)
            world.after(seconds, lambda: self._finish(world, raw))
        elif change.what == "finish":
            drawn["left"] -= 1
            world.after(0.0, lambda: self._create(world, name))
        elif change.after is None and not _has_finished(raw) and not world.is_calm:
            world.after(0.5, lambda: self._create(world, name))

    def _finish(self, world: "World", raw: "Raw") -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is not None and found["metadata"]["uid"] == metadata["uid"]:
            status = {"status": {"phase": world.random.choice(("Succeeded", "Failed"))}}
            world.server.change(POD, found, self.name, status, "finish")

    def _create(self, world: "World", name: str) -> None:
        drawn = self._jobs[name]
        running = sum(
            _label(raw, "job") == name and not _has_finished(raw)
            for raw in world.server.storage.all(POD)
        )
        if running >= min(drawn["parallelism"], drawn["left"]):
            return
        self._made += 1
        raw = pod(
            f"{name}-{self._made}",
            namespace=NAMESPACE,
            cpu=drawn["cpu"],
            priority=drawn["priority"],
            labels={"job": name},
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)


def _label(raw: "Raw", name: str) -> str:
    return str((raw["metadata"].get("labels") or {}).get(name, ""))


def _has_finished(raw: "Raw") -> bool:
    return (raw.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
