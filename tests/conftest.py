"""Fixtures and hooks for all tests."""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from controlplane import ControlPlaneError
from controlplane.releases import chosen_release
from turn_guard import guard_turns

# A busy machine is no failure: nothing is timed in tests.
settings.register_profile("mooring", max_examples=50, deadline=None)
settings.register_profile("quick", max_examples=20, stateful_step_count=20, deadline=None)
settings.load_profile("mooring")

guard_turns()

# Servers that live for minutes collect their garbage less often, which is a sixth of their CPU.
os.environ.setdefault("GOGC", "400")

pytest_plugins = ["api_fixtures", "controlplane.fixtures", "time_limits"]

SERVED = ("tests/e2e/", "tests/kueue/")
"""Folders whose tests all have a control plane."""

PACKAGES = Path(__file__).parents[1] / "operator" / "mooring"

STARTING = frozenset({"control_plane", "fresh_control_plane"})
"""Fixtures that start a control plane."""

LONGEST = (
    "tests/tools/bench/test_bench.py",
    "tests/e2e/test_rebalancing.py",
    "tests/e2e/test_faults.py",
    "tests/tools/soak/test_soak.py",
    "tests/tools/demo/test_demo.py",
    "tests/e2e/test_quickstart.py",
    "tests/conformance/test_corpus.py",
    "tests/simulation/test_simulation.py",
    "tests/page/test_bundle.py",
    "tests/e2e/test_image.py",
    "tests/e2e/test_pod_groups.py",
    "tests/e2e/test_rbac.py",
    "tests/e2e/test_drain.py",
)
"""Files that take one to four minutes, the longest first: begun last, one is waited for alone.

The end of `make test` says how long files take.
"""
SHOWN = 12
"""Of so many files the end of a run says how long they take."""

LEFT_OUT = pytest.StashKey[int]()
"""How many tests the chosen release cannot have."""

_OPENS = frozenset({"socket.__new__", "subprocess.Popen"})
"""Audit events of what has to be closed; a new event loop makes sockets too."""
_opened: list[str] = []


def pytest_configure() -> None:
    """Let Ctrl-C end the programs that tests start, even if the tests run in the background.

    A shell script starts background commands with SIGINT ignored, and their programs inherit this.

    Raises:
        UsageError: KUBERNETES names no release that is tested.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        chosen_release()
    except ControlPlaneError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header() -> str:
    """Return a line with the version of Kubernetes that tests with a control plane use."""
    return f"Kubernetes: {chosen_release().version}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that start servers, and put them first, the longest tests before the others.

    Mark tests in folders that mirror no package as deep. If several processes run the tests, short
    tests at the end keep all processes busy. Tests of Kubernetes' own PodGroups are left out if the
    chosen release has none.
    """
    if not chosen_release().has_pod_groups:
        left_out = [item for item in items if item.get_closest_marker("pod_groups")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[LEFT_OUT] = len(left_out)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.nodeid.startswith(SERVED) or not STARTING.isdisjoint(fixtures):
            item.add_marker("server")
        folders = item.nodeid.partition("::")[0].split("/")[1:-1]
        if folders and not (PACKAGES / folders[0]).is_dir():
            item.add_marker("deep")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return a number to sort by: files in LONGEST come first, then other tests with servers."""
    file = item.nodeid.partition("::")[0]
    if file in LONGEST:
        return LONGEST.index(file)
    return len(LONGEST) + (item.get_closest_marker("server") is None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the number of tests left out to the process that prints the summary."""
    told: dict[str, int] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note the number of tests left out; every process collects all tests and reports the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the property `summary` of tests, the number of tests left out, and the slow files."""
    if left_out := terminalreporter.config.stash.get(LEFT_OUT, 0):
        release = chosen_release()
        terminalreporter.write_line(
            f"left out, because {release.version} has no PodGroups of its own: {left_out} test(s)"
        )
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))
    if terminalreporter.config.getoption("durations"):
        terminalreporter.section(f"slowest {SHOWN} files")
        seconds = _seconds_of_files(terminalreporter)
        for file in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"{seconds[file]:.0f}s {file}")


def _seconds_of_files(terminalreporter: pytest.TerminalReporter) -> dict[str, float]:
    """Return the duration of each file's tests in seconds, with their setup and teardown."""
    seconds = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def _note_opening(event: str, _: object) -> None:
    if event in _OPENS and not _opened:
        _opened.append(event)


def pytest_collectstart() -> None:
    """Turn garbage collection off while tests are collected, because there is no garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude all existing objects from garbage collection, so that later collections are short."""
    sys.addaudithook(_note_opening)
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def leaves_nothing_to_the_collector() -> Iterator[None]:
    """Fail a test that leaves a socket, a transport or an event loop to the garbage collector.

    Without this fixture the warning would come during a later test, and fail that test. Objects
    that outlive their test, for example shared fixtures, are excluded from later collections, which
    would otherwise take a third of the time of all tests.
    """
    _opened.clear()
    yield
    if _opened:
        gc.collect()
        gc.freeze()
