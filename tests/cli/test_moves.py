"""The command `mooring rebalance` prints plans as tables, lines and JSON."""

import json
from dataclasses import replace

import pytest

from mooring.cli.moves import print_plans, print_plans_as_json, print_wanted
from mooring.model.pod import parse_pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.report import PlanReport
from mooring.simulate.offline_plan import Wanted, WantedPlan
from mooring.testing.builders import pod
from planning import emptying, making_room, plan, reported, spread_step

PLAN = plan(emptying("n1", "n2", "a", "b"), spread_step("c", "n2", "n1"), has_a_budget=2)


def printed(
    capsys: pytest.CaptureFixture[str], *reports: PlanReport, output: str = "table"
) -> list[str]:
    print_plans(reports, output)
    return capsys.readouterr().out.splitlines()


def test_moves_are_grouped_by_step_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, reported(PLAN)) == [
        "profile packed (Pack): 3 moves in 2 steps",
        "",
        "STEP   POD      FROM   TO   GAIN   WHY",
        "   1   shop/a   n1     n2   1000   n1 is empty afterwards",
        "       shop/b   n1     n2",
        "   2   shop/c   n2     n1     12   its score is 12 higher there",
        "",
        "4 running pods of the profile",
        "1 node emptied: n1",
        "2 pods would gain, and are not moved:",
        "  2: the pod has a budget",
    ]


def test_a_plan_without_moves_says_so_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, reported(plan(examined=4), Goal.VIOLATIONS, Goal.PACK))
    assert lines == [
        "profile packed (Violations, Pack): nothing to move",
        "4 running pods of the profile",
    ]


def test_a_plan_whose_decisions_were_spent_says_that_not_all_was_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, reported(plan(examined=3, spent=True), Goal.SPREAD))
    assert lines[0] == "profile packed (Spread): no move was found"
    assert " ".join(lines[2:]).startswith("not all was looked at, at 3 pods only, because")
    lines = printed(capsys, reported(plan(spread_step("a", "n1", "n2"), spent=True)))
    assert lines[0] == "profile packed (Pack): 1 move in 1 step"
    assert any(line.startswith("not all was looked at, because") for line in lines)


def test_a_plan_that_is_as_long_as_it_may_be_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    step = spread_step("a", "n1", "n2")
    said = "the plan is as long as limits.movesPerPlan allows; there may be more"
    assert said in printed(capsys, reported(plan(step), most_moves=1))
    assert said not in printed(capsys, reported(plan(step), most_moves=2))


def test_the_pods_that_fit_afterwards_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    step = making_room("a", "n1", "n2", parse_pod(pod("big", namespace="ml")))
    lines = printed(capsys, reported(plan(step)))
    assert "1 pending pod that fits afterwards: ml/big" in lines
    assert lines[3].endswith("ml/big fits")


def test_a_wide_table_has_owners_goals_and_the_nodes_before_and_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, reported(PLAN), output="wide")
    assert lines[2].split() == ["STEP", "POD", "OWNER", "FROM", "TO", "GOAL", "GAIN", "WHY"]
    assert lines[3].split()[:6] == ["1", "shop/a", "ReplicaSet", "n1", "n2", "Pack"]
    at = [line.split() for line in lines].index(["NODE", "PODS", "CPU", "MEMORY"])
    assert lines[at + 1].split("   ")[0] == "n1"
    assert lines[at + 1].split("   ")[-2:] == ["50% -> 50%", "25% -> 25%"]


@pytest.mark.parametrize("output", ["table", "wide"])
def test_the_longest_names_stand_whole_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    for module in ("console", "moves"):
        monkeypatch.setattr(f"mooring.cli.{module}.terminal_width", lambda: 80)
    source, target, name = "n" * 63, "o" * 63, "p" * 63
    waiting = parse_pod(pod("w" * 63, namespace="x" * 63))
    steps = (
        emptying(source, target, name, "q", namespace="s" * 63),
        making_room("a", "n1", "n2", waiting),
    )
    report = reported(plan(*steps))
    lines = printed(capsys, report, output=output)
    words = [word for line in lines for word in line.split()]
    for whole in (source, target, f"{'s' * 63}/{name}", waiting.key):
        assert whole in words
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    if output == "table":
        assert lines[2:8] == [
            "step 1, gain 1000:",
            f"  {source} is empty",
            "  afterwards",
            f"  {'s' * 63}/{name}",
            f"    from {source}",
            f"    to   {target}",
        ]


def test_where_names_leave_too_little_space_for_reasons_these_stand_above_the_moves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("console", "moves"):
        monkeypatch.setattr(f"mooring.cli.{module}.terminal_width", lambda: 80)
    report = reported(plan(emptying("node-a", "node-b", "web-7c9d8f6b5d-fbxgw", "cart-1")))
    assert printed(capsys, report)[2:5] == [
        "step 1, gain 1000: node-a is empty afterwards",
        "  shop/web-7c9d8f6b5d-fbxgw   node-a -> node-b",
        "  shop/cart-1                 node-a -> node-b",
    ]


def test_nothing_that_a_plugin_says_controls_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = replace(plan(spread_step("c", "n2", "n1")), refused={"\x1b[2Jgone": 1})
    assert "  1: the pod \\x1b[2Jgone" in printed(capsys, reported(evil))


def test_json_has_every_plan_and_the_answer_about_the_pod(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = WantedPlan(Wanted("big", "ml"), "pod ml/big fits after 3 moves", fits=True)
    print_plans_as_json([reported(PLAN)], found)
    document = json.loads(capsys.readouterr().out)
    assert document["for"] == {
        "pod": "ml/big",
        "fits": True,
        "message": "pod ml/big fits after 3 moves",
    }
    (shown,) = document["plans"]
    assert (shown["profile"], shown["moves"], len(shown["steps"])) == ("packed", 3, 2)


def test_the_answer_about_a_pod_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_wanted(WantedPlan(Wanted("big", "ml"), "no moves: 0/3 nodes. Full.", fits=False))
    assert capsys.readouterr().out == "no moves: 0/3 nodes. Full.\n"
