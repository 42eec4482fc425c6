"""Every mirrored object that is neither node nor pod, by kind and key."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mooring.model.events import Kind
from mooring.model.workloads import Namespace, Service


class Objects:
    """All mirrored objects by kind, then by name or namespace/name."""

    def __init__(self) -> None:
        self._by_kind: dict[Kind, dict[str, Any]] = {kind: {} for kind in Kind}
        self.changes = Counter[Kind]()
        """For each kind, the number of calls of `put` and `pop`."""
        self._services: defaultdict[str, dict[str, Service]] = defaultdict(dict)
        self._service_tuples: dict[str, tuple[Service, ...]] = {}
        self._service_changes = 0
        self._service_versions: dict[str, int] = {}

    def of(self, kind: Kind) -> Mapping[str, Any]:
        """Return the objects of a kind, read-only."""
        return MappingProxyType(self._by_kind[kind])

    def put(self, kind: Kind, key: str, value: Any) -> Any | None:
        """Store the object; return its former version, None for a new object."""
        objects = self._by_kind[kind]
        before = objects.get(key)
        objects[key] = value
        self.changes[kind] += 1
        if kind is Kind.SERVICE and value != before:
            self._services[value.namespace][value.name] = value
            self._services_changed(value.namespace)
        return before

    def pop(self, kind: Kind, key: str) -> Any | None:
        """Remove the object and return it; None if there was none."""
        before = self._by_kind[kind].pop(key, None)
        self.changes[kind] += 1
        if kind is Kind.SERVICE and before is not None:
            del self._services[before.namespace][before.name]
            self._services_changed(before.namespace)
            if not self._services[before.namespace]:
                del self._services[before.namespace], self._service_versions[before.namespace]
        return before

    def _services_changed(self, namespace: str) -> None:
        self._service_tuples.pop(namespace, None)
        self._service_changes += 1
        self._service_versions[namespace] = self._service_changes

    def services_version(self, namespace: str) -> int:
        """Return a number that changes when a Service of the namespace does; 0 without Services."""
        return self._service_versions.get(namespace, 0)

    def services(self, namespace: str) -> tuple[Service, ...]:
        """Return the Services of a namespace; the same tuple until one of them changes."""
        if namespace not in self._services:
            return ()
        services = self._service_tuples.get(namespace)
        if services is None:
            services = tuple(self._services[namespace].values())
            self._service_tuples[namespace] = services
        return services

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of the Namespace object of this name; {} if it is unknown."""
        labels = self.known_namespace_labels(name)
        return {} if labels is None else labels

    def known_namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of the Namespace object of this name; None if it is unknown."""
        namespace: Namespace | None = self._by_kind[Kind.NAMESPACE].get(name)
        return None if namespace is None else namespace.labels
