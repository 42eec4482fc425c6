"""What the tests of rules share."""

from typing import Any

import pytest

from mooring.policy.rules.expressions import Program


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets what the library is called with."""
    made: list[Any] = []
    run = Program.__call__

    def counted(program: Program, data: Any) -> Any:
        made.append(data)
        return run(program, data)

    monkeypatch.setattr(Program, "__call__", counted)
    return made
