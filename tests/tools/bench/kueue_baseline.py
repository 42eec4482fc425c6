"""The command `python -m bench.kueue_baseline`: the load of Kueue's own performance test.

The figures are those of `test/performance/scheduler/configs/baseline` in Kueue's repository: five
cohorts of six queues, each with workloads of three classes. Here a workload is a pod, and nodes
are never the limit. As Kueue's runner does, this program creates the workloads of each class and
queue at intervals, ends each one after its runtime, and lets an evicted one wait again: it creates
the pod anew. The time to the placement is counted from the first creation to the last placement.
"""

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import aiohttp
import click
import orjson
from rich.table import Table

from bench import objects
from bench.command import console, errors_in_one_line, machine, options, progress
from bench.loader import CONTENT_TYPES, create, send, session_to
from bench.observer import watched_bound_pods, watched_pods
from bench.runs import bench_server, load_nodes
from bench.schedulers import Mooring
from bench.usage import usage_of
from bench.workloads import Workload
from controlplane import Access, ControlPlane
from controlplane.access import ADMIN

COHORTS: Final = 5
QUEUES: Final = 6
"""The number of queues in a cohort."""
_RETRY_SECONDS: Final = 0.05
NODES: Final = 100
"""With 32 cores each: all quotas together are 600 cores, and each node has room for a large pod."""


@dataclass(frozen=True)
class Class:
    """The workloads of one class in one queue."""

    name: str
    count: int
    interval: float
    """The seconds between two creations, and before the first one."""
    runtime: float
    priority: int
    cpu: int
    published: float
    """Kueue's average seconds to the admission."""


CLASSES: Final = (
    Class("small", 350, 0.1, 0.2, 50, 1, 215.5),
    Class("medium", 100, 0.5, 0.5, 100, 5, 76.8),
    Class("large", 50, 1.2, 1.0, 200, 20, 6.7),
)
PUBLISHED_SECONDS: Final = 351.1
PUBLISHED: Final = (
    "Kueue: averages of five runs in configs/baseline/rangespec.yaml; its CI jobs have 6 CPUs and"
    " 9 GiB (kubernetes/test-infra, periodic-kueue-test-scheduling-perf-main)"
)


@dataclass
class Work:
    """One workload, whose pod may be evicted and created again."""

    of: Class
    path: str
    pod: dict[str, Any]
    created: float = 0.0
    placed: float | None = None
    ended: float | None = None
    uid: str = ""
    """The uid of its pod while this is bound."""
    evictions: int = 0


def preparation() -> Iterator[objects.Creation]:
    """Yield the priority classes, the namespaces and the Queues."""
    for each in CLASSES:
        priority = {"metadata": {"name": each.name}, "value": each.priority}
        yield "/apis/scheduling.k8s.io/v1/priorityclasses", priority
    for number in range(COHORTS):
        yield objects.queue(f"cohort-{number}", "", "0")
    for cohort, name in queue_names():
        yield "/api/v1/namespaces", {"metadata": {"name": name}}
        collection, queue = objects.queue(name, cohort, "20", borrowingLimit="100")
        preemption = {"reclaimWithinCohort": "Any", "withinQueue": "LowerPriority"}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        queue["spec"] |= {"namespaceSelector": selector, "preemption": preemption}
        yield collection, queue


def queue_names() -> Iterator[tuple[str, str]]:
    """Yield the cohort and the name of each queue, which is also the name of its namespace."""
    for cohort in range(COHORTS):
        for number in range(QUEUES):
            yield f"cohort-{cohort}", f"cq-{number}-cohort-{cohort}"


def works(of: Class, queue: str, scheduler: str) -> Iterator[Work]:
    """Yield the workloads of the class in the queue."""
    for number in range(of.count):
        resources = {"requests": {"cpu": str(of.cpu)}}
        spec = {
            "schedulerName": scheduler,
            "priorityClassName": of.name,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "pause", "resources": resources}],
        }
        pod = {"metadata": {"name": f"{of.name}-{number}"}, "spec": spec}
        yield Work(of, f"/api/v1/namespaces/{queue}/pods", pod)


class Runner:
    """Creates the workloads, ends them, and creates evicted ones again."""

    def __init__(self, session: aiohttp.ClientSession, tasks: asyncio.TaskGroup) -> None:
        self._session = session
        self._tasks = tasks
        self._works: dict[tuple[str, str], Work] = {}
        self._left = 0
        self.done = asyncio.Event()

    @property
    def works(self) -> Sequence[Work]:
        """The workloads created so far."""
        return [*self._works.values()]

    def generate(self, some: Sequence[Work]) -> None:
        """Begin to create the workloads of one class and queue at the intervals of the class."""
        self._left += len(some)
        self._tasks.create_task(self._generate(some))

    async def _generate(self, some: Sequence[Work]) -> None:
        for work in some:
            await asyncio.sleep(work.of.interval)
            key = work.path.split("/")[-2], work.pod["metadata"]["name"]
            self._works[key] = work
            work.created = time.monotonic()
            await send(self._session, "POST", work.path, work.pod)

    def saw(self, metadata: Mapping[str, Any]) -> None:
        """Note the binding of a pod."""
        work = self._works.get((metadata["namespace"], metadata["name"]))
        if work is not None and work.ended is None and work.uid != metadata["uid"]:
            work.uid, work.placed = metadata["uid"], time.monotonic()
            self._tasks.create_task(self._end(work, work.uid))

    def saw_deletion(self, metadata: Mapping[str, Any]) -> None:
        """Create an evicted pod anew; its Binding may have come too late."""
        work = self._works.get((metadata["namespace"], metadata["name"]))
        if work is not None and work.ended is None:
            work.uid, work.evictions = "", work.evictions + 1
            self._tasks.create_task(send(self._session, "POST", work.path, work.pod))

    async def _end(self, work: Work, uid: str) -> None:
        """End the pod of this uid after its runtime, unless it is evicted before."""
        await asyncio.sleep(work.of.runtime)
        path = f"{work.path}/{work.pod['metadata']['name']}/status"
        ended = {"metadata": {"uid": uid}, "status": {"phase": "Succeeded"}}
        headers = {"Content-Type": CONTENT_TYPES["PATCH"]}
        data = orjson.dumps(ended)
        while work.uid == uid:
            async with self._session.patch(path, data=data, headers=headers) as answer:
                if answer.ok:
                    work.ended = time.monotonic()
                    self._left -= 1
                    if not self._left:
                        self.done.set()
                    return
            await asyncio.sleep(_RETRY_SECONDS)  # it is evicted, as a watch says soon, or written


async def run(access: Access, all_works: Iterable[Sequence[Work]], limit: float) -> Sequence[Work]:
    """Run the workloads, at most `limit` seconds; return the workloads that were created."""
    loop = asyncio.get_running_loop()
    async with session_to(access.url, access.tokens[ADMIN], access.ca_file) as session:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
                runner = Runner(session, tasks)

                def on_bound(kind: str, metadata: dict[str, Any]) -> bool:
                    if kind != "DELETED":
                        loop.call_soon_threadsafe(runner.saw, metadata)
                    return True

                def on_any(kind: str, metadata: dict[str, Any]) -> bool:
                    if kind == "DELETED":
                        loop.call_soon_threadsafe(runner.saw_deletion, metadata)
                    return True

                with watched_bound_pods(access, on_bound), watched_pods(access, on_any):
                    for some in all_works:
                        runner.generate(some)
                    await runner.done.wait()
    return runner.works


def table_of(done: Sequence[Work]) -> Table:
    """Return a row for each class."""
    table = Table(title="Kueue's performance configuration: 15,000 workloads in 30 queues")
    table.add_column("class")
    for title in ("created", "placed", "ended", "evictions", "s to placement", "max s", "Kueue s"):
        table.add_column(title, justify="right")
    by_class = defaultdict[Class, list[Work]](list)
    for work in done:
        by_class[work.of].append(work)
    for of, some in by_class.items():
        waits = [work.placed - work.created for work in some if work.placed is not None]
        ended = sum(work.ended is not None for work in some)
        counts = (len(some), len(waits), ended, sum(work.evictions for work in some))
        seconds = (fmean(waits or [0.0]), max(waits, default=0.0), of.published)
        shown = *(f"{n:,}" for n in counts), *(f"{each:.1f}" for each in seconds)
        table.add_row(of.name, *shown)
    return table


@click.command()
@click.option("--scale", type=click.IntRange(1), default=1, help="Divide the workloads by this.")
@click.option("--limit", type=click.FloatRange(1), default=1800.0, help="The most seconds.")
@options
def main(rounds: int, output: Path, scale: int, limit: float) -> None:
    """Run Kueue's performance configuration with Mooring; exits with 1 if workloads are left."""
    output.mkdir(parents=True, exist_ok=True)
    left = 0
    with errors_in_one_line():
        for _ in range(rounds):
            left += _once(scale, limit, output / "kueue-baseline-mooring.log")
    console.print(f"{PUBLISHED}\nMooring: {machine()}", highlight=False)
    sys.exit(left > 0)


def _once(scale: int, limit: float, log: Path) -> int:
    """Run the configuration once, and print its figures; return how many workloads are left."""
    with bench_server() as control_plane:
        access = control_plane.access
        load_nodes(access, Workload("kueue-baseline", "", goal=0.0, nodes=NODES, pods=0))
        create(access, preparation())
        classes = [replace(each, count=-(-each.count // scale)) for each in CLASSES]
        all_works = [
            [*works(each, name, Mooring.scheduler_name)]
            for _, name in queue_names()
            for each in classes
        ]
        mooring = Mooring(control_plane, log)
        mooring.start()
        try:
            wanted = sum(map(len, all_works))
            progress.begin(f"{wanted:,} workloads")
            before, began = _cpu(control_plane, mooring), time.monotonic()
            done = asyncio.run(run(access, all_works, limit))
            took, after = time.monotonic() - began, _cpu(control_plane, mooring)
            progress.end(f"{took:.0f} s")
        finally:
            mooring.stop()
    console.print(table_of(done))
    ended = [work for work in done if work.ended is not None]
    used = ", ".join(f"{name} {after[name] - before[name]:.1f}" for name in after)
    console.print(f"{len(ended):,} of {wanted:,} in {took:.1f} s; Kueue: {PUBLISHED_SECONDS} s")
    console.print(f"seconds of CPU: {used}")
    return wanted - len(ended)


def _cpu(control_plane: ControlPlane, mooring: Mooring) -> Mapping[str, float]:
    pids = {Mooring.label: mooring.pid, **control_plane.pids}
    used = {name: usage_of(pid).cpu_seconds for name, pid in pids.items()}
    return {**used, "this program": time.process_time()}


if __name__ == "__main__":
    main(prog_name="python -m bench.kueue_baseline")
