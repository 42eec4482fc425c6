"""Counters and histograms that cost little, because every pod updates a dozen of them.

prometheus_client guards each number with a lock. Mooring needs no locks, because only one thread
writes: `Distribution.observe` takes 0.14 us instead of 0.7 us. prometheus_client still writes the
text of a scrape, from the metric families that `collect` returns.
"""

from bisect import bisect_left
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

_LONGEST_VALUE: Final = 512
_VALUE: Final = 256
"""The bytes of a label value in memory, without the bytes of its characters."""


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` upper bounds; each bound is `factor` times the bound before."""
    # Computed as by Go's client: the `le` labels agree to the last digit.
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class LabelValues:
    """The values of a label that users choose; after `most` values, new values become "other"."""

    def __init__(self, most: int) -> None:
        self.most_bytes = most * (_LONGEST_VALUE + _VALUE)
        self.bytes = 0
        """The estimated bytes of all values in memory."""
        self._most = most
        self._values: set[str] = set()

    def of(self, value: str) -> str:
        """Return the value; "other" if the value is too long, or new after `most` values."""
        if value not in self._values:
            if len(self._values) >= self._most or len(value) > _LONGEST_VALUE:
                return "other"
            self._values.add(value)
            self.bytes += len(value) + _VALUE
        return value


class Count:
    """One series of a counter: the value for one combination of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add `amount`, which must not be negative, to the value."""
        self.value += amount


class Distribution:
    """One series of a histogram: the number of values in each bucket, and the sum of all values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count `value` in the first bucket with a bound that is not below `value`."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


_Series = TypeVar("_Series", Count, Distribution)


class _Family(Generic[_Series]):
    """A metric with one series for each combination of label values."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], _Series] = {}

    def child(self, *values: str) -> _Series:
        """Return the series with these label values, made at the first call; callers keep it."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = self._new()
        return series

    def _new(self) -> _Series:
        raise NotImplementedError

    def keep(self, label: str, values: Container[str]) -> None:
        """Remove the series with values of `label` that are not in `values`."""
        if label not in self._labels:
            return
        at = self._labels.index(label)
        self._series = {key: one for key, one in self._series.items() if key[at] in values}


class CounterFamily(_Family[Count]):
    """A counter and its series, one per combination of label values."""

    def _new(self) -> Count:
        return Count()

    def collect(self) -> CounterMetricFamily:
        """Return the current values, in prometheus_client's form."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._series.items():
            family.add_metric(values, count.value)
        return family


class HistogramFamily(_Family[Distribution]):
    """A histogram and its series; `bounds` are finite and rising, without `+Inf`."""

    def __init__(
        self, name: str, documentation: str, bounds: tuple[float, ...], labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name, documentation, labels)
        self._bounds = bounds

    def _new(self) -> Distribution:
        return Distribution(self._bounds)

    def collect(self) -> HistogramMetricFamily:
        """Return the current values, in prometheus_client's form."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for values, distribution in self._series.items():
            buckets = list(zip(bounds, accumulate(distribution.counts), strict=True))
            family.add_metric(values, buckets, distribution.total)
        return family
