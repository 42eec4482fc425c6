"""The client-side request limit of kube-scheduler's `clientConnection` (qps and burst)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(eq=False, repr=False)
class TokenBucket:
    """Limits requests to `qps` per second; up to `burst` requests may be sent at once.

    Waiters are served in order. Each waiter reserves the next token, and sleeps until the token is
    due. If a waiter is cancelled, its token is lost.
    """

    qps: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.qps <= 0 or self.burst < 1:
            raise ValueError(
                f"qps must be above 0 and burst at least 1, not {self.qps:g} and {self.burst}"
            )
        self._tokens = float(self.burst)
        self._filled_at = self.clock()

    async def acquire(self) -> None:
        """Wait until one request may be sent."""
        wait = self._take()
        if wait > 0:
            await self.sleep(wait)

    def _take(self) -> float:
        """Take a token; return the seconds until the token may be used."""
        now = self.clock()
        refill = (now - self._filled_at) * self.qps
        self._tokens = min(self.burst, self._tokens + refill) - 1
        self._filled_at = now
        return max(0.0, -self._tokens / self.qps)
