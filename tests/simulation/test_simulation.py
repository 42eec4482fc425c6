"""Three hundred seeds of the whole scheduler in a simulated world, and what was once wrong in one.

A failure shows its seed, the invariant and the shortest history; `python -m simulation SEED`
repeats it. `make soak` runs ten thousand.
"""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from simulation.__main__ import failures, report, scenario_of
from simulation.regressions import Regression, regressions
from simulation.scenario import Scenario
from simulation.world import run

BLOCKS = 15
SEEDS = 20
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_invariant_holds_for_seeds(block: int) -> None:
    broken = failures(range(block * SEEDS, (block + 1) * SEEDS))
    assert broken == [], "\n\n".join(map(report, broken))


@pytest.mark.parametrize("kept", regressions(), ids=lambda kept: kept.about.replace(" ", "_"))
def test_what_was_once_wrong_is_right(kept: Regression) -> None:
    outcome = run(kept.scenario)
    assert outcome.broken == "", report(outcome, shrink=False)


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """Whatever the hashes of texts are, by which sets order them."""
    seed = 3
    path = os.pathsep.join(sys.path)
    traces = [
        subprocess.run(
            [sys.executable, "-m", "simulation", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": path},
            cwd=TESTS,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert run(scenario_of(seed)).trace in traces[0]


def test_a_scenario_is_the_same_when_it_was_written_and_read() -> None:
    scenario = scenario_of(11)
    written = orjson.dumps(scenario.plain())
    assert Scenario.parsed(orjson.loads(written)) == scenario
