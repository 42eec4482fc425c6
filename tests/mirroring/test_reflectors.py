"""Runs reflectors: which resources are listed, which fail, and since when."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube.api_server import ApiServer, Request, bookmark, event
from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    DEVICE_TAINT_RULE_V1BETA2,
    ELASTIC_QUOTA,
    HYPER_NODE,
    KAI_POD_GROUP,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    POD_GANG,
    POD_GROUP,
    POD_GROUP_V1,
    POD_GROUP_V1ALPHA2,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.reflector import EventType
from mooring.mirroring.discovery import EXPECTED
from mooring.mirroring.mirror import ASSIGNED_PODS, MIRRORED, MIRRORED_IF_SERVED
from mooring.mirroring.reflectors import DEAD_SECONDS, Reflectors
from mooring.model.events import Kind
from mooring.pausing import pause
from mooring.testing.builders import node, pod_group

WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.02
OPTIONAL = tuple(MIRRORED_IF_SERVED)
TAINT_RULES = (DEVICE_TAINT_RULE, DEVICE_TAINT_RULE_V1BETA2)
OF_DEVICES = (DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE)
OTHERS = tuple(resource for resource in MIRRORED if resource not in OF_DEVICES)
"""What a replica cannot work without."""
DISCOVERY = {f"/apis/{resource.api_version}" for resource in (*OPTIONAL, *EXPECTED.values())}


class Seen:
    """A sink that stores the names of objects, and records the resource of each call."""

    def __init__(self) -> None:
        self.names: dict[Resource, list[str]] = {}
        self.told: asyncio.Queue[Resource] = asyncio.Queue()

    def relist(self, resource: Resource) -> "Listed":
        return Listed(self, resource)

    def apply(self, resource: Resource, _event: EventType, obj: dict[str, Any]) -> None:
        pause()
        self.names[resource].append(obj["metadata"]["name"])
        self.told.put_nowait(resource)


class Listed:
    """A list of the sink; `apply` replaces the names of the resource at once."""

    def __init__(self, seen: Seen, resource: Resource) -> None:
        self._seen, self._resource = seen, resource
        self._names: list[str] = []

    def add(self, obj: dict[str, Any]) -> None:
        self._names.append(obj["metadata"]["name"])
        pause()

    def remove(self, obj: dict[str, Any]) -> None:
        self._names.remove(obj["metadata"]["name"])

    def apply(self) -> None:
        pause()
        self._seen.names[self._resource] = self._names
        self._seen.told.put_nowait(self._resource)


class Streams:
    """Answers lists and watches with `objects`; lists of nodes only if `nodes_allowed`."""

    def __init__(self) -> None:
        self.nodes_allowed = True
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.open: dict[str, Request] = {}
        self.minor = "36"
        self.served: set[Resource] = set()
        self.forbidden: set[str] = set()
        self.failing: set[str] = set()
        self.not_served: set[Resource] = set()
        """Kinds that servers usually serve, and this one does not."""
        self.groups_allowed = True
        self.groups_work = True
        self.groups_answered = True

    def __call__(self, request: Request) -> None:
        if request.path == "/version":
            request.reply({"major": "1", "minor": self.minor})
        elif request.path in DISCOVERY:
            self._discover(request)
        else:
            self._stream(request)

    def _discover(self, request: Request) -> None:
        served = self.served | {*EXPECTED.values()} - self.not_served
        here = [r for r in served if request.path == f"/apis/{r.api_version}"]
        if here:
            request.reply({"resources": [{"name": resource.plural} for resource in here]})
        else:
            request.refuse(404, "NotFound", "no such group")

    def _stream(self, request: Request) -> None:
        if request.path.endswith("/podgroups") and not self.groups_allowed:
            request.refuse(403, "Forbidden", "groups are not for you")
            return
        if request.path.endswith("/podgroups") and not self.groups_work:
            request.refuse(500, "InternalError", "groups cannot be read")
            return
        if request.path.endswith("/podgroups") and not self.groups_answered:
            return
        if request.path in self.failing:
            request.refuse(500, "InternalError", "these cannot be read")
            return
        if request.path in self.forbidden:
            request.refuse(403, "Forbidden", "these are not for you")
            return
        if request.path == NODE.path() and not self.nodes_allowed:
            request.refuse(403, "Forbidden", "nodes are not for you")
            return
        self.open[request.path] = request
        initial = [event("ADDED", raw) for raw in self.objects.get(request.path, ())]
        request.send(*initial, bookmark(1, initial_end=True))


def versioned(name: str, version: int) -> dict[str, Any]:
    raw = node(name)
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
async def server(streams: Streams) -> AsyncIterator[ApiServer]:
    async with ApiServer(streams) as running:
        yield running


class Feeding:
    """Running reflectors with their sink and their clock."""

    def __init__(self, client: ApiClient, server: ApiServer) -> None:
        self.server = server
        self.seen = Seen()
        self.time = 1000.0
        self.relisted: list[str] = []
        self.versions: asyncio.Queue[str] = asyncio.Queue()
        self.outdated: asyncio.Queue[str] = asyncio.Queue()
        self.no_devices: str | None = ""
        """Why no device can be allocated, as it was told last; "" before anything was told."""
        self.claims_then: list[str] = []
        """The claims that were known when that was told."""
        self._told_of_devices = asyncio.Event()
        self.reflectors = Reflectors(
            client,
            self.seen,
            relisted=self.relisted.append,
            versioned=self.versions.put_nowait,
            outdated=self.outdated.put_nowait,
            devices_known=self._note_devices,
            clock=self._clock,
            look_seconds=LOOK_SECONDS,
        )
        self._task: asyncio.Task[None] | None = None

    def _clock(self) -> float:
        return self.time

    def _note_devices(self, why_not: str | None) -> None:
        if why_not != self.no_devices:
            self.claims_then = list(self.seen.names.get(RESOURCE_CLAIM, ()))
        self.no_devices = why_not
        self._told_of_devices.set()

    def allocates_devices(self) -> bool:
        """Return whether the reflectors have said last that devices can be allocated."""
        return self.no_devices is None

    async def until_no_devices_because(self, text: str | None) -> None:
        """Wait until `text` is the reason why no device is allocated; None: no reason."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.no_devices != text:
                self._told_of_devices.clear()
                await self._told_of_devices.wait()

    def start(self) -> None:
        self._task = asyncio.create_task(self.reflectors.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            assert self._task.cancelled()

    async def told(self, count: int) -> None:
        """Wait for `count` more calls of the sink."""
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(count):
                await self.seen.told.get()

    async def troubled(self) -> None:
        """Wait until the reflectors report a failing watch."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (  # noqa: ASYNC110 - the reflectors have no event for it
                self.reflectors.is_current() or "(" not in (self.problem() or "(")
            ):
                await asyncio.sleep(0)

    async def cut(self, stream: Request) -> None:
        """Cut the stream, and wait until the reflectors report a failing watch."""
        stream.cut()
        await self.troubled()

    def problem(self) -> str:
        """Return the reflectors' problem; "" if there is none."""
        return self.reflectors.problem() or ""

    async def begin(self) -> None:
        """Start the reflectors, and wait until everything is listed."""
        self.start()
        await self.synced()

    async def synced(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.reflectors.synced()


@pytest.fixture
async def feeding(server: ApiServer) -> AsyncIterator[Feeding]:
    async with ApiClient(Connection(server.url)) as client:
        made = Feeding(client, server)
        yield made
        await made.stop()


async def test_every_mirrored_resource_is_fed_whole_and_then_followed(
    streams: Streams, feeding: Feeding
) -> None:
    streams.objects[NODE.path()] = [versioned("a", 1)]
    await feeding.begin()
    assert feeding.reflectors.problem() is None
    assert set(feeding.seen.names) == set(MIRRORED)
    await feeding.told(len(MIRRORED))
    streams.open[NODE.path()].send(event("ADDED", versioned("b", 2)))
    await feeding.told(1)
    assert feeding.seen.names[NODE] == ["a", "b"]
    assert feeding.relisted == []


async def test_a_resource_that_is_listed_again_is_named(streams: Streams, feeding: Feeding) -> None:
    await feeding.begin()
    await feeding.told(len(MIRRORED))
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    streams.open[NODE.path()].send(event("ERROR", gone))
    await feeding.told(1)
    assert feeding.relisted == ["nodes"]


async def test_only_pods_that_hold_a_place_are_mirrored(
    server: ApiServer, feeding: Feeding
) -> None:
    await feeding.begin()
    selectors = {request.path: request.query.get("fieldSelector") for request in server.seen}
    assert selectors.pop(POD.path()) == ASSIGNED_PODS
    assert set(selectors.values()) == {None}


async def test_before_anything_was_seen_everything_is_lacking(feeding: Feeding) -> None:
    lacking = feeding.problem()
    assert lacking.startswith("not listed yet: ")
    assert all(str(resource) in lacking for resource in OTHERS)
    assert not any(str(resource) in lacking for resource in OF_DEVICES)
    assert set(feeding.reflectors.lags().values()) == {0.0}


async def test_a_feed_that_fails_is_named_with_the_reason_and_its_lag(
    streams: Streams, feeding: Feeding
) -> None:
    streams.nodes_allowed = False
    feeding.start()
    await feeding.told(len(MIRRORED) - 1)
    await feeding.troubled()
    feeding.time += 7.0
    lacking = feeding.problem()
    assert lacking.startswith("not listed yet: nodes (")
    assert "nodes are not for you" in lacking
    lags = dict(feeding.reflectors.lags())
    assert lags.pop("nodes") == 7.0
    assert set(lags.values()) == {0.0}


async def test_a_watch_that_fails_is_lacking_only_once_it_is_dead(
    streams: Streams, feeding: Feeding
) -> None:
    await feeding.begin()
    streams.nodes_allowed = False
    await feeding.cut(streams.open[NODE.path()])
    assert not feeding.reflectors.is_current()
    feeding.time += DEAD_SECONDS
    assert feeding.reflectors.problem() is None
    feeding.time += 1.0
    assert feeding.problem().startswith("not watched for 61 seconds: nodes (")


async def test_a_feed_that_works_again_lags_no_more(streams: Streams, feeding: Feeding) -> None:
    streams.nodes_allowed = False
    feeding.start()
    await feeding.troubled()
    streams.nodes_allowed = True
    await feeding.synced()
    feeding.time += 7.0
    assert feeding.reflectors.problem() is None
    assert feeding.reflectors.is_current()
    assert set(feeding.reflectors.lags().values()) == {0.0}


def versioned_group(name: str) -> dict[str, Any]:
    raw = pod_group(name, 3)
    raw["metadata"]["resourceVersion"] = "1"
    return raw


async def test_a_kind_that_is_served_is_followed_and_the_newest_version_of_it_only(
    streams: Streams, feeding: Feeding
) -> None:
    streams.served = set(OPTIONAL)
    streams.objects[POD_GROUP_V1.path()] = [versioned_group("train")]
    await feeding.begin()
    assert feeding.seen.names.keys() == {
        *MIRRORED,
        POD_GROUP_V1,
        COSCHEDULING_POD_GROUP,
        VOLCANO_POD_GROUP,
        KAI_POD_GROUP,
        POD_GANG,
        HYPER_NODE,
        QUEUE,
        ELASTIC_QUOTA,
        DEVICE_TAINT_RULE,
    }
    assert feeding.seen.names[POD_GROUP_V1] == ["train"]
    assert feeding.reflectors.served() == {
        Kind.POD_GROUP: POD_GROUP_V1,
        Kind.COSCHEDULING_POD_GROUP: COSCHEDULING_POD_GROUP,
        Kind.VOLCANO_POD_GROUP: VOLCANO_POD_GROUP,
        Kind.KAI_POD_GROUP: KAI_POD_GROUP,
        Kind.POD_GANG: POD_GANG,
        Kind.HYPER_NODE: HYPER_NODE,
        Kind.QUEUE: QUEUE,
        Kind.ELASTIC_QUOTA: ELASTIC_QUOTA,
        Kind.DEVICE_TAINT_RULE: DEVICE_TAINT_RULE,
    }
    assert {"podgroups.scheduling.k8s.io", "podgroups.scheduling.x-k8s.io"} <= set(
        feeding.reflectors.lags()
    )


@pytest.mark.parametrize("version", [POD_GROUP_V1, POD_GROUP, POD_GROUP_V1ALPHA2])
async def test_pod_groups_are_followed_where_only_one_version_of_them_is_served(
    streams: Streams, feeding: Feeding, version: Resource
) -> None:
    streams.served = {version}
    streams.objects[version.path()] = [versioned_group("train")]
    await feeding.begin()
    assert feeding.seen.names[version] == ["train"]
    assert feeding.reflectors.served() == {Kind.POD_GROUP: version}


async def test_a_kind_that_is_served_later_is_noticed_and_one_that_is_not_any_more_too(
    streams: Streams, feeding: Feeding
) -> None:
    await feeding.begin()
    await feeding.told(len(MIRRORED))
    assert feeding.reflectors.served() == {}
    streams.served = {POD_GROUP_V1ALPHA2}
    streams.objects[POD_GROUP_V1ALPHA2.path()] = [versioned_group("train")]
    await feeding.told(1)
    assert feeding.seen.names[POD_GROUP_V1ALPHA2] == ["train"]
    streams.served = set()
    await feeding.told(1)
    assert feeding.seen.names[POD_GROUP_V1ALPHA2] == []
    assert feeding.reflectors.served() == {}


async def test_another_version_of_a_kind_has_the_replica_begin_anew(
    streams: Streams, feeding: Feeding
) -> None:
    streams.served = {POD_GROUP_V1ALPHA2}
    streams.objects[POD_GROUP_V1ALPHA2.path()] = [versioned_group("train")]
    await feeding.begin()
    await feeding.told(len(MIRRORED) + 1)
    streams.served = {POD_GROUP_V1ALPHA2, POD_GROUP}
    why = await feeding.outdated.get()
    assert why == "podgroups.scheduling.k8s.io (v1beta1) is served instead of v1alpha2"
    assert feeding.reflectors.served() == {Kind.POD_GROUP: POD_GROUP_V1ALPHA2}


@pytest.mark.parametrize("allowed", [False, True])
async def test_pod_groups_that_cannot_be_listed_hold_up_nothing(
    streams: Streams, feeding: Feeding, *, allowed: bool
) -> None:
    """The replica may lack the right, or the server may fail to convert an object.

    No pod group is known then, so only the pods of such groups wait.
    """
    streams.served = set(OPTIONAL)
    streams.groups_allowed, streams.groups_work = allowed, False
    await feeding.begin()
    feeding.time += DEAD_SECONDS + 1.0
    assert feeding.reflectors.problem() is None
    assert feeding.reflectors.lags()["podgroups.scheduling.k8s.io"] > DEAD_SECONDS


@pytest.mark.parametrize("resource", [each for each in OPTIONAL if each not in TAINT_RULES])
async def test_a_watch_of_pod_groups_that_dies_makes_a_replica_unready(
    resource: Resource, streams: Streams, feeding: Feeding
) -> None:
    """Otherwise outdated definitions would stay in force unnoticed."""
    streams.served = {resource}
    await feeding.begin()
    streams.groups_work = False
    await feeding.cut(streams.open[resource.path()])
    feeding.time += DEAD_SECONDS
    assert feeding.reflectors.problem() is None
    feeding.time += 1.0
    assert feeding.problem().startswith(f"not watched for 61 seconds: {resource} (")


async def test_a_right_that_is_taken_away_leaves_no_definitions_in_force_unnoticed(
    streams: Streams, feeding: Feeding
) -> None:
    streams.served = {POD_GROUP}
    await feeding.begin()
    streams.groups_allowed = False
    await feeding.cut(streams.open[POD_GROUP.path()])
    feeding.time += DEAD_SECONDS + 1.0
    assert feeding.problem().startswith("not watched for 61 seconds: podgroups.scheduling.k8s.io (")


async def test_pod_groups_are_waited_for_until_they_are_listed_or_not_served_any_more(
    streams: Streams, feeding: Feeding
) -> None:
    streams.served = {POD_GROUP}
    streams.groups_answered = False
    feeding.start()
    synced = asyncio.create_task(feeding.synced())
    await feeding.told(len(MIRRORED))
    assert feeding.reflectors.problem() == "not listed yet: podgroups.scheduling.k8s.io"
    assert not synced.done()
    streams.served = set()
    await synced
    assert feeding.reflectors.problem() is None


async def test_a_server_that_does_not_say_what_it_serves_holds_up_nothing(
    streams: Streams, feeding: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.served = set(OPTIONAL)

    def refused(request: Request) -> None:
        if request.path in DISCOVERY:
            request.refuse(503, "ServiceUnavailable", "later")
        else:
            Streams.__call__(streams, request)

    monkeypatch.setattr(feeding.server, "_responder", refused)
    await feeding.begin()
    assert feeding.reflectors.served() == {}


async def test_a_usual_kind_that_is_not_served_has_no_objects_and_holds_up_nothing(
    streams: Streams, feeding: Feeding
) -> None:
    streams.not_served = {POD_DISRUPTION_BUDGET}
    await feeding.begin()
    assert feeding.reflectors.problem() is None
    assert feeding.reflectors.is_current()
    assert POD_DISRUPTION_BUDGET not in feeding.seen.names
    assert feeding.reflectors.unserved()[Kind.POD_DISRUPTION_BUDGET] == POD_DISRUPTION_BUDGET


async def test_a_usual_kind_that_is_not_served_any_more_is_forgotten_until_it_is_again(
    streams: Streams, feeding: Feeding
) -> None:
    budget = versioned("web", 1)
    streams.objects[POD_DISRUPTION_BUDGET.path()] = [budget]
    await feeding.begin()
    await feeding.told(len(MIRRORED))
    assert feeding.seen.names[POD_DISRUPTION_BUDGET] == ["web"]
    streams.not_served = {POD_DISRUPTION_BUDGET}
    await feeding.told(1)
    assert feeding.seen.names[POD_DISRUPTION_BUDGET] == []
    assert feeding.reflectors.problem() is None
    streams.not_served = set()
    await feeding.told(1)
    assert feeding.seen.names[POD_DISRUPTION_BUDGET] == ["web"]


async def test_a_usual_kind_that_may_not_be_listed_makes_a_replica_unready(
    streams: Streams, feeding: Feeding
) -> None:
    streams.forbidden = {POD_DISRUPTION_BUDGET.path()}
    feeding.start()
    await feeding.told(len(MIRRORED) - 1)
    await feeding.troubled()
    assert feeding.problem().startswith("not listed yet: poddisruptionbudgets.policy (")


async def test_the_version_of_the_server_is_handed_on(streams: Streams, feeding: Feeding) -> None:
    await feeding.begin()
    streams.minor = "37"
    async with asyncio.timeout(WAIT_SECONDS):
        assert [await feeding.versions.get() for _ in range(2)] == ["1.36", "1.37"]


NO_RIGHT = (
    "devices cannot be allocated: Mooring may not list and watch deviceclasses, resourceclaims and "
    "resourceslices of resource.k8s.io; apply the ClusterRole of its version: "
    "kubectl apply -k manifests/, or upgrade the Helm release"
)
NOT_SERVED = (
    "devices cannot be allocated: the API server does not serve deviceclasses, resourceclaims and "
    "resourceslices of resource.k8s.io/v1; from Kubernetes 1.34 on it does, unless "
    "--runtime-config says otherwise"
)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged messages about pods with claims."""
    return [text for text in caplog.messages if text.startswith("pods with claims")]


class TestDevices:
    """If claims, slices or classes cannot be read, only pods with claims wait."""

    async def test_a_replica_with_an_older_role_is_ready_and_may_lead(
        self, streams: Streams, feeding: Feeding, caplog: pytest.LogCaptureFixture
    ) -> None:
        streams.forbidden = {resource.path() for resource in OF_DEVICES}
        await feeding.begin()
        await feeding.until_no_devices_because(NO_RIGHT)
        assert feeding.reflectors.problem() is None
        assert feeding.reflectors.is_current()
        feeding.time += DEAD_SECONDS + 1.0
        assert feeding.reflectors.problem() is None
        assert feeding.reflectors.lags()[str(RESOURCE_CLAIM)] > DEAD_SECONDS
        streams.forbidden = {RESOURCE_SLICE.path()}
        await feeding.until_no_devices_because(
            NO_RIGHT.replace("deviceclasses, resourceclaims and resourceslices", "resourceslices")
        )
        assert warnings(caplog) == [f"pods with claims for devices wait: {NO_RIGHT}"]

    async def test_devices_are_known_when_all_of_it_has_been_listed(
        self, streams: Streams, feeding: Feeding
    ) -> None:
        streams.forbidden = {RESOURCE_SLICE.path()}
        await feeding.begin()
        await feeding.until_no_devices_because(
            NO_RIGHT.replace("deviceclasses, resourceclaims and resourceslices", "resourceslices")
        )
        streams.forbidden.clear()
        await feeding.until_no_devices_because(None)

    async def test_a_kind_that_is_served_later_and_one_that_is_not_any_more_are_noticed(
        self, streams: Streams, feeding: Feeding
    ) -> None:
        streams.not_served = {*OF_DEVICES}
        await feeding.begin()
        assert feeding.no_devices == NOT_SERVED
        assert feeding.reflectors.problem() is None
        streams.not_served = set()
        await feeding.until_no_devices_because(None)
        streams.not_served = {*OF_DEVICES}
        await feeding.until_no_devices_because(NOT_SERVED)
        assert feeding.reflectors.problem() is None
        assert feeding.reflectors.is_current()

    async def test_claims_are_not_forgotten_before_it_is_told_that_they_are_unknown(
        self, streams: Streams, feeding: Feeding
    ) -> None:
        """Otherwise the devices of these claims would look free."""
        streams.objects[RESOURCE_CLAIM.path()] = [versioned("train", 1)]
        await feeding.begin()
        await feeding.until_no_devices_because(None)
        streams.not_served = {RESOURCE_CLAIM}
        await feeding.until_no_devices_because(
            NOT_SERVED.replace("deviceclasses, resourceclaims and resourceslices", "resourceclaims")
        )
        assert feeding.claims_then == ["train"]

    async def test_a_watch_that_breaks_is_waited_for_before_pods_with_claims_wait(
        self, streams: Streams, feeding: Feeding
    ) -> None:
        """Meanwhile the replica does not ask for the lease, because claims may have changed."""
        await feeding.begin()
        await feeding.until_no_devices_because(None)
        streams.forbidden = {RESOURCE_CLAIM.path()}
        streams.open[RESOURCE_CLAIM.path()].cut()
        async with asyncio.timeout(WAIT_SECONDS):
            while feeding.reflectors.is_current():  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0)
        assert feeding.allocates_devices()
        feeding.time += DEAD_SECONDS + 1.0
        assert feeding.reflectors.is_current()
        assert not feeding.allocates_devices()
        await feeding.until_no_devices_because(
            NO_RIGHT.replace("deviceclasses, resourceclaims and resourceslices", "resourceclaims")
        )
        assert feeding.reflectors.problem() is None

    @pytest.mark.parametrize("resource", TAINT_RULES)
    async def test_taint_rules_that_are_served_must_be_known(
        self, resource: Resource, streams: Streams, feeding: Feeding
    ) -> None:
        """Otherwise a pod could get a device that a rule taints."""
        streams.served, streams.forbidden = {resource}, {resource.path()}
        await feeding.begin()
        assert "may not list and watch devicetaintrules" in (feeding.no_devices or "")
        assert feeding.reflectors.problem() is None

    async def test_kinds_that_fail_are_named(self, streams: Streams, feeding: Feeding) -> None:
        streams.failing = {DEVICE_CLASS.path()}
        await feeding.begin()
        await feeding.until_no_devices_because(
            "devices cannot be allocated: deviceclasses of resource.k8s.io cannot be watched; "
            "Mooring's log says why"
        )
