"""Converts ElasticQuotas to Queues, as Mooring does when it reads them (`quota/model`)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.model.fields import called, mapping
from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.inclusive_quotas import note_without_nodes
from mooring.policy.imports.written_queue import WrittenQueue, in_namespaces, left_out
from mooring.quota.model.elastic_quota import (
    KOORDINATOR,
    NO_QUEUES,
    ROOT_OF_KOORDINATOR,
    fields_of_koordinator,
    parse_elastic_quota,
    queues_of,
    with_own_quotas,
)
from mooring.quota.model.queue import QUEUE_LABEL, Queue

GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
_KNOWN: Final = (
    *("is-parent", "parent", "allow-lent-resource", "namespaces", "is-root"),
    *("runtime", "request", "child-request", "allocated", "guaranteed", "unschedulable-resource"),
    *("non-preemptible-request", "non-preemptible-used"),
)
"""Koordinator's labels and annotations that are read, or that belong to the status."""


class ElasticQuotas:
    """Reads ElasticQuotas one by one, and converts all of them to Queues."""

    kinds: Final = ("ElasticQuota",)

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._read: dict[str, Queue] = {}
        self._origins: dict[str, str] = {}

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read an ElasticQuota.

        Raises ManifestError if it is malformed, or if another ElasticQuota becomes the same Queue.
        """
        origin, queue = f"ElasticQuota {called(raw)}", parse_elastic_quota(raw)
        if queue.invalid is not None:
            raise ManifestError("", queue.invalid.removeprefix(f"{origin}: "))
        if (other := self._origins.setdefault(queue.name, origin)) != origin:
            raise ManifestError("", f"is one Queue with {other}")
        self._notes += left_out(origin, mapping(raw, "spec"), ("min", "max"), {})
        for name in fields_of_koordinator(mapping(raw, "metadata")):
            if name not in _KNOWN:
                why = "is left out: Queues have no such field"
                self._notes.append(f"{origin}: {KOORDINATOR}{name} {why}")
        for resource, quota in queue.quotas.items():
            if (quota.borrowing_limit or 0) < 0:
                why = f"the limit of {resource} is below the quota: it is the quota"
                self._notes.append(f"{origin}: {why}")
        if queue.name in NO_QUEUES:
            self._notes.append(f"{origin} is left out: pods that name no quota are in no Queue")
        self._read[origin] = queue

    def queues(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        """Yield the Queues for all ElasticQuotas."""
        found, _ = with_own_quotas(queues_of(self._read, ()), lambda name: capacity.get(name, 0))
        if ROOT_OF_KOORDINATOR in found:
            if not capacity:
                kind = f"elasticquotas.{GROUPS[-1]} --all-namespaces"
                self._notes.append(note_without_nodes(ROOT_OF_KOORDINATOR, kind))
            why = f"pods need the label {QUEUE_LABEL}, or a profile with the preset Koordinator"
            self._notes.append(why)
        parents = {queue.parent for queue in found.values()}
        for name, queue in found.items():
            origin = self._origins.get(name, name)
            written = WrittenQueue(name, origin, queue.parent, {**queue.quotas})
            if queue.parent not in (*found, ""):
                self._notes.append(f"{origin}: its parent {queue.parent} is not in the file")
            if queue.namespaces is not None and name not in parents:
                requirements = queue.namespaces.requirements
                written.selector = in_namespaces([v for r in requirements for v in r.values])
            yield written
