"""Single steps of the node table; tests/property/test_cluster.py compares it with a model."""

from typing import Any

from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.model.pod_spec import HostPort
from mooring.state.nodes import NodeTable
from mooring.testing.builders import node, pod

GPU = "example.com/gpu"


def table_of(*nodes: dict[str, object]) -> NodeTable:
    table = NodeTable()
    for raw in nodes:
        table.put(parse_node(raw))
    return table


def names_in_order(table: NodeTable) -> list[str]:
    return [table.names[row] for row in table.order()]


def test_a_node_is_a_row_of_its_quantities() -> None:
    table = table_of(node("n1", cpu="2", memory="1Gi", pods=5, resources={GPU: 3}))
    row = table.row_of["n1"]
    offered = {name: table.allocatable.at(name, row) for name in table.allocatable}
    assert offered == {"cpu": 2000, "memory": 2**30, GPU: 3}
    assert (int(table.pod_slots.data[row]), bool(table.present.data[row])) == (5, True)


def test_a_resource_that_a_node_no_longer_lists_is_zero() -> None:
    table = table_of(node("n1", resources={GPU: 3}), node("n1"))
    assert table.allocatable.at(GPU, 0) == 0


def test_a_total_is_the_sum_of_all_nodes_whatever_they_report() -> None:
    table = table_of(*(node(f"n{i}", cpu="2", pods=5) for i in range(100)), node("n0", cpu="1"))
    assert [table.total(name) for name in ("cpu", "pods", GPU)] == [199_000, 99 * 5 + 110, 0]
    for name in ("n1", "n2"):
        table.put(parse_node(node(name, resources={GPU: 2**63 - 1})))
    assert table.total(GPU) == 2**64
    for name in ("n1", "n2"):
        table.drop(name)
    assert (table.total(GPU), table.total("cpu")) == (0, 195_000)


def test_put_returns_what_was_known_before() -> None:
    first, second = parse_node(node("n1")), parse_node(node("n1", cpu="9"))
    table = NodeTable()
    assert table.put(first) is None
    assert table.put(second) is first
    assert table.drop("n1") is second
    assert table.drop("n1") is None


def test_the_row_of_pods_without_a_node_is_no_node_and_stays() -> None:
    table = table_of(node("n1"))
    row, early = table.unknown_row, parse_pod(pod(cpu="1", node="n2"))
    table.add_pod(row, early)
    assert (table.present_count, bool(table.present.data[row])) == (1, False)
    table.remove_pod(row, early)
    table.put(parse_node(node("n2")))
    assert table.unknown_row == row
    assert row not in table.row_of.values()


def test_the_lowest_free_row_is_used_for_another_node() -> None:
    table = table_of(*(node(f"n{number}") for number in range(5)))
    for name in ("n2", "n0", "n1"):
        table.drop(name)
    table.put(parse_node(node("other")))
    assert (table.row_of["other"], table.names[0], table.row_count) == (0, "other", 5)


def test_the_table_shrinks_once_its_last_rows_are_free() -> None:
    table = table_of(*(node(f"n{number}") for number in range(5)))
    for name, rows in (("n1", 5), ("n3", 5), ("n4", 3), ("n2", 1), ("n0", 0)):
        version = table.set_version
        table.drop(name)
        assert table.row_count == len(table.all_rows) == rows
        assert table.set_version > version
    for name in ("m0", "m1"):
        table.put(parse_node(node(name)))
    assert table.row_of == {"m0": 0, "m1": 1}


def test_zones_take_turns_in_the_order_of_nodes() -> None:
    table = table_of(
        node("a1", zone="a"),
        node("a2", zone="a"),
        node("a3", zone="a"),
        node("b1", zone="b"),
        node("none"),
        node("b2", zone="b"),
    )
    assert names_in_order(table) == ["a1", "b1", "none", "a2", "b2", "a3"]


def test_the_order_follows_nodes_that_come_go_and_move() -> None:
    table = table_of(node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"))
    table.drop("b1")
    assert names_in_order(table) == ["a1", "a2"]
    table.put(parse_node(node("a2", zone="c")))
    table.put(parse_node(node("a3", zone="a")))
    assert names_in_order(table) == ["a1", "a2", "a3"]


def test_a_heartbeat_changes_neither_the_set_nor_the_topology() -> None:
    table = table_of(node("n1"))
    before = (table.set_version, table.topology_version)
    table.put(parse_node(node("n1", cpu="8")))
    assert (table.set_version, table.topology_version) == before


def test_labels_and_taints_change_the_topology_and_images_the_set() -> None:
    table = table_of(node("n1"))
    topology, members = table.topology_version, table.set_version
    table.put(parse_node(node("n1", labels={"disk": "ssd"})))
    table.put(parse_node(node("n1", labels={"disk": "ssd"}, taints=["a:NoSchedule"])))
    assert table.topology_version == topology + 2
    assert table.set_version == members
    table.put(parse_node(node("n1", images={"app:v1": 5})))
    assert table.set_version > members


def test_pods_are_no_change_of_their_node() -> None:
    table = table_of(node("n1"))
    seen, of_nodes = table.changes.position, table.node_changes.position
    table.add_pod(0, parse_pod(pod(node="n1")))
    assert table.changes.position > seen
    assert table.node_changes.position == of_nodes


def test_requests_fit_on_a_row_if_a_pod_slot_and_every_amount_are_free() -> None:
    table = table_of(node("n1", cpu="2", pods=2, resources={GPU: 1}))
    table.add_pod(0, parse_pod(pod("web", cpu="500m", node="n1")))
    assert table.fits_requests(0, {"cpu": 1500, GPU: 1})
    assert not table.fits_requests(0, {"cpu": 1501})
    assert not table.fits_requests(0, {GPU: 2})
    assert not table.fits_requests(0, {"example.com/unknown": 1})
    table.add_pod(0, parse_pod(pod("idle", node="n1")))
    assert not table.fits_requests(0, {})


def test_a_port_is_free_again_when_its_last_user_has_left() -> None:
    table = table_of(node("n1"))
    ports: list[dict[str, Any]] = [
        {"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"},
        {"containerPort": 2, "hostPort": 81},
    ]
    user = parse_pod(pod(node="n1", ports=ports))
    table.add_pod(0, user)
    assert table.port_taken(0, HostPort("TCP", 80, "0.0.0.0"))
    assert not table.port_taken(0, HostPort("TCP", 80, "10.0.0.2"))
    assert not table.port_taken(0, HostPort("UDP", 80, "10.0.0.1"))
    table.remove_pod(0, user)
    assert table.host_ports == {}
    assert not table.port_taken(0, HostPort("TCP", 81, "0.0.0.0"))


def test_an_image_has_the_size_its_first_node_reported_until_no_node_has_it() -> None:
    table = table_of(node("n1", images={"app:v1": 5}), node("n2", images={"app:v1": 9}))
    assert (table.images["app:v1"].size, [*table.images["app:v1"].rows]) == (5, [0, 1])
    table.drop("n1")
    assert (table.images["app:v1"].size, [*table.images["app:v1"].rows]) == (5, [1])
    table.put(parse_node(node("n2")))
    assert table.images == {}
