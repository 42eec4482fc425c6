"""Histories that once broke an invariant, kept as tests.

`regressions.jsonl` has one JSON line for each: the error and the scenario, which stays the same
when actors draw other steps. `python -m simulation SEED --keep TEXT` adds a line.
"""

from pathlib import Path
from typing import Final, NamedTuple

import orjson

from simulation.scenario import Scenario

FILE: Final = Path(__file__).with_suffix(".jsonl")


class Regression(NamedTuple):
    """A scenario, and the error that it once had."""

    about: str
    scenario: Scenario


def regressions() -> list[Regression]:
    raws = map(orjson.loads, FILE.read_text().splitlines())
    return [Regression(raw["about"], Scenario.parsed(raw["scenario"])) for raw in raws]


def keep(about: str, scenario: Scenario) -> None:
    raw = {"about": about, "scenario": scenario.plain()}
    with FILE.open("ab") as file:
        file.write(orjson.dumps(raw) + b"\n")
