"""The command `python -m bench.scale [NODES...]`: measures one replica in a large cluster.

For each number of nodes (by default 5,000 and 15,000), with 30 pods per node or `--pods-per-node`,
a separate process follows the cluster as the program does: reflectors read the lines of watches,
the mirror parses them into the state. Without an API server and without bindings, this measures
only the engine. All times are CPU time.
"""

import asyncio
import gc
import os
import resource as limits
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from bench.full_replica import profile
from bench.holds import Hold, longest_hold
from bench.large_cluster import PODS_PER_NODE, LargeCluster, Watches, lines
from mooring.framework.registry import Registry
from mooring.handlers.profile_handler import ProfileHandler
from mooring.kube.api_resources import NAMESPACE, NODE, POD
from mooring.kube.reflector import Reflector
from mooring.mirroring.mirror import Mirror
from mooring.model.pod import Pod, parse_pod
from mooring.observe.metrics import Metrics
from mooring.plugins import SHIPPED
from mooring.run.build import Engine
from mooring.run.replica import calm_the_collector, spare_the_mirror
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster import ClusterState

_RESOURCES: Final = (NODE, NAMESPACE, POD)
_DECISIONS: Final = 1000
_MB: Final = 1e6
_HEAD: Final = (
    f"{'nodes':>8} {'pods':>8} {'load s':>7} {'hold ms':>7} {'MB':>8} {'peak MB':>8} "
    f"{'B/pod':>8} decisions/s: {'1':>4}{'100':>8}{'each own template':>18}"
)


@dataclass(frozen=True, slots=True)
class Figures:
    """The results: CPU seconds, resident bytes, and decisions per second by number of templates."""

    nodes: int
    pods: int
    load_seconds: float
    longest_hold: Hold
    resident: int
    peak: int
    before: int
    decisions: dict[int, float]

    def row(self) -> str:
        """Return the figures as a line of a table."""
        per_pod = (self.resident - self.before) / max(self.pods, self.nodes)
        speeds = (f"{speed:8.0f}" for speed in self.decisions.values())
        return (
            f"{self.nodes:8} {self.pods:8} {self.load_seconds:7.1f} "
            f"{1000 * self.longest_hold.seconds:7.1f} {self.resident / _MB:8.0f} "
            f"{self.peak / _MB:8.0f} {per_pod:8.0f} {''.join(speeds)}"
        )


class Replica:
    """The engine over a state that reflectors fill."""

    def __init__(self, cluster: LargeCluster) -> None:
        self.cluster = cluster
        self.state = ClusterState()
        self.client = Watches(cluster, _RESOURCES)
        registry = Registry(SHIPPED, {})
        self.engine = Engine(self.client, self.state, registry, identity="bench", metrics=Metrics())
        profiles = ProfileHandler(self.engine.scheduler.profiles, self.engine.pod_enqueuer)
        profiles.applied(profile("mooring"))

    async def load(self) -> None:
        """Let reflectors list nodes, namespaces and pods at the same time, as in the program."""
        mirror = Mirror(self.state)
        reflectors = [Reflector(self.client, each, mirror) for each in _RESOURCES]
        running = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        for reflector in reflectors:
            await reflector.synced.wait()
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    def decide(self, pods: list[Pod]) -> float:
        """Decide about each pod and assume it; return decisions per second of CPU."""
        scheduler = self.engine.scheduler
        pipeline = scheduler.profiles.in_force["mooring"].pipeline
        results = ResultCache(scheduler.cluster)
        began = time.process_time()
        for number, pod in enumerate(pods):
            outcome = decide(pod, pipeline, results, seed=number)
            assert isinstance(outcome, ScheduleResult)
            self.state.assume(pod, outcome.row)
        took = time.process_time() - began
        for pod in pods:
            self.state.forget(pod)
        return len(pods) / took


async def measure(
    nodes: int, pods_per_node: int = PODS_PER_NODE, decided: int = _DECISIONS
) -> Figures:
    """Load a cluster, decide about `decided` pods, and return the figures.

    The pods have one template, then 100 templates, then each pod its own.
    """
    cluster = LargeCluster(nodes, pods_per_node=pods_per_node)
    replica, before = Replica(cluster), _resident()
    spare_the_mirror()
    making = _seconds_of_making(cluster)
    began = time.process_time()
    hold = await longest_hold(replica.load())
    load_seconds = time.process_time() - began - making
    peak = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss * 1024
    calm_the_collector()
    resident, decisions = _resident(), dict[int, float]()
    for templates in (1, 100, decided):
        pods = [parse_pod(cluster.waiting(i, templates)) for i in range(decided)]
        decisions[templates] = replica.decide(pods)
    await replica.client.close()
    return Figures(
        nodes=nodes,
        pods=len(replica.state.pods),
        load_seconds=load_seconds,
        longest_hold=hold,
        resident=resident,
        peak=peak,
        before=before,
        decisions=decisions,
    )


def _seconds_of_making(cluster: LargeCluster) -> float:
    """Return the CPU seconds for making the lines, which are no work of the replica."""
    began = time.process_time()
    for each in _RESOURCES:
        for _ in lines(cluster.objects(each)):
            pass
    return time.process_time() - began


def _resident() -> int:
    """Return the resident bytes of the process after a garbage collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@click.command()
@click.argument("nodes", nargs=-1, type=click.IntRange(1))
@click.option("--pods-per-node", type=click.IntRange(0), default=PODS_PER_NODE, show_default=True)
def main(nodes: tuple[int, ...], pods_per_node: int) -> None:
    """Print the needs of one replica for clusters of NODES nodes."""
    if len(nodes) != 1:
        click.echo(_HEAD)
    if len(nodes) == 1:
        click.echo(asyncio.run(measure(nodes[0], pods_per_node)).row())
        return
    for number in nodes or (5000, 15000):
        subprocess.run(  # so that the memory of one does not hide that of the next
            (sys.executable, "-m", "bench.scale", str(number), f"--pods-per-node={pods_per_node}"),
            check=True,
        )


if __name__ == "__main__":
    main()
