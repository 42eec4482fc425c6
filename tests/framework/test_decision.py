import dataclasses

import pytest

from mooring.framework.decision import Decision, NodeScore, PodRef, Rejection


def unplaced() -> Decision:
    return Decision(
        pod=PodRef.of_key("shop/cart-0"),
        profile="mooring",
        node=None,
        nominated_node=None,
        victims=(),
        scores=None,
        rejections={
            "n1": Rejection("NodePorts", ("node(s) didn't have free ports",), resolvable=True)
        },
        message="0/1 nodes are available: 1 node(s) didn't have free ports.",
    )


def test_a_decision_cannot_be_changed_after_the_fact() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        unplaced().node = "n1"  # type: ignore[misc]  # the assignment must fail


def test_equal_outcomes_are_equal_so_that_two_runs_can_be_compared() -> None:
    assert unplaced() == unplaced()
    assert unplaced() != dataclasses.replace(unplaced(), node="n1")


def test_values_carry_no_dict_so_that_many_can_be_kept() -> None:
    for value in (unplaced(), unplaced().pod, NodeScore({"ImageLocality": 3}, 3)):
        assert not hasattr(value, "__dict__")
