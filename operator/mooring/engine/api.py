"""The API that plugins use, over the real API server."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.kube import resources
from mooring.kube.client import ApiClient
from mooring.kube.writes import PodWriter
from mooring.model.pod import Pod

__all__ = ["PluginApi"]

_PATCHABLE: Final = {
    r.plural: r for r in (resources.PERSISTENT_VOLUME, resources.PERSISTENT_VOLUME_CLAIM)
}


class PluginApi:
    """Implements `mooring.framework.handle.Api` over one client."""

    def __init__(
        self, client: ApiClient, writer: PodWriter, *, now: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._writer = writer
        self._now = now
        self._waiting: set[asyncio.Event] = set()
        self._annotations: dict[str, dict[str, str]] = {}

    def cluster_changed(self) -> None:
        """Let all waits in `until` check their condition again."""
        for event in self._waiting:
            event.set()

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add annotations to what the pod's Bindings carry; an empty mapping takes all back."""
        if annotations:
            self._annotations.setdefault(pod.uid, {}).update(annotations)
        else:
            self._annotations.pop(pod.uid, None)

    def unix_nanoseconds(self) -> int:
        """Return the time of day, for what plugins write."""
        return int(self._now() * 1e9)

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod with its annotations; see `PodWriter.bind` for the errors."""
        # Not removed here: a Binding that fails may be repeated. The engine takes them back.
        annotations = self._annotations.get(pod.uid)
        await self._writer.bind(pod.namespace, pod.name, pod.uid, node, annotations)

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a merge patch and return the object; KeyError if plugins may not patch it."""
        return await self._client.patch(_PATCHABLE[resource], name, patch, namespace=namespace)

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done` returns True, now or after a change of the mirrored cluster.

        Raises TimeoutError after `seconds`, and whatever `done` raises.
        """
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    changed.clear()
                    await changed.wait()
        finally:
            self._waiting.discard(changed)
