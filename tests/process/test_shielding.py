"""Work continues when the task that waits for it is cancelled."""

import asyncio
import gc
from typing import Any

import pytest

from mooring.process.shielding import shielded


class Work:
    """A task that the test ends."""

    def __init__(self) -> None:
        self.ends: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> str:
        return await self.ends


@pytest.fixture
async def work() -> Work:
    return Work()


@pytest.fixture
async def reported() -> list[dict[str, Any]]:
    """Return a list that gets the calls of the event loop's exception handler."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    return told


async def cancelled_waiter(work: Work) -> None:
    waiter = asyncio.create_task(shielded(work.task))
    await asyncio.sleep(0)  # one that has not begun waits for nothing
    waiter.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled()


async def test_the_waiter_gets_the_result_or_the_error(work: Work) -> None:
    work.ends.set_result("done")
    assert await shielded(work.task) == "done"
    failing = Work()
    failing.ends.set_exception(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await shielded(failing.task)


async def test_the_work_goes_on_when_its_waiter_is_cancelled(work: Work) -> None:
    await cancelled_waiter(work)
    assert not work.task.cancelling()
    work.ends.set_result("done")
    assert await work.task == "done"


async def test_an_error_after_the_waiter_was_cancelled_is_not_reported(
    reported: list[dict[str, Any]],
) -> None:
    work = Work()
    await cancelled_waiter(work)
    work.ends.set_exception(OSError("broken"))
    await asyncio.wait([work.task])
    del work
    gc.collect()
    assert reported == []


async def test_another_waiter_still_gets_the_error(work: Work) -> None:
    await cancelled_waiter(work)
    work.ends.set_exception(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        await shielded(work.task)


async def test_the_waiter_of_cancelled_work_is_cancelled(work: Work) -> None:
    work.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shielded(work.task)
