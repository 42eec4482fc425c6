"""A profile with rebalancing, pods that it moves, their controllers, and reasons for moves.

Nodes get and lose labels that pods require. Meanwhile templates change, workloads are scaled, and
the profile changes its mode, is deleted and returns.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import NODE, POD, SCHEDULING_PROFILE
from mooring.testing.builders import api_object, pod
from simulation.scenario import NAMESPACE, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


MOVED: Final = "moved"
"""The profile, and what its pods have as schedulerName."""
REPLACEMENT_SECONDS: Final = 15
_LABEL: Final = "suits"
STOPPED_AFTER: Final = 40.0
"""So long after the last step no more pods are moved, so that the cluster comes to rest."""
_READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


class Rebalancing(Actor):
    """One profile, some workloads, and labels that move between nodes."""

    name = "rebalancing"

    def __init__(self) -> None:
        self._workloads: dict[str, dict[str, Any]] = {}
        self._made: dict[str, int] = {}
        self._over = False

    def draw(self, plan: Plan) -> None:
        """Draw the profile and the workloads for some runs."""
        random = plan.random
        if not plan.chance(0.4):
            return
        section = {
            "moves": random.choice((1, 1, 2, 3)),
            "hour": random.choice((3, 20)),
            "spread": plan.chance(0.5),
        }
        plan.step(random.choice((0.0, 1.0)), self.name, "profile", **section, mode="Apply")
        for node in plan.nodes:
            if plan.chance(0.85):
                plan.step(0.3, self.name, "label", node=node, value="yes")
        for number in range(random.randint(1, 3)):
            plan.step(random.choice((0.5, 2.0)), self.name, "create", **self._drawn(plan, number))
        for _ in range(random.randint(1, 4)):
            node = random.choice(plan.nodes)
            plan.step(plan.time(), self.name, "label", node=node, value="no")
            plan.step(plan.time(), self.name, "label", node=node, value="yes")
        for _ in range(random.choice((0, 1, 4))):
            self._draw_change(plan, section)

    def _drawn(self, plan: Plan, number: int) -> dict[str, Any]:
        random = plan.random
        return {
            "name": f"m{number}",
            "kind": random.choice(("ReplicaSet", "ReplicaSet", "StatefulSet")),
            "count": random.randint(1, 4),
            "cpu": random.choice(("100m", "100m", "500m")),
            "late": random.choice((0.1, 0.1, 3.0, 60.0)),
        }

    def _draw_change(self, plan: Plan, section: dict[str, Any]) -> None:
        random = plan.random
        does = random.choice(("label", "label", "label", "mode", "template", "scale", "replace"))
        at, name = plan.time(), f"m{random.randrange(3)}"
        if does == "label":
            node, value = random.choice(plan.nodes), random.choice(("yes", "no"))
            plan.step(at, self.name, does, node=node, value=value)
        elif does == "mode":
            mode = random.choice(("Plan", "none"))
            plan.step(at, self.name, "profile", **section, mode=mode)
            plan.step(at + random.choice((0.5, 5.0)), self.name, "profile", **section, mode="Apply")
        elif does == "template":
            plan.step(at, self.name, does, name=name, cpu=random.choice(("200m", "700m")))
        elif does == "scale":
            plan.step(at, self.name, does, name=name, count=random.randint(0, 4))
        else:
            plan.step(at, self.name, "delete profile")
            later = at + random.choice((0.0, 3.0))
            plan.step(later, self.name, "profile", **section, mode="Apply")

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does.replace(' ', '_')}")(world, **step.args)

    def _profile(self, world: "World", mode: str, **section: Any) -> None:
        raw = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
        spec = _spec(mode, **section)
        if raw is not None and "preemption" in raw["spec"]:
            spec["preemption"] = raw["spec"]["preemption"]
        if raw is None:
            made = api_object("SchedulingProfile", MOVED, spec=spec)
            world.server.create(SCHEDULING_PROFILE, made, self.name)
        elif raw["spec"] != spec:
            generation = raw["metadata"]["generation"] + 1
            changed = {
                **raw,
                "spec": spec,
                "metadata": {**raw["metadata"], "generation": generation},
            }
            world.server.storage.put(SCHEDULING_PROFILE, changed, self.name, "change")

    def _delete_profile(self, world: "World") -> None:
        raw = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
        if raw is not None:
            world.server.delete(SCHEDULING_PROFILE, raw, self.name)

    def _label(self, world: "World", node: str, value: str) -> None:
        raw = world.server.storage.get(NODE, node)
        if raw is not None:
            world.server.change(NODE, raw, self.name, {"metadata": {"labels": {_LABEL: value}}})

    def _create(self, world: "World", name: str, **drawn: Any) -> None:
        self._workloads[name] = drawn
        self._fill(world, name)

    def _template(self, _world: "World", name: str, cpu: str) -> None:
        if name in self._workloads:
            self._workloads[name]["cpu"] = cpu

    def _scale(self, world: "World", name: str, count: int) -> None:
        if name not in self._workloads:
            return
        self._workloads[name]["count"] = count
        for raw in _of(world, name)[count:]:
            world.server.delete(POD, raw, self.name)
        self._fill(world, name)

    def changed(self, world: "World", change: "Change") -> None:
        """Replace leaving pods; let running pods become ready after a while."""
        self._over |= change.by == "end"
        if change.resource is not POD:
            return
        raw = change.object
        name = (raw["metadata"].get("labels") or {}).get(MOVED, "")
        workload = self._workloads.get(name)
        if workload is None:
            return
        leaves = change.after is None or "deletionTimestamp" in change.after["metadata"]
        if leaves and not self._over:
            delay = world.random.choice((0.0, 0.02, 0.5)) + workload.get("slow", 0.0)
            world.after(delay, lambda: self._fill(world, name))
        elif change.after is not None and change.after["status"].get("phase") == "Running":
            uid, delay = raw["metadata"]["uid"], world.random.uniform(0.0, workload["late"])
            if not _is_ready(raw):
                world.after(delay, lambda: self._become_ready(world, raw, uid))

    def _become_ready(self, world: "World", raw: "Raw", uid: str) -> None:
        metadata = raw["metadata"]
        found = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
        if found is not None and found["metadata"]["uid"] == uid and not _is_ready(found):
            world.server.change(POD, found, self.name, _READY)

    def _fill(self, world: "World", name: str) -> None:
        """Create missing pods of the workload, as its controller does."""
        workload = self._workloads.get(name)
        if workload is None or self._over:
            return
        stateful = workload["kind"] == "StatefulSet"
        for index in range(workload["count"] - len(_of(world, name))):
            number = index if stateful else self._made.get(name, 0)
            self._made[name] = self._made.get(name, 0) + 1
            if stateful:  # the first name that is free; one that terminates still has its own
                taken = {raw["metadata"]["name"] for raw in world.server.storage.all(POD)}
                free = (n for n in range(workload["count"]) if f"{name}-{n}" not in taken)
                number = next(free, -1)
                if number < 0:
                    return
            self._make(world, name, number)

    def _make(self, world: "World", name: str, number: int) -> None:
        workload = self._workloads[name]
        raw = pod(
            f"{name}-{number}",
            namespace=NAMESPACE,
            cpu=workload["cpu"],
            labels={MOVED: name},
            node_selector={} if workload.get("anywhere") else {_LABEL: "yes"},
            owner={
                "apiVersion": "apps/v1",
                "kind": workload["kind"],
                "name": name,
                "uid": f"controller-{name}",
            },
            spec={"schedulerName": MOVED},
        )
        world.server.create(POD, raw, self.name)

    def calm(self, world: "World") -> None:
        """Let pods be moved for a while, then end rebalancing."""
        profiles = [s for s in world.scenario.steps if s.actor == self.name and s.does == "profile"]
        if profiles:
            args = dict(profiles[0].args)
            self._profile(world, **args)
            world.after(STOPPED_AFTER, lambda: self._profile(world, **{**args, "mode": "Plan"}))


def _spec(
    mode: str,
    moves: int,
    hour: int,
    *,
    spread: bool,
    goals: Sequence[str] = (),
    per: int = 0,
    windows: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    """Return the profile's spec; without `goals` the goals are Violations and Spread."""
    if mode == "none":
        return {}
    return {
        "rebalancing": {
            "mode": mode,
            "goals": [*goals] or (["Violations", "Spread"] if spread else ["Violations"]),
            "minimumGain": 5,
            "intervalSeconds": 10,
            "pods": {"minimumAgeSeconds": 0, **({"groups": "Whole"} if goals else {})},
            **({"windows": [*windows]} if windows else {}),
            "limits": {
                "movesAtATime": moves,
                "movesAtATimePerWorkload": per or moves,
                "movesPerHour": hour,
                "replacementSeconds": REPLACEMENT_SECONDS,
            },
        }
    }


def _of(world: "World", name: str) -> list["Raw"]:
    """Return the pods of the workload that are not terminating."""
    return [
        raw
        for raw in world.server.storage.all(POD)
        if (raw["metadata"].get("labels") or {}).get(MOVED) == name
        and "deletionTimestamp" not in raw["metadata"]
    ]


def _is_ready(raw: "Raw") -> bool:
    conditions = raw["status"].get("conditions") or ()
    return any(each["type"] == "Ready" for each in conditions)
