"""What the engine may change in the cluster: bind, set a pod's status, delete, evict.

Every write names the pod's uid, so that it never hits another pod of the same name. The errors
are those of `mooring.kube.errors`; whoever calls decides whether a try is worth repeating.
"""

from __future__ import annotations

import asyncio
import random as random_module
from typing import TYPE_CHECKING, Any

import orjson

from mooring.kube.backoff import Backoff
from mooring.kube.client import PatchType
from mooring.kube.errors import (
    ApiError,
    ConflictError,
    InvalidError,
    ServerError,
    TooManyRequestsError,
    UnansweredError,
    UnreachableError,
)
from mooring.kube.resources import POD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mooring.kube.client import ApiClient

__all__ = ["PodWriter"]


class PodWriter:
    """Writes to pods over `client`; any number may be in flight at once."""

    def __init__(
        self,
        client: ApiClient,
        *,
        random: random_module.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._random = random or random_module.Random()  # noqa: S311 - spreads load, hides nothing
        self._sleep = sleep

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """The pod is bound to `node` and has the annotations, both in one write or neither.

        The API server copies the annotations of a Binding to the pod when it sets the node
        (registry/core/pod/storage/storage.go, setPodNodeAndMetadata).

        Nothing is retried: ConflictError says that the pod is bound already or is another one,
        NotFoundError that it is gone. When the answer is lost, or is an error of the server's, the
        binding may have happened all the same: the pod is looked at until the server answers, so
        that an error is raised only about a pod that is not bound to `node`.
        """
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
        try:
            await self._client.request("POST", path, body=body, retries=0)
        except (UnansweredError, ServerError):
            if not await self._is_bound(namespace, name, uid, node):
                raise

    async def _is_bound(self, namespace: str, name: str, uid: str, node: str) -> bool:
        backoff = Backoff(self._random)
        while True:
            try:
                pod = await self._client.get(POD, name, namespace)
            except (UnreachableError, ServerError, TooManyRequestsError):
                await self._sleep(backoff.pause())
            except ApiError:
                return False
            else:
                return bool(pod["metadata"]["uid"] == uid and pod["spec"].get("nodeName") == node)

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, status: Mapping[str, Any]
    ) -> None:
        """`status` is merged into the pod's, conditions by their type.

        ConflictError says that the name now belongs to another pod: its uid cannot be changed. The
        server calls that invalid, as it does a status that it does not like.
        """
        patch = {"metadata": {"uid": uid}, "status": status}
        try:
            await self._client.request(
                "PATCH",
                POD.path(namespace, name, "status"),
                body=orjson.dumps(patch),
                content_type=PatchType.STRATEGIC.value,
            )
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

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """The pod's deletion has begun, with the grace period of its own spec."""
        await self._client.delete(POD, name, namespace, uid=uid)

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """The pod's deletion has begun within every PodDisruptionBudget.

        TooManyRequestsError says, at once, that a budget forbids it for now.
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
        await self._client.request("POST", path, body=body, retries=0)
