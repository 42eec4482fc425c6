"""Evaluation by columns gives the same results as the interpreter for each single node."""

import math
import re
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mooring.cel.values import Failure, MapValue
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.plugins.rules import evaluation
from mooring.plugins.rules.evaluation import Evaluator
from mooring.plugins.rules.rule_results import Results
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.expressions import check
from mooring.policy.rules.rule_plan import RulePlan, plan_filter, plan_score
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.view import NodeView
from mooring.testing.builders import cluster, namespace, node, pod
from strategies import GPU, clusters_of_nodes

RESOURCES = ("cpu", "memory", "pods", GPU)
INCOMING = pod(
    "web",
    namespace="team-a",
    cpu="1500m",
    memory="1Gi",
    labels={"disk": "ssd", "wanted": "rack", "n": "7"},
    priority=10,
)

TEXTS = ("", "ssd", "r1", "8", "many", "a", "n1", "NoSchedule")
NUMBERS = (0, 1, -1, 7, 1000, 2**62, 2**63 - 1, -(2**63) + 1)


def _formed(*forms: str, **parts: SearchStrategy[str]) -> SearchStrategy[str]:
    """Return a strategy that fills random parts into one of the forms."""
    return st.builds(
        lambda form, given: form.format(**given),
        st.sampled_from(forms),
        st.fixed_dictionaries(parts),
    )


def _leaves() -> dict[str, SearchStrategy[str]]:
    """Return strategies for the shortest expressions, by type."""
    keys = st.sampled_from(("disk", "cores", "rack", "lost"))
    return {
        "bool": _formed(
            "true", "node.unschedulable", "has(node.labels.{k})", "'{k}' in node.labels",
            "has(pod.labels.{k})", k=keys,
        ),
        "int": st.one_of(
            st.sampled_from(NUMBERS).map(str),
            _formed(
                "node.allocatable['{r}']", "node.requested['{r}']", "pod.requests['{r}']",
                "int(node.labels.{k})", "pod.priority", "size(node.taints)", "size(node.name)",
                r=st.sampled_from(RESOURCES), k=keys,
            ),
        ),
        "double": st.one_of(
            st.sampled_from(("0.0", "1.5", "-2.25", "1e300", "9.3e18")),
            _formed("double(node.labels.{k})", "double(pod.requests.cpu)", k=keys),
        ),
        "string": st.one_of(
            st.sampled_from(TEXTS).map(repr),
            _formed(
                "node.labels.{k}", "pod.labels.{k}", "node.labels[pod.labels.wanted]", "node.name",
                "node.zone", "node.region", "pod.namespaceLabels.env",
                "node.conditions.Ready", "pod.namespace", "pod.qosClass", k=keys,
            ),
        ),
    }  # fmt: skip


def _grown(less: dict[str, SearchStrategy[str]]) -> dict[str, SearchStrategy[str]]:
    """Return strategies for expressions that combine expressions of `less`, by type."""
    b, i, d, s = (less[kind] for kind in ("bool", "int", "double", "string"))
    return {
        "bool": st.one_of(
            _formed("({x} && {y})", "({x} || {y})", "!{x}", "({x} == {y})", x=b, y=b),
            _formed("({x} {o} {y})", x=i, y=i, o=st.sampled_from(("<", "<=", "==", "!=", ">"))),
            _formed("({x} {o} {y})", x=d, y=d, o=st.sampled_from((">=", "<", "==", "!="))),
            _formed(
                "({x} {o} {y})", "{x}.startsWith({y})", "{x}.endsWith({y})", "{x}.contains({y})",
                "({x} in [{y}, 'r2'])", "{x}.matches('^[rs]')",
                "node.taints.exists(t, t.key == {y} || t.effect == {x})",
                x=s, y=s, o=st.sampled_from(("==", "!=", "<", ">=")),
            ),
        ),
        "int": st.one_of(
            _formed("({x} {o} {y})", x=i, y=i, o=st.sampled_from(("+", "-", "*", "/", "%"))),
            _formed("-({x})", "({c} ? {x} : {y})", x=i, y=i, c=b),
            _formed("int({x})", x=d),
            _formed("size({x})", "int({x})", x=s),
        ),
        "double": st.one_of(
            _formed("({x} {o} {y})", x=d, y=d, o=st.sampled_from(("+", "-", "*", "/"))),
            _formed("-({x})", "({c} ? {x} : {y})", x=d, y=d, c=b),
            _formed("double({x})", x=i),
        ),
        "string": _formed("({x} + {y})", "({c} ? {x} : {y})", x=s, y=s, c=b),
    }  # fmt: skip


def _trees(depth: int) -> dict[str, SearchStrategy[str]]:
    """Return strategies for expressions up to this depth, by type; some fail on some nodes."""
    leaves = _leaves()
    if not depth:
        return leaves
    grown = _grown(_trees(depth - 1))
    return {kind: st.one_of(leaves[kind], grown[kind]) for kind in leaves}


def _expected(source: str, state: ClusterState, incoming: Pod, name: str) -> Any:
    """Return the interpreter's result for one node, with all variables that a rule can read."""
    cluster_view = ClusterView(state)
    row = state.nodes.row_of[name]
    found = cluster_view.node(row)
    assert found is not None
    on_node = [placed.pod.spec.demand.resources for placed in cluster_view.pods_on(row)]
    requested = {r: sum(demand.get(r, 0) for demand in on_node) for r in RESOURCES}
    region, zone = found.zone_key
    checked = check(source)
    values = {
        "node.name": name,
        "node.labels": dict(found.labels),
        "node.zone": zone,
        "node.region": region,
        "node.unschedulable": found.unschedulable,
        "node.allocatable": dict.fromkeys(RESOURCES, 0)
        | dict(found.allocatable)
        | {"pods": found.pod_slots},
        "node.requested": requested | {"pods": len(on_node)},
        "node.taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in found.taints],
        "node.conditions": dict(found.conditions),
        "pod.namespace": incoming.namespace,
        "pod.labels": dict(incoming.labels),
        "pod.requests": dict.fromkeys(RESOURCES, 0) | dict(incoming.spec.demand.resources),
        "pod.priority": incoming.spec.priority,
        "pod.qosClass": incoming.spec.qos,
        "pod.ownerKind": "",
        "pod.namespaceLabels": dict(cluster_view.namespace_labels(incoming.namespace)),
    }
    program = checked.program(checked.root, [*values])
    return program.run([*map(_in_cel, values.values())])


def _in_cel(value: Any) -> Any:
    if isinstance(value, dict):
        return MapValue.of_strings(value)
    return tuple(map(_in_cel, value)) if isinstance(value, list) else value


def results_of(evaluator: Evaluator, incoming: Pod, nodes: NodeView) -> Results:
    results, rows = evaluator.run(incoming, nodes)
    return results if rows is None else results.take(rows)


def _compare(source: str, plan: RulePlan, state: ClusterState) -> None:
    incoming, cluster_view = parse_pod(INCOMING), ClusterView(state)
    evaluator = Evaluator(plan, cluster_view)
    rows = np.sort(cluster_view.nodes_in_order)
    for nodes in (cluster_view.nodes, cluster_view.nodes.take(rows[::2]), cluster_view.nodes):
        results = results_of(evaluator, incoming, nodes)
        values, failed, texts = results.values, results.errors, results.texts
        for index in range(len(nodes)):
            if nodes.node(index) is None:
                continue
            expected = _expected(source, state, incoming, nodes.name(index))
            where = f"{source} at {nodes.name(index)}"
            if isinstance(expected, float) and not math.isfinite(expected):
                expected = Failure("the number is not finite")
            if isinstance(expected, Failure):
                assert failed[index], f"{where}: {values[index]}, but {expected.text}"
                continue
            assert not failed[index], f"{where}: {expected}, but {texts[failed[index] - 1]}"
            assert values[index] == expected, where


@settings(max_examples=120, deadline=None)
@given(
    source=_trees(3)["bool"],
    nodes=clusters_of_nodes(1),
    used=st.sampled_from((None, "250m", "2")),
)
def test_a_filter_gives_what_the_interpreter_gives_for_each_node(
    source: str, nodes: tuple[Any, ...], used: str | None
) -> None:
    try:
        plan = plan_filter(source)
    except ProfileInvalid:
        reject()
    occupant = pod("old", cpu=used, node=nodes[0]["metadata"]["name"])
    _compare(source, plan, cluster(namespace("team-a", {"env": "prod"}), *nodes, occupant))


@settings(max_examples=120, deadline=None)
@given(source=st.one_of(_trees(3)["int"], _trees(3)["double"]), nodes=clusters_of_nodes(1))
def test_a_score_gives_what_the_interpreter_gives_for_each_node(
    source: str, nodes: tuple[Any, ...]
) -> None:
    try:
        plan = plan_score(source)
    except ProfileInvalid:
        reject()
    _compare(source, plan, cluster(*nodes))


@pytest.mark.parametrize(
    "source",
    [
        "(node.allocatable.cpu - 4007) / 2 + (node.allocatable.cpu - 4007) % 2",
        "-7 / (node.requested.cpu - 250) + 9",
        "node.allocatable.cpu / node.requested.cpu",
        "node.allocatable.cpu % node.requested.cpu",
        "(-9223372036854775807 - 1) / (node.requested.cpu - 1)",
        "(-9223372036854775807 - 1) / (node.requested.cpu - 251)",
        "(-9223372036854775807 - 1) % (node.requested.cpu - 251)",
        "-(node.requested.cpu - 250 - 9223372036854775807 - 1)",
        "node.allocatable.cpu * 2305843009213693",
        "node.allocatable.cpu * 2305843009213694",
        "node.allocatable.cpu + 9223372036854771807",
        "node.allocatable.cpu + 9223372036854771808",
        "-9223372036854771808 - node.allocatable.cpu",
        "-9223372036854771809 - node.allocatable.cpu",
        "int(double(node.allocatable.cpu) * 2305843009213693.952)",
        "int(double(node.allocatable.cpu) * -2305843009213693.5)",
        "int(double(node.allocatable.cpu) / 0.0)",
        "double(node.requested.cpu) / double(node.requested.cpu - 250)",
        "int(-7.9 + double(node.requested.cpu - 250))",
        "node.labels.lost == 'x' ? 1 : 2",
        "has(node.labels.disk) ? int(node.labels.cores) : node.allocatable.cpu",
        "(has(node.labels.disk) ? node.labels.disk : node.labels.rack) == 'r1' ? 1 : 2",
        "(has(node.labels.disk) ? node.labels.disk : 'none') + node.name == 'nonen1' ? 1 : 2",
        "node.labels.disk == node.labels.rack ? 1 : 2",
        "node.labels[pod.labels.lost] == '' ? 1 : 2",
        "node.name == 'n1' ? 1 : node.name != 'n0' ? 2 : 3",
        "'n' + node.name < 'nn1' ? 1 : 2",
        "node.labels.disk.matches('^s') && pod.labels.disk.matches('^s') ? 1 : 2",
        "node.taints.exists(t, t.key == node.labels.disk) ? 1 : 2",
        "node.taints.exists(t, t.key == node.labels.disk + pod.labels.disk) ? 1 : 2",
        "pod.labels.all(k, k != 'disk') || node.unschedulable ? 1 : 2",
        "pod.labels[node.zone] == 'x' ? 1 : 2",
        "node.conditions.Ready == 'True' && node.conditions.Lost == 'True' ? 1 : 2",
        "[node.unschedulable, true].all(x, x) ? 1 : 2",
    ],
)
def test_edges_of_every_operation_are_the_interpreters(source: str) -> None:
    state = cluster(
        node("n0", labels={"disk": "ssd", "cores": "many"}, zone="a"),
        node("n1", labels={"rack": "r1", "disk": "r1"}, taints=["r1:NoSchedule"]),
        node("n2", labels={"rack": "r1"}, taints=["r1ssd:NoSchedule", "x:NoExecute"]),
        node("n3", cpu="4001m", labels={"disk": "ssd", "cores": "8"}, unschedulable=True),
        pod("old", cpu="250m", node="n0"),
        pod("other", cpu="1m", node="n3"),
    )
    _compare(source, plan_score(source), state)


def test_a_macro_over_very_many_labels_of_a_pod_fails_at_every_node() -> None:
    state = cluster(node("n0"))
    evaluator = Evaluator(plan_filter("pod.labels.all(k, true)"), ClusterView(state))
    for count, texts in ((2_000, 0), (20_000, 1)):
        many = pod(labels={str(number): "x" for number in range(count)})
        results = results_of(evaluator, parse_pod(many), ClusterView(state).nodes)
        assert len(results.texts) == texts
        assert results.errors.tolist() == [texts]
    assert "may cost 100,000 units for one pod" in results.texts[0]


def test_results_for_a_row_follow_the_nodes_labels() -> None:
    state = cluster(node("n0", labels={"price": "2"}), node("n1", labels={"price": "3"}))
    source = "int(node.labels.price)"
    evaluator, cluster_view = Evaluator(plan_score(source), ClusterView(state)), ClusterView(state)
    incoming = parse_pod(INCOMING)
    assert results_of(evaluator, incoming, cluster_view.nodes).values.tolist() == [2, 3]
    changed = cluster(node("n1", labels={"price": "9"})).nodes.nodes[0]
    state.put(Kind.NODE, "n1", changed)
    assert results_of(evaluator, incoming, cluster_view.nodes).values.tolist() == [2, 9]
    assert results_of(evaluator, incoming, cluster_view.nodes.only("n1")).values.tolist() == [9]


@pytest.mark.parametrize("source", ["int(node.labels.price)", "int(node.labels.price) + 0"])
def test_results_of_many_nodes_follow_a_node_and_those_handed_out_do_not(source: str) -> None:
    state = cluster(*(node(f"n{i}", labels={"price": f"{i}"}) for i in range(20)))
    evaluator, cluster_view = Evaluator(plan_score(source), ClusterView(state)), ClusterView(state)
    incoming = parse_pod(INCOMING)
    before = results_of(evaluator, incoming, cluster_view.nodes)
    changed = cluster(node("n1", labels={"price": "900"})).nodes.nodes[0]
    state.put(Kind.NODE, "n1", changed)
    after = results_of(evaluator, incoming, cluster_view.nodes)
    assert before.values.tolist() == [*range(20)]
    assert after.values.tolist() == [0, 900, *range(2, 20)]


@pytest.mark.parametrize("source", ["size(node.name)", "size(node.name + node.labels.price) + 0"])
def test_results_are_of_the_nodes_that_are_left_when_the_table_has_given_up_its_last_rows(
    source: str,
) -> None:
    state = cluster(*(node(f"n{i}", labels={"price": f"{i}"}) for i in range(20)))
    evaluator, cluster_view = Evaluator(plan_score(source), ClusterView(state)), ClusterView(state)
    incoming = parse_pod(INCOMING)
    before = results_of(evaluator, incoming, cluster_view.nodes).values.tolist()
    for name in ("n19", "n18"):
        state.delete(Kind.NODE, name)
    assert results_of(evaluator, incoming, cluster_view.nodes).values.tolist() == before[:18]


def test_a_step_is_interpreted_once_per_distinct_value(calls: list[Any]) -> None:
    nodes = [node(f"n{i}", labels={"price": str(i % 3)}) for i in range(60)]
    state = cluster(*nodes)
    evaluator = Evaluator(plan_score("int(node.labels.price) * 10"), ClusterView(state))
    for _ in range(3):
        evaluator.run(parse_pod(INCOMING), ClusterView(state).nodes)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("labels", "source", "why"),
    [
        (
            [{"serial": str(i)} for i in range(2000)],
            "[pod.labels.n].exists(x, x + '!' == node.labels.serial)",
            "may cost 100,000 units for .*, and with this rule they cost about 140,000",
        ),
        (
            [{"a": str(i % 40), "b": str(i // 40)} for i in range(1600)],
            "[pod.labels.n].exists(x, x + node.labels.a == node.labels.b)",
            "may cost 100,000 units for .*, and with this rule they cost about 110,000",
        ),
        (
            [{"a": str(i)} for i in range(9000)],
            "node.labels.a.matches('(abc){400}')",
            "may cost 50,000,000 units for .*, and with this rule they cost about 56,000,000",
        ),
    ],
)
def test_what_would_cost_too_much_for_all_distinct_values_fails_instead_of_stalling(
    labels: list[dict[str, str]], source: str, why: str
) -> None:
    state = cluster(*(node(f"n{i}", labels=each) for i, each in enumerate(labels)))
    evaluator, incoming = Evaluator(plan_filter(source), ClusterView(state)), parse_pod(INCOMING)
    for rows in (np.arange(len(labels)), np.arange(10), np.arange(1)):
        results = results_of(evaluator, incoming, ClusterView(state).nodes.take(rows))
        assert results.errors.all()
        assert re.search(why, results.texts[0])


def test_what_pods_have_had_is_kept_in_a_bounded_number_of_bytes(calls: list[Any]) -> None:
    """A tenant may create many pods with different labels."""
    state = cluster(node("n0"))
    source = "int(pod.labels.a) + node.allocatable.cpu"
    evaluator, nodes = Evaluator(plan_score(source), ClusterView(state)), ClusterView(state).nodes

    def run(number: int) -> None:
        value = f"{number:063}"
        evaluator.run(parse_pod(pod(labels={"a": value})), nodes)

    run(0)
    run(0)
    assert len(calls) == 1
    for number in range(1, 1200):
        run(number)
    assert len(calls) == 1200
    run(0)
    assert len(calls) == 1201, "it was forgotten, as 1,200 of them take more than 512 KiB"


def test_a_macro_through_the_pods_labels_runs_once_for_the_pod_and_again_for_the_next(
    calls: list[Any],
) -> None:
    """A preemption evaluates the rule for each node, and a pod may have many labels."""
    state = cluster(*(node(f"n{i}") for i in range(20)))
    source = "pod.labels.exists(k, k == 'x') && node.allocatable.cpu > 0"
    evaluator, nodes = Evaluator(plan_filter(source), ClusterView(state)), ClusterView(state).nodes
    for labels, fits in (({"x": "1"}, True), ({"y": "1"}, False)):
        incoming = parse_pod(pod(labels=labels))
        calls.clear()
        for row in range(20):
            results = results_of(evaluator, incoming, nodes.take(np.array([row])))
            assert results.fits.tolist() == [fits]
        assert len(calls) == 1


@pytest.mark.parametrize(("most_bytes", "most"), [(16 * 2**20, 16), (5 * 26 * 20, 5), (1, 1)])
def test_results_for_all_nodes_are_kept_in_a_bounded_number_of_bytes(
    most_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_MOST_COLUMN_BYTES", most_bytes)
    state = cluster(*(node(f"n{i}", labels={"team": f"{i}"}) for i in range(19)))
    evaluator = Evaluator(plan_filter("pod.labels.a == node.labels.team"), ClusterView(state))
    kept = [
        ref(evaluator.run(parse_pod(pod(labels={"a": f"{i}"})), ClusterView(state).nodes)[0])
        for i in range(40)
    ]
    assert sum(results() is not None for results in kept) == most


def test_many_columns_of_very_many_values_are_told_apart() -> None:
    """The number of combinations does not fit into 64 bits."""
    keys = [f"k{i}" for i in range(8)]
    labels = [{key: f"{key}-{i}" for key in keys} for i in range(300)]
    state = cluster(*(node(f"n{i}", labels=each) for i, each in enumerate(labels)))
    joined = ", ".join(f"node.labels.{key}" for key in keys)
    source = f"size([{joined}].filter(x, x.endsWith('-7') || x.endsWith('-299')))"
    evaluator = Evaluator(plan_score(source), ClusterView(state))
    values = results_of(evaluator, parse_pod(INCOMING), ClusterView(state).nodes).values
    assert np.flatnonzero(values).tolist() == [7, 299]
    assert values[7] == values[299] == len(keys)
