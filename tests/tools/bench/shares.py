"""Divides Mooring's CPU among its parts, by samples of its stack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile

from rich.table import Table

from bench.sampling import Stack

START_UP = "start-up"

PARTS: Sequence[tuple[str, tuple[str, ...]]] = (
    (START_UP, ("importlib._bootstrap:",)),
    ("events", ("mooring.kube.recorder:",)),
    ("status", ("mooring.scheduling.pod_status_reporter:PodStatusReporter._write",)),
    (
        "bind",
        ("mooring.scheduling.binding:bind", "mooring.scheduling.schedule_one:ScheduleOne._bind"),
    ),
    ("evict", ("mooring.scheduling.preemption_executor:",)),
    ("decide", ("mooring.scheduling.cycle:", "mooring.groups.search.group_decision:place_group")),
    ("loop", ("mooring.scheduling.loop:", "mooring.scheduling.schedule_one:")),
    ("mirror", ("mooring.kube.reflector:",)),
    ("intake", ("mooring.handlers.kopf_objects:ObjectHandlers.on_pod",)),
    ("kopf", ("kopf.", "kopf:")),
    ("mooring, other", ("mooring.",)),
    ("http and tls", ("aiohttp.", "ssl:")),
)
"""The parts with their prefixes of frames; a stack belongs to the first part that matches."""

ELSEWHERE = "event loop"
RUNNER = "asyncio.runners:"
"""The beginning of the frames around the event loop, which are the same in all stacks."""


def part_of(stack: Stack) -> str:
    inside = list(takewhile(lambda frame: not frame.startswith(RUNNER), stack))
    for name, prefixes in PARTS:
        if any(frame.startswith(prefixes) for frame in inside):
            return name
    return ELSEWHERE


def parts(samples: Mapping[Stack, int]) -> Counter[str]:
    counts = Counter[str]()
    for stack, count in samples.items():
        counts[part_of(stack)] += count
    return counts


def shares_table(samples: Mapping[Stack, int], cpu_us_per_pod: float) -> Table:
    """Return a table of microseconds per pod by part, without the start, with innermost frames."""
    counts = parts(samples)
    counts.pop(START_UP, None)
    whole = sum(counts.values()) or 1
    table = Table(title="Mooring's CPU per pod", title_justify="left")
    table.add_column("part")
    for title in ("share", "us/pod"):
        table.add_column(title, justify="right")
    table.add_column("most of it in")
    for name, count in counts.most_common():
        share = count / whole
        inner = Counter[str]()
        for stack, taken in samples.items():
            if part_of(stack) == name:
                inner[stack[0]] += taken
        most = ", ".join(f"{frame} {taken / count:.0%}" for frame, taken in inner.most_common(3))
        table.add_row(name, f"{share:.0%}", f"{share * cpu_us_per_pod:.0f}", most)
    return table
