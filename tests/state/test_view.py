from typing import Any

import numpy as np
import pytest

from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.model.pod_spec import HostPort
from mooring.model.selectors import NodeSelectorTerm, Requirement, parse_node_term
from mooring.state.cluster_view import ClusterView
from mooring.state.view import NodeView, NodeViewWithNominated
from mooring.testing.builders import cluster, node, pod, uid_of

STATE = cluster(
    node("a", cpu="2", pods=3, labels={"disk": "ssd", "cores": "2"}, images={"app:v1": 7}),
    node("b", cpu="4", labels={"disk": "hdd", "cores": "16"}, unschedulable=True),
    node("c", cpu="8", labels={"cores": "many"}, taints=["t:NoSchedule"], zone="z"),
    pod("on-a", cpu="500m", node="a", ports=[80]),
    pod("on-b", node="b"),
    pod("on-nothing", node="no-such-node"),
)
ALL = ClusterView(STATE).nodes
SOME = ALL.take(np.array([2, 0]))


def names(view: NodeView, mask: "np.typing.NDArray[np.bool_]") -> set[str]:
    assert mask.dtype == np.bool_
    assert mask.shape == (len(view),)
    return {view.name(i) for i, here in enumerate(mask) if here}


def test_the_full_view_has_rows_without_a_node_and_says_so() -> None:
    assert [ALL.name(i) for i in range(len(ALL))] == ["a", "b", "c", ""]
    assert ALL.present.tolist() == [True, True, True, False]
    assert (ALL.node(3), ALL.node_count) == (None, 3)


def test_a_view_of_some_rows_has_them_in_their_order() -> None:
    assert [SOME.name(i) for i in range(len(SOME))] == ["c", "a"]
    assert SOME.allocatable("cpu").tolist() == [8000, 2000]
    assert SOME.take(np.array([1])).name(0) == "b"


def test_a_view_of_one_node_is_empty_if_there_is_none() -> None:
    assert ALL.only("b").rows.tolist() == [1]
    assert len(ALL.only("no-such-node")) == 0
    assert len(ALL.only("never-heard-of")) == 0


def test_columns_have_what_nodes_offer_and_what_their_pods_request() -> None:
    assert ALL.requested("cpu").tolist() == [500, 0, 0, 0]
    assert [ALL.requested_at(index, "cpu") for index in range(2)] == [500, 0]
    assert ALL.pod_count.tolist() == [1, 1, 0, 1]
    assert ALL.pod_slots.tolist() == [3, 110, 110, 0]
    assert ALL.unschedulable.tolist() == [False, True, False, False]
    assert ALL.allocatable("example.com/gpu").tolist() == [0, 0, 0, 0]


def test_scored_requests_count_a_little_for_containers_that_name_none() -> None:
    assert ALL.requested_scored("cpu").tolist() == [500, 100, 0, 100]
    assert ALL.requested_scored("memory").tolist() == [200 * 2**20, 200 * 2**20, 0, 200 * 2**20]
    assert ALL.requested_scored("example.com/gpu").tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("view", [ALL, SOME])
def test_writing_to_a_view_never_reaches_the_state(view: NodeView) -> None:
    for column in (view.allocatable("cpu"), view.pod_count, view.present, view.taint_codes):
        if column.flags.writeable:
            column[:] = 1
    assert ALL.allocatable("cpu").tolist() == [2000, 4000, 8000, 0]
    assert ALL.pod_count.tolist() == [1, 1, 0, 1]
    assert not ALL.allocatable("cpu").flags.writeable


def test_codes_stand_for_distinct_taints_conditions_and_zones() -> None:
    taints = [ALL.taint_sets[code] for code in ALL.taint_codes]
    assert [len(taint_set) for taint_set in taints] == [0, 0, 1, 0]
    assert [ALL.zones[code] for code in SOME.zone_codes] == [("", "z"), ("", "")]
    conditions = [ALL.condition_sets[code] for code in ALL.condition_codes]
    assert [("Ready", "True") in found for found in conditions] == [True, True, True, False]


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("disk", "In", ("ssd",), {"a"}),
        ("disk", "In", ("ssd", "hdd", "tape"), {"a", "b"}),
        ("disk", "In", ("tape",), set()),
        ("disk", "NotIn", ("ssd",), {"b", "c", ""}),
        ("disk", "Exists", (), {"a", "b"}),
        ("disk", "DoesNotExist", (), {"c", ""}),
        ("cores", "Gt", ("2",), {"b"}),
        ("cores", "Lt", ("16",), {"a"}),
        ("nobodys", "Exists", (), set()),
    ],
)
def test_a_requirement_is_met_where_the_nodes_label_matches(
    key: str, operator: Any, values: tuple[str, ...], expected: set[str]
) -> None:
    requirement = Requirement(key, operator, values)
    assert names(ALL, ALL.meets(requirement)) == expected
    assert names(SOME, SOME.meets(requirement)) == expected & {"a", "c"}


def test_a_term_selects_by_labels_and_by_name() -> None:
    by_label: dict[str, Any] = {"key": "cores", "operator": "Exists"}
    by_name: dict[str, Any] = {"key": "metadata.name", "operator": "NotIn", "values": ["b"]}
    term = parse_node_term({"matchExpressions": [by_label], "matchFields": [by_name]})
    assert names(ALL, ALL.selected(term)) == {"a", "c"}
    assert names(ALL, ALL.selected(NodeSelectorTerm())) == set()
    assert names(ALL, ALL.selected(NodeSelectorTerm(valid=False))) == set()


def test_the_holders_of_an_image_are_known() -> None:
    assert names(ALL, ALL.with_image("app:v1")) == {"a"}
    assert names(ALL, ALL.with_image("other:v1")) == set()
    assert ALL.image_spread("app:v1") == (7, 1, 3)
    assert ALL.image_spread("other:v1") == (0, 0, 3)


def test_a_host_port_is_free_where_no_pod_uses_it() -> None:
    assert names(ALL, ALL.port_free(HostPort("TCP", 80, "0.0.0.0"))) == {"b", "c", ""}
    assert names(SOME, SOME.port_free(HostPort("TCP", 80, "0.0.0.0"))) == {"c"}


def test_a_port_is_free_on_a_few_rows_as_it_is_on_all() -> None:
    used = [pod(f"p{i}", ports=(80,), node=f"n{i}") for i in range(3)]
    nodes = ClusterView(cluster(*(node(f"n{i}") for i in range(4)), *used)).nodes
    port = HostPort("TCP", 80, "0.0.0.0")
    each = [nodes.take(np.array([row])).port_free(port).tolist() for row in range(4)]
    assert each == [[free] for free in nodes.port_free(port).tolist()]
    assert each == [[False], [False], [False], [True]]
    assert nodes.take(np.zeros(0, np.int64)).port_free(port).dtype == np.bool_


def test_a_name_is_a_mask_with_one_node_or_none() -> None:
    assert names(ALL, ALL.named("b")) == {"b"}
    assert names(SOME, SOME.named("b")) == set()
    assert names(ALL, ALL.named("never-heard-of")) == set()


def test_a_view_shows_the_state_of_the_moment_it_is_read() -> None:
    state = cluster(node("n1"))
    view = ClusterView(state).nodes
    state.put(Kind.POD, uid_of("late"), parse_pod(pod("late", cpu="1", node="n1")))
    assert view.requested("cpu").tolist() == [1000]


def test_nominated_pods_count_on_top_of_the_pods_of_a_node() -> None:
    crowd = NodeViewWithNominated(
        STATE.nodes, np.array([0, 2]), np.array([1, 0, 2, 0]), {"cpu": np.array([250, 0, 750, 0])}
    )
    assert crowd.pod_count.tolist() == [2, 2]
    assert crowd.requested("cpu").tolist() == [750, 750]
    assert crowd.requested("memory").tolist() == [0, 0]
    assert crowd.take(np.array([2])).requested("cpu").tolist() == [750]
    assert crowd.requested_at(1, "cpu") == 750
    assert crowd.requested_at(0, "memory") == 0


def test_nominated_pods_leave_nothing_free_if_their_requests_exceed_int64_in_total() -> None:
    state = cluster(node("n1"), pod("p", memory="5Ei", node="n1"))
    more = {"memory": np.array([5 * 2**60])}
    crowd = NodeViewWithNominated(state.nodes, np.array([0]), np.array([1]), more)
    assert crowd.requested("memory").tolist() == [2**63 - 1]
    assert crowd.requested_at(0, "memory") == 2**63 - 1


def test_rows_may_have_one_pod_less_each() -> None:
    state = cluster(
        node("a"),
        node("b"),
        *(pod(f"on-{on}", cpu="500m", memory="1Gi", node=on) for on in "ab"),
        pod("other", requests={"example.com/x": 3}, node="a"),
    )
    placed = state.pods.get(uid_of("on-a"))
    assert placed is not None
    demand = placed.pod.spec.demand
    every = ClusterView(state).nodes
    view = ClusterView(state).nodes_without_pod(np.array([0, 1]), demand)
    assert view.pod_count.tolist() == [1, 0]
    for resource in ("cpu", "memory", "example.com/x"):
        amounts = every.requested(resource) - demand.resources.get(resource, 0)
        assert view.requested(resource).tolist() == amounts.tolist()
        assert [view.requested_at(i, resource) for i in range(2)] == amounts.tolist()
    assert view.requested_scored("example.com/x").tolist() == [3, 0]
    assert view.requested_scored("cpu").tolist() == [100, 0]
    assert view.requested_scored("memory").tolist() == [200 * 2**20, 0]
    assert view.take(np.array([1])).pod_count.tolist() == [0]
