"""One reflector per mirrored resource, and what is wrong with each."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, NoReturn

from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, explain
from mooring.kube.reflector import Reflector, Sink
from mooring.kube.resources import POD, Resource
from mooring.mirroring.discovery import EXPECTED, Discovery
from mooring.mirroring.mirror import ASSIGNED_PODS, MIRRORED
from mooring.model.events import Kind
from mooring.time_slices import TimeSlices

__all__ = ["Reflectors"]

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""How often the server is asked for its version and for what it serves."""

DEAD_SECONDS: Final = 60.0
"""A watch that has failed for longer is dead; API servers restart and etcd elects in less."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    since: float
    words: str


@dataclass(frozen=True, slots=True)
class _Served:
    resource: Resource
    reflector: Reflector
    is_expected: bool
    """Whether a replica is unready as long as it cannot be listed."""
    troubled: asyncio.Event
    """Set once listing or watching has failed, or the server does not serve it any more."""
    ended: asyncio.Event
    """Set once the server does not serve it any more."""
    task: asyncio.Task[NoReturn]
    takes_over: bool
    """Whether objects that were read in another version are in force until it is listed."""

    def counts(self) -> bool:
        """Return whether a replica that does not follow it is unready."""
        listed = self.takes_over or self.reflector.synced.is_set()
        return self.is_expected or listed or not self.troubled.is_set()


class Reflectors:
    """Keep `sink` up to date while `run` runs.

    Every `look_seconds` the server is asked what it serves. A kind that it does not serve has no
    objects. A kind of `MIRRORED_IF_SERVED` that cannot be listed does not make a replica unready:
    what names a PodGroup that is not known waits, and nothing else does; of DeviceTaintRules none
    is known. Once it has been listed it counts like any other, because what was read stays in
    force. `relisted` is called with the name
    of each resource that had to be listed again, `versioned` with the server's version.
    """

    def __init__(
        self,
        client: ApiClient,
        sink: Sink,
        *,
        relisted: Callable[[str], None],
        versioned: Callable[[str], None] = lambda _version: None,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._sink = sink
        self._relisted = relisted
        self._clock = clock
        self._random = random
        self._look_seconds = look_seconds
        self._troubles: dict[Resource, _Trouble] = {}
        self._reflectors = {
            resource: self._reflector(resource) for resource in MIRRORED if not resource.group
        }
        self._served: dict[Kind, _Served] = {}
        self._discovery = Discovery(client, versioned=versioned)
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._discovery.look()
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            while True:
                for kind, resource in {**EXPECTED, **self._discovery.served}.items():
                    await self._follow(kind, resource, group)
                self._looked.set()
                await asyncio.sleep(self._look_seconds)
                await self._discovery.look()

    async def synced(self) -> None:
        """Wait until every resource has been listed.

        A resource that is not served is not waited for, nor one that makes no replica unready.
        """
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._looked.wait()
        for served in tuple(self._served.values()):
            given_up = served.ended if served.is_expected else served.troubled
            await _any_of(served.reflector.synced, given_up)

    def served(self) -> Mapping[Kind, Resource]:
        """Return the resources in use of the kinds in `MIRRORED_IF_SERVED`."""
        return {
            kind: served.resource for kind, served in self._served.items() if not served.is_expected
        }

    def unserved(self) -> Mapping[Kind, Resource]:
        """Return the kinds that the server does not serve, each with a resource that would do."""
        return self._discovery.unserved()

    def problem(self) -> str | None:
        """Return what is not listed yet or not watched for long, and why; None if all is."""
        counted = self._counted()
        unlisted = [r for r, reflector in counted.items() if not reflector.synced.is_set()]
        if not self._looked.is_set():
            unlisted += [resource for resource in EXPECTED.values() if resource not in counted]
        if unlisted:
            return f"not listed yet: {', '.join(map(self._described, unlisted))}"
        dead = [resource for resource in counted if self._lag(resource) > DEAD_SECONDS]
        if dead:
            longest = max(map(self._lag, dead))
            return f"not watched for {longest:.0f} seconds: {', '.join(map(self._described, dead))}"
        return None

    def is_current(self) -> bool:
        """Return whether everything has been listed, and the watch of nothing is broken now."""
        return self.problem() is None and self._troubles.keys().isdisjoint(self._counted())

    def _counted(self) -> dict[Resource, Reflector]:
        """Return what this replica cannot work without."""
        return self._reflectors | {
            served.resource: served.reflector for served in self._served.values() if served.counts()
        }

    def lags(self) -> Mapping[str, float]:
        """Return for how many seconds each resource has not been watched; 0 for those that are."""
        served = (served.resource for served in self._served.values())
        return {str(resource): self._lag(resource) for resource in (*self._reflectors, *served)}

    async def _follow(
        self, kind: Kind, resource: Resource | None, group: asyncio.TaskGroup
    ) -> None:
        """Follow the kind as this resource, and not as another any more; None: not at all."""
        served, takes_over = self._served.get(kind), False
        if served is not None and served.resource != resource:
            served.task.cancel()
            await asyncio.wait([served.task])
            served.troubled.set()
            served.ended.set()
            del self._served[kind]
            self._troubles.pop(served.resource, None)
            takes_over = served.takes_over or served.reflector.synced.is_set()
            if resource is None:
                await TimeSlices(clock=self._clock).run(self._sink.relist(served.resource).apply())
        if resource is not None and kind not in self._served:
            reflector = self._reflector(resource)
            self._served[kind] = _Served(
                resource,
                reflector,
                kind in EXPECTED,
                troubled=asyncio.Event(),
                ended=asyncio.Event(),
                task=group.create_task(reflector.run()),
                takes_over=takes_over,
            )

    def _reflector(self, resource: Resource) -> Reflector:
        return Reflector(
            self._client,
            resource,
            self._sink,
            selectors={"fieldSelector": ASSIGNED_PODS} if resource is POD else None,
            on_trouble=self._on_trouble,
            on_relist=lambda resource: self._relisted(str(resource)),
            clock=self._clock,
            random=self._random,
        )

    def _described(self, resource: Resource) -> str:
        trouble = self._troubles.get(resource)
        return f"{resource} ({trouble.words})" if trouble is not None else str(resource)

    def _lag(self, resource: Resource) -> float:
        trouble = self._troubles.get(resource)
        return 0.0 if trouble is None else self._clock() - trouble.since

    def _on_trouble(self, resource: Resource, error: ApiError | None) -> None:
        if error is None:
            self._troubles.pop(resource, None)
            return
        for served in self._served.values():
            if served.resource == resource:
                served.troubled.set()
        known = self._troubles.get(resource)
        since = known.since if known is not None else self._clock()
        self._troubles[resource] = _Trouble(since, explain(error))


async def _any_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
