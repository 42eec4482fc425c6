import gc
from dataclasses import replace
from typing import Any

import pytest

from memory import traced_memory
from mooring.model.affinity import SpreadConstraint
from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE, parse_node
from mooring.model.pod import parse_pod
from mooring.model.pod_spec import PodSpec
from mooring.model.selectors import NodeSelector, selector_from_labels
from mooring.plugins.pod_topology_spread.inclusion import CountedNodes, NodeInclusion
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.topology.pod_selection import PodSelector, selection
from mooring.testing.builders import cluster, node, pod, toleration, uid_of
from node_selectors import expression, required_nodes, term

WEB = {"app": "web"}
ALL_WEB = selection(
    (PodSelector(selector_from_labels(WEB), frozenset(("default",))),), terminating=False
)
NODES = (
    node("a1", zone="a", labels={"disk": "ssd"}),
    node("a2", zone="a"),
    node("b1", zone="b", taints=["dedicated=gpu:NoSchedule"], labels={"rack": "r"}),
    node("c1", zone="c", taints=["flaky:PreferNoSchedule"], labels={"disk": "ssd"}),
    node("nowhere", labels={"rack": "r"}),
)
PODS = tuple(
    pod(f"p{i}", node=name, labels=WEB)
    for i, name in enumerate(("a1", "a2", "b1", "c1", "c1", "nowhere", "no-such-node"))
)
ON_SSD = required_nodes(term(expression("disk", "In", "ssd")))


def constraint(**fields: Any) -> SpreadConstraint:
    zones = SpreadConstraint(max_skew=1, topology_key=ZONE, hard=True, selector=None)
    return replace(zones, **fields)


def spec(**fields: Any) -> PodSpec:
    return parse_pod(pod(**fields)).spec


def domains(found: CountedNodes) -> set[str]:
    return {v for v, some in zip(found.domains.values, found.inhabited, strict=False) if some}


def counted(state: ClusterState, found: CountedNodes) -> dict[str, int]:
    """Return the number of web pods per domain; leave out domains without web pods."""
    *by_code, absent = found.counts(ClusterView(state), ALL_WEB).tolist()
    assert absent == 0
    return {found.domains.values[code]: number for code, number in enumerate(by_code) if number}


def counted_nodes(
    state: ClusterState,
    of: PodSpec,
    keys: tuple[str, ...] = (),
    inclusion: NodeInclusion | None = None,
    **fields: Any,
) -> CountedNodes:
    nodes = ClusterView(state).nodes
    return (inclusion or NodeInclusion()).counted_nodes(of, constraint(**fields), keys, nodes)


def test_every_node_with_the_label_counts_for_a_pod_that_chooses_none() -> None:
    state = cluster(*NODES, *PODS)
    found = counted_nodes(state, spec())
    assert found.rows is None
    assert domains(found) == {"a", "b", "c"}
    assert counted(state, found) == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("chosen", [{"node_selector": {"disk": "ssd"}}, {"affinity": ON_SSD}])
def test_nodes_that_the_pod_does_not_choose_count_only_if_affinity_is_ignored(
    chosen: dict[str, Any],
) -> None:
    state = cluster(*NODES, *PODS)
    honored = counted_nodes(state, spec(**chosen))
    assert domains(honored) == {"a", "c"}
    assert counted(state, honored) == {"a": 1, "c": 2}
    ignored = counted_nodes(state, spec(**chosen), honor_affinity=False)
    assert counted(state, ignored) == {"a": 2, "b": 1, "c": 2}


def test_nodes_with_untolerated_taints_count_unless_taints_are_honored() -> None:
    state = cluster(*NODES, *PODS)
    assert domains(counted_nodes(state, spec())) == {"a", "b", "c"}
    honored = counted_nodes(state, spec(), honor_taints=True)
    assert domains(honored) == {"a", "c"}
    assert counted(state, honored) == {"a": 2, "c": 2}
    tolerant = spec(tolerations=[toleration("dedicated", "gpu")])
    assert domains(counted_nodes(state, tolerant, honor_taints=True)) == {"a", "b", "c"}


def test_nodes_must_have_the_label_of_every_constraint() -> None:
    state = cluster(*NODES, *PODS)
    with_rack = counted_nodes(state, spec(), (ZONE, "rack"))
    assert domains(with_rack) == {"b"}
    assert counted(state, with_rack) == {"b": 1}
    assert domains(counted_nodes(state, spec(), ("rack", HOSTNAME), topology_key=HOSTNAME)) == {
        "b1",
        "nowhere",
    }


def test_a_key_that_every_node_carries_excludes_none() -> None:
    state = cluster(*NODES[:4], *PODS)
    found = counted_nodes(state, spec(), (HOSTNAME, ZONE), topology_key=HOSTNAME)
    assert found.rows is None


def test_no_selection_counts_no_pod() -> None:
    state = cluster(*NODES, *PODS)
    assert counted_nodes(state, spec()).counts(ClusterView(state), None).tolist() == [0, 0, 0, 0]


def test_scopes_are_kept_until_a_node_changes_its_labels_or_taints() -> None:
    state = cluster(*NODES, *PODS)
    inclusion, picky = NodeInclusion(), spec(node_selector={"disk": "ssd"})

    def found(of: PodSpec = picky) -> CountedNodes:
        return counted_nodes(state, of, (ZONE,), inclusion, honor_taints=True)

    before = found()
    state.put(Kind.POD, uid_of("p0"), parse_pod(pod("p0", node="a2", labels=WEB)))
    state.put(Kind.NODE, "a1", parse_node(node("a1", zone="a", labels={"disk": "ssd"}, cpu="8")))
    assert found() is before
    assert found(spec()) is not before
    state.put(Kind.NODE, "a1", parse_node(node("a1", zone="a")))
    assert domains(found()) == {"c"}
    tainted = node("c1", zone="c", labels={"disk": "ssd"}, taints=["full:NoSchedule"])
    state.put(Kind.NODE, "c1", parse_node(tainted))
    assert domains(found()) == set()
    state.delete(Kind.NODE, "b1")
    assert domains(found(spec())) == {"a"}


def test_scopes_that_no_policy_narrows_are_shared_by_all_pods() -> None:
    state, inclusion = cluster(*NODES), NodeInclusion()
    first = counted_nodes(state, spec(cpu="1"), (ZONE,), inclusion)
    assert counted_nodes(state, spec(cpu="2"), (ZONE,), inclusion) is first


def test_scopes_take_a_bounded_number_of_bytes() -> None:
    state = cluster(*(node(f"n{i}", zone="a") for i in range(3000)))
    inclusion = NodeInclusion(200_000)
    with traced_memory() as taken_so_far:
        for i in range(100):
            others = required_nodes(term(expression("disk", "NotIn", f"disk-{i}")))
            found = counted_nodes(state, spec(affinity=others), (), inclusion)
            assert found.rows is not None
            assert len(found.rows) == 3000
        gc.collect()
        taken = taken_so_far()
        del inclusion, found
        gc.collect()
        freed = taken - taken_so_far()
    assert 100_000 <= freed <= 220_000


class CountedSelector(NodeSelector):
    """A node selector that counts how often its hash is computed."""

    hashed = 0

    def __hash__(self) -> int:
        type(self).hashed += 1
        return super().__hash__()


def test_a_selector_is_hashed_once_for_all_constraints_of_a_pod() -> None:
    state, inclusion, of = cluster(*NODES), NodeInclusion(), spec(affinity=ON_SSD)
    assert of.required_nodes is not None
    of = replace(of, required_nodes=CountedSelector(of.required_nodes.terms))
    for _ in range(2):
        for key in (ZONE, HOSTNAME):
            assert counted(state, counted_nodes(state, of, (), inclusion, topology_key=key)) == {}
    assert CountedSelector.hashed == 1
