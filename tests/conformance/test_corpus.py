"""Mooring decides as recorded from the real kube-scheduler, case by case.

Each `data/VERSION/SUITE.jsonl.xz` has one JSON case per line: the objects of a random cluster as
its API server stored them, one pending pod, the profile of its schedulerName, and as `oracle` the
decision of kube-scheduler in this version. No controller ran. kube-scheduler breaks ties at random,
so the chosen node is one of the nodes with the highest total. A case without node, condition and
victims waited at PreBind for a volume; its `nominatedNode` is the chosen node. If there is a node
and also a condition False, the condition belongs to an earlier pod of the same name, whose binding
failed late.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.check import cases
from conformance.comparing import claims_written_otherwise, decided, differences
from conformance.scenes.suites import SUITES, suites_of

DATA: Final = Path(__file__).parent / "data"
VERSIONS: Final = ("1.36", "1.37", "1.38")


def recorded(*suites: str) -> list[Any]:
    """Return a parameter for each file of these suites, in every version."""
    return [
        pytest.param(path, id=f"{path.parent.name}-{suite}")
        for suite in suites
        for path in sorted(DATA.glob(f"*/{suite}.jsonl.xz"))
    ]


def differing(
    path: Path, *, converted: bool = False, kubernetes: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the id of each case that Mooring decides differently, with the differences.

    Mooring decides by the rules of `kubernetes`; the default is the version of the case.
    """
    for case in cases(path):
        case["kubernetes"] = kubernetes or case["kubernetes"]
        if found := differences(case, decided(case, converted=converted)):
            yield case["id"], found


@pytest.mark.parametrize("path", recorded(*SUITES))
def test_the_decisions_are_those_of_kube_scheduler(path: Path) -> None:
    assert dict(differing(path)) == {}


def test_the_rules_of_1_37_decide_many_cases_about_the_rules_of_1_38_otherwise() -> None:
    [path] = DATA.glob("*/rules138.jsonl.xz")
    assert len(dict(differing(path, kubernetes="1.37"))) >= 20


@pytest.mark.parametrize("path", recorded("profiles", "extenders"))
def test_the_decisions_by_what_convert_prints_are_those_of_kube_scheduler(path: Path) -> None:
    assert dict(differing(path, converted=True)) == {}


@pytest.mark.parametrize("path", recorded("dra", "claims"))
def test_the_claims_of_placed_pods_are_written_as_kube_scheduler_writes_them(path: Path) -> None:
    compared = {case["id"]: claims_written_otherwise(case) for case in cases(path)}
    assert sum(map(len, compared.values())) >= 10
    assert {id_: found for id_, found in compared.items() if any(found.values())} == {}


def test_every_suite_is_there_in_every_version_and_none_is_empty() -> None:
    expected = {(version, suite) for version in VERSIONS for suite in suites_of(version)}
    paths = [*DATA.glob("*/*")]
    assert {(p.parent.name, p.name.removesuffix(".jsonl.xz")) for p in paths} == expected
    for path in paths:
        versions = [case["kubernetes"] for case in cases(path)]
        assert len(versions) >= 50
        assert all(version.startswith(f"v{path.parent.name}.") for version in versions)
