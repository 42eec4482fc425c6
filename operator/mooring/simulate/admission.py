"""Fill in the fields that the API server's admission plugins set when an object is created.

Only fields that a scheduling decision reads are filled in, and only where they are absent. So an
object that comes from a cluster is not changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.model.errors import ManifestError
from mooring.model.events import Kind
from mooring.model.fields import mapping, name_of, namespace_of, text
from mooring.model.workloads import PriorityClass

__all__ = ["Admission", "as_stored"]

_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def as_stored(kind: Kind, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object as a cluster would store it.

    A Namespace gets the label `kubernetes.io/metadata.name`; a PersistentVolume without a phase
    gets phase Bound if it has a claimRef, else Available.
    """
    if kind is Kind.NAMESPACE:
        metadata = mapping(raw, "metadata")
        labels = {"kubernetes.io/metadata.name": name_of(raw)}
        labels |= mapping(metadata, "labels", "metadata")
        return {**raw, "metadata": {**metadata, "labels": labels}}
    if kind is Kind.PERSISTENT_VOLUME and not mapping(raw, "status").get("phase"):
        taken = mapping(mapping(raw, "spec"), "claimRef", "spec")
        return {**raw, "status": {"phase": "Bound" if taken else "Available"}}
    return raw


class Admission:
    """Sets the priority and the overhead of pods.

    As the admission plugins Priority (plugin/pkg/admission/priority) and RuntimeClass of the API
    server do. `runtime_classes` are raw RuntimeClass objects.
    """

    def __init__(
        self,
        priority_classes: Iterable[PriorityClass],
        runtime_classes: Iterable[Mapping[str, Any]],
    ) -> None:
        self._priorities = {
            name: PriorityClass(name, value, global_default=False, preemption_policy="")
            for name, value in _SYSTEM_CLASSES.items()
        }
        self._priorities |= {found.name: found for found in priority_classes}
        defaults = [found for found in self._priorities.values() if found.global_default]
        self._default = min(defaults, key=lambda found: found.value, default=None)
        self._overheads = {
            name_of(raw): mapping(mapping(raw, "overhead"), "podFixed", "overhead")
            for raw in runtime_classes
        }

    def pod(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The pod as the API server would store it.

        Raises:
            ManifestError: for a priority class that does not exist.
        """
        metadata, spec = dict(mapping(raw, "metadata")), dict(mapping(raw, "spec"))
        key = f"{namespace_of(raw)}/{name_of(raw)}"
        metadata.setdefault("uid", key)
        if spec.get("priority") is None:
            self._set_priority(spec, key)
        overhead = self._overheads.get(text(spec, "runtimeClassName", "spec"))
        if overhead and spec.get("overhead") is None:
            spec["overhead"] = overhead
        return {**raw, "metadata": metadata, "spec": spec}

    def _set_priority(self, spec: dict[str, Any], key: str) -> None:
        name = text(spec, "priorityClassName", "spec")
        found = self._priorities.get(name) if name else self._default
        if found is not None:
            spec["priority"] = found.value
            if spec.get("preemptionPolicy") is None and found.preemption_policy:
                spec["preemptionPolicy"] = found.preemption_policy
        elif name:
            raise ManifestError(
                f"Pod {key} spec.priorityClassName",
                f'there is no PriorityClass "{name}" in the input',
            )
