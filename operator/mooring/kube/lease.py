"""Leader election over a coordination.k8s.io Lease, with client-go's rules.

    waiting --the lease is free, released or expired--> leading --not renewed in time--> lost
                                                           |
                                                      cancelled --> the lease is released

- Another replica's lease has expired when it has not *changed* for its duration, measured on this
  process's own monotonic clock. The times in the lease are for readers and never compared, because
  clocks differ.
- Every write carries the resourceVersion it was decided on, so that only one replica can win.
- A replica asks for the lease only while it is able to lead.
- Leading ends `renew_deadline` seconds after the last successful renewal was sent. At that time,
  `lease_duration` has not passed for any other replica. (client-go counts from the answer, and may
  lead too long if an answer is slow.) If the lease has another holder, leading ends at once.
- One attempt to renew may take half of the renew deadline, which leaves time for another attempt
  on a new connection.
- If this process stalls past the deadline (it was paused, or its event loop was blocked), nothing
  may be written. But the deadline for a renewal then begins anew: if no other replica has taken the
  lease meanwhile, this one goes on.

The lease also says how to reach a leader outside the cluster, in two annotations that every write
of a leader sets or removes (docs/adr/0020-a-leader-outside-the-cluster.md).

See client-go tools/leaderelection/leaderelection.go.
"""

import asyncio
import logging
import math
import random as random_module
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import LEASE, MOORING_GROUP
from mooring.kube.errors import ApiError, ConflictError, NotFoundError, explain
from mooring.kube.timestamps import micro_time

if TYPE_CHECKING:  # `mooring run --help` reads JITTER alone
    from mooring.kube.client import ApiClient


logger = logging.getLogger(__name__)

SERVER: Final = f"{MOORING_GROUP}/server"
"""The annotation with the URL of the endpoints of a leader outside the cluster."""
CERTIFICATE: Final = f"{MOORING_GROUP}/server-certificate"
"""The annotation with the certificate of the endpoints of a leader outside the cluster, in PEM."""
_PUBLISHED: Final = (SERVER, CERTIFICATE)

JITTER: Final = 1.2
"""The largest random part of a wait, in periods: a replica that does not lead waits for 1 to 2.2
periods before it reads the lease again."""
LOOK_SECONDS: Final = 0.5
"""A replica that does not lead reads the lease every 0.5 to 1.1 seconds, in one small request.

So a replica takes over about a second after the lease was released, and soon notices a renewal. It
also reads the lease when the lease expires. (client-go waits for the retry period.)
"""


TOLERATED_SECONDS: Final = 20.0
"""The most seconds that a leader may continue after its lease has expired; then it is not live."""


class Leadership:
    """Says whether this replica holds the lease and may write."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -math.inf

    def valid(self) -> bool:
        """Return whether the lease is valid at this moment, by the clock alone."""
        return self._clock() < self._until

    def extend(self, until: float) -> None:
        """Let the lease be valid until this time of the clock."""
        self._until = until

    def end(self) -> None:
        """Make the lease invalid from now on."""
        self._until = -math.inf


@dataclass(eq=False, repr=False)
class LeaderElector:
    """Takes, renews and releases the lease for one replica; each replica has its own `identity`.

    `client` should have no other users and no rate limit, so that renewals never wait. The
    elector keeps `leadership` up to date. Durations are in seconds, with kube-scheduler's
    `leaderElection` defaults.
    """

    client: "ApiClient"
    name: str
    namespace: str
    identity: str
    leadership: Leadership | None = None
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    look_period: float = LOOK_SECONDS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: random_module.Random | None = None

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > JITTER * self.retry_period > 0:
            raise ValueError(
                f"leader election needs lease duration > renew deadline > {JITTER} x retry period "
                f"> 0, not {self.lease_duration:g}, {self.renew_deadline:g} and "
                f"{self.retry_period:g} seconds"
            )
        self.is_leader = False
        self._leadership = self.leadership or Leadership(self.clock)
        self._look_period = min(self.look_period, self.retry_period)
        self._random = self.random or random_module.Random()  # noqa: S311 - spreads load, hides nothing
        self._lease: dict[str, Any] = {}
        self._observed_at = self.clock()
        self._renewed_at = self.clock()
        self._trouble = ""
        self._published: Callable[[], Mapping[str, str]] = dict
        self._has_written = False
        """Whether this replica has sent a write that may have given it the lease."""

    @property
    def holder(self) -> str:
        """The identity of the lease's holder when it was last read; "" without a holder."""
        return (self._lease.get("spec") or {}).get("holderIdentity") or ""

    def check(self) -> str | None:
        """Return why this replica is not live; None if it is live.

        A replica is not live if it still leads long after its lease has expired (HealthzAdaptor of
        client-go).
        """
        silent = self.clock() - self._renewed_at
        if not self.is_leader or silent <= self.lease_duration + TOLERATED_SECONDS:
            return None
        return f"the lease has not been renewed for {silent:.0f} seconds"

    async def run(
        self,
        on_started: Callable[[], None],
        on_lost: Callable[[], None],
        able: Callable[[], bool] = lambda: True,
        published: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Wait for the lease, lead, and return when the lease is lost.

        Cancelling releases the lease without `on_lost`. Before that, the caller must stop
        everything that only a leader may do.

        Args:
            on_started: Called when leading begins; must be quick.
            on_lost: Called when leading ends; must be quick.
            able: While it returns False, this replica does not ask for the lease.
            published: Returns annotations for the Lease: SERVER and CERTIFICATE, or none.
        """
        self._published = published
        try:
            while not (able() and await self._within(self._try_seconds, self._try())):
                await self.sleep(self._until_next_look())
            self.is_leader = True
            logger.info("leading: this replica holds lease %s/%s", self.namespace, self.name)
            on_started()
            await self._keep()
        except asyncio.CancelledError:
            self._leadership.end()
            if self._has_written:
                await self._within(self.retry_period, self._release())
            raise
        finally:
            self._leadership.end()
            self.is_leader = False
        how = "was not renewed in time" if self.holder == self.identity else "is another's now"
        logger.error("lease %s/%s %s", self.namespace, self.name, how)
        on_lost()

    def _until_next_look(self) -> float:
        pause = self._look_period * (1 + JITTER * self._random.random())
        left = self._expires_at() - self.clock()
        return min(pause, left) if left > 0 else pause

    @property
    def _try_seconds(self) -> float:
        return self.renew_deadline / 2

    async def _keep(self) -> None:
        held = True
        while held:
            await self.sleep(self.retry_period)
            held = await self._renew()

    async def _renew(self) -> bool:
        """Renew the lease, with retries until the deadline; return False if it is lost."""
        deadline = self._renewed_at + self.renew_deadline
        # The process has stalled past the deadline: a new deadline begins.
        if self.clock() >= deadline:
            deadline = self.clock() + self.renew_deadline
        while True:
            due = min(self.clock() + self._try_seconds, deadline)
            if await self._within(due - self.clock(), self._try()):
                return True
            if self.holder not in {self.identity, ""}:
                return False
            if self.clock() < deadline:
                due = min(self.clock() + self.retry_period, deadline)
                await self.sleep(due - self.clock())
            if self.clock() >= deadline:
                if self.clock() - due <= self.retry_period:  # this process has not stalled
                    return False
                deadline = self.clock() + self.renew_deadline

    async def _try(self) -> bool:
        """Take or renew the lease; return whether this replica holds it now."""
        try:
            held = await self._update_known() or await self._take_or_create()
        except ApiError as error:
            text = explain(error)
            if text != self._trouble:
                logger.warning("lease %s/%s: %s", self.namespace, self.name, text)
            self._trouble = text
            return False
        self._trouble = ""
        return held

    async def _update_known(self) -> bool:
        if not self.is_leader:
            return False
        try:
            await self._write(self._lease)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _take_or_create(self) -> bool:
        try:
            lease = await self.client.get(LEASE, self.name, self.namespace)
        except NotFoundError:
            await self._write({})
            return True
        self._observe(lease)
        if self.holder not in {self.identity, ""} and self.clock() < self._expires_at():
            return False
        await self._write(lease)
        return True

    def _expires_at(self) -> float:
        seconds: float = (self._lease.get("spec") or {}).get("leaseDurationSeconds") or 0
        return self._observed_at + seconds

    def _observe(self, lease: dict[str, Any]) -> None:
        if lease.get("spec") != self._lease.get("spec"):
            self._observed_at = self.clock()
        self._lease = lease

    async def _write(self, lease: dict[str, Any]) -> None:
        old = lease.get("spec") or {}
        now = micro_time(self.now())
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.lease_duration,
            "renewTime": now,
        }
        if old.get("holderIdentity") == self.identity:
            spec["acquireTime"] = old.get("acquireTime", now)
            spec["leaseTransitions"] = old.get("leaseTransitions", 0)
        else:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = old.get("leaseTransitions", 0) + 1 if lease else 0
        sent_at = self.clock()
        self._has_written = True
        metadata = _annotated(lease.get("metadata") or {}, self._published())
        if lease:
            body = {**lease, "metadata": metadata, "spec": spec}
            written = await self.client.update(LEASE, body)
        else:
            metadata = {**metadata, "name": self.name, "namespace": self.namespace}
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}
            written = await self.client.create(LEASE, {**body, "spec": spec})
        self._observe(written)
        self._renewed_at = sent_at
        self._leadership.extend(sent_at + self.renew_deadline)

    async def _release(self) -> bool:
        try:
            while not await self._release_as_read():
                if self.holder != self.identity:
                    return False
        except ApiError as error:
            logger.warning("the lease was not released: %s", explain(error))
            return False
        return True

    async def _release_as_read(self) -> bool:
        lease = await self.client.get(LEASE, self.name, self.namespace)
        self._observe(lease)
        if self.holder != self.identity:
            return False
        now = micro_time(self.now())
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": lease["spec"].get("leaseTransitions", 0),
        }
        metadata = _annotated(lease["metadata"], {})
        try:
            await self.client.update(LEASE, {**lease, "metadata": metadata, "spec": spec})
        # A cancelled renewal may still have reached the server.
        except ConflictError:
            return False
        return True

    async def _within(self, seconds: float, attempt: Coroutine[Any, Any, bool]) -> bool:
        """Return the result of `attempt`; cancel it and return False after `seconds`."""
        task = asyncio.create_task(attempt)
        alarm = asyncio.ensure_future(self.sleep(seconds))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return task.done() and task.result()
        finally:
            task.cancel()
            alarm.cancel()
            await asyncio.gather(task, alarm, return_exceptions=True)


def _annotated(metadata: dict[str, Any], published: Mapping[str, str]) -> dict[str, Any]:
    old = metadata.get("annotations") or {}
    kept = {name: text for name, text in old.items() if name not in _PUBLISHED}
    annotations = {**kept, **published}
    bare = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**bare, "annotations": annotations} if annotations else bare
