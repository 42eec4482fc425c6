"""Plans are compared with the best plans for small clusters, by an integer program."""

from typing import Any

import pytest

from bench.plans import compare
from exact_plans import (
    Amounts,
    SmallCluster,
    SmallPod,
    fewest_moves,
    most_emptied,
    small_cluster,
)


def tiny(*pods: SmallPod, waiting: int = 4) -> SmallCluster:
    return SmallCluster((Amounts(4, 4),) * 3, pods, Amounts(waiting, waiting))


def on(node: int, size: int = 1, **about: Any) -> SmallPod:
    return SmallPod(Amounts(size, size), node, **about)


def test_the_program_counts_the_fewest_moves() -> None:
    assert fewest_moves(tiny(on(0))) == 0
    assert fewest_moves(tiny(on(0, 1), on(1, 2), on(2, 3))) == 1
    assert fewest_moves(tiny(on(0, 2), on(1, 3), on(2, 3), waiting=3)) is None
    assert fewest_moves(tiny(on(0, 3), on(1, 2, movable=False), on(2, 3))) is None


def test_the_program_counts_the_nodes_that_can_be_emptied() -> None:
    assert most_emptied(tiny(on(0), on(1), on(2))) == 2
    assert most_emptied(tiny(on(0, 3), on(1, 3), on(2, 3))) == 0
    assert most_emptied(tiny(on(0, 1, movable=False), on(1), on(2, 3))) == 1
    assert most_emptied(tiny(on(0))) == 0


def test_the_same_seed_has_the_same_cluster() -> None:
    assert small_cluster(7) == small_cluster(7) != small_cluster(8)


@pytest.mark.deep
def test_plans_are_as_good_as_documented() -> None:
    """The test compares 40 clusters; `docs/rebalancing.md` has the figures for 300."""
    found = compare(range(40))
    assert found.possible > 10
    assert found.missed == 0
    assert found.moves <= 1.05 * found.best_moves
    assert found.emptied >= 0.93 * found.best_emptied
