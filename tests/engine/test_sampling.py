from typing import Any

import pytest

from deciding import Deciding
from mooring.engine.sampling import nodes_to_find, sampled
from mooring.testing.builders import node


@pytest.mark.parametrize(
    ("nodes", "percentage", "enough"),
    [
        (50, 10, 50),
        (99, 5, 99),
        (100, 5, 100),
        (1000, 30, 300),
        (1000, 5, 100),
        (5000, 100, 5000),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (20_000, 0, 1000),
    ],
)
def test_how_many_nodes_are_enough(nodes: int, percentage: int, enough: int) -> None:
    """0 is upstream's rule: 50 % less a point for 125 nodes, at least 5 % and 100 nodes."""
    assert nodes_to_find(nodes, percentage) == enough


def names(start: int, **spec: Any) -> tuple[list[str], int]:
    """Which of 120 nodes in two zones a search finds, and how many it looked at."""
    raw = [node(f"{zone}{i:02}", zone=zone) for zone in "ab" for i in range(60)]
    deciding = Deciding(*raw, **spec)
    fits = deciding.cluster.nodes.present.copy()
    fits[deciding.state.nodes.row_of["a00"]] = False
    rows, visited = sampled(fits, deciding.cluster, deciding.pipeline, 120, start)
    return [deciding.state.nodes.names[row] for row in rows], visited


def test_without_sampling_every_node_that_fits_is_found() -> None:
    found, visited = names(7)
    assert (len(found), visited) == (119, 120)


def test_a_sampling_search_goes_through_the_zones_in_turn_until_it_has_enough() -> None:
    found, visited = names(0, percentageOfNodesToScore=10)
    assert found[:4] == ["b00", "a01", "b01", "a02"]
    assert (len(found), visited) == (100, 101)


def test_it_starts_where_it_is_told_and_goes_on_round_the_end() -> None:
    found, visited = names(119, percentageOfNodesToScore=10)
    assert found[:3] == ["b59", "b00", "a01"]
    assert (len(found), visited) == (100, 101)
