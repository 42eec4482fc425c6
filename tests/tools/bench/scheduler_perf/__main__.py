"""The command `python -m bench.scheduler_perf`."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console

from bench.command import a_b_b_a, errors_in_one_line, options, progress
from bench.scheduler_perf.reading import Workload, chosen, read_workloads
from bench.scheduler_perf.report import Result, faults, results_table, write_json
from bench.scheduler_perf.source import workloads_folder
from bench.scheduler_perf.stage import PerfRun, perf_server, run_once
from bench.schedulers import KubeScheduler, Mooring, Scheduler
from controlplane import ControlPlane
from controlplane.releases import chosen_release

WIDTH = 80
TYPICAL_OBJECTS = 3000
"""The most objects (nodes, pods and others) of a typical workload: ten seconds per run."""
QUICK = (
    "SchedulingBasic/500Nodes",
    "SchedulingPodAntiAffinity/500Nodes",
    "TopologySpreading/500Nodes",
    "SchedulingWithMixedChurn/1000Nodes",
    "Unschedulable/500Nodes/10Init/1kPods",
)


@click.command()
@click.argument("names", nargs=-1, metavar="[CASE | CASE/WORKLOAD]...")
@click.option("--label", default="", help="Labels that they have, such as performance,-short.")
@click.option("--quick", is_flag=True, help="Run five workloads of 500 and 1,000 nodes.")
@click.option("--list", "only_list", is_flag=True, help="Only list them, with what is left out.")
@options
def main(
    names: tuple[str, ...], label: str, rounds: int, output: Path, *, quick: bool, only_list: bool
) -> None:
    """Run Kubernetes' own performance workloads beside Mooring and kube-scheduler.

    They come from the Go module of the control plane. Without names and labels, the largest
    workload of each test case with up to 3,000 objects runs; this takes about half an hour. Exits
    with 1 if a workload does not end.
    """
    with errors_in_one_line():
        workloads = read_workloads(workloads_folder(chosen_release()))
        names = QUICK if quick else names
        if unknown := [name for name in names if not chosen(workloads, [name])]:
            raise click.ClickException(f"no workload has the name {' or '.join(unknown)}")
        some = chosen(workloads, names, label)
        if only_list:
            click.echo("\n".join(listed(some)))
            return
        if not (names or label):
            some = typical(some)
        if not some:
            raise click.ClickException("no workload has these names and labels; see --list")
        output.mkdir(parents=True, exist_ok=True)
        left_out = [workload for workload in some if workload.obstacles]
        results: list[Result] = []
        for result in _results([work for work in some if not work.obstacles], rounds, output):
            results.append(result)
            path = write_json(output, results, left_out)
    if results:
        Console(width=WIDTH).print(results_table(results))
        click.echo(f"written to {path}")
    click.echo("\n".join((*faults(results), *_left_out(left_out))))
    sys.exit(bool(faults(results)))


def typical(workloads: Sequence[Workload]) -> list[Workload]:
    """Return for each test case the largest workload with at most TYPICAL_OBJECTS objects.

    If no workload of a test case can run, return its first one, which says why.
    """
    found = []
    for _, group in groupby(workloads, key=lambda workload: workload.name.partition("/")[0]):
        case = [*group]
        small = [work for work in case if not work.obstacles and work.objects <= TYPICAL_OBJECTS]
        found.append(max(small, key=lambda work: work.objects) if small else case[0])
    return [work for work in found if work.obstacles or work.objects <= TYPICAL_OBJECTS]


def listed(workloads: Sequence[Workload]) -> Iterator[str]:
    """Yield lines with each workload, its labels and objects, or why it is left out."""
    case = ""
    for workload in workloads:
        of_case, _, name = workload.name.partition("/")
        if of_case != case:
            case = of_case
            yield case
        objects = "" if workload.obstacles else f"{workload.objects:,}"
        yield f"  {objects:>7}  {','.join(sorted(workload.labels)):<23} {name}"
        yield from (f"    {line}" for line in _wrapped(workload.obstacles))
    runnable = sum(not workload.obstacles for workload in workloads)
    yield f"{runnable} of {len(workloads)} can be run"


def _left_out(workloads: Sequence[Workload]) -> Iterator[str]:
    for workload in workloads:
        yield workload.name
        yield from (f"  {line}" for line in _wrapped(workload.obstacles))


def _wrapped(obstacles: Sequence[str]) -> Iterator[str]:
    for obstacle in obstacles:
        yield from textwrap.wrap(f"left out: {obstacle}", WIDTH - 4, subsequent_indent="  ")


def _results(workloads: Sequence[Workload], rounds: int, output: Path) -> Iterator[Result]:
    """Yield the runs of each workload; workloads that need the same server share one."""
    log = output / "scheduler_perf-mooring.log"

    def server(workload: Workload) -> tuple[list[tuple[str, bool]], bool]:
        return sorted(workload.gates.items()), workload.has_claims

    for (gates, claims), group in groupby(sorted(workloads, key=server), key=server):
        with perf_server(dict(gates), claims=claims) as control_plane:
            for workload in group:
                ours = Mooring(control_plane, log)
                theirs = KubeScheduler(control_plane, workload.configuration)
                order = a_b_b_a(ours, theirs, rounds)
                runs = [_run(control_plane, workload, scheduler) for scheduler in order]
                yield Result(workload, runs)


def _run(control_plane: ControlPlane, workload: Workload, scheduler: Scheduler) -> PerfRun:
    progress.begin(f"{workload.name}: {scheduler.label}")
    run = run_once(control_plane, workload, scheduler)
    rates = " and ".join(f"{one.average or one.whole:.0f}" for one in run.measured)
    progress.end(run.fault or f"{rates} pods/s")
    return run


if __name__ == "__main__":
    main(prog_name="python -m bench.scheduler_perf")
