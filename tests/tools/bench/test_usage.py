import os
from pathlib import Path

import pytest

from bench.usage import TICKS_PER_SECOND, usage_of, wait_until_idle


def test_a_process_whose_name_holds_spaces_and_parentheses_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    ticks = TICKS_PER_SECOND
    (folder / "stat").write_text(f"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 {2 * ticks} {ticks} 0 0\n")
    (folder / "status").write_text("Name:\ta) b (c\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n")
    usage = usage_of(7, tmp_path)
    assert (usage.cpu_seconds, usage.peak_mib) == (3.0, 2.0)


def test_this_very_process_has_used_something() -> None:
    usage = usage_of(os.getpid())
    assert usage.cpu_seconds == pytest.approx(sum(os.times()[:2]), abs=0.1)
    assert usage.peak_mib > 1


def test_waiting_for_an_idle_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.usage.IDLE_INTERVAL", 0.01)
    wait_until_idle(os.getpid(), limit=5.0)
