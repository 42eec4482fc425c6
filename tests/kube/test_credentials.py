"""The Authorization header, and when it is renewed."""

import asyncio

import pytest

from kube.virtual_clock import VirtualClock
from mooring.kube.credentials import REREAD_SECONDS, Credentials, NoToken
from mooring.kube.errors import ConfigError


class Source:
    """A TokenSource that returns `value`, and records its calls; None raises ConfigError."""

    def __init__(self) -> None:
        self.value: str | None = "first"
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def current(self) -> str | None:
        return await self._give("current")

    async def replaced(self) -> str | None:
        return await self._give("replaced")

    async def _give(self, how: str) -> str | None:
        self.asked.append(how)
        await self.open.wait()
        if self.value is None:
            raise ConfigError("the file is gone")
        return self.value


async def test_a_token_is_read_again_only_after_a_while() -> None:
    clock, source = VirtualClock(), Source()
    credentials = Credentials(source, "first", clock=clock)
    source.value = "second"
    await clock.advance(REREAD_SECONDS - 1)
    assert await credentials.headers() == {"Authorization": "first"}
    await clock.advance(1)
    assert await credentials.headers() == {"Authorization": "second"}
    await credentials.headers()
    assert source.asked == ["current"]


async def test_a_source_without_a_period_is_asked_only_after_a_refusal() -> None:
    clock, source = VirtualClock(), Source()
    credentials = Credentials(source, "first", reread=None, clock=clock)
    await clock.advance(1e9)
    refused = await credentials.headers()
    assert source.asked == []
    source.value = "second"
    assert await credentials.renew(refused)
    assert await credentials.headers() == {"Authorization": "second"}
    assert source.asked == ["replaced"]


async def test_the_same_token_again_is_not_worth_another_try() -> None:
    credentials = Credentials(Source(), "first")
    assert not await credentials.renew(await credentials.headers())


async def test_a_refusal_of_old_headers_asks_nobody() -> None:
    source = Source()
    credentials = Credentials(source, "first")
    old = await credentials.headers()
    source.value = "second"
    assert await credentials.renew(old)
    assert await credentials.renew(old)
    assert source.asked == ["replaced"]


async def test_a_source_that_fails_leaves_the_present_header() -> None:
    clock, source = VirtualClock(), Source()
    credentials = Credentials(source, "first", clock=clock)
    source.value = None
    await clock.advance(REREAD_SECONDS)
    assert await credentials.headers() == {"Authorization": "first"}
    assert not await credentials.renew(await credentials.headers())


async def test_requests_go_on_while_a_slow_source_is_read() -> None:
    clock, source = VirtualClock(), Source()
    credentials = Credentials(source, "first", clock=clock)
    source.value = "second"
    source.open.clear()
    await clock.advance(REREAD_SECONDS)
    reader = asyncio.create_task(credentials.headers())
    await asyncio.sleep(0)
    assert await credentials.headers() == {"Authorization": "first"}
    source.open.set()
    assert await reader == {"Authorization": "second"}


@pytest.mark.parametrize("how", ["current", "replaced"])
async def test_a_login_goes_on_when_the_request_that_began_it_is_cancelled(how: str) -> None:
    """A renewal of the lease is cancelled after seconds, but a login plugin may take longer."""
    clock, source = VirtualClock(), Source()
    credentials = Credentials(source, "first", clock=clock)
    source.value = "second"
    source.open.clear()
    old = await credentials.headers()
    if how == "current":
        await clock.advance(REREAD_SECONDS)
    asking = credentials.headers() if how == "current" else credentials.renew(old)
    request = asyncio.create_task(asking)
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.wait([request])
    next_one = asyncio.create_task(credentials.renew(old))
    source.open.set()
    assert await next_one
    assert await credentials.headers() == {"Authorization": "second"}
    assert source.asked == [how]


async def test_a_login_that_does_not_end_is_given_up_and_others_wait_for_the_same_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mooring.kube.credentials.LOGIN_SECONDS", 0.0)
    source = Source()
    credentials = Credentials(source, "first")
    source.value = "second"
    source.open.clear()
    old = await credentials.headers()
    assert await asyncio.gather(*(credentials.renew(old) for _ in range(5))) == [False] * 5
    assert source.asked == ["replaced"]
    assert "no answer within 0 seconds" in caplog.text
    source.open.set()
    assert await credentials.renew(old)


async def test_a_connection_without_a_token_sends_no_header() -> None:
    credentials = Credentials(NoToken(), None)
    headers = await credentials.headers()
    assert headers == {}
    assert not await credentials.renew(headers)
