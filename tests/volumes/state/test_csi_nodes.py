import numpy as np
import pytest

from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node
from mooring.volumes.model.csi import parse_csi_node
from mooring.volumes.model.storage_objects import CSISource
from mooring.volumes.state.csi_nodes import UNLIMITED
from storage_builders import csi_node

EBS = "kubernetes.io/aws-ebs"


def limit(state: ClusterState, name: str, driver: str = "csi.example") -> int:
    rows = np.array([state.nodes.row_of[name]])
    return int(state.storage.csi_nodes.limits(driver, rows)[0])


def migrated(state: ClusterState, name: str) -> bool:
    rows = np.array([state.nodes.row_of[name]])
    return bool(state.storage.csi_nodes.migrated(EBS, rows)[0])


def installed(state: ClusterState, *drivers: str) -> dict[str, set[str]]:
    """Return the nodes that have each driver."""
    rows = np.array([*state.nodes.row_of.values()])
    csi_nodes, volume = state.storage.csi_nodes, CSISource("csi.example", "volume")
    found = {driver: ~csi_nodes.lacks_driver([volume], driver, rows) for driver in drivers}
    return {
        driver: {name for name, is_there in zip(state.nodes.row_of, there, strict=True) if is_there}
        for driver, there in found.items()
    }


def with_csi_node(state: ClusterState) -> set[str]:
    rows = np.array([*state.nodes.row_of.values()])
    there = state.storage.csi_nodes.lacks_driver((), "unknown.example", rows)
    return {name for name, is_there in zip(state.nodes.row_of, there, strict=True) if is_there}


def test_a_node_has_the_limits_of_its_csi_node_whichever_comes_first() -> None:
    raw = csi_node("n1", {"csi.example": 3, "free.example": None})
    for state in (cluster(node("n1"), raw), cluster(raw, node("n1"))):
        assert limit(state, "n1") == 3
        assert limit(state, "n1", "free.example") == UNLIMITED
        assert limit(state, "n1", "unknown.example") == UNLIMITED


def test_a_node_without_a_csi_node_has_no_limit() -> None:
    assert limit(cluster(node("n1"), csi_node("n2", {"csi.example": 3})), "n1") == UNLIMITED


def test_a_limit_may_be_zero() -> None:
    assert limit(cluster(node("n1"), csi_node("n1", {"csi.example": 0})), "n1") == 0


def test_a_csi_node_that_changes_or_goes_is_known_as_it_is_now() -> None:
    state = cluster(node("n1"), csi_node("n1", {"csi.example": 3}, migrated=[EBS]))
    assert migrated(state, "n1")
    state.put(Kind.CSI_NODE, "n1", parse_csi_node(csi_node("n1", {"other.example": 4})))
    assert limit(state, "n1") == UNLIMITED
    assert limit(state, "n1", "other.example") == 4
    assert not migrated(state, "n1")
    state.delete(Kind.CSI_NODE, "n1")
    assert limit(state, "n1", "other.example") == UNLIMITED


def test_a_node_that_takes_the_row_of_another_has_none_of_its_limits() -> None:
    state = cluster(node("n1"), csi_node("n1", {"csi.example": 3}, migrated=[EBS]))
    row = state.nodes.row_of["n1"]
    state.delete(Kind.NODE, "n1")
    state.put(Kind.NODE, "n2", parse_node(node("n2")))
    assert state.nodes.row_of["n2"] == row
    assert limit(state, "n2") == UNLIMITED
    assert not migrated(state, "n2")
    assert installed(state, "csi.example") == {"csi.example": set()}
    assert with_csi_node(state) == set()


def test_a_driver_is_on_a_node_whose_csi_node_names_it_with_a_limit_or_without() -> None:
    limited, free = csi_node("n1", {"csi.example": 0}), csi_node("n2", {"csi.example": None})
    state = cluster(*(node(f"n{n}") for n in (1, 2, 3, 4)), limited, free, csi_node("n3", {}))
    assert installed(state, "csi.example", "x") == {"csi.example": {"n1", "n2"}, "x": set()}
    assert with_csi_node(state) == {"n1", "n2", "n3"}
    state.put(Kind.CSI_NODE, "n1", parse_csi_node(csi_node("n1", {"x": None})))
    state.delete(Kind.CSI_NODE, "n2")
    assert installed(state, "csi.example", "x") == {"csi.example": set(), "x": {"n1"}}
    assert with_csi_node(state) == {"n1", "n3"}


@pytest.mark.parametrize(
    ("count", "expected"), [(-1, 0), (2**63 - 1, UNLIMITED), (2**70, UNLIMITED)]
)
def test_a_limit_that_no_api_server_takes_is_the_nearest_possible_one(
    count: int, expected: int
) -> None:
    state = cluster(node("n1"), csi_node("n1", {"csi.example": count}))
    assert limit(state, "n1") == expected
    assert installed(state, "csi.example") == {"csi.example": {"n1"}}
