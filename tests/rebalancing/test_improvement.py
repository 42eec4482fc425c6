"""The goals Violations and Spread: pods that would be placed elsewhere today."""

from typing import Any

import pytest

from mooring.model.node import ZONE
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.improvement import ComparedNodes, alike_pods, compared
from mooring.testing.builders import node, pod, service, uid_of
from pod_terms import spread_evenly
from replanning import Replanning, moves, owned

ON_SSD = {"disk": "ssd"}
SPREAD = {"goals": ["Spread"]}


def near(**labels: str) -> dict[str, Any]:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}


def required(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def found(replanning: Replanning) -> ComparedNodes | None:
    """Return the result of `compared` for the pod "web"."""
    placed = replanning.cluster.pod(uid_of("web"))
    assert placed is not None
    return compared(replanning.planning(), placed.pod)


def test_a_pod_on_the_best_node_is_not_compared() -> None:
    assert found(Replanning(node("a"), owned("web", node="a"))) is None


def test_both_nodes_are_scored_without_the_pod() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("web", cpu="2", memory="1Gi", node="a"),
        owned("other", cpu="1", memory="1Gi", node="a"),
    )
    better = found(replanning)
    assert better is not None
    assert (better.move.source, better.move.target, better.violation) == ("a", "b", "")
    assert better.gain == better.scores[0] - better.scores[1] > 0


def test_a_node_that_rejects_its_pod_is_a_violation_with_or_without_another_node() -> None:
    pods = owned("web", node="a", node_selector={"disk": "ssd"})
    why = "NodeAffinity: node(s) didn't match Pod's node affinity/selector"
    nowhere = found(Replanning(node("a"), node("b"), pods))
    assert nowhere is not None
    assert (nowhere.move.target, nowhere.violation) == ("", why)
    for count in (1, 2):
        ssd = (node(f"s{n}", labels={"disk": "ssd"}) for n in range(count))
        elsewhere = found(Replanning(node("a"), *ssd, pods))
        assert elsewhere is not None
        assert elsewhere.move.target.startswith("s")
        assert (elsewhere.violation, elsewhere.gain) == (why, 0)


def test_a_pod_on_a_node_that_is_drained_is_not_compared() -> None:
    pods = owned("web", node="a", node_selector={"disk": "ssd"})
    ssd = node("b", labels={"disk": "ssd"})
    assert found(Replanning(node("a", unschedulable=True), ssd, pods)) is None
    assert found(Replanning(node("a"), ssd, pods)) is not None


def test_a_pod_is_moved_from_a_node_that_its_node_selector_rejects_by_now() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        owned("web", node="a", node_selector=ON_SSD),
        owned("other", node="a"),
    )
    plan = replanning.plan()
    assert moves(plan) == [("web", "a", "b")]
    (step,) = plan.steps
    assert (step.goal, step.gain) == (Goal.VIOLATIONS, 1_000)
    assert step.reason == (
        "its node does not pass NodeAffinity: node(s) didn't match Pod's node affinity/selector"
    )
    assert (plan.pods, plan.refused) == (2, {})


def test_a_pod_is_moved_from_a_node_with_a_taint_that_it_does_not_tolerate() -> None:
    replanning = Replanning(
        node("a", taints=["dedicated=gpu:NoSchedule"]), node("b"), owned("web", node="a")
    )
    assert moves(replanning.plan()) == [("web", "a", "b")]


@pytest.mark.parametrize(
    "broken",
    [
        {"unschedulable": True},
        {"taints": ["node.kubernetes.io/unreachable:NoSchedule"]},
        {"taints": ["node.kubernetes.io/not-ready:NoExecute", "dedicated=gpu:NoSchedule"]},
        {"conditions": {"Ready": "Unknown"}},
    ],
)
def test_nodes_are_left_to_drains_and_to_the_node_controller(broken: dict[str, Any]) -> None:
    replanning = Replanning(
        node("a", **broken),
        node("b", labels=ON_SSD),
        *(owned(f"web-{n}", node="a", node_selector=ON_SSD) for n in range(5)),
        rebalancing={"goals": ["Violations", "Spread"]},
    )
    plan = replanning.plan()
    assert (plan.steps, plan.refused) == ((), {})


def test_pods_leave_a_node_that_holds_more_than_it_has_until_it_does_not() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        *(owned(f"web-{n}", cpu="1500m", node="a") for n in range(4)),
    )
    plan = replanning.plan()
    assert len(plan.moves) == 2
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_one_of_two_pods_that_must_not_share_a_node_is_moved() -> None:
    apart = required("podAntiAffinity", near(app="web"))
    replanning = Replanning(
        *(node(name) for name in "abc"),
        owned("web-1", labels={"app": "web"}, affinity=apart, node="a"),
        owned("web-2", labels={"app": "web"}, affinity=apart, node="a"),
        owned("web-3", labels={"app": "web"}, affinity=apart, node="b"),
    )
    plan = replanning.plan()
    ((_, source, target),) = moves(plan)
    assert (source, target) == ("a", "c")
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_many_pods_that_must_not_share_a_node_and_do_not_are_left_alone() -> None:
    apart = required("podAntiAffinity", near(app="web"))
    replanning = Replanning(
        *(node(f"n{n}") for n in range(8)),
        *(owned(f"w{n}", labels={"app": "web"}, affinity=apart, node=f"n{n}") for n in range(7)),
    )
    assert replanning.plan().steps == ()


def test_a_pod_that_must_be_near_others_follows_them() -> None:
    beside = required("podAffinity", near(app="db"))
    replanning = Replanning(
        node("a"),
        node("b"),
        owned("db", owner="db", labels={"app": "db"}, node="b"),
        *(owned(f"web-{n}", affinity=beside, node="a") for n in range(5)),
    )
    assert {(m[1], m[2]) for m in moves(replanning.plan())} == {("a", "b")}
    assert len(replanning.plan().moves) == 5


def test_hard_spread_constraints_are_mended_with_the_fewest_moves() -> None:
    spread = spread_evenly({"app": "web"}, "topology.kubernetes.io/zone")
    replanning = Replanning(
        *(node(f"{zone}{n}", zone=zone) for zone in "xyz" for n in range(2)),
        *(
            owned(f"w{n}", labels={"app": "web"}, spread=[spread], node=("x0", "y0")[n % 2])
            for n in range(6)
        ),
    )
    plan = replanning.plan()
    assert len(plan.moves) == 2
    assert all(move.target.startswith("z") for move in plan.moves)
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_a_pod_that_fits_nowhere_else_is_counted_and_stays() -> None:
    replanning = Replanning(
        node("a"), node("b", cpu="1"), owned("web", cpu="2", node="a", node_selector=ON_SSD)
    )
    plan = replanning.plan()
    assert (plan.steps, plan.refused) == ((), {"fits on no other node": 1})


def test_pods_are_spread_onto_a_node_that_came_back() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        *(owned(f"w{n}", cpu="500m", memory="1Gi", node="a") for n in range(8)),
        rebalancing=SPREAD,
    )
    plan = replanning.plan()
    assert {move.target for move in plan.moves} == {"b"}
    assert 2 <= len(plan.moves) <= 4
    assert all(step.goal is Goal.SPREAD and step.gain >= 10 for step in plan.steps)
    assert [step.gain for step in plan.steps] == sorted([s.gain for s in plan.steps], reverse=True)
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_no_pod_is_moved_for_less_than_the_minimum_gain() -> None:
    objects = [node("a"), node("b"), *(owned(f"w{n}", cpu="100m", node="a") for n in range(5))]
    most = Replanning(*objects, rebalancing=SPREAD | {"minimumGain": 1}).plan()
    assert most.steps
    least = max(step.gain for step in most.steps) + 1
    assert Replanning(*objects, rebalancing=SPREAD | {"minimumGain": least}).plan().steps == ()


def test_pods_of_a_service_that_share_a_node_are_spread() -> None:
    labels = {"app": "web"}
    replanning = Replanning(
        *(node(f"n{n}", zone=f"z{n % 3}") for n in range(6)),
        service("web", labels),
        *(owned(f"w{n}", labels=labels, cpu="100m", node="n0") for n in range(6)),
        rebalancing=SPREAD,
    )
    plan = replanning.plan()
    assert len({move.target for move in plan.moves}) == len(plan.moves) >= 3
    replanning.carry_out(plan)
    resting = frozenset(move.pod.uid for move in plan.moves)
    assert replanning.plan(resting=resting).steps == ()


def test_pods_with_no_controller_are_counted_and_stay() -> None:
    replanning = Replanning(
        node("a"), node("b", labels=ON_SSD), pod("bare", node="a", node_selector=ON_SSD)
    )
    plan = replanning.plan()
    assert (plan.steps, plan.refused) == ((), {"has no controller that would replace it": 1})


def test_a_plan_is_no_longer_than_the_profile_allows() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        *(owned(f"w{n}", node="a", node_selector=ON_SSD) for n in range(7)),
        rebalancing={"limits": {"movesPerPlan": 3}},
    )
    assert len(replanning.plan().moves) == 3


def classes(replanning: Replanning) -> list[set[str]]:
    found = alike_pods(lambda _: True, replanning.cluster)
    positions = [each.position for each in found]
    assert positions == sorted(positions)
    return sorted(({each.name for each in alike.pods} for alike in found), key=min)


def test_pods_of_one_template_are_alike_wherever_they_are() -> None:
    replanning = Replanning(
        node("a", zone="x"),
        node("b", zone="y"),
        *(owned(f"w{n}", labels={"app": "web", ZONE: "xy"[n]}, node="ab"[n]) for n in range(2)),
        owned("z", owner="other", labels={"app": "web"}, node="a"),
    )
    assert classes(replanning) == [{"w0", "w1"}, {"z"}]


def test_labels_specs_and_volumes_make_pods_differ() -> None:
    replanning = Replanning(
        node("a"),
        owned("labels", labels={"app": "db"}, node="a"),
        owned("spec", cpu="1", node="a"),
        *(owned(f"volume-{n}", claims=["data"], node="a") for n in range(2)),
        *(owned(f"plain-{n}", node="a") for n in range(2)),
    )
    assert classes(replanning) == [
        {"labels"},
        {"plain-0", "plain-1"},
        {"spec"},
        {"volume-0"},
        {"volume-1"},
    ]


def test_pods_without_a_known_node_and_nominated_pods_are_left_out() -> None:
    replanning = Replanning(node("a"), owned("lost", node="gone"), owned("web", node="a"))
    replanning.nominate(pod("first"), "a")
    assert classes(replanning) == [{"web"}]


def test_a_large_class_is_divided() -> None:
    pods = [owned(f"w{n}", node="a") for n in range(2_001)]
    assert [len(each) for each in classes(Replanning(node("a"), *pods))] in ([1, 2_000], [2_000, 1])
