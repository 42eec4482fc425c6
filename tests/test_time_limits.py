import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[1]
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin", "time_limits")
HANGS = """
import asyncio, pytest

@pytest.fixture
async def stuck():
    yield
    await asyncio.Event().wait()

async def test_that_hangs_after_a_failure(stuck):
    raise AssertionError("this is why")

def test_that_comes_later():
    pass
"""
SWALLOWS = """
import time

def test_that_ends_by_no_exception():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""


def run(folder: Path, tests: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the text as a test file with pytest, in a process of its own."""
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (folder / "test_it.py").write_text(tests)
    named = (word for name in PLUGINS for word in ("-p", name))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *named, *options],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT / "tests"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_teardown_that_hangs_fails_its_test_and_the_others_still_run(tmp_path: Path) -> None:
    done = run(tmp_path, HANGS, "--timeout=2", "--numprocesses=1")
    assert done.returncode == 1
    name = "test_it.py::test_that_hangs_after_a_failure"
    assert f"FAILED {name} (call) - AssertionError: this is why" in done.stdout
    assert f"OUT OF TIME {name} runs for " in done.stderr
    assert "Stack for <Task pending" in done.stderr
    assert f"crashed while running '{name}'" in done.stdout
    assert "1 passed" in done.stdout


def test_a_run_that_takes_too_long_ends_and_names_the_test_that_runs(tmp_path: Path) -> None:
    done = run(tmp_path, SWALLOWS, "--session-timeout=2")
    assert done.returncode == 1
    assert "OUT OF TIME test_it.py::test_that_ends_by_no_exception runs for " in done.stderr
    assert " in test_that_ends_by_no_exception" in done.stderr


def test_one_process_ends_a_test_that_no_exception_ends(tmp_path: Path) -> None:
    done = run(tmp_path, SWALLOWS, "--timeout=2")
    assert done.returncode == 1
    assert "OUT OF TIME test_it.py::test_that_ends_by_no_exception runs for " in done.stderr
