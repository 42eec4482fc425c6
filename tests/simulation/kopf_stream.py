"""A model of kopf's work for Mooring: it lists, watches, and calls a handler per event.

The real kopf costs several times as much as the rest of a simulated replica. The model behaves like
kopf 1.45 (`_cogs/clients/watching.py`, `_core/reactor/queueing.py`) with `KopfSessions`. Pods of
the first list are handed over at once, as `PodEventFilter` does with fast events. Each other object
has a worker that handles its events in order. Broken connections are resumed from the last version;
410 causes a new list; any other error ends everything, and the real `KopfRunner` starts it again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mooring.handlers.bursts import PodEventFilter
from mooring.handlers.runner import RETRIES, UNSCHEDULED, KopfRunner
from mooring.kube.api_resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, ApiCall, Resource
from mooring.kube.client import SMALL_PAGE_SIZE, ApiClient
from mooring.kube.errors import (
    ApiError,
    GoneError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
    error_from_status,
    explain,
)
from mooring.kube.response_checks import event_of

logger = logging.getLogger(__name__)

KOPF: Final = "kopf"
"""The User-Agent by which its requests are known."""
_RECONNECT_SECONDS: Final = 0.1
_NEVER: Final = 1e9
"""kopf does not mind a watch that is silent."""

Handler = Callable[..., Awaitable[None]]


class SimulatedKopf(KopfRunner):
    """The real KopfRunner with a model in place of kopf."""

    async def _serve(
        self, restore_signals: Callable[[], None], resources: Collection[Resource]
    ) -> list[str] | None:
        restore_signals()
        handlers = {
            POD: self._handlers.on_pod,
            SCHEDULING_PROFILE: self._handlers.on_profile,
            PRIORITY_CLASS: self._handlers.on_priority_class,
        }
        connection = replace(self._connection, user_agent=KOPF)
        async with ApiClient(connection, may_write=self._client.may_write) as client:
            bursts = PodEventFilter(self._handlers.on_pod, self._clock)
            follows = [
                _Watcher(
                    client, resource, handlers[resource], self, bursts if resource is POD else None
                ).run()
                for resource in resources
            ]
            tasks = [asyncio.create_task(follow) for follow in follows]
            if PRIORITY_CLASS not in resources:
                tasks.append(asyncio.create_task(self._until_classes_are_watchable()))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        failed = [task.exception() for task in tasks if not task.cancelled()]
        errors = [explain(error) for error in failed if isinstance(error, ApiError)]
        return errors or None

    def watches(self, path: str, *, accepted: bool) -> None:
        """Note that a list or watch of the path was sent, or that a watch was accepted."""
        self._on_watch(path, accepted=accepted)

    async def hand_over(self, pods: list[dict[str, Any]]) -> None:
        """Pass a page of the first list of pods to the handlers; [] if the list is empty."""
        await self._handlers.on_pods(pods)


class _Watcher:
    """Follows one resource until it is cancelled, or until an error that ends kopf."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        handler: Handler,
        runner: SimulatedKopf,
        bursts: PodEventFilter | None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._handler = handler
        self._runner = runner
        self._bursts = bursts
        self._selectors = {"fieldSelector": UNSCHEDULED} if resource is POD else {}
        self._has_watched = False
        self._backlogs: dict[str, deque[dict[str, Any]]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """List and watch repeatedly."""
        try:
            while True:
                try:
                    version = await self._tried(self._list)
                    while True:
                        version = await self._tried(partial(self._watch, version))
                except (GoneError, UnreachableError):
                    await asyncio.sleep(_RECONNECT_SECONDS)
        finally:
            for worker in tuple(self._workers):
                worker.cancel()

    async def _tried(self, call: Callable[[], Awaitable[str]]) -> str:
        """Return the result of a request, which is repeated as kopf repeats it."""
        for pause in RETRIES:
            try:
                return await call()
            except (UnreachableError, ServerError, TooManyRequestsError):
                await asyncio.sleep(pause)
        return await call()

    async def _list(self) -> str:
        path, version, shown = self._resource.path(), "", list[dict[str, Any]]()
        self._runner.watches(path, accepted=False)
        pages = self._client.list_pages(
            self._resource, selectors=self._selectors, limit=SMALL_PAGE_SIZE
        )
        async with aclosing(pages):
            async for page in pages:
                version = page.version
                if not page.items or (self._resource is POD and not self._has_watched):
                    await self._runner.hand_over(page.items)
                    continue
                shown += page.items
                kinds = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
                for raw in page.items:
                    self._put({"type": None, "object": {**raw, **kinds}})
        if self._bursts is not None:
            self._bursts.listed(shown)
        return version

    async def _watch(self, since: str) -> str:
        """Watch until the connection ends; return the last version."""
        path, version = self._resource.path(), since
        self._runner.watches(path, accepted=False)
        params = {**self._selectors, "allowWatchBookmarks": "true", "resourceVersion": since}
        stream = self._client.watch_lines(path, params, silence=_NEVER)
        accepted = False
        try:
            async with aclosing(stream):
                async for lines in stream:
                    if not accepted:
                        self._runner.watches(path, accepted=True)
                        accepted = self._has_watched = True
                    for line in lines:
                        version = await self._take(line)
        except UnreachableError:
            if not accepted:
                raise
        return version

    async def _take(self, line: bytes) -> str:
        kind, obj = event_of(line)
        if kind == "ERROR":
            call = ApiCall.parse("GET", self._resource.path(), watch=True)
            raise error_from_status(call, obj, server=self._client.url)
        past_kopf = self._bursts is not None and await self._bursts.takes(kind, obj, len(line))
        if kind != "BOOKMARK" and not past_kopf:
            self._put({"type": kind, "object": obj})
        return str(obj["metadata"]["resourceVersion"])

    def _put(self, event: dict[str, Any]) -> None:
        """Let the object's worker handle the event after all earlier events."""
        uid = event["object"]["metadata"]["uid"]
        backlog = self._backlogs.get(uid)
        if backlog is not None:
            backlog.append(event)
            return
        self._backlogs[uid] = deque([event])
        worker = asyncio.create_task(self._work(uid))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, uid: str) -> None:
        backlog = self._backlogs[uid]
        try:
            while backlog:
                try:
                    await self._handler(backlog.popleft())
                except Exception:
                    logger.exception("a handler failed")
        finally:
            del self._backlogs[uid]
