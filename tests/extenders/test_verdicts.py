"""Which extenders are responsible for a pod, and how their answers are stored and used."""

from typing import Any

import numpy as np
import pytest

from extending import put, said
from memory import traced_memory
from mooring.extenders.verdicts import (
    ExtenderError,
    ExtenderResults,
    NodeFailure,
    OnRows,
    interested,
)
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import pipeline


def names(raw: dict[str, Any], *extenders: dict[str, Any]) -> list[str]:
    return [e.name for e in interested(pipeline(extenders=list(extenders)), parse_pod(raw))]


def extender(name: str, *resources: str, **fields: Any) -> dict[str, Any]:
    managed = [{"name": resource} for resource in resources]
    return {"urlPrefix": f"http://{name}", "managedResources": managed, **fields}


def test_an_extender_without_managed_resources_cares_for_every_pod() -> None:
    assert names(pod("a"), extender("all")) == ["http://all"]


def test_an_extender_with_managed_resources_cares_for_pods_that_request_one_of_them() -> None:
    gpu, fpga = extender("gpu", "acme.io/gpu", "acme.io/tpu"), extender("fpga", "acme.io/fpga")
    assert names(pod("a", requests={"acme.io/tpu": "1", "cpu": "1"}), gpu, fpga) == ["http://gpu"]
    assert names(pod("a", requests={"cpu": "1"}), gpu, fpga) == []


def test_ignorable_extenders_are_called_after_all_others() -> None:
    first, second = extender("first", ignorable=True), extender("second")
    assert names(pod("a"), first, second) == ["http://second", "http://first"]


def three() -> ClusterState:
    return cluster(node("a"), node("b"), node("c"))


def on(state: ClusterState, answers: ExtenderResults, name: str = "w", **how: bool) -> OnRows:
    """Return the extenders' results by row for the pod of this name."""
    return answers.on(ClusterView(state), **how)[uid_of(name)]


def test_each_row_is_as_extenders_answered_about_its_node() -> None:
    answers = ExtenderResults()
    put(answers, pod("w"), "ca", "b", e=[70, 10])
    found = on(three(), answers)
    assert found.passed.tolist() == [True, False, True]
    assert found.scores["e"].tolist() == [10, 0, 70]


def test_rows_are_found_by_the_names_of_nodes_that_may_have_moved() -> None:
    answers, state = ExtenderResults(), three()
    put(answers, pod("w"), "c", "a")
    for name in "ac":
        state.delete(Kind.NODE, name)
    state.put(Kind.NODE, "c", parse_object(Kind.NODE, node("c")))
    state.put(Kind.NODE, "d", parse_object(Kind.NODE, node("d")))
    passed = np.flatnonzero(on(state, answers).passed)
    assert [state.nodes.names[row] for row in passed] == ["c"]


def test_members_with_equal_answers_share_them_whatever_the_reasons() -> None:
    answers, other = (
        ExtenderResults(),
        NodeFailure("w2 may not", resolvable=False, extender="http://e"),
    )
    put(answers, pod("w1"), "a", "b")
    put(answers, pod("w2"), "a", {"b": other})
    put(answers, pod("w3"), "b", "a")
    put(answers, pod("w4"), "ab", "", e=[1, 2])
    put(answers, pod("w5"), "ab", "", e=[2, 1])
    found = answers.on(ClusterView(three()))
    assert found[uid_of("w1")] is found[uid_of("w2")]
    assert len({found[uid_of(f"w{number}")] for number in (1, 3, 4, 5)}) == 4


def test_an_answer_about_thousands_of_nodes_is_not_kept_for_each_member() -> None:
    answers, nodes = ExtenderResults(), [f"n{i}" for i in range(5_000)]
    put(answers, pod("first"), nodes, (), e=[1] * 5_000)
    with traced_memory() as taken_so_far:
        for number in range(100):
            put(answers, pod(f"w{number}"), nodes, (), e=[1] * 5_000)
        size = taken_so_far()
    assert size < 1_000_000


def test_nodes_that_were_not_sent_pass_only_for_preemption() -> None:
    answers = ExtenderResults()
    put(answers, pod("w"), "a", "b")
    assert on(three(), answers).passed.tolist() == [True, False, False]
    assert on(three(), answers, not_sent=True).passed.tolist() == [True, False, True]


def test_a_rejection_names_the_extender_and_says_which_nodes_were_not_sent() -> None:
    answers = ExtenderResults()
    put(answers, pod("w"), "", "b")
    (rejected,) = on(three(), answers).rejected(np.arange(3), named=True)
    assert rejected.plugin == "Extender"
    assert rejected.explanation.reasons_by_row() == [
        ("node(s) did not fit when the extenders were called",),
        ("extender http://e: busy",),
        ("node(s) did not fit when the extenders were called",),
    ]
    put(answers, pod("v"), "a")
    assert on(three(), answers, "v").rejected(np.array([0])) == ()


def test_an_answer_is_lacking_once_the_pod_has_other_requirements_or_labels() -> None:
    answers = ExtenderResults()
    assert answers.lack(parse_pod(pod("w")))
    put(answers, pod("w"), "a")
    assert not answers.lack(parse_pod(pod("w", annotations={"note": "new"})))
    assert answers.lack(parse_pod(pod("w", labels={"app": "other"})))
    assert answers.lack(parse_pod(pod("w", cpu="3")))


def test_of_too_many_different_answers_no_scores_are_kept_then_none_at_all() -> None:
    answers = ExtenderResults()
    for number in range(600):
        put(answers, pod(f"w{number}"), "ab", "", e=[number, 0])
    found = answers.on(ClusterView(three()))
    assert len(set(found.values())) == 501
    assert not found[uid_of("w550")].scores
    for number in range(600, 1_099):
        put(answers, pod(f"w{number}"), [f"n{number}"])
    with pytest.raises(ExtenderError, match="in more than 1000 different ways"):
        put(answers, pod("last"), "c")


def test_an_extender_may_have_a_reason_of_its_own_for_each_of_1200_nodes() -> None:
    names = [f"n{number}" for number in range(1_200)]
    failed = {n: NodeFailure(f"not {n}", resolvable=False, extender="http://e") for n in names}
    answer = said(pod("w"), (), failed).nodes
    assert answer is not None
    found = answer.on(ClusterView(cluster(*map(node, names))))
    (rejected,) = found.rejected(np.arange(1_200))
    counts = dict(rejected.explanation.nodes_per_reason())
    assert counts["not n7"] == 1
    assert counts["other reasons of extender http://e"] == 200
