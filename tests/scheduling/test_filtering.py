"""The feasible nodes, and the reasons of all other nodes."""

from typing import Any

import pytest

from call_counts import calls_in
from deciding import Deciding
from mooring.framework.diagnosis import Diagnosis
from mooring.model.pod import parse_pod
from mooring.scheduling.filtering import (
    NodeSearch,
    PreFiltered,
    nodes_to_find,
    sampled,
)
from mooring.testing.builders import node, pod
from node_selectors import met_by_every_node, named, required_nodes


def by_name(*names: str) -> dict[str, object]:
    return required_nodes(*(named(name) for name in names))


def test_only_the_nodes_that_a_pod_names_are_searched() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b"), node("c"))
    raw = pod("new", cpu="2", affinity=by_name("a", "missing"))
    search, pre_filtered = deciding.search(raw)
    assert pre_filtered.candidate_rows.tolist() == [0]
    diagnosis = search.diagnose(pre_filtered)
    assert diagnosis.message == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_terms_that_contradict_each_other_reject_the_pod_before_any_filter() -> None:
    deciding = Deciding(node("a"))
    pending = parse_pod(pod("new", affinity=required_nodes(named("a", "b"))))
    work = deciding.shared.of(pending, deciding.pipeline)
    diagnosis = NodeSearch(pending, deciding.pipeline, deciding.cluster, work).pre_filter()
    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.message == "0/1 nodes are available: pod affinity terms conflict."
    assert diagnosis.plugins == {"NodeAffinity"}


def test_later_filters_do_not_run_on_a_rejected_node() -> None:
    deciding = Deciding(node("a", cpu="1", unschedulable=True))
    search, pre_filtered = deciding.search(pod("new", cpu="2"))
    assert [group.plugin for group in search.diagnose(pre_filtered).rejected] == [
        "NodeUnschedulable"
    ]


def test_all_filters_run_if_the_profile_says_so() -> None:
    deciding = Deciding(node("a", cpu="1", unschedulable=True), alwaysCheckAllFilters=True)
    decision = deciding.decision(pod("new", cpu="2"))
    assert decision.message is not None
    assert decision.message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    )
    (rejection,) = decision.rejections.values()
    assert rejection.plugin == "NodeUnschedulable"
    assert rejection.reasons == ("node(s) were unschedulable", "Insufficient cpu")
    assert not rejection.resolvable


def test_a_node_that_only_nominated_pods_fill_is_rejected_with_the_filters_reason() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"))
    deciding.nominate(pod("hoping", cpu="1", priority=9), "a")
    search, pre_filtered = deciding.search(pod("new", cpu="1"))
    (rejected,) = search.rejected_with_nominated(pre_filtered, search.feasible(pre_filtered))
    assert rejected.rows.tolist() == [0]
    assert rejected.explanation.reasons_at(0) == ("Insufficient cpu",)


def test_resource_columns_and_trials_agree_about_nominated_pods() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="2"))
    for name in ("a", "b"):
        deciding.nominate(pod(f"to-{name}", cpu="1", priority=9), name)
    counted, pre_filtered = deciding.search(pod("new", cpu="1"))
    tried, pre_filtered_too = deciding.search(pod("new", cpu="1", ports=[80]))
    assert counted.resource_filter(pre_filtered) is not None
    assert tried.resource_filter(pre_filtered_too) is None
    for search, said in ((counted, pre_filtered), (tried, pre_filtered_too)):
        rejected = search.rejected_with_nominated(said, search.feasible(said))
        assert [row for group in rejected for row in group.rows.tolist()] == [0]
    for search, said, others in ((counted, pre_filtered, []), (tried, pre_filtered_too, [1])):
        full, untold = search.full_with_nominated(said, search.feasible(said))
        assert (full.tolist(), untold.tolist()) == ([0], others)


def test_filters_that_read_the_node_alone_do_not_run_again_beside_nominated_pods() -> None:
    """A pod may have 1,990 requirements, and hundreds of nodes may have nominated pods."""

    def steps(requirements: int) -> int:
        deciding = Deciding(node("a", cpu="4"))
        deciding.nominate(pod("hoping", cpu="1", priority=9), "a")
        search, said = deciding.search(
            pod("new", ports=[80], affinity=met_by_every_node(requirements))
        )
        fits = search.feasible(said)
        return calls_in(lambda: search.rejected_with_nominated(said, fits))

    assert steps(500) < steps(1) + 100


def test_a_filter_that_reads_the_node_alone_still_rejects_beside_nominated_pods() -> None:
    deciding = Deciding(node("a", cpu="4", unschedulable=True))
    deciding.nominate(pod("hoping", cpu="1", priority=9), "a")
    search, _ = deciding.search(pod("new", cpu="4", ports=[80]))
    (rejected,) = search.rejections_with_nominated(0)
    assert rejected.plugin == "NodeUnschedulable"


def test_a_pod_with_filters_that_are_not_node_only_does_not_share_its_diagnosis() -> None:
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
        }
    ]
    deciding = Deciding(node("a"))
    plain, pre_filtered = deciding.search(pod("plain"))
    spreading, pre_filtered_too = deciding.search(pod("spreading", spread=spread))
    assert isinstance(pre_filtered, PreFiltered)
    assert plain.depends_on_spec_alone(pre_filtered)
    assert not spreading.depends_on_spec_alone(pre_filtered_too)


@pytest.mark.parametrize(
    ("nodes", "percentage", "enough"),
    [
        (50, 10, 50),
        (99, 5, 99),
        (100, 5, 100),
        (1000, 30, 300),
        (1000, 5, 100),
        (5000, 100, 5000),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (20_000, 0, 1000),
    ],
)
def test_how_many_nodes_are_enough(nodes: int, percentage: int, enough: int) -> None:
    """0 means kube-scheduler's rule: 50 %, minus 1 per 125 nodes; at least 5 % and 100 nodes."""
    assert nodes_to_find(nodes, percentage) == enough


def names(start: int, **spec: Any) -> tuple[list[str], int]:
    """Return the nodes of 120 in two zones that a search finds, and how many it evaluated."""
    raw = [node(f"{zone}{i:02}", zone=zone) for zone in "ab" for i in range(60)]
    deciding = Deciding(*raw, **spec)
    fits = deciding.cluster.nodes.present.copy()
    fits[deciding.state.nodes.row_of["a00"]] = False
    rows, evaluated_nodes = sampled(fits, deciding.cluster, deciding.pipeline, 120, start)
    return [deciding.state.nodes.names[row] for row in rows], evaluated_nodes


def test_without_sampling_every_node_that_fits_is_found() -> None:
    found, evaluated_nodes = names(7)
    assert (len(found), evaluated_nodes) == (119, 120)


def test_a_sampling_search_goes_through_the_zones_in_turn_until_it_has_enough() -> None:
    found, evaluated_nodes = names(0, percentageOfNodesToScore=10)
    assert found[:4] == ["b00", "a01", "b01", "a02"]
    assert (len(found), evaluated_nodes) == (100, 101)


def test_it_starts_at_a_position_and_wraps_around_the_end() -> None:
    found, evaluated_nodes = names(119, percentageOfNodesToScore=10)
    assert found[:3] == ["b59", "b00", "a01"]
    assert (len(found), evaluated_nodes) == (100, 101)
