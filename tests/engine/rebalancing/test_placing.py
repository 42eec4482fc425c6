"""Where pods fit in the trial of a plan."""

import numpy as np
import pytest

from mooring.engine.rebalancing.placing import (
    best_fit,
    decided,
    decided_group,
    fits_on,
    free_shares,
    group_decision,
    share_of,
)
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, pod_group
from replanning import Replanning, owned

CLUSTER = [
    node("a", cpu="4", memory="4Gi"),
    node("b", cpu="4", memory="4Gi"),
    node("c", cpu="4", memory="4Gi"),
    owned("a-1", cpu="1", memory="1Gi", node="a"),
    owned("b-1", cpu="3", memory="1Gi", node="b"),
]
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


def test_the_policy_decides_and_the_fullest_node_is_the_best_fit() -> None:
    planning = Replanning(*CLUSTER).planning()
    new, all_nodes = parse_pod(pod("new", cpu="1", memory="1Gi")), {"a", "b", "c"}
    with planning.trial:
        assert decided(planning, new) == "c"
        assert best_fit(planning, new, all_nodes) == "b"
        assert best_fit(planning, new, all_nodes, last={"b"}) == "a"
        assert best_fit(planning, new, {"b"}, last={"b"}) == "b"
        assert best_fit(planning, new, ()) is None


def test_a_pod_that_fits_nowhere_has_no_node() -> None:
    planning = Replanning(*CLUSTER).planning()
    new = parse_pod(pod("new", cpu="5"))
    with planning.trial:
        assert decided(planning, new) is None
        assert best_fit(planning, new, {"a", "b", "c"}) is None


def test_filters_of_one_node_count_nominated_pods() -> None:
    replanning = Replanning(*CLUSTER)
    planning, new = replanning.planning(), parse_pod(pod("new", cpu="2"))
    with planning.trial:
        assert [fits_on(planning, new, name) for name in "abcd"] == [
            True,
            False,
            True,
            False,
        ]
    replanning.nominate(pod("first", cpu="3", priority=1), "c")
    with planning.trial:
        assert not fits_on(planning, new, "c")


def test_what_is_free_and_requested_is_counted_in_shares() -> None:
    planning = Replanning(*CLUSTER).planning()
    assert free_shares(planning, np.array([0, 1, 2])).tolist() == [1.5, 1.0, 2.0]
    assert share_of(planning, parse_pod(pod("new", cpu="6"))) == pytest.approx(0.5)
    assert share_of(planning, parse_pod(pod("new"))) == 0.0


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
