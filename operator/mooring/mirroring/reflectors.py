"""One reflector per mirrored resource, and what is wrong with each."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, explain
from mooring.kube.reflector import Reflector, Sink
from mooring.kube.resources import POD, Resource
from mooring.mirroring.mirror import ASSIGNED_PODS, MIRRORED

__all__ = ["Reflectors"]

DEAD_SECONDS: Final = 60.0
"""A watch that has failed for longer is dead; API servers restart and etcd elects in less."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    since: float
    words: str


class Reflectors:
    """Keep `sink` up to date while `run` runs.

    `relisted` is called with the name of each resource that had to be listed again.
    """

    def __init__(
        self,
        client: ApiClient,
        sink: Sink,
        *,
        relisted: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._troubles: dict[Resource, _Trouble] = {}
        self._reflectors = {
            resource: Reflector(
                client,
                resource,
                sink,
                selectors={"fieldSelector": ASSIGNED_PODS} if resource is POD else None,
                on_trouble=self._on_trouble,
                on_relist=lambda resource: relisted(str(resource)),
            )
            for resource in MIRRORED
        }

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Return once every resource has been listed."""
        for reflector in self._reflectors.values():
            await reflector.synced.wait()

    def lacking(self) -> str | None:
        """Which resources are not listed yet or not watched for long, and why; None if all are."""
        unlisted = [
            self._described(resource)
            for resource, reflector in self._reflectors.items()
            if not reflector.synced.is_set()
        ]
        if unlisted:
            return f"not listed yet: {', '.join(unlisted)}"
        dead = [resource for resource in self._troubles if self._lag(resource) > DEAD_SECONDS]
        if dead:
            longest = max(map(self._lag, dead))
            return f"not watched for {longest:.0f} seconds: {', '.join(map(self._described, dead))}"
        return None

    def _described(self, resource: Resource) -> str:
        trouble = self._troubles.get(resource)
        return f"{resource} ({trouble.words})" if trouble is not None else str(resource)

    def lags(self) -> Mapping[str, float]:
        """For how many seconds each resource has not been watched; 0 for those that are."""
        return {str(resource): self._lag(resource) for resource in self._reflectors}

    def _lag(self, resource: Resource) -> float:
        trouble = self._troubles.get(resource)
        return 0.0 if trouble is None else self._clock() - trouble.since

    def _on_trouble(self, resource: Resource, error: ApiError | None) -> None:
        if error is None:
            self._troubles.pop(resource, None)
            return
        known = self._troubles.get(resource)
        since = known.since if known is not None else self._clock()
        self._troubles[resource] = _Trouble(since, explain(error))
