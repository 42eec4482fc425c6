import numpy as np

from mooring.model.events import Kind
from mooring.model.node import ZONE, parse_node
from mooring.state.labels import EACH_NODE
from mooring.state.topology.domain_counts import DomainCounts, TakenBytes
from mooring.state.view import NodeView
from mooring.testing.builders import cluster, node

STATE = cluster(node("a1", zone="a"), node("b1", zone="b"), node("a2", zone="a"), node("nowhere"))
NODES = NodeView(STATE.nodes)


def tally(key: str, **pods: int) -> DomainCounts:
    counts = DomainCounts(STATE.nodes.domains(key), TakenBytes())
    for name, number in pods.items():
        counts.add(STATE.nodes.row_of[name], number)
    return counts


def test_pods_count_for_every_node_of_their_domain() -> None:
    zones = tally(ZONE, a1=2, a2=1, b1=5)
    assert zones.at(NODES).tolist() == [3, 5, 3, 0]
    assert zones.at(NODES.take(np.array([3, 0]))).tolist() == [0, 3]
    assert zones.total == 8


def test_pods_on_a_node_without_the_label_are_in_no_domain() -> None:
    zones = tally(ZONE, nowhere=4)
    assert zones.at(NODES).tolist() == [0, 0, 0, 0]
    assert zones.total == 0


def test_each_node_can_be_a_domain_of_its_own_whatever_its_labels() -> None:
    assert tally(EACH_NODE, a1=2, nowhere=4).at(NODES).tolist() == [2, 0, 0, 4]


def test_an_added_count_can_be_subtracted() -> None:
    zones = tally(ZONE, a1=2)
    zones.add(STATE.nodes.row_of["a2"], -2)
    assert zones.at(NODES).tolist() == [0, 0, 0, 0]
    assert zones.total == 0


def test_the_item_after_the_last_code_is_zero_for_absent_to_find() -> None:
    assert tally(ZONE, a1=2, b1=1).by_code.tolist() == [2, 1, 0]
    assert not tally(ZONE, a1=2).by_code.flags.writeable


def test_domains_that_come_later_have_counts() -> None:
    state = cluster()
    zones = DomainCounts(state.nodes.domains(ZONE), TakenBytes())
    for i in range(40):
        state.put(Kind.NODE, f"n{i}", parse_node(node(f"n{i}", zone=f"z{i}")))
    assert zones.at(NodeView(state.nodes)).tolist() == [0] * 40
    zones.add(39, 7)
    assert zones.by_code.tolist() == [0] * 39 + [7, 0]


def test_what_the_arrays_take_is_counted_until_they_are_dropped() -> None:
    state = cluster()
    taken = TakenBytes()
    zones = DomainCounts(state.nodes.domains(ZONE), taken)
    for i in range(1000):
        state.put(Kind.NODE, f"n{i}", parse_node(node(f"n{i}", zone=f"z{i}")))
    zones.add(999, 7)
    assert 4_000 <= taken.bytes <= 8_000
    zones.drop(lambda counts: counts.add_each([0], [3]))
    zones.add(999, 7)
    assert taken.bytes == 0
    assert zones.at(NodeView(state.nodes)).sum() == 3
    assert zones.at(NodeView(state.nodes)).sum() == 3
    assert taken.bytes == 0
