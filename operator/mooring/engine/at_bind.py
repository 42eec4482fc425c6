"""The Bindings that plugins have sent in an attempt at Bind.

A Binding that was sent cannot be undone. Whatever becomes of the plugin that sent it, its answer is
waited for, because it says whether the pod is bound. And no Binding is sent for an attempt that is
over: its pod may have another node by then.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mooring.shielding import shielded

__all__ = ["AtBind"]


class AtBind:
    """An attempt at Bind, made in the task that waits for the Bind plugins.

    They may bind the pod to `node`, as long as `wanted` returns True.
    """

    def __init__(self, node: str, wanted: Callable[[], bool]) -> None:
        self.node = node
        self._wanted = wanted
        self._task = asyncio.current_task()
        self._sent: list[asyncio.Task[None]] = []

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
        """Send no more Bindings, and wait for no answer any more."""
        self._wanted = _never
        unanswered = [task for task in self._sent if not task.done()]
        for task in unanswered:
            task.cancel()
        if unanswered:
            await asyncio.wait(unanswered)


def _never() -> bool:
    return False
