"""Deletes namespaces of tests, with and without kube-controller-manager, and empties servers.

An emptied server is as good as a new one, in a tenth of the time.
"""

import secrets
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from controlplane.access import Access
from controlplane.client import ApiError, Client

Raw = dict[str, Any]

NO_GRACE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

DELETED_AT_ONCE = 1000

READY_SECONDS: Final = 30.0
LOOK_AGAIN: Final = 0.05

DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The encoding in which the server lists all its resources in two answers."""

POLICY: Final = "/apis/scheduling.mooring.dev/"
"""The path of the objects that are restored if a test has changed them."""


def create_namespace(access: Access, prefix: str = "test") -> str:
    name = f"{prefix}-{secrets.token_hex(4)}"
    with access.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def delete_namespace(access: Access, name: str) -> None:
    """Delete the namespace and its objects, even those with finalizers, without a controller.

    kube-controller-manager needs five seconds for the same.
    """
    with access.client() as client:
        for collection in _namespaced_collections(client):
            _empty(client, collection.format(namespace=name))
        path = f"/api/v1/namespaces/{name}"
        client.delete(path)
        # Only the finalizer "kubernetes" holds the namespace now, and its work has been done here.
        client.put(f"{path}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": []}})


class Baseline:
    """The objects of a cluster without controllers at one time; `restore` restores them."""

    def __init__(self, access: Access) -> None:
        """Read the objects of the cluster."""
        self._access = access
        with access.client() as client:
            self._before = dict(_objects(client))
            namespaces = client.get("/api/v1/namespaces")["items"]
            self._namespaces = {item["metadata"]["name"] for item in namespaces}

    def restore(self) -> None:
        """Delete all objects created since, and restore changed objects of the policy."""
        with self._access.client() as client:
            for item in client.get("/api/v1/namespaces")["items"]:
                if item["metadata"]["name"] not in self._namespaces:
                    delete_namespace(self._access, item["metadata"]["name"])
            now = dict(_objects(client))
            kept = {path for path in now if self._is_kept(path, now[path])}
            held = {_collection(path) for path in kept}
            for collection in {_collection(path) for path in now.keys() - kept} - held:
                _empty(client, collection)
            for path in now.keys() - kept:
                if _collection(path) in held:
                    _delete(client, path)
            for path in self._before.keys() - kept:
                if path.startswith(POLICY):
                    client.post(_collection(path), self._before[path])

    def _is_kept(self, path: str, now: Raw) -> bool:
        before = self._before.get(path)
        return before is not None and (now == before or not path.startswith(POLICY))


def _objects(client: Client) -> Iterator[tuple[str, Raw]]:
    """Yield path and content of each object that can be deleted, without the server's own."""
    for prefix, resource in _resources(client):
        version = prefix.removeprefix("/apis/").removeprefix("/api/")
        plural, kind = resource["resource"], resource["responseKind"]["kind"]
        for item in _list(client, f"{prefix}/{plural}"):
            metadata = item["metadata"]
            is_namespaced = resource["scope"] == "Namespaced"
            namespace = f"/namespaces/{metadata['namespace']}" if is_namespaced else ""
            kept = {k: metadata[k] for k in ("name", "labels", "annotations") if k in metadata}
            path = f"{prefix}{namespace}/{plural}/{metadata['name']}"
            typed = {"apiVersion": version, "kind": kind, **item, "metadata": kept}
            yield path, typed


def _list(client: Client, collection: str) -> list[Raw]:
    """Return the items; repeat while the server answers 429 to set up storage for a new kind."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            items: list[Raw] = client.get(collection)["items"]
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_AGAIN)
        else:
            return items


def _collection(path: str) -> str:
    return path.rpartition("/")[0]


def _namespaced_collections(client: Client) -> Iterator[str]:
    for prefix, resource in _resources(client):
        if resource["scope"] == "Namespaced":
            yield f"{prefix}/namespaces/{{namespace}}/{resource['resource']}"


def _resources(client: Client) -> Iterator[tuple[str, Raw]]:
    """Yield path prefix and description of each resource that can be listed and deleted.

    Kinds in alpha versions are included.
    """
    seen: set[tuple[str, str]] = set()
    for root in ("/api", "/apis"):
        for group in client.get(root, accept=DISCOVERY)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                prefix = "/".join(filter(None, (root, name, version["version"])))
                for resource in version["resources"]:
                    key = name, resource["resource"]
                    if {"list", "deletecollection"} <= set(resource["verbs"]) and key not in seen:
                        seen.add(key)
                        yield prefix, resource


def _empty(client: Client, collection: str) -> None:
    first = client.get(f"{collection}?limit=1")
    if not first["items"]:
        return
    held = 1 + first["metadata"].get("remainingItemCount", 0)
    # One request that deletes thousands of pods may take longer than a request has.
    for _ in range(0, held, DELETED_AT_ONCE):
        client.request("DELETE", f"{collection}?limit={DELETED_AT_ONCE}", NO_GRACE)
        # The next request would only delete these again.
        for item in client.get(f"{collection}?limit={DELETED_AT_ONCE}")["items"]:
            if "deletionTimestamp" in item["metadata"]:
                _without_finalizers(client, f"{collection}/{item['metadata']['name']}")


def _delete(client: Client, path: str) -> None:
    try:
        client.request("DELETE", path, NO_GRACE)
    except ApiError as error:
        if error.status != 404:
            raise
    else:
        _without_finalizers(client, path)


def _without_finalizers(client: Client, path: str) -> None:
    """Remove the finalizers of the object, so that its deletion ends."""
    try:
        client.patch(path, {"metadata": {"finalizers": None}})
    except ApiError as error:
        if error.status != 404:  # gone in the meantime: what was wanted
            raise
