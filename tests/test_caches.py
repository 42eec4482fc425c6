"""Every cache of tenants' data has a limit in bytes.

A whole replica gets objects of every kind with unique names, labels and texts, and then all objects
are deleted. The program keeps whatever is left afterwards. The test finds every cache by a walk
over all objects of the program; a cache is right only if it counts its own bytes.
"""

import asyncio
import gc
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import pytest

from deciding import Deciding
from device_builders import resource_slice
from handlers.small_api import KOPF, SmallApi
from holders import Holders, most_bytes
from kube.api_server import ApiServer, Request, bookmark, event
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE, Resource
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.mirroring.mirror import MIRRORED
from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.pod import parse_pod
from mooring.run.replica import Scheduler
from mooring.run.settings import RunSettings
from mooring.scheduling.outcome import ScheduleResult
from mooring.testing.builders import (
    api_object,
    namespace,
    node,
    pdb,
    pod,
    service,
    toleration,
)
from storage_builders import (
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
    volume_attachment,
)

pytestmark = pytest.mark.deep

Raw = dict[str, Any]
SECONDS: Final = 60.0
MARK: Final = re.compile(rb"tnt-(\d+)")
TENANTS: Final = 16
_FEW: Final = 4
"""What a task has in its hands, or what was looked at last, may be left of so many tenants."""

_SHARED: Final = 2**14
"""What a bounded object may have beside what it counts, such as the code of its functions."""


class Cluster:
    """An API server with objects that the test adds and deletes; it accepts every Binding."""

    def __init__(self) -> None:
        self._small = SmallApi()
        self._watches = defaultdict[str, list[Request]](list)
        self._paths = {resource.path(): resource for resource in MIRRORED}
        self._version = 10
        self.pods: dict[str, Raw] = {}
        """By path, those without a node."""
        self.profiles: dict[str, Raw] = {}
        self.bound: dict[str, Raw] = {}
        self.refused: set[str] = set()
        """The paths of pods whose status says that they cannot be bound."""
        self.reported: set[str] = set()
        """The paths of profiles whose status was written."""

    def __call__(self, request: Request) -> None:
        if request.path.endswith("/binding"):
            self._bind(request)
        elif request.method == "PATCH":
            path = request.path.removesuffix("/status")
            (self.refused if "/pods/" in path else self.reported).add(path)
            request.reply(request.body)
        elif request.method != "GET":
            request.reply({}, 201)
        elif "sendInitialEvents" in request.query and request.path in self._paths:
            self._watches[request.path].append(request)
            request.send(bookmark(1, initial_end=True))
        else:
            # After ten seconds the replica compares what it has with lists: it forgets the rest.
            self._small.items[POD] = list(self.pods.values())
            self._small.items[SCHEDULING_PROFILE] = list(self.profiles.values())
            self._small.respond(request)

    def _bind(self, request: Request) -> None:
        path = request.path.removesuffix("/binding")
        raw = self.pods.pop(path)
        request.reply({}, 201)
        raw["spec"]["nodeName"] = request.body["target"]["name"]
        self.bound[path] = raw
        self._tell(self._small.watches(POD), "DELETED", raw)
        self._tell(self._watches[POD.path()], "ADDED", raw)

    def put(self, resource: Resource, raw: Raw) -> None:
        """Add the object to the cluster, and send an event to its watches."""
        if resource is POD and not raw["spec"].get("nodeName"):
            self.pods[_path(POD, raw)] = raw
            self._tell(self._small.watches(POD), "ADDED", raw)
        else:
            if resource is SCHEDULING_PROFILE:
                self.profiles[_path(resource, raw)] = raw
            self._tell(self._watched(resource), "ADDED", raw)

    def delete(self, resource: Resource, raw: Raw) -> None:
        """Delete the object from the cluster, and send an event to its watches."""
        path = _path(resource, raw)
        watches = self._small.watches(POD) if path in self.pods else self._watched(resource)
        for objects in (self.pods, self.bound, self.profiles):
            objects.pop(path, None)
        self._tell(watches, "DELETED", raw)

    def forget(self) -> None:
        """Forget the recorded data about earlier objects."""
        self.refused.clear()
        self.reported.clear()

    def _watched(self, resource: Resource) -> list[Request]:
        if resource is SCHEDULING_PROFILE:
            return self._small.watches(resource)
        return self._watches[resource.path()]

    def _tell(self, watches: Iterable[Request], kind: str, raw: Raw) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        for request in watches:
            request.send(event(kind, raw))

    @property
    def is_watched(self) -> bool:
        """Whether the replica watches all resources."""
        kopf = all(self._small.watches(resource) for resource in (POD, SCHEDULING_PROFILE))
        return kopf and all(self._watches[path] for path in self._paths)


def _path(resource: Resource, raw: Raw) -> str:
    namespace = raw["metadata"].get("namespace")
    return resource.path(namespace, raw["metadata"]["name"])


HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def texts(mark: str) -> dict[str, str]:
    """Return labels or annotations that contain `mark`."""
    return {f"{mark}/key": f"{mark}-value", "shared": f"{mark}-{'x' * 200}"}


def kind_of(name: str) -> Resource:
    return next(resource for resource in MIRRORED if resource.kind == name)


def surroundings(mark: str) -> Iterator[Raw]:
    """Yield all objects of a tenant except pods; their names contain `mark`."""
    yield namespace(mark, texts(mark))
    yield node(
        f"{mark}-node",
        labels=texts(mark),
        annotations=texts(mark),
        taints=[f"{mark}={mark}:NoSchedule"],
        images={f"{mark}/image:v1": 1000},
        resources={f"{mark}.example/card": 4},
        zone=f"{mark}-zone",
        conditions={mark: "True"},
    )
    yield service(f"{mark}-service", {"app": mark}, namespace=mark)
    yield pdb(f"{mark}-budget", {"app": mark}, namespace=mark)
    selected = {"selector": {"matchLabels": {"app": mark}}}
    yield api_object("ReplicaSet", f"{mark}-set", namespace=mark, spec=selected)
    yield api_object("StatefulSet", f"{mark}-set", namespace=mark, spec=selected)
    yield storage_class(f"{mark}-class", provisioner=f"{mark}.example")
    yield pv(f"{mark}-volume", storage_class=f"{mark}-class", claim=f"{mark}/{mark}-claim")
    yield pvc(
        f"{mark}-claim", namespace=mark, storage_class=f"{mark}-class", volume=f"{mark}-volume"
    )
    yield csi_node("n1", {f"{mark}.example": 4})
    yield storage_capacity(f"{mark}-capacity", storage_class=f"{mark}-class", size="1Gi")
    yield volume_attachment(f"{mark}-attached", f"{mark}.example", "n1", f"{mark}-volume")


def apart(mark: str) -> Raw:
    term = {
        "labelSelector": {
            "matchExpressions": [
                {"key": "app", "operator": "In", "values": [mark, f"{mark}-{'y' * 200}"]},
                {"key": f"{mark}/key", "operator": "DoesNotExist"},
            ]
        },
        "topologyKey": HOSTNAME,
    }
    near = {**term, "topologyKey": f"{mark}/zone"}
    weighted = [{"weight": 1, "podAffinityTerm": near}]
    greater = {"key": f"{mark}/n", "operator": "Gt", "values": [f"1{'0' * 300}"]}
    return {
        "podAntiAffinity": {HARD: [term], "preferredDuringSchedulingIgnoredDuringExecution": []},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [greater]}}
            ]
        },
    }


def spread(mark: str, when: str) -> Raw:
    return {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": when,
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": mark}},
        "matchLabelKeys": [f"{mark}/key"],
    }


def placed(mark: str) -> Iterator[Raw]:
    """Yield pods that fit on a node."""
    yield pod(
        f"{mark}-full",
        namespace=mark,
        labels={"app": mark, **texts(mark)},
        annotations={**texts(mark), "scheduling.mooring.dev/gpu-type": mark, "gpu-index": mark},
        ports=[{"hostPort": 1, "protocol": f"TCP-{mark}"}],
        images=(f"{mark}/image:v1",),
        affinity=apart(mark),
        spread=[spread(mark, "ScheduleAnyway"), spread(mark, "DoNotSchedule")],
        tolerations=[toleration(mark)],
        owner={"kind": "ReplicaSet", "name": f"{mark}-set", "uid": mark, "apiVersion": "apps/v1"},
    )
    yield pod(f"{mark}-plain", namespace=mark, spec={"schedulerName": f"{mark}-own"})


def unplaced(mark: str) -> Iterator[Raw]:
    """Yield pods that fit nowhere."""
    yield pod(f"{mark}-nowhere", namespace=mark, node_selector={f"{mark}/where": mark})
    yield pod(f"{mark}-card", namespace=mark, requests={f"{mark}.example/none": 1})
    yield pod(f"{mark}-claim", namespace=mark, claims=[f"{mark}-missing"])
    yield pod(f"{mark}-large", namespace=mark, cpu="1000", priority=100, labels=texts(mark))


def waiting(mark: str) -> Iterator[Raw]:
    """Yield pods that Mooring does not try to schedule."""
    yield pod(f"{mark}-gated", namespace=mark, gates=[f"{mark}/gate"])
    yield pod(f"{mark}-other", namespace=mark, spec={"schedulerName": f"{mark}-scheduler"})
    yield pod(f"{mark}-member", namespace=mark, group=f"{mark}-group")


def profile(mark: str) -> Raw:
    rule = {"name": mark, "filter": f"node.name != '{mark}' && pod.namespace != '{mark}-no'"}
    extender = {
        "urlPrefix": f"http://{mark}.example",
        "weight": 1,
        "ignorable": True,
        "managedResources": [{"name": f"{mark}.example/managed", "ignoredByScheduler": True}],
    }
    spec = {
        "match": {"schedulerNames": [f"{mark}-own"]},
        "rules": [rule],
        "extenders": [extender],
    }
    return {
        "apiVersion": SCHEDULING_PROFILE.api_version,
        "kind": SCHEDULING_PROFILE.kind,
        "metadata": {"name": mark, "uid": mark, "generation": 1},
        "spec": spec,
    }


def program(**parts: object) -> Holders:
    """Return all objects reachable from these parts and from the modules of Mooring."""
    gc.collect()
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("mooring")]
    return Holders(MARK, *parts.items(), *((module.__name__, vars(module)) for module in modules))


def leftovers(scheduler: Scheduler) -> dict[str, int]:
    """Return, by place outside of caches that count bytes, how many tenants have left a text."""
    return {
        where: len(found)
        for where, found in program(scheduler=scheduler).marks.items()
        if len(found) > _FEW
    }


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[Scheduler]:
    settings = RunSettings(
        leader_elect=False, bind_address="127.0.0.1", secure_port=0, stop_seconds=1.0
    )
    async with ApiServer(cluster) as server:
        connection = Connection(server.url, user_agent=KOPF)
        async with ApiClient(Connection(server.url)) as client:
            scheduler = Scheduler(settings, connection, client)
            replica = asyncio.create_task(scheduler.run())
            try:
                await until(lambda: cluster.is_watched)
                yield scheduler
            finally:
                replica.cancel()
                await asyncio.wait([replica])


async def until(holds: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the replica has no event for every state
            await asyncio.sleep(0.02)


async def come_and_go(cluster: Cluster, mark: str) -> None:
    """Create all objects of a tenant with this mark, let them be scheduled, and delete them."""
    around = [(kind_of(raw["kind"]), raw) for raw in surroundings(mark)]
    fitting, others = [*placed(mark)], [*unplaced(mark)]
    pods = [*fitting, *others, *waiting(mark)]
    for resource, raw in around:
        cluster.put(resource, raw)
    own = profile(mark)
    cluster.put(SCHEDULING_PROFILE, own)
    await until(lambda: _path(SCHEDULING_PROFILE, own) in cluster.reported)
    for raw in pods:
        cluster.put(POD, raw)
    await until(lambda: all(_path(POD, raw) in cluster.bound for raw in fitting))
    await until(lambda: all(_path(POD, raw) in cluster.refused for raw in others))
    for raw in pods:
        cluster.delete(POD, raw)
    cluster.delete(SCHEDULING_PROFILE, own)
    for resource, raw in reversed(around):
        cluster.delete(resource, raw)
    cluster.forget()


async def test_whatever_is_kept_of_what_is_gone_has_a_bound_in_bytes() -> None:
    cluster = Cluster()
    async with running(cluster) as scheduler:
        cluster.put(kind_of("Node"), node("n1", zone="a"))
        cluster.put(kind_of("Node"), node("n2", zone="b"))
        default = profile("default-scheduler") | {"spec": {}}
        cluster.put(SCHEDULING_PROFILE, default)
        for number in range(TENANTS):
            await come_and_go(cluster, f"tnt-{number}")
        with suppress(TimeoutError):
            await until(lambda: not leftovers(scheduler))
        assert leftovers(scheduler) == {}, "kept without a bound in bytes, of how many tenants"
        found = program(scheduler=scheduler)
        counted = {where: (one.bytes, most_bytes(one)) for where, one in found.bounded}
        own = {where: found.own_bytes(where, one) for where, one in found.bounded}
        for where, (counts, most) in counted.items():
            assert most is not None
            assert counts <= most, where
            assert own[where] <= 1.5 * counts + _SHARED, where


def test_devices_that_have_only_a_name_count_what_they_take() -> None:
    for number in range(20):
        names = [f"d{number}-{index}" for index in range(100)]
        parse_resource_slice(resource_slice(f"s{number}", names, node="n"))
    found = program()
    caches = [each for each in found.bounded if each[0].startswith(parse_resource_slice.__module__)]
    for where, cache in caches:
        assert found.own_bytes(where, cache) <= 1.5 * cache.bytes + _SHARED
    assert caches


def bomb(number: int) -> Raw:
    """Return a pod of 250 KB that exceeds no limit."""
    values = [f"tnt-{number}-{'z' * 44}-{value:05}" for value in range(3800)]
    selected = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    term = {"labelSelector": selected, "topologyKey": HOSTNAME}
    return pod(f"bomb-{number}", affinity={"podAntiAffinity": {HARD: [term]}})


@contextmanager
def own_garbage() -> Iterator[list[object]]:
    """Yield a list; at the end, it gets Mooring's unreachable objects that are in cycles."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    yield found
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found += [one for one in gc.garbage if type(one).__module__.startswith("mooring.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_what_a_cache_drops_is_free_at_once() -> None:
    """The collector counts objects, not bytes, so an unreachable cycle may keep hundreds of MiB."""
    with own_garbage() as garbage:
        deciding = Deciding(node("a"), node("b"))
        for number in range(80):
            assert isinstance(deciding.outcome(bomb(number)), ScheduleResult)
    assert sum(one.bytes for _, one in program(state=deciding.state).bounded) > 2**26 - 2**21
    assert garbage == []


def test_pods_of_250_kb_that_come_and_go_leave_a_bounded_number_of_bytes() -> None:
    before = sum(one.bytes for _, one in program().bounded)  # of the tests that ran before
    deciding = Deciding(node("a"), node("b"))
    for number in range(220):
        raw = bomb(number)
        outcome = deciding.outcome(raw)
        assert isinstance(outcome, ScheduleResult)
        bound = parse_pod({**raw, "spec": {**raw["spec"], "nodeName": outcome.node}})
        assert bound.limit_exceeded is None
        deciding.state.put(Kind.POD, bound.uid, bound)
        deciding.state.delete(Kind.POD, bound.uid)
    del raw, outcome, bound
    found = program(state=deciding.state, results=deciding.shared)
    kept = sum(one.bytes for _, one in found.bounded) - before
    assert 128 * 2**20 <= kept <= 300 * 2**20
    left = {where: len(marks) for where, marks in found.marks.items() if len(marks) > _FEW}
    assert left == {}
