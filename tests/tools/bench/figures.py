"""The figures of a run, and the comparison of two schedulers' runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

AT_THE_LIMIT = 0.9
"""At this share of the API server's limit, a scheduler counts as fast as any can be."""


@dataclass(frozen=True)
class Run:
    """The figures of one scheduler in one run of one workload."""

    scheduler: str
    pods: int
    bound: int
    seconds: float
    """Seconds from the first sign of a decision to the last binding."""
    first_bind_seconds: float
    """Seconds from the start of the scheduler's process to the first binding."""
    whole_seconds: float
    """Seconds from the start of the scheduler's process to the last binding."""
    cpu_seconds: float
    """The CPU of the scheduler, from its start until it had no work left."""
    drain_cpu_seconds: float
    """The part of `cpu_seconds` after the first sign of a decision."""
    peak_mib: float
    apiserver_cpu_seconds: float
    etcd_cpu_seconds: float
    """The CPU of kube-apiserver and of etcd (these two fields), measured as `cpu_seconds`."""
    evicted: int
    writes: dict[str, int] = field(default_factory=dict)
    """The number of writes to pods and events, by verb and resource."""
    refusals: dict[str, int] = field(default_factory=dict)
    """The number of answers with status 409 or 429, by request."""
    others: int = 0
    """The number of bound pods of the workload's second kind, if there is one."""
    others_seconds: float = 0.0
    """Seconds from the first sign of a decision to the last binding of the second kind."""
    beside_cpu_seconds: float = 0.0
    """The CPU of the claim controller, if it runs, and of this program, which creates pods."""
    faults: tuple[str, ...] = ()
    """The faults in the placement; any fault makes the figures void."""

    @property
    def pods_per_second(self) -> float:
        """Bound pods per second, over `seconds`."""
        return rate(self.bound, self.seconds)

    @property
    def others_per_second(self) -> float:
        """Bound pods of the second kind per second, over `others_seconds`."""
        return rate(self.others, self.others_seconds)

    @property
    def cpu_us_per_pod(self) -> float:
        """Microseconds of the scheduler's CPU per pod, without the start."""
        return 1e6 * self.drain_cpu_seconds / max(self.bound, 1)

    @property
    def whole_cpu_ms_per_pod(self) -> float:
        """Milliseconds of all programs' CPU per pod; this bounds a machine's pods/s."""
        servers = self.apiserver_cpu_seconds + self.etcd_cpu_seconds
        whole = self.drain_cpu_seconds + servers + self.beside_cpu_seconds
        return 1e3 * whole / max(self.bound, 1)

    @property
    def writes_per_pod(self) -> float:
        """Bindings, events, status patches and deletions per pod."""
        return sum(self.writes.values()) / max(self.bound, 1)


@dataclass(frozen=True)
class Comparison:
    """The first of two schedulers compared with the second; None if a run is void."""

    ratio: float | None
    """The median of the first scheduler's pods/s divided by the second's."""
    cpu_ratio: float | None
    """The median CPU per pod divided by the second scheduler's; other load disturbs it less."""
    goal: float
    cpu_us_per_pod: float | None = None
    """The first scheduler's median CPU per pod, in microseconds."""
    whole_seconds: tuple[float, float] | None = None
    """The median seconds of both schedulers from their start to the last binding."""
    others_ratio: float | None = None
    """The ratio of the medians of the second kind's pods/s; None without a second kind."""
    of_limit: float | None = None
    """The first scheduler's pods/s divided by the API server's limit, if that was measured."""

    @property
    def reached(self) -> bool:
        """Whether the ratio reaches the goal, or the scheduler is at the API server's limit."""
        if self.ratio is None:
            return False
        return self.ratio >= self.goal or (self.of_limit or 0.0) >= AT_THE_LIMIT


def rate(pods: int, seconds: float) -> float:
    """Return pods per second; 0 if fewer than two bindings span no time."""
    return pods / seconds if seconds > 0 else 0.0


def compare(
    runs: Iterable[Run], first: str, second: str, goal: float, limit: str = ""
) -> Comparison:
    """Return the comparison of two schedulers by label; `limit` is the label of the baseline."""
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
    """Return the first scheduler's CPU per pod divided by another workload's; None if void."""
    if result.cpu_us_per_pod is None or not other.cpu_us_per_pod:
        return None
    return result.cpu_us_per_pod / other.cpu_us_per_pod


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return our figure divided by the second scheduler's; None if the second scheduler's is 0."""
    below = median(theirs)
    return median(ours) / below if below else None
