"""The statuses of changed Queues are written once a second."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from background import in_background
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import ELASTIC_QUOTA, SIGS_ELASTIC_QUOTA
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import parse_pod
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.quota.status.queue_status_reporter import QueueStatusReporter
from mooring.testing.builders import namespace, node, pod, queue_object, uid_of
from queue_files import elastic_quota, koordinator_quota
from scheduler_states import put_profile, scheduler_state

LABELS = {QUEUE_LABEL: "team-a"}


class Queues:
    """A cluster whose Queue statuses go to a server that keeps the patches."""

    def __init__(self, objects: list[dict[str, Any]], client: ApiClient, server: "Server") -> None:
        self._clock = VirtualClock()
        self.time = 0.0
        self.scheduler = scheduler_state(
            *objects, clock=lambda: self.time, now=lambda: self.time, sleep=self._clock.sleep
        )
        self.server = server
        self.served = {Kind.ELASTIC_QUOTA: ELASTIC_QUOTA}
        self.reports = QueueStatusReporter(self.scheduler, client, lambda: self.served)

    async def round(self, seconds: float = 1.0) -> dict[str, Any]:
        """Advance the clock by `seconds`; return the statuses written then, by name."""
        await self._clock.sleepers(2)
        self.server.patched()
        self.time += seconds
        await self._clock.advance(1.0)
        return await self.written()

    async def written(self) -> dict[str, Any]:
        """Wait until the reporter and its retries are asleep; return the written statuses."""
        await self._clock.sleepers(2)
        return self.server.patched()

    def put(self, raw: dict[str, Any]) -> None:
        """Let the watch show this Queue."""
        queue = parse_object(Kind.QUEUE, raw)
        self.scheduler.turn.post(lambda: self.scheduler.state.put(Kind.QUEUE, queue.name, queue))

    def run_pod(self, name: str, **fields: Any) -> None:
        """Let the watch show this pod on the node."""
        value = parse_pod(pod(name, node="n", labels=LABELS, **fields))
        self.scheduler.turn.post(lambda: self.scheduler.state.put(Kind.POD, value.uid, value))

    def wait(self, *raws: dict[str, Any]) -> None:
        """Add these pods to the scheduling queue."""
        entry = put_profile(self.scheduler)
        for raw in raws:
            add = partial(self.scheduler.queue.add, parse_pod(raw), entry.pipeline, self.time)
            self.scheduler.turn.post(add)


class Server:
    """Answers patches with 200, or rejects them with `refusal`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusal: tuple[int, str] | None = None
        self.paths: dict[str, str] = {}
        """The paths of the newest patches that `patched` has returned, by the Queue's name."""

    def __call__(self, request: Request) -> None:
        if self.refusal is not None:
            request.refuse(*self.refusal, "not now")
            return
        self.requests.append(request)
        request.reply({})

    def patched(self) -> dict[str, Any]:
        """Return the statuses written since the last call, by the Queue's name."""
        self.paths = {_name(request): request.path for request in self.requests}
        found = {_name(request): request.body["status"] for request in self.requests}
        self.requests.clear()
        return found


def _name(request: Request) -> str:
    return request.path.removesuffix("/status").split("/")[-1]


@asynccontextmanager
async def reporting(*objects: dict[str, Any]) -> AsyncIterator[Queues]:
    server = Server()
    async with ApiServer(server) as running, ApiClient(Connection(running.url)) as client:
        made = Queues([*objects], client, server)
        async with in_background(made.reports.run()):
            yield made


ALL = queue_object("all", {"cpu": 10}, selector=None)
TEAM_A = queue_object("team-a", {"cpu": 4}, parent="all")


@pytest.fixture
async def queues() -> AsyncIterator[Queues]:
    async with reporting(node("n"), ALL, TEAM_A) as made:
        yield made


async def test_only_the_statuses_that_change_are_written_again(queues: Queues) -> None:
    assert {*await queues.written()} == {"all", "team-a"}
    assert await queues.round() == {}
    queues.run_pod("p", cpu="1")
    written = await queues.round()
    assert {name: status["pods"] for name, status in written.items()} == {"all": 1, "team-a": 1}
    assert written["team-a"]["resources"] == [
        {"name": "cpu", "nominal": "4", "used": "1", "borrowed": "0", "lent": "0"}
    ]
    queues.put(queue_object("alone"))
    assert {*await queues.round()} == {"alone"}


async def test_a_new_leader_writes_no_status_that_is_right(queues: Queues) -> None:
    written = await queues.written()
    known = ALL | {"status": written["all"]}
    async with reporting(node("n"), known, TEAM_A) as later:
        assert {*await later.written()} == {"team-a"}
        later.run_pod("p")
        assert {*await later.round()} == {"all", "team-a"}


async def test_waiting_pods_are_counted_for_their_queue_in_force_or_not(queues: Queues) -> None:
    queues.wait(
        pod("a", labels=LABELS),
        pod("b", labels={QUEUE_LABEL: "none"}),
        pod("c"),
    )
    written = await queues.round()
    assert {name: status["waiting"] for name, status in written.items()} == {"all": 1, "team-a": 1}
    queues.put(queue_object("none", parent="nowhere"))
    assert (await queues.round())["none"]["waiting"] == 1
    assert queues.reports.waiting() == {"all": 1, "team-a": 1, "none": 1}


async def test_a_pod_that_is_being_bound_waits_no_more(queues: Queues) -> None:
    queues.wait(pod("p", labels=LABELS))
    assert (await queues.round())["team-a"]["waiting"] == 1
    popped = queues.scheduler.queue.pop(queues.time)
    assert popped is not None
    queues.run_pod("p")
    status = (await queues.round())["team-a"]
    assert (status["waiting"], status["pods"]) == (0, 1)


async def test_a_queue_of_the_same_name_gets_its_status(queues: Queues) -> None:
    await queues.written()
    raw = queue_object("team-a", {"cpu": 4}, parent="all")
    raw["metadata"]["uid"] = "another"
    queues.put(raw)
    assert {*await queues.round()} == {"team-a"}
    queues.scheduler.state.delete(Kind.QUEUE, "team-a")
    await queues.round()
    assert {*queues.reports.views} == {"all"}


async def test_a_status_that_could_not_be_written_is_written_later(queues: Queues) -> None:
    await queues.written()
    queues.server.refusal = 500, "InternalError"
    queues.run_pod("p")
    assert await queues.round() == {}
    queues.server.refusal = None
    assert {*await queues.round()} == {"all", "team-a"}


async def test_metrics_are_in_cores_and_bytes(queues: Queues) -> None:
    queues.put(queue_object("ml", {"cpu": "500m", "memory": "1Ki"}))
    queues.run_pod("p", cpu="250m")
    await queues.round()
    assert queues.reports.nominal() == {
        ("all", "cpu"): 14.0,
        ("team-a", "cpu"): 4.0,
        ("ml", "cpu"): 0.5,
        ("ml", "memory"): 1024.0,
    }
    assert queues.reports.used()["team-a", "cpu"] == 0.25


async def test_many_waiting_pods_are_counted_less_often(queues: Queues) -> None:
    queues.wait(*(pod(f"p{i}", labels=LABELS) for i in range(100)))
    assert (await queues.round())["team-a"]["waiting"] == 100
    queues.scheduler.queue.remove(uid_of("p0"), queues.time)
    assert await queues.round(0.01) == {}
    assert (await queues.round(0.01))["team-a"]["waiting"] == 99


async def test_a_round_writes_at_most_five_statuses() -> None:
    async with reporting(*(queue_object(f"q{i:02}") for i in range(12))) as queues:
        written = [*await queues.written()]
        queues.put(queue_object("more"))
        for expected in (10, 12, 13):
            written += await queues.round()
            assert len(written) == expected
        assert sorted(written) == ["more", *(f"q{i:02}" for i in range(12))]


async def test_a_queue_that_changes_before_its_status_is_written_gets_no_newer_generation() -> None:
    async with reporting(*(queue_object(f"q{i:02}") for i in range(12))) as queues:
        await queues.written()
        changed, again = (queue_object(name, parent="none") for name in ("q10", "q11"))
        changed["metadata"]["generation"] = 1
        again["metadata"]["uid"] = "another"
        queues.put(changed)
        queues.put(again)
        await queues.round()
        written = await queues.round()
        (ready,) = written["q10"]["conditions"]
        assert (ready["status"], ready["observedGeneration"]) == ("True", 0)
        assert "q11" not in written
        written = await queues.round()
        for name, generation in (("q10", 1), ("q11", 0)):
            (ready,) = written[name]["conditions"]
            assert (ready["status"], ready["observedGeneration"]) == ("False", generation)


async def test_an_elastic_quota_shows_what_its_namespace_uses() -> None:
    labels = {"kubernetes.io/metadata.name": "team"}
    async with reporting(node("n"), namespace("team", labels)) as queues:
        await queues.written()
        raw = elastic_quota("team", "quota", min={"cpu": 4}, max={"nvidia.com/gpu": 2})
        raw["status"] = {"used": {"cpu": "3", "memory": "1Gi"}}
        elastic, state = parse_object(Kind.ELASTIC_QUOTA, raw), queues.scheduler.state
        queues.scheduler.turn.post(lambda: state.put(Kind.ELASTIC_QUOTA, "team/quota", elastic))
        used = {"cpu": "0", "nvidia.com/gpu": "0", "memory": None}
        assert await queues.round() == {"quota": {"used": used}}
        one = parse_pod(pod("p", namespace="team", node="n", cpu="1500m"))
        queues.scheduler.turn.post(lambda: state.put(Kind.POD, one.uid, one))
        assert await queues.round() == {"quota": {"used": used | {"cpu": "1500m"}}}


async def test_quotas_of_koordinator_show_what_they_and_those_below_use() -> None:
    labels = {"kubernetes.io/metadata.name": "team"}
    async with reporting(node("n", cpu="8"), namespace("team", labels)) as queues:
        await queues.written()
        queues.served = {Kind.ELASTIC_QUOTA: SIGS_ELASTIC_QUOTA}
        state = queues.scheduler.state
        for raw in (
            koordinator_quota("koordinator-root-quota", labels={"is-parent": "true"}),
            koordinator_quota("dept", labels={"is-parent": "true"}),
            koordinator_quota("team", "dept", namespace="team", min={"cpu": 2}),
            koordinator_quota("other", "dept", min={"memory": 1}),
        ):
            key, quota = object_key(Kind.ELASTIC_QUOTA, raw), parse_object(Kind.ELASTIC_QUOTA, raw)
            queues.scheduler.turn.post(partial(state.put, Kind.ELASTIC_QUOTA, key, quota))
        one = parse_pod(pod("p", namespace="team", node="n", cpu="1500m"))
        queues.scheduler.turn.post(lambda: state.put(Kind.POD, one.uid, one))
        written = await queues.round()
        both = {"cpu": "1500m", "memory": "0"}
        assert written == {
            "koordinator-root-quota": {"used": both},
            "dept": {"used": both},
            "team": {"used": {"cpu": "1500m"}},
            "other": {"used": {"memory": "0"}},
        }
        assert queues.server.paths["team"] == SIGS_ELASTIC_QUOTA.path("team", "team")
