"""Reads the metrics of the leading replica in one scrape."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from mooring.runtime.queued_pod import SubQueue
from mooring.simulate.manifests import InputError

QUEUES: Final = tuple(queue.value for queue in SubQueue)
"""The values of the label `queue` of scheduler_pending_pods."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one scrape; `values` maps each metric's name to its samples by labels.

    `time` is in seconds by the clock of the caller.
    """

    time: float
    values: Mapping[str, Mapping[frozenset[tuple[str, str]], float]] = field(repr=False)

    @classmethod
    def of(cls, page: str, now: float) -> "Reading":
        """Parse a page read at `now`; raise InputError if it is not in Prometheus' format."""
        try:
            families = [*text_string_to_metric_families(page)]
        except ValueError:
            raise InputError("what answers /metrics tells no metrics; is it Mooring?") from None
        values: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
        for family in families:
            for sample in family.samples:
                values[sample.name][frozenset(sample.labels.items())] = sample.value
        return cls(now, values)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the metric's samples that have these labels."""
        wanted = set(labels.items())
        return sum(value for have, value in self.values.get(name, {}).items() if wanted <= have)

    def by(self, name: str, *keys: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield each sample of the metric: the values of its labels `keys`, and its value."""
        for have, value in self.values.get(name, {}).items():
            labels = dict(have)
            yield tuple(labels.get(key, "") for key in keys), value

    def increases(self, before: "Reading") -> "Reading":
        """Return how much each counter has grown since the reading `before`.

        `time` of the result is the number of seconds between the two readings.
        """
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for name, samples in self.values.items():
            earlier = before.values.get(name, {})
            grown = found[name] = dict[frozenset[tuple[str, str]], float]()
            for labels, value in samples.items():
                was = earlier.get(labels, 0.0)
                # a smaller counter has started at zero: another replica leads now
                grown[labels] = value - was if value >= was else value
        return Reading(self.time - before.time, found)
