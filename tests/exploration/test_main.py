"""The command prints the results, and exits with 1 if a rule is broken."""

import pytest
from click.testing import CliRunner

from exploration.__main__ import main
from mooring.scheduling.queue.queue import SchedulingQueue


def test_what_was_seen_is_told() -> None:
    result = CliRunner().invoke(main, ["--world", "alone", "--world", "waits", "--depth", "2"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines] == ["alone", "waits", "clean"]
    assert all("(those within 2 actions)" in line for line in lines[:-1])


def test_what_is_broken_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingQueue, "remove", lambda *_: None)
    result = CliRunner().invoke(main, ["--events", "0", "--world", "alone"])
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[1:] == [
        "broken: pod a-0 is in flight, and no attempt about it runs",
        "after 2 actions:",
        "  1. the server looks at the Binding of a-0",
        "  2. the answer about a-0 comes",
        "not clean",
    ]
