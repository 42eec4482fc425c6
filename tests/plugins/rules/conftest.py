"""A fixture for the tests of rules."""

from typing import Any

import pytest

from mooring.cel.interpreter import Program


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets the variables of each evaluation by the interpreter."""
    made: list[Any] = []
    run = Program.run

    def counted(program: Program, variables: Any, *limits: int) -> Any:
        made.append(variables)
        return run(program, variables, *limits)

    monkeypatch.setattr(Program, "run", counted)
    return made
