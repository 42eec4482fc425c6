"""The scheduler's writes to the cluster: bind, set a status, delete, evict.

Every write names the object's uid, or for a custom resource its version, so that it never changes
another object of the same name. For errors see `mooring.kube.errors`; the caller decides whether to
repeat a write.
"""

import asyncio
import random as random_module
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from mooring.gpu_cards.model.cards import same_cards
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE, SIGS_POD_GROUP, ApiCall, Resource
from mooring.kube.backoff import Backoff
from mooring.kube.client import ApiClient, PatchType
from mooring.kube.errors import (
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnansweredError,
    UnreachableError,
)

_MOST_TRIES: Final = 5
"""The most tries to write a profile's status if other writers change the profile each time; then
ConflictError is raised."""


@dataclass(eq=False, repr=False)
class PodWriter:
    """Writes to pods over `client`; its methods may run at the same time."""

    client: ApiClient
    random: random_module.Random | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._random = self.random or random_module.Random()  # noqa: S311 - spreads load, hides nothing

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        *,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Bind the pod to `node` and add the annotations to it, in one write.

        Does not fail if an earlier try has bound the pod to `node` with the GPU cards of
        `annotations`.

        Raises:
            ConflictError: The pod is bound to another node, or its annotations name other cards.
            NotFoundError: The pod is gone; another pod may have its name.
            NotWantedError: The Binding was not sent or not repeated, because `wanted` returned
                False.
        """
        # The API server copies the annotations of a Binding to the pod when it sets the node
        # (registry/core/pod/storage/storage.go, setPodNodeAndMetadata).
        metadata: dict[str, Any] = {"namespace": namespace, "name": name, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": metadata,
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
        )
        path = POD.path(namespace, name, "binding")
        # After an error, this Binding or an earlier try may have succeeded.
        try:
            await self.client.request("POST", path, body=body, wanted=wanted)
        except (ConflictError, UnansweredError, ServerError):
            pod = await self._read(namespace, name, uid)
            if pod is None or pod["spec"].get("nodeName") != node:
                raise
            if not same_cards(annotations or {}, pod["metadata"].get("annotations") or {}):
                raise

    async def bound_node(self, namespace: str, name: str, uid: str) -> str | None:
        """Return the pod's node; None if the pod has no node, is gone, or may not be read.

        Retry until the server answers.
        """
        with suppress(NotFoundError):
            pod = await self._read(namespace, name, uid)
            return pod["spec"].get("nodeName") if pod is not None else None
        return None

    async def is_running(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether the pod exists and is not terminating; retry until there is an answer.

        Return True if the server refuses to return the pod, because the pod may still run.
        """
        with suppress(NotFoundError):
            pod = await self._read(namespace, name, uid)
            return pod is None or "deletionTimestamp" not in pod["metadata"]
        return False

    async def _read(self, namespace: str, name: str, uid: str) -> dict[str, Any] | None:
        backoff = Backoff(self._random)
        while True:
            try:
                pod = await self.client.get(POD, name, namespace)
            except (UnreachableError, ServerError, TooManyRequestsError):
                await self.sleep(backoff.pause())
            except NotFoundError:
                raise
            # The server refuses to return the pod.
            except ApiError:
                return None
            else:
                if pod["metadata"]["uid"] == uid:
                    return pod
                call = ApiCall.parse("GET", POD.path(namespace, name))
                raise NotFoundError(call, "the pod has gone, and another one has its name")

    async def patch_pod_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        status: Mapping[str, Any],
        *,
        wanted: Callable[[], bool] | None = None,
    ) -> str:
        """Merge `status` into the pod's status, conditions by type; return the new resourceVersion.

        Raises ConflictError if another pod has the name now, InvalidError if the server rejects the
        status, and NotWantedError if `wanted` returned False.
        """
        return await _patch_status(self.client, POD, namespace, name, uid, status, wanted=wanted)

    async def delete_pod(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        wanted: Callable[[], bool] | None = None,
    ) -> bool:
        """Delete the pod, with the grace period of its spec; return whether this call did it.

        Returns False if the pod was gone or terminating already. Raises NotWantedError if `wanted`
        returned False, and other errors if the pod may still exist.
        """
        deleting = self.client.delete(POD, name, namespace, uid=uid, wanted=wanted)
        return await self._has_removed(deleting, namespace, name, uid)

    async def evict_pod(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        wanted: Callable[[], bool] | None = None,
    ) -> bool:
        """Delete the pod if every PodDisruptionBudget allows it; return whether this call did it.

        The result and the errors are those of `delete_pod`. Raises DisruptionBudgetError, without a
        retry, if a budget forbids the eviction now.
        """
        body = orjson.dumps(
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"namespace": namespace, "name": name},
                "deleteOptions": {"preconditions": {"uid": uid}},
            }
        )
        path = POD.path(namespace, name, "eviction")
        evicting = self.client.request("POST", path, body=body, wanted=wanted)
        return await self._has_removed(evicting, namespace, name, uid)

    async def _has_removed(
        self, removing: Awaitable[object], namespace: str, name: str, uid: str
    ) -> bool:
        try:
            await removing
        except NotFoundError:
            return False
        except (ConflictError, UnansweredError, ServerError) as error:
            if await self.is_running(namespace, name, uid):
                raise
            # After a lost answer or a server error, the request may have been carried out.
            return not isinstance(error, ConflictError)
        return True


class PodGroupWriter:
    """Writes the status of PodGroups over `client`, and counts their finished members."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def patch_status(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        status: Mapping[str, Any],
    ) -> None:
        """Merge `status` into the group's status; for errors see `PodWriter.patch_pod_status`.

        In a custom resource, the new list of conditions replaces the old list. ConflictError is
        also raised if a custom resource has another version than `version`.
        """
        await _patch_status(self._client, resource, namespace, name, uid, status, version)

    async def count_finished(self, namespace: str, label: str, value: str) -> tuple[int, int]:
        """Return how many pods with this label value have succeeded, and how many have failed."""
        succeeded, failed = [
            len(
                (
                    await self._client.list_all(
                        POD,
                        namespace,
                        {
                            "labelSelector": f"{label}={value}",
                            "fieldSelector": f"status.phase={phase}",
                        },
                        metadata_only=True,
                    )
                ).items
            )
            for phase in ("Succeeded", "Failed")
        ]
        return succeeded, failed


class _KnownProfile:
    """The uid and the version of a profile; `version` is "" if it is unknown."""

    __slots__ = ("uid", "version")

    def __init__(self, uid: str, version: str) -> None:
        self.uid = uid
        self.version = version


class ProfileWriter:
    """Writes the statuses of SchedulingProfiles over `client`, one write at a time per profile.

    For the status of a custom resource, the API server compares the version but not the uid. So
    each write names the known version: the server then refuses late writes, and writes for another
    profile of the same name.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._known: dict[str, _KnownProfile] = {}
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def seen(self, name: str, uid: str, version: str) -> None:
        """Store the uid and the version of the profile that has the name now."""
        known = self._known.get(name)
        if known is None or known.uid != uid:
            self._known[name] = _KnownProfile(uid, version)
        else:
            known.version = version

    def gone(self, name: str, uid: str) -> None:
        """Forget the profile; a later profile of this name is written only after `seen`."""
        known = self._known.get(name)
        if known is not None and known.uid == uid:
            del self._known[name]

    async def patch_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Merge `status` into the status of the profile that has the name when this is called.

        Raises NotFoundError if that profile was deleted, even if another profile has its name now.
        """
        known = self._known.get(name)
        lock = self._writing.setdefault(name, asyncio.Lock())
        async with lock:
            for tries_left in reversed(range(_MOST_TRIES)):
                if known is None or self._known.get(name) is not known:
                    raise _another_profile(name)
                try:
                    version = known.version or await self._version(name, known.uid)
                    patch = {"metadata": {"resourceVersion": version}, "status": status}
                    _, known.version = await self._patch(name, patch)
                except ConflictError:
                    known.version = ""
                    if not tries_left:
                        raise
                else:
                    return

    async def _version(self, name: str, uid: str) -> str:
        # An empty patch needs no right to read profiles.
        found, version = await self._patch(name, {})
        if found != uid:
            raise _another_profile(name)
        return version

    async def _patch(self, name: str, patch: Mapping[str, Any]) -> tuple[str, str]:
        raw = await self._client.patch(SCHEDULING_PROFILE, name, patch, subresource="status")
        metadata = raw.get("metadata") or {}
        return metadata.get("uid", ""), metadata.get("resourceVersion", "")


def _another_profile(name: str) -> NotFoundError:
    call = ApiCall.parse("PATCH", SCHEDULING_PROFILE.path(None, name, "status"))
    return NotFoundError(call, "the profile has gone, and another one may have its name")


async def _patch_status(
    client: ApiClient,
    resource: Resource,
    namespace: str,
    name: str,
    uid: str,
    status: Mapping[str, Any],
    version: str = "",
    wanted: Callable[[], bool] | None = None,
) -> str:
    built_in = resource.group == "" or resource.group.endswith(".k8s.io")
    built_in &= resource != SIGS_POD_GROUP  # whose group is not Kubernetes' own
    # For a custom resource, the server compares the version, not the uid (status_strategy.go of
    # apiextensions-apiserver).
    metadata = {"uid": uid} if built_in or not version else {"uid": uid, "resourceVersion": version}
    # Lists are merged by a key. Without a list, a merge patch has the same effect, and costs the
    # server 0.6 ms less.
    strategic = built_in and any(isinstance(value, list | tuple) for value in status.values())
    try:
        written = await client.patch(
            resource,
            name,
            {"metadata": metadata, "status": status},
            namespace=namespace,
            subresource="status",
            patch_type=PatchType.STRATEGIC if strategic else PatchType.MERGE,
            wanted=wanted,
        )
        return str((written.get("metadata") or {}).get("resourceVersion", ""))
    except InvalidError as error:
        if "metadata.uid" not in error.message:
            raise
        raise ConflictError(
            error.call,
            error.message,
            server=error.server,
            status=error.status,
            reason=error.reason,
            subject=error.subject,
        ) from error
