import numpy as np

from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.state.cluster import ClusterState
from mooring.state.nodes import NodeTable
from mooring.testing.builders import cluster, node
from mooring.volumes.model.csi import parse_volume_attachment
from mooring.volumes.model.storage_objects import CSISource
from mooring.volumes.state.attachments import Attachments
from storage_builders import pv, volume_attachment

ONE, TWO = CSISource("csi.example", "h1"), CSISource("csi.example", "h2")
ROWS = np.arange(3)
CSI = {"csi": {"driver": "csi.example", "volumeHandle": "h1"}}


def attachments() -> Attachments:
    table = NodeTable()
    for name in ("n0", "n1", "n2"):
        table.put(parse_node(node(name)))
    return Attachments(table)


def test_a_volume_counts_once_on_a_node_however_often_it_is_used() -> None:
    counted = attachments()
    counted.use(ONE, 1, 1)
    counted.use(ONE, 1, 2)
    counted.use(TWO, 1, 1)
    counted.use(ONE, 2, 1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 2, 1]
    assert sorted(counted.rows_using(ONE)) == [1, 2]


def test_a_volume_counts_until_its_last_use_ends() -> None:
    counted = attachments()
    counted.use(ONE, 1, 2)
    counted.use(ONE, 1, -1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 1, 0]
    counted.use(ONE, 1, -1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 0, 0]
    assert not counted.rows_using(ONE)


def test_a_volume_that_is_used_and_observed_counts_once_and_until_it_is_neither() -> None:
    counted = attachments()
    counted.use(ONE, 1, 1)
    counted.observe(ONE, 1, 1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 1, 0]
    counted.use(ONE, 1, -1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 1, 0]
    assert not counted.rows_using(ONE)
    counted.observe(ONE, 1, -1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 0, 0]


def test_drivers_are_counted_apart() -> None:
    counted = attachments()
    counted.use(CSISource("other.example", "h1"), 0, 1)
    assert counted.counts("csi.example", ROWS).tolist() == [0, 0, 0]
    assert counted.counts("other.example", ROWS).tolist() == [1, 0, 0]


def observed(state: ClusterState, name: str) -> int:
    rows = np.array([row for row in (state.nodes.row_of.get(name),) if row is not None], np.int64)
    return int(state.storage.attachments.counts("csi.example", rows).sum())


def test_an_attachment_is_observed_once_its_node_and_its_volume_are_known() -> None:
    raw = volume_attachment("va", "csi.example", "n1", "v")
    assert observed(cluster(node("n1"), raw), "n1") == 0
    assert observed(cluster(pv("v", spec=CSI), raw), "n1") == 0
    assert observed(cluster(raw, node("n1"), pv("v", spec=CSI)), "n1") == 1
    assert observed(cluster(node("n1"), pv("v", spec=CSI), raw), "n1") == 1


def test_an_attachment_of_an_in_tree_volume_or_without_attacher_is_not_observed() -> None:
    in_tree = pv("v", spec={"awsElasticBlockStore": {"volumeID": "vol-1"}})
    raw = volume_attachment("va", "csi.example", "n1", "v")
    assert observed(cluster(node("n1"), in_tree, raw), "n1") == 0
    by_nobody = volume_attachment("va", "", "n1", "v")
    assert observed(cluster(node("n1"), pv("v", spec=CSI), by_nobody), "n1") == 0


def test_an_attachment_moves_and_ends() -> None:
    raw = volume_attachment("va", "csi.example", "n1", "v")
    state = cluster(node("n1"), node("n2"), pv("v", spec=CSI), raw)
    moved = parse_volume_attachment(volume_attachment("va", "csi.example", "n2", "v"))
    state.put(Kind.VOLUME_ATTACHMENT, "va", moved)
    assert (observed(state, "n1"), observed(state, "n2")) == (0, 1)
    state.delete(Kind.VOLUME_ATTACHMENT, "va")
    assert observed(state, "n2") == 0


def test_a_node_that_takes_the_row_of_another_has_none_of_its_attachments() -> None:
    raw = volume_attachment("va", "csi.example", "n1", "v")
    state = cluster(node("n1"), pv("v", spec=CSI), raw)
    row = state.nodes.row_of["n1"]
    state.delete(Kind.NODE, "n1")
    state.put(Kind.NODE, "n2", parse_node(node("n2")))
    assert state.nodes.row_of["n2"] == row
    assert observed(state, "n2") == 0
