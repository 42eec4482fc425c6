"""Converts ElasticQuotas of scheduler-plugins and of Koordinator to Queues.

Source: scheduler-plugins `pkg/capacityscheduling`, Koordinator `apis/extension/elastic_quota.go`
and `plugins/elasticquota`. In scheduler-plugins an ElasticQuota is the quota of its namespace, and
all of them lend to each other. In Koordinator, labels arrange the quotas in a tree, and the tree
shares the resources of the nodes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.model.fields import called, mapping, name_of, namespace_of, strings
from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.inclusive_quotas import (
    InclusiveQueue,
    InclusiveQuotas,
    note_without_nodes,
)
from mooring.policy.imports.written_queue import (
    WrittenQueue,
    free_name,
    in_namespaces,
    left_out,
)
from mooring.quota.model.elastic_quota import ROOT
from mooring.quota.model.queue import QUEUE_LABEL, amounts_of

GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
_READ: Final = ("min", "max")
_PREFIX: Final = "quota.scheduling.koordinator.sh/"
_ROOT_OF_KOORDINATOR: Final = "koordinator-root-quota"
_OF_OTHERS: Final = ("koordinator-default-quota", "koordinator-system-quota")
_FIELDS: Final = ("is-parent", "parent", "allow-lent-resource", "namespaces", "is-root")
_OF_STATUS: Final = (
    *("runtime", "request", "child-request", "allocated", "guaranteed", "unschedulable-resource"),
    *("non-preemptible-request", "non-preemptible-used"),
)


class ElasticQuotas:
    """Reads ElasticQuotas one by one, and converts all of them to Queues."""

    kinds: Final = ("ElasticQuota",)

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._read: list[tuple[InclusiveQueue, str, Mapping[str, str]]] = []
        """The quotas with their namespaces, and with Koordinator's labels and annotations."""

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read an ElasticQuota; raise ManifestError if it is malformed."""
        metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
        origin = f"ElasticQuota {called(raw)}"
        self._notes += left_out(origin, spec, _READ, {})
        written = {
            **strings(metadata, "annotations", "metadata"),
            **strings(metadata, "labels", "metadata"),
        }
        fields = {
            key.removeprefix(_PREFIX): value
            for key, value in written.items()
            if key.startswith(_PREFIX)
        }
        queue = InclusiveQueue(
            name_of(raw),
            origin,
            parent=fields.get("parent", ""),
            quota={**amounts_of(spec, "min", "spec")},
            limit=amounts_of(spec, "max", "spec"),
        )
        if fields.get("allow-lent-resource") == "false":
            queue.kept = {name: quota for name, quota in queue.quota.items() if quota}
        namespaces = [namespace_of(raw)] if namespace_of(raw) == queue.name else []
        if fields.get("is-parent") != "true":
            queue.selector = in_namespaces(_namespaces(fields) or namespaces)
        self._read.append((queue, namespace_of(raw), fields))

    def queues(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        """Yield the Queues for all ElasticQuotas."""
        if any(fields for _, _, fields in self._read):
            return self._of_koordinator(capacity)
        quotas = list[InclusiveQueue]()
        for queue, namespace, _ in self._read:
            queue.name, queue.selector = namespace, in_namespaces([namespace])
            quotas.append(queue)
        root = free_name(ROOT, {queue.name for queue in quotas}, "-root")
        top = InclusiveQueue(root, "the root of the ElasticQuotas")
        return InclusiveQuotas(quotas, top, self._notes, {}).written()

    def _of_koordinator(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        root = InclusiveQueue(_ROOT_OF_KOORDINATOR, "the root of Koordinator's quotas")
        quotas = list[InclusiveQueue]()
        for queue, _, fields in self._read:
            self._note_fields(queue, fields)
            if queue.name == root.name:
                root = queue
            elif queue.name in _OF_OTHERS:
                why = "pods that name no quota are in no Queue"
                self._notes.append(f"{queue.origin} is left out: {why}")
            else:
                queue.parent = "" if queue.parent == root.name else queue.parent
                quotas.append(queue)
        root.selector, root.kept = None, {}
        if not capacity:
            kind = f"elasticquotas.{GROUPS[-1]}"
            self._notes.append(note_without_nodes(root.name, f"{kind} --all-namespaces"))
        self._notes.append(f"pods need the label {QUEUE_LABEL} instead of {_PREFIX}name")
        return InclusiveQuotas(quotas, root, self._notes, capacity).written()

    def _note_fields(self, queue: InclusiveQueue, fields: Mapping[str, str]) -> None:
        for name in fields:
            if name not in _FIELDS and name not in _OF_STATUS:
                note = f"{queue.origin}: {_PREFIX}{name} is left out: Queues have no such field"
                self._notes.append(note)


def _namespaces(fields: Mapping[str, str]) -> list[str]:
    """Return the namespaces that an annotation of the quota lists."""
    path = f"metadata.annotations[{_PREFIX}namespaces]"
    try:
        names = json.loads(fields.get("namespaces") or "[]")
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManifestError(path, "must be a list of names in JSON")
    return names
