"""Specs with something in common share columns, as long as one of them is kept."""

from typing import Any

from deciding import Deciding
from mooring.engine.shared_columns import SharedColumn, SharedColumns
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod, toleration


class Sharing:
    """The columns of TaintToleration in a cluster of three nodes, one of them tainted."""

    def __init__(self) -> None:
        tainted = node("n2", taints=["dedicated=batch:NoSchedule"])
        self.deciding = Deciding(node("n0"), node("n1"), tainted)
        self.columns = SharedColumns(self.deciding.state.nodes)
        filters = {plugin.name: plugin for plugin in self.deciding.pipeline.filters}
        self.plugin = filters["TaintToleration"]

    def mask(self, of: Pod) -> SharedColumn:
        """Return the column, up to date."""
        column = self.columns.of_filter(self.deciding.pipeline, self.plugin, of, None)
        assert column is not None
        column.refresh(of, self.deciding.cluster.nodes)
        return column


def tolerating(*keys: str, **fields: Any) -> Pod:
    return parse_pod(pod(tolerations=[toleration(key, "batch") for key in keys], **fields))


def test_specs_that_differ_elsewhere_have_one_column() -> None:
    sharing = Sharing()
    first = sharing.mask(tolerating("dedicated", cpu="1"))
    assert first.values.tolist() == [True, True, True]
    assert sharing.mask(tolerating("dedicated", cpu="2")) is first
    other = sharing.mask(tolerating(cpu="1"))
    assert other.values.tolist() == [True, True, False]
    assert len(sharing.columns) == 2


def test_a_column_follows_the_nodes() -> None:
    sharing, wanted = Sharing(), tolerating()
    column, state = sharing.mask(wanted), sharing.deciding.state
    state.put(Kind.NODE, "n2", parse_node(node("n2")))
    state.put(Kind.NODE, "n0", parse_node(node("n0", taints=["a=b:NoExecute"])))
    column.refresh(wanted, sharing.deciding.cluster.nodes)
    assert column.values.tolist() == [False, True, True]
    state.delete(Kind.NODE, "n0")
    state.put(Kind.NODE, "n3", parse_node(node("n3")))
    column.refresh(wanted, sharing.deciding.cluster.nodes)
    assert column.values.tolist() == [True, True, True]


def test_a_column_is_dropped_with_its_last_user() -> None:
    sharing = Sharing()
    column = sharing.mask(tolerating("dedicated", cpu="1"))
    assert sharing.mask(tolerating("dedicated", cpu="2")) is column
    sharing.columns.release(column)
    assert len(sharing.columns) == 1
    sharing.columns.release(column)
    assert (len(sharing.columns), sharing.columns.bytes) == (0, 0)


def test_a_dropped_column_that_is_still_read_is_not_counted() -> None:
    sharing, wanted = Sharing(), tolerating()
    column = sharing.mask(wanted)
    sharing.columns.release(column)
    sharing.deciding.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    column.refresh(wanted, sharing.deciding.cluster.nodes)
    assert len(column.values) == 4
    assert sharing.columns.bytes == 0


def test_a_plugin_without_a_key_shares_nothing() -> None:
    sharing = Sharing()
    filters = {plugin.name: plugin for plugin in sharing.deciding.pipeline.filters}
    ports = filters["NodePorts"]
    assert sharing.columns.of_filter(sharing.deciding.pipeline, ports, tolerating(), None) is None
