"""The client-side limit of requests."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.virtual_clock import VirtualClock
from mooring.kube.limiter import TokenBucket


async def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(10, 3, clock=clock, sleep=clock.sleep)
    sent: list[float] = []

    async def request() -> None:
        await bucket.acquire()
        sent.append(round(clock.time - 1000, 3))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(request())
        await clock.sleepers(2)
        assert sent == [0, 0, 0]
        await clock.advance(0.1)
        await clock.advance(0.1)
    assert sent == [0, 0, 0, 0.1, 0.2]


@given(
    qps=st.integers(1, 1000),
    burst=st.integers(1, 50),
    pauses=st.lists(st.floats(0, 5), min_size=1, max_size=100),
)
def test_no_stretch_of_time_sees_more_than_burst_and_rate_allow(
    qps: int, burst: int, pauses: list[float]
) -> None:
    time = 0.0
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    bucket = TokenBucket(qps, burst, clock=lambda: time, sleep=note)
    sent: list[float] = []
    for pause in pauses:
        time += pause
        waits.clear()
        asyncio.run(bucket.acquire())
        sent.append(time + sum(waits))
    assert sent == sorted(sent)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            allowed = burst + (sent[last] - sent[first]) * qps
            assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (5, 0)])
def test_a_limit_that_lets_nothing_pass_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="qps must be above 0 and burst at least 1"):
        TokenBucket(qps, burst)
