"""Runs kopf: its tasks, its sessions, and the resources that it may watch.

Only `on.event` handlers are used, because they add no annotation and no finalizer to objects. For
the same reason kopf's storages for progress and diffs are replaced by empty ones, which also saves
most of kopf's cost per event.
"""

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn, TypeVar

import kopf

from mooring.handlers.bursts import PodEventFilter
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.handlers.sessions import KopfSessions
from mooring.kube.api_resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, Resource
from mooring.kube.backoff import Backoff
from mooring.kube.client import SMALL_PAGE_SIZE, ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, explain
from mooring.kube.exchange import CONNECT_SECONDS

logger = logging.getLogger(__name__)

_KOPF: Final = Path(kopf.__file__).parent
_STOP_ROUNDS: Final = 20
_STOP_SECONDS: Final = 0.25
_WORKER_SECONDS: Final = 0.5
"""How many seconds kopf waits for running handlers when it is stopped.

A stopping leader waits a second for all of kopf, and then releases the lease.
"""
_WATCHER: Final = "watcher for "
"""The beginning of the names of kopf's tasks that list and watch."""

RETRIES: Final = (1.0, 1.0, 2.0) + (4.0,) * 14
"""The seconds that kopf waits between tries of a request. They sum up to a minute, in which an API
server can restart or etcd can elect a leader. After the last try kopf ends."""

GOOD_SECONDS: Final = 60.0
"""If kopf has run for these seconds, the pause before its next restart is short again."""

UNWATCHED_SECONDS: Final = 60.0
"""The most seconds without a watch of a needed resource; after them a replica is not ready."""

ASK_AGAIN_SECONDS: Final = 60.0
"""The seconds between two checks whether kopf may watch PriorityClasses by now."""

UNSCHEDULED: Final = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of the pods that wait for a node."""

_NEEDED: Final = (POD, SCHEDULING_PROFILE)
"""The resources that scheduling needs; PriorityClasses only give names to priorities."""


class _NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers: event handlers have none."""

    def fetch(self, **_: Any) -> None: ...

    def store(self, **_: Any) -> None: ...

    def purge(self, **_: Any) -> None: ...

    def touch(self, **_: Any) -> None: ...

    def clear(self, *, essence: Any) -> Any:
        """Return the essence, the part of an object that kopf compares; do not copy it."""
        return essence


class _NoDiffs(kopf.DiffBaseStorage):
    """Stores no former state of objects."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence, the part of an object that kopf compares."""
        return {}

    def fetch(self, **_: Any) -> None: ...

    def store(self, **_: Any) -> None: ...


class KopfRunner:
    """Runs kopf inside our event loop while this replica leads.

    Attributes:
        restarts: How often kopf has ended and was started again.
    """

    def __init__(
        self,
        handlers: ObjectHandlers,
        connection: Connection,
        client: ApiClient,
        *,
        retries: Sequence[float] = RETRIES,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.restarts = 0
        self._handlers = handlers
        self._connection = connection
        self._client = client
        self._retries = retries
        self._clock = clock
        self._random = random or Random()  # noqa: S311 - spreads load, hides nothing
        self._sleep = sleep
        self._unwatched: dict[str, float] = {}
        """The monotonic time since when kopf has not watched a needed resource, by its path."""
        self._pods_listed = asyncio.Event()
        self._trouble = ""
        self._class_trouble: str | None = None
        self._resources: tuple[Resource, ...] = ()
        """The resources that `until_watchable` has found and that the next `run` will watch."""

    async def run(self, restore_signals: Callable[[], None]) -> NoReturn:
        """Run kopf until cancelled, and start it again if it gives up.

        `restore_signals` restores signal handlers that kopf replaces.
        """
        backoff = Backoff(self._random)
        self._watches_nothing()
        try:
            while True:
                resources = self._resources or await self._watchable(backoff)
                self._resources, began = (), self._clock()
                # Not kopf's own runner: it would also end every task started after it.
                errors = await self._serve(restore_signals, resources)
                self._watches_nothing()
                if errors is None:
                    continue
                self.restarts += 1
                for self._trouble in errors:
                    logger.error("kopf gave up and is started again: %s", self._trouble)
                if self._clock() - began >= GOOD_SECONDS:
                    backoff.reset()
                await self._sleep(backoff.pause())
        finally:
            self._unwatched.clear()

    async def until_watchable(self) -> None:
        """Wait until kopf may watch its resources; until then, this replica cannot lead."""
        self._watches_nothing()
        self._resources = await self._watchable(Backoff(self._random))
        self._unwatched.clear()

    async def until_pods_are_listed(self) -> None:
        """Wait until pods that had no node when kopf was started are listed and queued."""
        await self._pods_listed.wait()

    def problem(self) -> str | None:
        """Return which resources kopf has not watched for a minute, and why; None without any."""
        now = self._clock()
        late = {
            str(resource): now - self._unwatched[resource.path()]
            for resource in _NEEDED
            if now - self._unwatched.get(resource.path(), now) > UNWATCHED_SECONDS
        }
        if not late:
            return None
        words = f"kopf has not watched {', '.join(late)} for {max(late.values()):.0f} seconds"
        return f"{words}: {self._trouble}" if self._trouble else words

    def _watches_nothing(self) -> None:
        for resource in _NEEDED:
            self._on_watch(resource.path(), accepted=False)

    def _on_watch(self, path: str, *, accepted: bool) -> None:
        if accepted:
            self._unwatched.pop(path, None)
            if path == POD.path():
                self._pods_listed.set()
        else:
            self._unwatched.setdefault(path, self._clock())

    async def _watchable(self, backoff: Backoff) -> tuple[Resource, ...]:
        for resource in _NEEDED:
            await self._until_watchable(resource, backoff)
        trouble = await self._trouble_with(PRIORITY_CLASS)
        if trouble is not None and trouble != self._class_trouble:
            logger.warning("pods are scheduled, but priorities are shown without name: %s", trouble)
        self._class_trouble = trouble
        return _NEEDED if trouble is not None else (*_NEEDED, PRIORITY_CLASS)

    async def _until_watchable(self, resource: Resource, backoff: Backoff) -> None:
        # Without the right, kopf would log many lines.
        said = ""
        while (trouble := await self._trouble_with(resource)) is not None:
            if trouble != said:
                logger.error("nothing can be scheduled: %s", trouble)
            said = self._trouble = trouble
            await self._sleep(backoff.pause())

    async def _until_classes_are_watchable(self) -> None:
        while await self._trouble_with(PRIORITY_CLASS) is not None:
            await self._sleep(ASK_AGAIN_SECONDS)

    async def _trouble_with(self, resource: Resource) -> str | None:
        path = resource.path()
        try:
            await self._client.request("GET", path, params={"limit": "1"})
            watch = self._client.watch_lines(path, {"timeoutSeconds": "1"}, silence=CONNECT_SECONDS)
            async with aclosing(watch):
                await anext(watch)
        except ApiError as error:
            return explain(error)
        return None

    async def _serve(
        self, restore_signals: Callable[[], None], resources: Collection[Resource]
    ) -> list[str] | None:
        """Run kopf until it ends; return the errors, or None if it must be started again."""
        sessions = KopfSessions(
            self._connection,
            self._on_watch,
            self._handlers.on_pods,
            PodEventFilter(self._handlers.on_pod, self._clock),
            self._client.may_write,
            sleep=self._sleep,
        )
        tasks: Collection[asyncio.Task[Any]] = ()
        granted: asyncio.Task[None] | None = None
        try:
            tasks = await kopf.spawn_tasks(
                registry=self._registry(sessions, resources),
                settings=_settings(self._retries),
                clusterwide=True,
                standalone=True,
            )
            restore_signals()
            if PRIORITY_CLASS not in resources:
                granted = asyncio.create_task(self._until_classes_are_watchable())
            ends = tasks if granted is None else (*tasks, granted)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if granted is not None and granted.done():
                return None
        finally:
            if granted is not None:
                granted.cancel()
            errors = await _finished(_end(tasks, sessions))
        return errors or ["a part of it ended"]

    def _registry(
        self, sessions: KopfSessions, resources: Collection[Resource]
    ) -> kopf.OperatorRegistry:
        handlers = (
            (POD, self._handlers.on_pod),
            (SCHEDULING_PROFILE, self._handlers.on_profile),
            (PRIORITY_CLASS, self._handlers.on_priority_class),
        )
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(sessions.log_in)
        for resource, handler in handlers:
            if resource in resources:
                where = (resource.group, resource.version, resource.plural)
                kopf.on.event(*where, registry=registry)(handler)
        return registry


def _settings(retries: Sequence[float]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.watching.field_selectors["pods"] = UNSCHEDULED
    settings.watching.chunk_size = SMALL_PAGE_SIZE
    settings.scanning.disabled = True
    settings.queueing.exit_timeout = _WORKER_SECONDS
    # kopf would kill this process some minutes after its tasks are cancelled, also for a restart.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.networking.error_backoffs = retries
    return settings


_T = TypeVar("_T")


async def _finished(ending: Coroutine[Any, Any, _T]) -> _T:
    """Return the coroutine's result; if the caller is cancelled, still wait for its end."""
    task = asyncio.create_task(ending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _end(tasks: Collection[asyncio.Task[Any]], sessions: KopfSessions) -> list[str]:
    sessions.hang_up()
    errors = await _stop(tasks)
    await sessions.close()
    return errors


async def _stop(tasks: Collection[asyncio.Task[Any]]) -> list[str]:
    """End the tasks, and all tasks of kopf; return the messages of failed tasks."""
    # First, because kopf closes the connections of the others if a watcher has failed.
    if watchers := [task for task in asyncio.all_tasks() if _is_watcher(task)]:
        for task in watchers:
            task.cancel()
        await asyncio.wait(watchers, timeout=2 * _WORKER_SECONDS)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_STOP_ROUNDS):
        left = [task for task in asyncio.all_tasks() if _is_of_kopf(task)]
        if not left:
            break
        for task in left:  # again and again, because kopf's streams swallow some cancellations
            task.cancel()
        await asyncio.wait(left, timeout=_STOP_SECONDS)
    errors = [result for result in results if isinstance(result, Exception)]
    return [str(next(iter(error.args), error)) for error in errors]


def _is_watcher(task: asyncio.Task[Any]) -> bool:
    if not task.get_name().startswith(_WATCHER):
        return False
    # A task that has not begun would leave a warning if it were cancelled.
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and (
        inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED
    )


def _is_of_kopf(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(_KOPF)


def is_kopfs(error: BaseException) -> bool:
    """Return whether the error was raised by kopf's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(_KOPF)
