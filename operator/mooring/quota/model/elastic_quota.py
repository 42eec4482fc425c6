"""Parses ElasticQuotas of scheduler-plugins: each is the Queue of its namespace.

Source: scheduler-plugins `apis/scheduling/v1alpha1/types.go`, `pkg/capacityscheduling`. All these
Queues lend to each other. `mooring convert` makes the same Queues
(`policy/imports/elastic_quotas.py`).
"""

from collections.abc import Mapping
from typing import Any, Final

from mooring.model.fields import integer, mapping, name_of, namespace_of, naming_the_object, text
from mooring.model.manifest_error import ManifestError
from mooring.model.selectors import parse_label_selector
from mooring.model.workloads import NAMESPACE_NAME
from mooring.quota.model.queue import Queue, Quota, amounts_of

ROOT: Final = "elastic-quota.root"
"""The name of the Queue above the Queues of all ElasticQuotas; no namespace can have it."""


@naming_the_object("ElasticQuota")
def parse_elastic_quota(raw: Mapping[str, Any]) -> Queue:
    """Parse an ElasticQuota to the Queue of its namespace; raise only if its name is malformed."""
    metadata, namespace, name = mapping(raw, "metadata"), namespace_of(raw), name_of(raw)
    quotas, invalid = dict[str, Quota](), None
    try:
        spec = mapping(raw, "spec")
        least, most = amounts_of(spec, "min", "spec"), amounts_of(spec, "max", "spec")
        for resource in least | most:
            limit = most.get(resource)
            nominal = min(least.get(resource, 0), limit if limit is not None else least[resource])
            quotas[resource] = Quota(nominal, None if limit is None else limit - nominal)
    except ManifestError as error:
        invalid = f"ElasticQuota {namespace}/{name}: {error}"
    return Queue(
        namespace,
        parent=ROOT,
        quotas=quotas,
        namespaces=parse_label_selector({"matchLabels": {NAMESPACE_NAME: namespace}}, ""),
        invalid=invalid,
        uid=text(metadata, "uid", "metadata"),
        generation=integer(metadata, "generation", "metadata") or 0,
        status=mapping(raw, "status"),
    )


def queues_of(elastic_quotas: Mapping[str, Queue]) -> dict[str, Queue]:
    """Return the Queues by name; in each namespace, the first ElasticQuota by name counts."""
    if not elastic_quotas:
        return {}
    last_first = (elastic_quotas[key] for key in sorted(elastic_quotas, reverse=True))
    return {ROOT: Queue(ROOT), **{queue.name: queue for queue in last_first}}
