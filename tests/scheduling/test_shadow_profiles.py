"""Profiles in mode Shadow: their decisions are compared with the bindings of others."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Explanation, PluginError
from mooring.groups.model.pod_group import GroupKey, GroupSource, Reservation
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.scheduling import shadow_profiles as shadow_module
from mooring.scheduling.cycle import decide, tie_break_seed
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.shadow_profiles import Shadow
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod, toleration, uid_of
from node_selectors import expression, required_nodes, term
from scheduler_states import put_profile, scheduler_state

OTHERS = {"match": {"schedulerNames": ["default-scheduler"]}}
NOW = 1_700_000_000.0


class Breaks:
    """A plugin that fails for pods with the label `breaks`."""

    name: ClassVar[str] = "Breaks"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> None:
        """Fail for a pod with the label `breaks`."""
        if pod.labels.get("breaks") == "at once":
            raise PluginError("broken")

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Reject the node "small" for pods with the label `breaks`."""
        if "breaks" not in pod.labels:
            return np.ones(len(nodes), np.bool_)
        return np.array([nodes.name(row) != "small" for row in range(len(nodes))])

    def explain(self, _pod: Pod, _nodes: NodeView, _: None) -> Explanation:
        """Raise an error for every pod."""
        raise PluginError("broken")


REGISTRY = Registry((*SHIPPED, Breaks), {})


class Beside:
    """A shadow profile for the pods of another scheduler, and this scheduler's bindings."""

    def __init__(self, *objects: dict[str, Any], **spec: Any) -> None:
        self.clock: float = 0
        self.scheduler = scheduler_state(
            *objects,
            registry=REGISTRY,
            clock=lambda: self.clock,
            now=lambda: NOW + self.clock,
        )
        self.shadow = Shadow(self.scheduler)
        self.scheduler.state.on_events(self.shadow.on_events)
        self.put("candidate", **spec)

    def put(self, name: str, *, mode: str = "Shadow", **spec: Any) -> None:
        put_profile(self.scheduler, name, registry=REGISTRY, **{**OTHERS, "mode": mode, **spec})

    def pending(self, raw: dict[str, Any]) -> None:
        """Show a pod without a node that no profile takes."""
        parsed = parse_pod(raw)
        self.scheduler.without_profile[parsed.uid] = parsed

    def shown_bound(self, raw: dict[str, Any], node_name: str) -> Pod:
        """Let the watch of assigned pods show the pod on the node."""
        bound = parse_pod({**raw, "spec": {**raw["spec"], "nodeName": node_name}})
        self.scheduler.state.put(Kind.POD, bound.uid, bound)
        return bound

    def bind(self, raw: dict[str, Any], node_name: str) -> Pod:
        """Let the other scheduler bind a pending pod; both watches show this."""
        self.pending(raw)
        bound = self.shown_bound(raw, node_name)
        del self.scheduler.without_profile[bound.uid]
        self.shadow.forget(bound.uid)
        return bound

    def compare(self) -> None:
        """Make all possible decisions, one after the other."""
        while self.shadow.compare(until=-1.0):
            pass

    def results(self) -> Counter[str]:
        self.compare()
        return Counter(record["result"] for record in self.records())

    def records(self, namespace: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.shadow.report(namespace)["pods"]
        return found

    def status(self) -> dict[str, Any]:
        found = self.shadow.status("candidate")
        assert found is not None
        return found


TWO = (node("small", cpu="4", memory="8Gi"), node("large", cpu="8", memory="16Gi"))


def test_a_pod_on_the_node_that_the_profile_chooses_is_the_same() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(cpu="2", memory="4Gi"), "large")
    assert beside.results() == {"same": 1}
    (record,) = beside.records()
    assert (record["node"], record["boundNode"]) == ("large", "large")
    assert record["scores"]["large"]["total"] > 0


def test_a_pod_on_a_node_of_equal_score_is_tied_whichever_of_them_is_chosen() -> None:
    beside = Beside(*(node(f"n{number}") for number in range(5)))
    for number in range(5):
        beside.bind(pod(f"p{number}", cpu="1"), f"n{number}")
        beside.scheduler.state.delete(Kind.POD, uid_of(f"p{number}"))
    assert {*beside.results()} <= {"same", "tied"}


def test_a_pod_on_a_node_of_lower_score_is_different_and_both_scores_are_kept() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(cpu="2", memory="4Gi"), "small")
    assert beside.results() == {"different": 1}
    (record,) = beside.records()
    scores = {name: score["total"] for name, score in record["scores"].items()}
    assert (record["node"], record["boundNode"]) == ("large", "small")
    assert scores["large"] > scores["small"]


def with_devices(**devices: list[str]) -> list[dict[str, Any]]:
    """Return a class, and for each name a node with one core and these devices."""
    return [
        device_class("gpu"),
        *(node(name, cpu="4" if name == "large" else "2") for name in devices),
        *(resource_slice(f"s-{name}", some, node=name) for name, some in devices.items()),
    ]


def using(name: str, claim: str = "claim") -> dict[str, Any]:
    entries = [{"name": "gpu", "resourceClaimName": claim}]
    return pod(name, cpu="1", spec={"resourceClaims": entries})


def held(claim: str, device: str, node_name: str, *pods: str) -> dict[str, Any]:
    """Return the claim as the other scheduler has written it for these pods."""
    return device_claim(claim, allocation=allocated(device, node=node_name), reserved_for=pods)


def test_the_devices_that_a_pod_got_with_its_node_are_free_for_the_decision_about_it() -> None:
    objects = with_devices(small=["d0"], large=["d0"])
    beside = Beside(*objects, held("claim", "d0", "small", "web"))
    beside.bind(using("web"), "small")
    assert beside.results() == {"different": 1}
    assert beside.records()[0]["node"] == "large"
    assert len(beside.scheduler.cluster.dynamic_resources.claims.allocated.dedicated) == 1


def test_the_devices_of_other_pods_are_in_use_for_the_decision() -> None:
    objects = with_devices(small=["d0"], large=["d0"])
    claims = [held("theirs", "d0", "large", "other"), held("claim", "d0", "small", "web")]
    beside = Beside(*objects, *claims)
    beside.shown_bound(using("other", "theirs"), "large")
    assert beside.shadow.compare(0.0)
    beside.bind(using("web"), "small")
    assert beside.results() == {"same": 1}


def test_a_pod_keeps_to_the_devices_that_an_earlier_pod_shares_with_it() -> None:
    objects = with_devices(small=["d0"], large=["d0"])
    beside = Beside(*objects, held("claim", "d0", "small", "first", "web"))
    beside.shown_bound(using("first"), "small")
    assert beside.shadow.compare(0.0)
    beside.bind(using("web"), "small")
    assert beside.results() == {"same": 1}


def test_a_pod_on_a_node_that_the_profile_rejects_is_told_with_plugin_and_reason() -> None:
    beside = Beside(node("a"), node("b", taints=["x:NoSchedule"]))
    beside.bind(pod(), "b")
    assert beside.results() == {"rejected": 1}
    assert beside.records()[0]["message"] == "TaintToleration: node(s) had untolerated taint(s)"


def test_a_pod_for_which_the_profile_has_no_node_is_unschedulable_and_evicts_nothing() -> None:
    low = pod("low", node="a", cpu="4", priority=-5)
    beside = Beside(node("a", cpu="4"), low)
    beside.bind(pod(cpu="4", priority=5), "a")
    assert beside.results() == {"unschedulable": 1}
    assert "Insufficient cpu" in beside.records()[0]["message"]
    assert "preemption" not in beside.records()[0]["message"]
    assert beside.scheduler.state.nominations.get(uid_of("web")) is None


amounts = st.sampled_from(["500m", "1", "1500m", "2"])
sizes = st.sampled_from(["2", "3", "4", "8"])


@given(
    nodes=st.lists(sizes, min_size=1, max_size=6),
    pods=st.lists(st.tuples(amounts, amounts, st.booleans()), min_size=1, max_size=12),
    bursts=st.lists(st.integers(1, 5), min_size=12, max_size=12),
)
def test_a_scheduler_with_the_same_policy_is_agreed_with_however_fast_it_binds(
    nodes: list[str], pods: list[tuple[str, str, bool]], bursts: list[int]
) -> None:
    objects = [
        node(f"n{number}", cpu=cpu, taints=["spot:NoSchedule"] if number % 3 == 2 else [])
        for number, cpu in enumerate(nodes)
    ]
    other, beside = Beside(*objects), Beside(*objects)
    pipeline = other.scheduler.profiles.in_force["candidate"].pipeline
    cache, waiting = ResultCache(other.scheduler.cluster), bursts[0]
    for number, (cpu, memory, tolerates) in enumerate(pods):
        tolerations = [toleration("spot")] if tolerates else []
        raw = pod(f"p{number}", cpu=cpu, memory=f"{memory}", tolerations=tolerations)
        seed = tie_break_seed(f"{number}", 7)
        chosen = decide(parse_pod(raw), pipeline, cache, seed=seed)
        if not isinstance(chosen, ScheduleResult):
            continue
        other.shown_bound(raw, chosen.node)
        beside.bind(raw, chosen.node)
        waiting -= 1
        if not waiting:
            beside.compare()
            waiting = bursts[number]
    assert {*beside.results()} <= {"same", "tied"}


def test_deciding_leaves_the_state_as_it_was() -> None:
    beside = Beside(*TWO)
    for number in range(4):
        beside.bind(pod(f"p{number}", cpu="1", ports=[8000 + number]), "small")
    before = beside.scheduler.cluster.nodes.requested("cpu").copy()
    beside.compare()
    assert (beside.scheduler.cluster.nodes.requested("cpu") == before).all()
    assert len(beside.scheduler.state.pods) == 4
    assert not beside.scheduler.state.pods.assumed


def test_pods_that_mooring_binds_are_not_compared_and_not_seen_by_earlier_decisions() -> None:
    beside = Beside(node("n1", cpu="4"), node("n2", cpu="4"))
    beside.put("mooring", mode="Active", match={"schedulerNames": ["mooring"]})
    beside.bind(pod("theirs", cpu="1"), "n1")
    own = pod("own", cpu="4", node="n2", spec={"schedulerName": "mooring"})
    beside.scheduler.state.put(Kind.POD, uid_of("own"), parse_pod(own))
    # With the pod on n2, n1 would be the only node that fits, and nothing would be scored.
    beside.compare()
    (record,) = beside.records()
    assert record["pod"] == "default/theirs"
    assert record["scores"]


def test_a_pod_that_an_active_profile_takes_is_not_compared() -> None:
    beside = Beside(*TWO)
    beside.put("takes", mode="Active")
    beside.bind(pod(), "small")
    assert beside.results() == {}


def test_a_pod_that_had_a_node_from_the_beginning_is_not_compared() -> None:
    beside = Beside(*TWO)
    beside.shown_bound(pod(), "small")
    assert beside.results() == {}
    assert beside.status()["compared"] == 0


def test_pods_that_only_one_of_the_watches_shows_are_remembered_up_to_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow_module, "_MOST_REMEMBERED", 2)
    beside = Beside(*TWO)
    for number in range(3):
        beside.shown_bound(pod(f"static-{number}"), "large")
        beside.shadow.forget(f"gone-{number}")
    beside.compare()
    for number in range(3):
        beside.shadow.forget(parse_pod(pod(f"static-{number}")).uid)
    assert beside.status()["compared"] == 2


@pytest.mark.parametrize("first", ["bound", "left"])
def test_the_two_watches_may_show_a_binding_in_either_order(first: str) -> None:
    beside = Beside(*TWO)
    uid = parse_pod(pod()).uid
    if first == "left":
        beside.shadow.forget(uid)
    beside.shown_bound(pod(), "large")
    if first == "bound":
        assert beside.results() == {}
        beside.shadow.forget(uid)
    assert beside.results() == {"same": 1}


def test_the_loop_is_woken_when_there_is_something_to_compare() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(), "large")
    assert beside.scheduler.work.is_set()


def test_a_pod_that_is_deleted_meanwhile_is_compared_too() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(cpu="2", memory="4Gi"), "large")
    beside.scheduler.state.delete(Kind.POD, uid_of("web"))
    assert beside.results() == {"same": 1}


@pytest.mark.parametrize("change", ["removed", "Active", "changed"])
def test_a_profile_that_is_no_longer_in_force_as_it_was_decides_nothing_more(change: str) -> None:
    beside = Beside(*TWO)
    beside.bind(pod("before"), "small")
    beside.compare()
    beside.bind(pod("after"), "small")
    if change == "removed":
        beside.scheduler.profiles.remove("candidate")
    else:
        beside.put("candidate", mode="Shadow" if change == "changed" else "Active")
    beside.compare()
    assert [record["pod"] for record in beside.records()] == ["default/before"]
    statuses = beside.shadow.report()["profiles"]
    assert [status["compared"] for status in statuses.values()] == [0] * (change == "changed")


def test_namespaces_and_labels_select_the_pods_of_a_shadow_profile() -> None:
    match = {**OTHERS["match"], "podSelector": {"matchLabels": {"app": "web"}}}
    beside = Beside(*TWO, match=match)
    beside.bind(pod("a", labels={"app": "web"}), "small")
    beside.bind(pod("b"), "small")
    beside.compare()
    assert [record["pod"] for record in beside.records()] == ["default/a"]


def test_a_pod_that_is_not_bound_for_long_is_decided_once_and_compared_when_it_is_bound() -> None:
    beside = Beside(*TWO)
    raw = pod(cpu="2", memory="4Gi")
    beside.pending(raw)
    for beside.clock in (0.0, 10.0, 20.0):
        assert not beside.shadow.compare(until=0.0)
    beside.clock = 30.0
    assert beside.results() == {"pending": 1}
    beside.clock = 90.0
    assert beside.results() == {"pending": 1}
    assert beside.records()[0]["node"] == "large"
    beside.bind(raw, "large")
    assert beside.results() == {"pending": 1, "same": 1}
    assert beside.status()["compared"] == 1


def test_a_pending_pod_that_the_profile_has_no_node_for_is_told_with_the_reason() -> None:
    beside = Beside(*TWO)
    beside.pending(pod(cpu="100"))
    for beside.clock in (0.0, 30.0):
        beside.compare()
    (record,) = beside.records()
    assert (record["result"], record["node"]) == ("pending", None)
    assert "Insufficient cpu" in record["message"]


def test_when_too_many_pods_come_at_once_the_first_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow_module, "_MOST_WAITING", 3)
    beside = Beside(*TWO)
    for beside.clock in range(5):
        beside.bind(pod(f"p{beside.clock}"), "small")
    beside.compare()
    assert [record["pod"] for record in beside.records()] == [
        "default/p4",
        "default/p3",
        "default/p2",
    ]
    assert (beside.status()["compared"], beside.status()["notCompared"]) == (3, 2)


def test_only_the_last_pods_are_kept_and_the_counts_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_module, "_MOST_RECORDS", 2)
    beside = Beside(*TWO)
    for beside.clock in range(3):
        beside.bind(pod(f"p{beside.clock}"), "small")
        beside.compare()
    assert [record["pod"] for record in beside.records()] == ["default/p2", "default/p1"]
    assert beside.status()["compared"] == 3


@pytest.mark.parametrize("when", ["at once", "when it explains"])
def test_a_plugin_that_fails_costs_one_comparison(when: str) -> None:
    beside = Beside(*TWO, plugins={"multiPoint": {"enabled": [{"name": "Breaks"}]}})
    beside.bind(pod("good"), "small")
    beside.bind(pod("bad", labels={"breaks": when}), "small")
    assert sum(beside.results().values()) == 1
    assert beside.status()["notCompared"] == 1


def test_a_pod_that_exceeds_a_limit_is_not_decided() -> None:
    raw = pod(affinity=required_nodes(*(term(expression(f"k{n}", "Exists")) for n in range(5000))))
    assert parse_pod(raw).limit_exceeded is not None
    beside = Beside(*TWO)
    beside.pending(raw)
    for beside.clock in (0, 30):
        beside.compare()
    beside.bind(raw, "small")
    assert beside.results() == {}


def test_the_report_can_be_of_one_namespace() -> None:
    beside = Beside(*TWO)
    beside.bind(pod("a", namespace="team-a"), "small")
    beside.bind(pod("b", namespace="team-b"), "small")
    beside.compare()
    assert [record["pod"] for record in beside.records("team-a")] == ["team-a/a"]


def test_the_status_has_counts_and_how_full_and_evenly_used_the_nodes_are() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(cpu="2", memory="2Gi"), "small")
    beside.compare()
    assert beside.status() == {
        "since": "2023-11-14T22:13:20Z",
        "compared": 1,
        "same": 0,
        "tied": 0,
        "different": 1,
        "rejected": 0,
        "unschedulable": 0,
        "notCompared": 0,
        "boundUtilizationPercent": 38,  # the mean of 2/4 and 2/8
        "shadowUtilizationPercent": 19,  # the mean of 2/8 and 2/16
        "boundBalancePercent": 88,  # 1 - (2/4 - 2/8) / 2
        "shadowBalancePercent": 94,
    }


def test_metrics_count_results_and_observe_the_nodes_of_both() -> None:
    beside = Beside(*TWO)
    beside.bind(pod(cpu="2", memory="2Gi"), "small")
    beside.compare()
    page = beside.scheduler.metrics.exposition("")[0].decode()
    assert 'mooring_shadow_pods_total{profile="candidate",result="different"} 1.0' in page
    assert 'mooring_shadow_node_utilization_sum{choice="bound",profile="candidate"} 0.375' in page
    assert 'mooring_shadow_node_balance_sum{choice="shadow",profile="candidate"} 0.9375' in page


def test_without_a_shadow_profile_nothing_is_kept() -> None:
    beside = Beside(*TWO)
    beside.scheduler.profiles.remove("candidate")
    beside.bind(pod(), "small")
    assert not beside.shadow.compare(until=0.0)
    assert beside.shadow.report() == {"profiles": {}, "pods": []}


def test_a_pod_on_a_node_that_is_reserved_for_a_group_is_told_so() -> None:
    """The other scheduler binds the pod there; Mooring would have waited."""
    beside = Beside(node("small", cpu="4"))
    key = GroupKey(GroupSource.KUBERNETES, "default", "g")
    member = parse_pod(pod("m", cpu="4", group="g", priority=1))
    beside.scheduler.state.nominate(member, "small", reservation=Reservation(key, 0.0, 1))
    beside.bind(pod(cpu="2"), "small")
    assert beside.results() == {"unschedulable": 1}
    (record,) = beside.records()
    assert "1 node(s) reserved for podgroup/g until 00:00 UTC" in record["message"]
