"""Reads all objects that decisions depend on from a live cluster, and saves them in a file.

The user needs only the right to list the kinds in `KINDS`. The file has one object per line. Fields
that no decision reads are left out, because they may be secret or large (`env`, `managedFields` and
others).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from mooring.kube.api_resources import (
    LIMIT_RANGE,
    MOORING_GROUP,
    PRIORITY_CLASS,
    RESOURCE_CLAIM_TEMPLATE,
    RUNTIME_CLASS,
    SCHEDULING_PROFILE,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, ForbiddenError, KubeError, NotFoundError, explain
from mooring.mirroring.mirror import MIRRORED, MIRRORED_IF_SERVED
from mooring.model.kubernetes_rules import NEWEST
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.server import server_object

KINDS: Final[tuple[Resource, ...]] = (
    *MIRRORED,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    LIMIT_RANGE,
    RESOURCE_CLAIM_TEMPLATE,
    SCHEDULING_PROFILE,
    *MIRRORED_IF_SERVED,
)
"""The kinds to read; the first API version that the cluster serves is read."""

_KEPT_OF_CONTAINERS: Final = ("name", "image", "resources", "ports", "restartPolicy")
_KEPT_OF_STATUSES: Final = ("name", "resources", "allocatedResources")
_CONTAINERS: Final = ("containers", "initContainers")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


async def read_cluster(
    connection: Connection, progress: Callable[[str], None]
) -> tuple[list[Manifest], list[str]]:
    """Return the objects that decisions read, and notes about kinds that were not found.

    `progress` gets lines for the user. Raises InputError if the cluster cannot be reached or the
    user may not list a kind.
    """
    manifests: list[Manifest] = []
    notes: list[str] = []
    forbidden: list[str] = []
    source = f"cluster {connection.url}"
    async with ApiClient(connection) as client:
        manifests += await _server(client, source, notes)
        served: set[tuple[str, str]] = set()
        for resource in KINDS:
            identity = (resource.group, resource.kind)
            if identity in served:
                continue
            try:
                manifests += await _listed(client, resource, source, progress)
                served.add(identity)
            except NotFoundError:
                notes += _not_found(resource)
            except ForbiddenError as error:
                if resource in MIRRORED_IF_SERVED:  # an API server says so also where it has none
                    notes.append(f"you may not list {resource}: they are taken for absent")
                    served.add(identity)
                    continue
                forbidden.append(str(resource))
                refusal = error
            except KubeError as error:
                raise InputError(explain(error)) from None
    if forbidden:
        raise InputError(
            f"the API server does not let you list {', '.join(forbidden)} "
            f"({' '.join(refusal.message.split())}); docs/simulate.md has a ClusterRole to copy"
        )
    return manifests, notes


async def _server(client: ApiClient, source: str, notes: list[str]) -> list[Manifest]:
    try:
        return [Manifest(source, server_object(await client.server_version()))]
    except ApiError:
        notes.append(
            "the API server does not tell you its version: the rules of Kubernetes "
            f"{NEWEST.version} apply, and --kubernetes names others"
        )
        return []


async def _listed(
    client: ApiClient, resource: Resource, source: str, progress: Callable[[str], None]
) -> list[Manifest]:
    read = 0

    def shorten(items: list[dict[str, Any]]) -> None:
        nonlocal read
        read += len(items)
        progress(f"reading {resource.plural}: {read:,}")
        for item in items:
            _leave_out(resource, item)

    listing = await client.list_all(resource, on_page=shorten)
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [Manifest(source, identity | item) for item in listing.items]


def _not_found(resource: Resource) -> list[str]:
    if resource in MIRRORED_IF_SERVED:
        return []
    if resource.group == MOORING_GROUP:
        return ["Mooring is not installed in the cluster: it has no SchedulingProfiles"]
    return [f"the cluster does not serve {resource} {resource.version}"]


def _leave_out(resource: Resource, raw: dict[str, Any]) -> None:
    """Remove the fields of a stored object that no decision reads."""
    metadata = raw["metadata"]
    metadata.pop("managedFields", None)
    if metadata.get("annotations"):
        metadata["annotations"].pop(_LAST_APPLIED, None)
    if resource.kind == "Pod":
        _shorten_pod(raw)
    elif resource.kind in ("ReplicaSet", "StatefulSet", "ReplicationController"):
        # The pods exist; of their controllers, decisions read the selector.
        raw["spec"].pop("template", None)
        raw.pop("status", None)


def _shorten_pod(raw: dict[str, Any]) -> None:
    spec, status = raw["spec"], raw.get("status") or {}
    spec.pop("ephemeralContainers", None)
    for group in _CONTAINERS:
        if group in spec:
            spec[group] = [_picked(each, _KEPT_OF_CONTAINERS) for each in spec[group]]
    for group in ("containerStatuses", "initContainerStatuses"):
        if group in status:
            status[group] = [_picked(each, _KEPT_OF_STATUSES) for each in status[group]]
    status.pop("ephemeralContainerStatuses", None)


def _picked(raw: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    return {field: raw[field] for field in fields if field in raw}


def save(manifests: Iterable[Manifest], path: str) -> Iterator[Manifest]:
    """Write each manifest to the file as a line, and yield it; raise InputError if that fails."""
    try:
        with Path(path).open("wb") as file:
            for manifest in manifests:
                file.write(orjson.dumps(manifest.raw) + b"\n")
                yield manifest
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
