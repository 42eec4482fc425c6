"""The command `python -m bench.queues`: Mooring with 200 Queues in three levels, beside none.

The pods and the nodes are the same. Runs with and without Queues take turns, first for drains of
the workloads `queues-none` and `queues`, then for pods of the same apps that come one by one.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

import click

from bench import objects
from bench.command import console, errors_in_one_line, machine, options, progress
from bench.figures import Run
from bench.live import LiveRun, live_runs, live_table
from bench.loader import create
from bench.report import runs_table
from bench.runs import bench_server, load_nodes, run_once
from bench.schedulers import Mooring
from bench.workloads import WORKLOADS, Workload
from controlplane import Access

NONE, SOME = "queues-none", "queues"
MOST: Final = 1.03
"""The most CPU per pod with Queues, in multiples of the CPU without them."""


@contextmanager
def queues_of(access: Access, workload: Workload) -> Iterator[None]:
    """Create the workload's Queues; delete them afterwards."""
    create(access, objects.queues(workload))
    try:
        yield
    finally:
        with access.client() as client:
            client.delete(objects.QUEUES)


def ratio_of(runs: Sequence[Run] | Sequence[LiveRun]) -> float | None:
    """Return the median CPU per pod with Queues divided by the median without; None if unknown."""
    with_queues, without = (
        [run.cpu_us_per_pod if isinstance(run, Run) else run.cpu_ms_per_pod for run in of_name]
        for of_name in ([run for run in runs if run.scheduler == name] for name in (SOME, NONE))
    )
    return median(with_queues) / median(without) if with_queues and without else None


@click.command()
@click.option(
    "--scale", type=click.IntRange(1), default=1, help="Divide the drain's sizes by this."
)
@click.option(
    "--rate", type=click.FloatRange(1), default=150.0, help="Pods per second, one by one."
)
@click.option("--seconds", type=click.FloatRange(1), default=30.0, help="How long they come.")
@options
def main(rounds: int, output: Path, scale: int, rate: float, seconds: float) -> None:
    """Compare Mooring with 200 Queues and without Queues, in the order A B B A.

    Exits with 1 if Queues make Mooring take more than 1.03 of the CPU per pod.
    """
    output.mkdir(parents=True, exist_ok=True)
    drains, flows, log = list[Run](), list[LiveRun](), output / "queues-mooring.log"
    # As many Queues as in a drain of full size, also if there are fewer pods.
    workloads = {
        name: replace(WORKLOADS[name].scaled(scale), kind=WORKLOADS[name].kind, name=name)
        for name in (NONE, SOME)
    }
    with errors_in_one_line(), bench_server() as control_plane:
        access = control_plane.access
        load_nodes(access, workloads[NONE])
        for number, name in enumerate([NONE, SOME, SOME, NONE] * rounds, start=1):
            workload = workloads[name]
            with queues_of(access, workload):
                progress.begin(f"run {number}: {name}")
                drains.append(run_once(control_plane, workload, Mooring(control_plane, log)))
                progress.end(f"{drains[-1].pods_per_second:.0f} pods/s")
                ours = Mooring(control_plane, log)
                flows += live_runs(control_plane, ours, [rate], seconds, kind=workload.kind)
            drains[-1] = replace(drains[-1], scheduler=name)
            flows[-1] = replace(flows[-1], scheduler=name)
    console.print(runs_table(workloads[SOME], drains))
    console.print(live_table(flows))
    ratios = {"drain": ratio_of(drains), "one by one": ratio_of(flows)}
    for what, ratio in ratios.items():
        shown = "void" if ratio is None else f"{ratio:.3f}"
        console.print(f"{what}: {shown} times the CPU per pod with Queues (goal at most {MOST})")
    faults = [fault for run in drains for fault in run.faults]
    for fault in faults[:5]:
        console.print(f"void: {fault}", highlight=False)
    console.print(machine(), highlight=False)
    sys.exit(bool(faults) or any(ratio is None or ratio > MOST for ratio in ratios.values()))


if __name__ == "__main__":
    main(prog_name="python -m bench.queues")
