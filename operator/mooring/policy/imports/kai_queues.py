"""Converts KAI's Queues to Mooring's Queues.

Source: `scheduling/v2/queue_types.go`, `resources.go`, `plugins/proportion`. Numbers are
millicores, megabytes and GPUs; -1 is unlimited. The queues at the top share the nodes' resources.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, Final

from mooring.model.fields import mapping, name_of, optional_mapping, text
from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.inclusive_quotas import converted, note_without_nodes
from mooring.policy.imports.written_queue import WrittenQueue, free_name, left_out
from mooring.quota.model.queue import QUEUE_LABEL, Quota

KAI: Final = "scheduling.run.ai"
_ROOT: Final = "kai-root"
_GPU: Final = "nvidia.com/gpu"
_RESOURCES: Final = {"gpu": (_GPU, 1), "cpu": ("cpu", 1), "memory": ("memory", 10**6)}
_UNLIMITED: Final = -1
_READ: Final = ("parentQueue", "resources")
_RUNTIME: Final = (None, "preemption.minRuntimeSeconds of the profile takes its place")
_UNREAD: Final[Mapping[str, tuple[object, str]]] = {
    "priority": (100, "the Queue that has borrowed the smallest share is first"),
    "preemptMinRuntime": _RUNTIME,
    "reclaimMinRuntime": _RUNTIME,
}


class KaiQueues:
    """Reads KAI's queues one by one, and converts all of them to Queues."""

    kinds: Final = ("Queue",)

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._queues: list[WrittenQueue] = []
        self._unlimited: list[tuple[WrittenQueue, str]] = []
        """Pairs of queue and resource: the queue's quota of this resource is unlimited."""

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read a queue; raise ManifestError if it is malformed."""
        name, spec = name_of(raw), mapping(raw, "spec")
        parent = text(spec, "parentQueue", "spec")
        queue = WrittenQueue(name, f"Queue {name}", parent, selector={})
        self._notes += left_out(queue.origin, spec, _READ, _UNREAD)
        resources, weights = mapping(spec, "resources", "spec"), list[float]()
        for field in _RESOURCES:
            one = optional_mapping(resources, field, "spec.resources")
            if one is None:
                why = f"has no {field}: KAI gives it none, a Queue may borrow it"
                self._notes.append(f"{queue.origin}: spec.resources {why}")
            else:
                self._read_resource(queue, field, one)
                if "overQuotaWeight" in one:
                    path = f"spec.resources.{field}.overQuotaWeight"
                    weights.append(_number(one, "overQuotaWeight", path))
        if len({*weights}) > 1:
            why = f"a Queue has one weight: {weights[0]:g}, the first of gpu, cpu and memory"
            self._notes.append(f"{queue.origin}: overQuotaWeight differs by resource: {why}")
        queue.weight = f"{weights[0]:g}" if weights else None
        self._queues.append(queue)

    def _read_resource(self, queue: WrittenQueue, field: str, raw: Mapping[str, Any]) -> None:
        where, (resource, unit) = f"spec.resources.{field}", _RESOURCES[field]
        quota, limit, lent = (
            _number(raw, name, f"{where}.{name}") if raw.get(name) is not None else None
            for name in ("quota", "limit", "lendingLimit")
        )
        nominal, borrowing, lending = 0, None, None
        if quota == _UNLIMITED:
            self._unlimited.append((queue, resource))
        else:
            nominal = ceil((quota or 0) * unit)
            kept = ceil(((quota or 0) - lent) * unit) if lent is not None else 0
            lending = nominal - kept if kept > 0 else None
        if limit != _UNLIMITED and (limit or quota != _UNLIMITED):
            borrowing = ceil((limit or quota or 0) * unit) - nominal
        queue.quotas[resource] = Quota(nominal, borrowing, lending)
        if resource == _GPU:
            self._notes.append(f"GPUs are those of {_GPU}: KAI counts MIG devices and parts too")

    def queues(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        """Yield a root Queue and a Queue for each queue of KAI; add notes for the user."""
        for queue, resource in self._unlimited:
            limit = queue.quotas.pop(resource).borrowing_limit
            known = [each for each in (limit, capacity.get(resource)) if each is not None]
            if known:
                borrowing = None if limit is None else limit - min(known)
                queue.quotas[resource] = Quota(min(known), borrowing)
            else:
                why = f"the unlimited quota of {resource} is left out: the file has no Nodes"
                self._notes.append(f"{queue.origin}: {why}")
        root = free_name(_ROOT, {queue.name for queue in self._queues}, "-root")
        if not capacity:
            self._notes.append(note_without_nodes(root, f"queues.{KAI}"))
        self._notes.append(f"pods need the label {QUEUE_LABEL}, or a profile with the preset KAI")
        top = WrittenQueue(root, "the root of KAI's queues")
        return converted(self._queues, top, self._notes, capacity)


def _number(raw: Mapping[str, Any], field: str, path: str) -> float:
    value = raw[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ManifestError(path, "must be a number")
    if value < 0 and value != _UNLIMITED:
        raise ManifestError(path, f"{value} is negative; only -1, unlimited, is allowed")
    return value
