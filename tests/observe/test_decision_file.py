import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PosixPath
from threading import Event
from typing import Any

import pytest

from mooring.observe.decision_file import DecisionFile


class Pauses:
    """A `sleep` between two writes; each call ends when the test sets its event."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[asyncio.Event]()

    async def __call__(self, _seconds: float) -> None:
        end = asyncio.Event()
        self.begun.put_nowait(end)
        await end.wait()


async def written(file: DecisionFile, *lines: bytes) -> None:
    """Append the lines; then start and cancel the file's task, as at the end of the process."""
    for line in lines:
        file.append(line)
    running = asyncio.create_task(file.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_lines_are_written_in_order_in_every_pause_and_at_the_end(tmp_path: Path) -> None:
    path, pauses = tmp_path / "log", Pauses()
    file = DecisionFile(path, 1_000, pauses)
    running = asyncio.create_task(file.run())
    first = await pauses.begun.get()
    file.append(b"1")
    file.append(b"2")
    first.set()
    await pauses.begun.get()
    assert path.read_bytes() == b"1\n2\n"
    file.append(b"3")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert path.read_bytes() == b"1\n2\n3\n"


async def test_a_full_file_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = DecisionFile(path, 10)
    await written(file, *(b"%04d" % number for number in range(7)))
    assert path.read_bytes() == b"0006\n"
    assert (tmp_path / "log.1").read_bytes() == b"0004\n0005\n"
    assert not (tmp_path / "log.1.1").exists()


async def test_a_line_that_is_longer_than_the_file_may_be_is_written_all_the_same(
    tmp_path: Path,
) -> None:
    file = DecisionFile(tmp_path / "log", 3)
    await written(file, b"long line", b"another long line")
    assert (tmp_path / "log.1").read_bytes() == b"long line\n"
    assert (tmp_path / "log").read_bytes() == b"another long line\n"


async def test_a_file_that_cannot_be_written_is_told_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = DecisionFile(tmp_path / "missing" / "log", 100)
    await written(file, b"1")
    await written(file, b"2")
    (line,) = caplog.messages
    assert "No such file or directory" in line
    assert line.endswith("; lines are lost")
    (tmp_path / "missing").mkdir()
    await written(file, b"3")
    assert (tmp_path / "missing" / "log").read_bytes() == b"3\n"


async def test_a_line_after_half_a_line_is_whole(tmp_path: Path) -> None:
    """A full disk, or the end of the process, may leave an incomplete line."""
    (tmp_path / "log").write_bytes(b'{"pod":"a"}\n{"po')
    await written(DecisionFile(tmp_path / "log", 100), b'{"pod":"b"}')
    assert (tmp_path / "log").read_bytes().splitlines()[-1] == b'{"pod":"b"}'


async def test_lines_are_not_lost_when_writing_is_cancelled_before_it_begins(
    tmp_path: Path,
) -> None:
    file, busy = DecisionFile(tmp_path / "log", 100, lambda _: asyncio.sleep(0)), Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    other = asyncio.create_task(asyncio.to_thread(busy.wait))
    await asyncio.sleep(0)
    file.append(b"1")
    task = asyncio.create_task(file.run())
    for _ in range(5):
        await asyncio.sleep(0)
    file.append(b"2")
    task.cancel()
    await asyncio.sleep(0)
    busy.set()
    await asyncio.wait([task, other])
    assert (tmp_path / "log").read_bytes() == b"1\n2\n"


async def test_lines_that_wait_to_be_written_are_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = DecisionFile(tmp_path / "log", 2**30)
    await written(file, *(b"x" * 2**20 for _ in range(20)))
    assert (tmp_path / "log").stat().st_size < 16 * 2**20
    assert [line.rpartition(": ")[2] for line in caplog.messages] == [
        "too many at once; lines are lost"
    ]


class HangingDisk(PosixPath):
    """A path whose `open` hangs until the test sets `answers`, as on a broken network disk."""

    asked, answers = Event(), Event()

    def open(self, *_args: Any, **_kwargs: Any) -> Any:
        self.asked.set()
        self.answers.wait()
        raise OSError("the disk is gone")


async def test_a_disk_that_hangs_at_the_end_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """Otherwise the lease would not be released at the end of the process."""
    path = HangingDisk(tmp_path / "log")
    file = DecisionFile(path, 100)
    file.append(b"1")
    running = asyncio.create_task(file.run())
    await asyncio.sleep(0)
    running.cancel()
    try:
        await asyncio.to_thread(path.asked.wait)
        await asyncio.sleep(0)
        assert not running.done()
    finally:
        path.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await running
