"""A sink that records the calls of a reflector, and a function that runs the reflector."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

from background import in_background
from mooring.kube.api_resources import POD, Resource
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.reflector import EventType, Reflector
from mooring.pausing import pause

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mooring.kube.errors import ApiError

WAIT_SECONDS: Final = 60.0


class Mirror:
    """A sink: the version of each pod by name, and records of all calls."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.replaced: list[set[str]] = []
        self.applied: list[tuple[EventType, str]] = []
        self.troubles: list[ApiError | None] = []
        self.relists = 0
        self.pauses: list[float] = []
        self.went_back: list[str] = []
        self.refuses: str | None = None
        self.steps: list[str] = []
        self.begun = 0
        self.now = 0.0
        """The seconds that the steps have taken: each takes one."""
        self._changed = asyncio.Event()

    def relist(self, resource: Resource) -> Listed:
        assert resource == POD
        return Listed(self)

    def step(self, name: str) -> None:
        self.steps.append(name)
        self._changed.set()
        self.pause()

    def pause(self) -> None:
        """Count a step, which takes one second, and let other tasks run."""
        self.now += 1.0
        pause()

    def replace(self, versions: dict[str, int]) -> None:
        self._changed.set()
        self.replaced.append(set(versions))
        self.versions = versions
        assert self.refuses != "everything"

    def apply(self, resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        assert resource == POD
        self.begun += 1
        self.pause()
        self.now += 1.0
        self._changed.set()
        self.applied.append((event, _name(obj)))
        assert _name(obj) != self.refuses
        if event == "DELETED":
            self.versions.pop(_name(obj))
        else:
            if _version(obj) <= self.versions.get(_name(obj), 0):
                self.went_back.append(_name(obj))
            self.versions[_name(obj)] = _version(obj)

    def on_trouble(self, resource: Resource, error: ApiError | None) -> None:
        assert resource == POD
        self.troubles.append(error)
        self._changed.set()

    def on_relist(self, resource: Resource) -> None:
        assert resource == POD
        self.relists += 1

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` returns True; it is tested after each call of the sink."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Listed:
    """A list of the sink; adding an object and storing an object take one step each."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._versions: dict[str, int] = {}

    def add(self, obj: dict[str, Any]) -> None:
        assert _name(obj) != self._mirror.refuses
        self._versions[_name(obj)] = _version(obj)
        self._mirror.pause()

    def remove(self, obj: dict[str, Any]) -> None:
        self._versions.pop(_name(obj))

    def apply(self) -> None:
        for name in self._versions:
            self._mirror.step(name)
        self._mirror.replace(self._versions)


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


@asynccontextmanager
async def reflecting(
    url: str, *, slowly: bool = False, **options: Any
) -> AsyncIterator[tuple[Mirror, Reflector]]:
    """Run a reflector of pods inside the context; its pauses take no time.

    If `slowly` is True, each step of the sink takes longer than a slice of work.
    """
    mirror = Mirror()
    if slowly:
        options["clock"] = lambda: mirror.now
    async with ApiClient(Connection(url)) as client:
        reflector = Reflector(
            client,
            POD,
            mirror,
            on_trouble=mirror.on_trouble,
            on_relist=mirror.on_relist,
            random=Random(0),  # noqa: S311 - reproducible jitter
            sleep=mirror.sleep,
            **options,
        )
        async with in_background(reflector.run()):
            yield mirror, reflector
