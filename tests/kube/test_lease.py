"""Leader election on a virtual clock, with a server that has optimistic locking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random

import pytest

from kube.api_server import ApiServer
from kube.lease_server import PATH, LeaseServer
from kube.virtual_clock import VirtualClock
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.lease import (
    CERTIFICATE,
    LOOK_SECONDS,
    SERVER,
    TOLERATED_SECONDS,
    LeaderElector,
    Leadership,
)

RETRY = 2.0
TRY = 5.0
DEADLINE = 10.0
DURATION = 15


class NoJitter(Random):
    """A random source that always returns 0, so that retry periods are exact."""

    def random(self) -> float:
        return 0.0


class Replica:
    """A replica with its elector, and the records of the elector's calls."""

    def __init__(
        self, client: ApiClient, identity: str, clock: VirtualClock, look_period: float
    ) -> None:
        self.told: list[str] = []
        self.able = True
        self.published: dict[str, str] = {}
        self.leadership = Leadership(clock)
        self.elector = LeaderElector(
            client,
            name="mooring",
            namespace="kube-system",
            identity=identity,
            leadership=self.leadership,
            clock=clock,
            sleep=clock.sleep,
            now=lambda: datetime.fromtimestamp(clock.time, UTC),
            random=NoJitter(),
            look_period=look_period,
        )
        self.task = asyncio.create_task(
            self.elector.run(
                lambda: self.tell("started"),
                lambda: self.tell("lost"),
                self.is_able,
                lambda: self.published,
            )
        )

    def tell(self, what: str) -> None:
        """Record the call, and check that writes are allowed only after "started"."""
        self.told.append(what)
        assert self.leadership.valid() == (what == "started")

    def is_able(self) -> bool:
        """Return whether the test lets the replica lead."""
        return self.able

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


class Cluster:
    """A lease server, a clock, and the replicas that the test starts."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.leases = LeaseServer()
        self.clock = VirtualClock()
        self.server = ApiServer(self.leases.respond)
        self._stack = stack

    async def replica(self, identity: str = "a", look_period: float = RETRY) -> Replica:
        client = await self._stack.enter_async_context(ApiClient(Connection(self.server.url)))
        replica = Replica(client, identity, self.clock, look_period)
        self._stack.push_async_callback(replica.stop)
        return replica

    async def leader(self, identity: str = "a") -> Replica:
        replica = await self.replica(identity)
        await self.clock.sleepers(seconds=RETRY)
        assert replica.told == ["started"]
        return replica

    async def pass_time(self, seconds: float) -> None:
        """Advance the clock by retry periods; wait for each replica's next step after each."""
        while seconds > 0:
            await self.clock.advance(RETRY)
            await self.clock.sleepers(seconds=RETRY)
            seconds -= RETRY

    async def pass_until_it_expires(self, replicas: int = 1) -> None:
        """Advance the clock until a second before the lease expires.

        All replicas have seen the lease by then. They read it every two seconds, and next when it
        expires.
        """
        for _ in range(DURATION // 2):
            await self.clock.sleepers(replicas, seconds=RETRY)
            await self.clock.advance(RETRY)
        await self.clock.sleepers(replicas, seconds=1.0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack)
        await stack.enter_async_context(cluster.server)
        yield cluster


async def test_a_lease_that_does_not_exist_is_created(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    assert replica.elector.is_leader
    assert replica.elector.holder == "a"
    assert cluster.leases.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": DURATION,
        "acquireTime": "1970-01-01T00:16:40.000000Z",
        "renewTime": "1970-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_released_lease_is_taken_at_once(cluster: Cluster) -> None:
    cluster.leases.write("", seconds=1)
    await cluster.leader("a")
    assert cluster.leases.spec["holderIdentity"] == "a"
    assert cluster.leases.spec["leaseTransitions"] == 4


async def test_a_leader_renews_every_retry_period_without_reading(cluster: Cluster) -> None:
    await cluster.leader()
    await cluster.pass_time(3 * RETRY)
    methods = [(request.method, request.path) for request in cluster.server.seen[2:]]
    assert methods == [("PUT", PATH)] * 3
    assert cluster.leases.spec["renewTime"] == "1970-01-01T00:16:46.000000Z"
    assert cluster.leases.spec["acquireTime"] == "1970-01-01T00:16:40.000000Z"
    assert cluster.leases.spec["leaseTransitions"] == 0


async def test_a_lease_that_keeps_changing_is_never_taken(cluster: Cluster) -> None:
    cluster.leases.write("b")
    replica = await cluster.replica("a")
    await cluster.clock.sleepers(seconds=RETRY)
    for renewal in range(20):
        cluster.leases.write("b", renewTime=str(renewal))
        await cluster.pass_time(RETRY)
    assert replica.told == []
    assert replica.elector.holder == "b"


@pytest.mark.parametrize("written", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
async def test_a_lease_expires_by_the_own_clock_whatever_times_it_carries(
    cluster: Cluster, written: str
) -> None:
    cluster.leases.write("b", renewTime=written)
    replica = await cluster.replica("a")
    await cluster.clock.sleepers(seconds=RETRY)
    await cluster.pass_until_it_expires()
    assert replica.told == []
    await cluster.clock.advance(1.0)
    await cluster.clock.sleepers(seconds=RETRY)
    assert replica.told == ["started"]
    assert cluster.leases.spec["leaseTransitions"] == 4


async def test_of_two_replicas_one_leads_and_the_other_takes_over(cluster: Cluster) -> None:
    first, second = await cluster.replica("a"), await cluster.replica("b")
    await cluster.clock.sleepers(2, seconds=RETRY)
    leader, follower = (first, second) if first.elector.is_leader else (second, first)
    assert (leader.told, follower.told) == (["started"], [])
    await leader.stop()
    await cluster.pass_time(RETRY)
    assert follower.told == ["started"]


async def test_of_two_replicas_that_see_the_same_expiry_one_wins(cluster: Cluster) -> None:
    cluster.leases.write("dead")
    replicas = [await cluster.replica("a"), await cluster.replica("b")]
    await cluster.clock.sleepers(2, seconds=RETRY)
    await cluster.pass_until_it_expires(2)
    await cluster.clock.advance(1.0)
    await cluster.clock.sleepers(2, seconds=RETRY)
    assert sorted(replica.told for replica in replicas) == [[], ["started"]]
    assert len(cluster.leases.writes) == 1


async def test_a_stolen_lease_is_lost_at_the_next_renewal(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    cluster.leases.write("b")
    await cluster.clock.advance(RETRY)
    await replica.task
    assert replica.told == ["started", "lost"]
    assert not replica.elector.is_leader
    assert cluster.leases.spec["holderIdentity"] == "b"


async def test_a_server_that_fails_for_too_long_costs_the_lease(cluster: Cluster) -> None:
    replica = await cluster.leader()
    cluster.leases.fails = True
    await cluster.pass_time(DEADLINE - RETRY)
    assert replica.told == ["started"]
    await cluster.clock.advance(RETRY)
    await replica.task
    assert replica.told == ["started", "lost"]


async def test_a_short_failure_does_not(cluster: Cluster) -> None:
    replica = await cluster.leader()
    for _ in range(5):
        failed = cluster.leases.failed
        cluster.leases.fails = True
        await cluster.pass_time(DEADLINE - 3 * RETRY)
        assert cluster.leases.failed > failed
        cluster.leases.fails = False
        await cluster.pass_time(RETRY)
    assert replica.told == ["started"]


async def test_a_server_that_hangs_costs_the_lease_on_time(cluster: Cluster) -> None:
    replica = await cluster.leader()
    cluster.leases.hangs = True
    await cluster.clock.advance(RETRY)
    await cluster.clock.end_sleep(TRY)
    await cluster.clock.end_sleep(RETRY)
    left = DEADLINE - RETRY - TRY - RETRY
    await cluster.clock.sleepers(seconds=left)
    assert replica.told == ["started"]
    await cluster.clock.advance(left)
    await replica.task
    assert replica.told == ["started", "lost"]


async def test_a_renewal_that_hangs_leaves_time_for_another_one(cluster: Cluster) -> None:
    replica = await cluster.leader()
    cluster.leases.hangs = True
    await cluster.clock.advance(RETRY)
    await cluster.leases.holding.wait()
    await cluster.clock.sleepers(seconds=TRY)
    cluster.leases.hangs = False
    await cluster.clock.advance(TRY)
    await cluster.clock.sleepers(seconds=RETRY)
    await cluster.pass_time(2 * RETRY)
    assert replica.told == ["started"]
    assert replica.leadership.valid()


async def test_leading_is_counted_from_the_sending_of_a_renewal(cluster: Cluster) -> None:
    """If the answer takes 4.5 s, 5.5 s remain, because other replicas count from the write."""
    replica = await cluster.leader()
    cluster.leases.hangs = True
    await cluster.clock.advance(RETRY)
    await cluster.leases.holding.wait()
    await cluster.clock.advance(4.5)
    cluster.leases.answer_held_back()
    cluster.leases.fails = True
    await cluster.clock.sleepers(seconds=RETRY)
    for _ in range(2):
        await cluster.clock.advance(RETRY)
        left = DEADLINE - (cluster.clock.time - 1000.0 - RETRY)
        await cluster.clock.sleepers(seconds=min(RETRY, left))
    assert replica.told == ["started"]
    await cluster.clock.advance(left)
    await replica.task
    assert replica.told == ["started", "lost"]


async def test_writes_are_allowed_until_the_renew_deadline_of_the_last_renewal(
    cluster: Cluster,
) -> None:
    replica = await cluster.replica()
    assert not replica.leadership.valid()
    await cluster.clock.sleepers(seconds=RETRY)
    assert replica.leadership.valid()
    cluster.clock.time += DEADLINE - 0.1
    assert replica.leadership.valid()
    cluster.clock.time += 0.1
    assert not replica.leadership.valid()


async def test_after_a_pause_past_the_deadline_the_lease_is_kept_if_no_other_has_it(
    cluster: Cluster,
) -> None:
    replica = await cluster.leader()
    cluster.leases.hangs = True
    await cluster.clock.advance(20)
    await cluster.leases.holding.wait()
    assert not replica.leadership.valid()
    cluster.leases.answer_held_back()
    await cluster.clock.sleepers(seconds=RETRY)
    assert replica.told == ["started"]
    assert replica.leadership.valid()


async def test_after_a_pause_past_the_deadline_a_lease_of_another_is_lost(
    cluster: Cluster,
) -> None:
    replica = await cluster.leader("a")
    cluster.leases.write("b")
    await cluster.clock.advance(20)
    await replica.task
    assert replica.told == ["started", "lost"]
    assert cluster.leases.spec["holderIdentity"] == "b"


async def test_a_pause_during_a_renewal_gives_one_more_attempt(cluster: Cluster) -> None:
    replica = await cluster.leader()
    cluster.leases.hangs = True
    await cluster.clock.advance(RETRY)
    await cluster.leases.holding.wait()
    await cluster.clock.sleepers(seconds=TRY)
    cluster.leases.hangs = False
    await cluster.clock.advance(20)
    await cluster.clock.sleepers(seconds=RETRY)
    assert replica.told == ["started"]
    assert replica.leadership.valid()


async def test_after_a_pause_past_the_deadline_it_is_renewed_within_another_deadline_or_lost(
    cluster: Cluster,
) -> None:
    replica = await cluster.leader()
    cluster.leases.fails = True
    await cluster.clock.advance(20)
    await cluster.clock.sleepers(seconds=RETRY)
    await cluster.pass_time(DEADLINE - 2 * RETRY)
    assert replica.told == ["started"]
    assert not replica.leadership.valid()
    await cluster.clock.advance(RETRY)
    await cluster.clock.end_sleep(RETRY)
    await replica.task
    assert replica.told == ["started", "lost"]


async def test_a_released_lease_is_taken_at_the_next_look(cluster: Cluster) -> None:
    leader = await cluster.leader("a")
    waiting = await cluster.replica("b", look_period=LOOK_SECONDS)
    await cluster.clock.sleepers(seconds=LOOK_SECONDS)
    leader.task.cancel()
    await asyncio.wait([leader.task])
    await cluster.clock.advance(LOOK_SECONDS)
    await cluster.clock.sleepers(seconds=RETRY)
    assert waiting.told == ["started"]


async def test_a_replica_that_is_not_able_to_lead_does_not_ask_for_the_lease(
    cluster: Cluster,
) -> None:
    replica = await cluster.replica()
    replica.able = False
    await cluster.clock.sleepers(seconds=RETRY)
    await cluster.pass_time(20)
    assert cluster.server.seen == []
    replica.able = True
    await cluster.pass_time(RETRY)
    assert replica.told == ["started"]


async def test_a_leader_that_does_not_notice_how_old_its_lease_is_is_not_live(
    cluster: Cluster,
) -> None:
    replica = await cluster.replica()
    cluster.clock.time += DURATION + TOLERATED_SECONDS + 1
    assert replica.elector.check() is None
    await cluster.clock.sleepers(seconds=RETRY)
    cluster.clock.time += DURATION + TOLERATED_SECONDS
    assert replica.elector.check() is None
    cluster.clock.time += 1
    assert replica.elector.check() == "the lease has not been renewed for 36 seconds"


async def test_a_lease_touched_by_others_is_read_again_and_renewed(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    cluster.leases.write("a", note="kubectl annotate")
    await cluster.pass_time(2 * RETRY)
    assert replica.told == ["started"]
    methods = [request.method for request in cluster.server.seen[2:]]
    assert methods == ["PUT", "GET", "PUT", "PUT"]


async def test_a_deleted_lease_is_created_again(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    cluster.leases.lease = None
    await cluster.pass_time(RETRY)
    assert cluster.leases.spec["holderIdentity"] == "a"
    assert replica.told == ["started"]


async def test_a_clean_stop_releases_the_lease_without_crying_loss(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    await replica.stop()
    assert replica.told == ["started"]
    assert not replica.elector.is_leader
    assert cluster.leases.spec["holderIdentity"] == ""
    assert cluster.leases.spec["leaseDurationSeconds"] == 1
    await cluster.leader("b")
    assert cluster.leases.spec["leaseTransitions"] == 1


async def test_a_replica_that_stops_while_it_takes_the_lease_releases_it(cluster: Cluster) -> None:
    """The server has stored the replica's name, but its answer has not arrived."""
    cluster.leases.loses_answers = True
    replica = await cluster.replica("a")
    await cluster.leases.lost.wait()
    assert cluster.leases.spec["holderIdentity"] == "a"
    cluster.leases.loses_answers = False
    await replica.stop()
    assert replica.told == []
    assert cluster.leases.spec["holderIdentity"] == ""


async def test_a_renewal_that_arrives_late_does_not_keep_the_lease_from_its_release(
    cluster: Cluster,
) -> None:
    """The stop cancels the renewal, but the server gets it after the replica has read the lease."""
    replica = await cluster.leader("a")
    cluster.leases.overtaken_by = "a"
    await replica.stop()
    assert cluster.leases.spec["holderIdentity"] == ""


async def test_a_stop_never_releases_what_another_takes_meanwhile(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    cluster.leases.overtaken_by = "b"
    await replica.stop()
    assert cluster.leases.spec["holderIdentity"] == "b"


async def test_a_stop_never_releases_what_another_holds(cluster: Cluster) -> None:
    replica = await cluster.leader("a")
    cluster.leases.write("b")
    await replica.stop()
    assert cluster.leases.spec["holderIdentity"] == "b"


async def test_a_stop_does_not_hang_on_a_server_that_does(cluster: Cluster) -> None:
    replica = await cluster.leader()
    cluster.leases.hangs = True
    replica.task.cancel()
    await cluster.leases.holding.wait()
    await cluster.clock.end_sleep(RETRY)
    await asyncio.wait([replica.task])
    assert replica.task.cancelled()


async def test_a_waiting_replica_that_stops_leaves_the_lease_alone(cluster: Cluster) -> None:
    cluster.leases.write("b")
    replica = await cluster.replica("a")
    await cluster.clock.sleepers(seconds=RETRY)
    await replica.stop()
    assert cluster.leases.writes == []


async def test_trouble_while_waiting_is_logged_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.leases.fails = True
    await cluster.replica()
    await cluster.clock.sleepers(seconds=RETRY)
    await cluster.pass_time(3 * RETRY)
    line = (
        "lease kube-system/mooring: get leases.coordination.k8s.io kube-system/mooring: "
        "etcd has no leader (500 InternalError)"
    )
    assert caplog.messages == [line]


@pytest.mark.parametrize("durations", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
async def test_durations_that_cannot_work_are_refused(
    cluster: Cluster, durations: tuple[int, float, float]
) -> None:
    async with ApiClient(Connection(cluster.server.url)) as client:
        with pytest.raises(ValueError, match="leader election needs lease duration > "):
            LeaderElector(
                client,
                name="mooring",
                namespace="kube-system",
                identity="a",
                lease_duration=durations[0],
                renew_deadline=durations[1],
                retry_period=durations[2],
            )


def annotations(cluster: Cluster) -> dict[str, str]:
    assert cluster.leases.lease is not None
    found: dict[str, str] = cluster.leases.lease["metadata"].get("annotations", {})
    return found


async def test_a_leader_says_in_the_lease_where_it_is_for_as_long_as_it_leads(
    cluster: Cluster,
) -> None:
    replica = await cluster.leader("a")
    assert annotations(cluster) == {}
    assert cluster.leases.lease is not None
    cluster.leases.lease["metadata"]["annotations"] = {"example.org/note": "kept"}
    replica.published = {SERVER: "https://127.0.0.1:1", CERTIFICATE: "one"}
    await cluster.pass_time(RETRY)
    await cluster.pass_time(RETRY)
    assert annotations(cluster)[SERVER] == "https://127.0.0.1:1"
    replica.published = {SERVER: "https://127.0.0.1:1", CERTIFICATE: "another"}
    await cluster.pass_time(RETRY)
    assert annotations(cluster)[CERTIFICATE] == "another"
    await replica.stop()
    assert SERVER not in annotations(cluster)
    assert CERTIFICATE not in annotations(cluster)


async def test_the_next_leader_removes_what_the_last_one_said_and_keeps_other_annotations(
    cluster: Cluster,
) -> None:
    cluster.leases.write("gone", seconds=0)
    assert cluster.leases.lease is not None
    said = {SERVER: "https://127.0.0.1:1", CERTIFICATE: "one", "example.org/note": "kept"}
    cluster.leases.lease["metadata"]["annotations"] = said
    await cluster.leader("b")
    assert annotations(cluster) == {"example.org/note": "kept"}
