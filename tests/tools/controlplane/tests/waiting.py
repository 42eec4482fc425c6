"""Waiting for processes and conditions, always with an end."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PATIENCE = 30.0
"""Seconds until a wait is a failure."""

LOOK_AGAIN = 0.02
"""Seconds between two looks at a condition that nothing announces."""


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until every process has ended; children of others may not be collected yet."""
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
            os.close(descriptor)
            assert ended, f"process {pid} still runs"


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
        select.select([], [], [], LOOK_AGAIN)


def session_members(session: int) -> list[int]:
    """Return the processes of a session, the leader included."""
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == session:
                members.append(int(entry.name))
    return members
