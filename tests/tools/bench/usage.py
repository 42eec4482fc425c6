"""Reads the CPU and memory of a process from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
IDLE_INTERVAL = 0.5
IDLE_SHARE = 0.04
"""The share of a core below which only timers run."""


@dataclass(frozen=True)
class Usage:
    """The CPU and memory of a process since its beginning."""

    cpu_seconds: float
    """CPU in user and in kernel mode, in hundredths of a second."""
    peak_mib: float
    """The most resident memory at any time."""


def usage_of(pid: int, proc: Path = Path("/proc")) -> Usage:
    """Return the CPU and the memory that a running process has used."""
    folder = proc / str(pid)
    # The program's name, in parentheses, may itself hold spaces and parentheses.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Usage((user + system) / TICKS_PER_SECOND, int(status["VmHWM"].split()[0]) / 1024)


def wait_until_idle(pid: int, limit: float) -> None:
    """Wait until the process is idle, at most `limit` seconds."""
    deadline = time.monotonic() + limit
    before = usage_of(pid).cpu_seconds
    while time.monotonic() < deadline:
        time.sleep(IDLE_INTERVAL)
        now = usage_of(pid).cpu_seconds
        if now - before < IDLE_SHARE * IDLE_INTERVAL:
            return
        before = now
