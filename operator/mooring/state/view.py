"""The nodes as plugins read them: read-only columns of all rows or of some rows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.model.demand import Demand
from mooring.model.node import Node
from mooring.model.pod_spec import HostPort
from mooring.model.quantity import INT64_MAX
from mooring.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    parse_int64,
)
from mooring.model.taints import Taint
from mooring.state.columns import Column, IntArray, ResourceColumns
from mooring.state.labels import ABSENT, Domains, LabelColumn
from mooring.state.nodes import Conditions, NodeTable
from mooring.state.usage import Usage

BoolArray = npt.NDArray[np.bool_]


class NodeView:
    """Some rows of the node table as arrays; the items of each array are in the order of `rows`.

    Resource amounts are int64: cpu in millicores, memory and storage in bytes, others as counts.
    The full view also has rows without a node; there `present` is False.
    """

    __slots__ = ("_all", "_rows", "_table", "_taken_usage")

    def __init__(self, table: NodeTable, rows: IntArray | None = None) -> None:
        self._table = table
        self._all = rows is None
        self._rows = table.all_rows if rows is None else rows
        self._taken_usage: tuple[int, Usage] | None = None
        """The usage of this view's rows, and the position in the change log when it was read."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> IntArray:
        """The number of each node's row in the node table, as int64."""
        return self._rows

    def take(self, rows: IntArray) -> "NodeView":
        """Return a view of these rows of the node table."""
        return NodeView(self._table, rows)

    def only(self, name: str) -> "NodeView":
        """Return a view of the node of this name; without rows if there is no such node."""
        row = self._table.row_of.get(name)
        exists = row is not None and self._table.nodes[row] is not None
        return self.take(np.array([row] if exists else [], np.int64))

    def name(self, index: int) -> str:
        """Return the name of the node at this position of the view."""
        return self._table.names[int(self._rows[index])]

    def node(self, index: int) -> Node | None:
        """Return the node at this position of the view; None if it does not exist."""
        return self._table.nodes[int(self._rows[index])]

    @property
    def present(self) -> BoolArray:
        """bool[rows]: True where the node exists."""
        return self._taken(self._table.present)

    @property
    def unschedulable(self) -> BoolArray:
        """bool[rows]: True where the node is cordoned."""
        return self._taken(self._table.unschedulable)

    @property
    def pod_slots(self) -> IntArray:
        """int64[rows]: the most pods that the node can have."""
        return self._taken(self._table.pod_slots)

    @property
    def pod_count(self) -> IntArray:
        """int64[rows]: the number of pods on the node, including assumed ones."""
        return self._taken(self._table.pod_count)

    def allocatable(self, resource: str) -> IntArray:
        """Return int64[rows]: the amount of the resource that the node offers."""
        return self._amounts(self._table.allocatable, resource)

    def requested(self, resource: str) -> IntArray:
        """Return int64[rows]: the amount of the resource that the node's pods request."""
        return self._amounts(self._table.requested, resource)

    def requested_wrapped(self, resource: str) -> IntArray:
        """Return `requested` modulo 2**64: exact after victims are subtracted (`Sums.wrapped`)."""
        return self._table.requested.wrapped(resource, self._rows)

    def requested_at(self, index: int, resource: str) -> int:
        """Return the amount of the resource that pods request on the node at position `index`."""
        return self._table.requested.at(resource, int(self._rows[index]))

    @property
    def usage(self) -> Usage | None:
        """The cpu and memory that nodes offer and use; None in views that add or remove pods."""
        usage, position = self._table.usage, self._table.changes.position
        if self._all:
            return usage
        if self._taken_usage is None or self._taken_usage[0] != position:
            self._taken_usage = (position, usage.take(self._rows))
        return self._taken_usage[1]

    def requested_scored(self, resource: str) -> IntArray:
        """Return `requested`; containers without a request count with 100m cpu and 200Mi memory."""
        if resource == "cpu":
            return self._taken(self._table.requested_scored_cpu)
        if resource == "memory":
            return self._taken(self._table.requested_scored_memory)
        return self.requested(resource)

    @property
    def taint_codes(self) -> npt.NDArray[np.int32]:
        """int32[rows]: the index of the node's taints in `taint_sets`."""
        return self._taken(self._table.taints.codes)

    @property
    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """The distinct taint lists of the cluster; `taint_codes` are their indices."""
        return self._table.taints.values

    @property
    def condition_codes(self) -> npt.NDArray[np.int32]:
        """int32[rows]: the index of the node's conditions in `condition_sets`."""
        return self._taken(self._table.conditions.codes)

    @property
    def condition_sets(self) -> Sequence[Conditions]:
        """The distinct sets of conditions of the cluster; `condition_codes` are their indices."""
        return self._table.conditions.values

    @property
    def declared_feature_codes(self) -> npt.NDArray[np.int32]:
        """int32[rows]: the index of the node's declared features in `declared_feature_sets`."""
        return self._taken(self._table.declared_features.codes)

    @property
    def declared_feature_sets(self) -> Sequence[frozenset[str]]:
        """The distinct sets of features that nodes declare, indexed by `declared_feature_codes`."""
        return self._table.declared_features.values

    @property
    def zone_codes(self) -> npt.NDArray[np.int32]:
        """int32[rows]: the index of the node's region and zone in `zones`; 0 if it has neither."""
        return self._taken(self._table.zones.codes)

    @property
    def zones(self) -> Sequence[tuple[str, str]]:
        """The distinct pairs of region and zone; `zone_codes` are their indices."""
        return self._table.zones.values

    def avoiding(self, kind: str, uid: str) -> BoolArray:
        """Return bool[rows]: True where the preferAvoidPods annotation names this controller."""
        return self._at(self._table.avoiding.get((kind, uid), ()))

    def label(self, key: str) -> LabelColumn:
        """Return the column of a node label; its arrays have all rows of the table."""
        return self._table.label(key)

    def label_codes(self, key: str) -> IntArray:
        """Return int64[rows]: the index of the label's value in `label(key).values`, or ABSENT."""
        return self._taken(self._table.label(key).codes)

    def domain_codes(self, domains: Domains) -> IntArray:
        """Return int64[rows]: the code of the node's topology domain, or ABSENT."""
        return self._taken(domains.codes)

    @property
    def topology_version(self) -> int:
        """A number that grows when a node is added or deleted, or changes its labels or taints."""
        return self._table.topology_version

    @property
    def node_count(self) -> int:
        """The number of nodes in the whole cluster."""
        return self._table.present_count

    def has_image(self, image: str) -> bool:
        """Return whether any node of the cluster has the image (a normalized name)."""
        return image in self._table.images

    def with_image(self, image: str) -> BoolArray:
        """Return bool[rows]: True where the node has the image (a normalized name)."""
        known = self._table.images.get(image)
        return self._at(known.rows if known is not None else ())

    def image_spread(self, image: str) -> tuple[int, int, int]:
        """Return the image's bytes, the number of nodes with it, and the number of all nodes."""
        known = self._table.images.get(image)
        size, holders = (known.size, len(known.rows)) if known is not None else (0, 0)
        return size, holders, self._table.present_count

    def port_free(self, port: HostPort) -> BoolArray:
        """Return bool[rows]: False where a pod uses the port; see `NodeTable.port_taken`."""
        table = self._table
        used = table.host_ports.get((port.protocol, port.port), {})
        if len(self) < len(used):
            asked = self._rows.tolist()
            return np.array([not table.port_taken(row, port) for row in asked], np.bool_)
        free = np.ones(table.row_count, np.bool_)
        for row in used:
            free[row] = not table.port_taken(row, port)
        return free if self._all else free[self._rows]

    def named(self, name: str) -> BoolArray:
        """Return bool[rows]: True for the node of this name."""
        return np.equal(self._rows, self._table.row_of.get(name, -1))

    def meets(self, requirement: Requirement) -> BoolArray:
        """Return bool[rows]: True where the node's label satisfies the requirement."""
        column = self.label(requirement.key)
        if not column.held:
            return np.full(len(self), requirement.operator in ("DoesNotExist", "NotIn"))
        codes: IntArray = self._taken(column.codes)
        match requirement.operator:
            case "Exists":
                return np.not_equal(codes, ABSENT)
            case "DoesNotExist":
                return np.equal(codes, ABSENT)
            case "In":
                return _among(codes, column, requirement.values)
            case "NotIn":
                return ~_among(codes, column, requirement.values)
            case "Gt" | "Lt":
                return _compared(codes, column, requirement)

    def selected(self, term: NodeSelectorTerm) -> BoolArray:
        """Return bool[rows]: True where the node satisfies the term.

        An empty or invalid term is satisfied by no node.
        """
        if not term.valid or term.empty:
            return np.zeros(len(self), np.bool_)
        mask = np.ones(len(self), np.bool_)
        for requirement in term.expressions:
            mask &= self.meets(requirement)
            if not mask.any():
                return mask
        for requirement in term.fields:
            named = self.named(requirement.values[0])
            mask &= named if requirement.operator == "In" else ~named
        return mask

    def admitted(self, labels: LabelSelector, required: NodeSelector | None) -> BoolArray:
        """Return bool[rows]: True where `labels` (nodeSelector) and `required` match the node."""
        mask = np.ones(len(self), np.bool_)
        for requirement in labels.requirements:
            mask &= self.meets(requirement)
        if required is not None:
            any_term = np.zeros(len(self), np.bool_)
            for term in required.terms:
                any_term |= self.selected(term)
            mask &= any_term
        return mask

    def _at(self, rows: Collection[int]) -> BoolArray:
        chosen = np.zeros(self._table.row_count, np.bool_)
        chosen[list(rows)] = True
        return chosen if self._all else chosen[self._rows]

    def _amounts(self, resources: ResourceColumns, resource: str) -> IntArray:
        rows = self._rows
        if not self._all:
            return resources.of_rows(resource, rows)
        amounts = resources.amounts(resource, len(rows))
        return np.zeros(len(rows), np.int64) if amounts is None else amounts

    def _taken(self, column: Column) -> npt.NDArray[Any]:
        if self._all:
            return column.first(len(self._rows))
        return column.data[self._rows]


class NodeViewWithNominated(NodeView):
    """A view in which `pod_count`, `requested` and `requested_at` include nominated pods.

    `more_*` are the amounts of these nominated pods: int64, indexed by rows of the node table.
    """

    __slots__ = ("_more_pods", "_more_requested")

    def __init__(
        self,
        table: NodeTable,
        rows: IntArray,
        more_pods: IntArray,
        more_requested: Mapping[str, IntArray],
    ) -> None:
        super().__init__(table, rows)
        self._more_pods = more_pods
        self._more_requested = more_requested

    def take(self, rows: IntArray) -> "NodeViewWithNominated":
        """Return a view of these rows of the node table with the additional pods."""
        return NodeViewWithNominated(self._table, rows, self._more_pods, self._more_requested)

    @property
    def usage(self) -> Usage | None:
        """None, because the table's usage lacks the additional pods."""
        return None

    @property
    def pod_count(self) -> IntArray:
        """int64[rows]: the number of pods on the node, including the additional pods."""
        return super().pod_count + self._more_pods[self._rows]

    def requested(self, resource: str) -> IntArray:
        """Return `NodeView.requested` with the additional pods."""
        more = self._more_requested.get(resource)
        requested = super().requested(resource)
        if more is None:
            return requested
        total = requested + more[self._rows]
        return np.where(total < 0, INT64_MAX, total)  # as SaturatingAdd: no amount is negative

    def requested_at(self, index: int, resource: str) -> int:
        """Return `NodeView.requested_at` with the additional pods."""
        more = self._more_requested.get(resource)
        requested = super().requested_at(index, resource)
        if more is None:
            return requested
        return min(requested + int(more[self._rows[index]]), INT64_MAX)


class NodeViewWithoutPod(NodeView):
    """A view as if one pod with this demand had left each node; its host ports stay in use."""

    __slots__ = ("_demand",)

    def __init__(self, table: NodeTable, rows: IntArray, demand: Demand) -> None:
        super().__init__(table, rows)
        self._demand = demand

    def take(self, rows: IntArray) -> "NodeViewWithoutPod":
        """Return a view of these rows, as if the pod had left each of their nodes."""
        return NodeViewWithoutPod(self._table, rows, self._demand)

    @property
    def usage(self) -> Usage | None:
        """None, because the table's usage includes the pod."""
        return None

    @property
    def pod_count(self) -> IntArray:
        """int64[rows]: the number of pods on the node minus one."""
        return super().pod_count - 1

    def requested(self, resource: str) -> IntArray:
        """Return `NodeView.requested` minus the demand of the removed pod."""
        return super().requested(resource) - self._demand.resources.get(resource, 0)

    def requested_at(self, index: int, resource: str) -> int:
        """Return `NodeView.requested_at` minus the demand of the removed pod."""
        return super().requested_at(index, resource) - self._demand.resources.get(resource, 0)

    def requested_scored(self, resource: str) -> IntArray:
        """Return `NodeView.requested_scored` minus the demand of the removed pod."""
        if resource == "cpu":
            return super().requested_scored(resource) - self._demand.node_scored_cpu
        if resource == "memory":
            return super().requested_scored(resource) - self._demand.node_scored_memory
        return self.requested(resource)


def _among(codes: IntArray, column: LabelColumn, values: tuple[str, ...]) -> BoolArray:
    return _has_code(codes, column, [column.index[v] for v in values if v in column.index])


def _compared(codes: IntArray, column: LabelColumn, requirement: Requirement) -> BoolArray:
    bound = parse_int64(requirement.values[0]) if requirement.values else None
    if bound is None:
        return np.zeros(len(codes), np.bool_)
    known, numbers = column.numbers
    wanted = numbers > bound if requirement.operator == "Gt" else numbers < bound
    return _has_code(codes, column, known[wanted])


def _has_code(codes: IntArray, column: LabelColumn, wanted: Sequence[int] | IntArray) -> BoolArray:
    if len(wanted) == 1:
        return np.equal(codes, wanted[0])
    by_code = np.zeros(len(column.values) + 1, np.bool_)
    by_code[wanted] = True
    by_code[ABSENT] = False
    chosen: BoolArray = by_code[codes]
    return chosen
