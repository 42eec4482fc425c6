"""Writes statuses until the server accepts or refuses each; one write at a time per object."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from background import in_background
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import ApiCall
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, UnreachableError, error_from_status
from mooring.kube.status_writer import SECTION_SECONDS, ProfileSectionWriter, StatusWriter
from mooring.kube.writes import ProfileWriter

CALL = ApiCall("patch", "pods/status", "", "default", "web")


def error(status: int) -> ApiError:
    return error_from_status(CALL, {"code": status, "message": "no"})


class Statuses:
    """A StatusWriter whose writes fail if their key is in `errors`, and wait if it is in `held`."""

    def __init__(self, lanes: int = 2) -> None:
        self.clock = VirtualClock()
        self.writer = StatusWriter[str]("pods", self._write, lanes=lanes, sleep=self.clock.sleep)
        self.written: list[str] = []
        self.errors: dict[str, ApiError] = {}
        self.held: dict[str, asyncio.Event] = {}

    async def _write(self, key: str) -> None:
        self.written.append(key)
        if key in self.held:
            await self.held[key].wait()
        if key in self.errors:
            raise self.errors[key]

    async def note(self, *keys: str) -> list[str]:
        """Note the keys; return the keys that were written because of this."""
        before = len(self.written)
        self.writer.note(*keys)
        await self.writer.settled()
        return self.written[before:]

    async def second(self) -> list[str]:
        """Advance the clock by a second; return the keys that were written then."""
        before = len(self.written)
        await self.clock.sleepers()
        await self.clock.advance(1)
        await self.clock.sleepers()
        await self.writer.settled()
        return self.written[before:]


@pytest.fixture
async def statuses() -> AsyncIterator[Statuses]:
    made = Statuses()
    async with in_background(made.writer.run()):
        yield made


async def test_of_each_object_the_newest_status_is_written_after_the_one_before(
    statuses: Statuses,
) -> None:
    held = statuses.held["web"] = asyncio.Event()
    statuses.writer.note("web")
    while not statuses.written:  # noqa: ASYNC110 - what is held has no event of its own
        await asyncio.sleep(0)
    for _ in range(3):
        statuses.writer.note("web", "db")
    at_once = asyncio.create_task(statuses.writer.write("web"))
    for _ in range(9):
        await asyncio.sleep(0)
    assert statuses.written == ["web", "db"]
    held.set()
    await asyncio.gather(at_once, statuses.writer.settled())
    assert statuses.written == ["web", "db", "web", "web"]


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_what_a_server_in_trouble_refuses_is_written_again_each_second(
    statuses: Statuses, status: int
) -> None:
    statuses.errors["web"] = error(status)
    assert await statuses.note("web", "db") == ["web", "db"]
    assert await statuses.second() == ["web"]
    del statuses.errors["web"]
    assert await statuses.second() == ["web"]
    assert await statuses.second() == []


async def test_after_a_try_that_does_not_reach_the_server_a_lane_waits_a_second() -> None:
    statuses = Statuses(lanes=1)
    statuses.errors["web"] = UnreachableError(CALL, "no route")
    async with in_background(statuses.writer.run()):
        statuses.writer.note("web", "db")
        await statuses.clock.sleepers(2)
        assert statuses.written == ["web"]
        del statuses.errors["web"]
        await statuses.clock.advance(1)
        await statuses.writer.settled()
        assert {*statuses.written[1:]} == {"db", "web"}


@pytest.mark.parametrize("status", [403, 404, 409, 422])
async def test_what_is_refused_or_gone_is_not_written_again_by_itself(
    statuses: Statuses, status: int
) -> None:
    statuses.errors["web"] = error(status)
    assert await statuses.note("web") == ["web"]
    assert await statuses.second() == []
    assert await statuses.note("web") == ["web"]


async def test_an_object_that_is_forgotten_is_not_written(statuses: Statuses) -> None:
    statuses.errors["web"] = error(500)
    await statuses.note("web")
    statuses.writer.forget("web")
    assert await statuses.second() == []


async def test_an_error_is_logged_once_until_a_status_is_written(
    statuses: Statuses, caplog: pytest.LogCaptureFixture
) -> None:
    """Each error names its object, and thousands of objects may fail."""
    statuses.errors = {name: error(403) for name in ("web", "db")}
    await statuses.note("web", "db")
    said = "the status of pods is not written: patch pods/status default/web: no (403)"
    assert [record.message for record in caplog.records] == [said]
    statuses.errors["db"] = error(422)
    await statuses.note("db")
    assert len(caplog.records) == 2
    await statuses.note("other")
    await statuses.note("db")
    assert len(caplog.records) == 3


async def test_a_status_that_is_written_at_once_tells_its_error(statuses: Statuses) -> None:
    statuses.errors["web"] = error(500)
    with pytest.raises(ApiError):
        await statuses.writer.write("web")


async def test_a_status_that_is_noted_while_it_is_written_at_once_is_written_again(
    statuses: Statuses,
) -> None:
    held = statuses.held["web"] = asyncio.Event()
    at_once = asyncio.create_task(statuses.writer.write("web"))
    await asyncio.sleep(0)
    statuses.writer.note("web")
    for _ in range(9):
        await asyncio.sleep(0)
    assert statuses.written == ["web"]
    held.set()
    await asyncio.gather(at_once, statuses.writer.settled())
    assert statuses.written == ["web", "web"]


async def test_a_status_that_is_written_at_once_is_sent_even_if_it_has_not_changed() -> None:
    sent = []

    async def send() -> None:
        sent.append("web")

    async def write(key: str) -> None:
        await writer.patch(key, {}, send)

    writer = StatusWriter[str]("pods", write, lanes=1)
    await writer.write("web")
    await writer.write("web")
    assert len(sent) == 2


async def test_a_status_is_sent_if_it_differs_in_more_than_times(statuses: Statuses) -> None:
    sent = []

    async def patch(key: str, time: str, **fields: int) -> int:
        async def send() -> None:
            sent.append(key)

        condition = {"type": "Ready", "lastTransitionTime": time}
        status = {"observedTime": time, "conditions": [condition], **fields}
        await statuses.writer.patch(key, status, send)
        return len(sent)

    assert not statuses.writer.has_patched("web")
    assert await patch("web", "1") == 1
    assert statuses.writer.has_patched("web")
    assert await patch("web", "2") == 1
    assert await patch("db", "2") == 2
    assert await patch("web", "2", done=1) == 3
    statuses.writer.forget("web")
    assert await patch("web", "2", done=1) == 4


class Section:
    """The writer of the field `shadow`, with a profile and the values that were written."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.statuses: dict[str, dict[str, int]] = {"packed": {"compared": 0}}
        self.refusals: list[int] = []
        self.written: list[dict[str, int]] = []

    def respond(self, request: Request) -> None:
        assert request.path.endswith("/schedulingprofiles/packed/status")
        self.written.append(request.body["status"]["shadow"])
        if self.refusals:
            request.refuse(self.refusals.pop(), "Refused", "no")
        else:
            request.reply({"metadata": {"uid": "1", "resourceVersion": "1"}})

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with ApiServer(self.respond) as server, ApiClient(Connection(server.url)) as client:
            writer = ProfileWriter(client)
            writer.seen("packed", "1", "1")
            section = ProfileSectionWriter(
                writer,
                "shadow",
                lambda: self.statuses,
                self.statuses.get,
                sleep=self.clock.sleep,
            )
            async with in_background(section.run()):
                yield

    async def after_a_while(self) -> int:
        """Advance the clock by SECTION_SECONDS; return the number of writes so far."""
        for _ in range(round(SECTION_SECONDS)):
            await self.clock.sleepers(2)
            await self.clock.advance(1)
            await self.clock.sleepers(2)
        return len(self.written)


async def test_a_section_of_a_profile_is_written_when_it_has_changed() -> None:
    section = Section()
    async with section.run():
        assert await section.after_a_while() == 1
        assert await section.after_a_while() == 1
        section.statuses["packed"] = {"compared": 1}
        assert await section.after_a_while() == 2
        section.statuses.clear()
        assert await section.after_a_while() == 2
        section.statuses["packed"] = {"compared": 1}
        assert await section.after_a_while() == 3
    assert section.written == [{"compared": 0}, {"compared": 1}, {"compared": 1}]


@pytest.mark.parametrize(("status", "told"), [(403, True), (404, False)])
async def test_a_section_that_cannot_be_written_is_written_later(
    status: int, *, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    section = Section()
    section.refusals = [status]
    async with section.run():
        assert await section.after_a_while() == 1
        assert await section.after_a_while() == 2
    assert ("the status of profiles is not written" in caplog.text) == told
