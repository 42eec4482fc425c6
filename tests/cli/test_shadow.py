import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.running import Running, serving
from mooring.cli.shadow import report, shadow
from mooring.policy.profile_status import COMPARED

STATUS = {
    "since": "2026-11-22T03:00:00Z",
    "compared": 3,
    **dict.fromkeys(COMPARED, 0),
    "same": 2,
    "different": 1,
    "notCompared": 4,
    "boundUtilizationPercent": 41,
    "shadowUtilizationPercent": 52,
    "boundBalancePercent": 90,
    "shadowBalancePercent": 80,
}


def record(name: str, result: str, profile: str = "packed", **fields: Any) -> dict[str, Any]:
    return {
        "time": "2026-11-22T03:00:00Z",
        "pod": f"shop/{name}",
        "profile": profile,
        "result": result,
        "node": "n2",
        "boundNode": "n1",
        "scores": {
            "n1": {"plugins": {"A": 3}, "total": 3},
            "n2": {"plugins": {"A": 9}, "total": 9},
        },
        "message": None,
        **fields,
    }


PODS = [
    record("a", "different"),
    record("b", "same", node="n1"),
    record("c", "rejected", message="TaintToleration: no", scores={}),
    record("d", "pending", boundNode=None),
    record("e", "different", profile="other"),
]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    def known(namespace: str) -> Mapping[str, Any]:
        pods = PODS if namespace in ("", "shop") else []
        return {"profiles": {"packed": STATUS, "other": {**STATUS, "compared": 0}}, "pods": pods}

    async with serving(tmp_path, shadow=known) as running:
        yield running


async def test_the_report_shows_both_nodes_with_the_scores_of_the_profile(running: Running) -> None:
    result = await running.answer(report, "--profile=packed")
    assert result.exit_code == 0
    summary, head, *rows = result.stdout.splitlines()
    assert summary == (
        "packed: 3 pods compared since 2026-11-22T03:00:00Z: 2 same, 1 different; 4 not compared; "
        "utilization of nodes 41 % as bound, 52 % by this profile; "
        "balance of nodes 90 % as bound, 80 % by this profile"
    )
    assert head.split("  ")[0] == "POD"
    assert [row.split(maxsplit=6) for row in rows] == [
        ["shop/a", "different", "n1", "3", "n2", "9"],
        ["shop/c", "rejected", "n1", "-", "n2", "-", "TaintToleration: no"],
        ["shop/d", "pending", "-", "-", "n2", "9", "not bound for long"],
    ]


async def test_with_all_the_pods_whose_node_is_as_good_are_shown_too(running: Running) -> None:
    few = await running.answer(report, "-o", "json")
    every = await running.answer(report, "-o", "json", "--all")
    assert [pod["pod"] for pod in json.loads(few.stdout)["pods"]] == [
        "shop/a",
        "shop/c",
        "shop/d",
        "shop/e",
    ]
    assert len(json.loads(every.stdout)["pods"]) == len(PODS)


async def test_the_namespace_is_asked_for(running: Running) -> None:
    result = await running.answer(report, "-n", "empty")
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["packed", "other"]


async def test_a_profile_that_is_not_in_shadow_mode_is_bad_input(running: Running) -> None:
    result = await running.answer(report, "--profile=nope")
    assert result.exit_code == 2
    assert "nope is not in force in mode Shadow; is: packed, other" in result.stderr


async def test_without_a_shadow_profile_a_note_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        result = await running.answer(report)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no profile with mode Shadow is in force" in result.stderr


def test_the_group_has_the_command() -> None:
    assert list(shadow.commands) == ["report"]
