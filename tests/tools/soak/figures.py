"""Judges and prints the measurements of a run, in at most 80 columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from faults.books import Verdict

GROWTH_SHARE: Final = 0.10
GROWTH_MIB: Final = 20.0
"""The MiB that memory may grow in addition to a share, because arenas fill unevenly."""
MORE_TASKS: Final = 10
"""The tasks that a quiet replica may have more at the end than at the beginning."""
WARM_SECONDS: Final = 60.0
"""The seconds in which a new process, or a new leader, reads the cluster first."""
JUDGED_SECONDS: Final = 60.0
"""The least seconds of samples after that for a trend."""

HEADER: Final = "minute  bound  pending  faults  leaders     rss MiB     tasks"


@dataclass(frozen=True)
class Minute:
    """The figures of one minute: a line of the output."""

    number: int
    bound: int
    pending: int
    faults: int
    leaders: int
    """How often the holder of the lease has changed."""
    rss: Sequence[float]
    tasks: Sequence[int]

    def __str__(self) -> str:
        rss = "/".join(f"{mib:.0f}" for mib in self.rss)
        tasks = "/".join(map(str, self.tasks))
        return (
            f"{self.number:6}  {self.bound:5}  {self.pending:7}  {self.faults:6}"
            f"  {self.leaders:7}  {rss:>10}  {tasks:>8}"
        )


@dataclass
class Life:
    """The memory of one process over time; a leader needs more than a stand-by."""

    name: str
    _warm: dict[bool, list[tuple[float, float]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    """Times and MiB of samples when the process had led, or stood by, for long enough."""
    _leads: bool | None = None
    _since: float = 0.0

    def note(self, at: float, mib: float, *, leads: bool) -> None:
        """Note the memory at this time, in seconds of any clock, and whether the process leads."""
        if leads is not self._leads:
            self._leads, self._since = leads, at
        if at - self._since >= WARM_SECONDS:
            self._warm[leads].append((at, mib))

    def trends(self) -> Iterator[tuple[float, float]]:
        """Yield the median MiB of the first and of the last quarter, as leader and as stand-by."""
        for warm in self._warm.values():
            if warm and warm[-1][0] - warm[0][0] >= JUDGED_SECONDS:
                quarter = max(1, len(warm) // 4)
                first, last = warm[:quarter], warm[-quarter:]
                yield median(mib for _, mib in first), median(mib for _, mib in last)


def growth(lives: Iterable[Life], tasks: tuple[int, int]) -> list[str]:
    """Return a line for each growth: of a process's memory, or of the tasks when quiet."""
    found = []
    for life in lives:
        for first, last in life.trends():
            if last > first * (1 + GROWTH_SHARE) + GROWTH_MIB:
                found.append(f"{life.name} grew from {first:.0f} to {last:.0f} MiB")
    begin, end = tasks
    if end > begin + MORE_TASKS:
        found.append(f"a quiet leader had {begin} tasks at the beginning and {end} at the end")
    return found


@dataclass(frozen=True)
class Happened:
    """An episode that has happened, with its time."""

    at: float
    """Seconds of CLOCK_MONOTONIC."""
    name: str


def fault_table(
    happened: Sequence[Happened], struck: Mapping[str, int], verdict: Verdict, end: float
) -> list[str]:
    """Return a Markdown table of the faults and their effects, with a row per fault.

    Columns: how often the fault struck, pods lost, pods bound twice, nodes over their allocatable,
    victims evicted in vain, writes after the lease was lost, and the longest time without a binding
    while a feasible pod waited. An error is attributed to the last fault before it.
    """
    names = list(dict.fromkeys(episode.name for episode in happened))
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for episode, following in pairwise([*happened, Happened(end, "")]):
        spans[episode.name].append((episode.at, following.at))
    rows = [
        ["fault", "times", "lost", "twice", "over", "vain", "late", "stall"],
        ["---", *["--:"] * 7],
    ]
    columns = (
        verdict.lost,
        verdict.doubled,
        verdict.overcommitted,
        verdict.needless,
        verdict.unauthorised,
    )
    for name in sorted(names):
        own = spans[name]
        wrong = [sum(_within(at, own) for at, _ in column) for column in columns]
        stall = max(verdict.longest_stall(*span) for span in own)
        times = struck.get(name, 0)
        rows.append([name, str(times), *map(str, wrong), f"{stall:.1f} s"])
    whole = max((verdict.longest_stall(*span) for own in spans.values() for span in own), default=0)
    total = sum(int(row[1]) for row in rows[2:])
    rows.append(["all", str(total), *(str(len(column)) for column in columns), f"{whole:.1f} s"])
    return [_row(row) for row in rows]


def _within(at: float, spans: Iterable[tuple[float, float]]) -> bool:
    return any(begin <= at < end for begin, end in spans)


def _row(cells: Sequence[str]) -> str:
    first, *rest = cells
    widths = (5, 4, 5, 4, 4, 4, 6)
    numbers = (f"{cell:>{width}}" for cell, width in zip(rest, widths, strict=True))
    return f"| {first:<23} | {' | '.join(numbers)} |"
