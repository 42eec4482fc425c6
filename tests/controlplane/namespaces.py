"""Namespaces for tests, on servers with and without kube-controller-manager."""

import secrets
from collections.abc import Iterator

from controlplane.access import Access
from controlplane.client import ApiError, Client

NO_GRACE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

DELETED_AT_ONCE = 1000


def create_namespace(access: Access, prefix: str = "test") -> str:
    """The name of a new namespace."""
    name = f"{prefix}-{secrets.token_hex(4)}"
    with access.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def delete_namespace(access: Access, name: str) -> None:
    """The namespace and what it held are gone, finalizers or not, without any controller's help.

    kube-controller-manager would do it too, but takes five seconds.
    """
    with access.client() as client:
        for collection in _namespaced_collections(client):
            _empty(client, collection.format(namespace=name))
        path = f"/api/v1/namespaces/{name}"
        client.delete(path)
        # Only the finalizer "kubernetes" holds the namespace now, and its work has been done here.
        client.put(f"{path}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": []}})


def _namespaced_collections(client: Client) -> Iterator[str]:
    """The path of each collection; a kind that only an alpha version serves has one too."""
    groups = client.get("/apis")["groups"]
    versions = [
        (group["name"], f"/apis/{version['groupVersion']}")
        for group in groups
        for version in group["versions"]
    ]
    seen: set[tuple[str, str]] = set()
    for group, prefix in (("", "/api/v1"), *versions):
        for resource in client.get(prefix)["resources"]:
            key = group, resource["name"]
            can = resource["namespaced"] and {"list", "deletecollection"} <= set(resource["verbs"])
            if can and key not in seen:
                seen.add(key)
                yield f"{prefix}/namespaces/{{namespace}}/{resource['name']}"


def _empty(client: Client, collection: str) -> None:
    first = client.get(f"{collection}?limit=1")
    if not first["items"]:
        return
    held = 1 + first["metadata"].get("remainingItemCount", 0)
    # One request that deletes thousands of pods may take longer than a request has.
    for _ in range(0, held, DELETED_AT_ONCE):
        client.request("DELETE", f"{collection}?limit={DELETED_AT_ONCE}", NO_GRACE)
    for item in client.get(collection)["items"]:
        with_name = f"{collection}/{item['metadata']['name']}"
        try:
            client.patch(with_name, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != 404:  # gone in the meantime: what was wanted
                raise
