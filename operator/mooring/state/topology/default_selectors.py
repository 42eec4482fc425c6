"""The selectors of a pod's Services and controller (plugins/helper/spread.go)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from mooring.model.bounded_cache import BoundedCache, bytes_of
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector, Requirement
from mooring.model.workloads import Service
from mooring.state.objects import Objects
from mooring.state.topology.pod_selection import Pair, PodSelector, Selection, selection

_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of cached selections: about 50,000 pods with different labels. The least recently
used are dropped."""
_PER_LABEL: Final = 400
_OWNERS: Final[Mapping[str, tuple[str, Kind]]] = {
    "ReplicaSet": ("apps/v1", Kind.REPLICA_SET),
    "ReplicationController": ("v1", Kind.REPLICATION_CONTROLLER),
    "StatefulSet": ("apps/v1", Kind.STATEFUL_SET),
}
"""Maps the kind of a pod's owner to the apiVersion that the owner must have, and to its `Kind`."""


_Key = tuple[str, frozenset[Pair]]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The cached selections for a pod, and the objects that they were made from."""

    version: int
    """The value of `Objects.services_version` when the selections were made."""
    owner: Any | None
    services: tuple[Service, ...]
    behind_services: Selection | None
    pods: Selection | None


class DefaultSelectors:
    """Finds the pods that a topology spread constraint without a selector counts."""

    def __init__(self, objects: Objects, most_bytes: int = _MOST_BYTES) -> None:
        self._objects = objects
        self._known: BoundedCache[_Key, _Known] = BoundedCache(most_bytes, _memory)

    def of(self, pod: Pod) -> Selection | None:
        """Return the pods that match all selectors of the pod's Services and owner.

        Terminating pods are left out. Return None if there are no selectors, or only empty ones
        (DefaultSelector).
        """
        return self._found(pod).pods

    def services(self, pod: Pod) -> tuple[Service, ...]:
        """Return the Services that select the pod, sorted by name (GetPodServices)."""
        return self._found(pod).services

    def behind_services(self, pod: Pod) -> Selection | None:
        """Return the pods that match all Services of `pod`; None if `pod` has no Service."""
        return self._found(pod).behind_services

    def _found(self, pod: Pod) -> _Known:
        version, owner = self._objects.services_version(pod.namespace), self._owner(pod)
        key = (pod.namespace, frozenset(pod.labels.items()))
        known = self._known.get(key)
        if known is None or known.version != version or known.owner is not owner:
            services = self._objects.services(pod.namespace)
            selecting = (
                each
                for each in services
                if each.selector is not None and each.selector.matches(pod.labels)
            )
            own = tuple(sorted(selecting, key=attrgetter("name")))
            behind = _selected_by_all(pod.namespace, own)
            pods = behind if owner is None else _selected_by_all(pod.namespace, (*own, owner))
            known = _Known(version, owner, own, behind, pods)
            self._known.put(key, known)
        return known

    def _owner(self, pod: Pod) -> Any | None:
        owner = pod.owner
        known = _OWNERS.get(owner.kind) if owner is not None else None
        if owner is None or known is None or owner.api_version not in ("", known[0]):
            return None
        return self._objects.of(known[1]).get(f"{pod.namespace}/{owner.name}")


def _memory(key: _Key, known: _Known) -> int:
    found = bytes_of(known.services, known.owner, known.behind_services, known.pods)
    return _PER_LABEL * (len(key[1]) + 1) + found


def _selected_by_all(namespace: str, objects: Iterable[Any]) -> Selection | None:
    selectors = (one.selector for one in objects if one.selector is not None)
    wanted: dict[Requirement, None] = {r: None for s in selectors for r in s.requirements}
    if not wanted:
        return None
    part = PodSelector(LabelSelector(tuple(wanted)), frozenset((namespace,)))
    return selection((part,), terminating=False)
