"""Plugins whose `filter` and `score` take one node at a time, as kube-scheduler's do.

    @per_node
    class FewPods:
        name: ClassVar[str] = "FewPods"
        depends_on_node_only: ClassVar[bool] = True

        def filter(self, pod: Pod, node: NodeInfo) -> str | None:
            return "node(s) had 10 pods" if node.pod_count >= 10 else None

        def score(self, pod: Pod, node: NodeInfo) -> int:
            return 100 - 10 * node.pod_count

The decorator turns the class into a plugin for columns of nodes (`mooring.framework.plugin`), which
runs the methods for one node after the other. Arguments, queueing hints and `reserve` are as in
other plugins. With `depends_on_node_only = True` the results are cached per pod spec, and the
methods run again only for nodes that changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import new_class
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize, points_of
from mooring.framework.verdicts import Explanation, PluginError, Unschedulable
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.taints import Taint
from mooring.policy.points import Point
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["NodeInfo", "per_node"]

_Plugin = TypeVar("_Plugin")

_Reason: TypeAlias = str | Unschedulable | None
_REASON: Final = "None, the reason as a text, or Unschedulable"


class _Columns:
    """The columns of a view as lists of Python numbers, each made when first used."""

    def __init__(self, nodes: NodeView, cluster: ClusterView) -> None:
        self.nodes = nodes
        self.cluster = cluster
        self.rows: list[int] = nodes.rows.tolist()
        self._requested: dict[str, list[int]] = {}
        self._pod_count: list[int] | None = None

    def requested(self, resource: str) -> list[int]:
        amounts = self._requested.get(resource)
        if amounts is None:
            amounts = self._requested[resource] = self.nodes.requested(resource).tolist()
        return amounts

    def pod_count(self) -> list[int]:
        if self._pod_count is None:
            self._pod_count = self.nodes.pod_count.tolist()
        return self._pod_count


class NodeInfo:
    """One node with the pods on it, assumed pods included; valid only during the call.

    Cpu is in millicores, memory and storage are in bytes, other resources are counts. `node` is the
    parsed Node, and properties repeat the fields that plugins read often. `index` is the node's
    position in the view.
    """

    __slots__ = ("_columns", "index", "node")

    def __init__(self, node: Node, columns: _Columns, index: int) -> None:
        self.node = node
        self._columns = columns
        self.index = index

    @property
    def name(self) -> str:
        """The node's `metadata.name`."""
        return self.node.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's `metadata.labels`."""
        return self.node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The node's `metadata.annotations`."""
        return self.node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's `spec.taints`, in their order."""
        return self.node.taints

    @property
    def pod_slots(self) -> int:
        """The number of pods that the node can have (its allocatable `pods`)."""
        return self.node.pod_slots

    @property
    def pod_count(self) -> int:
        """The number of pods on the node, including assumed pods."""
        return self._columns.pod_count()[self.index]

    def allocatable(self, resource: str) -> int:
        """Return the node's allocatable amount of a resource; 0 if it lacks the resource."""
        return self.node.allocatable.get(resource, 0)

    def requested(self, resource: str) -> int:
        """Return the amount of a resource that the node's pods request."""
        return self._columns.requested(resource)[self.index]

    def free(self, resource: str) -> int:
        """Return the free amount of a resource; negative if the pods request more than there is."""
        offered = self.node.allocatable.get(resource, 0)
        return offered - self._columns.requested(resource)[self.index]

    @property
    def pods(self) -> Iterable[Pod]:
        """The pods on the node, assumed pods included.

        A plugin with `depends_on_node_only` may read the requests, host ports, labels, affinity,
        volumes and termination of these pods. It does not run again if other fields change.
        """
        placed = self._columns.cluster.pods_on(self._columns.rows[self.index])
        return [state.pod for state in placed]


def per_node(plugin: type[_Plugin]) -> type[_Plugin]:
    """Turn a class with methods for one node into a plugin for columns of nodes.

    The class has one or both of these methods:

    - `filter(pod, node)` returns None if the pod fits, else the reason: a text or `Unschedulable`.
      `Unschedulable` also says whether evicting pods could help. After a text, evicting pods could
      help, but not if the plugin sets `depends_on_node_object_only`.
    - `score(pod, node)` returns an int, 0-100 unless `normalize` says otherwise.

    The class needs no `explain` and no `__init__`. The default of `normalize` is `Normalize.NONE`.
    Raises TypeError if the class has neither method.
    """
    points = points_of(plugin)
    by_point = {Point.FILTER: _FilterPerNode, Point.SCORE: _ScorePerNode}
    bases = [base for point, base in by_point.items() if point in points]
    if not bases:
        raise TypeError(f"{plugin.__name__} has neither filter(pod, node) nor score(pod, node)")
    described = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    adapted: type[_Plugin] = new_class(
        plugin.__name__, (*bases, plugin, _Defaults), exec_body=lambda body: body.update(described)
    )
    return adapted


class _Defaults:
    """The default attributes of a plugin for single nodes, as its last base class."""

    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: Any, handle: Handle) -> None: ...


class _PerNode:
    """Calls the method of the plugin, a later base class, for each node."""

    _cluster_of_nodes: ClusterView

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)  # type: ignore[call-arg] # of the plugin or of _Defaults
        self._cluster_of_nodes = handle.cluster

    def _answers(
        self, method: Callable[[Pod, NodeInfo], Any], pod: Pod, nodes: NodeView
    ) -> Iterator[tuple[NodeInfo, Any]]:
        infos = _node_infos(nodes, self._cluster_of_nodes)
        answers: list[Any] = []
        try:
            for info in infos:
                answers.append(method(pod, info))  # noqa: PERF401 - `except` reads how many
        except Exception as error:
            error.add_note(f"The node was {infos[len(answers)].name}.")
            raise
        return zip(infos, answers, strict=True)


class _FilterPerNode(_PerNode):
    """Makes a filter for columns of nodes from a plugin's `filter(pod, node)`."""

    def filter(self, pod: Pod, nodes: NodeView, _state: Any) -> BoolArray:
        fits = np.zeros(len(nodes), np.bool_)
        fits[[info.index for info, reason in self._reasons(pod, nodes) if reason is None]] = True
        return fits

    def explain(self, pod: Pod, nodes: NodeView, _state: Any) -> Explanation:
        codes: dict[str, int] = {}
        code, resolvable = np.full(len(nodes), -1), np.zeros(len(nodes), np.bool_)
        helps = not getattr(self, "depends_on_node_object_only", False)
        for info, reason in self._reasons(pod, nodes):
            rejection = reason if isinstance(reason, Unschedulable) else None
            text = rejection.reason if rejection is not None else str(reason)
            code[info.index] = codes.setdefault(text, len(codes))
            resolvable[info.index] = rejection.resolvable if rejection is not None else helps
        return Explanation.from_codes([*codes], code, resolvable=resolvable)

    def _reasons(self, pod: Pod, nodes: NodeView) -> list[tuple[NodeInfo, _Reason]]:
        method = super().filter  # type: ignore[misc] # of the plugin, which comes later
        found = list(self._answers(method, pod, nodes))
        for info, answer in found:
            if not (answer is None or (answer and isinstance(answer, str | Unschedulable))):
                raise _wrong("filter", answer, info.name, _REASON)
        return found


class _ScorePerNode(_PerNode):
    """Makes a score for columns of nodes from a plugin's `score(pod, node)`."""

    def score(self, pod: Pod, nodes: NodeView, _state: Any) -> IntArray:
        method = super().score  # type: ignore[misc] # of the plugin, which comes later
        scores = [0] * len(nodes)
        for info, answer in self._answers(method, pod, nodes):
            if not isinstance(answer, int | np.integer):
                raise _wrong("score", answer, info.name, "an int")
            scores[info.index] = int(answer)
        try:
            return np.array(scores, np.int64)
        except OverflowError:
            raise PluginError("score returned a number of more than 64 bits") from None


def _node_infos(nodes: NodeView, cluster: ClusterView) -> list[NodeInfo]:
    columns = _Columns(nodes, cluster)
    return [
        NodeInfo(node, columns, index)
        for index, row in enumerate(columns.rows)
        if (node := cluster.node(row)) is not None
    ]


def _wrong(method: str, answer: object, node: str, expected: str) -> PluginError:
    found = repr(answer) if answer is None or answer == "" else type(answer).__name__
    return PluginError(f"{method} returned {found} for node {node}; it must return {expected}")
