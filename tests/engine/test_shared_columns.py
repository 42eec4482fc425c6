"""Specs with something in common share columns, as long as one of them is kept."""

from typing import Any

from deciding import Deciding
from mooring.engine.shared_columns import SharedColumn, SharedColumns
from mooring.framework.plugin import Normalize
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


def test_scores_are_normalized_once_for_each_version_of_the_nodes() -> None:
    flaky = node("n1", taints=["flaky:PreferNoSchedule"])
    deciding = Deciding(node("n0"), flaky)
    columns = SharedColumns(deciding.state.nodes)
    scorer = next(s for s in deciding.pipeline.scores if s.name == "TaintToleration")
    column = columns.of_score(deciding.pipeline, scorer, tolerating(), None)

    def normalized() -> list[int]:
        column.refresh(tolerating(), deciding.cluster.nodes)
        scores = column.normalized(Normalize.REVERSED)
        assert column.normalized(Normalize.REVERSED) is scores
        assert columns.bytes >= column.bytes >= column.values.nbytes + scores.nbytes
        found: list[int] = scores.tolist()
        return found

    assert normalized() == [100, 0]
    deciding.state.put(Kind.NODE, "n0", parse_node(flaky | {"metadata": {"name": "n0"}}))
    assert normalized() == [0, 0]
    assert column.highest == 1
    columns.release(column)
    assert columns.bytes == 0
