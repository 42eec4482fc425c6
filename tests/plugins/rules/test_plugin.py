from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deciding import Deciding
from mooring.framework import evaluations
from mooring.framework.evaluations import Evaluations
from mooring.framework.hints import QueueingHint
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.model.workloads import parse_namespace
from mooring.plugins.rules.plugin import Rules
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.policy.rules.rule import Rule
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, namespace, node, pod
from mooring.testing.contract import PluginContract, Scenario
from mooring.testing.fakes import handle

GPU = "example.com/gpu"
CLUSTER = (
    node("ssd", labels={"disk": "ssd", "team": "a"}, resources={GPU: 4}),
    node("hdd", labels={"disk": "hdd"}, taints=["old:PreferNoSchedule"]),
    node("none", cpu="1"),
)
SCENARIOS = (
    Scenario(CLUSTER, pod("web", cpu="1"), (pod("old", cpu="3500m", node="hdd"),)),
    Scenario(CLUSTER, pod("web", labels={"team": "a"}), (pod("old", cpu="1", node="ssd"),)),
)


def rule(**fields: Any) -> Rule:
    return read(Rule, {"name": "mine", **fields}, "")


class Contract(PluginContract):
    """The contract of all plugins, without the test of default arguments."""

    scenarios = SCENARIOS

    def test_it_can_be_built_with_default_arguments(self) -> None:
        """A rule has no default arguments: it needs a name and an expression."""


def _contract(
    keeps: str = "",
    score: str = "",
    *,
    depends_on_node_only: bool = True,
    counts_pods: bool = False,
    **more: str,
) -> type[PluginContract]:
    """Return the contract for one rule: a filter if `keeps` is given, else a score."""
    own = {
        "depends_on_node_only": depends_on_node_only,
        "depends_on_node_object_only": not counts_pods,
    }
    absent = {"score": None} if keeps else {"filter": None}
    expression = {"filter": keeps} if keeps else {"score": score}
    of = type("OneRule", (Rules,), {**own, **absent})
    return type("Of", (Contract,), {"plugin": of, "args": {"name": "one", **expression, **more}})


TestAFilterOfLabels = _contract("node.labels.disk == 'ssd'", message="no ssd")
TestAFilterOfRequests = _contract(
    "node.allocatable.cpu - node.requested.cpu >= 1000", counts_pods=True
)
TestAFilterOfThePodsLabels = _contract(
    "!has(pod.labels.team) || pod.labels.team == node.labels.team", depends_on_node_only=False
)
TestAFilterThatCountsPods = _contract(
    "domain('disk').pods({}) + node.pods('!x', {}) == 0",
    depends_on_node_only=False,
    counts_pods=True,
)
TestAScoreThatCountsPods = _contract(
    score="100 - domain('disk').pods({})", depends_on_node_only=False, counts_pods=True
)
TestAScore = _contract(score="100 * node.requested.cpu / node.allocatable.cpu", counts_pods=True)
TestANormalizedScore = _contract(
    score="size(node.labels.disk)", normalize="Max", depends_on_node_only=False
)


@pytest.mark.parametrize(
    ("fields", "depends_on_node_only", "depends_on_node_object_only"),
    [
        ({"filter": "node.labels.disk == 'ssd' && pod.requests.cpu > 5"}, True, True),
        ({"filter": "node.requested.cpu > 5"}, True, False),
        ({"filter": "pod.labels.team == node.zone"}, False, True),
        ({"filter": "node.pods({}) == 0"}, False, False),
        ({"score": "domain('rack').pods({})"}, False, False),
        ({"filter": "pod.namespaceLabels.team == node.zone"}, False, True),
        ({"score": "node.allocatable.cpu", "normalize": "Reversed"}, False, True),
    ],
)
def test_results_are_shared_by_pods_of_one_spec_unless_the_rule_tells_them_apart(
    fields: dict[str, Any], depends_on_node_only: object, depends_on_node_object_only: object
) -> None:
    plugin = Rules(rule(**fields), handle(cluster()))
    assert (plugin.depends_on_node_only, plugin.depends_on_node_object_only) == (
        depends_on_node_only,
        depends_on_node_object_only,
    )


def test_a_rejection_has_the_rules_name_and_message() -> None:
    decision = Deciding(
        *CLUSTER, rules=[{"name": "ssd", "filter": "false", "message": "not today"}]
    ).decision(pod())
    assert decision.rejections["ssd"].plugin == "Rules/ssd"
    assert decision.rejections["ssd"].reasons == ("not today",)
    assert (decision.message or "").startswith("0/3 nodes are available: 3 not today.")


def test_without_a_message_the_rules_name_is_the_reason() -> None:
    decision = Deciding(*CLUSTER, rules=[{"name": "none", "filter": "false"}]).decision(pod())
    assert decision.rejections["ssd"].reasons == ("node(s) didn't satisfy rule none",)


def test_an_evaluation_that_fails_rejects_the_node_and_says_why() -> None:
    given = {"name": "disk", "filter": "node.labels.disk != 'x'", "message": "x is no disk"}
    decision = Deciding(*CLUSTER, rules=[given]).decision(pod())
    assert {*decision.rejections} == {"none"}
    assert decision.rejections["none"].reasons == (
        "node(s) on which rule disk failed: no such key: disk",
    )


def test_evicting_pods_helps_only_against_rules_that_read_requests_or_count_pods() -> None:
    for source, helps in (
        ("node.requested.cpu > 9000000", True),
        ("node.pods({}) > 9", True),
        ("node.zone == 'x'", False),
    ):
        found = Deciding(*CLUSTER, rules=[{"name": "a", "filter": source}]).decision(pod())
        assert {r.resolvable for r in found.rejections.values()} == {helps}


def scores(cluster_nodes: tuple[Any, ...], **fields: Any) -> dict[str, int]:
    state = cluster(*cluster_nodes)
    nodes = ClusterView(state).nodes
    column = Rules(rule(**fields), handle(state)).score(parse_pod(pod()), nodes, None)
    return {nodes.name(index): score for index, score in enumerate(column.tolist())}


PRICED = tuple(node(f"p{p}", labels={"price": p}) for p in ("0.5", "2", "-1", "many", "inf"))


def test_a_score_is_limited_to_0_to_100_and_truncated() -> None:
    found = scores(PRICED, score="double(node.labels.price) * 75.9")
    assert found == {"p0.5": 37, "p2": 100, "p-1": 0, "pmany": 0, "pinf": 0}


def test_normalized_by_max_the_highest_is_100_and_the_others_are_in_proportion() -> None:
    found = scores(PRICED, score="double(node.labels.price)", normalize="Max")
    assert found == {"p0.5": 25, "p2": 100, "p-1": 0, "pmany": 0, "pinf": 0}


def test_reversed_the_lowest_is_best_and_what_fails_stays_0() -> None:
    found = scores(PRICED, score="double(node.labels.price)", normalize="Reversed")
    assert found == {"p0.5": 75, "p2": 0, "p-1": 100, "pmany": 0, "pinf": 0}


def test_integers_are_divided_exactly() -> None:
    nodes = (node("a", cpu="3"), node("b", cpu="9007199254740993m"))
    found = scores(nodes, score="node.allocatable.cpu", normalize="Max")
    assert found == {"a": 0, "b": 100}
    assert scores(nodes, score="0", normalize="Max") == {"a": 0, "b": 0}
    assert scores(nodes, score="0", normalize="Reversed") == {"a": 100, "b": 100}


def test_the_weight_is_the_factor_of_the_score() -> None:
    given = {"name": "ssd", "score": "has(node.labels.disk) ? 60 : 0", "weight": 7}
    decision = Deciding(*CLUSTER, rules=[given]).decision(pod())
    assert decision.scores is not None
    assert decision.scores["ssd"].plugins["Rules/ssd"] == 420


def test_rules_are_not_named_among_the_plugins() -> None:
    for spec in (
        {"plugins": {"filter": {"enabled": [{"name": "Rules"}]}}},
        {"plugins": {"filter": {"disabled": [{"name": "Rules"}]}}},
        {"pluginConfig": [{"name": "Rules", "args": {}}]},
    ):
        with pytest.raises(ProfileInvalid, match="Rules cannot be named"):
            Deciding(**spec)


def hint(source: str, event: ClusterEvent, *objects: Any, labels: Any = None) -> QueueingHint:
    state = cluster(*objects)
    plugin = Rules(rule(filter=source), handle(state))
    assert (event.kind, event.action) in plugin.events_to_register
    return plugin.queueing_hint(parse_pod(pod(labels=labels)), event, ClusterView(state))


def test_a_new_node_queues_the_pod_if_the_rule_is_true_for_it() -> None:
    for disk, expected in (("ssd", QueueingHint.QUEUE), ("hdd", QueueingHint.SKIP)):
        raw = node("n1", labels={"disk": disk})
        event = ClusterEvent(Kind.NODE, Action.ADD, None, parse_node(raw))
        assert hint("node.labels.disk == 'ssd'", event, raw) is expected


def test_a_changed_node_queues_the_pod_if_it_changed_in_what_the_rule_reads() -> None:
    before, after = node("n1", labels={"disk": "ssd"}), node("n1", cpu="9", labels={"disk": "ssd"})
    event = ClusterEvent(Kind.NODE, Action.UPDATE, parse_node(before), parse_node(after))
    assert hint("node.labels.disk == 'ssd'", event, after) is QueueingHint.SKIP
    assert hint("node.allocatable.cpu > 8000", event, after) is QueueingHint.QUEUE


def test_a_deleted_pod_queues_the_pod_if_the_rule_reads_requests_and_is_true_now() -> None:
    gone = parse_pod(pod("old", node="n1"))
    event = ClusterEvent(Kind.POD, Action.DELETE, gone, None)
    assert hint("node.requested.cpu < 5", event, node("n1")) is QueueingHint.QUEUE
    still = pod("more", cpu="1", node="n1")
    assert hint("node.requested.cpu < 5", event, node("n1"), still) is QueueingHint.SKIP
    assert (Kind.POD, Action.DELETE) not in Rules(
        rule(filter="node.zone == 'a'"), handle(cluster())
    ).events_to_register


def test_labels_of_the_pods_namespace_queue_the_pod() -> None:
    for name, expected in (("default", QueueingHint.QUEUE), ("other", QueueingHint.SKIP)):
        changed = parse_namespace(namespace(name))
        event = ClusterEvent(Kind.NAMESPACE, Action.UPDATE, changed, changed)
        assert hint("pod.namespaceLabels.team == 'a'", event) is expected


def test_a_pod_on_a_node_counts_for_the_next_decision() -> None:
    given = {"name": "few", "filter": "node.requested.pods < 2", "message": "two pods are enough"}
    deciding = Deciding(node("n1"), node("n2"), rules=[given])
    for index in range(4):
        raw = pod(f"p{index}")
        chosen = deciding.decision(raw).node
        assert chosen is not None
        deciding.place(raw, chosen)
    assert deciding.decision(pod("p5")).node is None


def test_a_score_of_no_nodes_is_empty() -> None:
    state = cluster()
    plugin = Rules(rule(score="1", normalize="Max"), handle(state))
    nodes = ClusterView(state).nodes.take(np.zeros(0, np.int64))
    assert plugin.score(parse_pod(pod()), nodes, None).tolist() == []


REGEX = "node.labels.serial.matches('^n[0-9]{{600}}{0}')"
"""About 3,300 units for a node."""


def serials(count: int) -> list[Any]:
    return [node(f"n{number}", labels={"serial": f"n{number}"}) for number in range(count)]


def test_all_rules_of_a_profile_share_what_values_of_nodes_may_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluations, "MOST_FOR_NODES", 300_000)
    rules = [{"name": f"r{n}", "filter": f"!{REGEX.format(n)}"} for n in range(10)]
    deciding = Deciding(*serials(40), rules=rules)
    left_out = [name for name, _ in deciding.pipeline.evaluations.left_out()]
    assert left_out == [f"rule r{n}" for n in range(2, 10)]
    decision = deciding.decision(pod())
    assert decision.node is None
    assert {r.plugin for r in decision.rejections.values()} == {"Rules/r2"}
    (reason,) = decision.rejections["n0"].reasons
    assert reason.startswith("node(s) on which rule r2 failed: the rules of a profile may cost")


def test_a_rule_that_is_too_expensive_is_not_tried_again_with_each_event_of_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluations, "MOST_FOR_NODES", 10_000)
    state = cluster(*serials(40))
    plugin = Rules(rule(filter=f"!{REGEX.format(1)}"), handle(state))
    before, after = (parse_node(node("n1", labels={"serial": s})) for s in ("a", "b"))
    event = ClusterEvent(Kind.NODE, Action.UPDATE, before, after)
    assert plugin.queueing_hint(parse_pod(pod()), event, ClusterView(state)) is QueueingHint.SKIP


def test_attempts_evaluate_some_new_values_each_until_all_are_there() -> None:
    rules = [{"name": f"r{n}", "filter": f"!{REGEX.format(n)}"} for n in range(3)]
    deciding = Deciding(*serials(60), rules=rules, most_per_attempt=20_000)
    reason = "evaluating rule r0 for the values of the nodes takes longer than one attempt may"
    with pytest.raises(PluginFailed, match=reason):
        deciding.outcome(pod())
    attempts, outcome = 2, None
    while outcome is None:
        try:
            outcome = deciding.outcome(pod())
        except PluginFailed:
            attempts += 1
    assert 3 < attempts < 60
    changed = parse_node(node("n1", labels={"serial": "another"}))
    deciding.state.put(Kind.NODE, "n1", changed)
    assert deciding.decision(pod()).node is not None, "one new value ends no attempt"


def test_a_hint_that_would_need_too_many_new_values_is_queue() -> None:
    state = cluster(*serials(60))
    limited = replace(handle(state), evaluations=Evaluations(1_000))
    plugin = Rules(rule(filter=f"!{REGEX.format(1)} || node.labels.serial == 'n1'"), limited)
    after = parse_node(node("n1", labels={"serial": "n1"}))
    event = ClusterEvent(Kind.NODE, Action.ADD, None, after)
    with pytest.raises(PluginFailed):  # which counts as QUEUE, as any failure of a hint
        plugin.queueing_hint(parse_pod(pod()), event, ClusterView(state))


def test_a_hint_has_a_budget_of_its_own() -> None:
    state, budget = cluster(*serials(60)), Evaluations(5_000)
    plugin = Rules(rule(filter=REGEX.format(1)), replace(handle(state), evaluations=budget))
    for _ in range(60):
        with suppress(PluginFailed):
            budget.begin_attempt()
            plugin.filter(parse_pod(pod()), ClusterView(state).nodes, None)
    after = parse_node(node("n1", labels={"serial": "another"}))
    state.put(Kind.NODE, "n1", after)
    budget.spend(10_000)
    event = ClusterEvent(Kind.NODE, Action.ADD, None, after)
    assert plugin.queueing_hint(parse_pod(pod()), event, ClusterView(state)) is QueueingHint.SKIP


def test_labels_that_each_pod_has_of_its_own_cost_no_more_than_one_pods_budget() -> None:
    """The cost of all rules together is limited, whatever labels tenants write into pods."""
    own = "!pod.labels.a.matches('^(abcde){{300}}{0}')"  # about 7,600 units
    rules = [{"name": f"r{n}", "filter": own.format(n)} for n in range(32)]
    deciding = Deciding(*serials(2), rules=rules)
    names = [name for name, _ in deciding.pipeline.evaluations.left_out()]
    assert names == [f"rule r{n}" for n in range(13, 32)]
