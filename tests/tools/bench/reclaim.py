"""The command `python -m bench.reclaim`: the owners of quota take it back from one borrower.

Pods of one Queue without a quota fill all nodes. Then as many pods of the Queue to which the quota
belongs wait, alone or in gangs, and Mooring evicts the borrower's pods for them. Evicted pods do
not come again, as those of a Job that Kueue suspends.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from bench import objects
from bench.command import console, errors_in_one_line, machine, options, progress
from bench.figures import Run
from bench.loader import create
from bench.report import write_json
from bench.runs import bench_server, load_nodes, run_once
from bench.sampling import read_samples
from bench.schedulers import Mooring
from bench.shares import shares_table
from bench.workloads import EquivalentPods, Workload

NUMBERS: Final = (3_900, 39_000)
PER_NODE: Final = 39
"""So many pods of 820 millicores fill a node of 32 cores: 39,000 pods fill 1,000 nodes."""
CPU: Final = 820
PUBLISHED: Final = (
    "Kueue on GKE with 130,000 nodes preempted 39,000 pods of Jobs in 93 s; the objects were stored"
    " in Spanner (Google Cloud, How we built a 130,000-node GKE cluster, 2025-11)"
)


def workload_of(pods: int, gang: int) -> Workload:
    """Return a workload of `pods` pods that borrow all quota, and as many pods of the owner.

    With `gang` > 0, the owner's pods are in gangs of this size.
    """
    return Workload(
        f"reclaim-{pods}",
        "the owner of the quota takes it back",
        goal=0.0,
        nodes=-(-pods // PER_NODE),
        pods=pods,
        kind=EquivalentPods(cpu=f"{CPU}m", queue="owner"),
        existing=pods,
        existing_kind=EquivalentPods(cpu=f"{CPU}m", queue="borrower"),
        groups=((pods // gang, gang),) if gang else (),
        evicts=True,
        seconds=3600.0,
    )


def queues(pods: int) -> Iterator[objects.Creation]:
    """Yield the Queues; all quota, which is enough for so many pods, belongs to the owner."""
    yield objects.queue("all", "", "0")
    yield objects.queue("owner", "all", f"{pods * CPU}m")
    yield objects.queue("borrower", "all", "0")


def table_of(runs: Sequence[Run]) -> Table:
    """Return a row for each run."""
    table = Table(
        title="pods of the owner that evict as many of the borrower", title_justify="left"
    )
    titles = ("pods", "bound", "evicted", "s", "pods/s", "ms of CPU per pod", "peak MiB")
    for title in (*titles, "apiserver CPU s", "etcd CPU s"):
        table.add_column(title, justify="right")
    for run in runs:
        figures = (run.seconds, run.pods_per_second, run.cpu_us_per_pod / 1e3)
        memory, servers = run.peak_mib, (run.apiserver_cpu_seconds, run.etcd_cpu_seconds)
        table.add_row(
            *(f"{number:,}" for number in (run.pods, run.bound, run.evicted)),
            *(f"{figure:.1f}" for figure in figures),
            *(f"{figure:.0f}" for figure in (memory, *servers)),
            style="red" if run.faults else "",
        )
    return table


@click.command()
@click.argument("pods", nargs=-1, type=click.IntRange(PER_NODE), metavar="[PODS]...")
@click.option(
    "--gang", type=click.IntRange(0), default=0, help="The owner's pods per gang; 0: none."
)
@click.option("--profile", is_flag=True, help="Say where Mooring's CPU goes.")
@options
def main(pods: Sequence[int], gang: int, rounds: int, output: Path, *, profile: bool) -> None:
    """Have Mooring evict PODS pods for as many; by default 3,900 and then 39,000."""
    output.mkdir(parents=True, exist_ok=True)
    runs, samples = list[Run](), output / "reclaim-samples.json" if profile else None
    with errors_in_one_line():
        for number in [*(pods or NUMBERS)] * rounds:
            workload = workload_of(number, gang)
            progress.begin(workload.name)
            with bench_server(pod_groups=bool(gang)) as control_plane:
                load_nodes(control_plane.access, workload)
                create(control_plane.access, queues(number))
                ours = Mooring(control_plane, output / f"{workload.name}-mooring.log", samples)
                runs.append(run_once(control_plane, workload, ours))
            progress.end(f"{runs[-1].seconds:.0f} s")
            write_json(output, workload, runs[-1:], None)
            for fault in runs[-1].faults[:5]:
                console.print(f"void: {fault}", highlight=False)
            if samples is not None:
                console.print(shares_table(read_samples(samples), runs[-1].cpu_us_per_pod))
    console.print(table_of(runs))
    console.print(f"{machine()}\n{PUBLISHED}", highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m bench.reclaim")
