"""Specs with something in common share columns, as long as one of them is kept."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from deciding import Deciding
from mooring.engine.result_columns import Column, Columns
from mooring.framework.plugin import Normalize
from mooring.framework.runtime import run_filter, run_score
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod, toleration


class Sharing:
    """The columns of TaintToleration in a cluster of three nodes, one of them tainted."""

    def __init__(self) -> None:
        tainted = node("n2", taints=["dedicated=batch:NoSchedule"])
        flaky = node("n1", taints=["flaky:PreferNoSchedule"])
        self.deciding = Deciding(node("n0"), flaky, tainted)
        self.columns = Columns()

    def mask(self, of: Pod) -> Column:
        """Return the column of the filter, up to date."""
        pipeline = self.deciding.pipeline
        plugin = pipeline.keyed_filters["TaintToleration"]
        return self._column(of, plugin.filter_key(of), partial(run_filter, pipeline, plugin))

    def scores(self, of: Pod) -> Column:
        """Return the column of the scores, up to date."""
        pipeline = self.deciding.pipeline
        plugin = pipeline.keyed_scores["TaintToleration"]
        return self._column(of, plugin.score_key(of), partial(run_score, pipeline, plugin))

    def _column(self, of: Pod, key: Hashable, run: Callable[..., Any]) -> Column:
        nodes = self.deciding.state.nodes
        wanted = self.deciding.pipeline, "TaintToleration", "point", key
        column = self.columns.take(wanted, nodes.node_changes, of.spec.memory)
        self.refresh(column, of, partial(run, state=None))
        return column

    def refresh(self, column: Column, of: Pod, run: Callable[..., Any]) -> None:
        """Bring the column up to date."""
        as_of = self.deciding.state.nodes.set_version
        column.refresh(of, self.deciding.cluster.nodes, as_of, run)


def tolerating(*keys: str, **fields: Any) -> Pod:
    return parse_pod(pod(tolerations=[toleration(key, "batch") for key in keys], **fields))


def test_specs_that_differ_elsewhere_have_one_column() -> None:
    sharing = Sharing()
    first = sharing.mask(tolerating("dedicated", cpu="1"))
    assert first.values.tolist() == [True, True, True]
    assert sharing.mask(tolerating("dedicated", cpu="2")) is first
    other = sharing.mask(tolerating(cpu="1"))
    assert other.values.tolist() == [True, True, False]
    assert sharing.columns.bytes == first.bytes + other.bytes


def test_a_column_follows_the_nodes() -> None:
    sharing, wanted = Sharing(), tolerating()
    column, state = sharing.mask(wanted), sharing.deciding.state
    state.put(Kind.NODE, "n2", parse_node(node("n2")))
    state.put(Kind.NODE, "n0", parse_node(node("n0", taints=["a=b:NoExecute"])))
    assert sharing.mask(wanted) is column
    assert column.values.tolist() == [False, True, True]
    state.delete(Kind.NODE, "n0")
    state.put(Kind.NODE, "n3", parse_node(node("n3")))
    assert sharing.mask(wanted) is column
    assert column.values.tolist() == [True, True, True]


def test_a_column_is_dropped_with_its_last_user() -> None:
    sharing = Sharing()
    column = sharing.mask(tolerating("dedicated", cpu="1"))
    assert sharing.mask(tolerating("dedicated", cpu="2")) is column
    sharing.columns.release(column)
    assert sharing.columns.bytes == column.bytes
    sharing.columns.release(column)
    assert sharing.columns.bytes == 0


def test_a_dropped_column_that_is_still_read_is_not_counted() -> None:
    sharing, wanted = Sharing(), tolerating()
    column = sharing.mask(wanted)
    sharing.columns.release(column)
    sharing.deciding.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    sharing.refresh(column, wanted, lambda _, nodes: np.ones(len(nodes), np.bool_))
    assert len(column.values) == 4
    assert sharing.columns.bytes == 0


def test_scores_are_normalized_once_for_each_version_of_the_nodes() -> None:
    sharing, flaky = Sharing(), node("n0", taints=["flaky:PreferNoSchedule"])
    column = sharing.scores(tolerating())

    def normalized() -> list[int]:
        scores = sharing.scores(tolerating()).normalized(Normalize.REVERSED)
        assert column.normalized(Normalize.REVERSED) is scores
        assert sharing.columns.bytes == column.bytes >= column.values.nbytes + scores.nbytes
        found: list[int] = scores.tolist()
        return found

    assert normalized() == [100, 0, 100]
    sharing.deciding.state.put(Kind.NODE, "n0", parse_node(flaky))
    assert normalized() == [0, 0, 100]
    assert column.highest == 1
    for _ in range(3):
        sharing.columns.release(column)
    assert sharing.columns.bytes == 0
