"""How many pods are unschedulable, by the plugins that rejected them."""

from collections import Counter
from collections.abc import Mapping

from mooring.framework.queued_pod import QueuedPod

__all__ = ["UnschedulableCounts"]


class UnschedulableCounts:
    """Counts of (plugin, profile), kept up to date as pods enter and leave the unschedulable pods.

    A scrape reads them, and so costs nothing that grows with the number of pods. A pod rejected by
    two plugins counts for both, as in kube-scheduler's metric unschedulable_pods.
    """

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()

    def add(self, queued: QueuedPod) -> None:
        """The pod is unschedulable now."""
        for plugin in queued.unschedulable_plugins:
            self._counts[plugin, queued.profile] += 1

    def remove(self, queued: QueuedPod) -> None:
        """The pod is not unschedulable any more; its plugins and profile are still those of add."""
        for plugin in queued.unschedulable_plugins:
            key = plugin, queued.profile
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def read(self) -> Mapping[tuple[str, str], int]:
        """The counts now, without zeros; a copy."""
        return dict(self._counts)
