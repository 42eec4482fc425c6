"""Parses ElasticQuotas of scheduler-plugins and of Koordinator to Queues.

Source: scheduler-plugins `apis/scheduling/v1alpha1/types.go`, `pkg/capacityscheduling`; Koordinator
`apis/extension/elastic_quota.go`, `pkg/scheduler/plugins/elasticquota`. In scheduler-plugins an
ElasticQuota is the quota of its namespace. In Koordinator, labels arrange the quotas in a tree.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.model.fields import (
    integer,
    mapping,
    name_of,
    namespace_of,
    naming_the_object,
    strings,
    text,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.selectors import LabelSelector, Requirement
from mooring.model.workloads import NAMESPACE_NAME
from mooring.quota.model.queue import Queue, Quota, amounts_of, inclusive_quotas, own_quotas

ROOT: Final = "elastic-quota.root"
"""The name of the Queue above the Queues of namespaces; no namespace can have it."""
KOORDINATOR: Final = "quota.scheduling.koordinator.sh/"
"""The prefix of Koordinator's labels and annotations."""
ROOT_OF_KOORDINATOR: Final = "koordinator-root-quota"
NO_QUEUES: Final = ("koordinator-default-quota", "koordinator-system-quota")
"""Koordinator's quotas for pods that name no quota; these pods are in no Queue."""


@naming_the_object("ElasticQuota")
def parse_elastic_quota(raw: Mapping[str, Any]) -> Queue:
    """Parse an ElasticQuota to a Queue. The quotas include the quotas of the Queues below it.

    Raises ManifestError if the name is malformed. Other mistakes are in `invalid` of the Queue.
    """
    metadata, namespace, name = mapping(raw, "metadata"), namespace_of(raw), name_of(raw)
    fields, quotas, names, invalid = dict[str, str](), {}, list[str](), None
    try:
        fields, spec = fields_of_koordinator(metadata), mapping(raw, "spec")
        names = _namespaces(fields)
        least, most = amounts_of(spec, "min", "spec"), amounts_of(spec, "max", "spec")
        kept = least if fields.get("allow-lent-resource") == "false" else {}
        quotas = inclusive_quotas(least, most, kept)
    except ManifestError as error:
        invalid = f"ElasticQuota {namespace}/{name}: {error}"
    queue = Queue(
        namespace,
        ROOT,
        quotas,
        invalid=invalid,
        uid=text(metadata, "uid", "metadata"),
        generation=integer(metadata, "generation", "metadata") or 0,
        is_inclusive=True,
        status=mapping(raw, "status"),
    )
    if name == ROOT_OF_KOORDINATOR:
        return replace(queue, name=name, parent="", quotas={}, invalid=None)
    if fields or name in NO_QUEUES:
        queue = replace(queue, name=name, parent=fields.get("parent") or ROOT_OF_KOORDINATOR)
    if fields.get("is-parent") == "true":
        return queue
    names += [namespace] if namespace == queue.name else []
    selects = (Requirement(NAMESPACE_NAME, "In", tuple(names)),) if names else ()
    return replace(queue, namespaces=LabelSelector(selects))


def fields_of_koordinator(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return Koordinator's labels and annotations of an ElasticQuota, without their prefix."""
    annotations = strings(metadata, "annotations", "metadata")
    written = {**annotations, **strings(metadata, "labels", "metadata")}
    ours = (key for key in written if key.startswith(KOORDINATOR))
    return {key.removeprefix(KOORDINATOR): written[key] for key in ours}


def _namespaces(fields: Mapping[str, str]) -> list[str]:
    try:
        names = json.loads(fields.get("namespaces") or "[]")
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        path = f"metadata.annotations[{KOORDINATOR}namespaces]"
        raise ManifestError(path, "must be a list of names in JSON")
    return names


def queues_of(elastic_quotas: Mapping[str, Queue], others: Collection[str]) -> dict[str, Queue]:
    """Return, by name, the Queues of ElasticQuotas, and the Queues at the roots of their trees.

    The keys of `elastic_quotas` are namespaces and names. Queues with names in `others` are left
    out.
    """
    last_first = (elastic_quotas[key] for key in sorted(elastic_quotas, reverse=True))
    out = {ROOT, *NO_QUEUES, *others}
    # If several ElasticQuotas have one Queue name, the first is used.
    found = {queue.name: queue for queue in last_first if queue.name not in out}
    parents = {queue.parent for queue in found.values()}
    for root in (ROOT, ROOT_OF_KOORDINATOR):
        if root in parents and root not in others:
            found.setdefault(root, Queue(root, is_inclusive=True))
    return found


def with_own_quotas(
    queues: Mapping[str, Queue], allocatable: Callable[[str], int]
) -> tuple[dict[str, Queue], Mapping[str, int]]:
    """Return the Queues by name, parents first, with their own quotas (see `own_quotas`).

    The second result has, by resource, the sum of the quotas below Koordinator's root.
    `allocatable` returns the amount of a resource on all nodes.
    """
    quotas, named = {name: queue.quotas for name, queue in queues.items()}, dict[str, None]()
    if ROOT_OF_KOORDINATOR in queues:
        named = dict.fromkeys(resource for each in quotas.values() for resource in each)
        quotas[ROOT_OF_KOORDINATOR] = {each: Quota(allocatable(each)) for each in named}
    parents = {name: queue.parent for name, queue in queues.items()}
    own = {name: (quotas, sums) for name, quotas, sums in own_quotas(quotas, parents)}
    _, below = own.get(ROOT_OF_KOORDINATOR, ({}, {}))
    found = {
        name: replace(queues[name], quotas=own[name][0], is_inclusive=False)
        for name in reversed(own)
    }
    return found, {resource: below.get(resource, 0) for resource in named}
