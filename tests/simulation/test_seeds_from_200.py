"""A hundred more seeds of the simulated world; see test_simulation.py."""

import pytest

from simulation.__main__ import failures, report


@pytest.mark.parametrize("first", range(200, 300, 20))
def test_every_invariant_holds_for_twenty_seeds(first: int) -> None:
    broken = [report(outcome) for outcome in failures(range(first, first + 20))]
    assert broken == [], "\n\n".join(broken)
