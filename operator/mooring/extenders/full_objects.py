"""Reads objects from the API server to send to extenders.

The mirror has only the fields that decisions read, but extenders get whole objects. Therefore this
module keeps pods without a node as JSON, up to `most_bytes`, if their profile has extenders. Other
pods are read at each call. Nodes are sent only to extenders without a cache of nodes; the first
such call begins a watch of all nodes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mooring.extenders.protocol import Json
from mooring.extenders.verdicts import ExtenderError
from mooring.kube.api_resources import NODE, POD, Resource
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.kube.reflector import EventType, Reflector
from mooring.model.pod import Pod

_LISTED_SECONDS: Final = 30.0
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of kept pods: about 10,000 ordinary pods. Other pods are read at each call."""
_ENTRY: Final = 256
"""Estimated bytes of a kept pod in addition to its JSON."""


@dataclass(eq=False, repr=False)
class ApiObjects:
    """Implements `ExtenderObjects` with an API server.

    `wanted` returns whether a pod's profile has extenders. Pods are kept up to `most_bytes`.
    """

    client: ApiClient
    wanted: Callable[[Pod], bool] = lambda _pod: False
    most_bytes: int = _MOST_BYTES

    def __post_init__(self) -> None:
        self.bytes = 0
        """Estimated bytes of the kept pods."""
        self._pods: dict[str, Json] = {}
        self._nodes = _Nodes()
        self._reflector: Reflector | None = None
        self._watch: asyncio.Task[None] | None = None

    def seen(self, pod: Pod, raw: Mapping[str, Any]) -> None:
        """Drop the pod's older JSON; keep `raw` if the pod is wanted and `most_bytes` allows it."""
        self.forget(pod.uid)  # it may have changed since it was kept
        if not self.wanted(pod):
            return
        json = as_json(raw)
        if self.bytes + len(json) + _ENTRY <= self.most_bytes:
            self._pods[pod.uid] = json
            self.bytes += len(json) + _ENTRY

    def forget(self, uid: str) -> None:
        """Drop the JSON of a pod that has a node now or was deleted."""
        json = self._pods.pop(uid, None)
        if json is not None:
            self.bytes -= len(json) + _ENTRY

    async def pod(self, pod: Pod) -> Json | None:
        """Return the stored JSON of the pod, or read the pod; None if it was deleted.

        Raises ExtenderError if the pod cannot be read.
        """
        if (seen := self._pods.get(pod.uid)) is not None:
            return seen
        try:
            raw = await self.client.get(POD, pod.name, pod.namespace)
        except NotFoundError:
            return None
        except ApiError as error:
            text = f"pod {pod.key} cannot be read for the extenders: {explain(error)}"
            raise ExtenderError(text) from error
        return as_json(raw) if raw["metadata"]["uid"] == pod.uid else None

    async def nodes(self, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the nodes with these names, by name; unknown nodes are left out.

        The first call begins a watch of all nodes. Raises ExtenderError if the watch shows no list
        within 30 seconds.
        """
        if self._reflector is None:
            self._reflector = Reflector(self.client, NODE, self._nodes)
            self._watch = asyncio.create_task(self._reflector.run())
        try:
            async with asyncio.timeout(_LISTED_SECONDS):
                await self._reflector.synced.wait()
        except TimeoutError:
            raise ExtenderError("the nodes cannot be listed for the extenders") from None
        known = self._nodes.json
        return {name: known[name] for name in names if name in known}

    async def close(self) -> None:
        """Stop watching nodes."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])


class _Nodes:
    """Keeps every node as JSON by name (`mooring.kube.reflector.Sink`)."""

    def __init__(self) -> None:
        self.json: dict[str, Json] = {}

    def relist(self, _resource: Resource) -> "_NodeList":
        return _NodeList(self)

    def apply(self, _resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        """Store a node that was added or changed; remove a node that was deleted."""
        name = obj["metadata"]["name"]
        if event == "DELETED":
            self.json.pop(name, None)
        else:
            self.json[name] = as_json(obj)


class _NodeList:
    """The nodes of one list, as JSON by name (`mooring.kube.reflector.Relist`)."""

    def __init__(self, nodes: _Nodes) -> None:
        self._nodes = nodes
        self._json: dict[str, Json] = {}

    def add(self, obj: dict[str, Any]) -> None:
        self._json[obj["metadata"]["name"]] = as_json(obj)

    def remove(self, obj: dict[str, Any]) -> None:
        """Remove a node that was deleted before the list was complete."""
        self._json.pop(obj["metadata"]["name"], None)

    def apply(self) -> None:
        """Replace the kept nodes by the nodes of this list."""
        self._nodes.json = self._json


def as_json(raw: Mapping[str, Any]) -> Json:
    """Return the object as JSON without managedFields, which kube-scheduler drops, too."""
    metadata = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    # A copy, because what orjson returns occupies up to 4 KiB more than it is long.
    return memoryview(orjson.dumps({**raw, "metadata": metadata})).tobytes()
