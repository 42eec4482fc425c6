"""The result of converting a queue of another scheduler, and functions for the converters."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from mooring.model.fields import mappings
from mooring.model.manifest_error import ManifestError
from mooring.model.resources import amount_text
from mooring.model.workloads import NAMESPACE_NAME
from mooring.policy.profile import API_VERSION
from mooring.quota.model.queue import Quota, parse_queue

_NO_SUCH_FIELD: Final = "Queues have no such field"


@dataclass(slots=True)
class WrittenQueue:
    """A Queue to be written as a manifest; `origin` is the object that was converted.

    `weight` and `selector` are values of the manifest; None leaves the field out.
    """

    name: str
    origin: str
    parent: str = ""
    quotas: dict[str, Quota] = field(default_factory=dict)
    weight: object = None
    preemption: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, Any] | None = None

    def manifest(self) -> dict[str, Any]:
        """Return the Queue's manifest; raise ManifestError, with the origin, if it is invalid."""
        spec = {
            "parent": self.parent or None,
            "namespaceSelector": None if self.selector is None else {**self.selector},
            "fairSharing": None if self.weight is None else {"weight": self.weight},
            "preemption": self.preemption or None,
            "resources": [_resource(*each) for each in self.quotas.items()] or None,
        }
        raw = {
            "apiVersion": API_VERSION,
            "kind": "Queue",
            "metadata": {"name": self.name},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
        if (problem := parse_queue(raw).invalid) is not None:
            raise ManifestError(f"the Queue of {self.origin}", problem)
        return raw


def _resource(name: str, quota: Quota) -> dict[str, str]:
    amounts = {
        "nominalQuota": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
    }
    written = {key: amount_text(name, value) for key, value in amounts.items() if value is not None}
    return {"name": name, **written}


def in_namespaces(
    names: Sequence[str], selector: Mapping[str, Any] = MappingProxyType({})
) -> Mapping[str, Any]:
    """Return the selector restricted to these namespaces; without names, return it unchanged."""
    if not names:
        return selector
    others = mappings(selector, "matchExpressions", "spec.namespaceSelector")
    named = {"key": NAMESPACE_NAME, "operator": "In", "values": [*names]}
    return {**selector, "matchExpressions": [*others, named]}


def free_name(name: str, taken: Collection[str], suffix: str) -> str:
    """Return the name; add the suffix until the name is not taken."""
    while name in taken:
        name += suffix
    return name


def left_out(
    origin: str,
    spec: Mapping[str, Any],
    read: Collection[str],
    unread: Mapping[str, tuple[object, str]],
) -> Iterator[str]:
    """Yield a note for each field of the spec that is not in `read`.

    `unread` has, by field, the default and the reason for the note. A field that is empty or has
    its default gets no note.
    """
    for name, value in spec.items():
        usual, why = unread.get(name, (None, _NO_SUCH_FIELD))
        if name not in read and value not in (None, "", [], {}) and value != usual:
            yield f"{origin}: spec.{name} is left out: {why}"
