"""Says how good plans of rebalancing are, compared with the best ones for small clusters.

    python -m bench.plans [CLUSTERS]

In each of CLUSTERS random clusters, the command compares plans that make room for a pod and plans
that empty nodes with the solutions of an integer program (`exact_plans`).
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from exact_plans import SmallCluster, fewest_moves, most_emptied, small_cluster
from mooring.framework.decision import PodRef
from replanning import Replanning

_CLUSTERS: Final = 500
_BIG: Final = PodRef.of_key("default/big")


@dataclass(slots=True)
class Comparison:
    """Compares plans with the best ones: counts clusters by how much worse the plan is."""

    possible: int = 0
    """The number of clusters in which at least one move makes the pod fit."""
    missed: int = 0
    """The number of those clusters without a plan."""
    more_moves: Counter[int] = field(default_factory=Counter)
    moves: int = 0
    best_moves: int = 0
    fewer_emptied: Counter[int] = field(default_factory=Counter)
    emptied: int = 0
    best_emptied: int = 0
    worse: list[tuple[str, int]] = field(default_factory=list)
    """Each plan that was not the best: a description, and the cluster's seed."""

    def add(self, seed: int, cluster: SmallCluster) -> None:
        """Compare the plans of one cluster."""
        self._room(seed, cluster)
        self._emptied(seed, cluster)

    def _room(self, seed: int, cluster: SmallCluster) -> None:
        best = fewest_moves(cluster)
        plan = Replanning(*cluster.objects(), waiting=[cluster.big()]).plan(_BIG)
        assert best or not plan.steps
        if not best:
            return
        self.possible += 1
        if not plan.steps:
            self.missed += 1
            self.worse.append(("missed", seed))
            return
        assert len(plan.moves) >= best
        self.moves += len(plan.moves)
        self.best_moves += best
        self.more_moves[len(plan.moves) - best] += 1
        if len(plan.moves) > best:
            self.worse.append(("moves", seed))

    def _emptied(self, seed: int, cluster: SmallCluster) -> None:
        best = most_emptied(cluster)
        plan = Replanning(*cluster.objects(), rebalancing={"goals": ["Pack"]}).plan()
        assert len(plan.steps) <= best
        self.emptied += len(plan.steps)
        self.best_emptied += best
        self.fewer_emptied[best - len(plan.steps)] += 1
        if len(plan.steps) < best:
            self.worse.append(("emptied", seed))


def compare(seeds: range) -> Comparison:
    comparison = Comparison()
    for seed in seeds:
        comparison.add(seed, small_cluster(seed))
    return comparison


def _main(write: Callable[[str], object] = print) -> None:
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else _CLUSTERS
    found = compare(range(clusters))
    write(f"{clusters} clusters")
    write(f"room for a pod: possible in {found.possible}, missed in {found.missed}")
    write(f"  moves more than the fewest: {dict(sorted(found.more_moves.items()))}")
    write(f"  {found.moves} moves, {found.best_moves} at best")
    write(f"nodes emptied: {found.emptied}, {found.best_emptied} at best")
    write(f"  fewer than the most: {dict(sorted(found.fewer_emptied.items()))}")
    write(f"worse: {found.worse}")


if __name__ == "__main__":
    _main()
