"""The attempts that are at Bind, and the Bindings that their plugins have sent.

A Binding that was sent cannot be undone. Whatever becomes of the plugin that sent it, its answer is
waited for, because it says whether the pod is bound. And no Binding is sent for an attempt that is
over: its pod may have another node by then.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from mooring.framework.verdicts import PluginError
from mooring.model.pod import Pod, Uid
from mooring.shielding import shielded

__all__ = ["AtBind", "AttemptAtBind"]

_ATTEMPT: ContextVar["AttemptAtBind | None"] = ContextVar("attempt_at_bind", default=None)
"""The attempt for which a plugin was called, also in the tasks that the plugin begins."""


class AttemptAtBind:
    """One attempt at Bind; `wanted` returns whether its pod is to be bound still.

    To be made in the task that waits for the Bind plugins.
    """

    def __init__(self, uid: Uid, node: str, wanted: Callable[[], bool]) -> None:
        self._about = uid, node
        self._wanted = wanted
        self._task = asyncio.current_task()
        self._sent: list[asyncio.Task[None]] = []

    def binds(self, pod: Pod, node: str) -> bool:
        """Return whether the attempt is about this pod and node, and is not over."""
        return self._about == (pod.uid, node) and self.is_wanted()

    def is_wanted(self) -> bool:
        """Return whether a Binding may be sent at this moment."""
        return self._wanted()

    async def send(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Write a Binding; raise what `write` raises.

        The plugins of Mooring are called by the task of the attempt, which nothing cancels at Bind
        as long as the scheduler runs. Others may be cancelled, so that they get a task for it.
        """
        if asyncio.current_task() is self._task:
            await write()
            return
        task = asyncio.create_task(write())
        self._sent.append(task)
        await shielded(task)

    async def is_bound(self) -> bool:
        """Return whether a Binding was accepted, once all are answered; no more are sent."""
        self._wanted = _never
        if self._sent:
            await asyncio.wait(self._sent)
        return any(not task.cancelled() and task.exception() is None for task in self._sent)

    async def end(self) -> None:
        """Send no more Bindings, and wait for no answer any more.

        Nothing is kept, because connections may keep the context in which they were made.
        """
        self._wanted, self._task = _never, None
        unanswered = [task for task in self._sent if not task.done()]
        self._sent = []
        for task in unanswered:
            task.cancel()
        if unanswered:
            await asyncio.wait(unanswered)


class AtBind:
    """The attempts that are at Bind, by the pod's uid."""

    def __init__(self) -> None:
        self._attempts: dict[Uid, AttemptAtBind] = {}

    @asynccontextmanager
    async def attempt(
        self, pod: Pod, node: str, wanted: Callable[[], bool]
    ) -> AsyncIterator[AttemptAtBind]:
        """Let plugins bind the pod to the node inside the block, as long as `wanted` says so."""
        attempt = self._attempts[pod.uid] = AttemptAtBind(pod.uid, node, wanted)
        token = _ATTEMPT.set(attempt)
        try:
            yield attempt
        finally:
            _ATTEMPT.reset(token)
            if self._attempts.get(pod.uid) is attempt:
                del self._attempts[pod.uid]
            await attempt.end()

    def of(self, pod: Pod, node: str) -> AttemptAtBind:
        """Return the attempt for which the caller binds the pod to the node.

        That is the one for which the plugin was called, else, for a task that a plugin began
        earlier, the one that is at Bind now.

        Raises:
            PluginError: there is none, or it is about another pod or node, or it is over.
        """
        attempt = _ATTEMPT.get() or self._attempts.get(pod.uid)
        if attempt is None or not attempt.binds(pod, node):
            raise PluginError(f"no attempt binds pod {pod.key} to node {node} at this moment")
        return attempt


def _never() -> bool:
    return False
