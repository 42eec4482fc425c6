"""Measures how long tenants and authors of policies can hold the event loop.

A case prepares a replica, yields the work to measure, and then removes its objects. The work is
that of the program: the handlers, the mirror, the loop, each in its slices. `asyncio.sleep(0)` ends
a step of the task, as waiting for the next event does in the program.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

import orjson

from bench.full_replica import FullReplica, profile
from mooring.handlers.bursts import PodEventFilter
from mooring.kube import api_resources as resources
from mooring.kube.recorder import ObjectRef
from mooring.kube.reflector import EventType
from mooring.kube.response_checks import event_of
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import dumps
from mooring.observe.event_loop import HoldTimer
from mooring.page.nodes_view import Nodes
from mooring.page.pod_search import PodSearch
from mooring.process.time_slices import TimeSlices
from mooring.testing.builders import (
    namespace,
    node,
    pdb,
    pod,
    pod_group,
    priority_class,
    service,
)
from node_selectors import expression, required_nodes, term
from storage_builders import pv, pvc

BOUND: Final = 0.1
"""The most CPU seconds for a step of a task."""

WAIT_BOUND: Final = 1.5
"""The most CPU seconds that an ordinary pod may wait behind a slow pod of another namespace."""

WALK_BOUND: Final = 0.5
"""The most CPU seconds for a full garbage collection."""
_OLDEST: Final = 2

_ordinary = count()
"""The numbers of the pods that arrive beside a case."""

Work = Coroutine[Any, Any, object]
Case = Callable[[FullReplica], Iterator[Work]]


@dataclass(frozen=True, slots=True)
class Hold:
    """The longest step of a task, in CPU seconds of all threads, and the name of the task.

    `walk` is the longest full garbage collection in that time. `seconds` does not include it,
    because any work may cause it: it comes when the oldest generation has grown by a quarter.
    """

    seconds: float = 0.0
    task: str = ""
    walk: float = 0.0


class _Walks:
    """The ends and the durations of full garbage collections, which walk over all objects."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = 0.0
        self._seen: list[tuple[float, float]] = []

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """Note the beginning or the end of a full collection; the collector calls this."""
        if info["generation"] == _OLDEST and phase == "start":
            self._began = self._clock()
        elif info["generation"] == _OLDEST:
            ended = self._clock()
            self._seen.append((ended, ended - self._began))

    def since(self, began: float) -> float:
        """Return the total duration of the full collections that ended after this time.

        A collection is a part of one step. The caller notes the beginning of a step a little late,
        so a collection at that moment would seem to begin before the step.
        """
        return sum(seconds for ended, seconds in self._seen if ended > began)

    def longest(self) -> float:
        return max((seconds for _, seconds in self._seen), default=0.0)


async def longest_hold(work: Work, clock: Callable[[], float] = time.process_time) -> Hold:
    """Run the work; return the longest step of any task meanwhile, in seconds of the clock.

    Collect young garbage first, so that a case does not pay for the previous case.
    """
    longest, walks = Hold(), _Walks(clock)

    def held(seconds: float, task: str) -> None:
        nonlocal longest
        seconds -= walks.since(clock() - seconds)
        if seconds > longest.seconds:
            longest = Hold(seconds, task)

    gc.collect(1)
    gc.callbacks.append(walks)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(HoldTimer(held, clock=clock))
    try:
        await asyncio.create_task(work)
    finally:
        loop.set_task_factory(None)
        gc.callbacks.remove(walks)
    return replace(longest, walk=walks.longest())


class Wait:
    """Measures how long ordinary pods of another namespace wait beside some work.

    Attributes:
        seconds: The longest wait, in CPU seconds of all threads.
    """

    def __init__(
        self, replica: FullReplica, clock: Callable[[], float] = time.process_time
    ) -> None:
        self.seconds = 0.0
        self._replica = replica
        self._clock = clock

    async def beside(self, work: Work) -> None:
        """Do the work; an ordinary pod arrives just after its beginning and is scheduled."""
        r, key = self._replica, f"calm/pod-{next(_ordinary)}"
        doing = asyncio.create_task(work)
        await asyncio.sleep(0)
        (ordinary,) = r.wait([pod(key.partition("/")[2], namespace="calm", cpu="1m", spec=_MINE)])
        came = self._clock()
        is_decided = partial(r.scheduler.decisions.of, key)
        while not is_decided():
            if doing.done():
                await r.schedule(is_decided)
            await asyncio.sleep(0)
        self.seconds = max(self.seconds, self._clock() - came)
        await doing
        r.engine.pod_enqueuer.gone(ordinary.uid)


def relist_pods(r: FullReplica) -> Iterator[Work]:
    """List unchanged pods on nodes again."""
    yield r.relist(resources.POD, r.all_placed())


def relist_resized_pods(r: FullReplica) -> Iterator[Work]:
    """List pods on nodes again, each with new requests."""
    yield r.relist(resources.POD, r.all_placed(cpu="150m"))
    yield r.relist(resources.POD, r.all_placed())


def relist_nodes(r: FullReplica) -> Iterator[Work]:
    """List nodes again, each with new labels and taints."""
    taints = ["a=b:NoSchedule"]
    other = (r.node(n, labels={"rack": f"q{n % 99}"}, taints=taints) for n in range(r.nodes))
    yield r.relist(resources.NODE, other)
    yield r.relist(resources.NODE, (r.node(n) for n in range(r.nodes)))


def relist_namespaces(r: FullReplica) -> Iterator[Work]:
    """List namespaces again, each with new labels."""
    for label in ("x", "y"):
        raws = (namespace(f"team-{n}", {"team": f"{label}{n}"}) for n in range(100))
        yield r.relist(resources.NAMESPACE, raws)


def relist_volumes(r: FullReplica) -> Iterator[Work]:
    """List volumes and claims, four per node."""
    volumes = range(4 * r.nodes)
    yield r.relist(resources.PERSISTENT_VOLUME, (pv(f"v{i}") for i in volumes))
    yield r.relist(resources.PERSISTENT_VOLUME_CLAIM, (pvc(f"c{i}") for i in volumes))
    yield r.relist(resources.PERSISTENT_VOLUME, ())
    yield r.relist(resources.PERSISTENT_VOLUME_CLAIM, ())


def relist_services(r: FullReplica) -> Iterator[Work]:
    """List two Services per node, all of one namespace, and decide about a pod there."""
    numbers = range(2 * r.nodes)
    raws = (service(f"s{i}", {"app": f"web-{i}"}, namespace="team-1") for i in numbers)
    yield r.relist(resources.SERVICE, raws)
    r.wait([pod("w", namespace="team-1", labels={"app": "web-1"}, cpu="10m", spec=_MINE)])
    yield r.schedule()
    r.forget_all()
    yield r.relist(resources.SERVICE, ())


def relist_budgets(r: FullReplica) -> Iterator[Work]:
    """List two disruption budgets per node."""
    raws = (
        pdb(f"b{i}", {"app": f"web-{i}"}, namespace=f"team-{i % 100}") for i in range(2 * r.nodes)
    )
    yield r.relist(resources.POD_DISRUPTION_BUDGET, raws)
    yield r.relist(resources.POD_DISRUPTION_BUDGET, ())


def list_priority_classes(r: FullReplica) -> Iterator[Work]:
    """Show kopf's handlers 1,000 priority classes."""

    async def come() -> None:
        for i in range(1000):
            raw = priority_class(f"p{i}", i)
            await r.handlers.on_priority_class({"type": None, "object": raw})
            await asyncio.sleep(0)

    yield come()


def first_list(r: FullReplica) -> Iterator[Work]:
    """Begin to lead while 20 pods per node wait."""
    raws = [pod(f"w-{i}", cpu="100", spec=_MINE) for i in range(20 * r.nodes)]
    yield r.handlers.on_pods(raws)
    r.forget_all()


def change_profile(r: FullReplica) -> Iterator[Work]:
    """Change the plugins of a profile for which 20 pods per node wait."""
    r.wait_many(20 * r.nodes)
    disabled = {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}}
    yield r.show_profile(profile("mooring", plugins=disabled))
    yield r.show_profile(profile("mooring"))
    r.forget_all()


def delete_profile(r: FullReplica) -> Iterator[Work]:
    """Delete a profile for which 20 pods per node wait, report it to them, and create it again."""
    r.wait_many(20 * r.nodes)
    yield r.delete_profile("mooring")
    r.skipped += 6.0
    yield TimeSlices().run(r.engine.pod_enqueuer.report)
    r.skipped += 60.0
    yield TimeSlices().run(r.engine.pod_enqueuer.report)
    yield r.show_profile(profile("mooring"))
    r.forget_all()


def profile_with_cards(r: FullReplica) -> Iterator[Work]:
    """Put the first profile for GPU cards in force, and decide by it."""
    names = ("GPUShare", "GPUTopology", "GPUFragmentation")
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in names]}}
    yield r.show_profile(profile("gpus", plugins=plugins))
    raw = pod("card", requests={"nvidia.com/gpu": 1}, cpu="100", spec={"schedulerName": "gpus"})
    r.wait([raw])
    yield r.schedule(lambda: r.scheduler.queue.counts()["unschedulable"])
    r.forget_all()
    yield r.delete_profile("gpus")


def profile_with_pods_on_cards(r: FullReplica) -> Iterator[Work]:
    """Put the first profile for GPU cards in force while eight pods on each node have one."""
    raws = [r.placed(i, name=f"c-{i}", requests={"nvidia.com/gpu": 1}) for i in range(8 * r.nodes)]
    for raw in raws:
        r.mirror.apply(resources.POD, "ADDED", raw)
    yield from profile_with_cards(r)
    for raw in raws:
        r.mirror.apply(resources.POD, "DELETED", raw)


def profile_with_groups(r: FullReplica) -> Iterator[Work]:
    """Put a profile in force that finds groups by a label that no pod has."""
    yield r.show_profile(_grouping_by("acme.example/job"))
    yield r.delete_profile("gangs")


def profile_that_groups_all(r: FullReplica) -> Iterator[Work]:
    """Put a profile in force that finds groups by a label that every pod has."""
    yield r.show_profile(_grouping_by("app"))
    yield r.delete_profile("gangs")


def profile_with_rules(r: FullReplica) -> Iterator[Work]:
    """Put a profile with 32 rules of ten regular expressions in force, and decide by it."""
    unlike = '!has(node.labels.rack) || !node.labels.rack.matches("x{}-{}[a-z]*")'
    rules = [
        {"name": f"r{i}", "filter": " && ".join(unlike.format(i, j) for j in range(10))}
        for i in range(32)
    ]
    yield r.show_profile(profile("rules", rules=rules))
    spec = {"schedulerName": "rules"}
    r.wait(pod(f"w-{i}", cpu="100", spec=spec) for i in range(3))
    yield r.schedule()
    r.forget_all()
    yield r.delete_profile("rules")


def conflicting_profiles(r: FullReplica) -> Iterator[Work]:
    """Create 200 profiles for the same pods, work out their statuses, and delete them."""
    names = [f"same-{i}" for i in range(200)]

    async def statuses() -> None:
        r.profiles.settle_conflicts()
        settled = r.profiles.settle_conflicts()
        await asyncio.sleep(0)
        slices = TimeSlices()
        for name in settled:
            r.profiles.patch(name)
            await slices.pause()

    async def come_and_go() -> None:
        for name in names:
            await r.show_profile(profile(name, match={"schedulerNames": ["same"]}))
            await asyncio.sleep(0)
        await statuses()
        for name in names:
            await r.delete_profile(name)
            await asyncio.sleep(0)

    yield come_and_go()


def namespace_labels(r: FullReplica) -> Iterator[Work]:
    """Change the labels of a namespace in which 20 pods per node wait."""
    r.wait(pod(f"w-{i}", namespace="team-1", cpu="100", spec=_MINE) for i in range(20 * r.nodes))

    async def relabel(label: str) -> None:
        raw = namespace("team-1", {"team": label})
        r.mirror.apply(resources.NAMESPACE, "MODIFIED", raw)
        await asyncio.sleep(0)
        await TimeSlices().run(r.engine.pod_enqueuer.find_profiles)

    yield relabel("other")
    yield relabel("t1")
    r.forget_all()


def node_events(r: FullReplica) -> Iterator[Work]:
    """Change a node, and flush the queue, with two different unschedulable pods per node."""
    r.wait(pod(f"w-{i}", cpu=str(70 + i), spec=_MINE) for i in range(2 * r.nodes))
    r.reject_all()

    async def change() -> None:
        for taints in (["a=b:NoSchedule"], []):
            r.mirror.apply(resources.NODE, "MODIFIED", r.node(1, taints=taints))
        await r.schedule()

    yield change()
    r.reject_all()
    r.skipped += 400.0
    yield TimeSlices().run(r.engine.pod_enqueuer.flush)
    r.forget_all()


def backoffs_end(r: FullReplica) -> Iterator[Work]:
    """End the backoff of 20 pods per node at the same time."""
    r.wait_many(20 * r.nodes)
    queue = r.scheduler.queue
    while (queued := queue.pop(r.clock())) is not None:
        queue.add_after_error(queued, r.clock())
    r.skipped += 20.0
    yield r.schedule(lambda: not queue.counts()["backoff"])
    r.forget_all()


def comparison(r: FullReplica) -> Iterator[Work]:
    """Compare 20 waiting pods per node with a list with half of them, and as many other pods."""
    pods = r.wait_many(20 * r.nodes)
    yield r.compare([*pods[::2]], others=10 * r.nodes)
    r.forget_all()


def namespace_deleted(r: FullReplica) -> Iterator[Work]:
    """Delete a namespace with two pods on each node and two per node that wait."""
    raws = [r.placed(i, namespace="gone", name=f"gone-{i}") for i in range(2 * r.nodes)]
    for raw in raws:
        r.mirror.apply(resources.POD, "ADDED", raw)
    waiting = [pod(f"w-{i}", namespace="gone", spec=_MINE) for i in range(2 * r.nodes)]
    r.wait(waiting)

    async def go() -> None:
        slices = TimeSlices()
        for raw in raws:
            r.mirror.apply(resources.POD, "DELETED", raw)
            await slices.pause()
        for raw in waiting:
            await r.handlers.on_pod({"type": "DELETED", "object": raw})
            await slices.pause()
        r.mirror.apply(resources.NAMESPACE, "DELETED", namespace("gone"))

    yield go()


def unknown_node(r: FullReplica) -> Iterator[Work]:
    """Add, resize and remove a node that two pods per node of the cluster name."""
    raws = [r.placed(i, name=f"u-{i}", node="nowhere") for i in range(2 * r.nodes)]
    for raw in raws:
        r.mirror.apply(resources.POD, "ADDED", raw)
    yield r.apply(resources.NODE, "ADDED", node("nowhere"))
    yield r.apply(resources.NODE, "DELETED", node("nowhere"))
    resized = [r.placed(i, name=f"u-{i}", node="nowhere", cpu="3m") for i in range(2 * r.nodes)]
    yield r.relist(resources.POD, chain(r.all_placed(), resized))
    yield r.relist(resources.POD, r.all_placed())


def large_gang(r: FullReplica) -> Iterator[Work]:
    """Create a gang of two members per node, then its PodGroup; change and delete the PodGroup."""
    members = 2 * r.nodes
    r.wait(pod(f"g-{i}", cpu="1m", group="gang", spec=_MINE) for i in range(members))
    r.skipped += 10.0
    yield TimeSlices().run(r.engine.pod_enqueuer.report)
    created, changed = (pod_group("gang", minimum=members + more) for more in (0, 1))
    yield r.apply(resources.POD_GROUP, "ADDED", created)
    yield r.apply(resources.POD_GROUP, "MODIFIED", changed)
    yield r.apply(resources.POD_GROUP, "DELETED", changed)
    r.forget_all()


def gang_that_fits_nowhere(r: FullReplica) -> Iterator[Work]:
    """Decide about a gang of 1,000 members that fits nowhere, with preemption."""
    r.mirror.apply(resources.POD_GROUP, "ADDED", pod_group("gang", minimum=1000))
    fields: dict[str, Any] = {"cpu": "60", "requests": {"nvidia.com/gpu": 9}, "priority": 9}
    r.wait(pod(f"g-{i}", group="gang", spec=_MINE, **fields) for i in range(1000))
    yield r.schedule()
    r.forget_all()
    r.mirror.apply(resources.POD_GROUP, "DELETED", pod_group("gang", minimum=1000))


def huge_gang(r: FullReplica) -> Iterator[Work]:
    """Decide about a gang of ten members per node that fits nowhere, and delete the members."""
    raw = pod_group("gang", minimum=10 * r.nodes)
    r.mirror.apply(resources.POD_GROUP, "ADDED", raw)
    r.wait(pod(f"g-{i}", cpu="100", group="gang", spec=_MINE) for i in range(10 * r.nodes))
    yield TimeSlices().run(r.engine.pod_enqueuer.find_profiles)
    yield r.schedule()
    yield r.apply(resources.POD_GROUP, "DELETED", raw)
    yield r.apply(resources.POD_GROUP, "ADDED", raw)
    yield TimeSlices().run(r.engine.pod_enqueuer.find_profiles)
    yield _forget_slowly(r)
    r.mirror.apply(resources.POD_GROUP, "DELETED", raw)


def gated_gang(r: FullReplica) -> Iterator[Work]:
    """Delete a gang of ten members per node, all gated except one, which is assumed."""
    raw = pod_group("gang", minimum=1)
    r.mirror.apply(resources.POD_GROUP, "ADDED", raw)
    assumed = parse_pod(pod("assumed", cpu="1m", group="gang", spec=_MINE))
    r.state.assume(assumed, 0)
    gated: dict[str, Any] = {"gates": ["later"], "group": "gang", "spec": _MINE}
    r.wait(pod(f"g-{i}", cpu="100", **gated) for i in range(10 * r.nodes))
    yield _forget_slowly(r)
    r.state.forget(assumed)
    r.mirror.apply(resources.POD_GROUP, "DELETED", raw)


def many_gangs(r: FullReplica) -> Iterator[Work]:
    """Create two gangs of one member per node, change the minimum of all, and decide."""
    numbers = range(2 * r.nodes)

    async def put(event: EventType, minimum: int) -> None:
        for i in numbers:
            r.mirror.apply(resources.POD_GROUP, event, pod_group(f"g-{i}", minimum=minimum))
            await asyncio.sleep(0)

    r.wait(pod(f"g-{i}", cpu="100", group=f"g-{i}", spec=_MINE) for i in numbers)
    yield put("ADDED", 2)
    yield put("MODIFIED", 1)
    yield r.schedule()
    raws = (pod_group(f"g-{i}", minimum=3) for i in numbers)
    yield r.relist(resources.POD_GROUP, raws)
    yield r.relist(resources.POD_GROUP, ())
    r.forget_all()


def scrape(r: FullReplica) -> Iterator[Work]:
    """Scrape the metrics."""
    yield _call(lambda: r.metrics.exposition(""))


def cache_dump(r: FullReplica) -> Iterator[Work]:
    """Read /debug/cache."""

    async def read() -> None:
        slices = TimeSlices()
        for record in r.dump():
            dumps(record)
            await slices.pause()

    yield read()


def pages(r: FullReplica) -> Iterator[Work]:
    """Open the page's views while 20 pods per node are unschedulable."""
    r.wait_many(20 * r.nodes)
    r.reject_all()

    async def read() -> None:
        pending = await r.queue.pending()
        pending.groups(frozenset(pending.largest_namespaces()), "")
        await asyncio.sleep(0)
        await r.queue.workload("team-1", "Job", "x")
        nodes = Nodes(r.scheduler)
        await nodes.snapshot(nodes.columns("cpu"), "cpu", "rack")
        await PodSearch(r.scheduler).find("w-1", _sees_all)

    yield read()
    r.forget_all()


def preemption(r: FullReplica) -> Iterator[Work]:
    """Preempt pods of lower priority on every node: with 2,000 budgets, and by dry runs."""
    raws = [
        r.placed(i, name=f"v-{i}", namespace="v", cpu="55", priority=-1) for i in range(r.nodes)
    ]
    for raw in raws:
        r.mirror.apply(resources.POD, "ADDED", raw)
    budgets = [pdb(f"b{i}", {"app": f"web-{i}"}, namespace=f"team-{i % 100}") for i in range(2000)]
    for raw in budgets:
        r.mirror.apply(resources.POD_DISRUPTION_BUDGET, "ADDED", raw)
    needs: dict[str, Any] = {"cpu": "62", "priority": 9, "spec": _MINE}
    r.wait(pod(f"p-{i}", **needs) for i in range(5))
    yield r.schedule()
    r.forget_all()
    r.wait(pod(f"p-{i}", ports=[80], **needs) for i in range(5))
    yield r.schedule()
    r.forget_all()
    for raw in budgets:
        r.mirror.apply(resources.POD_DISRUPTION_BUDGET, "DELETED", raw)
    for raw in raws:
        r.mirror.apply(resources.POD, "DELETED", raw)


def preemption_on_few_nodes(r: FullReplica) -> Iterator[Work]:
    """Preempt by dry runs on 100 feasible nodes with 30 potential victims each."""
    affinity = _only_on(r, 100)
    fields: dict[str, Any] = {"cpu": "62", "priority": 9, "spec": _MINE, "affinity": affinity}
    r.wait(pod(f"p-{i}", ports=[80], **fields) for i in range(3))
    yield r.schedule()
    r.forget_all()
    apart = {"podAntiAffinity": {_REQUIRED: [_away_from(f"web-{i}") for i in range(100)]}}
    r.wait([pod("terms", **(fields | {"affinity": affinity | apart}))])
    yield r.schedule()
    r.forget_all()


def preemption_against_budgets(r: FullReplica) -> Iterator[Work]:
    """Preempt on 100 nodes with 250 potential victims each, by requests and by dry runs."""
    small: dict[str, Any] = {"cpu": "100m", "memory": "1Mi", "priority": -1}
    raws = [
        r.placed(i % 100, name=f"v-{i}", namespace=f"team-{i % 100}", labels=_web(i), **small)
        for i in range(220 * min(100, r.nodes))
    ]
    budgets = [pdb(f"b{i}", _web(i), namespace=f"team-{i % 100}") for i in range(2000)]
    for kind, objects in ((resources.POD, raws), (resources.POD_DISRUPTION_BUDGET, budgets)):
        for raw in objects:
            r.mirror.apply(kind, "ADDED", raw)
    fields: dict[str, Any] = {"cpu": "62", "priority": 9, "affinity": _only_on(r, 100)}
    for ports in ([], [80]):
        r.wait([pod("preemptor", ports=ports, spec=_MINE, **fields)])
        yield r.schedule()
        r.forget_all()
    for kind, objects in ((resources.POD_DISRUPTION_BUDGET, budgets), (resources.POD, raws)):
        for raw in objects:
            r.mirror.apply(kind, "DELETED", raw)


def many_nominated(r: FullReplica) -> Iterator[Work]:
    """Nominate two pods per node to one node, decide about another, delete and add that node."""
    numbers = range(2 * r.nodes)
    r.wait(pod(f"x-{i}", cpu="100", nominated="n3", priority=5, spec=_MINE) for i in numbers)
    r.reject_all()
    r.wait([pod("beside", cpu="10m", ports=[80], priority=5, spec=_MINE)])
    yield r.schedule()
    yield r.apply(resources.NODE, "DELETED", r.node(3))
    yield r.apply(resources.NODE, "ADDED", r.node(3))
    r.forget_all()


def shadow(r: FullReplica) -> Iterator[Work]:
    """Let another scheduler bind 1,000 pods that a profile in mode Shadow decides about."""
    yield r.show_profile(profile("shadow", mode="Shadow"))
    spec = {"schedulerName": "shadow"}
    raws = [r.placed(i, name=f"s-{i}", spec=spec) for i in range(1000)]

    async def compare() -> None:
        slices = TimeSlices()
        for raw in raws:
            await slices.run(partial(r.mirror.apply, resources.POD, "ADDED", raw))
            await slices.pause()
        while await slices.run(partial(r.engine.shadow.compare, slices.end)):
            await slices.pause()

    yield compare()
    yield r.delete_profile("shadow")
    for raw in raws:
        r.mirror.apply(resources.POD, "DELETED", raw)


def explanation(r: FullReplica) -> Iterator[Work]:
    """Explain a pod that fits nowhere, with suggestions."""
    affinity = {"podAntiAffinity": {_REQUIRED: [_away_from("web-1")]}}
    r.wait([pod("why", cpu="100", affinity=affinity, priority=9, spec=_MINE)])
    yield r.schedule()
    yield r.reports.of("default/why")
    r.forget_all()


def events(r: FullReplica) -> Iterator[Work]:
    """Record an Event about each of 10,000 pods."""

    async def record() -> None:
        slices = TimeSlices()
        for i in range(10_000):
            ref = ObjectRef("Pod", f"p-{i}", namespace="default", uid=str(i))
            r.engine.recorder.record(ref, "Warning", "FailedScheduling", "Scheduling", "no " * 200)
            await slices.pause()

    yield record()


def full_decision_log(r: FullReplica) -> Iterator[Work]:
    """Decide about pods with records that push all older records out of the log."""
    r.wait_many(20 * r.nodes)
    labels = {f"k{i}": "x" * 60 for i in range(300)}
    r.wait(
        pod(f"l-{i}", namespace="team-1", cpu="100", labels=labels, priority=9, spec=_MINE)
        for i in range(20)
    )
    yield r.schedule(lambda: r.scheduler.queue.counts()["unschedulable"] >= 20)
    r.forget_all()


def huge_pod(r: FullReplica) -> Iterator[Work]:
    """Show a pod of 1.4 MB: without a node, on a node, and deleted."""
    raw = pod("huge", spec=_MINE)
    raw["metadata"]["annotations"] = {f"k{i}": "x" * 20 for i in range(20_000)}
    raw["metadata"]["labels"] = {f"k{i}": "x" for i in range(20_000)}
    requests = {"requests": {"cpu": "1m"}}
    raw["spec"]["containers"] = [{"name": f"c{i}", "resources": requests} for i in range(10_000)]
    yield r.handlers.on_pod({"type": "ADDED", "object": raw})
    yield r.handlers.on_pod({"type": "DELETED", "object": raw})
    raw["spec"]["nodeName"] = "n1"
    yield r.apply(resources.POD, "ADDED", raw)
    yield r.apply(resources.POD, "DELETED", raw)


def labels_at_the_limit(r: FullReplica) -> Iterator[Work]:
    """Bind 100 pods with 1,000 labels of their own each and 250 KB of annotations; delete them."""

    async def come_and_go(event: EventType) -> None:
        for i in range(100):
            labels = {f"p{i}-{k}": "x" for k in range(1000)}
            annotations = {f"k{k}": "x" * 1000 for k in range(250)}
            raw = r.placed(i, name=f"labels-{i}", labels=labels, annotations=annotations)
            await r.apply(resources.POD, event, raw)
            await asyncio.sleep(0)

    yield come_and_go("ADDED")
    yield come_and_go("DELETED")


def burst(r: FullReplica) -> Iterator[Work]:
    """Read 5,000 pods that come, change and go in one chunk of kopf's watch."""
    raws = [pod(f"b-{i}", cpu="100", spec=_MINE) for i in range(5000)]
    for raw in raws:
        raw["metadata"]["resourceVersion"] = "1"
    kinds = ("ADDED", "MODIFIED", "DELETED")
    lines = [orjson.dumps({"type": kind, "object": raw}) for kind in kinds for raw in raws]

    async def read() -> None:
        bursts, slices = PodEventFilter(r.handlers.on_pod, clock=lambda: 0.0), TimeSlices()
        for line in lines:
            await bursts.takes(*event_of(line), len(line))
            await slices.pause()

    yield read()


def profiles_of_namespaces(r: FullReplica) -> Iterator[Work]:
    """Create a profile for each of ten namespaces in which 20 pods per node wait; delete them."""
    r.wait(pod(f"w-{i}", namespace=f"team-{i % 10}", cpu="100") for i in range(20 * r.nodes))
    names = [f"team-{i}" for i in range(10)]
    for name in names:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        yield r.show_profile(profile(name, match={"namespaceSelector": selector}))
    for name in names:
        yield r.delete_profile(name)
    r.forget_all()


def hostile_pod(what: str, found: Pod) -> Case:
    """Return the case in which this pod is scheduled; `what` describes the pod."""

    def case(r: FullReplica) -> Iterator[Work]:
        spec = replace(found.spec, scheduler_name="mooring")
        r.engine.pod_enqueuer.pending(replace(found, spec=spec))
        yield r.schedule(lambda: r.scheduler.decisions.of(found.key))
        r.forget_all()

    case.__doc__ = f"Decide about a hostile pod: {what}."
    return case


async def _forget_slowly(r: FullReplica) -> None:
    """Remove all pods without a node, one after the other."""
    for uid in r.scheduler.queue.uids():
        r.engine.pod_enqueuer.gone(uid)
        await asyncio.sleep(0)


async def _call(call: Callable[[], object]) -> None:
    call()


async def _sees_all(namespaces: Iterable[str]) -> frozenset[str]:
    return frozenset(namespaces)


def _web(number: int) -> dict[str, str]:
    return {"app": f"web-{number % 700}"}


def _only_on(r: FullReplica, nodes: int) -> dict[str, Any]:
    """Return an affinity to the first nodes."""
    names = [r.node(n)["metadata"]["name"] for n in range(nodes)]
    return required_nodes(term(expression("kubernetes.io/hostname", "In", *names)))


def _away_from(app: str) -> Mapping[str, Any]:
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
        "namespaceSelector": {},
    }


def _grouping_by(label: str) -> dict[str, Any]:
    plugins = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}
    args = {"podGroupLabels": [{"name": label, "minimum": "rev"}]}
    config = [{"name": "GangScheduling", "args": args}]
    return profile("gangs", plugins=plugins, pluginConfig=config)


_MINE: Final = {"schedulerName": "mooring"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

CASES: Final[tuple[Case, ...]] = (
    relist_pods,
    relist_resized_pods,
    relist_nodes,
    relist_namespaces,
    relist_volumes,
    relist_services,
    relist_budgets,
    list_priority_classes,
    first_list,
    change_profile,
    delete_profile,
    profile_with_cards,
    profile_with_pods_on_cards,
    profile_with_groups,
    profile_that_groups_all,
    profile_with_rules,
    conflicting_profiles,
    namespace_labels,
    node_events,
    backoffs_end,
    comparison,
    namespace_deleted,
    unknown_node,
    large_gang,
    gang_that_fits_nowhere,
    huge_gang,
    gated_gang,
    many_gangs,
    scrape,
    cache_dump,
    pages,
    preemption,
    preemption_on_few_nodes,
    preemption_against_budgets,
    many_nominated,
    shadow,
    explanation,
    events,
    full_decision_log,
    huge_pod,
    labels_at_the_limit,
    burst,
    profiles_of_namespaces,
)
"""The cases; the docstring of each one describes its work."""
