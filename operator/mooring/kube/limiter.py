"""The client-side request limit of kube-scheduler's `clientConnection` (qps and burst)."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class TokenBucket:
    """At most `burst` requests at once and `qps` per second in the long run.

    Waiters are served in the order in which they came: each takes its token at once, on credit, and
    sleeps until the token would have come. A cancelled waiter's token is lost.
    """

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps must be above 0 and burst at least 1, not {qps:g} and {burst}")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(burst)
        self._filled_at = clock()

    async def acquire(self) -> None:
        """Wait until one request may be sent."""
        wait = self._take()
        if wait > 0:
            await self._sleep(wait)

    def _take(self) -> float:
        """Take one token; return the seconds until it is there."""
        now = self._clock()
        refill = (now - self._filled_at) * self._qps
        self._tokens = min(self._burst, self._tokens + refill) - 1
        self._filled_at = now
        return max(0.0, -self._tokens / self._qps)
