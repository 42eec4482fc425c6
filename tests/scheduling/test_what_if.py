"""Decisions as if some pods were absent or added; the state stays unchanged."""

from dataclasses import replace
from typing import ClassVar

import pytest

from deciding import Deciding
from mooring.framework.verdicts import PluginError
from mooring.gpu_cards.card_plugin import AssignsInTrials
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.events import Kind
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_service
from mooring.scheduling.cycle import tie_break_seed
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf, held_back, stays_on_its_node, without_preemption
from mooring.testing.builders import node, pod, service, uid_of

GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}
GROUP = "scheduling.x-k8s.io/pod-group"


def what_if(deciding: Deciding, salt: int = 0) -> WhatIf:
    return WhatIf(ResultCache(deciding.cluster), salt=salt)


def test_removed_and_added_pods_count_in_every_trial_and_in_no_other_decision() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="2"), pod("old", cpu="4", node="a"))
    tried, wanted = what_if(deciding), parse_pod(pod("new", cpu="4"))
    before = deciding.cluster.nodes.requested("cpu").tolist()
    tried.remove(uid_of("old"))
    tried.add(parse_pod(pod("other", cpu="1")), "b", deciding.pipeline)
    for _ in range(2):
        with tried.trial():
            assert deciding.cluster.pod(uid_of("old")) is None
            assert deciding.cluster.pod(uid_of("other")) is not None
            outcome = tried.decide(wanted, deciding.pipeline)
        assert isinstance(outcome, ScheduleResult)
        assert outcome.node == "a"
        assert deciding.cluster.nodes.requested("cpu").tolist() == before
    assert isinstance(tried.decide(wanted, deciding.pipeline), FitError)


def test_a_removed_pod_loses_its_nomination_for_the_trial() -> None:
    deciding = Deciding(node("a", cpu="4"))
    deciding.state.nominate(parse_pod(pod("first", cpu="4", priority=9)), "a")
    tried, wanted = what_if(deciding), parse_pod(pod("second", cpu="4"))
    assert isinstance(tried.decide(wanted, deciding.pipeline), FitError)
    tried.remove(uid_of("first"))
    with tried.trial():
        assert isinstance(tried.decide(wanted, deciding.pipeline), ScheduleResult)
    assert deciding.cluster.nominations.get(uid_of("first")) is not None


def test_a_nominated_pod_is_left_its_requests_in_trials_alone() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"))
    tried, wanted = what_if(deciding), parse_pod(pod("second", cpu="4"))
    tried.nominate(parse_pod(pod("first", cpu="4", priority=9)), "a")
    tried.nominate(parse_pod(pod("other", cpu="4", priority=9)), "gone")
    with tried.trial():
        assert len(tried.feasible_rows(wanted, deciding.pipeline)) == 1
    assert len(tried.feasible_rows(wanted, deciding.pipeline)) == 2
    assert len(deciding.cluster.nominations) == 0


def test_an_added_pod_whose_node_has_gone_is_left_out() -> None:
    deciding = Deciding(node("a"), node("b"))
    tried = what_if(deciding)
    tried.add(parse_pod(pod("new")), "b", deciding.pipeline)
    deciding.state.delete(Kind.NODE, "b")
    with tried.trial():
        assert deciding.cluster.pod(uid_of("new")) is None


def test_an_added_pod_that_was_bound_meanwhile_is_there_once() -> None:
    deciding = Deciding(node("a"), node("b"), pod("new", node="a"))
    tried = what_if(deciding)
    tried.add(parse_pod(pod("new")), "b", deciding.pipeline)
    with tried.trial():
        placed = deciding.cluster.pod(uid_of("new"))
        assert placed is not None
        assert placed.pod.node_name == "a"


def test_what_one_trial_changes_beside_is_undone_with_it() -> None:
    deciding = Deciding(node("a", cpu="4"), pod("old", cpu="4", node="a"))
    tried = what_if(deciding)
    with tried.trial() as trial:
        trial.remove(uid_of("old"))
        assert len(tried.feasible_rows(parse_pod(pod("new", cpu="4")), deciding.pipeline)) == 1
    with tried.trial():
        assert deciding.cluster.pod(uid_of("old")) is not None


def test_objects_that_select_pods_are_there_in_every_trial_and_afterwards_as_before() -> None:
    labels = {"app": "web"}
    before = service("web", {"app": "former"})
    deciding = Deciding(node("a"), before, pod("web-1", labels=labels, node="a"))
    kept, tried = deciding.state.objects.of(Kind.SERVICE), what_if(deciding)
    wanted, former = parse_pod(pod("web-2", labels=labels)), dict(kept)
    tried.put(Kind.SERVICE, "default/web", parse_service(service("web", labels)))
    tried.put(Kind.SERVICE, "default/more", parse_service(service("more", labels)))
    for _ in range(2):
        with tried.trial():
            assert [one.name for one in deciding.cluster.services(wanted)] == ["more", "web"]
            assert deciding.cluster.default_selector(wanted) is not None
        assert deciding.cluster.services(wanted) == ()
        assert deciding.cluster.default_selector(wanted) is None
        assert kept == former


def test_the_node_is_the_one_of_the_first_attempt_with_this_salt() -> None:
    deciding = Deciding(*(node(f"n{number}") for number in range(7)))
    for salt in range(20):
        outcome = what_if(deciding, salt).decide(parse_pod(pod("web")), deciding.pipeline)
        assert isinstance(outcome, ScheduleResult)
        best = deciding.cluster.nodes_in_order.tolist()
        assert outcome.row == best[tie_break_seed(uid_of("web"), 1, salt) % len(best)]


def test_rows_that_are_kept_for_nominated_pods_are_not_feasible() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"))
    deciding.state.nominate(parse_pod(pod("first", cpu="4", priority=9)), "a")
    rows = what_if(deciding).feasible_rows(parse_pod(pod("second", cpu="4")), deciding.pipeline)
    assert [deciding.cluster.nodes.name(row) for row in rows.tolist()] == ["b"]


def test_members_of_a_group_get_nodes_together_beside_what_was_added() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), plugins=GANGS)
    members = [parse_pod(pod(f"m{i}", cpu="3", labels={GROUP: "train"})) for i in range(2)]
    for member in members:
        deciding.state.put_unscheduled(member)
    group = deciding.cluster.pod_groups.of(members[0])
    assert group is not None
    tried = what_if(deciding)
    assert len(tried.decide_group(group, members, deciding.pipeline, SearchBudget()).rows) == 2
    tried.add(parse_pod(pod("other", cpu="3")), "a", deciding.pipeline)
    assert len(tried.decide_group(group, members, deciding.pipeline, SearchBudget()).rows) == 1


def test_a_pod_is_held_back_by_a_limit_before_any_plugin_is_asked() -> None:
    deciding = Deciding(node("a"))
    requests = {f"acme.example/r{i}": 1 for i in range(LIMITS[Counted.RESOURCES] + 1)}
    large = parse_pod(pod("web", gates=["wait"], requests=requests))
    assert held_back(large, deciding.pipeline) == large.limit_exceeded


def test_a_pod_is_held_back_by_the_plugins_that_are_asked() -> None:
    pipeline = Deciding(node("a")).pipeline
    gated = parse_pod(pod("web", gates=["wait"]))
    assert "wait" in str(held_back(gated, pipeline))
    assert "wait" in str(held_back(gated, pipeline, only="SchedulingGates"))
    assert held_back(gated, pipeline, only="GangScheduling") is None
    assert held_back(parse_pod(pod("web")), pipeline) is None


def test_no_victims_are_looked_for_without_preemption() -> None:
    deciding = Deciding(node("a", cpu="4"), pod("low", cpu="4", node="a"))
    tried, high = what_if(deciding), parse_pod(pod("high", cpu="4", priority=9))
    with_victims = tried.decide(high, deciding.pipeline)
    without = tried.decide(high, without_preemption(deciding.pipeline))
    assert isinstance(with_victims, FitError)
    assert with_victims.nomination is not None
    assert isinstance(without, FitError)
    assert without.nomination is None


@pytest.mark.parametrize(
    ("owner", "stays"),
    [("DaemonSet", True), ("Node", True), ("ReplicaSet", False), (None, False)],
)
def test_pods_of_daemon_sets_and_static_ones_come_back_to_their_node(
    owner: str | None,
    stays: bool,  # noqa: FBT001 - parametrized
) -> None:
    raw = pod("web")
    if owner is not None:
        reference = {"kind": owner, "name": "x", "uid": "x", "controller": True}
        raw["metadata"]["ownerReferences"] = [reference]
    assert stays_on_its_node(parse_pod(raw)) is stays


def test_a_change_that_fails_is_made_in_no_later_trial() -> None:
    deciding = Deciding(node("a", cpu="4"))
    tried = what_if(deciding)

    class Fails(AssignsInTrials):
        name: ClassVar[str] = "Fails"
        depends_on_node_only: ClassVar[bool] = False

        def reserve(self, pod: Pod, node: str) -> None: ...

        def unreserve(self, pod: Pod, node: str) -> None: ...

        def assign(self, pod: Pod, row: int) -> None:
            raise PluginError(f"{pod.name} on {row}")

    pipeline = replace(deciding.pipeline, reserve=(Fails(),))
    with tried.trial(), pytest.raises(PluginError):
        tried.add(parse_pod(pod("web", cpu="1")), "a", pipeline)
    with tried.trial():
        assert deciding.cluster.pod(uid_of("web")) is None
