"""Time limits that end a test or the run whatever hangs, and failures that are told at once.

pytest-timeout raises an exception in the test that takes longer than the setting `timeout`. It
cannot end a test that swallows the exception, and it stops its clock at the first failure: a
teardown after that may wait for ever. What is a quarter over the limit ends with its process.
pytest-xdist starts another process for the other tests. Clock and sleep are imported by name,
because tests replace those of `time`, and the thread that looks at the clock would take theirs.
"""

import asyncio
import faulthandler
import gc
import os
from collections.abc import Generator
from math import inf
from threading import Thread
from time import monotonic, sleep
from typing import Final

import pytest

GRACE: Final = 1.25
"""The process ends after so many times the limit."""
_LOOK_SECONDS: Final = 1.0
"""So often the clock is looked at. A timer for each test would be a thread for each test."""


class TimeLimits:
    """Plugin that ends this process when a test or the run takes much longer than it may."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: dict[str, float] = {}
        # Here nothing is captured yet.
        self._stderr = os.fdopen(os.dup(2), "w", buffering=1)
        self._end_of_run = self._end_of_test = inf

    def pytest_sessionstart(self) -> None:
        """Start the clock of the run, which a worker of pytest-xdist leaves to its controller."""
        limit = _setting(self._config, "session_timeout")
        if limit and not hasattr(self._config, "workerinput"):
            self._end_of_run = monotonic() + GRACE * limit
        Thread(target=self._watch, name="time limits", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        """Stop the clock of the run."""
        self._end_of_run = inf

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run the test's setup, call and teardown under one limit."""
        limit = _limit_of(item)
        if not limit:
            return (yield)
        self._end_of_test = monotonic() + GRACE * limit
        try:
            return (yield)
        finally:
            self._end_of_test = inf

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember which tests run; a controller of pytest-xdist hears of those of all workers."""
        self._running[nodeid] = monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget the test."""
        self._running.pop(nodeid, None)

    def _watch(self) -> None:
        """End the process when the test or the run is out of time."""
        while (left := min(self._end_of_test, self._end_of_run) - monotonic()) > 0:
            sleep(min(left, _LOOK_SECONDS))
        self._end()

    def _end(self) -> None:
        """Write which tests run and where they wait, and end the process."""
        try:
            now = monotonic()
            for nodeid, started in self._running.items():
                print(f"\nOUT OF TIME {nodeid} runs for {now - started:.0f} s", file=self._stderr)
            for task in gc.get_objects():
                if isinstance(task, asyncio.Task) and not task.done():
                    task.print_stack(file=self._stderr)
            faulthandler.dump_traceback(self._stderr)
        finally:
            os._exit(1)


class EarlyFailures:
    """Plugin that names each failure as it happens: a log that is cut short has it all the same."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write name and reason of what failed."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            first, *_ = [*str(crash.message if crash else report.longrepr).splitlines(), ""]
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid} ({report.when}) - {first:.300}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins of this file."""
    config.pluginmanager.register(TimeLimits(config), "time-limits")
    config.pluginmanager.register(EarlyFailures(config), "early-failures")


def _limit_of(item: pytest.Item) -> float:
    """Return the test's limit in seconds, 0 for none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    return _setting(item.config, "timeout")


def _setting(config: pytest.Config, name: str) -> float:
    """Return a setting of pytest-timeout in seconds, 0 for none."""
    return float(config.getoption(name) or config.getini(name) or 0)
