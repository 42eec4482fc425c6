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
from mooring.mirroring.mirror import ASSIGNED_PODS, MIRRORED, MIRRORED_IF_SERVED
from mooring.model.events import Kind
from mooring.time_slices import TimeSlices

__all__ = ["Reflectors"]

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""How often the server is looked at for kinds that it may begin or cease to serve."""

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
    troubled: asyncio.Event
    """Set once listing or watching has failed, or the server does not serve it any more."""
    task: asyncio.Task[NoReturn]
    takes_over: bool
    """Whether objects that were read in another version are in force until it is listed."""

    def counts(self) -> bool:
        """Return whether a replica that does not follow it is unready."""
        listed = self.takes_over or self.reflector.synced.is_set()
        return listed or not self.troubled.is_set()


class Reflectors:
    """Keep `sink` up to date while `run` runs.

    Kinds that a server may not serve are looked for every `look_seconds`. One that cannot be listed
    does not make a replica unready: what names a PodGroup that is not known waits, and nothing else
    does. Once it has been listed it counts like any other, because what was read stays in force.
    `relisted` is called with the name of each resource that had to be listed again.
    """

    def __init__(
        self,
        client: ApiClient,
        sink: Sink,
        *,
        relisted: Callable[[str], None],
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
        self._reflectors = {resource: self._reflector(resource) for resource in MIRRORED}
        self._served: dict[Kind, _Served] = {}
        self._looked = asyncio.Event()
        self._unanswered: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            while True:
                for kind in dict.fromkeys(MIRRORED_IF_SERVED.values()):
                    await self._look_for(kind, group)
                self._looked.set()
                await asyncio.sleep(self._look_seconds)

    async def synced(self) -> None:
        """Wait until every resource has been listed.

        A resource that may not be served and cannot be listed is not waited for.
        """
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._looked.wait()
        for served in tuple(self._served.values()):
            await _any_of(served.reflector.synced, served.troubled)

    def served(self) -> Mapping[Kind, Resource]:
        """Return the resources in use of those that a server may not serve."""
        return {kind: served.resource for kind, served in self._served.items()}

    def problem(self) -> str | None:
        """Return what is not listed yet or not watched for long, and why; None if all is."""
        counted = self._counted()
        unlisted = [r for r, reflector in counted.items() if not reflector.synced.is_set()]
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

    async def _look_for(self, kind: Kind, group: asyncio.TaskGroup) -> None:
        """Begin to follow the kind, or stop, if the server serves another version or none."""
        try:
            found = await self._find(kind)
        except ApiError as error:
            self._tell_once(str(kind), f"whether {kind} is served is not known: {explain(error)}")
            return
        self._unanswered.pop(str(kind), None)
        served, takes_over = self._served.get(kind), False
        if served is not None and served.resource != found:
            logger.info("%s is not served any more", _named(served.resource))
            served.task.cancel()
            await asyncio.wait([served.task])
            served.troubled.set()
            del self._served[kind]
            self._troubles.pop(served.resource, None)
            takes_over = served.takes_over or served.reflector.synced.is_set()
            if found is None:
                await TimeSlices(clock=self._clock).run(self._sink.relist(served.resource).apply())
        if found is not None and kind not in self._served:
            logger.info("%s is served", _named(found))
            reflector = self._reflector(found)
            task = group.create_task(reflector.run())
            self._served[kind] = _Served(found, reflector, asyncio.Event(), task, takes_over)

    async def _find(self, kind: Kind) -> Resource | None:
        """Return the first of the kind's resources that the server serves."""
        for resource, of_kind in MIRRORED_IF_SERVED.items():
            if of_kind is kind and await self._client.serves(resource):
                return resource
        return None

    def _tell_once(self, about: str, text: str) -> None:
        if self._unanswered.get(about) != text:
            logger.warning("%s", text)
        self._unanswered[about] = text

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


def _named(resource: Resource) -> str:
    return f"{resource} ({resource.version})"


async def _any_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
