"""The node that is chosen for a pod, or the reasons why no node fits."""

from dataclasses import replace
from typing import Any

import pytest

from deciding import Deciding
from extending import said
from mooring.extenders.verdicts import (
    ExtenderError,
    ExtenderResults,
    Needed,
    NodeFailure,
    PodExtenderResults,
)
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.scheduling.cycle import LiveDryRun, decide, tie_break_seed
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import node, pod, uid_of
from pod_terms import near, to_pods


def placed(deciding: Deciding, raw: dict[str, object], **arguments: int) -> ScheduleResult:
    outcome = deciding.outcome(raw, **arguments)
    assert isinstance(outcome, ScheduleResult)
    return outcome


def rejected(deciding: Deciding, raw: dict[str, object]) -> FitError:
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    return outcome


def test_the_node_with_the_highest_total_is_chosen() -> None:
    outcome = placed(Deciding(node("small", cpu="2"), node("large", cpu="8")), pod(cpu="1"))
    assert outcome.node == "large"
    assert outcome.scores is not None
    assert outcome.feasible_nodes == 2


def test_a_node_that_fits_alone_is_chosen_without_scores() -> None:
    outcome = placed(Deciding(node("small", cpu="1"), node("large")), pod(cpu="2"))
    assert (outcome.node, outcome.feasible_nodes, outcome.scores) == ("large", 1, None)


def test_a_tie_is_broken_by_the_seed_alone() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    chosen = [placed(Deciding(*nodes), pod(), seed=seed).node for seed in range(6)]
    assert chosen == ["n0", "n1", "n2", "n0", "n1", "n2"]


def test_the_seed_does_not_let_a_lower_total_win() -> None:
    deciding = Deciding(node("small", cpu="2"), node("large", cpu="8"))
    assert {placed(deciding, pod(cpu="1"), seed=seed).node for seed in range(5)} == {"large"}


def test_without_nodes_there_is_one_sentence_and_no_post_filter() -> None:
    outcome = rejected(Deciding(), pod(priority=9))
    assert outcome.message == "no nodes available to schedule pods"
    assert outcome.nomination is None


def test_a_pod_with_any_number_of_resources_is_decided() -> None:
    """A plugin may have more than 64 reasons, although a word of 64 bits is not enough."""
    amounts = {f"example.com/r{i:03}": 1 for i in range(100)}
    raw = pod(requests=amounts)
    without = rejected(Deciding(node("n1")), raw)
    assert without.message.count("Insufficient") == 100
    assert without.diagnosis.plugins == {"NodeResourcesFit"}
    deciding = Deciding(node("n1"), node("n2", resources=amounts))
    decision = deciding.decision(raw)
    assert decision.node == "n2"
    assert len(decision.rejections["n1"].reasons) == 100


def test_a_fit_error_counts_reasons_and_adds_what_post_filters_say() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"), node("c", unschedulable=True))
    assert rejected(deciding, pod(cpu="2")).message == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_after_a_post_filter_that_nominates_a_node_no_other_runs() -> None:
    deciding = Deciding(node("n1", cpu="1"), pod("victim", cpu="1", node="n1"))
    outcome = rejected(deciding, pod("urgent", cpu="1", priority=9))
    assert outcome.nomination is not None
    assert outcome.nomination.node == "n1"
    assert [victim.name for victim in outcome.nomination.victims] == ["victim"]
    assert outcome.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    )


def test_a_pod_goes_to_the_node_that_was_nominated_for_it_though_others_score_higher() -> None:
    deciding = Deciding(node("kept", cpu="2"), node("large", cpu="64"))
    raw = pod(cpu="1")
    deciding.nominate(raw, "kept")
    outcome = placed(deciding, raw)
    assert (outcome.node, outcome.feasible_nodes, outcome.evaluated_nodes) == ("kept", 1, 1)


def test_a_nominated_node_that_does_not_fit_any_more_is_passed_over() -> None:
    deciding = Deciding(node("kept", cpu="1"), node("large", cpu="64"))
    raw = pod(cpu="2")
    deciding.nominate(raw, "kept")
    assert placed(deciding, raw).node == "large"


def test_a_nominated_pods_resources_are_free_only_for_pods_of_higher_priority() -> None:
    deciding = Deciding(node("n1", cpu="1"))
    deciding.nominate(pod("hopeful", cpu="1", priority=5), "n1")
    assert "Insufficient cpu" in rejected(deciding, pod("equal", cpu="1", priority=5)).message
    assert placed(deciding, pod("better", cpu="1", priority=6)).node == "n1"


def test_a_sampling_search_starts_at_a_position_and_counts_evaluated_nodes() -> None:
    nodes = [node(f"n{i:03}") for i in range(300)]
    deciding = Deciding(*nodes, percentageOfNodesToScore=10)
    first = placed(deciding, pod())
    assert (first.feasible_nodes, first.evaluated_nodes) == (100, 100)
    later = placed(deciding, pod(), start=150)
    assert later.scores is not None
    assert later.scores(None).keys() == {f"n{i:03}" for i in range(150, 250)}


def test_the_diagnosis_of_a_schedule_result_has_the_reasons_of_the_other_nodes() -> None:
    decision = Deciding(node("small", cpu="1"), node("large")).decision(pod(cpu="2"))
    assert decision.node == "large"
    assert decision.rejections.keys() == {"small"}


def test_deciding_changes_nothing() -> None:
    deciding = Deciding(node("n1", cpu="1"), pod("victim", cpu="1", node="n1"))
    raw = pod("urgent", cpu="1", priority=9)
    first = deciding.decision(raw)
    assert deciding.decision(raw) == first
    assert [p.pod.name for p in deciding.state.pods] == ["victim"]
    assert len(deciding.state.nominations) == 0
    assert deciding.state.nodes.requested.at("cpu", 0) == 1000


def test_the_same_pod_attempt_and_salt_give_the_same_seed() -> None:
    assert tie_break_seed("uid", 1, 7) == tie_break_seed("uid", 1, 7)


def test_another_pod_attempt_or_salt_gives_another() -> None:
    assert (
        len(
            {
                tie_break_seed("a", 1),
                tie_break_seed("b", 1),
                tie_break_seed("a", 2),
                tie_break_seed("a", 1, 1),
            }
        )
        == 4
    )


def test_seeds_spread_evenly_over_a_few_equals() -> None:
    chosen = [tie_break_seed(f"uid-{i}", 1) % 4 for i in range(4000)]
    assert all(900 < chosen.count(k) < 1100 for k in range(4))


def dry_run_of(deciding: Deciding, raw: dict[str, Any]) -> LiveDryRun:
    return LiveDryRun(*deciding.search(raw), deciding.shared)


def test_a_pod_that_only_requests_resources_has_them_in_its_dry_run() -> None:
    deciding = Deciding(node("a"))
    assert dry_run_of(deciding, pod("new", cpu="1")).resource_requests == {"cpu": 1000}


def test_where_another_filter_depends_on_pods_requests_are_not_enough() -> None:
    deciding = Deciding(node("a"))
    assert dry_run_of(deciding, pod("new", cpu="1", ports=[80])).resource_requests is None


def test_a_dry_run_rejects_for_the_first_reason_in_the_present_state() -> None:
    deciding = Deciding(node("a", cpu="1"), pod("there", cpu="1", node="a"))
    dry_run = dry_run_of(deciding, pod("new", cpu="1"))
    assert dry_run.rejection(0) == ("Insufficient cpu",)
    with dry_run.trial() as trial:
        trial.remove(uid_of("there"))
        assert dry_run.rejection(0) == ()
    assert dry_run.rejection(0) == ("Insufficient cpu",)


def test_pods_nominated_to_the_row_must_fit_beside() -> None:
    deciding = Deciding(node("a", cpu="1"))
    deciding.nominate(pod("hoping", cpu="1", priority=5), "a")
    assert dry_run_of(deciding, pod("low", cpu="1")).rejection(0) == ("Insufficient cpu",)
    assert dry_run_of(deciding, pod("high", cpu="1", priority=6)).rejection(0) == ()


def test_a_dry_run_says_what_is_lacking_beside_the_pods_that_are_nominated_there() -> None:
    deciding = Deciding(node("a", cpu="1", memory="1Gi"), pod("there", cpu="1", node="a"))
    deciding.nominate(pod("hoping", memory="1Gi", priority=5), "a")
    lacking = dry_run_of(deciding, pod("low", cpu="1", memory="1Gi")).rejection(0)
    assert lacking == ("Insufficient cpu", "Insufficient memory")


def test_a_pod_must_fit_without_the_pods_that_are_nominated_there_too() -> None:
    deciding = Deciding(node("a"))
    deciding.nominate(pod("hoping", labels={"app": "db"}, priority=5), "a")
    beside = near(to_pods({"app": "db"}))
    dry_run = dry_run_of(deciding, pod("low", affinity=beside))
    assert dry_run.rejection(0) == ("node(s) didn't match pod affinity rules",)


def answered(
    deciding: Deciding, raw: dict[str, object], answers: PodExtenderResults | None = None
) -> Any:
    """Return the result of `decide` for a pod in which extenders are interested."""
    found, pipeline = parse_pod(raw), deciding.pipeline
    given = answers or PodExtenderResults(found)
    return decide(found, pipeline, deciding.shared, seed=0, answers=given)


def test_the_feasible_nodes_are_the_first_thing_that_extenders_are_called_with() -> None:
    deciding = Deciding(node("a"), node("b"), node("small", cpu="1"))
    needed = answered(deciding, pod(cpu="2"))
    assert needed == Needed(needed.pod, ("a", "b"), evaluated_nodes=3)


def test_no_extender_is_called_when_no_node_is_feasible() -> None:
    deciding = Deciding(node("a", cpu="1"))
    assert isinstance(answered(deciding, pod(cpu="2")), FitError)


def test_the_scores_of_extenders_are_added_and_nodes_without_one_get_nothing() -> None:
    deciding = Deciding(node("a"), node("b"), node("c"))
    outcome = answered(deciding, pod(), said(pod(), "abc", x=[0, 30, 0]))
    assert outcome.node == "b"
    table = outcome.scores(None)
    assert table["b"].total == table["a"].total + 30
    assert (table["b"].plugins["x"], table["a"].plugins["x"]) == (30, 0)


def test_the_scores_of_extenders_are_those_of_the_nodes_that_they_passed_in_their_order() -> None:
    deciding = Deciding(node("a"), node("full", cpu="1"), node("b"), node("c"))
    passed = ("c", "gone", "full", "b", "a")
    answers = said(pod(), passed, "", x=[1, 2, 3, 4, 5], y=[10, 20, 30, 40, 50])
    table = answered(deciding, pod(cpu="2"), answers).scores(None)
    assert {name: (s.plugins["x"], s.plugins["y"]) for name, s in table.items()} == {
        "a": (5, 50),
        "b": (4, 40),
        "c": (1, 10),
    }


def test_a_node_that_came_since_the_call_is_not_taken_for_one_that_extenders_passed() -> None:
    deciding, answers = Deciding(node("a"), node("b")), ExtenderResults()
    needed = answered(deciding, pod())
    deciding.state.delete(Kind.NODE, "a")
    deciding.state.put(Kind.NODE, "c", parse_node(node("c")))  # it gets the row of a
    answers.put(needed, needed.nodes, {}, {})
    assert answered(deciding, pod(), answers.about(needed.pod)).node == "b"


def test_what_extenders_passed_and_was_taken_is_asked_about_again_a_few_times() -> None:
    deciding, answers = Deciding(node("a"), node("full", cpu="1")), ExtenderResults()
    needed = replace(answered(deciding, pod(cpu="2")), nodes=("full",), rows=None)
    for _ in range(5):
        known = answers.about(needed.pod)
        assert answered(deciding, pod(cpu="2"), known).nodes == ("a",)
        answers.put(needed, needed.nodes, {}, {})
    with pytest.raises(ExtenderError, match="were taken by other pods each time"):
        answered(deciding, pod(cpu="2"), known)


def test_nodes_that_extenders_filtered_out_are_rejected_by_the_plugin_extender() -> None:
    deciding = Deciding(node("a"), node("b"), node("small", cpu="1"))
    failed = {"a": NodeFailure("busy", resolvable=True), "b": NodeFailure("no", resolvable=False)}
    outcome = answered(deciding, pod(cpu="2"), said(pod(), (), failed))
    assert outcome.message.startswith("0/3 nodes are available: 1 Insufficient cpu, 1 busy, 1 no.")
    assert outcome.diagnosis.plugins == {"Extender", "NodeResourcesFit"}
    assert outcome.diagnosis.rejections()["a"].resolvable


def with_room_since_the_call(failed: str = "a", **asked: Any) -> Any:
    """Return the decision if the extenders passed no node, and another node has room since."""
    deciding = Deciding(node("a"), node("b", cpu="2"), pod("there", cpu="2", node="b"))
    needed, answers = answered(deciding, pod(cpu="1")), ExtenderResults()
    assert needed.nodes == ("a",)
    deciding.state.delete(Kind.POD, uid_of("there"))
    failures = dict.fromkeys(failed, NodeFailure("busy", resolvable=True))
    answers.put(replace(needed, **asked), (), failures, {})
    return answered(deciding, pod(cpu="1"), answers.about(needed.pod))


def test_a_node_that_fits_only_since_the_extenders_were_called_is_rejected_by_them() -> None:
    """Otherwise the node would have no rejection, and its new room would cause no retry."""
    outcome = with_room_since_the_call()
    why = "1 busy, 1 node(s) did not fit when the extenders were called"
    assert outcome.message.startswith(f"0/2 nodes are available: {why}.")
    assert outcome.diagnosis.plugins == {"Extender"}


def test_a_node_that_the_extenders_were_called_with_is_not_said_to_fit_since_then() -> None:
    outcome = with_room_since_the_call("ab", nodes=("a", "b"), rows=None)
    assert outcome.message.startswith("0/2 nodes are available: 2 busy.")


def test_a_node_outside_the_sample_is_not_rejected_by_extenders() -> None:
    outcome = with_room_since_the_call(is_sample=True)
    assert outcome.message.startswith("0/2 nodes are available: 1 busy.")


def test_the_nominated_node_is_what_extenders_are_called_with_first() -> None:
    deciding = Deciding(node("a"), node("b"))
    web, found = pod("web"), parse_pod(pod("web"))
    deciding.nominate(web, "b")
    assert answered(deciding, web) == Needed(found, ("b",), evaluated_nodes=1, nominated=True)
    passes = PodExtenderResults(found, nominee="b", passes_nominee=True)
    assert answered(deciding, web, passes).node == "b"
    fails = PodExtenderResults(found, nominee="b", passes_nominee=False)
    assert answered(deciding, web, fails) == Needed(found, ("a", "b"), evaluated_nodes=2)
