"""The steps of a plan in execution: each is checked again before its moves."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.kube.client import ApiClient
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move
from mooring.rebalancing.record import whole
from mooring.rebalancing.running_step import PassedOver, RunningStep
from mooring.rebalancing.under_way import Result, UnderWay, place_uid
from mooring.runtime.queued_pod import SubQueue
from mooring.testing.builders import node, pod, uid_of
from rebalancing_stage import OWNER, READY, Stage, running
from storage_builders import pv, pvc

Raw = dict[str, Any]


def with_devices(*names: str, on_b: Sequence[str]) -> list[Raw]:
    """Return pods on node a that each have a device by a template's claim, and devices of b."""
    pods = [
        running(
            name,
            "a",
            spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
            status={
                **READY,
                "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
            },
        )
        for name in names
    ]
    claims = [
        device_claim(
            f"{name}-gpu",
            owner=name,
            allocation=allocated(f"d-{name}", node="a"),
            reserved_for=[name],
        )
        for name in names
    ]
    slices = [
        resource_slice("of-a", [f"d-{name}" for name in names], node="a"),
        resource_slice("of-b", on_b, node="b"),
    ]
    return [device_class(), *slices, *claims, *pods]


@pytest.fixture
def stage(client: ApiClient) -> Stage:
    return Stage(client, running("web-1", "a"), running("big", "b", cpu="3"))


def why_not(
    stage: Stage, *names: str, goal: Goal = Goal.PACK, resting: Collection[str] = ()
) -> str | None:
    """Return why these pods may not be moved to node b together; None if they may."""
    return of(stage, *(stage.move(name, "b") for name in names), goal=goal, resting=resting)


def of(
    stage: Stage, *moves: Move, goal: Goal = Goal.PACK, resting: Collection[str] = ()
) -> str | None:
    """Return why these moves may not be made together; None if they may."""
    step = replace(stage.step(*moves), goal=goal)
    return in_vain(stage.running(step), count=len(moves), resting=resting)


def in_vain(step: RunningStep, *, count: int = 1, resting: Collection[str] = ()) -> str | None:
    """Return why the step's next `count` moves may not be made; None if they may."""
    moves = step.step.moves[step.begun :][:count]
    try:
        step.check_unchanged(moves)
        why = step.why_not(moves, resting)
    except PassedOver as passed_over:
        why = passed_over.why
    return whole(why) if why is not None else None


def test_a_move_that_is_as_it_was_planned_is_possible(stage: Stage) -> None:
    assert why_not(stage, "web-1") is None


def test_a_pod_that_fits_nowhere_but_on_its_node_stays(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    stage.show(running("other", "b"))
    assert of(stage, move) == "pod default/web-1 does not fit on node b any more"


def test_a_place_that_is_kept_for_another_move_is_taken(stage: Stage) -> None:
    stage.show(running("web-2", "a"))
    stage.keep("web-2", "b")
    assert why_not(stage, "web-1") is not None


def test_moves_that_belong_together_have_room_together(stage: Stage) -> None:
    stage.show(running("web-2", "a"))
    assert why_not(stage, "web-1", "web-2") is not None
    swapped = [stage.move("big", "a"), stage.move("web-1", "b"), stage.move("web-2", "b")]
    assert of(stage, *swapped) is None


def test_a_claim_that_was_made_for_the_pod_is_made_again_for_its_replacement(
    client: ApiClient,
) -> None:
    stage = Stage(client, *with_devices("web-1", on_b=["g1"]))
    assert why_not(stage, "web-1") is None


def test_moves_that_belong_together_have_devices_together(client: ApiClient) -> None:
    stage = Stage(client, *with_devices("web-1", "web-2", on_b=["g1"]))
    assert why_not(stage, "web-1", "web-2") == ("pod default/web-2 does not fit on node b any more")
    stage = Stage(client, *with_devices("web-1", "web-2", on_b=["g1", "g2"]))
    assert why_not(stage, "web-1", "web-2") is None


def test_an_ephemeral_volume_is_made_again_for_the_replacement(client: ApiClient) -> None:
    claim = pvc("web-1-scratch", volume="disk")
    claim["metadata"]["ownerReferences"] = [
        {"kind": "Pod", "name": "web-1", "uid": uid_of("web-1"), "controller": True}
    ]
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    stage = Stage(
        client,
        pv("disk", claim="default/web-1-scratch"),
        claim,
        running("web-1", "a", spec={"volumes": volumes}),
    )
    assert why_not(stage, "web-1") is None


def test_a_pod_that_has_gone_is_not_moved_nor_one_that_has_its_name(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    stage.gone("web-1")
    again = running("web-1", "a")
    again["metadata"]["uid"] = "the second"
    stage.show(again)
    assert of(stage, move) == "pod default/web-1 has gone"


def test_a_pod_that_terminates_is_not_moved(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    stage.show(running("web-1", "a", terminating=True))
    assert of(stage, move) == "pod default/web-1 has gone"


def test_a_pod_with_another_annotation_is_looked_at_again(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    stage.show(running("web-1", "a", annotations={"note": "new"}))
    assert of(stage, move) == "pod default/web-1 has changed"


def test_a_target_that_has_gone_is_none(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    stage.state.delete(Kind.NODE, "b")
    assert of(stage, move) == "node b has gone"


def test_a_target_that_is_cordoned_is_none(stage: Stage) -> None:
    stage.state.put(Kind.NODE, "b", parse_node(node("b", unschedulable=True)))
    assert why_not(stage, "web-1") is not None


def test_a_pod_that_another_version_of_the_profile_takes_is_not_moved(stage: Stage) -> None:
    step = stage.running(stage.step(stage.move("web-1", "b")))
    stage.put_profile(mode="Plan")
    assert in_vain(step) == "pod default/web-1 has another profile"


def test_a_pod_that_its_owner_wants_to_stay_is_not_moved(stage: Stage) -> None:
    stage.show(running("web-1", "a", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    assert why_not(stage, "web-1") == (
        "pod default/web-1 has an annotation against being disrupted"
    )


def test_a_pod_that_rests_is_not_moved(stage: Stage) -> None:
    why = why_not(stage, "web-1", resting={uid_of("web-1")})
    assert why == "pod default/web-1 was moved, or could not be, a short time ago"


def test_a_violation_that_has_been_mended_moves_nobody(stage: Stage) -> None:
    stage.show(running("ssd", "a", node_selector={"disk": "ssd"}))
    stage.state.put(Kind.NODE, "b", parse_node(node("b", labels={"disk": "ssd"})))
    move = stage.move("ssd", "b")
    assert of(stage, move, goal=Goal.VIOLATIONS) is None
    stage.state.put(Kind.NODE, "a", parse_node(node("a", labels={"disk": "ssd"})))
    assert of(stage, move, goal=Goal.VIOLATIONS) == (
        "pod default/ssd gains nothing on node b any more"
    )


def test_a_gain_of_score_that_has_gone_moves_nobody(stage: Stage) -> None:
    stage.show(running("full", "a", cpu="3"))
    stage.gone("big")
    move = stage.move("web-1", "b")
    assert of(stage, move, goal=Goal.SPREAD) is None
    stage.show(running("big", "b", cpu="3"))
    assert of(stage, move, goal=Goal.SPREAD) is not None


def test_room_is_made_only_while_somebody_waits_for_it(stage: Stage) -> None:
    move = stage.move("web-1", "b")
    waiting = stage.come("large", cpu="4", owner=None)
    step = stage.running(stage.room(waiting, "a", move))
    assert in_vain(step) is None
    stage.parts.pod_enqueuer.gone(waiting.uid)
    assert in_vain(step) == "what it makes room for waits no more"


def begin(stage: Stage, step: RunningStep) -> UnderWay:
    under_way = stage.keep(step.step.moves[step.begun].pod.name, "b", step.step)
    step.begun += 1
    return under_way


def making_room(stage: Stage) -> RunningStep:
    """Return a step that empties node a for a pod that needs the whole node."""
    stage.gone("big")
    stage.show(running("web-2", "a"))
    waiting = stage.come("large", cpu="4", owner=None)
    moves = stage.move("web-1", "b"), stage.move("web-2", "b")
    return stage.running(stage.room(waiting, "a", *moves))


def test_no_room_is_made_if_the_pod_would_not_fit_even_then(stage: Stage) -> None:
    step = making_room(stage)
    assert in_vain(step) is None
    stage.show(running("small", "a", cpu="100m"))
    assert in_vain(step) == ("pod default/large does not fit on node a once the moves are made")


def test_no_room_is_made_if_a_later_move_has_become_impossible(stage: Stage) -> None:
    step = making_room(stage)
    stage.show(running("there", "b", cpu="2500m"))
    assert in_vain(step) == "pod default/web-2 does not fit on node b any more"


def test_no_room_is_made_for_a_pod_that_fits_without_it(stage: Stage) -> None:
    step = making_room(stage)
    for name in ("web-1", "web-2"):
        stage.show(running(name, "a", cpu="0"))
    moves = stage.move("web-1", "b"), stage.move("web-2", "b")
    step = stage.running(replace(step.step, moves=moves))
    assert in_vain(step) == "what it is for is reached without it"


def test_moves_that_are_under_way_count_as_made(stage: Stage) -> None:
    step = making_room(stage)
    step.hold_room()
    expected = begin(stage, step)
    assert in_vain(step) is None
    stage.gone("web-1")
    assert in_vain(step) is None
    stage.come("web-1-new")
    assert expected.replacement is not None
    assert in_vain(step) is None


def test_no_pod_leaves_a_node_that_will_not_be_empty(stage: Stage) -> None:
    stage.gone("big")
    stage.show(running("web-2", "a"))
    moves = (stage.move("web-1", "b"), stage.move("web-2", "b"))
    step = stage.running(stage.emptying("a", *moves))
    assert in_vain(step) is None
    stage.show(running("agent", "a", owner={**OWNER, "kind": "DaemonSet", "uid": "ds"}))
    assert in_vain(step) is None, "it belongs to the node"
    stage.show(running("new", "a"))
    assert in_vain(step) == "node a is not empty once the moves are made"


def test_no_pod_leaves_a_node_to_which_another_one_comes(stage: Stage) -> None:
    step = stage.running(stage.emptying("a", stage.move("web-1", "b")))
    stage.state.nominate(stage.come("preemptor", owner=None), "a")
    assert in_vain(step) == "node a is not empty once the moves are made"


def test_a_group_is_moved_if_the_node_of_one_member_violates_what_it_requires(stage: Stage) -> None:
    stage.gone("big")
    stage.show(running("ssd", "a", node_selector={"disk": "ssd"}))
    stage.state.put(Kind.NODE, "b", parse_node(node("b", labels={"disk": "ssd"})))
    moves = [stage.move("web-1", "b"), stage.move("ssd", "b")]
    planned = replace(stage.step(*moves, group="default/gang"), goal=Goal.VIOLATIONS)
    step = stage.running(planned)
    assert in_vain(step, count=2) is None
    stage.state.put(Kind.NODE, "a", parse_node(node("a", labels={"disk": "ssd"})))
    assert in_vain(step, count=2) == "pod default/web-1 gains nothing on node b any more"


def test_a_pod_is_tried_again_when_it_gets_the_room_that_was_made_for_it(stage: Stage) -> None:
    waiting = stage.pending(pod("large", cpu="3"))
    queue = stage.scheduler.queue
    popped = queue.pop(stage.clock())
    assert popped is not None
    queue.add_unschedulable(popped, frozenset(("NodeResourcesFit",)), stage.clock())
    step = stage.running(stage.room(waiting, "a", stage.move("web-1", "b")))
    step.hold_room()
    assert not queue.run_hints(stage.clock())
    step.give_room(to_pods=True)
    while queue.run_hints(stage.clock()):
        pass
    assert popped.queue is not SubQueue.UNSCHEDULABLE
    assert stage.nominated() == {waiting.uid: "a"}


def test_of_equal_pods_the_one_that_gets_the_room_is_tried_and_not_another_one(
    stage: Stage,
) -> None:
    queue = stage.scheduler.queue
    pods = [stage.pending(pod(name, cpu="3")) for name in ("first", "second")]
    popped = [queue.pop(stage.clock()) for _ in pods]
    for each in popped:
        assert each is not None
        queue.add_unschedulable(each, frozenset(("NodeResourcesFit",)), stage.clock())
    step = stage.running(stage.room(pods[1], "a", stage.move("web-1", "b")))
    step.hold_room()
    step.give_room(to_pods=True)
    while queue.run_hints(stage.clock()):
        pass
    assert popped[1] is not None
    assert popped[1].queue is not SubQueue.UNSCHEDULABLE


def test_no_room_is_kept_on_a_node_to_which_a_pod_of_the_step_is_yet_to_come(stage: Stage) -> None:
    waiting = stage.pending(pod("large", cpu="3"))
    step = stage.running(stage.room(waiting, "b", stage.move("web-1", "b")))
    step.hold_room()
    assert stage.nominated() == {}
    under_way = begin(stage, step)
    step.hold_room()
    assert stage.nominated() == {place_uid(uid_of("web-1")): "b"}
    under_way.end(Result.MOVED)
    stage.expected.forget(under_way)
    step.hold_room()
    assert [*stage.nominated().values()] == ["b"]
