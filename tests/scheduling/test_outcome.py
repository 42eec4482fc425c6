from deciding import Deciding
from mooring.model.pod import parse_pod
from mooring.scheduling.outcome import FitError, Outcome, ScheduleResult, decision_of
from mooring.testing.builders import node, pod


def test_an_attempt_ends_in_a_schedule_result_or_a_fit_error() -> None:
    assert Outcome.__args__ == (ScheduleResult, FitError)


def test_two_schedule_results_are_never_equal() -> None:
    """A result reads live columns, so comparing values would compare different moments."""
    assert ScheduleResult.__eq__ is object.__eq__
    assert FitError.__eq__ is object.__eq__


def test_a_schedule_result_has_its_node_every_score_and_every_rejection() -> None:
    deciding = Deciding(node("a"), node("b", cpu="8"), node("c", cpu="0"))
    decision = deciding.decision(pod("web", cpu="1"))
    assert (decision.pod.key, decision.profile) == ("default/web", "default-scheduler")
    assert (decision.node, decision.message) == ("b", None)
    assert decision.scores is not None
    assert decision.scores.keys() == {"a", "b"}
    assert decision.rejections.keys() == {"c"}


def test_a_short_record_names_the_best_nodes_and_no_rejections() -> None:
    deciding = Deciding(node("a"), node("b", cpu="8"), node("c", cpu="16"), node("d", cpu="0"))
    raw = pod(cpu="1")
    decision = decision_of(parse_pod(raw), deciding.pipeline, deciding.outcome(raw), 2)
    assert decision.scores is not None
    assert [*decision.scores] == ["c", "b"]
    assert decision.rejections == {}


def test_a_fit_error_has_the_message_and_the_nomination() -> None:
    deciding = Deciding(node("n1", cpu="1"), pod("victim", cpu="1", node="n1"))
    decision = deciding.decision(pod("urgent", cpu="1", priority=9))
    assert (decision.node, decision.scores) == (None, None)
    assert (decision.nominated_node, [v.key for v in decision.victims]) == (
        "n1",
        ["default/victim"],
    )
    assert decision.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    )
    assert decision.rejections["n1"].resolvable


def test_a_record_names_the_version_whose_rules_decided() -> None:
    assert Deciding(node("a")).decision(pod()).kubernetes_version == "1.37"
    pinned = Deciding(node("a", cpu="1"), kubernetesVersion="1.35")
    assert pinned.decision(pod()).kubernetes_version == "1.35"
    assert pinned.decision(pod(cpu="2")).kubernetes_version == "1.35"
