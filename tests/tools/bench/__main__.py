"""The command `python -m bench`."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import click

from bench.command import a_b_b_a, console, errors_in_one_line, options, progress
from bench.figures import Comparison, Run, compare
from bench.report import costs, runs_table, summary_table, verdict, write_json
from bench.runs import bench_server, load_nodes, on_cores_of_its_own, run_once
from bench.sampling import read_samples
from bench.schedulers import Baseline, KubeScheduler, Mooring
from bench.shares import shares_table
from bench.workloads import WORKLOADS, Workload
from controlplane import ControlPlane

EPILOG = "Workloads:\n\n\b\n" + "\n".join(
    f"{workload.name:15} {workload.about}" for workload in WORKLOADS.values()
)


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, type=click.Choice([*WORKLOADS]), metavar="[WORKLOAD]...")
@options
@click.option("--scale", type=click.IntRange(1), default=1, help="Divide every size by this.")
@click.option("--profile", is_flag=True, help="Run only Mooring, and say where its CPU goes.")
@click.option("--no-records", is_flag=True, help="Mooring keeps no record of decisions.")
@click.option(
    "--apart", is_flag=True, help="The API server and etcd get half of the cores for themselves."
)
def main(
    names: Sequence[str],
    rounds: int,
    scale: int,
    output: Path,
    *,
    profile: bool,
    no_records: bool,
    apart: bool,
) -> None:
    """Have Mooring and kube-scheduler, each alone on the same API server, drain a workload.

    For workloads with devices, a client that decides nothing also makes the same writes; its rate
    is the API server's limit. Without names, every workload runs. The figures are written to
    build/bench/ as JSON. Exits with 0 if every goal is reached, else with 1.
    """
    output.mkdir(parents=True, exist_ok=True)
    workloads = [WORKLOADS[name].scaled(scale) for name in names or WORKLOADS]
    with errors_in_one_line():
        if profile:
            for workload in workloads:
                _profile(workload, output, apart=apart)
            return
        results = [
            (workload, _compare(workload, rounds, output, records=not no_records, apart=apart))
            for workload in workloads
        ]
    if len(results) > 1:
        console.print(summary_table(results))
    compared = costs(results)
    for words, _ in compared:
        console.print(words, highlight=False)
    sys.exit(not all([result.reached for _, result in results] + [held for _, held in compared]))


def _compare(
    workload: Workload, rounds: int, output: Path, *, records: bool, apart: bool
) -> Comparison:
    runs: list[Run] = []
    log = output / f"{workload.name}-mooring.log"
    with _server_of(workload, apart=apart) as control_plane:
        load_nodes(control_plane.access, workload)
        ours, theirs = Mooring(control_plane, log, records=records), KubeScheduler(control_plane)
        limit = Baseline(control_plane, output / f"{workload.name}-baseline.log", workload)
        order = a_b_b_a(ours, theirs, rounds, *([limit] if workload.devices else []))
        for number, scheduler in enumerate(order, start=1):
            step = f"{workload.name}: run {number} of {len(order)}, {scheduler.label}"
            progress.begin(step)
            runs.append(run_once(control_plane, workload, scheduler))
            progress.end(f"{runs[-1].pods_per_second:.0f} pods/s")
    result = compare(runs, Mooring.label, KubeScheduler.label, workload.goal, Baseline.label)
    console.print(runs_table(workload, runs))
    for line in verdict(result, runs):
        console.print(line, highlight=False)
    path = write_json(output, workload, runs, result, apart=apart)
    console.print(f"written to {path}\n", highlight=False, soft_wrap=True)
    return result


def _server_of(workload: Workload, *, apart: bool) -> AbstractContextManager[ControlPlane]:
    server = bench_server(pod_groups=bool(workload.groups), claims=workload.devices is not None)
    return on_cores_of_its_own(server) if apart else server


def _profile(workload: Workload, output: Path, *, apart: bool) -> None:
    log, samples = (output / f"{workload.name}-{what}" for what in ("mooring.log", "samples.json"))
    progress.begin(f"{workload.name}: mooring, sampled")
    with _server_of(workload, apart=apart) as control_plane:
        load_nodes(control_plane.access, workload)
        run = run_once(control_plane, workload, Mooring(control_plane, log, samples))
    progress.end(f"{run.pods_per_second:.0f} pods/s")
    console.print(runs_table(workload, [run]))
    for fault in run.faults:
        console.print(f"void: {fault}", highlight=False)
    console.print(shares_table(read_samples(samples), run.cpu_us_per_pod))


if __name__ == "__main__":
    main(prog_name="python -m bench")
