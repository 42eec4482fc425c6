"""Measures the rate of bindings as upstream's throughput collector does."""

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
    """The throughput of the pods of one measurement."""

    pods: int
    """How many of the pods were bound."""
    samples: tuple[float, ...]
    """Pods per second, ascending; empty if all pods were bound within about one interval."""
    whole_seconds: float
    """Seconds from the beginning of the measurement to the last binding."""
    cpu_seconds: float
    """The CPU of the scheduler during the measurement."""

    @property
    def average(self) -> float | None:
        """The average of the samples; upstream compares it with its threshold."""
        return sum(self.samples) / len(self.samples) if self.samples else None

    @property
    def percentiles(self) -> dict[str, float]:
        """The percentiles of the samples by upstream's names, such as Perc50."""
        count = len(self.samples)
        return {
            f"Perc{hundredths}": self.samples[math.ceil(count * hundredths / 100) - 1]
            for hundredths in PERCENTILES
            if count
        }

    @property
    def whole(self) -> float:
        """All bound pods divided by the whole time, in pods per second."""
        return self.pods / self.whole_seconds if self.whole_seconds else 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        """Milliseconds of the scheduler's CPU per bound pod."""
        return 1e3 * self.cpu_seconds / max(self.pods, 1)


def rates(times: Sequence[float], began: float) -> list[float]:
    """Return the samples, in pods per second and ascending, for bindings at these ascending times.

    Bindings are counted at the end of each interval from `began` to the last binding. The samples
    begin after the first interval with a binding. An interval without a binding gets the same
    sample as the next interval with bindings: the rate over both.
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
