"""The order in which pods are tried: what the queueSort plugin of their profile says."""

import logging
from typing import Any

from mooring.engine.profiles import Profiles
from mooring.framework.queued_pod import QueuedPod, by_priority
from mooring.queueing.active import Order
from mooring.state.snapshot import Snapshot

__all__ = ["QueueOrder"]

logger = logging.getLogger(__name__)


class QueueOrder:
    """Gives each waiting pod its place; a plugin that fails costs its pods their order only."""

    def __init__(self, profiles: Profiles, cluster: Snapshot) -> None:
        self._profiles = profiles
        self._cluster = cluster
        self._failed: set[str] = set()

    def of(self, queued: QueuedPod) -> Order:
        """The pod's place; by priority and time where no plugin can say."""
        profile = self._profiles.of(queued.pod, self._cluster)
        if profile is None:
            return _by_priority(queued)
        plugin = profile.pipeline.queue_sort
        try:
            return Order(plugin.name, _comparable(plugin.sort_key(queued)))
        except Exception:
            if plugin.name not in self._failed:
                text = "plugin %s cannot sort pod %s: priority decides instead"
                logger.exception(text, plugin.name, queued.pod.key)
                self._failed.add(plugin.name)
            return _by_priority(queued)


def _by_priority(queued: QueuedPod) -> Order:
    return Order("", by_priority(queued))


def _comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key, of which any two can be compared: numbers come before texts."""
    for part in key:
        if not isinstance(part, int | float | str):
            raise TypeError(f"a key has numbers and texts, not {part!r}")
    return tuple((isinstance(part, str), part) for part in key)
