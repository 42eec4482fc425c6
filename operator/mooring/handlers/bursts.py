"""Handles the events of pods without kopf when many come at once.

kopf starts a task for each object, and passes each event through a queue, a memory and some
wrappers. This takes a third of the CPU time of a pod from its creation to its binding. kopf still
lists and watches; a bookmark tells kopf which version was handled.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from mooring.kube.response_checks import WatchEvent

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 0.1
"""The seconds without an event after which the next event goes through kopf."""

OnPod = Callable[[Mapping[str, Any]], Awaitable[None]]
"""A function that takes a watch event: `type`, `object`, and `size` in bytes if it is known."""


class PodEventFilter:
    """Gives the events of a watch of pods to `on_pod`, except those that kopf must get.

    Once kopf has seen a pod, kopf gets all events of this pod until its deletion. Otherwise events
    could change their order, because kopf delivers events late.
    """

    def __init__(self, on_pod: OnPod, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_pod = on_pod
        self._clock = clock
        self._last = -math.inf
        self._kopfs: set[str] = set()
        """The uids of the pods that kopf has seen."""

    def listed(self, pods: Iterable[Mapping[str, Any]], *, goes_on: bool = False) -> None:
        """Let kopf get all later events of these pods, which are on a page of kopf's list.

        `goes_on` is False for the first page of a list: forget the pods of the former list.
        """
        if not goes_on:
            self._kopfs.clear()
        self._kopfs.update(pod["metadata"]["uid"] for pod in pods)

    async def takes(self, kind: WatchEvent, raw: Mapping[str, Any], size: int) -> bool:
        """Give the event of `size` bytes to `on_pod`; return False if kopf must get it instead."""
        if kind in ("BOOKMARK", "ERROR"):
            return False
        uid, now = raw["metadata"]["uid"], self._clock()
        is_quiet = now - self._last >= QUIET_SECONDS
        self._last = now
        if is_quiet or uid in self._kopfs:
            (self._kopfs.discard if kind == "DELETED" else self._kopfs.add)(uid)
            return False
        await self._on_pod({"type": kind, "object": raw, "size": size})
        return True
