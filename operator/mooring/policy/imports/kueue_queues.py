"""Converts Kueue's ClusterQueues, Cohorts and LocalQueues to Queues.

Source: `apis/kueue/v1beta1` and `v1beta2`; some field names differ. A Cohort exists even if other
objects only name it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.model.fields import (
    called,
    mapping,
    mappings,
    name_of,
    namespace_of,
    optional_mapping,
    text,
)
from mooring.policy.imports.written_queue import (
    WrittenQueue,
    free_name,
    in_namespaces,
    left_out,
)
from mooring.quota.model.queue import QUEUE_LABEL, Quota, amount_of

KUEUE: Final = "kueue.x-k8s.io"
_LABEL: Final = f"{KUEUE}/queue-name"
_NEVER: Final = "Never"
_WITHIN: Final = {"": _NEVER, "LowerOrNewerEqualPriority": "Any"}
_COMMON: Final = ("resourceGroups", "fairSharing")
_READ: Final = {
    "ClusterQueue": (*_COMMON, "cohort", "cohortName", "namespaceSelector", "preemption"),
    "Cohort": (*_COMMON, "parent", "parentName"),
    "LocalQueue": ("clusterQueue",),
}
_STOP: Final = ("None", "delete the Queue's namespaceSelector, and no pods come into it")
_UNREAD: Final[Mapping[str, Mapping[str, tuple[object, str]]]] = {
    "ClusterQueue": {
        "queueingStrategy": ("BestEffortFIFO", "a pod that does not fit holds up no other"),
        "flavorFungibility": (None, "Queues have no flavors"),
        "admissionChecks": (None, "Mooring has no admission checks"),
        "admissionChecksStrategy": (None, "Mooring has no admission checks"),
        "stopPolicy": _STOP,
    },
    "Cohort": {},
    "LocalQueue": {
        "stopPolicy": _STOP,
        "fairSharing": (None, "give each namespace a Queue for that"),
    },
}


class KueueQueues:
    """Reads the objects of Kueue one by one, and converts all of them to Queues."""

    kinds: Final = (*_READ, "ResourceFlavor")

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._cluster_queues: list[WrittenQueue] = []
        self._cohorts: list[WrittenQueue] = []
        self._local: list[tuple[str, str, str]] = []
        """The namespace, the name and the ClusterQueue of each LocalQueue."""

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read an object of a kind in `kinds`; raise ManifestError if it is malformed."""
        kind, name, spec = str(raw["kind"]), name_of(raw), mapping(raw, "spec")
        origin = f"{kind} {called(raw)}"
        if kind == "ResourceFlavor":
            self._note_flavor(spec, origin)
            return
        self._notes += left_out(origin, spec, _READ[kind], _UNREAD[kind])
        if kind == "LocalQueue":
            self._local.append((namespace_of(raw), name, text(spec, "clusterQueue", "spec")))
            return
        older, newer = (
            ("cohort", "cohortName") if kind == "ClusterQueue" else ("parent", "parentName")
        )
        queue = WrittenQueue(
            name,
            origin,
            parent=text(spec, newer, "spec") or text(spec, older, "spec"),
            quotas=self._quotas(spec, origin),
            weight=mapping(spec, "fairSharing", "spec").get("weight"),
        )
        if kind == "Cohort":
            self._cohorts.append(queue)
            return
        queue.preemption = self._preemption(mapping(spec, "preemption", "spec"), origin)
        queue.selector = optional_mapping(spec, "namespaceSelector", "spec")
        self._cluster_queues.append(queue)

    def _note_flavor(self, spec: Mapping[str, Any], origin: str) -> None:
        adds = [field for field in ("nodeLabels", "tolerations") if spec.get(field)]
        if adds:
            why = f"Kueue adds its {' and '.join(adds)} to pods; write them into the pods"
            self._notes.append(f"{origin} is left out: {why}")

    def _quotas(self, spec: Mapping[str, Any], origin: str) -> dict[str, Quota]:
        found = defaultdict[str, dict[str, Quota]](dict)
        for i, group in enumerate(mappings(spec, "resourceGroups", "spec")):
            path = f"spec.resourceGroups[{i}]"
            for j, flavor in enumerate(mappings(group, "flavors", path)):
                inner = f"{path}.flavors[{j}]"
                for k, one in enumerate(mappings(flavor, "resources", inner)):
                    where = f"{inner}.resources[{k}]"
                    quotas = found[text(one, "name", where)]
                    quotas[text(flavor, "name", inner)] = _quota(one, where)
        for resource, by_flavor in found.items():
            if len(by_flavor) > 1:
                why = f"in the flavors {', '.join(by_flavor)} are added up: Queues have no flavors"
                self._notes.append(f"{origin}: the quotas of {resource} {why}")
        return {resource: _sum([*each.values()]) for resource, each in found.items()}

    def _preemption(self, spec: Mapping[str, Any], origin: str) -> Mapping[str, str]:
        within = text(spec, "withinClusterQueue", "spec.preemption")
        borrowing = mapping(spec, "borrowWithinCohort", "spec.preemption")
        if borrowing.get("policy") not in (None, _NEVER):
            why = "a pod whose Queue must borrow for it preempts no pods of other Queues"
            self._notes.append(f"{origin}: spec.preemption.borrowWithinCohort is left out: {why}")
        return {
            "reclaimWithinCohort": text(spec, "reclaimWithinCohort", "spec.preemption") or _NEVER,
            "withinQueue": _WITHIN.get(within, within),
        }

    def queues(self, _capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        """Yield the Queues for Cohorts, then for ClusterQueues; add notes for the user."""
        self._add_namespaces()
        taken = {queue.name for queue in self._cluster_queues}
        defined = {queue.name for queue in self._cohorts}
        everything = (*self._cohorts, *self._cluster_queues)
        for name in dict.fromkeys(queue.parent for queue in everything):
            if name and name not in defined:
                note = f"Cohort {name} is not in the file: it becomes a Queue without quotas"
                self._notes.append(note)
                self._cohorts.append(WrittenQueue(name, f"Cohort {name}"))
        names = dict[str, str]()
        for queue in self._cohorts:
            name = names[queue.name] = free_name(queue.name, taken, "-cohort")
            if name != queue.name:
                why = "because a ClusterQueue has the same name"
                self._notes.append(f"Cohort {queue.name} becomes Queue {name}, {why}")
            queue.name = name
        for queue in (*self._cohorts, *self._cluster_queues):
            queue.parent = names.get(queue.parent, queue.parent)
            yield queue

    def _add_namespaces(self) -> None:
        namespaces, queues = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for namespace, _, queue in self._local:
            namespaces[queue].add(namespace)
            queues[namespace].add(queue)
        selectors = {queue.name: queue.selector for queue in self._cluster_queues}
        for namespace, name, queue in self._local:
            origin = f"LocalQueue {namespace}/{name}"
            if queue not in selectors:
                how = f"its ClusterQueue {queue} is not in the file"
            elif selectors[queue] is None:
                continue
            elif len(queues[namespace]) > 1:
                how = f"its pods need the label {QUEUE_LABEL}: {queue} instead of {_LABEL}"
            else:
                how = f"all pods of the namespace without the label {_LABEL} are in Queue {queue}"
            self._notes.append(f"{origin}: {how}")
        for written in self._cluster_queues:
            if (chosen := written.selector) is None:
                why = "has no namespaceSelector, so no pods may be in it, as in Kueue"
                self._notes.append(f"{written.origin} {why}")
            elif found := sorted(namespaces[written.name]):
                written.selector = in_namespaces(found, chosen)
            elif not chosen:
                how = f"has no LocalQueue in the file: its pods need the label {QUEUE_LABEL}"
                self._notes.append(f"{written.origin} {how}: {written.name}")


def _quota(raw: Mapping[str, Any], where: str) -> Quota:
    resource = text(raw, "name", where)
    fields = ("nominalQuota", "borrowingLimit", "lendingLimit")
    nominal, borrowing, lending = (
        None if (value := raw.get(name)) is None else amount_of(value, resource, f"{where}.{name}")
        for name in fields
    )
    return Quota(nominal or 0, borrowing, lending)


def _sum(quotas: Sequence[Quota]) -> Quota:
    borrowing = [each.borrowing_limit for each in quotas if each.borrowing_limit is not None]
    lending = [each.nominal if (lent := each.lending_limit) is None else lent for each in quotas]
    lends_all = all(each.lending_limit is None for each in quotas)
    return Quota(
        sum(each.nominal for each in quotas),
        sum(borrowing) if len(borrowing) == len(quotas) else None,
        None if lends_all else sum(lending),
    )
