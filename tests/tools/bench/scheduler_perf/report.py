"""Shows the runs in a table that fits a terminal, and writes them as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

from rich import box
from rich.table import Table

from bench.command import write
from bench.scheduler_perf.reading import Workload
from bench.scheduler_perf.stage import PerfRun
from bench.scheduler_perf.throughput import Throughput
from bench.schedulers import KubeScheduler, Mooring

FILE: Final = "scheduler_perf.json"


@dataclass(frozen=True)
class Result:
    """A workload with its runs beside both schedulers."""

    workload: Workload
    runs: Sequence[PerfRun]


def results_table(results: Sequence[Result]) -> Table:
    """Return a table with a row for each measurement of each workload: the means of the runs."""
    table = Table(
        title="Kubernetes' scheduler_perf: average pods/s",
        title_justify="left",
        caption="upstream: its threshold. Mooring / kube-scheduler: times, of the averages;\n"
        "all, of the pods from the first creation to the last binding; CPU, for a pod",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("workload", overflow="fold", min_width=28)
    for title in ("Mooring", "kube-s.", "upstream", "times", "all", "CPU"):
        table.add_column(title, justify="right", no_wrap=True)
    for result in results:
        for row in _rows(result):
            table.add_row(*row)
    return table


def faults(results: Sequence[Result]) -> list[str]:
    """Return the faults of the runs, as lines."""
    return [
        f"{result.workload.name}, {run.scheduler}: {run.fault}"
        for result in results
        for run in result.runs
        if run.fault
    ]


def write_json(folder: Path, results: Sequence[Result], left_out: Sequence[Workload]) -> Path:
    """Write all figures to a file; return its path."""
    document = {
        "workloads": [_described(result) for result in results],
        "left_out": {workload.name: workload.obstacles for workload in left_out},
    }
    return write(folder / FILE, document)


def _rows(result: Result) -> Iterator[Sequence[str]]:
    """Yield the cells of each measurement; "void" for a run with a fault."""
    name, threshold = result.workload.name, result.workload.threshold
    if any(run.fault for run in result.runs):
        yield name, *(_void(result, label) for label in (Mooring.label, KubeScheduler.label))
        return
    numbers = range(len(result.runs[0].measured))
    for number in numbers:
        ours, theirs = (
            [run.measured[number] for run in result.runs if run.scheduler == label]
            for label in (Mooring.label, KubeScheduler.label)
        )
        averages = _average(ours), _average(theirs)
        yield (
            f"{name} #{number + 1}" if len(numbers) > 1 else name,
            *("short" if average is None else f"{average:.0f}" for average in averages),
            f"{threshold:g}" if threshold else "",
            _times(*averages),
            _times(*(mean(one.whole for one in some) for some in (ours, theirs))),
            _times(*(mean(one.cpu_ms_per_pod for one in some) for some in (ours, theirs))),
        )


def _void(result: Result, label: str) -> str:
    of_label = [run for run in result.runs if run.scheduler == label]
    return "void" if any(run.fault for run in of_label) else ""


def _average(measured: Sequence[Throughput]) -> float | None:
    """Return the mean of the runs' averages; None if a run was too short for a sample."""
    averages = [one.average for one in measured]
    known = [average for average in averages if average is not None]
    return mean(known) if known and len(known) == len(averages) else None


def _times(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else ""


def _described(result: Result) -> dict[str, Any]:
    workload = result.workload
    return {
        "name": workload.name,
        "labels": sorted(workload.labels),
        "gates": workload.gates,
        "threshold": workload.threshold,
        "runs": [
            {
                "scheduler": run.scheduler,
                "fault": run.fault,
                "measured": [
                    {
                        **asdict(one),
                        "average": one.average,
                        "percentiles": one.percentiles,
                        "whole": one.whole,
                        "cpu_ms_per_pod": one.cpu_ms_per_pod,
                    }
                    for one in run.measured
                ],
            }
            for run in result.runs
        ],
    }
