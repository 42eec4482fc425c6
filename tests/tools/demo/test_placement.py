from typing import Any

from demo.placement import NodeUse, bound_nodes, node_uses
from mooring.testing.builders import node, pod


def placed(name: str, on: str | None) -> dict[str, Any]:
    return pod(name, node=on, cpu="250m", memory="2Gi")


def in_zone(name: str, zone: str) -> dict[str, Any]:
    return node(name, labels={"topology.kubernetes.io/zone": zone}, cpu="4", memory="32Gi")


def test_a_nodes_use_is_the_part_of_it_that_its_pods_request() -> None:
    pods = [placed("a", "n1"), placed("b", "n1"), placed("waiting", None)]
    assert node_uses([in_zone("n1", "z1")], pods) == [
        NodeUse("n1", "z1", earlier=2, new=0, cpu=0.125, memory=0.125)
    ]


def test_pods_that_were_not_there_before_are_new() -> None:
    pods = [placed("a", "n1"), placed("b", "n1")]
    (use,) = node_uses([in_zone("n1", "z1")], pods, earlier={"a"})
    assert (use.earlier, use.new, use.pods) == (1, 1, 2)


def test_nodes_are_listed_zone_by_zone() -> None:
    nodes = [in_zone("n1", "z2"), in_zone("n3", "z1"), in_zone("n2", "z1")]
    assert [use.name for use in node_uses(nodes, [])] == ["n2", "n3", "n1"]


def test_only_pods_with_a_node_are_bound() -> None:
    assert bound_nodes([placed("a", "n1"), placed("waiting", None)]) == {"a": "n1"}
