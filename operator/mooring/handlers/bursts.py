"""Handles the events of pods without kopf where there are many.

kopf starts a task for each object, and passes each event through a queue, a memory and some
wrappers: a third of a pod's whole cost from its creation to its binding. kopf still lists and
watches, and restarts its watch; a bookmark tells it the version up to which events were handled.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from mooring.kube.response_checks import WatchEvent

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 0.1
"""An event that comes so long after the last one goes through kopf, as one of a known pod does."""

OnPod = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes an event of a watch: `type` and `object`, and its `size` in bytes if that is known."""


class PodEventFilter:
    """Gives the events of a watch of pods to `on_pod`, except those that kopf must get.

    All events of one pod must take the same way, because kopf's tasks would be overtaken. So kopf
    gets all events of a pod that it has seen, until the pod is deleted and kopf has forgotten it.
    """

    def __init__(self, on_pod: OnPod, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_pod = on_pod
        self._clock = clock
        self._last = -math.inf
        self._kopfs: set[str] = set()
        """The uids of the pods that kopf was shown."""

    def listed(self, pods: Iterable[Mapping[str, Any]], *, goes_on: bool = False) -> None:
        """Note that kopf is shown these pods by a page of a list; it `goes_on` after the first one.

        Once kopf has listed all pods, it forgets every pod that is not in the list.
        """
        if not goes_on:
            self._kopfs.clear()
        self._kopfs.update(pod["metadata"]["uid"] for pod in pods)

    async def takes(self, kind: WatchEvent, raw: Mapping[str, Any], size: int) -> bool:
        """Return whether `on_pod` got the event; if not, kopf must get it.

        `size` is the event's size in bytes.
        """
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
