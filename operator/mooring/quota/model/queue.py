"""A Queue of `scheduling.mooring.dev`: quotas for the pods of a team, in a tree of Queues.

The field names are those of Kueue's ClusterQueue and Cohort (apis/kueue/v1beta1). Only a Queue
without child Queues may have pods.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from mooring.model.fields import (
    at_most,
    integer,
    mapping,
    mappings,
    name_of,
    naming_the_object,
    optional_mapping,
    text,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import parse_count, parse_milli
from mooring.model.resources import CPU, parse_amounts
from mooring.model.selectors import LabelSelector, parse_label_selector
from mooring.pausing import pause

QUEUE_LABEL: Final = "scheduling.mooring.dev/queue"
"""The label by which a pod names its Queue."""
CAPACITY_SCHEDULING: Final = "CapacityScheduling"
"""The name of the plugin that keeps pods within the quota of their Queue."""
PODS: Final = "pods"
"""The name of the resource for the number of pods: each pod uses 1."""
DEEPEST: Final = 16
"""The most Queues from a Queue to the root, both included; a deeper Queue is invalid."""
_MOST_RESOURCES: Final = 100


class Preempts(StrEnum):
    """The priorities of the pods that a pod of the Queue may preempt."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"
    """Pods of any priority. In the pod's own Queue: pods of lower priority, and newer pods of equal
    priority."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of one resource in millicores, bytes or counts; None means no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA: Final = Quota()


@dataclass(frozen=True, slots=True)
class Queue:
    """A Queue with the fields of its spec; `parent` is "" for the root of a tree."""

    name: str
    parent: str = ""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    weight: float = 1.0
    reclaims: Preempts = Preempts.ANY
    """Which pods of other Queues the Queue's pods may preempt to get back lent quota."""
    within: Preempts = Preempts.LOWER_PRIORITY
    namespaces: LabelSelector | None = None
    """The namespaces whose pods may be in the Queue; None: it has no pods."""
    invalid: str | None = None
    """The mistake in the spec. With a mistake, only the field `namespaces` is valid."""
    is_inclusive: bool = False
    """Whether the quotas include the quotas of the Queues below, as in an ElasticQuota."""
    uid: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)
    status: Mapping[str, Any] = field(default_factory=dict, compare=False)


@naming_the_object("Queue")
def parse_queue(raw: Mapping[str, Any]) -> Queue:
    """Parse a Queue; set `invalid` for a malformed spec, but raise for a malformed name."""
    metadata, name = mapping(raw, "metadata"), name_of(raw)
    try:
        queue = _parsed(mapping(raw, "spec"), name)
    except ManifestError as error:
        queue = Queue(name, invalid=str(error), namespaces=_selector_of(raw))
    return replace(
        queue,
        uid=text(metadata, "uid", "metadata"),
        generation=integer(metadata, "generation", "metadata") or 0,
        status=mapping(raw, "status"),
    )


def _selector_of(raw: Mapping[str, Any]) -> LabelSelector | None:
    try:
        spec = mapping(raw, "spec")
        selector = optional_mapping(spec, "namespaceSelector", "spec")
        return parse_label_selector(selector, "spec.namespaceSelector")
    except ManifestError:
        return None


def _parsed(spec: Mapping[str, Any], name: str) -> Queue:
    parent = text(spec, "parent", "spec")
    preemption = mapping(spec, "preemption", "spec")
    selector = optional_mapping(spec, "namespaceSelector", "spec")
    return Queue(
        name,
        parent=parent,
        quotas=_quotas(spec, is_root=not parent),
        weight=_weight(mapping(spec, "fairSharing", "spec")),
        reclaims=_preempts(preemption, "reclaimWithinCohort", Preempts.ANY),
        within=_preempts(preemption, "withinQueue", Preempts.LOWER_PRIORITY),
        namespaces=parse_label_selector(selector, "spec.namespaceSelector"),
    )


def _quotas(spec: Mapping[str, Any], *, is_root: bool) -> Mapping[str, Quota]:
    written = mappings(spec, "resources", "spec")
    at_most(len(written), _MOST_RESOURCES, "spec.resources", "resources")
    quotas = dict[str, Quota]()
    for index, one in enumerate(written):
        where = f"spec.resources[{index}]"
        resource = text(one, "name", where)
        if resource != PODS:
            parse_amounts({resource: 0}, f"{where}.name")  # whose names are those of requests
        if resource in quotas:
            raise ManifestError(f"{where}.name", f"{resource} has a quota already")
        nominal = _amount(one, "nominalQuota", resource, where)
        if nominal is None:
            raise ManifestError(f"{where}.nominalQuota", "is missing; write a quantity")
        borrowing = _amount(one, "borrowingLimit", resource, where)
        lending = _amount(one, "lendingLimit", resource, where)
        for limit, value in (("borrowingLimit", borrowing), ("lendingLimit", lending)):
            if is_root and value is not None:
                raise ManifestError(f"{where}.{limit}", "needs a parent to share with")
        quotas[resource] = Quota(nominal, borrowing, lending)
    return quotas


def _amount(raw: Mapping[str, Any], field_: str, resource: str, where: str) -> int | None:
    value = raw.get(field_)
    return None if value is None else amount_of(value, resource, f"{where}.{field_}")


def amounts_of(raw: Mapping[str, Any], field_: str, where: str) -> dict[str, int]:
    """Return the amounts in a field, by resource, in millicores, bytes and counts."""
    path, written = f"{where}.{field_}", mapping(raw, field_, where)
    at_most(len(written), _MOST_RESOURCES, path, "resources")
    return {
        resource: amount_of(value, resource, f"{path}.{resource}")
        for resource, value in written.items()
    }


def amount_of(value: object, resource: str, path: str) -> int:
    """Return an amount in millicores, bytes or counts; raise ManifestError with the path."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ManifestError(path, "must be a quantity")
    amount = parse_milli(value, path) if resource == CPU else parse_count(value, path)
    if amount < 0:
        raise ManifestError(path, f"{value} is negative; write zero or more")
    return amount


def _weight(raw: Mapping[str, Any]) -> float:
    path = "spec.fairSharing.weight"
    if (value := raw.get("weight")) is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ManifestError(path, "must be a quantity")
    weight = parse_milli(value, path)
    if weight < 0:
        raise ManifestError(path, f"{value} is negative; write zero or more")
    return weight / 1000


def _preempts(raw: Mapping[str, Any], field_: str, default: Preempts) -> Preempts:
    written = text(raw, field_, "spec.preemption")
    try:
        return Preempts(written) if written else default
    except ValueError:
        known = ", ".join(Preempts)
        raise ManifestError(f"spec.preemption.{field_}", f"must be one of {known}") from None


def inclusive_quotas(
    quota: Mapping[str, int], limit: Mapping[str, int], kept: Mapping[str, int]
) -> dict[str, Quota]:
    """Return the quotas by resource; `kept` has the amounts that are not lent.

    A limit below the quota becomes a negative borrowing limit.
    """
    return {
        resource: Quota(
            nominal := quota.get(resource, 0),
            limit[resource] - nominal if resource in limit else None,
            nominal - kept[resource] if kept.get(resource) else None,
        )
        for resource in dict.fromkeys((*quota, *limit, *kept))
    }


def own_quotas(
    quotas: Mapping[str, Mapping[str, Quota]], parents: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Quota], Mapping[str, int]]]:
    """Yield each queue's name, its own quotas, and the sum of its children's quotas by resource.

    A queue's own quota is its given quota without the quotas of its children. Children come before
    their parent.
    """
    below = defaultdict[str, Counter[str]](Counter)
    for name in sorted(quotas, key=lambda name: _depth(name, parents), reverse=True):
        pause()
        own, sums = dict[str, Quota](), below[name]
        for resource in dict.fromkeys((*quotas[name], *sums)):
            given, least = quotas[name].get(resource, NO_QUOTA), sums.get(resource, 0)
            borrowing, lending = given.borrowing_limit, given.lending_limit
            # The quota is lowered to the limit, and then raised to the sum of the children.
            total = max(given.nominal + min(borrowing or 0, 0), least)
            more = total - given.nominal
            quota = Quota(
                total - least,
                None if borrowing is None else max(0, borrowing - more),
                None if lending is None else max(0, lending + more),
            )
            if quota != NO_QUOTA or resource not in sums:
                own[resource] = quota
            below[parents.get(name, "")][resource] += total
        yield name, own, sums


def _depth(name: str, parents: Mapping[str, str]) -> int:
    depth = 0
    while depth < DEEPEST and (name := parents.get(name, "")):
        depth += 1
    return depth
