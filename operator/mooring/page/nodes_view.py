"""Reads the nodes for the view Cluster: columns for the canvas, and all data of one node."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from mooring.claims.device_view import Devices, NodeDevice
from mooring.gpu_cards.card_view import cards_of
from mooring.gpu_cards.state.card_counts import Cards
from mooring.model.node import BETA_ZONE, ZONE
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY, amount_text
from mooring.pausing import pause
from mooring.process.time_slices import REST, TimeSlices
from mooring.scheduling.pod_report import pod_state
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

PODS: Final = "pods"
"""The name for the number of pods on a node, in place of a resource's name."""

CORDONED: Final = 1
NOT_READY: Final = 2
TAINTED: Final = 4
"""The bits of `ResourceOfNodes.flags` are CORDONED, NOT_READY and TAINTED; TAINTED means that the
node has a taint with the effect NoSchedule or NoExecute."""

_MOST_RESOURCES: Final = 100
_MOST_LABELS: Final = 100
_MOST_VALUES: Final = 1000
"""The most values of a label by which the page groups nodes."""
_LABEL_SECONDS: Final = 60.0
"""The seconds after which the list of labels is read again, if labels have changed."""
_FIRST_LABELS: Final = (ZONE, BETA_ZONE, "topology.kubernetes.io/rack", "rack")
_MOST_DEVICES: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class ResourceOfNodes:
    """The amounts of one resource on all nodes; int64 arrays with an item for each of `rows`.

    `version` changes when nodes are added or removed, or when their labels or taints change.
    """

    version: tuple[int, int]
    rows: IntArray
    allocatable: IntArray
    requested: IntArray
    pods: IntArray
    flags: IntArray

    def changes(self, before: "ResourceOfNodes") -> dict[str, Any] | None:
        """Return the indices of the nodes whose values differ from `before`, and their new values.

        Returns None if no value differs. Both objects must have the same version.
        """
        columns = ("allocatable", "requested", "pods", "flags")
        differs = np.zeros(len(self.rows), np.bool_)
        for name in columns:
            differs |= getattr(self, name) != getattr(before, name)
        if not differs.any():
            return None
        at = np.flatnonzero(differs)
        return {"at": at, **{name: getattr(self, name)[at] for name in columns}}

    def document(self) -> dict[str, Any]:
        """Return the columns as a JSON object; its lists are numpy arrays."""
        return {
            "allocatable": self.allocatable,
            "requested": self.requested,
            "pods": self.pods,
            "flags": self.flags,
        }


@dataclass(eq=False, repr=False)
class Nodes:
    """Reads the node table, which takes some milliseconds; `clock` is monotonic, in seconds."""

    scheduler: SchedulerState
    clock: Callable[[], float] = time.monotonic
    _labels: tuple[float, int, list[str]] | None = None

    def version(self) -> tuple[int, int]:
        """Return a value that changes with the set of nodes, their labels and their taints."""
        table = self.scheduler.state.nodes
        return table.set_version, table.topology_version

    def columns(self, resource: str) -> ResourceOfNodes:
        """Return the current amounts of a resource, or of `PODS`, for all nodes."""
        cluster = self.scheduler.cluster
        rows = np.flatnonzero(cluster.nodes.present)
        nodes = cluster.nodes.take(rows)
        counts = nodes.pod_count
        if resource == PODS:
            allocatable, requested = nodes.pod_slots, counts
        else:
            allocatable, requested = nodes.allocatable(resource), nodes.requested(resource)
        return ResourceOfNodes(self.version(), rows, allocatable, requested, counts, _flags(nodes))

    def resources(self) -> list[str]:
        """Return at most 100 resources of the nodes: cpu, memory, `PODS`, then all others."""
        found = sorted(set(self.scheduler.state.nodes.allocatable) - {CPU, MEMORY})
        return [CPU, MEMORY, PODS, *found][:_MOST_RESOURCES]

    async def snapshot(
        self, columns: ResourceOfNodes, resource: str, label: str | None
    ) -> dict[str, Any]:
        """Return all data of these nodes that the canvas needs, as JSON values.

        The key `groups` has the values of the label, and for each node the index of its value, or
        -1 without the label. If `label` is None, the label is that of zones or racks.
        """
        # As they are now, because a row may be another node's after a pause.
        nodes = [self.scheduler.state.nodes.nodes[row] for row in columns.rows.tolist()]
        labels = await self._label_keys()
        if label is None:
            label = next((key for key in labels if key in _FIRST_LABELS), "")
        values: dict[str, int] = {}
        names, codes = list[str](), list[int]()

        def steps() -> None:
            for node in nodes:
                pause()
                names.append(node.name if node is not None else "")
                value = node.labels.get(label) if node is not None else None
                codes.append(-1 if value is None else values.setdefault(value, len(values)))

        await TimeSlices(rest=REST, clock=self.clock).run(steps)
        return {
            "resource": resource,
            "resources": self.resources(),
            "label": label,
            "labels": labels,
            "names": names,
            "groups": {"values": list(values), "codes": codes},
            **columns.document(),
        }

    async def _label_keys(self) -> list[str]:
        table, now = self.scheduler.state.nodes, self.clock()
        known = self._labels
        if known is not None and (known[1] == table.topology_version or known[0] > now):
            return known[2]
        version, values = table.topology_version, dict[str, set[str]]()

        def steps() -> None:
            for node in tuple(table.nodes):
                pause()
                for key, value in node.labels.items() if node is not None else ():
                    distinct = values.setdefault(key, set())
                    if len(distinct) <= _MOST_VALUES:
                        distinct.add(value)

        await TimeSlices(rest=REST, clock=self.clock).run(steps)
        keys = [key for key, distinct in values.items() if len(distinct) <= _MOST_VALUES]
        keys.sort(key=lambda key: (_rank(key), len(values[key]) == 1, key))
        self._labels = (now + _LABEL_SECONDS, version, keys[:_MOST_LABELS])
        return self._labels[2]

    def namespaces_on(self, name: str) -> frozenset[str] | None:
        """Return the namespaces of the node's pods, nominated pods, and claims that hold devices.

        Returns None if the node is unknown.
        """
        row = self._row(name)
        if row is None:
            return None
        holders = (holder for device in self._devices(row)[0] for holder in device.holders)
        return frozenset(
            (
                *(pod.namespace for pod in self._all_pods(row)),
                *(holder.claim.partition("/")[0] for holder in holders),
            )
        )

    def details(self, name: str, visible: frozenset[str]) -> dict[str, Any] | None:
        """Return the node with its pods of the visible namespaces; None if the node is unknown."""
        row = self._row(name)
        node = self.scheduler.cluster.node(row) if row is not None else None
        if row is None or node is None:
            return None
        cluster = self.scheduler.cluster
        one = cluster.nodes.take(np.array([row], np.int64))
        names = sorted({*node.allocatable, *self._requested_on(row)})
        resources = [_resource(one, resource) for resource in names]
        slots, count = int(one.pod_slots[0]), int(one.pod_count[0])
        placed = [p for p in cluster.pods_on(row) if p.pod.namespace in visible]
        placed.sort(key=lambda p: (-p.pod.spec.priority, p.pod.key))
        nominated = [p for p in cluster.nominations.on(row) if p.namespace in visible]
        kept_for = cluster.nominations.at(row, 0, None)
        reserved = (n.reservation for n in cluster.nominations.reserved if n.row == row)
        kept = next(filter(None, reserved), None)
        return {
            "name": name,
            "labels": dict(node.labels),
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
            "cordoned": node.unschedulable,
            "conditions": dict(node.conditions),
            "podSlots": slots,
            "podCount": count,
            "resources": resources,
            "largestPod": _largest_pod(resources, slots - count, kept_for),
            "reserved": kept.text if kept and kept.group.namespace in visible else None,
            "pods": [{**_pod(p.pod), "state": self._state(p.pod)} for p in placed],
            "otherPods": count - len(placed),
            "nominated": [_pod(pod) for pod in nominated],
            "otherNominated": len(cluster.nominations.on(row)) - len(nominated),
            "gpus": [
                _gpus(name, row, books, visible)
                for books in self.scheduler.state.devices.tracked
                if len(books.known(row))
            ],
            **self._devices_document(row, visible),
        }

    def _devices(self, row: int) -> tuple[list[NodeDevice], int]:
        """Return at most 200 devices that the node can use, and the number of all such devices."""
        found = Devices(self.scheduler.cluster, classes=False)
        devices = islice(chain(found.of_node(row), found.of_several(row)), _MOST_DEVICES)
        return [*devices], found.count(row)

    def _devices_document(self, row: int, visible: frozenset[str]) -> dict[str, Any]:
        """Return the node's devices as JSON; only count claims outside the namespaces `visible`."""
        devices, count = self._devices(row)
        documents = [device.document() for device in devices]
        for document in documents:
            shown = [h for h in document["holders"] if h["claim"].partition("/")[0] in visible]
            document["otherHolders"] = len(document["holders"]) - len(shown)
            document["holders"] = shown
            del document["classes"]
        return {"devices": documents, "otherDevices": count - len(devices)}

    def _state(self, pod: Pod) -> str | None:
        return "terminating" if pod.terminating else pod_state(self.scheduler, pod.uid)

    def _row(self, name: str) -> int | None:
        table = self.scheduler.state.nodes
        row = table.row_of.get(name)
        return row if row is not None and table.nodes[row] is not None else None

    def _all_pods(self, row: int) -> Iterator[Pod]:
        cluster = self.scheduler.cluster
        yield from (placed.pod for placed in cluster.pods_on(row))
        yield from cluster.nominations.on(row)

    def _requested_on(self, row: int) -> Iterable[str]:
        for placed in self.scheduler.cluster.pods_on(row):
            yield from placed.pod.spec.demand.resources


def _rank(label: str) -> int:
    return _FIRST_LABELS.index(label) if label in _FIRST_LABELS else len(_FIRST_LABELS)


def _flags(nodes: NodeView) -> IntArray:
    """Return int64[nodes]: the sum of the bits `CORDONED`, `NOT_READY` and `TAINTED`."""
    ready = [dict(conditions).get("Ready") == "True" for conditions in nodes.condition_sets]
    tainted = [
        any(taint.effect in ("NoSchedule", "NoExecute") for taint in taints)
        for taints in nodes.taint_sets
    ]
    not_ready = ~np.array(ready, np.bool_)[nodes.condition_codes]
    has_taint = np.array(tainted, np.bool_)[nodes.taint_codes]
    flags: IntArray = (
        CORDONED * nodes.unschedulable.astype(np.int64)
        + NOT_READY * not_ready
        + TAINTED * has_taint
    )
    return flags


def _resource(node: NodeView, resource: str) -> dict[str, Any]:
    allocatable, requested = int(node.allocatable(resource)[0]), int(node.requested(resource)[0])
    free = max(allocatable - requested, 0)
    return {
        "name": resource,
        "allocatable": allocatable,
        "requested": requested,
        "free": free,
        "texts": [amount_text(resource, value) for value in (allocatable, requested, free)],
    }


def _largest_pod(
    resources: Sequence[dict[str, Any]], slots: int, kept_for: Sequence[Pod]
) -> dict[str, str] | None:
    """Return the requests of the largest pod of priority 0 that fits on the node, or None."""
    free: dict[str, str] = {}
    for each in resources:
        name = each["name"]
        # Nominated pods keep their room, because their priority may be higher.
        left = each["free"] - sum(pod.spec.demand.resources.get(name, 0) for pod in kept_for)
        if left > 0:
            free[name] = amount_text(name, left)
    return free if slots > len(kept_for) and CPU in free and MEMORY in free else None


def _pod(pod: Pod) -> dict[str, Any]:
    requests = pod.spec.demand.resources
    return {
        "pod": pod.key,
        "priority": pod.spec.priority,
        "requests": {name: amount_text(name, value) for name, value in sorted(requests.items())},
    }


def _gpus(node: str, row: int, books: Cards, visible: frozenset[str]) -> dict[str, Any]:
    document = cards_of(node, row, books).cards_document()
    for card in document["cards"]:
        shown = [key for key in card["owners"] if key.partition("/")[0] in visible]
        card["otherOwners"] = len(card["owners"]) - len(shown)
        card["owners"] = shown
        card["guessed"] = [key for key in card["guessed"] if key in shown]
    form = books.format
    return {
        **document,
        "resource": form.memory_resource or form.whole_resource or form.cores_resource,
        "unit": f"{form.mib_per_unit} MiB",
        "links": books.known(row).links,
    }
