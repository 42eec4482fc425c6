"""A replica over a large cluster without an API server; a case makes the cluster's events.

`asyncio.sleep(0)` ends a step of the task, as waiting for the next event does in the program.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson

from mooring.framework.registry import Registry
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.handlers.profile_handler import ProfileHandler, ProfileStatusWriter
from mooring.kube.api_resources import POD, Resource
from mooring.kube.client import ApiClient, Listing
from mooring.kube.config import Connection
from mooring.kube.reflector import EventType
from mooring.kube.response_checks import event_of
from mooring.mirroring.comparer import CacheComparer, WatchedResource
from mooring.mirroring.mirror import Mirror
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.observe.metrics import Metrics
from mooring.page.queue_view import Queue
from mooring.plugins import SHIPPED
from mooring.policy.profile import API_VERSION
from mooring.policy.profile import KIND as PROFILE
from mooring.process.time_slices import TimeSlices
from mooring.run.build import Engine
from mooring.run.replica import calm_the_collector
from mooring.scheduling.cache_dump import cache_dump
from mooring.scheduling.pod_report import PodReportBuilder
from mooring.state.cluster import ClusterState
from mooring.testing.builders import api_object, namespace, node, pod

PODS_PER_NODE: Final = 30
_NAMESPACES: Final = 100
_NOBODY: Final = Connection("http://127.0.0.1:9")
"""A connection to no API server: all writes fail at once."""


class FullReplica:
    """A replica with 30 pods per node: of Deployments, of StatefulSets and of DaemonSets.

    A pod of a StatefulSet has labels of its own. The clock returns the time plus `skipped` seconds.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.skipped = 0.0
        self._generation = 0
        self.metrics, self.state = Metrics(), ClusterState()
        self.client = ApiClient(_NOBODY)
        self.engine = Engine(
            self.client,
            self.state,
            Registry(SHIPPED, {}),
            identity="bench",
            metrics=self.metrics,
            clock=self.clock,
        )
        self.scheduler = self.engine.scheduler
        self.mirror = Mirror(self.state, clock=self.clock)
        self.profiles = ProfileHandler(self.scheduler.profiles, self.engine.pod_enqueuer)
        statuses = ProfileStatusWriter(
            self.profiles,
            self.engine.profile_writer,
            self.engine.recorder,
            turn=self.scheduler.turn,
        )
        self.handlers = ObjectHandlers(
            self.engine.pod_enqueuer,
            statuses,
            self.state,
            turn=self.scheduler.turn,
            listed=lambda: None,
            clock=self.clock,
        )
        self.reports = PodReportBuilder(self.scheduler, groups=self.engine.group_reports.report)
        self.queue = Queue(self.scheduler, bound=lambda: 0)
        self._fill()
        self.profiles.applied(profile("mooring"))
        calm_the_collector()

    def clock(self) -> float:
        return time.monotonic() + self.skipped

    def dump(self) -> Iterator[Mapping[str, Any]]:
        """Return the records of /debug/cache."""
        return cache_dump(self.scheduler)

    def node(self, number: int, **given: Any) -> dict[str, Any]:
        """Return the node as JSON of the API server."""
        labels = {"size": str(number % 50), "rack": f"r{number % 200}"} | given.pop("labels", {})
        return node(
            f"n{number}",
            cpu="64",
            memory="256Gi",
            zone=f"z{number % 3}",
            labels=labels,
            resources={"nvidia.com/gpu": 8},
            **given,
        )

    def placed(self, number: int, **given: Any) -> dict[str, Any]:
        """Return one of the pods on nodes as JSON of the API server."""
        on, place = number % self.nodes, number // self.nodes
        if place < 6:  # of a DaemonSet
            labels, kind = {"app": f"agent-{place}"}, f"agent-{place}"
        elif place < 12:
            labels, kind = {"app": f"db-{on % 500}", "pod": f"db-{number}"}, f"db-{on % 500}"
        else:
            labels, kind = {"app": f"web-{number % 700}", "rev": str(number % 2)}, "web"
        fields: dict[str, Any] = {
            "name": f"{kind}-{number}",
            "namespace": f"team-{number % _NAMESPACES}",
            "cpu": "100m",
            "memory": "128Mi",
            "labels": labels,
            "node": f"n{on}",
        }
        return pod(**(fields | given))

    def all_placed(self, **given: Any) -> Iterator[dict[str, Any]]:
        """Yield all pods on nodes as JSON of the API server."""
        return (self.placed(number, **given) for number in range(PODS_PER_NODE * self.nodes))

    def wait(self, raws: Iterable[Mapping[str, Any]]) -> list[Pod]:
        """Show these pods without a node to the replica; return the parsed pods."""
        pods = [parse_pod(raw) for raw in raws]
        for each in pods:
            self.engine.pod_enqueuer.pending(each)
        return pods

    def wait_many(self, number: int) -> list[Pod]:
        """Show this number of pods that fit nowhere, in ten namespaces; return the parsed pods."""
        return self.wait(
            pod(
                f"w-{i}",
                namespace=f"team-{i % 10}",
                labels={"app": f"w-{i % 500}"},
                cpu="100",
                spec={"schedulerName": "mooring"},
            )
            for i in range(number)
        )

    def forget_all(self) -> None:
        """Remove all pods without a node."""
        waiting = [*self.scheduler.queue.uids(), *self.scheduler.without_profile]
        for uid in waiting:
            self.engine.pod_enqueuer.gone(uid)

    def reject_all(self) -> None:
        """Reject every active pod because of its requests."""
        queue = self.scheduler.queue
        while (queued := queue.pop(self.clock())) is not None:
            queue.add_unschedulable(queued, frozenset(("NodeResourcesFit",)), self.clock())

    async def schedule(self, done: Callable[[], object] | None = None) -> None:
        """Run the scheduling loop until `done` returns True; by default until no pod is active."""
        queue = self.scheduler.queue

        def is_idle() -> bool:
            return not (
                queue.counts()["active"] or queue.in_flight or queue.run_hints(self.clock())
            )

        loop = asyncio.create_task(self.engine.loop.run())
        while not (done or is_idle)():  # noqa: ASYNC110 - the loop has no event for every state
            await asyncio.sleep(0)
        loop.cancel()
        await asyncio.wait([loop])

    async def apply(self, resource: Resource, event: EventType, raw: dict[str, Any]) -> None:
        """Pass an event of a watch to the mirror as a reflector does, from its line of JSON on."""
        raw["metadata"].setdefault("resourceVersion", "1")
        line = orjson.dumps({"type": event, "object": raw})
        await asyncio.sleep(0)  # to write it is the API server's work
        slices = TimeSlices(clock=self.clock)
        _, obj = event_of(line)
        await slices.pause()
        await slices.run(partial(self.mirror.apply, resource, event, obj))

    async def show_profile(self, raw: dict[str, Any]) -> None:
        """Pass the profile to its handler as kopf does, and find the profiles of pods again."""
        self._generation += 1
        raw["metadata"]["generation"] = self._generation
        await self.handlers.on_profile({"type": "MODIFIED", "object": raw})
        await asyncio.sleep(0)
        await TimeSlices().run(self.engine.pod_enqueuer.find_profiles)

    async def delete_profile(self, name: str) -> None:
        """Report that the profile was deleted, and find the profiles of pods again."""
        await self.handlers.on_profile({"type": "DELETED", "object": profile(name)})
        await asyncio.sleep(0)
        await TimeSlices().run(self.engine.pod_enqueuer.find_profiles)

    def compare(self, pods: Iterable[Pod], *, others: int) -> Coroutine[Any, Any, None]:
        """Compare the waiting pods with a list of these pods and `others` unknown ones.

        The list is made before the measurement, because an API server would make it.
        """
        listed = [{"metadata": _metadata(each.name, each.namespace, each.uid)} for each in pods]
        listed += [{"metadata": _metadata(f"o-{i}", "team-1", f"o-{i}")} for i in range(others)]
        return self._compare(listed)

    async def _compare(self, listed: list[dict[str, Any]]) -> None:
        enqueuer = self.engine.pod_enqueuer
        waiting = WatchedResource(
            POD,
            known=enqueuer.known,
            knows=lambda _, uid: enqueuer.knows(Uid(uid)),
            gone=lambda uid: enqueuer.gone(Uid(uid)),
            found=self.handlers.pod_read,
            gone_meanwhile=self.scheduler.departures.meanwhile,
        )
        ended = asyncio.Event()

        async def sleep(_seconds: float) -> None:
            """Let the comparer wait only before the next comparison."""
            if enqueuer.knows(Uid("o-0")):
                ended.set()
                await asyncio.Event().wait()

        client = _Listing(listed)
        comparer = CacheComparer(client, (waiting,), sleep=sleep)
        running = asyncio.create_task(comparer.run())
        await ended.wait()
        running.cancel()
        await asyncio.wait([running])
        await client.close()

    async def relist(self, resource: Resource, raws: Iterable[dict[str, Any]]) -> None:
        """Read a list as a reflector does."""
        slices, relist = TimeSlices(clock=self.clock), self.mirror.relist(resource)
        for raw in raws:
            await slices.run(partial(relist.add, raw))
            await slices.pause()
        await slices.run(relist.apply)

    def _fill(self) -> None:
        for number in range(_NAMESPACES):
            raw = namespace(f"team-{number}", {"team": f"t{number}"})
            self.state.put(Kind.NAMESPACE, f"team-{number}", parse_object(Kind.NAMESPACE, raw))
        for number in range(self.nodes):
            self.state.put(Kind.NODE, f"n{number}", parse_node(self.node(number)))
        for raw in self.all_placed():
            parsed = parse_pod(raw)
            self.state.put(Kind.POD, parsed.uid, parsed)


class _Listing(ApiClient):
    """A client of an API server that lists these objects and returns each of them as a pod."""

    def __init__(self, listed: list[dict[str, Any]]) -> None:
        super().__init__(_NOBODY)
        self._listed = listed

    async def list_all(self, *_: object, **_options: object) -> Listing:
        await asyncio.sleep(0)  # as the answer of an API server is waited for
        return Listing(self._listed, "1")

    async def get(self, _: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        raw = pod(name, namespace=namespace or "", spec={"schedulerName": "mooring"})
        raw["metadata"]["uid"] = name
        return raw


def _metadata(name: str, namespace: str, uid: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"}


def profile(name: str, **spec: Any) -> dict[str, Any]:
    """Return a SchedulingProfile as JSON of the API server, with generation 0."""
    raw = api_object(PROFILE, name, spec=spec)
    raw["apiVersion"] = API_VERSION
    raw["metadata"] |= {"generation": 0, "resourceVersion": "1"}
    return raw
