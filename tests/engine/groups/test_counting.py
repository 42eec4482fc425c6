"""Members that are counted: where they are placed, and what they lack."""

from typing import Any

from deciding import Deciding
from group_searching import answered, by_name, placed
from mooring.testing.builders import node, pod

Raw = dict[str, Any]


THREE_NODES = (node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"))


def test_a_mixed_group_fits_where_greedy_order_fails() -> None:
    deciding = Deciding(node("a", cpu="8"), node("b", cpu="7"))
    members = [pod(f"w{i}", cpu="1") for i in range(8)] + [pod("big", cpu="7")]
    assert len(by_name(deciding, placed(deciding, members))) == 9


def test_members_are_placed_only_where_extenders_passed_them() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1") for i in range(3)]
    answers = answered({"w0": ["a"], "w1": ["b"], "w2": ["b"]})
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert found == {"w0": "a", "w1": "b", "w2": "b"}


def test_a_node_that_extenders_prefer_by_far_is_filled() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1") for i in range(4)]
    scores = {f"w{i}": [0, 10_000, 0] for i in range(4)}
    answers = answered({name: ["a", "b", "c"] for name in scores}, scores)
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert set(found.values()) == {"b"}
    without = by_name(deciding, placed(deciding, members))
    assert len(set(without.values())) == 3


def test_what_is_nominated_to_a_node_is_not_free() -> None:
    deciding = Deciding(node("a", cpu="2"))
    deciding.nominate(pod("first", cpu="1"), "a")
    assert not placed(deciding, [pod("x", cpu="1"), pod("y", cpu="1")]).complete


def test_the_cause_is_what_all_members_lack_together() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"))
    assignment = placed(deciding, [pod(f"w{i}", cpu="2500m") for i in range(8)])
    assert assignment.impossible
    assert assignment.cause == "needs 12 CPUs more"
    assert len(assignment.rows) == 2


def test_the_cause_of_a_group_that_fits_in_total_is_that_no_node_has_enough() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"))
    assignment = placed(deciding, [pod(f"w{i}", cpu="2500m") for i in range(3)])
    assert assignment.cause == "no node has enough left for 1 of its members"
