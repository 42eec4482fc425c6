"""Runs a hundred seeds of the simulated world, and the scenarios of former failures.

A failure prints the seed, the invariant and the command that repeats it and finds the shortest
history. `make soak` runs ten thousand seeds.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from simulation.__main__ import MEET_ALL, concluded, failures, report, scenario_of
from simulation.coverage import POSSIBLE, Coverage, Pair
from simulation.regressions import Regression, regressions
from simulation.scenario import Scenario, Step
from simulation.state_invariants import engines
from simulation.world import World, run

TESTS = Path(__file__).parents[1]
SALTED = (3, 18, 28, 41, 57, 157)
_TRACES = f"""
from simulation.__main__ import scenario_of
from simulation.world import run
print(*(run(scenario_of(seed)).trace for seed in {SALTED}))
"""


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_every_invariant_holds_for_twenty_seeds(first: int) -> None:
    broken = [report(outcome) for outcome in failures(range(first, first + 20))]
    assert broken == [], "\n\n".join(broken)


@pytest.mark.parametrize("kept", regressions(), ids=lambda kept: kept.about.replace(" ", "_"))
def test_what_was_once_wrong_is_right(kept: Regression) -> None:
    assert run(kept.scenario).broken == ""


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """The hashes of texts, which order sets, differ between processes and must not matter.

    In all of these seeds except the first, the order of a set once made a difference.
    """
    path = os.pathsep.join(sys.path)
    traces = [
        subprocess.run(
            [sys.executable, "-c", _TRACES],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": path},
            cwd=TESTS,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for salt in ("1", "2")
    ]
    assert len(traces[0]) == len(SALTED)
    assert traces[0] == traces[1]


def test_a_history_is_the_same_whether_its_situations_are_asked_for_or_not() -> None:
    """To count situations is to look into the replicas, which note then which devices they know."""
    scenario = scenario_of(9721)
    assert run(scenario).trace == run(scenario, coverage=Coverage()).trace


def test_to_look_into_a_replica_whose_watches_are_broken_takes_no_time() -> None:
    steps = (
        Step(0.0, "faults", "weather", {"latency": 0.001, "lag": 0.001, "looking": 0.0005}),
        Step(0.0, "profiles", "create", {"spec": 0}),
        Step(5.0, "faults", "restart server", {"seconds": 2.0}),
    )
    world, looks = World(Scenario(1, 10.0, ("a",), steps)), list[tuple[int, float]]()

    def look() -> None:
        before = world.timeline.now
        current = len(list(engines(world)))
        looks.append((current, world.timeline.now - before))

    world.after(4.0, look)
    world.after(6.0, look)
    world.run()
    world.close()
    assert looks == [(1, 0.0), (0, 0.0)]


def test_many_seeds_that_meet_all_situations_and_break_nothing_end_well() -> None:
    said = f"{MEET_ALL} seeds, 0 failed; never met: 0 situations"
    assert concluded(_met(POSSIBLE), MEET_ALL, 0) == (said, 0)


@pytest.mark.parametrize("left_out", [POSSIBLE[0], POSSIBLE[-1]])
def test_many_seeds_that_leave_a_situation_out_fail_and_name_it(left_out: Pair) -> None:
    coverage = _met([pair for pair in POSSIBLE if pair != left_out])
    said, code = concluded(coverage, MEET_ALL, 0)
    assert code == 1
    assert said.endswith(f"so many seeds have to meet all: {': '.join(left_out)}")
    assert concluded(coverage, MEET_ALL - 1, 0)[1] == 0


def test_one_seed_that_breaks_an_invariant_fails_them_all() -> None:
    assert concluded(_met(POSSIBLE), MEET_ALL, 1)[1] == 1
    assert concluded(Coverage(), 2, 1)[1] == 1


def _met(pairs: Sequence[Pair]) -> Coverage:
    coverage = Coverage()
    coverage.met.update(pairs)
    return coverage


def test_a_scenario_is_the_same_when_it_was_written_and_read() -> None:
    scenario = scenario_of(11)
    written = orjson.dumps(scenario.plain())
    assert Scenario.parsed(orjson.loads(written)) == scenario
