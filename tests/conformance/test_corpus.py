"""Decisions recorded from the real kube-scheduler v1.36.3, case by case the same.

Each `data/SUITE.jsonl.gz` holds one JSON case a line: the objects of a random cluster as its API
server stored them, one pending pod, the profile that its schedulerName selects, and as `oracle`
what kube-scheduler decided. No controller ran. The chosen node is one of those with the highest
total, for kube-scheduler breaks ties at random. A case with neither node nor condition nor victims
waited at PreBind for a volume; its `nominatedNode` is the node it had chosen. Where there is a node
with a condition False, the condition is an earlier pod's of that name, whose binding failed late.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.check import cases
from conformance.comparing import decided, differences

DATA: Final = Path(__file__).parent / "data"


@cache
def corpus() -> dict[str, list[dict[str, Any]]]:
    """Return the cases by suite."""
    return {
        path.name.removesuffix(".jsonl.gz"): list(cases(path)) for path in sorted(DATA.iterdir())
    }


def cases_of(*suites: str) -> list[Any]:
    """Return a parameter for each case of these suites."""
    return [
        pytest.param(case, id=f"{suite}-{index}")
        for suite in suites
        for index, case in enumerate(corpus()[suite])
    ]


@pytest.mark.parametrize("case", cases_of(*corpus()))
def test_the_decision_is_that_of_kube_scheduler(case: dict[str, Any]) -> None:
    assert differences(case, decided(case)) == []


@pytest.mark.parametrize("case", cases_of("profiles", "extenders"))
def test_the_decision_by_what_convert_prints_is_that_of_kube_scheduler(
    case: dict[str, Any],
) -> None:
    assert differences(case, decided(case, converted=True)) == []


def test_every_suite_is_there_and_none_is_empty() -> None:
    assert len(corpus()) == 13
    assert all(len(recorded) > 80 for recorded in corpus().values())
