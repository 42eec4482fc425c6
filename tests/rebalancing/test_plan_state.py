"""The data that the searches of one plan share."""

from mooring.model.pod import Pod, parse_pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move, Step
from mooring.testing.builders import node, pod
from replanning import Replanning, owned


def running(replanning: Replanning) -> list[Pod]:
    return [placed.pod for placed in replanning.state.pods]


def test_a_plan_moves_a_pod_once_and_no_more_pods_than_allowed() -> None:
    replanning = Replanning(
        node("a"),
        *(owned(f"w{n}", node="a") for n in range(3)),
        rebalancing={"limits": {"movesPerPlan": 2}},
    )
    planning = replanning.planning()
    first, second, _ = running(replanning)
    assert planning.may_move(first)
    planning.accept(Step(Goal.SPREAD, (Move(first, "a", "b"),), "because", 10))
    assert not planning.may_move(first)
    assert (planning.moves_left, planning.done) == (1, False)
    planning.accept(Step(Goal.SPREAD, (Move(second, "a", "b"),), "because", 10))
    assert planning.done


def test_each_pod_is_refused_for_one_reason_and_not_if_it_is_moved() -> None:
    replanning = Replanning(node("a"), *(owned(f"w{n}", node="a") for n in range(4)))
    planning, pods = replanning.planning(), running(replanning)
    for each, why in zip(pods, ("x", "y", "y", "x"), strict=True):
        planning.refuse(each, why)
        planning.refuse(each, "z")
    assert planning.refused == {"x": 2, "y": 2}
    planning.accept(Step(Goal.SPREAD, (Move(pods[0], "a", "b"),), "because", 10))
    assert [*planning.refused.items()] == [("y", 2), ("x", 1)]


def test_a_pod_that_waits_keeps_its_place_in_the_trial() -> None:
    replanning = Replanning(node("a"))
    planning, waits = replanning.planning(), parse_pod(pod("new"))
    with planning.undone():
        planning.place(waits, "a")
        assert replanning.cluster.is_placed(waits)
    assert planning.places == {waits.uid: (waits, "a")}
    assert not replanning.cluster.is_placed(waits)
