"""Pods with rules about other pods on their node or zone; nodes change zones and taints.

Labels `app` of the pods change too, so that terms and constraints select other pods without a new
pod. To add a kind of constraint, write a function like those in `KINDS`.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import NODE, POD
from mooring.model.node import HOSTNAME, ZONE
from mooring.testing.builders import pod
from simulation.actors.pods import Pods
from simulation.scenario import NAMESPACE, SCHEDULER, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Raw
    from simulation.world import World


_APPS: Final = ("x", "y")
_TOPOLOGIES: Final = (HOSTNAME, ZONE)
_EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _selector(random: Random) -> dict[str, Any]:
    """Draw a label selector: an app, the ordinary pods of a workload, or all except an app."""
    app = random.choice(_APPS)
    return random.choice(
        (
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": app}},
            {"matchLabels": {"workload": "w0"}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
        )
    )


def _term(random: Random) -> dict[str, Any]:
    """Draw an inter-pod term for its own namespace, the tenants' namespaces or all."""
    return {
        "topologyKey": random.choice(_TOPOLOGIES),
        "labelSelector": _selector(random),
        **random.choice(({}, {}, {}, {"namespaceSelector": {}}, {"namespaces": ["tenant"]})),
    }


def _ports(random: Random) -> dict[str, Any]:
    port = {
        "hostPort": random.choice((8080, 8080, 8080, 9090)),
        "protocol": random.choice(("TCP", "TCP", "TCP", "UDP")),
    }
    address = random.choice(("", "", "10.0.0.1", "10.0.0.2"))
    return {"ports": [{**port, "hostIP": address} if address else port]}


def _apart(random: Random) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [_term(random)]}}}


def _together(random: Random) -> dict[str, Any]:
    terms = [_term(random) for _ in range(random.choice((1, 1, 2)))]
    return {"affinity": {"podAffinity": {_REQUIRED: terms}}}


def _spread(random: Random) -> dict[str, Any]:
    key = random.choice(_TOPOLOGIES)
    constraint = {
        "maxSkew": random.choice((1, 1, 2)),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _selector(random),
        **random.choice(({}, {}, {"minDomains": 2}, {"minDomains": 4})),
        **random.choice(({}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"})),
        **random.choice(({}, {}, {"matchLabelKeys": ["workload"]}, {"matchLabelKeys": ["app"]})),
    }
    both = {**constraint, "topologyKey": HOSTNAME if key == ZONE else ZONE}
    return {"spread": [constraint] if random.random() < 0.7 else [constraint, both]}


def _nodes(random: Random) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": random.choice(("NotIn", "In")), "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    tolerations = [{"key": "dedicated", "operator": "Exists", **random.choice(({}, _NO_SCHEDULE))}]
    return {"affinity": {"nodeAffinity": {_REQUIRED: terms}}, "tolerations": tolerations}


def _preferred(random: Random) -> dict[str, Any]:
    """Draw a preferred rule, which keeps the pod from no node."""
    kind = random.choice(("podAffinity", "podAntiAffinity"))
    terms = [{"weight": 50, "podAffinityTerm": _term(random)}]
    soft = {"maxSkew": 1, "topologyKey": random.choice(_TOPOLOGIES)}
    spread = {**soft, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": _selector(random)}
    return {"affinity": {kind: {_PREFERRED: terms}}, "spread": [spread]}


_NO_SCHEDULE: Final = {"effect": "NoSchedule"}
KINDS: Final[Mapping[str, Callable[[Random], dict[str, Any]]]] = {
    "host ports": _ports,
    "anti-affinity": _apart,
    "affinity": _together,
    "spread": _spread,
    "node affinity": _nodes,
    "preferred": _preferred,
}
"""What constraints there are, and what is drawn of each: arguments of the builder of pods."""


class Neighbours(Pods):
    """Workloads whose pods have rules about other pods on their node or zone."""

    name = "neighbours"

    def draw(self, plan: Plan) -> None:
        """Draw workloads with constraints for a third of the runs, and changes of labels."""
        random = plan.random
        if not plan.chance(0.35):
            return
        kinds = random.choice(([*KINDS], random.sample([*KINDS], 1)))
        for number in range(random.randint(1, 5)):
            name, at = f"v{number}", plan.time()
            kind = random.choice(("bare", "deployment", "statefulset"))
            plan.step(at, self.name, "create", name=name, kind=kind, **self._with(plan, kinds))
            for _ in range(random.choice((0, 1, 2, 4))):
                later = at + random.expovariate(1.0) * random.choice((0.05, 3.0))
                does = random.choice(("delete", "delete", "finish", "remove", "app", "app"))
                args = {"index": random.randrange(6), "app": random.choice(_APPS)}
                plan.step(later, self.name, does, name=name, **args)
            if plan.chance(0.2):
                plan.step(at + random.uniform(1.0, 20.0), self.name, "end", name=name)
        for _ in range(random.choice((0, 0, 1, 3))):
            node, does = random.choice(plan.nodes), random.choice(("zone", "taint", "untaint"))
            args = {"zone": random.choice("ab"), "effect": random.choice(_EFFECTS)}
            plan.step(plan.time(), self.name, does, name=node, **args)

    def _with(self, plan: Plan, possible: list[str]) -> dict[str, Any]:
        """Draw a workload with some of the `possible` kinds of constraints."""
        random = plan.random
        kinds = random.sample(possible, min(len(possible), random.choice((1, 1, 1, 2))))
        return {
            "count": random.choice((1, 2, 3, 6)),
            "cpu": random.choice(("100m", "100m", "500m", "1")),
            "priority": random.choice((0, 0, 0, 100)),
            "app": random.choice(_APPS),
            "pod": _merged([KINDS[kind](random) for kind in kinds]),
            "gated": plan.chance(0.1),
        }

    def act(self, world: "World", step: Step) -> None:
        node = world.server.storage.get(NODE, step.args["name"])
        if node is None:
            super().act(world, step)
        elif step.does == "zone":
            patch = {"metadata": {"labels": {ZONE: step.args["zone"]}}}
            world.server.change(NODE, node, self.name, patch)
        else:
            taint = {"key": "dedicated", "value": "x", "effect": step.args["effect"]}
            taints = [taint] if step.does == "taint" else None
            world.server.change(NODE, node, self.name, {"spec": {"taints": taints}})

    def _do(self, world: "World", step: Step, raw: "Raw") -> None:
        if step.does == "app":
            patch = {"metadata": {"labels": {"app": step.args["app"]}}}
            world.server.change(POD, raw, self.name, patch)
        else:
            super()._do(world, step, raw)

    def _raw(self, called: str, name: str, workload: dict[str, Any]) -> "Raw":
        return pod(
            called,
            namespace=NAMESPACE,
            cpu=workload["cpu"],
            priority=workload["priority"],
            labels={"workload": name, "app": workload["app"]},
            gates=("simulation/gate",) if workload["gated"] else (),
            spec={"schedulerName": SCHEDULER},
            **workload["pod"],
        )


def kinds_of(raw: "Raw") -> list[str]:
    """Return the kinds of constraints that the pod has."""
    spec = raw["spec"]
    affinity = spec.get("affinity") or {}
    has = {
        "host ports": any(container.get("ports") for container in spec["containers"]),
        "anti-affinity": _REQUIRED in affinity.get("podAntiAffinity", ()),
        "affinity": _REQUIRED in affinity.get("podAffinity", ()),
        "spread": bool(spec.get("topologySpreadConstraints")),
        "node affinity": "nodeAffinity" in affinity,
        "preferred": any(_PREFERRED in terms for terms in affinity.values()),
    }
    return [kind for kind, there in has.items() if there]


def _merged(given: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the arguments of several kinds; their affinities become one affinity."""
    affinity: dict[str, Any] = {}
    for one in given:
        for kind, terms in one.get("affinity", {}).items():
            affinity[kind] = {**affinity.get(kind, {}), **terms}
    spread = [constraint for one in given for constraint in one.get("spread", ())]
    rest = {name: value for one in given for name, value in one.items() if name != "affinity"}
    both = {"affinity": affinity, "spread": spread}
    return {**rest, **{name: value for name, value in both.items() if value}}
