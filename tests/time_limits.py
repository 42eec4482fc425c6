"""Time limits that end a hanging test or run, and failures that are printed at once.

pytest-timeout raises an exception in a test that takes longer than the setting `timeout`. It cannot
end a test that swallows the exception, and it stops its clock at the first failure, so a later
teardown may wait for ever. Here the process ends if a test exceeds the limit by a quarter;
pytest-xdist then starts another process for the other tests. Clock and sleep are imported by name,
because tests replace those of `time`, and the watching thread would get the replacements.
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
    """A plugin that ends this process if a test or the run far exceeds its time limit."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: dict[str, float] = {}
        # Here nothing is captured yet.
        self._stderr = os.fdopen(os.dup(2), "w", buffering=1)
        self._end_of_run = self._end_of_test = inf

    def pytest_sessionstart(self) -> None:
        """Start the clock of the run; a worker of pytest-xdist leaves this to its controller."""
        limit = _setting(self._config, "session_timeout")
        if limit and not hasattr(self._config, "workerinput"):
            self._end_of_run = monotonic() + GRACE * limit
        Thread(target=self._watch, name="time limits", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        """Stop the clock of the run."""
        self._end_of_run = inf

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Apply one limit to the test's setup, call and teardown together."""
        limit = _limit_of(item)
        if not limit:
            return (yield)
        self._end_of_test = monotonic() + GRACE * limit
        try:
            return (yield)
        finally:
            self._end_of_test = inf

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember the running test; a controller of pytest-xdist gets the tests of all workers."""
        self._running[nodeid] = monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget the test, because it has ended."""
        self._running.pop(nodeid, None)

    def _watch(self) -> None:
        """End the process when the test or the run has exceeded its limit."""
        while (left := min(self._end_of_test, self._end_of_run) - monotonic()) > 0:
            sleep(min(left, _LOOK_SECONDS))
        self._end()

    def _end(self) -> None:
        """Write the running tests and the stacks of all tasks and threads; end the process."""
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
    """A plugin that prints each failure immediately, so that a log which is cut short has it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the name and the reason of a failure."""
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
