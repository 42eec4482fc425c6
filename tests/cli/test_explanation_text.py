from typing import Any

from mooring.cli.explanation_text import (
    explanation,
    path_rows,
    pod_group_lines,
    score_table,
    zero_scores,
)


def decision(**fields: Any) -> dict[str, Any]:
    """Return a decision as JSON, with these fields."""
    return {"message": None, "nominatedNode": None, "victims": [], "rejections": {}, **fields}


def rejection(plugin: str, *reasons: str) -> dict[str, Any]:
    return {"plugin": plugin, "reasons": [*reasons], "resolvable": True}


def test_the_message_comes_first_then_the_nomination() -> None:
    found = explanation(
        decision(message="0/1 nodes", nominatedNode="n1", victims=["default/a", "default/b"])
    )
    assert [*found] == ["0/1 nodes", "will fit on n1 without default/a, default/b"]


def test_nodes_that_are_rejected_alike_are_one_line_the_most_frequent_first() -> None:
    few, many = rejection("A", "x", "y"), rejection("B", "z")
    rejections = {"n0": few, **{f"n{number}": many for number in range(1, 6)}}
    assert [*explanation(decision(rejections=rejections))] == [
        "n1, n2, n3 and 2 more: B: z",
        "n0: A: x, y",
    ]


def scored(**totals: int) -> dict[str, Any]:
    return {name: {"plugins": {}, "total": total} for name, total in totals.items()}


def test_nodes_of_equal_score_are_a_tie() -> None:
    scores = scored(n1=7, n2=7, n3=7, n4=5)
    assert [*explanation(decision(node="n2", scores=scores))] == [
        "a tie of 3: one of them is chosen at random"
    ]
    assert [*explanation(decision(node="n1", scores=scored(n1=7, n2=5)))] == []


def test_where_not_all_scores_are_kept_a_tie_may_be_larger() -> None:
    cut = decision(node="n1", scores=scored(n1=7, n2=7), truncated={"scores": 9})
    assert next(iter(explanation(cut))) == "a tie of at least 2: one of them is chosen at random"


def test_the_table_has_a_column_per_plugin_and_at_most_so_many_nodes() -> None:
    scores = {
        "n1": {"plugins": {"B": 2, "A": 1}, "total": 3},
        "n2": {"plugins": {"A": 1}, "total": 1},
        "n3": {"plugins": {"C": 1}, "total": 1},
    }
    head, rows, numbers = score_table(scores, most=2)
    assert (head, numbers) == (("NODE", "TOTAL", "A", "B"), ("TOTAL", "A", "B"))
    assert rows == [("n1", "3", "1", "2"), ("n2", "1", "1", "-")]


def test_plugins_that_give_nothing_to_all_nodes_are_named_below_the_table() -> None:
    scores = {
        "n1": {"plugins": {"Z": 0, "A": 1, "B": 0}, "total": 1},
        "n2": {"plugins": {"Z": 0, "A": 0}, "total": 0},
        "n3": {"plugins": {"Z": 5}, "total": 5},
    }
    assert score_table(scores, most=2)[0] == ("NODE", "TOTAL", "A")
    assert [*zero_scores(scores, most=2)] == ["0 for all of these nodes: B, Z"]
    assert [*zero_scores(scores)] == ["0 for all of these nodes: B"]
    assert [*zero_scores({"n1": {"plugins": {"A": 1}, "total": 1}})] == []


def test_the_path_of_a_victim_says_why_it_was_preempted() -> None:
    at = {"time": "2026-01-01T00:00:00Z", "count": 1}
    step = {"step": "preempted", "node": "n1", "by": "a/big", **at}
    why = "queue a took back what queue b had borrowed"
    rows = path_rows({"steps": [step, {**step, "cause": why}], "leftOut": 0})
    text = "preempted on n1 by a/big"
    assert [shown for _, shown in rows] == [text, f"{text}: {why}"]


def test_a_group_that_preempts_says_which_pods_must_leave() -> None:
    group = {"podGroup": "a/train", "source": "podgroups", "phase": "Scheduling", "message": ""}
    numbers = {"members": {}, "minimum": 2, "missing": 0, "priority": 0}
    about = {"topology": None, "decision": None, "victims": ["b/1", "b/2"]}
    lines = [*pod_group_lines({**group, **numbers, **about})]
    assert "  its members will be tried once b/1, b/2 have left" in lines
