"""One whole replica against a small API server; tests/e2e has tests with a real cluster."""

import asyncio
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import aiohttp
import pytest
import yaml
from cryptography import x509

from certificates import insecure
from controlplane.processes import free_ports
from handlers.small_api import KOPF, SmallApi
from kube.api_server import ApiServer, Request, bookmark, event
from kube.lease_server import COLLECTION, LeaseServer
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.kube import reviews as reviews_module
from mooring.kube.api_resources import NODE, POD, SCHEDULING_PROFILE
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.lease import CERTIFICATE, SERVER, LeaderElector, Leadership
from mooring.mirroring import reflectors as reflectors_module
from mooring.mirroring.mirror import MIRRORED
from mooring.pausing import pause_now
from mooring.process.time_slices import TimeSlices
from mooring.run import replica as app_module
from mooring.run.replica import Scheduler
from mooring.run.settings import RunSettings
from mooring.testing.builders import api_object, node, pod
from replica import ROOT

SECONDS: Final = 60.0
STOP_SECONDS: Final = 0.2
QUICK: Final[dict[str, Any]] = {
    "lease_duration": 3,
    "renew_deadline": 2.0,
    "retry_period": 0.5,
}


def profile(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": "1", "uid": name, "generation": 1}
    return api_object(SCHEDULING_PROFILE.kind, name, spec=spec) | {
        "apiVersion": SCHEDULING_PROFILE.api_version,
        "metadata": metadata,
    }


def pending(name: str, **fields: Any) -> dict[str, Any]:
    raw = pod(name, spec={"schedulerName": "mooring"}, **fields)
    raw["metadata"]["resourceVersion"] = "1"
    return raw


class Cluster:
    """The handler of an API server with one node, one profile, one lease and one pending pod."""

    def __init__(self) -> None:
        self.leases = LeaseServer()
        self.nodes_allowed = True
        self.minor = "37"
        self.bindings: list[Request] = []
        self.claims: list[Request] = []
        self.replica: Scheduler | None = None
        """The replica that `electing` has made."""
        self.seen: list[Request] = []
        self.ends: list[int] = []
        self._small = SmallApi()
        self.profiles = self._small.items[SCHEDULING_PROFILE] = [profile("mooring")]
        self.pods = self._small.items[POD] = [pending("web")]
        self._paths = {resource.path() for resource in MIRRORED}
        self._node_watches: list[Request] = []

    def __call__(self, request: Request) -> None:
        self.seen.append(request)
        if request.path.startswith(COLLECTION):
            self.leases.respond(request)
        elif request.path.endswith("/binding"):
            self.bindings.append(request)  # and never answered
        elif "/resourceclaims/" in request.path:
            self.claims.append(request)  # nor is this
        elif request.path == "/version":
            request.reply({"major": "1", "minor": self.minor})
        elif request.path == NODE.path() and not self.nodes_allowed:
            request.refuse(403, "Forbidden", "nodes are not for you")
        elif "sendInitialEvents" in request.query and request.path in self._paths:
            self._mirrored(request)
        elif request.path == NODE.path():
            request.send(bookmark(1))  # a watch that goes on
        else:
            self._small.respond(request)

    def _mirrored(self, request: Request) -> None:
        objects = []
        if request.path == NODE.path():
            raw = node("a")
            raw["metadata"]["resourceVersion"] = "1"
            objects.append(event("ADDED", raw))
            self._node_watches.append(request)
        request.send(*objects, bookmark(1, initial_end=True))

    def stop_serving_nodes(self) -> None:
        """End the watches of nodes, and accept no new ones."""
        self.nodes_allowed = False
        for request in self._node_watches:
            request.cut()

    @property
    def writes(self) -> list[Request]:
        """All write requests in the order of their arrival."""
        return [request for request in self.seen if request.method != "GET"]

    @property
    def holder(self) -> str | None:
        """The holder of the lease; None before the first request for it."""
        if self.leases.lease is None:
            return None
        holder: str = self.leases.spec["holderIdentity"]
        return holder


class SlowKopf:
    """A replacement of kopf that shows one profile and the pods slowly, one by one."""

    restarts: Final = 0

    def __init__(self, cluster: Cluster, handlers: ObjectHandlers) -> None:
        self._cluster = cluster
        self._handlers = handlers
        self.listed = asyncio.Event()

    async def run(self, _restore_signals: Callable[[], None]) -> None:
        await self._handlers.on_profile({"type": None, "object": self._cluster.profiles[0]})
        for raw in self._cluster.pods:
            await self._handlers.on_pods([raw])
            for _ in range(100):
                await asyncio.sleep(0)
        self.listed.set()
        await asyncio.Event().wait()

    async def until_watchable(self) -> None: ...

    async def until_pods_are_listed(self) -> None:
        await self.listed.wait()

    def problem(self) -> str | None: ...


@contextmanager
def signals_restored() -> Iterator[None]:
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


@asynccontextmanager
async def replica(server: ApiServer) -> AsyncIterator[tuple[str, asyncio.Task[int]]]:
    """Yield the address of a running replica's endpoints, and the replica."""
    (port,) = free_ports(1)
    settings = RunSettings(leader_elect=False, bind_address="127.0.0.1", secure_port=port)
    connection = Connection(server.url)
    async with ApiClient(connection) as client:
        running = asyncio.create_task(Scheduler(settings, connection, client).run())
        with signals_restored():
            yield f"https://127.0.0.1:{port}", running


@asynccontextmanager
async def electing(cluster: Cluster, **environment: Any) -> AsyncIterator[asyncio.Task[int]]:
    """Yield a replica that takes part in the election; its exit codes go to `cluster.ends`.

    `environment` has fields of the replica's Environment that differ from the default.
    """
    settings = RunSettings(
        bind_address="127.0.0.1", secure_port=0, stop_seconds=STOP_SECONDS, **QUICK
    )
    leadership = Leadership()
    async with (
        ApiServer(cluster) as server,
        ApiClient(Connection(server.url), may_write=leadership.valid) as client,
        ApiClient(Connection(server.url)) as leases,
    ):
        elector = LeaderElector(
            leases,
            name="mooring",
            namespace="kube-system",
            identity="here",
            leadership=leadership,
            **QUICK,
        )
        scheduler = Scheduler(
            settings,
            Connection(server.url, user_agent=KOPF),
            client,
            elector,
            environment=app_module.Environment(end_process=cluster.ends.append, **environment),
        )
        cluster.replica = scheduler
        running = asyncio.create_task(scheduler.run())
        try:
            with signals_restored():
                yield running
        finally:
            running.cancel()
            await asyncio.wait([running])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the replica has no event for every state
            await asyncio.sleep(0.01)


async def answer(url: str) -> tuple[int, str]:
    """Wait until the endpoint answers; return status and text."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS):
        while True:
            try:
                async with session.get(url, ssl=insecure()) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


async def test_a_replica_that_has_not_seen_the_cluster_lives_but_is_not_ready() -> None:
    refusing = ApiServer(lambda request: request.refuse(500, "InternalError", "no etcd"))
    async with refusing as server, replica(server) as (url, running):
        status, page = await answer(f"{url}/livez?verbose")
        assert status == 200
        assert "[+]leaderElection ok\n[+]scheduling ok" in page
        status, words = await answer(f"{url}/readyz?verbose")
        assert status == 500
        assert "not listed yet" in words
        assert not running.done()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await running == 0


async def test_a_replica_that_waits_for_the_clients_ca_stops_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The endpoints are served when the CA is known, or after ten seconds."""
    monkeypatch.setattr(reviews_module, "REVIEW_SECONDS", 10 * SECONDS)
    async with ApiServer() as server, replica(server) as (_, running):
        request = await server.next()
        assert request.path.endswith("/configmaps/extension-apiserver-authentication")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await running == 0


@pytest.mark.parametrize("in_pod", [True, False])
async def test_only_a_leader_outside_of_a_pod_says_in_the_lease_where_it_is(
    monkeypatch: pytest.MonkeyPatch, *, in_pod: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    cluster = Cluster()
    async with electing(cluster):
        await until(lambda: cluster.holder == "here")
        assert cluster.leases.lease is not None
        found = cluster.leases.lease["metadata"].get("annotations", {})
    if in_pod:
        assert found == {}
        return
    server, certificate = found[SERVER], found[CERTIFICATE]
    assert re.fullmatch(r"https://127\.0\.0\.1:[1-9]\d+", server)
    assert x509.load_pem_x509_certificate(certificate.encode())


async def test_the_collector_is_told_of_the_mirror_before_the_first_list_comes() -> None:
    cluster, listed_before = Cluster(), list[int]()

    def spare() -> None:
        listed_before.append(sum(request.path == NODE.path() for request in cluster.seen))

    async with electing(cluster, spare_mirror=spare):
        await until(lambda: cluster.holder == "here")
    assert listed_before == [0]


async def test_a_replica_asks_for_the_lease_only_once_it_has_seen_the_whole_cluster() -> None:
    cluster = Cluster()
    cluster.nodes_allowed = False
    async with electing(cluster) as running:
        await until(lambda: sum(request.path == NODE.path() for request in cluster.seen) > 1)
        assert cluster.leases.lease is None
        cluster.nodes_allowed = True
        await until(lambda: cluster.holder == "here")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    synced = max(n for n, request in enumerate(cluster.seen) if request.path == NODE.path())
    asked = [n for n, request in enumerate(cluster.seen) if request.path.startswith(COLLECTION)]
    assert synced < min(asked)


async def test_a_stand_by_whose_watch_is_broken_does_not_ask_for_the_lease() -> None:
    """It may have missed bindings of the last leader, so full nodes may look free."""
    cluster = Cluster()
    cluster.leases.write("another")

    def asked(path: str) -> int:
        return sum(request.path.startswith(path) for request in cluster.seen)

    async with electing(cluster) as running:
        await until(lambda: asked(COLLECTION))
        cluster.stop_serving_nodes()
        refused = asked(NODE.path()) + 1
        await until(lambda: asked(NODE.path()) >= refused)
        cluster.leases.write("")
        await until(lambda: asked(NODE.path()) > refused)
        assert cluster.holder == ""
        cluster.nodes_allowed = True
        await until(lambda: cluster.holder == "here")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0


async def test_nothing_is_decided_before_all_profiles_of_the_beginning_are_in_force() -> None:
    """Kopf shows profiles one by one, and reading a profile's rules may take long."""
    cluster = Cluster()
    mine = {"schedulerNames": ["mooring"], "precedence": 1}
    elsewhere = {"name": "elsewhere", "filter": "node.name == 'b'"}
    cluster.profiles.append(profile("first", match=mine, rules=[elsewhere]))

    def told() -> bool:
        return any(request.path.endswith("/pods/web/status") for request in cluster.writes)

    async with electing(cluster, kopf=lambda handlers, *_: SlowKopf(cluster, handlers)):
        await until(lambda: cluster.bindings or told())
    assert cluster.bindings == []


async def test_a_profile_that_goes_before_kopf_lists_is_soon_out_of_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No watch shows the deletion, because kopf has never seen this profile."""
    monkeypatch.setattr("mooring.mirroring.comparer.PAUSE_SECONDS", 0.0)
    cluster = Cluster()
    cluster.pods.clear()

    def in_force() -> bool:
        replica = cluster.replica
        return replica is not None and "mooring" in replica.engine.scheduler.profiles.in_force

    class DeletedBefore(SlowKopf):
        async def run(self, _restore_signals: Callable[[], None]) -> None:
            await until(in_force)
            cluster.profiles.clear()
            self.listed.set()
            await asyncio.Event().wait()

    async with electing(cluster, kopf=lambda handlers, *_: DeletedBefore(cluster, handlers)):
        await until(lambda: not cluster.profiles and not in_force())


async def test_nothing_is_decided_before_all_pods_of_the_beginning_have_come_in() -> None:
    """Otherwise a pod listed early could take the room of a pod of higher priority."""
    cluster = Cluster()
    cluster.pods[:] = [pending("early", cpu="3"), pending("urgent", cpu="3", priority=10)]
    async with electing(cluster, kopf=lambda handlers, *_: SlowKopf(cluster, handlers)):
        await until(lambda: cluster.bindings)
    assert [request.path.split("/")[-2] for request in cluster.bindings] == ["urgent"]


async def test_on_sigterm_the_lease_is_released_after_the_last_write_and_within_the_deadline() -> (
    None
):
    """The replica stops waiting for an unanswered Binding at the deadline."""
    cluster = Cluster()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    assert cluster.writes[-1].path.startswith(COLLECTION)
    assert cluster.holder == ""
    assert cluster.ends == []


async def test_on_sigterm_the_answer_to_a_write_of_a_claim_is_waited_for() -> None:
    """Otherwise the next leader could read the claim before the server carries out the write."""
    cluster = Cluster()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)
        cluster.bindings[0].reply({}, 201)
        assert cluster.replica is not None
        api = cluster.replica.engine.api

        async def write() -> None:
            async with api.alone("c"):
                await api.update("resourceclaims", "default", "c", {})

        api.later(write)
        await until(lambda: cluster.claims)
        began = asyncio.get_running_loop().time()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
        assert asyncio.get_running_loop().time() - began >= STOP_SECONDS
    assert cluster.claims[0].gone.is_set()
    assert cluster.holder == ""


async def test_a_replica_that_stops_first_takes_in_what_its_watches_have_brought() -> None:
    cluster, in_time = Cluster(), list[bool]()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)

        def take_in() -> None:
            while cluster.holder:
                pause_now()
            for _ in range(1000):
                pause_now()
            in_time.append(not running.done())

        assert cluster.replica is not None
        turn = cluster.replica.engine.scheduler.turn
        async with turn:
            await asyncio.create_task(turn.deliver(take_in, 1, TimeSlices()))
            os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
    assert in_time == [True]


async def test_a_replica_whose_lease_is_lost_ends_the_process_at_once() -> None:
    cluster = Cluster()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)
        cluster.leases.write("another")
        await until(lambda: cluster.ends)
        writes = len(cluster.writes)
        assert await running == 1
    assert cluster.ends == [1]
    assert len(cluster.writes) == writes
    assert cluster.holder == "another"


async def test_a_leader_that_cannot_work_gives_the_lease_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in (
        (app_module, "_UNABLE_SECONDS"),
        (app_module, "_HEALTH_SECONDS"),
        (reflectors_module, "DEAD_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    cluster = Cluster()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)
        cluster.stop_serving_nodes()
        assert await running == 1
    assert cluster.holder == ""
    assert cluster.ends == []
    assert "this replica cannot work and gives the lease up: not watched for" in caplog.text


@pytest.mark.parametrize(
    ("minor", "line"),
    [
        ("37", "the API server is 1.37, whose rules apply"),
        ("36", "the API server is 1.36, whose rules apply"),
        ("99", "1.99"),
    ],
)
async def test_a_replica_says_at_its_start_by_which_rules_it_decides(
    minor: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.minor = minor
    with caplog.at_level(logging.INFO):
        async with electing(cluster):
            await until(lambda: cluster.bindings)
    assert line in caplog.text


async def test_a_replica_whose_server_has_another_version_stops_in_order_to_begin_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick = partial(reflectors_module.Reflectors, look_seconds=0.01)
    monkeypatch.setattr(app_module, "Reflectors", quick)
    cluster = Cluster()
    async with electing(cluster) as running:
        await until(lambda: cluster.bindings)
        cluster.minor = "35"
        assert await running == 1
    assert cluster.holder == ""
    assert cluster.ends == []
    line = "the API server is 1.35, and was 1.37: the process ends and must be started again"
    assert line in caplog.text


def test_a_replica_stops_within_the_grace_period_of_the_shipped_deployment() -> None:
    """After --stop-seconds come undoing, the last writes, the release and the endpoints' end."""
    settings = RunSettings()
    with (ROOT / "manifests" / "deployment.yaml").open() as manifests:
        deployment = next(yaml.safe_load_all(manifests))
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    after = 1.0 + 1.0 + settings.retry_period + 1.0
    assert settings.stop_seconds + after <= grace - 5
