"""Decisions recorded from the real kube-scheduler, case by case the same.

Each `data/VERSION/SUITE.jsonl.xz` holds one JSON case a line: the objects of a random cluster as
its API server stored them, one pending pod, the profile that its schedulerName selects, and as
`oracle` what kube-scheduler of that version decided. No controller ran. The chosen node is one of
those with the highest total, for kube-scheduler breaks ties at random. A case with neither node nor
condition nor victims waited at PreBind for a volume; its `nominatedNode` is the node it had chosen.
Where there is a node with a condition False, the condition is an earlier pod's of that name, whose
binding failed late.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from conformance.check import lines
from conformance.comparing import claims_written_otherwise, decided, differences
from conformance.scenes.suites import SUITES, suites_of

DATA: Final = Path(__file__).parent / "data"
VERSIONS: Final = ("1.36", "1.37")


@cache
def corpus() -> dict[tuple[str, str], list[bytes]]:
    """Return the cases, a line of JSON each, by version of Kubernetes and suite.

    Each process of a run collects all of them, and decides a part: what it decides it parses.
    """
    return {
        (path.parent.name, path.name.removesuffix(".jsonl.xz")): list(lines(path))
        for path in sorted(DATA.glob("*/*"))
    }


def cases_of(*suites: str) -> list[Any]:
    """Return a parameter for each case of these suites, whatever the version."""
    return [
        pytest.param(line, id=f"{version}-{suite}-{index}")
        for (version, suite), recorded in corpus().items()
        for index, line in enumerate(recorded)
        if suite in suites
    ]


@pytest.fixture
def case(line: bytes) -> dict[str, Any]:
    """Return the case that the line holds."""
    parsed: dict[str, Any] = orjson.loads(line)
    return parsed


@pytest.mark.parametrize("line", cases_of(*SUITES))
def test_the_decision_is_that_of_kube_scheduler(case: dict[str, Any]) -> None:
    assert differences(case, decided(case)) == []


@pytest.mark.parametrize("line", cases_of("profiles", "extenders"))
def test_the_decision_by_what_convert_prints_is_that_of_kube_scheduler(
    case: dict[str, Any],
) -> None:
    assert differences(case, decided(case, converted=True)) == []


@pytest.mark.parametrize("line", cases_of("dra", "claims"))
def test_the_claims_of_a_placed_pod_are_written_as_kube_scheduler_writes_them(
    case: dict[str, Any],
) -> None:
    assert not any(claims_written_otherwise(case).values())


@pytest.mark.parametrize("suite", ["dra", "claims"])
@pytest.mark.parametrize("version", VERSIONS)
def test_many_recorded_pods_get_devices(version: str, suite: str) -> None:
    found = [claims_written_otherwise(orjson.loads(line)) for line in corpus()[version, suite]]
    assert sum(map(len, found)) >= 10


def test_every_suite_is_there_in_every_version_and_none_is_empty() -> None:
    expected = {(version, suite) for version in VERSIONS for suite in suites_of(version)}
    assert set(corpus()) == expected
    assert all(len(recorded) >= 50 for recorded in corpus().values())


def test_every_case_is_recorded_from_the_version_that_its_folder_names() -> None:
    found = {
        (version, orjson.loads(line)["kubernetes"])
        for (version, _), recorded in corpus().items()
        for line in recorded
    }
    assert all(kubernetes.startswith(f"v{version}.") for version, kubernetes in found)
