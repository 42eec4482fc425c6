"""The command says what was seen, and exits with 1 if a rule is broken."""

import pytest
from click.testing import CliRunner

from exploration.__main__ import main
from mooring.queueing.queue import SchedulingQueue


def test_what_was_seen_is_told() -> None:
    result = CliRunner().invoke(main, ["--world", "queue", "--world", "waits", "--depth", "2"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines] == ["queue", "waits", "clean"]
    assert all("(those within 2 actions)" in line for line in lines[:-1])


def test_what_is_broken_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingQueue, "remove", lambda *_: None)
    arguments = ["--pods", "1", "--nodes", "1", "--events", "0", "--world", "queue"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[1:] == [
        "broken: pod a-0 is in flight, and no attempt about it runs",
        "after 3 actions:",
        "  1. the next attempt begins",
        "  2. a-0 is bound",
        "  3. the attempt about a-0 ends: it is bound",
        "not clean",
    ]
