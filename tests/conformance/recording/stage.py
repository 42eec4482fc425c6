"""Stores, lists and removes the objects of a scene on the API server."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from itertools import product
from queue import SimpleQueue
from typing import Final, Self, TypeVar

from conformance.scenes.cluster import Raw
from conformance.scenes.vocabulary import TEAMS, surroundings
from controlplane import Access, ApiError, Client
from mooring.kube.api_resources import (
    NAMESPACE,
    NODE,
    POD,
    PRIORITY_CLASS,
    RESOURCE_CLAIM,
    Resource,
)
from mooring.mirroring.mirror import MIRRORED

_CONNECTIONS: Final = 4

_RUNTIME_CLASS: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
_LISTED: Final = (*MIRRORED, PRIORITY_CLASS)
"""Everything a decision may read."""
_BY_KIND: Final = {resource.kind: resource for resource in (*_LISTED, _RUNTIME_CLASS)}
_LASTING: Final = (NAMESPACE, PRIORITY_CLASS)

_AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

T = TypeVar("T")
A = TypeVar("A")


class Stage:
    """Creates the namespaces and classes that all scenes use; use it as a context manager."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._open = ExitStack()
        self._clients = SimpleQueue[Client]()

    def __enter__(self) -> Self:
        for _ in range(_CONNECTIONS):
            self._clients.put(self._open.enter_context(self._access.client()))
        self._pool = self._open.enter_context(ThreadPoolExecutor(_CONNECTIONS))
        self._each(self._create, surroundings())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def store(self, objects: Iterable[Raw]) -> None:
        """Create the objects: pods last, nodes before them, and all other objects first."""
        groups: dict[Resource | None, list[Raw]] = {None: [], NODE: [], POD: []}
        for raw in objects:
            resource = _BY_KIND[raw["kind"]]
            groups[resource if resource in groups else None].append(raw)
        for group in groups.values():
            self._each(self._create, group)

    def create(self, raw: Raw) -> Raw:
        """Create the object; return its stored form."""
        return self._create(raw)

    def read(self, raw: Raw) -> Raw:
        """Return the current form of the object."""
        with self._client() as client:
            found: Raw = client.get(_path(raw))
        return found

    def set_status(self, raw: Raw, status: Raw) -> Raw:
        """Write these fields into the object's status; return its stored form."""
        with self._client() as client:
            changed: Raw = client.patch(f"{_path(raw)}/status", {"status": status})
        return changed

    def claims(self) -> list[Raw]:
        """Return all ResourceClaims as the API server has them."""
        return self._list(RESOURCE_CLAIM)

    def stored(self) -> list[Raw]:
        """Return every object of the scene as the API server has it."""
        found = self._each(self._list, _LISTED)
        return [raw for objects in found for raw in objects]

    def remove(self, objects: Iterable[Raw]) -> None:
        """Remove all objects of the kinds that these objects have."""
        objects = list(objects)
        kept = [raw for raw in objects if raw["metadata"].get("finalizers")]
        if any(raw["kind"] == RESOURCE_CLAIM.kind for raw in objects):
            kept += self._list(RESOURCE_CLAIM)  # kube-scheduler too adds finalizers to them
        self._each(self._let_go, kept)
        resources = {_BY_KIND[raw["kind"]] for raw in objects} | {POD}
        paths = [
            path
            for resource, team in product(resources, TEAMS)
            for path in [resource.path(team if resource.namespaced else None)]
        ]
        self._each(self._delete_all, dict.fromkeys(paths))
        while claims := self.claims():  # kube-scheduler wrote a finalizer just then
            self._each(self._let_go, claims)

    def _each(self, do: Callable[[A], T], items: Iterable[A]) -> list[T]:
        return list(self._pool.map(do, items))

    @contextmanager
    def _client(self) -> Iterator[Client]:
        client = self._clients.get()
        try:
            yield client
        finally:
            self._clients.put(client)

    def _create(self, raw: Raw) -> Raw:
        resource, metadata = _BY_KIND[raw["kind"]], dict(raw["metadata"])
        leaving = metadata.pop("deletionTimestamp", None)
        namespace = metadata.get("namespace")
        body = {**raw, "apiVersion": resource.api_version, "metadata": metadata}
        path = resource.path(namespace, metadata["name"])
        with self._client() as client:
            created: Raw = client.post(resource.path(namespace), body)
            # Of all kinds here, only nodes keep the status they are created with.
            if "status" in raw and resource != NODE:
                client.patch(f"{path}/status", {"status": raw["status"]})
            if leaving:
                client.delete(path)
        return created

    def _list(self, resource: Resource) -> list[Raw]:
        with self._client() as client:
            items = client.get(resource.path())["items"]
        for raw in items:
            raw |= {"apiVersion": resource.api_version, "kind": resource.kind}
            raw["metadata"].pop("managedFields", None)
        return [raw for raw in items if _is_of_scene(resource, raw["metadata"])]

    def _let_go(self, raw: Raw) -> None:
        with self._client() as client:
            try:
                client.patch(_path(raw), {"metadata": {"finalizers": None}})
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise  # else it has gone meanwhile

    def _delete_all(self, path: str) -> None:
        with self._client() as client:
            client.request("DELETE", path, _AT_ONCE)


def _path(raw: Raw) -> str:
    metadata = raw["metadata"]
    return _BY_KIND[raw["kind"]].path(metadata.get("namespace"), metadata["name"])


def _is_of_scene(resource: Resource, metadata: Raw) -> bool:
    if resource.namespaced:
        return metadata["namespace"] in TEAMS
    if resource == NAMESPACE:
        return metadata["name"] in TEAMS
    return not metadata["name"].startswith("system-")
