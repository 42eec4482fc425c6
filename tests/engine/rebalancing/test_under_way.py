"""A move that has begun: what may replace its pod, and what is left alone when it has ended."""

import pytest

from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.under_way import Result, UnderWay
from mooring.model.pod import parse_pod
from mooring.policy.rebalancing import Goal
from mooring.testing.builders import uid_of
from rebalancing_stage import OWNER, running


@pytest.fixture
def under_way() -> UnderWay:
    move = Move(parse_pod(running("web-1", "a")), "a", "b")
    return UnderWay(move, Step(Goal.PACK, (move,), "node a is emptied", 1000), 0.0)


def test_the_replacement_of_a_pod_that_was_moved_is_left_alone(under_way: UnderWay) -> None:
    under_way.replacement = parse_pod(running("web-2", "b"))
    under_way.end(Result.MOVED)
    assert under_way.rests == uid_of("web-2")


@pytest.mark.parametrize("result", [Result.ELSEWHERE, Result.LATE, Result.GONE])
def test_all_pods_of_the_controller_are_left_alone_after_another_end(
    under_way: UnderWay, result: Result
) -> None:
    under_way.replacement = parse_pod(running("web-2", "a"))
    under_way.end(result)
    assert under_way.rests == OWNER["uid"]


def test_one_move_has_one_replacement(under_way: UnderWay) -> None:
    new, leaving = parse_pod(running("web-2", "b")), under_way.move.pod
    assert (under_way.is_for(new), under_way.is_for(leaving)) == (True, False)
    under_way.replacement = new
    assert not under_way.is_for(parse_pod(running("web-3", "b")))
