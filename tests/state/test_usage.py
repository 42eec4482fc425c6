"""The float64 copies of cpu and memory agree with the node table after any changes."""

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.usage import MOST_EXACT
from mooring.testing.builders import cluster, node, pod, uid_of

NODES: Final = 30
"""More than are computed with numbers."""
MEMORY: Final = st.sampled_from((0, 1, 3, 10**9, MOST_EXACT, MOST_EXACT + 1, 2**56))
CPU: Final = st.sampled_from(("0", "1m", "700m", "3"))
NAMES: Final = st.integers(0, NODES - 1).map("n{}".format)


def expected(state: ClusterState) -> list[tuple[Any, ...] | None]:
    """Return by row the offered and used amounts, computed one by one; None if inexact."""
    table, found = state.nodes, list[tuple[Any, ...] | None]()
    for row in range(table.row_count):
        if not table.present.data[row]:
            found.append(())
            continue
        offered = [table.allocatable.at(name, row) for name in ("cpu", "memory")]
        requested = [table.requested.at(name, row) for name in ("cpu", "memory")]
        scored = [
            int(column.data[row])
            for column in (table.requested_scored_cpu, table.requested_scored_memory)
        ]
        if min(offered) <= 0 or max(*offered, *requested, *scored) > MOST_EXACT:
            found.append(None)
            continue
        shares = [min(used / whole, 1.0) for used, whole in zip(requested, offered, strict=True)]
        deviation = abs(shares[0] - shares[1]) / 2
        left = [whole - used for whole, used in zip(offered, scored, strict=True)]
        found.append((offered, requested, left, int((1 - deviation) * 100)))
    return found


def told(state: ClusterState) -> list[tuple[Any, ...] | None]:
    """Return by row the offered and used amounts from the copies."""
    usage, present = state.nodes.usage, state.nodes.present.data
    inexact = {*usage.inexact.tolist()}
    return [
        None
        if row in inexact
        else (
            usage.offered[:, row].tolist(),
            usage.requested[:, row].tolist(),
            usage.left_scored[:, row].tolist(),
            int(usage.evenness[row]),
        )
        if present[row]
        else ()
        for row in range(state.nodes.row_count)
    ]


@given(data=st.data())
def test_they_follow_nodes_and_pods_a_few_at_a_time_or_many(data: st.DataObject) -> None:
    state = cluster(*(node(f"n{i}", cpu="4", memory=10**9) for i in range(NODES)))
    assert told(state) == expected(state)
    for number in range(data.draw(st.integers(1, 4))):
        for change in range(data.draw(st.sampled_from((1, 3, 40)))):
            name = data.draw(NAMES)
            match data.draw(st.sampled_from(("pod", "node", "gone"))):
                case "pod":
                    raw = pod(f"p{change}", cpu=data.draw(CPU), memory=data.draw(MEMORY), node=name)
                    state.put(Kind.POD, uid_of(f"p{change}"), parse_pod(raw))
                case "node":
                    raw = node(name, cpu=data.draw(CPU), memory=data.draw(MEMORY))
                    state.put(Kind.NODE, name, parse_node(raw))
                case _ if number:
                    state.delete(Kind.NODE, name)
        assert told(state) == expected(state)


@pytest.mark.parametrize("more", [1, 10])
def test_nodes_that_came_and_went_since_the_last_read_leave_nothing_behind(more: int) -> None:
    state = cluster(*(node(f"n{i}", cpu="4", memory=10**9) for i in range(NODES)))
    before = told(state)
    for number in range(more):
        state.put(Kind.NODE, f"more{number}", parse_node(node(f"more{number}", cpu="8")))
    for number in range(more):
        state.delete(Kind.NODE, f"more{number}")
    assert told(state) == before


def test_a_view_of_some_nodes_has_theirs_and_follows_them() -> None:
    state = cluster(
        node("n0", cpu="1", memory=100), node("n1", cpu="2", memory=0), node("n2", cpu="4")
    )
    some = ClusterView(state).nodes.take(np.array([2, 1], np.int64))
    usage = some.usage
    assert usage is not None
    assert (usage.offered[0].tolist()[0], usage.inexact.tolist()) == (4000.0, [1])
    state.put(Kind.POD, uid_of("p"), parse_pod(pod("p", cpu="3", memory=1, node="n2")))
    after = some.usage
    assert after is not None
    assert after.requested[0].tolist()[0] == 3000.0


def test_a_trial_leaves_nothing_behind() -> None:
    state = cluster(node("n0", cpu="4", memory=1000))
    before = told(state)
    with state.trial() as trial:
        trial.add(parse_pod(pod("p", cpu="3", memory=10)), 0)
        assert told(state) == expected(state) != before
    assert told(state) == before


def test_the_copies_cannot_be_written_and_count_as_bytes_of_the_table() -> None:
    state = cluster(*(node(f"n{i}") for i in range(9)))
    without = state.nodes.bytes
    usage = state.nodes.usage
    with pytest.raises(ValueError, match="read-only"):
        usage.offered[0] = 1
    assert state.nodes.bytes - without == 9 * (4 * 2 + 1) * 8
