"""The command `python -m bench.live`: measures a steady flow of pods instead of a drain.

Another process creates pods one by one beside the running scheduler, or creates and deletes pods
with returning names. The command measures the scheduler's CPU per pod until it has no work left,
and the time from a pod's creation to its binding, which a watch of the observer shows.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import click
import orjson
from rich.table import Table

from bench import objects
from bench.command import (
    a_b_b_a,
    console,
    errors_in_one_line,
    interpreter,
    options,
    progress,
    write,
)
from bench.live_load import Load, names_of
from bench.observer import Binds, watched_binds, watched_bound_pods
from bench.requests import attempts_so_far, requests_so_far
from bench.runs import IDLE_SECONDS, bench_server, load_nodes
from bench.sampling import read_samples
from bench.schedulers import Baseline, KubeScheduler, Mooring, Scheduler
from bench.shares import shares_table
from bench.usage import usage_of, wait_until_idle
from bench.workloads import SMALL_NODE, WORKLOADS, EquivalentPods, Workload
from controlplane import ControlPlane
from controlplane.access import ADMIN
from controlplane.namespaces import create_namespace, delete_namespace

RATES: Final = (50.0, 150.0, 300.0, 0.0)
"""The rates without any on the command line; 0 stands for pods with returning names."""
STALL_SECONDS = 10.0
"""If no pod is bound for so long after the load has ended, the other pods are given up."""
FULL_NODES: Final = 30
"""The number of nodes with 4 CPUs that 60 pods of 1 to 3 CPUs fill."""
MOST_CPUS: Final = 3
FULL_GOAL: Final = 0.6
"""The share of kube-scheduler's CPU that Mooring may take if pods fill the nodes."""
BINDINGS: Final = "POST pods/binding 201"
EVENTS: Final = "POST events 201"


@dataclass(frozen=True)
class LiveRun:
    """The figures of one scheduler beside one load in one run."""

    scheduler: str
    rate: float
    """Pods per second; 0 for pods with returning names."""
    created: int
    bound: int
    cpu_seconds: float
    """The CPU of the scheduler, from the beginning of the load until it had no work left."""
    latencies: tuple[float, ...]
    """The seconds from creation to binding, ascending."""
    events: int = 0
    """The number of events written in that time; a scheduler may write others when it stops."""
    attempts: int = 0

    @property
    def cpu_ms_per_pod(self) -> float:
        """Milliseconds of the scheduler's CPU per bound pod."""
        return 1e3 * self.cpu_seconds / max(self.bound, 1)

    def latency_ms(self, hundredths: int) -> float:
        """Return the percentile of the latencies, in milliseconds; `hundredths` is 99 for p99."""
        if len(self.latencies) < 2:
            return 1e3 * sum(self.latencies)
        return 1e3 * quantiles(self.latencies, n=100, method="inclusive")[hundredths - 1]


def live_runs(
    control_plane: ControlPlane,
    scheduler: Scheduler,
    rates: Sequence[float],
    seconds: float,
    most_cpus: int = 0,
    kind: EquivalentPods = WORKLOADS["basic"].kind,
) -> Iterator[LiveRun]:
    """Run the loads one after the other beside the scheduler, each in a namespace of its own.

    The pods are of each app of `kind` in turn. Pods with returning names request 1 to `most_cpus`
    whole CPUs; 0: all request the same. One scheduler runs for all loads, as in a cluster, and
    nothing is deleted before it has stopped.
    """
    access, namespaces = control_plane.access, list[str]()
    try:
        scheduler.start()
        try:
            for rate in rates:
                namespaces.append(create_namespace(access, "live"))
                pods = _pods(kind, namespaces[-1], scheduler.scheduler_name)
                load = _load(control_plane, pods, namespaces[-1], rate, seconds)
                load = replace(load, most_cpus=most_cpus)
                progress.begin(f"{words_of(rate)}, {scheduler.label}")
                run = _measured(control_plane, scheduler, namespaces[-1], load)
                progress.end(", ".join(_told(run)))
                yield run
        finally:
            scheduler.stop()
    finally:
        for namespace in namespaces:
            delete_namespace(access, namespace)


def _told(run: LiveRun) -> Iterator[str]:
    yield f"{run.cpu_ms_per_pod:.2f} ms of CPU for each of {run.bound}"
    if run.latencies:
        yield f"bound after {run.latency_ms(50):.0f}, at p99 {run.latency_ms(99):.0f} ms"


def live_table(runs: Sequence[LiveRun]) -> Table:
    """Return a row for each rate and scheduler, with the medians of its runs."""
    table = Table(title="pods created one by one beside the running scheduler")
    table.add_column("load")
    table.add_column("scheduler")
    titles = ("bound", "of", "attempts", "events", "CPU s", "ms/pod", "p50 ms", "p99 ms", "max ms")
    for title in titles:
        table.add_column(title, justify="right")
    for rate, label in dict.fromkeys((run.rate, run.scheduler) for run in runs):
        some = [run for run in runs if (run.rate, run.scheduler) == (rate, label)]
        table.add_row(words_of(rate), label, *_cells(some))
    return table


def write_json(folder: Path, runs: Sequence[LiveRun]) -> Path:
    """Write all figures of all runs to a file; return the file's path."""
    return write(folder / "live.json", {"runs": [asdict(run) for run in runs]})


def _cells(runs: Sequence[LiveRun]) -> Iterator[str]:
    yield f"{median(run.bound for run in runs):,.0f}"
    yield f"{median(run.created for run in runs):,.0f}"
    yield f"{median(run.attempts for run in runs):,.0f}"
    yield f"{median(run.events for run in runs):,.0f}"
    yield f"{median(run.cpu_seconds for run in runs):.2f}"
    yield f"{median(run.cpu_ms_per_pod for run in runs):.2f}"
    for hundredths in (50, 99):
        yield f"{median(run.latency_ms(hundredths) for run in runs):.1f}"
    yield f"{1e3 * median(max(run.latencies, default=0.0) for run in runs):.0f}"


def words_of(rate: float) -> str:
    """Return the name of the load in tables."""
    return f"{rate:g} pods/s" if rate else "names come and go"


def _load(
    control_plane: ControlPlane,
    pods: list[dict[str, Any]],
    namespace: str,
    rate: float,
    seconds: float,
) -> Load:
    access = control_plane.access
    return Load(
        url=access.url,
        token=access.tokens[ADMIN],
        ca_file=str(access.ca_file),
        path=f"/api/v1/namespaces/{namespace}/pods",
        pods=pods,
        seconds=seconds,
        rate=rate,
    )


def _pods(kind: EquivalentPods, namespace: str, scheduler: str) -> list[dict[str, Any]]:
    workload = replace(WORKLOADS["basic"], kind=kind, pods=kind.apps)
    return [pod for _, pod in objects.measured_pods(workload, namespace, scheduler)]


def _measured(
    control_plane: ControlPlane, scheduler: Scheduler, namespace: str, load: Load
) -> LiveRun:
    wait_until_idle(scheduler.pid, IDLE_SECONDS)
    access, names = control_plane.access, names_of(load)
    before, requests = usage_of(scheduler.pid), requests_so_far(access)
    tried = _attempts(control_plane, scheduler)
    with _watched(control_plane, namespace, names) as (times, binds):
        done = subprocess.run(
            [sys.executable, "-m", "bench.live_load"],
            input=load.as_json(),
            stdout=subprocess.PIPE,
            check=True,
        )
        if binds is not None:
            binds.wait(STALL_SECONDS)
        wait_until_idle(scheduler.pid, IDLE_SECONDS)
        bound = times()
    used = usage_of(scheduler.pid).cpu_seconds - before.cpu_seconds
    answered = requests_so_far(access) - requests
    told: dict[str, Any] = orjson.loads(done.stdout)
    sent = told["sent"]
    return LiveRun(
        scheduler.label,
        load.rate,
        created=told["created"],
        bound=answered[BINDINGS],
        cpu_seconds=used,
        latencies=tuple(sorted(bound[one] - sent[one] for one in bound.keys() & sent.keys())),
        events=answered[EVENTS],
        attempts=_attempts(control_plane, scheduler) - tried,
    )


def _attempts(control_plane: ControlPlane, scheduler: Scheduler) -> int:
    return attempts_so_far(control_plane.access, scheduler.url) if scheduler.url else 0


@contextmanager
def _watched(
    control_plane: ControlPlane, namespace: str, names: Sequence[str]
) -> Iterator[tuple[Callable[[], Mapping[str, float]], Binds | None]]:
    """Yield a function that returns binding times by name (by uid without names), and the Binds."""
    if names:
        with watched_binds(control_plane.access, namespace, names) as binds:
            yield lambda: binds.times, binds
        return
    times: dict[str, float] = {}

    def on_event(_kind: str, metadata: Mapping[str, Any]) -> bool:
        times.setdefault(metadata["uid"], time.monotonic())
        return True

    with watched_bound_pods(control_plane.access, on_event):
        yield times.copy, None


@click.command()
@click.argument("rates", nargs=-1, type=click.FloatRange(0), metavar="[RATE]...")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, help="How long each load lasts.")
@click.option("--nodes", type=click.IntRange(1), default=1000, help="How many nodes there are.")
@click.option(
    "--full",
    is_flag=True,
    help=f"Have pods of 1 to {MOST_CPUS} CPUs come and go on {FULL_NODES} nodes of 4: no RATE.",
)
@options
@click.option("--only-mooring", is_flag=True, help="Leave out kube-scheduler.")
@click.option("--limit", is_flag=True, help="Measure a client that decides nothing as well.")
@click.option("--profile", is_flag=True, help="Run only Mooring, and say where its CPU goes.")
def main(
    rates: Sequence[float],
    seconds: float,
    nodes: int,
    rounds: int,
    output: Path,
    *,
    full: bool,
    only_mooring: bool,
    limit: bool,
    profile: bool,
) -> None:
    """Create RATE pods a second beside each scheduler; RATE 0: pods of 60 returning names.

    Without RATE: 50, 150, 300 and 0. Writes the figures to build/bench/live.json. For example:

        python -m bench.live 50 150 --seconds 60 --rounds 2

    With --limit, a client that decides nothing makes a scheduler's writes in the middle of each
    round, except for pods of returning names.

    With --full, pods of returning names fill all nodes, so that many wait. Exits with 1 if Mooring
    then takes more than 0.6 of kube-scheduler's CPU.
    """
    output.mkdir(parents=True, exist_ok=True)
    runs: list[LiveRun] = []
    workload = Workload("live", "pods one by one", goal=0.0, nodes=nodes, pods=0)
    if full:
        workload, rates = replace(workload, nodes=FULL_NODES, node=SMALL_NODE), (0.0,)
    samples = output / "live-samples.json" if profile else None
    with errors_in_one_line(), suppress(KeyboardInterrupt), bench_server() as control_plane:
        load_nodes(control_plane.access, workload)
        ours: Scheduler = Mooring(control_plane, output / "live-mooring.log", samples)
        theirs: Scheduler = KubeScheduler(control_plane)
        between = [Baseline(control_plane, output / "live-baseline.log", workload)] * limit
        order = a_b_b_a(ours, theirs, rounds, *between)
        if only_mooring or profile:
            order = [ours, *between] * rounds
        for scheduler in order:
            loads = [rate for rate in rates or RATES if rate or scheduler.decides]
            most_cpus = MOST_CPUS if full else 0
            runs += live_runs(control_plane, scheduler, loads, seconds, most_cpus)
    if not runs:
        raise click.ClickException("no run has come to its end")
    if samples is not None:
        of_ours = [run.cpu_ms_per_pod for run in runs if run.scheduler == Mooring.label]
        cost = 1e3 * median(of_ours)
        console.print(shares_table(read_samples(samples), cost))
    console.print(live_table(runs))
    console.print(f"with {interpreter()}; written to {write_json(output, runs)}", soft_wrap=True)
    share = cpu_share(runs) if full else None
    if share is not None:
        console.print(f"mooring takes {share:.2f} of kube-scheduler's CPU; goal {FULL_GOAL}")
        sys.exit(share > FULL_GOAL)


def cpu_share(runs: Sequence[LiveRun]) -> float | None:
    """Return Mooring's CPU as a share of kube-scheduler's, by medians; None without both."""
    ours, theirs = (
        [run.cpu_seconds for run in runs if run.scheduler == label]
        for label in (Mooring.label, KubeScheduler.label)
    )
    return median(ours) / median(theirs) if ours and theirs else None


if __name__ == "__main__":
    main(prog_name="python -m bench.live")
