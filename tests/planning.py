"""Plans of rebalancing for tests, on a cluster of a few nodes."""

from typing import Any

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod, parse_pod
from mooring.policy.rebalancing import Goal, MoveLimits, Rebalancing
from mooring.rebalancing.plan import Move, Plan, Step
from mooring.rebalancing.report import PlanReport, plan_report, with_nodes
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod

OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "rs"}


def placed_pod(name: str, on: str, *, namespace: str = "shop", cpu: str = "1") -> dict[str, Any]:
    """Return a pod of a ReplicaSet that requests this cpu and as many GiB."""
    return pod(name, namespace=namespace, cpu=cpu, memory=f"{cpu}Gi", node=on, owner=OWNER)


def _moved(name: str, source: str, target: str, namespace: str = "shop") -> Move:
    return Move(parse_pod(placed_pod(name, source, namespace=namespace)), source, target)


def emptying(source: str, target: str, *names: str, namespace: str = "shop") -> Step:
    """Return a step that moves the named pods from `source` to `target` and empties `source`."""
    moves = tuple(_moved(name, source, target, namespace) for name in names)
    return Step(Goal.PACK, moves, f"{source} is empty afterwards", 1000, emptied=(source,))


def spread_step(name: str, source: str, target: str, *, gain: int = 12) -> Step:
    """Return a step that moves a pod to a node with a higher score."""
    reason = f"its score is {gain} higher there"
    return Step(Goal.SPREAD, (_moved(name, source, target),), reason, gain)


def making_room(name: str, source: str, target: str, waiting: Pod) -> Step:
    ref = PodRef.of(waiting)
    text = TextAboutPods(f"{waiting.key} fits", (ref,), "a pod fits")
    return Step(Goal.MAKE_ROOM, (_moved(name, source, target),), text, 1000, fits=(ref,))


def plan(
    *steps: Step,
    pods: int = 4,
    examined: int | None = None,
    spent: bool = False,
    **refused: int,
) -> Plan:
    """Return a plan; `refused` has numbers of pods by reason, with "_" for each space."""
    reasons = {reason.replace("_", " "): count for reason, count in refused.items()}
    return Plan(steps, pods, examined, reasons, spent=spent)


def two_nodes() -> ClusterView:
    """Return a cluster of n1 and n2, each with 4 cpu and 8 GiB; pods a and b are on n1, c on n2."""
    nodes = (node(name, cpu="4", memory="8Gi") for name in ("n1", "n2"))
    pods = (placed_pod("a", "n1"), placed_pod("b", "n1"), placed_pod("c", "n2", cpu="2"))
    return ClusterView(cluster(*nodes, *pods))


def reported(found: Plan, *goals: Goal, most_moves: int = 100) -> PlanReport:
    """Return the plan of the profile "packed" as a document about `two_nodes`."""
    limits = MoveLimits(moves_per_plan=most_moves)
    section = Rebalancing(goals=goals or (Goal.PACK,), limits=limits)
    return with_nodes(plan_report("packed", section, found), two_nodes())
