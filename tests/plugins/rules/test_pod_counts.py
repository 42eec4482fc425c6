"""Rules that count pods, in whole decisions."""

from dataclasses import replace
from typing import Any

import pytest

from deciding import Deciding
from mooring.framework.evaluations import MOST_PER_ATTEMPT, Evaluations
from mooring.framework.hints import QueueingHint
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.verdicts import SKIP
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node, parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_namespace
from mooring.plugins.rules.plugin import Rules
from mooring.policy.reading import read
from mooring.policy.rules.rule import Rule
from mooring.scheduling.outcome import FitError
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, namespace, node, pod
from mooring.testing.fakes import handle

RACK = "acme.example/rack"
NEVER_TWO = {
    "name": "one-db-per-rack",
    "filter": f'!has(pod.labels.app) || domain("{RACK}").pods({{"app": pod.labels.app}}) == 0',
    "message": "never two replicas of an app in a rack",
}
DB = {"app": "db"}
FIRST = 'node.name == "n0-0" ? 100 : node.name == "n1-0" ? 50 : 0'


def racks(*sizes: int) -> list[dict[str, Any]]:
    """Return nodes in racks: rack r0 has `sizes[0]` nodes named n0-0, n0-1 and so on."""
    return [
        node(f"n{rack}-{i}", labels={RACK: f"r{rack}"})
        for rack, size in enumerate(sizes)
        for i in range(size)
    ]


def db(name: str = "db", **fields: Any) -> dict[str, Any]:
    return pod(name, **{"labels": DB} | fields)


def deciding(*objects: dict[str, Any], **rule: Any) -> Deciding:
    return Deciding(*objects, rules=[{**NEVER_TWO, **rule}])


def test_the_second_replica_goes_to_another_rack_and_the_third_nowhere() -> None:
    two = deciding(*racks(3, 2))
    first = two.decision(db("db-0")).node
    assert first is not None
    two.place(db("db-0"), first)
    second = two.decision(db("db-1")).node
    assert second is not None
    assert second[:2] != first[:2]
    two.place(db("db-1"), second)
    assert two.decision(db("db-2")).node is None
    assert two.decision(pod("web")).node is not None


def test_a_node_is_told_its_domain_and_how_many_pods_are_there_and_the_message_counts_nodes() -> (
    None
):
    decision = deciding(*racks(2, 1), db("old", node="n0-0"), db("other", node="n1-0")).decision(
        db("new")
    )
    said = "never two replicas of an app in a rack"
    assert decision.rejections["n0-1"].reasons == (f"{said} (rack r0 has 1 of app=db)",)
    assert decision.rejections["n1-0"].reasons == (f"{said} (rack r1 has 1 of app=db)",)
    assert (decision.message or "").startswith(f"0/3 nodes are available: 3 {said}. ")


def test_of_many_domains_each_node_is_told_the_fullest() -> None:
    old = [db(f"old{n}", node=f"n{n}-0") for n in range(40)]
    crowded = deciding(*racks(*[1] * 40), *old, db("more", node="n33-0"))
    (reason,) = crowded.decision(db("new")).rejections["n0-0"].reasons
    assert reason.removeprefix("never two replicas of an app in a rack ") == (
        "(rack r33 has 2, rack r0 has 1, rack r1 has 1, 37 more have some of app=db)"
    )


def test_each_of_several_counts_is_described() -> None:
    source = f'domain("{RACK}").pods({{"app": "db"}}) + node.pods("!app") < 2'
    full = Deciding(
        *racks(2, 1), db("old", node="n0-0"), pod("web", node="n0-1"), pod("etc", node="n0-1"),
        rules=[{"name": "few", "filter": source, "message": "too many"}],
    )  # fmt: skip
    rejections = full.decision(db("new")).rejections
    assert {*rejections} == {"n0-1"}
    assert rejections["n0-1"].reasons == (
        "too many (rack r0 has 1 of app=db; the node has 2 of !app)",
    )


def test_pods_on_the_node_itself_are_counted_without_a_label() -> None:
    given = {"name": "few", "filter": 'node.pods("app in (db, cache)") < 2', "message": "too many"}
    decision = Deciding(
        *racks(2), db("a", node="n0-0"), db("b", node="n0-0", labels={"app": "cache"}),
        rules=[given],
    ).decision(pod("web"))  # fmt: skip
    assert decision.node == "n0-1"
    assert decision.rejections["n0-0"].reasons == (
        "too many (the node has 2 of app in (db,cache))",
    )


def test_a_node_without_the_label_is_rejected_because_the_count_fails() -> None:
    decision = deciding(node("bare"), *racks(1)).decision(db())
    assert decision.rejections["bare"].reasons == (
        f"node(s) on which rule one-db-per-rack failed: no such key: {RACK}",
    )
    allowed = f'!("{RACK}" in node.labels) || domain("{RACK}").pods({{"app": "db"}}) == 0'
    assert deciding(node("bare"), filter=allowed).decision(db()).node == "bare"


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ('{"app": "db"}', "n1-0"),
        ('{"app": "db"}, {}', "n2-0"),
        ('{"app": "db"}, ["other"]', "n0-0"),
        ('{"app": "db"}, {"team": "b"}', "n0-0"),
        ('{"app": "db"}, {"team": pod.namespaceLabels.team}', "n1-0"),
    ],
)
def test_pods_of_the_own_namespace_are_counted_unless_others_are_named(
    arguments: str, chosen: str
) -> None:
    objects = (
        *racks(1, 1, 1),
        db("mine", node="n0-0"),
        db("theirs", namespace="other", node="n1-0"),
        namespace("default", {"team": "a"}),
        namespace("other", {"team": "b"}),
    )
    rules = [
        {"name": "apart", "filter": f'domain("{RACK}").pods({arguments}) == 0'},
        {"name": "first", "score": FIRST, "weight": 100},
    ]
    assert Deciding(*objects, rules=rules).decision(db("new")).node == chosen


def test_a_terminating_pod_counts_until_it_is_gone() -> None:
    one = deciding(*racks(1), db("old", node="n0-0", terminating=True))
    assert one.decision(db("new")).node is None


def test_evicting_a_counted_pod_makes_room() -> None:
    one = deciding(*racks(2), db("low", node="n0-1", priority=0), pod("web", node="n0-0"))
    outcome = one.outcome(db("high", priority=100))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert outcome.nomination.node == "n0-1"
    assert [victim.name for victim in outcome.nomination.victims] == ["low"]


def test_a_nominated_pod_counts_on_its_node() -> None:
    one = deciding(*racks(1, 1))
    one.nominate(db("first", priority=100), "n0-0")
    assert one.decision(db("second")).node == "n1-0"


def test_a_score_counts_pods_too() -> None:
    rules = [{"name": "apart", "score": f'100 - 40 * domain("{RACK}").pods({{"app": "db"}})'}]
    decision = Deciding(
        *racks(1, 1), db("a", node="n0-0"), db("b", node="n0-0"), rules=rules
    ).decision(db("new"))
    assert decision.scores is not None
    assert [decision.scores[n].plugins["Rules/apart"] for n in ("n0-0", "n1-0")] == [20, 100]


def plugin(source: str, *objects: dict[str, Any], most: int | None = None) -> Rules:
    built_with = replace(handle(cluster(*objects)), evaluations=Evaluations(most))
    return Rules(read(Rule, {"name": "mine", "filter": source}, ""), built_with)


def test_results_are_not_shared_and_depend_on_pods() -> None:
    counting = plugin('node.pods({"app": "db"}) == 0')
    assert not counting.depends_on_node_only
    assert not counting.depends_on_node_object_only


@pytest.mark.parametrize(
    ("source", "skips"),
    [
        ("!has(pod.labels.app) || node.pods({}) == 0", True),
        ("pod.labels.app == 'db' ? node.pods({}) == 0 : true", False),
        ("!(has(pod.labels.app) && pod.labels.app == 'db') || node.pods({}) == 0", True),
        ("has(pod.labels.app) ? node.pods({}) == 0 : true", True),
        ("has(pod.labels.app) ? true : node.pods({}) == 0", False),
        ("pod.priority >= 0 && !has(pod.labels.app)", True),
        ("has(pod.labels.app) || node.pods({}) == 0", False),
        ("!(has(pod.labels.app) || node.pods({}) == 0)", False),
        ("!has(pod.labels.app) && node.pods({}) == 0", False),
    ],
)
def test_the_filter_is_skipped_for_pods_for_which_the_rule_is_true_everywhere(
    source: str, *, skips: bool
) -> None:
    rule = plugin(source, node("n1"))
    answer = rule.pre_filter(parse_pod(pod("web")), ClusterView(cluster()))
    assert (answer is SKIP) is skips


def test_a_rule_that_counts_costs_other_pods_no_columns() -> None:
    one = deciding(*racks(2), pod("low", cpu="4", node="n0-0"))
    search, found = one.search(pod("web", cpu="3"))
    assert search.resource_filter(found) is not None, "preemption is counted on columns"
    search, found = one.search(db("web", cpu="3"))
    assert search.resource_filter(found) is None


def hint(
    source: str, before: Any, after: Any, *objects: dict[str, Any], of: dict[str, Any] | None = None
) -> QueueingHint | None:
    """Return the rule's hint about the event; None if the rule does not register for it."""
    kind = Kind.NODE if isinstance(after or before, Node) else Kind.POD
    if not isinstance(after or before, Node | Pod):
        kind = Kind.NAMESPACE
    action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
    state = cluster(*objects)
    rule = Rules(read(Rule, {"name": "mine", "filter": source}, ""), handle(state))
    if (kind, action) not in rule.events_to_register:
        return None
    event = ClusterEvent(kind, action, before, after)
    return rule.queueing_hint(parse_pod(of or db()), event, ClusterView(state))


APART = f'domain("{RACK}").pods({{"app": "db"}}) == 0'
QUEUE, SKIPS = QueueingHint.QUEUE, QueueingHint.SKIP


def test_a_counted_pod_that_leaves_queues_the_pod_if_its_domain_is_open_then() -> None:
    gone = parse_pod(db("gone", node="n0-0"))
    assert hint(APART, gone, None, *racks(2)) is QUEUE
    assert hint(APART, gone, None, *racks(2), db("still", node="n0-1")) is SKIPS


def test_a_pod_that_is_not_counted_does_not_queue_the_pod() -> None:
    assert hint(APART, parse_pod(pod("web", node="n0-0")), None, *racks(2)) is SKIPS
    other = parse_pod(db("theirs", namespace="other", node="n0-0"))
    assert hint(APART, other, None, *racks(2)) is SKIPS


def test_a_pod_that_gets_or_loses_a_label_queues_the_pod() -> None:
    was, now = parse_pod(db("p", node="n0-0")), parse_pod(pod("p", node="n0-0"))
    assert hint(APART, was, now, *racks(1), pod("p", node="n0-0")) is QUEUE
    together = f'domain("{RACK}").pods({{"app": "db"}}) > 0'
    assert hint(together, now, was, *racks(1), db("p", node="n0-0")) is QUEUE
    assert hint(together, was, was, *racks(1), db("p", node="n0-0")) is SKIPS


def test_a_pod_that_another_count_of_the_rule_counts_after_a_change_queues_the_pod() -> None:
    """One count of the rule includes the pod before the change, another count after the change."""
    was, now = parse_pod(db("p", node="n0-0")), parse_pod(pod("p", node="n0-0"))
    without = 'node.pods({"app": "db"}) == 0 || domain("rack").pods({}) > 1'
    assert hint(without, was, now, *racks(1), pod("p", node="n0-0")) is QUEUE
    assert hint(without, now, was, *racks(1), db("p", node="n0-0")) is SKIPS


def test_a_node_that_moves_to_another_domain_queues_the_pod() -> None:
    was, now = (parse_node(node("n0-0", labels={RACK: rack})) for rack in ("r0", "r1"))
    moved = (node("n0-0", labels={RACK: "r1"}), node("stays", labels={RACK: "r0"}))
    assert hint(APART, was, now, *moved, db("old", node="n0-0")) is QUEUE
    assert hint(APART, now, now, *moved) is SKIPS
    assert hint(APART, was, None, node("stays", labels={RACK: "r0"})) is QUEUE


def test_labels_of_a_namespace_queue_the_pod_where_they_select_whose_pods_count() -> None:
    changed = parse_namespace(namespace("other", {"env": "prod"}))
    selecting = f'domain("{RACK}").pods({{}}, {{"env": "prod"}}) == 0'
    assert hint(selecting, changed, changed, *racks(1)) is QUEUE
    assert hint(APART, changed, changed, *racks(1)) is None


def many(count: int) -> list[dict[str, Any]]:
    return [db(f"db-{n}", node="n0-0", labels={**DB, "n": str(n)}) for n in range(count)]


def test_pods_are_counted_over_several_attempts_and_then_never_again() -> None:
    two = Deciding(*racks(1, 1), *many(600), rules=[NEVER_TWO], most_per_attempt=2_000)
    attempts = 1
    while True:
        try:
            two.outcome(db("new"))
            break
        except PluginFailed:
            attempts += 1
    assert 3 <= attempts <= 8, "128 pods with different labels in each step"
    assert two.decision(db("new")).node == "n1-0"
    assert two.decision(db("newer")).node == "n1-0"


def test_rules_with_equal_selectors_share_one_count() -> None:
    sources = [f'domain("{RACK}").pods({{"app": "db"}}) < {n}' for n in range(5, 25)]
    rules = [{"name": f"r{n}", "filter": source} for n, source in enumerate(sources)]
    one = Deciding(*racks(1, 1), *many(5), rules=rules)
    before = one.state.topology.bytes
    assert one.decision(db("new")).node == "n1-0"
    assert one.state.topology.bytes - before < 5_000


def test_counts_have_a_share_of_what_rules_may_cost_for_one_pod() -> None:
    eight = " + ".join([f'domain("{RACK}").pods({{"app": pod.labels.app}})'] * 8) + " == 0"
    rules = [{"name": f"r{n}", "filter": eight} for n in range(32)]
    one = Deciding(*racks(40), rules=rules, most_per_attempt=MOST_PER_ATTEMPT)
    left_out = [name for name, _ in one.pipeline.evaluations.left_out()]
    assert left_out == [f"rule r{n}" for n in range(22, 32)]
    (reason,) = one.decision(db()).rejections["n0-0"].reasons
    assert reason.startswith("node(s) on which rule r22 failed: the rules of a profile may cost")
