"""Takes pods' events past kopf where they come fast.

For each object kopf starts a task, and each event goes through a queue, a memory and some wrappers
of it: a third of all that a pod costs from its creation to its binding. kopf lists and watches all
the same, and starts its watch again; it is told by a bookmark up to which version all was read.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from mooring.kube.answers import WatchEvent

__all__ = ["Bursts", "OnPod"]

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 0.1
"""An event that comes so long after the last one goes through kopf, as one of a known pod does."""

OnPod = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes an event of a watch: `type` and `object`, and its `size` in bytes if that is known."""


class Bursts:
    """Hands the events of a watch of pods to `on_pod`, except those that kopf has to get.

    All events of one pod must go the same way, because kopf's tasks would be overtaken. So a pod
    that kopf was shown stays with it until it is told that the pod has gone; then kopf has
    forgotten it as well.
    """

    def __init__(self, on_pod: OnPod, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_pod = on_pod
        self._clock = clock
        self._last = -math.inf
        self._kopfs: set[str] = set()
        """The uids of the pods that kopf was shown."""

    def listed(self, pods: Iterable[Mapping[str, Any]], *, goes_on: bool = False) -> None:
        """Note that kopf is shown these pods by a page of a list; it `goes_on` after the first one.

        Of others than those of the whole list kopf will never hear again.
        """
        if not goes_on:
            self._kopfs.clear()
        self._kopfs.update(pod["metadata"]["uid"] for pod in pods)

    async def takes(self, kind: WatchEvent, raw: Mapping[str, Any], size: int) -> bool:
        """Return whether the event was handed over; if not, kopf has to get it.

        `size` is that of the event, in bytes.
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
