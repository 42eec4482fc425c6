"""Leader election over a coordination.k8s.io Lease, with client-go's rules.

    waiting --the lease is free, released or expired--> leading --not renewed in time--> lost
                                                           |
                                                      cancelled --> the lease is released

- Another's lease has expired when it has not *changed* for its duration on this process's own
  monotonic clock; the times written in it are for readers and never compared (clocks differ).
- Every write carries the resourceVersion it was decided on, so that only one replica can win.
- Leading ends `renew_deadline` seconds after the last successful renewal was sent, which is
  before `lease_duration` has passed for any other replica. (client-go counts from the answer, and
  may overrun when an answer is slow.) Finding another holder in the lease ends it at once.

See client-go tools/leaderelection/leaderelection.go.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.errors import ApiError, ConflictError, NotFoundError, explain
from mooring.kube.resources import LEASE
from mooring.kube.timestamps import micro_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from mooring.kube.client import ApiClient

__all__ = ["LeaderElector"]

logger = logging.getLogger(__name__)

JITTER: Final = 1.2
"""A waiting replica tries every 1 to 2.2 retry periods, so that replicas do not all try at the same
moment."""


class LeaderElector:
    """One replica's part in the election; `identity` must differ between replicas.

    The durations are the defaults of kube-scheduler's `leaderElection`, in seconds.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_duration: int = 15,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        random: random_module.Random | None = None,
    ) -> None:
        if not lease_duration > renew_deadline > JITTER * retry_period > 0:
            raise ValueError(
                f"leader election needs lease duration > renew deadline > {JITTER} x retry period "
                f"> 0, not {lease_duration:g}, {renew_deadline:g} and {retry_period:g} seconds"
            )
        self.is_leader = False
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._random = random or random_module.Random()  # noqa: S311 - spreads load, hides nothing
        self._lease: dict[str, Any] = {}
        self._observed_at = clock()
        self._renewed_at = clock()
        self._trouble = ""

    @property
    def holder(self) -> str:
        """The identity last seen in the lease; empty when no replica holds it."""
        return (self._lease.get("spec") or {}).get("holderIdentity") or ""

    async def run(self, on_started: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Wait for the lease, lead, and return when it is lost.

        `on_started` is called once it is held, `on_lost` as soon as it is not; both must be
        quick. Cancelling releases the lease without `on_lost`: stop what only a leader may do
        before cancelling.
        """
        while not await self._try():
            await self._sleep(self._retry_period * (1 + JITTER * self._random.random()))
        self.is_leader = True
        logger.info("leading: this replica holds lease %s/%s", self._namespace, self._name)
        try:
            on_started()
            await self._keep()
        except asyncio.CancelledError:
            await self._within(self._retry_period, self._release())
            raise
        finally:
            self.is_leader = False
        how = "was not renewed in time" if self.holder == self._identity else "is another's now"
        logger.error("lease %s/%s %s", self._namespace, self._name, how)
        on_lost()

    async def _keep(self) -> None:
        """Renew until that fails for too long."""
        held = True
        while held:
            await self._sleep(self._retry_period)
            left = self._renewed_at + self._renew_deadline - self._clock()
            held = await self._within(left, self._renew())

    async def _renew(self) -> bool:
        """True once renewed, False when another holds the lease; tries until then."""
        while not await self._try():
            if self.holder not in {self._identity, ""}:
                return False
            await self._sleep(self._retry_period)
        return True

    async def _try(self) -> bool:
        """Take or renew the lease; True if it is held now."""
        try:
            held = await self._update_known() or await self._take_or_create()
        except ApiError as error:
            text = explain(error)
            if text != self._trouble:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, text)
            self._trouble = text
            return False
        self._trouble = ""
        return held

    async def _update_known(self) -> bool:
        """A leader renews what it wrote last, without reading it again."""
        if not self.is_leader:
            return False
        try:
            await self._write(self._lease)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _take_or_create(self) -> bool:
        try:
            lease = await self._client.get(LEASE, self._name, self._namespace)
        except NotFoundError:
            await self._write({})
            return True
        self._observe(lease)
        if self.holder not in {self._identity, ""} and not self._expired():
            return False
        await self._write(lease)
        return True

    def _expired(self) -> bool:
        seconds: float = self._lease["spec"].get("leaseDurationSeconds") or 0
        return self._clock() >= self._observed_at + seconds

    def _observe(self, lease: dict[str, Any]) -> None:
        if lease.get("spec") != self._lease.get("spec"):
            self._observed_at = self._clock()
        self._lease = lease

    async def _write(self, lease: dict[str, Any]) -> None:
        """Hold `lease` as it was read, or create it if it is empty."""
        old = lease.get("spec") or {}
        now = micro_time(self._now())
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._lease_duration,
            "renewTime": now,
        }
        if old.get("holderIdentity") == self._identity:
            spec["acquireTime"] = old.get("acquireTime", now)
            spec["leaseTransitions"] = old.get("leaseTransitions", 0)
        else:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = old.get("leaseTransitions", 0) + 1 if lease else 0
        sent_at = self._clock()
        if lease:
            written = await self._client.update(LEASE, {**lease, "spec": spec})
        else:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}
            written = await self._client.create(LEASE, {**body, "spec": spec})
        self._observe(written)
        self._renewed_at = sent_at

    async def _release(self) -> bool:
        """Let the next replica take over at once instead of after the lease's duration."""
        now = micro_time(self._now())
        try:
            # Read first: a renewal that was cancelled may have been written all the same.
            lease = await self._client.get(LEASE, self._name, self._namespace)
            self._observe(lease)
            if self.holder != self._identity:
                return False
            spec = {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": lease["spec"].get("leaseTransitions", 0),
            }
            await self._client.update(LEASE, {**lease, "spec": spec})
        except ApiError as error:
            logger.warning("the lease was not released: %s", explain(error))
            return False
        return True

    async def _within(self, seconds: float, attempt: Coroutine[Any, Any, bool]) -> bool:
        """What `attempt` returns, False if that takes longer than `seconds`."""
        task = asyncio.create_task(attempt)
        alarm = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return task.done() and task.result()
        finally:
            task.cancel()
            alarm.cancel()
            await asyncio.gather(task, alarm, return_exceptions=True)
