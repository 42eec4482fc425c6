"""What is kept of the answers about members, and what it means on rows."""

from typing import Any

import numpy as np

from memory import traced_memory
from mooring.engine.extenders.answers import ExtenderAnswers, Filtered, NodeFailure
from mooring.engine.groups.answers import MOST_DIFFERENT, GroupAnswers
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod

BUSY = NodeFailure("busy", resolvable=True, extender="http://e")


def member(name: str, **fields: Any) -> Pod:
    return parse_pod(pod(name, **fields))


def answer(
    *passed: str, failed: tuple[str, ...] = (), scores: tuple[int, ...] = ()
) -> ExtenderAnswers:
    """Return answers of extenders that passed these nodes, with scores, and failed those."""
    by_extender = {"http://e": np.array(scores, np.int64)} if scores else {}
    filtered = Filtered(passed, dict.fromkeys(failed, BUSY))
    return ExtenderAnswers(filtered=filtered, scores=by_extender)


def three() -> ClusterState:
    return cluster(node("a"), node("b"), node("c"))


def test_each_row_is_as_extenders_answered_about_its_node() -> None:
    answers = GroupAnswers()
    answers.put(member("w"), answer("c", "a", failed=("b",), scores=(70, 10)))
    found = answers.on(ClusterView(three()))[member("w").uid]
    assert found.passed.tolist() == [True, False, True]
    assert found.scores is not None
    assert found.scores.tolist() == [10, 0, 70]


def test_rows_are_found_by_the_names_of_nodes_that_may_have_moved() -> None:
    answers, state = GroupAnswers(), three()
    answers.put(member("w"), answer("c", failed=("a",)))
    for name in "ac":
        state.delete(Kind.NODE, name)
    state.put(Kind.NODE, "c", parse_object(Kind.NODE, node("c")))
    state.put(Kind.NODE, "d", parse_object(Kind.NODE, node("d")))
    found = answers.on(ClusterView(state))[member("w").uid]
    passed = [state.nodes.names[row] for row in np.flatnonzero(found.passed)]
    assert passed == ["c"]


def test_members_with_equal_answers_share_them_whatever_the_reasons() -> None:
    answers, other = (
        GroupAnswers(),
        NodeFailure("w2 may not", resolvable=False, extender="http://e"),
    )
    answers.put(member("w1"), answer("a", failed=("b",)))
    answers.put(member("w2"), ExtenderAnswers(filtered=Filtered(("a",), {"b": other})))
    answers.put(member("w3"), answer("b", failed=("a",)))
    found = answers.on(ClusterView(three()))
    assert found[member("w1").uid] is found[member("w2").uid]
    assert found[member("w1").uid] is not found[member("w3").uid]


def test_an_answer_about_thousands_of_nodes_is_not_kept_for_each_member() -> None:
    answers, members = GroupAnswers(), [member(f"w{i}") for i in range(100)]
    given = answer(*(f"n{i}" for i in range(5_000)), scores=(1,) * 5_000)
    answers.put(members[0], given)
    with traced_memory() as taken_so_far:
        for each in members:
            answers.put(each, given)
        size = taken_so_far()
    assert size < 1_000_000


def test_members_with_other_scores_are_different() -> None:
    answers = GroupAnswers()
    answers.put(member("w1"), answer("a", "b", scores=(1, 2)))
    answers.put(member("w2"), answer("a", "b", scores=(2, 1)))
    found = answers.on(ClusterView(three()))
    assert found[member("w1").uid] is not found[member("w2").uid]


def test_nodes_that_were_not_sent_pass_only_for_preemption() -> None:
    answers, cluster_view = GroupAnswers(), ClusterView(three())
    answers.put(member("w"), answer("a", failed=("b",)))
    assert answers.on(cluster_view)[member("w").uid].passed.tolist() == [True, False, False]
    lenient = answers.on(cluster_view, not_sent=True)[member("w").uid]
    assert lenient.passed.tolist() == [True, False, True]


def test_a_rejection_names_the_extender_and_says_which_nodes_were_not_sent() -> None:
    answers = GroupAnswers()
    answers.put(member("w"), answer(failed=("b",)))
    found = answers.on(ClusterView(three()))[member("w").uid]
    (rejected,) = found.rejected(np.arange(3))
    assert rejected.plugin == "Extender"
    assert rejected.explanation.reasons_by_row() == [
        ("node(s) did not fit when the extenders were called",),
        ("extender http://e: busy",),
        ("node(s) did not fit when the extenders were called",),
    ]
    answers.put(member("v"), answer("a"))
    assert answers.on(ClusterView(three()))[member("v").uid].rejected(np.array([0])) == ()


def test_an_answer_is_lacking_once_the_pod_has_other_requirements_or_labels() -> None:
    answers = GroupAnswers()
    assert answers.lacks(member("w"))
    answers.put(member("w"), answer("a"))
    assert not answers.lacks(member("w", annotations={"note": "new"}))
    assert answers.lacks(member("w", labels={"app": "other"}))
    assert answers.lacks(member("w", cpu="3"))
    answers.drop(member("w"))
    assert answers.lacks(member("w"))


def test_an_answer_is_lost_when_a_node_that_passed_fits_no_more_or_has_gone() -> None:
    answers, state = GroupAnswers(), three()
    answers.put(member("w"), answer("a", "c", failed=("b",)))
    cluster_view, web = ClusterView(state), member("w")
    assert not answers.lost(web, np.array([True, False, True]), cluster_view)
    assert answers.lost(web, np.array([True, True, False]), cluster_view)
    assert not answers.lost(member("unknown"), np.zeros(3, np.bool_), cluster_view)
    state.delete(Kind.NODE, "a")
    assert answers.lost(web, np.array([True, True, True]), ClusterView(state))


def test_of_too_many_different_answers_the_scores_are_dropped() -> None:
    answers = GroupAnswers()
    for number in range(MOST_DIFFERENT + 1):
        answers.put(member(f"w{number}"), answer("a", "b", scores=(number, 0)))
    assert not answers.too_many
    found = answers.on(ClusterView(three()))
    assert len({id(nodes) for nodes in found.values()}) == 1
    assert found[member("w3").uid].scores is None
    assert len(found) == MOST_DIFFERENT + 1


def test_answers_that_pass_too_many_different_nodes_are_too_many() -> None:
    answers = GroupAnswers()
    for number in range(MOST_DIFFERENT):
        answers.put(member(f"w{number}"), answer(f"n{number}"))
    assert not answers.too_many
    answers.put(member("last"), answer("other"))
    assert answers.too_many


def test_answers_that_were_replaced_are_not_counted() -> None:
    answers = GroupAnswers()
    for number in range(2 * MOST_DIFFERENT):
        answers.put(member("w"), answer(f"n{number}"))
    assert not answers.too_many


def test_so_many_reasons_are_kept_and_the_others_are_their_extender() -> None:
    answers = GroupAnswers()
    names = [f"n{number}" for number in range(1_200)]
    failed = {n: NodeFailure(f"not {n}", resolvable=False, extender="http://e") for n in names}
    answers.put(member("w"), ExtenderAnswers(filtered=Filtered((), failed)))
    state = cluster(*map(node, names))
    found = answers.on(ClusterView(state))[member("w").uid]
    assert len(found.reasons) == 1_001
    (rejected,) = found.rejected(np.arange(1_200))
    counts = dict(rejected.explanation.nodes_per_reason())
    assert counts["other reasons of extender http://e"] == 200
