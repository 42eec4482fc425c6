"""Implements the API for plugins with the real API server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from mooring.framework.handle import ReadAgainError
from mooring.framework.verdicts import PluginError
from mooring.kube import api_resources as resources
from mooring.kube.backoff import Backoff
from mooring.kube.client import ApiClient
from mooring.kube.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    NotLeadingError,
    ServerError,
    TooManyRequestsError,
    UnansweredError,
    UnreachableError,
    explain,
)
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.writes import PodWriter
from mooring.model.pod import Pod, Uid
from mooring.process.shielding import shielded
from mooring.process.turn import Turn

logger = logging.getLogger(__name__)

_FEW_WAITS: Final = 64
_SECONDS_PER_WAIT: Final = 0.0002
"""The seconds that each waiting caller adds to the time between two checks, so that all checks
together use a few percent of a CPU."""
_PATCHABLE: Final = {
    r.plural: r for r in (resources.PERSISTENT_VOLUME, resources.PERSISTENT_VOLUME_CLAIM)
}
_UPDATABLE: Final = {r.plural: r for r in (resources.RESOURCE_CLAIM,)}


class BindAttempt:
    """The part of an attempt in which Bind plugins may bind the pod to `node`.

    The plugins may bind the pod while `wanted` returns True. The task that awaits the plugins
    creates this object.
    """

    def __init__(self, node: str, wanted: Callable[[], bool]) -> None:
        self.node = node
        self._wanted = wanted
        self._task = asyncio.current_task()
        self._sent: list[asyncio.Task[None]] = []

    def is_wanted(self) -> bool:
        """Return whether a plugin may send a Binding now."""
        return self._wanted()

    async def send(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send a Binding by `write`; raise the exception of `write`."""
        if asyncio.current_task() is self._task:  # nothing cancels this task at Bind
            await write()
            return
        # The plugin may be cancelled; then the Binding goes on.
        task = asyncio.create_task(write())
        self._sent.append(task)
        await shielded(task)

    async def is_bound(self) -> bool:
        """Allow no more Bindings, and wait for all answers; return whether a Binding was accepted.

        Bindings that `send` awaited in the attempt's own task are not counted.
        """
        self._wanted = _never
        if self._sent:
            await asyncio.wait(self._sent)
        return any(not task.cancelled() and task.exception() is None for task in self._sent)

    async def end(self) -> None:
        """Allow no more Bindings, and cancel the Bindings without an answer."""
        self._wanted = _never
        unanswered = [task for task in self._sent if not task.done()]
        for task in unanswered:
            task.cancel()
        if unanswered:
            await asyncio.wait(unanswered)


def _never() -> bool:
    return False


@dataclass(slots=True)
class _Turns:
    """The lock that callers of `PluginApi.alone` with the same key share."""

    key: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """The number of callers that hold the lock or wait for it."""
    unanswered: set[asyncio.Task[dict[str, Any]]] = field(default_factory=set)
    """Writes of cancelled callers; the next caller gets the lock when all writes are answered."""

    async def answered(self) -> None:
        if self.unanswered:
            await asyncio.wait(self.unanswered)


_ALONE_IN: ContextVar[_Turns | None] = ContextVar("alone_in", default=None)
"""The lock that the current task has entered by `alone`; None if there is none."""


@dataclass(eq=False, repr=False)
class PluginApi:
    """Implements `mooring.framework.handle.Api` over one client.

    `at_bind` maps uids to the attempts in which plugins may bind pods. `is_tried` returns whether
    the current decision is only a trial.
    """

    client: ApiClient
    writer: PodWriter
    at_bind: Mapping[Uid, BindAttempt]
    turn: Turn | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Random | None = None
    is_tried: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._turn = self.turn if self.turn is not None else Turn()
        self._random = self.random or Random()  # noqa: S311 - spreads load, hides nothing
        self.recorder: EventRecorder | None = None
        """Records the events of plugins; None until the engine sets a recorder."""
        self._turns: dict[str, _Turns] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._waiting: dict[asyncio.Event, None] = {}
        self._annotations: dict[str, dict[str, str]] = {}

    def cluster_changed(self) -> None:
        """Let every call of `until` check its condition again."""
        for event in self._waiting:
            event.set()

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add annotations to the pod's next Bindings; an empty mapping removes all of them."""
        if annotations:
            self._annotations.setdefault(pod.uid, {}).update(annotations)
        else:
            self._annotations.pop(pod.uid, None)

    def unix_nanoseconds(self) -> int:
        """Return the time of day in nanoseconds since the epoch, for writes of plugins."""
        return int(self.now() * 1e9)

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind the pod, and add the annotations that `annotate` has stored for it.

        Raises PluginError if no attempt is binding the pod to this node. Also raises what
        `PodWriter.bind` raises.
        """
        attempt = self.at_bind.get(pod.uid)
        if attempt is None or attempt.node != node or not attempt.is_wanted():
            raise PluginError(
                f"pod {pod.key} cannot be bound to node {node} now: call bind only within "
                "BindPlugin.bind, for the pod and node of that call, until its attempt ends"
            )
        # Not removed here: a Binding that fails may be repeated. The engine takes them back.
        annotations = self._annotations.get(pod.uid)
        await attempt.send(
            partial(
                self.writer.bind,
                pod.namespace,
                pod.name,
                pod.uid,
                node,
                annotations,
                wanted=attempt.is_wanted,
            )
        )

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Apply a merge patch and return the object; raise KeyError if plugins may not patch it."""
        return await self.client.patch(_PATCHABLE[resource], name, patch, namespace=namespace)

    def record(self, pod: Pod, reason: str, note: str) -> None:
        """Record an event of type Normal about the pod, if there is a recorder."""
        if self.recorder is not None:
            about = ObjectRef("Pod", pod.name, pod.namespace, pod.uid)
            self.recorder.record(about, "Normal", reason, "Scheduling", note)

    async def read(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the object; None if it does not exist. Retries until the API server answers."""
        backoff = Backoff(self._random)
        while True:
            try:
                return await self.client.get(_UPDATABLE[resource], name, namespace)
            except NotFoundError:
                return None
            except (UnreachableError, ServerError, TooManyRequestsError):
                await self.sleep(backoff.pause())

    async def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object and return the API server's version of it."""
        return await self.client.create(_UPDATABLE[resource], body)

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object if it has this uid; retry until the API server answers.

        Raises NotLeadingError if this replica no longer leads; the new leader deletes the object.
        """
        backoff = Backoff(self._random)
        while True:
            try:
                await self.client.delete(_UPDATABLE[resource], name, namespace, uid=uid)
            except (NotFoundError, ConflictError):
                return
            except NotLeadingError:
                raise
            except (UnreachableError, ServerError, TooManyRequestsError):
                await self.sleep(backoff.pause())
            else:
                return

    async def set_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Add the fields to the pod's status; see `PodWriter.patch_pod_status` for exceptions."""
        await self.writer.patch_pod_status(pod.namespace, pod.name, pod.uid, status)

    async def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: dict[str, Any],
        *,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """Apply a merge patch to one version of the object; see `framework.handle.Api.update`."""
        write = partial(
            self.client.patch,
            _UPDATABLE[resource],
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
        )
        turns = _ALONE_IN.get()
        try:
            return await (write() if turns is None else self._outliving(write, turns))
        except (ConflictError, NotFoundError, ServerError, UnansweredError) as error:
            raise ReadAgainError(explain(error)) from error

    async def _outliving(
        self, write: Callable[..., Coroutine[Any, Any, dict[str, Any]]], turns: _Turns
    ) -> dict[str, Any]:
        """Await `write`. A request that was sent goes on even if the caller is cancelled."""
        await turns.answered()  # the caller could have read an outdated object
        task: asyncio.Task[dict[str, Any]]
        # If the caller is cancelled before the write is sent, it is never sent.
        task = asyncio.create_task(write(wanted=lambda: task not in turns.unanswered))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            turns.unanswered.add(task)
            task.add_done_callback(lambda _: self._forget(turns))
            raise
        return task.result()

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Return a context that callers with the same `key` enter one by one, in order of arrival.

        If a caller is cancelled during `update`, its write goes on, and the next caller waits
        until this write is answered.
        """
        turns = self._turns.setdefault(key, _Turns(key))
        turns.users += 1
        try:
            async with turns.lock:
                await turns.answered()
                token = _ALONE_IN.set(turns)
                try:
                    yield
                finally:
                    _ALONE_IN.reset(token)
        finally:
            turns.users -= 1
            self._forget(turns)

    def _forget(self, turns: _Turns) -> None:
        for write in [write for write in turns.unanswered if write.done()]:
            if not write.cancelled():
                write.exception()  # the next caller reads what has become of it
            turns.unanswered.remove(write)
        # A write may be answered after its turns have gone, and the key have others by then.
        if turns.users or turns.unanswered:
            return
        if self._turns.get(turns.key) is turns:
            del self._turns[turns.key]

    def later(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call `write` soon in a task of its own; log its exceptions.

        In a trial, and after `stop`, `write` is not called.
        """
        if self._stopped or self.is_tried():
            return
        task = asyncio.get_running_loop().create_task(self._turn.between(_logged, write))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def stop(self) -> None:
        """Cancel the writes of `later`, and accept no more; call `finish` afterwards."""
        # The next leader may still need devices that cancelled bindings would release.
        self._stopped = True
        for task in self._later:
            task.cancel()

    async def finish(self, seconds: float) -> None:
        """Wait at most `seconds` for the tasks of `later` and for writes of cancelled callers.

        Cancel writes that have no answer by that time. Call this last, after `stop`.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        if self._later:
            await asyncio.wait(self._later, timeout=max(0.0, seconds))
        # Such a write could change a claim after the next leader has read it.
        writes = [write for turns in self._turns.values() for write in turns.unanswered]
        if not writes:
            return
        _, late = await asyncio.wait(writes, timeout=max(0.0, deadline - now()))
        if late:
            logger.warning("%d writes of claims were not answered before the end", len(late))
        for write in late:
            write.cancel()

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done` returns True, now or after a change of the mirrored cluster.

        Raises TimeoutError after `seconds`, and any exception of `done`.
        """
        changed = asyncio.Event()
        self._waiting[changed] = None
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    changed.clear()
                    await changed.wait()
                    if len(self._waiting) > _FEW_WAITS:  # let one check serve many changes
                        await self.sleep(_SECONDS_PER_WAIT * len(self._waiting))
        finally:
            del self._waiting[changed]


async def _logged(write: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await write()
    except KubeError as error:
        logger.warning("a write of a plugin failed: %s", explain(error))
    except PluginError as error:
        logger.warning("a write of a plugin failed: %s", error)
    except Exception:
        logger.exception("a write of a plugin failed")
