"""The read-only view of the state; its results have their own tests."""

from dataclasses import replace

import numpy as np

from mooring.model.events import Kind
from mooring.model.pod import Uid, parse_pod
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import (
    cluster,
    namespace,
    node,
    pod,
    pod_group,
    priority_class,
    uid_of,
)

STATE = cluster(
    node("a", zone="z1"),
    node("b", zone="z1"),
    node("c", zone="z2"),
    pod("web", node="a"),
    pod("lost", node="no-such-node"),
    namespace("team-a", {"env": "prod"}),
    priority_class("high", 5),
)
CLUSTER = ClusterView(STATE)


def test_nodes_are_those_that_exist_in_the_order_of_zones() -> None:
    assert CLUSTER.node_count == 3
    assert [CLUSTER.node_names[row] for row in CLUSTER.nodes_in_order] == ["a", "c", "b"]
    assert CLUSTER.row("b") == STATE.nodes.row_of["b"]
    assert CLUSTER.row("never-heard-of") is None
    rows = CLUSTER.rows(["b", "never-heard-of", "a"])
    assert rows.tolist() == [STATE.nodes.row_of["b"], -1, STATE.nodes.row_of["a"]]
    assert CLUSTER.rows([]).dtype == rows.dtype == np.int64


def test_a_row_has_its_node_if_that_exists() -> None:
    row, unknown = CLUSTER.row("a"), STATE.nodes.unknown_row
    assert row is not None
    assert CLUSTER.row("no-such-node") is None
    found = CLUSTER.node(row)
    assert found is not None
    assert found.name == "a"
    assert CLUSTER.node(unknown) is None
    assert CLUSTER.fits_requests(row, {"cpu": 4000})
    assert not CLUSTER.fits_requests(unknown, {})


def test_names_that_were_handed_out_stay_as_they_were() -> None:
    state = cluster(node("a"))
    kept = ClusterView(state).node_names
    state.delete(Kind.NODE, "a")
    assert kept == ("a",)


def test_pods_are_found_by_key_and_by_node() -> None:
    row = CLUSTER.row("a")
    assert row is not None
    assert [placed.pod.key for placed in CLUSTER.pods_on(row)] == ["default/web"]
    assert CLUSTER.pod(uid_of("web")) is not None
    assert CLUSTER.pod(uid_of("other")) is None


def test_a_pod_is_placed_if_that_very_pod_is_on_a_node() -> None:
    assert CLUSTER.is_placed(parse_pod(pod("web", node="a")))
    assert not CLUSTER.is_placed(replace(parse_pod(pod("web")), uid=Uid("of its successor")))
    assert not CLUSTER.is_placed(parse_pod(pod("never-heard-of")))


def test_other_objects_are_found_by_kind_and_key() -> None:
    assert CLUSTER.objects(Kind.PRIORITY_CLASS)["high"].value == 5
    assert CLUSTER.namespace_labels("team-a")["env"] == "prod"
    assert CLUSTER.namespace_labels("unknown") == {}


def test_a_dry_run_may_remove_the_pods_of_a_node_while_it_goes_through_them() -> None:
    names = {"a", "b", "c", "d"}
    cluster_view = ClusterView(cluster(node("n"), *(pod(name, node="n") for name in names)))
    for pods in (cluster_view.pods_on(0), cluster_view.pods_of("n")):
        with cluster_view.trial() as trial:
            removed = set[str]()
            for placed in pods:
                trial.remove(placed.pod.uid)
                removed.add(placed.pod.name)
            assert removed == names
            assert not cluster_view.pods_on(0)
    assert {placed.pod.name for placed in cluster_view.pods_on(0)} == names


def test_a_dry_run_is_undone() -> None:
    state = cluster(node("a"), pod("web", cpu="1", node="a"))
    cluster_view = ClusterView(state)
    with cluster_view.trial() as trial:
        trial.remove(uid_of("web"))
        trial.add(parse_pod(pod("other", cpu="3")), 0)
        assert cluster_view.nodes.requested("cpu").tolist() == [3000]
        assert cluster_view.pod(uid_of("web")) is None
    assert cluster_view.nodes.requested("cpu").tolist() == [1000]
    assert [placed.pod.key for placed in cluster_view.pods_on(0)] == ["default/web"]


def test_the_members_of_a_group_leave_together_if_it_is_disrupted_as_a_whole() -> None:
    objects = [
        node("a"),
        node("b"),
        pod_group("whole", 2, disruption_mode="PodGroup"),
        pod_group("loose", 2),
        pod("alone", node="a"),
        *(pod(f"{g}-{n}", node=n, group=g) for g in ("whole", "loose") for n in ("a", "b")),
    ]
    state = cluster(*objects)
    found = ClusterView(state).disrupted_with(state.nodes.row_of["a"])
    assert sorted(p.name for p in found.values()) == ["alone", "loose-a", "whole-a", "whole-b"]
