"""The figures of a run, and what two schedulers' runs say together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

AT_THE_LIMIT = 0.9
"""From this share of the API server's limit on, a scheduler is as fast as any can be."""


@dataclass(frozen=True)
class Run:
    """One scheduler on one workload, once."""

    scheduler: str
    pods: int
    bound: int
    seconds: float
    """From the first sign of a decision to the last binding."""
    first_bind_seconds: float
    """From the start of the scheduler's process to the first binding."""
    whole_seconds: float
    """From the start of the scheduler's process to the last binding."""
    cpu_seconds: float
    """The scheduler's, from its start until it had nothing left to do."""
    drain_cpu_seconds: float
    """Of these, those after the first sign of a decision."""
    peak_mib: float
    apiserver_cpu_seconds: float
    etcd_cpu_seconds: float
    """The servers', from the scheduler's start until it had nothing left to do."""
    evicted: int
    writes: dict[str, int] = field(default_factory=dict)
    """Writes to pods and events, by verb and resource."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Requests answered with 409 or 429."""
    others: int = 0
    """Bound pods of the workload's second kind, if it has one."""
    others_seconds: float = 0.0
    """From the first sign of a decision to their last binding."""
    beside_cpu_seconds: float = 0.0
    """The claim controller's, where it runs, and this program's, which makes and observes pods."""
    faults: tuple[str, ...] = ()
    """What is wrong with the placement; any fault makes the figures void."""

    @property
    def pods_per_second(self) -> float:
        """Bound pods over the seconds that it took."""
        return rate(self.bound, self.seconds)

    @property
    def others_per_second(self) -> float:
        """Bound pods of the second kind over the seconds that they took."""
        return rate(self.others, self.others_seconds)

    @property
    def cpu_us_per_pod(self) -> float:
        """The scheduler's CPU after its start-up, for each pod."""
        return 1e6 * self.drain_cpu_seconds / max(self.bound, 1)

    @property
    def whole_cpu_ms_per_pod(self) -> float:
        """The CPU of all programs for each pod: so many pods/s a machine allows, however busy."""
        servers = self.apiserver_cpu_seconds + self.etcd_cpu_seconds
        whole = self.drain_cpu_seconds + servers + self.beside_cpu_seconds
        return 1e3 * whole / max(self.bound, 1)

    @property
    def writes_per_pod(self) -> float:
        """Bindings, events, status patches and deletions."""
        return sum(self.writes.values()) / max(self.bound, 1)


@dataclass(frozen=True)
class Comparison:
    """The first of two schedulers over the second; None where a run is void."""

    ratio: float | None
    """Of the medians of their pods/s."""
    cpu_ratio: float | None
    """Of the medians of their CPU per pod; other load on the machine disturbs it less."""
    goal: float
    cpu_us_per_pod: float | None = None
    """The first one's, in microseconds."""
    whole_seconds: tuple[float, float] | None = None
    """The medians of both schedulers' seconds from their start to the last binding."""
    others_ratio: float | None = None
    """Of the medians of the second kind's pods/s; None without a second kind."""
    of_limit: float | None = None
    """The first one's pods/s over those of a client that makes the same writes, if that ran."""

    @property
    def reached(self) -> bool:
        """Whether the ratio is the goal or more, or nobody could be faster."""
        if self.ratio is None:
            return False
        return self.ratio >= self.goal or (self.of_limit or 0.0) >= AT_THE_LIMIT


def rate(pods: int, seconds: float) -> float:
    """Return pods per second; 0 where fewer than two bindings span no time."""
    return pods / seconds if seconds > 0 else 0.0


def compare(
    runs: Iterable[Run], first: str, second: str, goal: float, limit: str = ""
) -> Comparison:
    """Return the comparison of two schedulers by their labels; `limit` decides nothing."""
    by_label: dict[str, list[Run]] = {first: [], second: [], limit: []}
    for run in runs:
        by_label[run.scheduler].append(run)
    ours, theirs = by_label[first], by_label[second]
    at_limit = by_label[limit]
    if not (ours and theirs) or any(run.faults for run in (*ours, *theirs, *at_limit)):
        return Comparison(None, None, goal)
    return Comparison(
        ratio=_ratio(
            [run.pods_per_second for run in ours], [run.pods_per_second for run in theirs]
        ),
        cpu_ratio=_ratio(
            [run.cpu_us_per_pod for run in ours], [run.cpu_us_per_pod for run in theirs]
        ),
        goal=goal,
        cpu_us_per_pod=median(run.cpu_us_per_pod for run in ours),
        whole_seconds=(
            median(run.whole_seconds for run in ours),
            median(run.whole_seconds for run in theirs),
        ),
        others_ratio=_ratio(
            [run.others_per_second for run in ours], [run.others_per_second for run in theirs]
        ),
        of_limit=_ratio(
            [run.pods_per_second for run in ours], [run.pods_per_second for run in at_limit]
        )
        if at_limit
        else None,
    )


def times_the_cpu(result: Comparison, other: Comparison) -> float | None:
    """Return the first scheduler's CPU per pod over another workload's; None if either is void."""
    if result.cpu_us_per_pod is None or not other.cpu_us_per_pod:
        return None
    return result.cpu_us_per_pod / other.cpu_us_per_pod


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return our figure as a share of theirs; None where theirs is 0: nothing was measured."""
    below = median(theirs)
    return median(ours) / below if below else None
