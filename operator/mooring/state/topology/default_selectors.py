"""The selectors of a pod's Services and controller (plugins/helper/spread.go)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector, Requirement
from mooring.model.workloads import Service
from mooring.state.objects import Objects
from mooring.state.topology.selection import Pair, PodSelector, Selection, selection

__all__ = ["DefaultSelectors"]

_MOST_KEPT: Final = 262_144
"""Labels of all pods whose selectors are kept; each takes about 200 bytes."""
_OWNERS: Final[Mapping[str, Kind]] = {
    "ReplicaSet": Kind.REPLICA_SET,
    "ReplicationController": Kind.REPLICATION_CONTROLLER,
    "StatefulSet": Kind.STATEFUL_SET,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The selections for a pod, and the objects that they were made from."""

    in_namespace: tuple[Service, ...]
    owner: Any | None
    services: tuple[Service, ...]
    behind_services: Selection | None
    pods: Selection | None


class DefaultSelectors:
    """Finds the pods that topology constraints without a selector count for a pod."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[tuple[str, frozenset[Pair]], _Known] = {}
        self._kept = 0

    def of(self, pod: Pod) -> Selection | None:
        """The pods that all selectors of the pod's Services and controller select.

        Terminating pods are left out. None if there is no selector (DefaultSelector).
        """
        return self._found(pod).pods

    def services(self, pod: Pod) -> tuple[Service, ...]:
        """The Services that select the pod, by name (GetPodServices)."""
        return self._found(pod).services

    def behind_services(self, pod: Pod) -> Selection | None:
        """The pods that all of these Services select; None without a Service."""
        return self._found(pod).behind_services

    def _found(self, pod: Pod) -> _Known:
        services, owner = self._objects.services(pod.namespace), self._owner(pod)
        key = (pod.namespace, frozenset(pod.labels.items()))
        known = self._known.get(key)
        if known is None or known.in_namespace is not services or known.owner is not owner:
            self._kept += len(pod.labels) + 1
            if self._kept > _MOST_KEPT:
                self._known.clear()
                self._kept = len(pod.labels) + 1
            own = tuple(sorted((s for s in services if _selects(s, pod)), key=_name))
            behind = _selected_by_all(pod.namespace, own)
            pods = behind if owner is None else _selected_by_all(pod.namespace, (*own, owner))
            known = self._known[key] = _Known(services, owner, own, behind, pods)
        return known

    def _owner(self, pod: Pod) -> Any | None:
        kind = _OWNERS.get(pod.owner.kind) if pod.owner is not None else None
        if kind is None or pod.owner is None:
            return None
        return self._objects.of(kind).get(f"{pod.namespace}/{pod.owner.name}")


def _selects(service: Service, pod: Pod) -> bool:
    return service.selector is not None and service.selector.matches(pod.labels)


def _name(service: Service) -> str:
    return service.name


def _selected_by_all(namespace: str, objects: Iterable[Any]) -> Selection | None:
    selectors = (one.selector for one in objects if one.selector is not None)
    wanted: dict[Requirement, None] = {r: None for s in selectors for r in s.requirements}
    if not wanted:
        return None
    part = PodSelector(LabelSelector(tuple(wanted)), frozenset((namespace,)))
    return selection((part,), terminating=False)
