"""Small clusters, and the best plans for them, which an integer program finds.

The program knows only cpu and memory, and the pods of these clusters request nothing else. It knows
no order of the moves. So if pods would have to swap places, its plan may be impossible, and better
than any possible plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import highspy

from mooring.testing.builders import node, pod
from replanning import owned


class Amounts(NamedTuple):
    """Cpu in quarters of a core, and memory in GiB."""

    cpu: int
    memory: int


class SmallPod(NamedTuple):
    """The requests of a pod, the number of its node, and whether the pod may be moved."""

    amounts: Amounts
    node: int
    movable: bool = True


@dataclass(frozen=True, slots=True)
class SmallCluster:
    """The capacities of nodes, the pods on them, and the requests of a waiting pod."""

    nodes: tuple[Amounts, ...]
    pods: tuple[SmallPod, ...]
    waiting: Amounts

    def objects(self) -> list[dict[str, Any]]:
        """Return the nodes and the pods on them as API objects."""
        return [
            *(
                node(f"n{number}", cpu=f"{250 * has.cpu}m", memory=f"{has.memory}Gi")
                for number, has in enumerate(self.nodes)
            ),
            *(_pod(f"p{number}", each) for number, each in enumerate(self.pods)),
        ]

    def big(self) -> dict[str, Any]:
        """Return the waiting pod as an API object."""
        return pod("big", cpu=f"{250 * self.waiting.cpu}m", memory=f"{self.waiting.memory}Gi")


def _pod(name: str, small: SmallPod) -> dict[str, Any]:
    made = owned if small.movable else pod
    cpu, memory = f"{250 * small.amounts.cpu}m", f"{small.amounts.memory}Gi"
    return made(name, cpu=cpu, memory=memory, node=f"n{small.node}")


def small_cluster(seed: int) -> SmallCluster:
    """Return a random cluster of 5 to 10 nodes that are between a third and nine tenths full."""
    random = Random(seed)  # noqa: S311 - so that every run has the same clusters
    sizes = random.choice([[Amounts(16, 16)], [Amounts(16, 32), Amounts(32, 32)]])
    nodes = tuple(random.choice(sizes) for _ in range(random.randint(5, 10)))
    full, bare = random.uniform(0.35, 0.9), random.choice([0.0, 0.0, 0.15])
    pods = list[SmallPod]()
    for number, has in enumerate(nodes):
        left = Amounts(int(has.cpu * full), int(has.memory * full))
        while left.cpu and left.memory:
            wanted = Amounts(random.choice([1, 2, 2, 4, 6]), random.choice([1, 2, 2, 4, 8]))
            wanted = Amounts(min(wanted.cpu, left.cpu), min(wanted.memory, left.memory))
            pods.append(SmallPod(wanted, number, random.random() >= bare))
            left = Amounts(left.cpu - wanted.cpu, left.memory - wanted.memory)
            if random.random() < 0.2:
                break
    cpu, memory = (max(each[k] for each in nodes) for k in range(2))
    waiting = Amounts(random.randint(cpu // 3, cpu), random.randint(memory // 3, memory))
    return SmallCluster(nodes, tuple(pods), waiting)


_Solver: Any = highspy.Highs
"""Its methods have no types."""


class _Program:
    """An integer program in which each movable pod is on exactly one node."""

    def __init__(self, cluster: SmallCluster, targets: Sequence[int]) -> None:
        self.model: Any = _Solver()
        self.model.silent()
        self.cluster = cluster
        self.on = {
            (number, at): self.model.addBinary()
            for number, each in enumerate(cluster.pods)
            for at in {each.node, *(targets if each.movable else ())}
        }
        for number in range(len(cluster.pods)):
            self.model.addConstr(sum(v for (p, _), v in self.on.items() if p == number) == 1)

    def demand(self, at: int, resource: int) -> Any:
        """Return the sum of the requests of a node's pods for a resource."""
        return sum(
            self.cluster.pods[number].amounts[resource] * variable
            for (number, on), variable in self.on.items()
            if on == at
        )

    def moved(self) -> Any:
        """Return the number of pods that are not on their former node."""
        return sum(v for (p, on), v in self.on.items() if on != self.cluster.pods[p].node)

    def best(self, objective: Any, *, most: bool) -> int | None:
        """Return the largest or smallest value of the objective; None if nothing is possible."""
        (self.model.maximize if most else self.model.minimize)(objective)
        if self.model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        value: float = self.model.getObjectiveValue()
        return round(value)


def fewest_moves(cluster: SmallCluster) -> int | None:
    """Return the least number of moves that make the waiting pod fit; None if no moves do."""
    nodes = range(len(cluster.nodes))
    program = _Program(cluster, nodes)
    model = program.model
    big = [model.addBinary() for _ in nodes]
    model.addConstr(sum(big) == 1)
    for at, has in enumerate(cluster.nodes):
        for resource in range(2):
            demand = program.demand(at, resource) + cluster.waiting[resource] * big[at]
            model.addConstr(demand <= has[resource])
    return program.best(program.moved() + 0 * big[0], most=False)


def most_emptied(cluster: SmallCluster) -> int:
    """Return how many nodes can be emptied at most, if pods move only to nodes in use."""
    in_use = sorted({each.node for each in cluster.pods})
    program = _Program(cluster, in_use)
    model = program.model
    empty = {at: model.addBinary() for at in in_use}
    for at in in_use:
        has = cluster.nodes[at]
        for resource in range(2):
            demand = program.demand(at, resource) + has[resource] * empty[at]
            model.addConstr(demand <= has[resource])
        for (_, on), variable in program.on.items():
            if on == at:
                model.addConstr(variable + empty[at] <= 1)
    return program.best(_sum(empty.values()), most=True) or 0


def _sum(variables: Iterable[Any]) -> Any:
    return sum(variables)
