"""Decisions about groups in the trial of a plan."""

from mooring.engine.rebalancing.group_decisions import decided_group, group_decision
from mooring.testing.builders import node, pod, pod_group
from replanning import Replanning, owned

GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


def test_members_get_the_nodes_that_moves_have_left() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        pod_group("train", 2),
        owned("web", cpu="1", node="a"),
        waiting=[pod(f"m{n}", cpu="3", group="train") for n in range(2)],
        plugins=GANGS,
    )
    planning, (group,) = replanning.planning(), replanning.cluster.pod_groups
    members = [*group.unscheduled.values()]
    with planning.trial:
        nodes = decided_group(planning, group, members)
        assert sorted(nodes.values()) == ["a", "b"]
        planning.trial.add(members[0], "b")
        assert decided_group(planning, group, members[1:]) == {members[1].uid: "a"}
    with planning.trial:
        replanning.nominate(pod("first", cpu="3", priority=9), "b")
        decision = group_decision(planning, group, members)
    assert not decision.rows
    assert decision.message
