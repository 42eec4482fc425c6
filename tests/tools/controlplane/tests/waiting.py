"""Waits for processes and conditions, with a time limit."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PATIENCE = 30.0
"""The seconds after which a wait fails."""

LOOK_AGAIN = 0.02
"""The seconds between two looks at a condition."""


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until every process has ended; zombies of other parents count as ended."""
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
            os.close(descriptor)
            assert ended, f"process {pid} still runs"


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition is true; `what` describes it in the error."""
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
