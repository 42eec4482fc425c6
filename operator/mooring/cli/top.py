"""The command `mooring top`: shows queues, rates and causes of pending pods, live."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mooring.cli.console import mistakes_reported, output_option, print_json, printable
from mooring.cli.explanation_text import duration
from mooring.cli.leader import Following, Leader, RefusedError, answer_of, leader_options, page_of
from mooring.cli.scrape import QUEUES, Reading
from mooring.model.wording import plural
from mooring.runtime.queued_pod import PodState

_RESULTS: Final = ("scheduled", "unschedulable", "error")
_LATENCY: Final = "scheduler_pod_scheduling_sli_duration_seconds"
_MOST_ROWS: Final = 15
"""The most causes in the table, because a terminal has 24 lines; one more row sums up the
others."""
_NO_CAUSES: Final = "causes: need the right to get /debug/pending (ClusterRole mooring-explain)"


@click.command(
    epilog="""\b
Examples:
  mooring top
  mooring top --every 5
  mooring top --once -o json"""
)
@click.option(
    "--every",
    type=click.FloatRange(1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two readings.",
)
@click.option("--once", is_flag=True, help="Show one interval and exit.")
@leader_options
@output_option("table", "json")
def top(every: float, output: str, *, once: bool, **options: Any) -> None:
    """Show queues, rates and causes of pending pods, live.

    Reads the leading replica's metrics until Ctrl-C. Rates and latencies are those of the interval
    between the last two readings; a latency is the upper bound of its bucket in the histogram.
    Pending pods are counted by cause, as on the page. With -o json, each interval is one JSON
    object. The user must be allowed to get /metrics (ClusterRole mooring-metrics), to get
    /debug/pending for the causes (ClusterRole mooring-explain), and to reach the leading replica
    (Role mooring-explain). Exits with 2 if the leading replica cannot be reached.
    """
    intervals = _intervals(Leader(**options), every, once=once)
    with mistakes_reported(), suppress(KeyboardInterrupt):
        if output == "json":
            for view in intervals:
                print_json(view)
            return
        console = Console()
        if not console.is_terminal:
            for view in intervals:
                console.print(rendered(view))
            return
        with Live(console=console, auto_refresh=False) as live:
            for view in intervals:
                live.update(rendered(view), refresh=True)


def _intervals(leader: Leader, every: float, *, once: bool) -> Iterator[dict[str, Any]]:
    following = Following()

    def read() -> Reading:
        page = following.ask(partial(page_of, leader, "/metrics"))
        return Reading.of(page, time.monotonic())

    before = read()
    while True:
        time.sleep(every)
        after = read()
        yield interval(before, after, following.ask(partial(_pending, leader)))
        if once:
            return
        before = after


def _pending(leader: Leader) -> dict[str, Any] | None:
    try:
        return answer_of(leader, "/debug/pending", "causes", absent="404")  # an older leader
    except RefusedError:
        return None


def interval(before: Reading, after: Reading, waiting: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a JSON object about the time between two readings; all rates are per second.

    `waiting` is the answer of /debug/pending at the end of the interval; None if the user may not
    read it.
    """
    grown = after.increases(before)

    def rate(name: str, **labels: str) -> float:
        return round(grown.total(name, **labels) / max(grown.time, 1e-9), 1)

    pending = {name: int(after.total("scheduler_pending_pods", queue=name)) for name in QUEUES}
    return {
        "leader": bool(after.total("leader_election_master_status")),
        "queues": pending,
        "beingBound": int(after.total("mooring_bindings_in_flight")),
        "attemptsPerSecond": {
            result: rate("scheduler_schedule_attempts_total", result=result) for result in _RESULTS
        },
        "preemptionsPerSecond": rate("scheduler_preemption_attempts_total"),
        "secondsUntilBound": {
            name: _quantile(grown, share) for name, share in (("p50", 0.5), ("p99", 0.99))
        },
        "podGroups": {
            phase: int(count) for (phase,), count in after.by("mooring_pod_groups", "phase")
        },
        "reservedNodes": int(after.total("mooring_reserved_nodes")),
        "pending": waiting,
    }


def _quantile(grown: Reading, share: float) -> float | None:
    """Return within how many seconds this share (0 to 1) of the pods was bound; None if unknown."""
    buckets: dict[float, float] = defaultdict(float)
    for (upper,), value in grown.by(f"{_LATENCY}_bucket", "le"):
        buckets[float(upper)] += value
    if not buckets or buckets[max(buckets)] <= 0:
        return None
    wanted = share * buckets[max(buckets)]
    bound = next(bound for bound in sorted(buckets) if buckets[bound] >= wanted)
    return bound if bound != float("inf") else None


def rendered(view: Mapping[str, Any]) -> Group:
    """Return the document of `interval` for a terminal: lines, and a table of causes."""
    queues, rates = view["queues"], view["attemptsPerSecond"]
    half, most = (_seconds(view["secondsUntilBound"][name]) for name in ("p50", "p99"))
    preemptions = view["preemptionsPerSecond"]
    lines = [
        "QUEUE     " + "   ".join(f"{name} {queues[name]:,}" for name in QUEUES),
        "ATTEMPTS  " + "   ".join(f"{name} {rates[name]:,.1f}/s" for name in _RESULTS),
        f"BOUND     in half of the cases within {half}, in 99 % within {most}",
        f"          {view['beingBound']} being bound   preemptions {preemptions:.1f}/s",
    ]
    waiting = printable(view["pending"])
    if waiting is not None and (number := waiting["states"].get(PodState.NO_PROFILE)):
        lines.insert(1, f"          {PodState.NO_PROFILE} {number:,}")
    if view["podGroups"]:
        phases = "   ".join(f"{phase} {count:,}" for phase, count in view["podGroups"].items())
        reserved = view["reservedNodes"]
        kept = f"   {plural(reserved, 'node')} reserved" if reserved else ""
        lines.append(f"GROUPS    {phases}{kept}")
    if not view["leader"]:
        lines.insert(0, "this replica does not lead: its numbers stay at zero")
    parts: list[Any] = [Text("\n".join(lines))]
    if waiting is None:
        parts.append(Text(f"\n{_NO_CAUSES}"))
    elif waiting["causes"] or waiting["otherCauses"]:
        hint = "\nmooring explain POD says what would make it fit"
        parts += [Text(""), _table(waiting), Text(hint)]
    return Group(*parts)


def _table(waiting: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    table.add_column("PODS", justify="right")
    table.add_column("OLDEST")
    table.add_column("WAIT FOR", overflow="fold")
    causes = waiting["causes"]
    for cause in causes[:_MOST_ROWS]:
        oldest = duration(cause["oldestSeconds"])
        table.add_row(f"{cause['pods']:,}", oldest, Text(cause["cause"], overflow="fold"))
    if more := causes[_MOST_ROWS:]:
        pods = sum(cause["pods"] for cause in more)
        table.add_row(f"{pods:,}", "", plural(len(more), "more cause"))
    if other := waiting["otherCauses"]:
        table.add_row(f"{other:,}", "", "causes that none of your pods has")
    return table


def _seconds(value: float | None) -> str:
    return f"{value:g} s" if value is not None else "-"
