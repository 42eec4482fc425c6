"""Whole decisions: the results of all filters, the scores, and the node."""

from dataclasses import replace
from typing import Any

from mooring.model.pod import parse_pod
from mooring.observe.documents import plain
from mooring.page.full_decision import decision_in_full
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf
from mooring.testing.builders import node, pod
from node_selectors import named, required_nodes
from scheduler_states import put_profile, scheduler_state


def decided(
    tried: dict[str, Any], *objects: dict[str, Any], nodes: int = 100
) -> tuple[int | None, dict[str, Any]]:
    shared = scheduler_state(*objects)
    pipeline = put_profile(shared).pipeline
    what_if = WhatIf(ResultCache(shared.cluster))
    row, decision = decision_in_full(parse_pod(tried), pipeline, what_if, nodes=nodes)
    return row, plain(decision)


def funnel(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        step["plugin"]: (step["rejected"], step["left"])
        for step in document["filters"]
        if step["rejected"]
    }


CLUSTER = (
    node("small", cpu="1"),
    node("large", cpu="8"),
    node("larger", cpu="16"),
    node("taken", cpu="8", taints=["team=red:NoSchedule"]),
)


def test_each_filter_says_how_many_nodes_it_rejects_and_leaves() -> None:
    row, document = decided(pod("web", cpu="4"), *CLUSTER)
    assert row is not None
    assert document["nodes"] == 4
    assert document["feasible"] == 2
    assert funnel(document) == {"TaintToleration": (1, 3), "NodeResourcesFit": (1, 2)}
    fit = next(step for step in document["filters"] if step["plugin"] == "NodeResourcesFit")
    assert fit["reasons"] == [{"reason": "Insufficient cpu", "nodes": 1}]
    assert {node: each["plugin"] for node, each in document["rejections"].items()} == {
        "taken": "TaintToleration",
        "small": "NodeResourcesFit",
    }


def test_scores_are_by_node_and_plugin_the_best_first() -> None:
    _, document = decided(pod("web", cpu="1"), *CLUSTER)
    totals = [each["total"] for each in document["scores"].values()]
    assert totals == sorted(totals, reverse=True)
    assert next(iter(document["scores"])) == document["node"]
    for each in document["scores"].values():
        assert sum(each["plugins"].values()) == each["total"]


def test_scores_are_left_out_where_they_are_not_wanted() -> None:
    assert decided(pod("web", cpu="1"), *CLUSTER, nodes=0)[1]["scores"] is None


def test_without_a_node_there_is_the_message_of_the_condition() -> None:
    row, document = decided(pod("web", cpu="100"), *CLUSTER)
    assert row is None
    assert document["node"] is None
    assert document["message"].startswith("0/4 nodes are available:")
    assert "3 Insufficient cpu" in document["message"]
    assert funnel(document) == {"TaintToleration": (1, 3), "NodeResourcesFit": (3, 0)}


def test_a_preemption_is_shown_with_its_victims() -> None:
    low = pod("low", cpu="1", node="a")
    row, document = decided(pod("web", cpu="1", priority=10), node("a", cpu="1"), low)
    assert row is None
    assert (document["nominatedNode"], document["victims"]) == ("a", ["default/low"])


def test_a_rejection_for_all_nodes_has_no_filters() -> None:
    _, document = decided(pod("web", claims=["data"]), *CLUSTER)
    reason = 'persistentvolumeclaim "data" not found'
    assert document["preFilter"] == {"plugins": ["VolumeRestrictions"], "reason": reason}
    assert document["filters"] == []


def test_nodes_that_pre_filter_leaves_out_are_the_first_step() -> None:
    raw = pod("web", affinity=required_nodes(named("large")))
    _, document = decided(raw, *CLUSTER)
    assert document["filters"][0]["plugin"] == "PreFilter"
    assert (document["filters"][0]["rejected"], document["filters"][0]["left"]) == (3, 1)


def test_an_empty_cluster_has_nothing_to_filter() -> None:
    row, document = decided(pod("web"))
    assert row is None
    assert document["nodes"] == 0
    assert document["filters"] == []


def test_a_profile_that_checks_all_filters_counts_each_node_once_as_left() -> None:
    shared = scheduler_state(node("a", cpu="1", taints=["x=y:NoSchedule"]), node("b", cpu="8"))
    pipeline = replace(put_profile(shared).pipeline, always_check_all_filters=True)
    what_if = WhatIf(ResultCache(shared.cluster))
    tried = parse_pod(pod("web", cpu="4"))
    _, decision = decision_in_full(tried, pipeline, what_if)
    assert funnel(plain(decision)) == {"TaintToleration": (1, 1), "NodeResourcesFit": (1, 1)}
