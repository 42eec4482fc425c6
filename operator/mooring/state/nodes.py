"""The node table: one row per node, one contiguous column per quantity.

A node keeps its row until it is deleted; `set_version` grows when a node is added or deleted.
All pods whose node does not exist are counted on one extra row: a pod's event may arrive before its
node's, the pods of a deleted node are deleted one by one, and a pod may name any node. Only rows
whose `present` is True are nodes that can be chosen.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.model.indexes import add_count, drop_item
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import HostPort
from mooring.model.resources import CPU, MEMORY
from mooring.model.taints import Taint
from mooring.state.columns import (
    ChangeLog,
    Column,
    Columns,
    Interned,
    ResourceColumns,
    Sums,
    read_only,
)
from mooring.state.labels import EACH_NODE, Domains, LabelColumn, LabelColumns
from mooring.state.usage import Usage, UsageColumns

EVERY_ADDRESS: Final = "0.0.0.0"

Conditions = frozenset[tuple[str, str]]
"""Pairs of type and status, one for each condition of a node."""


@dataclass(slots=True)
class Image:
    """An image on nodes; `size` is in bytes, as the image's first node reported it (cache.go)."""

    size: int
    rows: dict[int, None] = field(default_factory=dict)
    """The rows that have the image; a dict, because a small set takes twice the memory."""


class NodeTable:
    """All nodes, with the sums of their pods' requests.

    Resources are int64: cpu in millicores, memory and storage in bytes, others as counts. In
    `requested_scored_cpu` and `requested_scored_memory`, a missing request counts with
    kube-scheduler's default (NodeInfo.NonZeroRequested).
    """

    def __init__(self) -> None:
        columns = self._columns = Columns()
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.row_of: dict[str, int] = {}
        self._free_rows: list[int] = []
        self._unknown_row: int | None = None
        self.present = columns.add(np.bool_)
        self.unschedulable = columns.add(np.bool_)
        self.pod_slots = columns.add(np.int64)
        self.pod_count = columns.add(np.int64)
        self.allocatable = ResourceColumns(columns)
        self.requested = ResourceColumns(columns)
        self.requested_scored_cpu = columns.add(np.int64)
        self.requested_scored_memory = columns.add(np.int64)
        self._scored_sums = Sums()
        self.taints: Interned[tuple[Taint, ...]] = Interned(columns, ())
        self.conditions: Interned[Conditions] = Interned(columns, frozenset())
        self.zones: Interned[tuple[str, str]] = Interned(columns, ("", ""))
        """The region and zone of each row; the first value stands for nodes that have neither."""
        self.declared_features: Interned[frozenset[str]] = Interned(columns, frozenset())
        self.avoiding: dict[tuple[str, str], set[int]] = {}
        """Maps the kind and uid of a controller to the rows whose preferAvoidPods annotation names
        it."""
        self._labels = LabelColumns(columns)
        self._each_node = Domains(EACH_NODE, columns.add(np.int64), self.names)
        self.images: dict[str, Image] = {}
        self.host_ports: dict[tuple[str, int], dict[int, Counter[str]]] = {}
        """By protocol and port, then by row: how many pods use the port, by address."""
        self.changes = ChangeLog()
        """The log of rows whose node, or whose pods, changed."""
        self.node_changes = ChangeLog()
        """The log of rows whose Node object changed; it leaves out changes of the pods on the
        node."""
        self.set_version = 0
        """A number that grows when a node is added or deleted, or changes its zone or images."""
        self.topology_version = 0
        """A number that grows when a node is added or deleted, or changes its labels or taints."""
        self._usage = self._usage_columns()
        self._all_rows: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.zeros(0, np.int64))

    def _usage_columns(self) -> UsageColumns:
        scored = self.requested_scored_cpu, self.requested_scored_memory
        return UsageColumns(self.present, self.allocatable, self.requested, scored, self.changes)

    @property
    def row_count(self) -> int:
        """The number of rows in use; the arrays of columns may be longer."""
        return len(self.names)

    @property
    def all_rows(self) -> npt.NDArray[np.int64]:
        """The numbers from 0 to `row_count` - 1, as a read-only array."""
        if len(self._all_rows) != len(self.names):
            self._all_rows = read_only(np.arange(len(self.names)))
        return self._all_rows

    @property
    def present_count(self) -> int:
        """The number of existing nodes; rows without a node are not counted."""
        return len(self.order())

    @property
    def unknown_row(self) -> int:
        """The row of all pods whose node does not exist; it is never freed."""
        if self._unknown_row is None:
            self._unknown_row = self._new_row("")
            self.set_version += 1
            self.topology_version += 1
        return self._unknown_row

    def total(self, resource: str) -> int:
        """Return the sum of the nodes' allocatable amounts; for `pods`, how many pods they take."""
        if resource == "pods":
            return int(self.pod_slots.first(self.row_count).sum())
        amounts = self.allocatable.amounts(resource, self.row_count)
        # The sum of a few absurd amounts is no int64.
        return int(amounts.sum(dtype=np.float64)) if amounts is not None else 0

    def is_unknown(self, row: int) -> bool:
        """Return whether `row` is the row of all pods whose node does not exist."""
        return row == self._unknown_row

    def _new_row(self, name: str) -> int:
        if self._free_rows:
            row = heapq.heappop(self._free_rows)
            self.names[row] = name
            return row
        row = len(self.names)
        self.names.append(name)
        self.nodes.append(None)
        self._columns.reserve(row + 1)
        self._each_node.codes.data[row] = row
        return row

    def add_column(self, dtype: npt.DTypeLike) -> Column:
        """Add a column that the caller fills; the table does not clear the value of a freed row."""
        return self._columns.add(dtype)

    def remove_column(self, column: Column) -> None:
        """Remove a column that `add_column` returned, to free its memory."""
        self._columns.remove(column)

    def add_resource_columns(self) -> ResourceColumns:
        """Add columns of amounts by resource, which the caller fills; see `add_column`."""
        return ResourceColumns(self._columns)

    @property
    def usage(self) -> Usage:
        """The cpu and memory that the nodes of all rows offer and use."""
        return self._usage.of_rows(len(self.names))

    @property
    def bytes(self) -> int:
        """The memory of all columns, in bytes."""
        return self._columns.bytes + self._usage.bytes

    def label(self, key: str) -> LabelColumn:
        """Return the column of a node label; it is kept up to date while the caller holds it."""
        labelled = ((i, node.labels) for i, node in enumerate(self.nodes) if node is not None)
        return self._labels.column(key, labelled)

    @property
    def label_keys(self) -> Collection[str]:
        """The label keys that at least one node has."""
        return self._labels.keys

    def domains(self, key: str) -> Domains:
        """Return the domains by a node label; with EACH_NODE every node is a domain of its own."""
        return self._each_node if key == EACH_NODE else self.label(key)

    def order(self) -> npt.NDArray[np.int64]:
        """Return the rows of all nodes, from each zone in turn (backend/cache/node_tree.go)."""
        version, order = self._order
        if version != self.set_version:
            order = self._interleaved()
            self._order = (self.set_version, order)
        return order

    def _interleaved(self) -> npt.NDArray[np.int64]:
        zones: dict[tuple[str, str], list[int]] = {}
        for name, row in self.row_of.items():
            node = self.nodes[row]
            if node is not None and node.name == name:
                zones.setdefault(node.zone_key, []).append(row)
        turns = [
            (index, zone, row)
            for zone, rows in enumerate(zones.values())
            for index, row in enumerate(rows)
        ]
        return np.array([row for _, _, row in sorted(turns)], dtype=np.int64)

    def put(self, node: Node) -> Node | None:
        """Add or update the node; return its former version, None for a new node."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self.row_of[node.name] = self._new_row(node.name)
        before = self.nodes[row]
        self.nodes[row] = node
        self.present.data[row] = True
        self.unschedulable.data[row] = node.unschedulable
        self.pod_slots.data[row] = node.pod_slots
        self.taints.put(row, node.taints)
        self.conditions.put(row, frozenset(node.conditions.items()))
        self.zones.put(row, node.zone_key)
        self.declared_features.put(row, node.declared_features)
        self._put_avoided(row, node.avoids, before)
        self._put_allocatable(row, node, before)
        relabelled = before is None or before.labels != node.labels
        if relabelled:
            self._labels.put(row, before.labels if before is not None else {}, node.labels)
        if relabelled or before is None or before.taints != node.taints:
            self.topology_version += 1
        if before is None or before.images != node.images or before.zone_key != node.zone_key:
            self._put_images(row, node, before)
            self.set_version += 1
        self.changes.mark(row)
        self.node_changes.mark(row)
        return before

    def drop(self, name: str) -> Node | None:
        """Remove a node and return it; None if there is none. No pod may be counted on its row."""
        row = self.row_of.pop(name, None)
        before = self.nodes[row] if row is not None else None
        if row is None or before is None:
            return None
        self.names[row], self.nodes[row] = "", None
        for column in (self.present, self.unschedulable, self.pod_slots):
            column.data[row] = 0
        self.taints.put(row, ())
        self.conditions.put(row, frozenset())
        self.zones.put(row, ("", ""))
        self.declared_features.put(row, frozenset())
        self._put_avoided(row, frozenset(), before)
        for resource in before.allocatable:
            self.allocatable.put(resource, row, 0)
        for image in before.images:
            self._forget_image(image, row)
        self._labels.put(row, before.labels, {})
        self.set_version += 1
        self.topology_version += 1
        self.changes.mark(row)
        self.node_changes.mark(row)
        self._free(row)
        return before

    def _free(self, row: int) -> None:
        heapq.heappush(self._free_rows, row)
        rows = len(self.names)
        while rows and self.nodes[rows - 1] is None and not self.is_unknown(rows - 1):
            rows -= 1
        if rows < len(self.names):
            del self.names[rows:], self.nodes[rows:]
            self._free_rows = [free for free in self._free_rows if free < rows]
            heapq.heapify(self._free_rows)

    def add_pod(self, row: int, pod: Pod) -> None:
        """Add the pod, its requests and its host ports to the row's node."""
        self._account(row, (pod,), 1)
        self._take_ports(row, pod)

    def remove_pod(self, row: int, pod: Pod) -> None:
        """Take the pod, its requests and its host ports from the row's node."""
        self._account(row, (pod,), -1)
        self._free_ports(row, pod)

    def move_pods(self, pods: Sequence[Pod], before: int, row: int) -> None:
        """Move the pods, their requests and their host ports from row `before` to `row`."""
        for pod in pods:
            self._free_ports(before, pod)
            self._take_ports(row, pod)
        self._account(before, pods, -1)
        self._account(row, pods, 1)

    def _account(self, row: int, pods: Sequence[Pod], sign: int) -> None:
        requested, cpu, memory = dict[str, int](), 0, 0
        for pod in pods:
            demand = pod.spec.demand
            for resource, amount in demand.resources.items():
                requested[resource] = requested.get(resource, 0) + amount
            cpu += demand.node_scored_cpu
            memory += demand.node_scored_memory
        for resource, amount in requested.items():
            self.requested.add(resource, row, sign * amount)
        self.pod_count.data[row] += sign * len(pods)
        for name, column, amount in (
            (CPU, self.requested_scored_cpu, cpu),
            (MEMORY, self.requested_scored_memory, memory),
        ):
            shown = column.data.item(row)
            column.data[row] = self._scored_sums.added(name, row, shown, sign * amount)
        self.changes.mark(row)

    def fits_requests(self, row: int, amounts: Mapping[str, int]) -> bool:
        """Return whether the row's node has a free pod slot and these free amounts by resource."""
        if self.pod_count.data.item(row) >= self.pod_slots.data.item(row):
            return False
        for resource, amount in amounts.items():
            if amount > self.allocatable.at(resource, row) - self.requested.at(resource, row):
                return False
        return True

    def port_taken(self, row: int, port: HostPort) -> bool:
        """Return whether a pod on the row's node uses this port at this address.

        The address 0.0.0.0 stands for all addresses.
        """
        taken = self.host_ports.get((port.protocol, port.port), {}).get(row)
        if not taken:
            return False
        return port.ip == EVERY_ADDRESS or port.ip in taken or EVERY_ADDRESS in taken

    def _take_ports(self, row: int, pod: Pod) -> None:
        for port in () if self.is_unknown(row) else pod.spec.host_ports:
            rows = self.host_ports.setdefault((port.protocol, port.port), {})
            if row not in rows:
                rows[row] = Counter()
            rows[row][port.ip] += 1

    def _free_ports(self, row: int, pod: Pod) -> None:
        for port in () if self.is_unknown(row) else pod.spec.host_ports:
            key = (port.protocol, port.port)
            users = self.host_ports[key][row]
            add_count(users, port.ip, -1)
            if not users:
                drop_item(self.host_ports, key, row)

    def _put_allocatable(self, row: int, node: Node, before: Node | None) -> None:
        if before is not None:
            for resource in before.allocatable.keys() - node.allocatable.keys():
                self.allocatable.put(resource, row, 0)
        for resource, amount in node.allocatable.items():
            self.allocatable.put(resource, row, amount)

    def _put_avoided(
        self, row: int, avoided: frozenset[tuple[str, str]], before: Node | None
    ) -> None:
        known = before.avoids if before is not None else frozenset()
        for controller in known - avoided:
            drop_item(self.avoiding, controller, row)
        for controller in avoided - known:
            self.avoiding.setdefault(controller, set()).add(row)

    def _put_images(self, row: int, node: Node, before: Node | None) -> None:
        for image in before.images if before is not None else ():
            self._forget_image(image, row)
        for image, size in node.images.items():
            self.images.setdefault(image, Image(size)).rows[row] = None

    def _forget_image(self, name: str, row: int) -> None:
        image = self.images[name]
        image.rows.pop(row, None)
        if not image.rows:
            del self.images[name]
