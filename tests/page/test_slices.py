"""Long work lets other work run in between."""

import asyncio
from collections.abc import Iterator

from mooring.page.slices import in_slices


async def test_other_work_runs_after_each_slice() -> None:
    now = 0.0
    others = 0

    def clock() -> float:
        return now

    def steps() -> Iterator[None]:
        nonlocal now
        for _ in range(6):
            now += 0.0011  # two steps are one slice
            yield

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await in_slices(steps(), clock)
    task.cancel()
    assert others >= 3


async def test_short_work_is_done_at_once() -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            yield

    task = asyncio.create_task(in_slices(steps(), lambda: 0.0))
    await asyncio.sleep(0)
    assert done == [0, 1, 2]
    await task
