"""The rate of bindings, counted as upstream's throughput collector does."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INTERVAL: Final = 1.0
"""Seconds between two samples."""
PERCENTILES: Final = (50, 90, 95, 99)


@dataclass(frozen=True)
class Throughput:
    """Of the pods that were measured together."""

    pods: int
    """How many were bound."""
    samples: tuple[float, ...]
    """Pods per second, ascending; empty if all were bound within about an interval."""
    whole_seconds: float
    """From the beginning of the measurement to the last binding."""
    cpu_seconds: float
    """The scheduler's, from the beginning of the measurement to its end."""

    @property
    def average(self) -> float | None:
        """The average of the samples, which upstream compares with its threshold."""
        return sum(self.samples) / len(self.samples) if self.samples else None

    @property
    def percentiles(self) -> dict[str, float]:
        """The samples' percentiles by upstream's names, such as Perc50."""
        count = len(self.samples)
        return {
            f"Perc{hundredths}": self.samples[math.ceil(count * hundredths / 100) - 1]
            for hundredths in PERCENTILES
            if count
        }

    @property
    def whole(self) -> float:
        """All pods over all the time, in pods per second."""
        return self.pods / self.whole_seconds if self.whole_seconds else 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        """The scheduler's CPU for each pod that was bound."""
        return 1e3 * self.cpu_seconds / max(self.pods, 1)


def rates(times: Sequence[float], began: float) -> list[float]:
    """Return the samples of bindings at these ascending times, in pods per second, ascending.

    The bindings are counted at the end of each interval from `began` until all have been. Nothing
    is known before the first interval with a binding has ended. An interval without one counts as
    much as the next one with some, at the rate over both.
    """
    found: list[float] = []
    last: tuple[float, int] | None = None
    tick, counted = 0, 0
    while counted < len(times):
        tick += 1
        now = began + tick * INTERVAL
        counted = bisect_right(times, now)
        if not counted:
            continue
        if last is None:
            last = now, counted
        elif counted > last[1]:
            seconds = now - last[0]
            found += [(counted - last[1]) / seconds] * round(seconds / INTERVAL)
            last = now, counted
    return sorted(found)
