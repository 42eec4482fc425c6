"""Values per node, evaluated once per distinct value."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.framework.evaluations import Evaluations
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.plugins.rules.node_values import NodeValues
from mooring.plugins.rules.value_columns import Codes, Errors
from mooring.policy.rules.rule_plan import Interpreted, Operation, plan_score
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod


def interpreted(source: str) -> Interpreted:
    step = plan_score(source).step
    while isinstance(step, Operation):
        step = step.operands[0]
    assert isinstance(step, Interpreted)
    return step


def priced(*prices: str | None) -> ClusterState:
    return cluster(*(_priced(f"n{i}", price) for i, price in enumerate(prices)))


def _priced(name: str, price: str | None) -> dict[str, Any]:
    return node(name, labels={} if price is None else {"price": price})


def put(state: ClusterState, name: str, price: str | None) -> None:
    state.put(Kind.NODE, name, parse_node(_priced(name, price)))


def finish(values: NodeValues) -> None:
    """Evaluate all missing values."""
    values.update(Evaluations(), "evaluating")


def some(values: NodeValues) -> None:
    """Evaluate values until a very small budget is used up."""
    limited = Evaluations(1)
    limited.begin_attempt()
    with suppress(PluginFailed):
        values.update(limited, "evaluating")


def found(values: NodeValues, rows: Any = None) -> list[object]:
    """Return the value of each row, or the text of its error."""
    errors = Errors()
    value = values.at(rows, errors)
    data = value.data
    listed = (
        [data.table[code] for code in data.codes.tolist()]
        if isinstance(data, Codes)
        else data.tolist()
    )
    numbers = [0] * len(listed) if isinstance(value.errors, int) else value.errors.tolist()
    return [
        errors.texts[number - 1] if number else one
        for one, number in zip(listed, numbers, strict=True)
    ]


def test_each_value_is_evaluated_once_over_several_attempts_and_charged(calls: list[Any]) -> None:
    state, step = priced(*"312456782"), interpreted("int(node.labels.price)")
    values, limited, ended = NodeValues(step, ClusterView(state)), Evaluations(3 * step.cost), 0
    while not values.is_current:
        limited.begin_attempt()
        try:
            values.update(limited, "evaluating rule r")
        except PluginFailed:
            ended += 1
    assert ended == 2
    assert len(calls) == 8
    assert found(values) == [*map(int, "312456782")]


def test_after_a_change_only_the_changed_node_is_evaluated(calls: list[Any]) -> None:
    state = priced(*map(str, range(40)))
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    finish(values)
    calls.clear()
    put(state, "n7", "700")
    assert not values.is_current
    finish(values)
    assert len(calls) == 1
    assert found(values)[7] == 700


def test_a_node_that_changes_in_something_else_is_not_evaluated_again(calls: list[Any]) -> None:
    state = priced("1", "2")
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    finish(values)
    calls.clear()
    changed = node("n0", labels={"price": "1", "other": "x"}, taints=["x:NoSchedule"])
    state.put(Kind.NODE, "n0", parse_node(changed))
    finish(values)
    assert calls == []


def test_a_node_that_changes_in_between_gets_its_new_value() -> None:
    state = priced(*map(str, range(30)))
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    for _ in range(10):
        some(values)
    put(state, "n3", "300")
    put(state, "n29", "290")
    put(state, "n30", "5")
    finish(values)
    assert found(values) == [*range(3), 300, *range(4, 29), 290, 5]


def test_progress_is_kept_while_nodes_change_all_the_time(calls: list[Any]) -> None:
    """Otherwise a pod would wait for ever while nodes get new labels."""
    state = priced(*map(str, range(50)))
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    for number in range(100):
        some(values)
        put(state, "n0", f"{1000 + number}")
    finish(values)
    assert len(calls) < 50 + 100
    assert found(values)[0] == 1099


def test_a_row_without_a_node_is_not_evaluated(calls: list[Any]) -> None:
    state = priced("1")
    incoming = parse_pod(pod("early", node="not-yet"))
    state.put(Kind.POD, incoming.uid, incoming)
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    finish(values)
    assert len(calls) == 1
    assert found(values)[0] == 1


def test_an_evaluation_that_fails_is_an_error_of_its_rows() -> None:
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(priced("1", None, "x")))
    finish(values)
    assert found(values)[:2] == [1, "no such key: price"]
    assert "x" in str(found(values)[2]) or "int" in str(found(values)[2])


def test_texts_are_kept_by_number_and_those_of_the_past_are_forgotten() -> None:
    state = priced("1", "2")
    step = interpreted("string(int(node.labels.price)) == 'x' ? 1 : 2")
    values = NodeValues(step, ClusterView(state))
    for number in range(500):
        put(state, "n1", str(number))
        finish(values)
        put(state, "n0", f"lost-{number}")
        finish(values)
    assert found(values)[1] == "499"
    assert len(values.at(None, errors := Errors()).data.table) < 100
    assert len(errors) < 100


def test_texts_of_errors_of_the_past_are_forgotten() -> None:
    state = priced("1", "2")
    values = NodeValues(interpreted("{'1': 1}[node.labels.price] + 0"), ClusterView(state))
    for number in range(300):
        put(state, "n1", f"lost-{number}")
        finish(values)
    assert found(values) == [1, "no such key: lost-299"]
    values.at(None, errors := Errors())
    assert len(errors) < 100


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(("1", "2", "x", None)), st.booleans()),
        max_size=60,
    ),
    st.sampled_from(("int(node.labels.price)", "size(node.taints)", "size(node.name)")),
)
def test_values_follow_any_changes_of_nodes(
    changes: list[tuple[int, str | None, bool]], source: str
) -> None:
    """The values must equal those of a new evaluation of all nodes."""
    state = priced(*["1"] * 20)
    step = interpreted(source)
    values = NodeValues(step, ClusterView(state))
    for number, price, rest in changes:
        name = f"n{number}"
        if price is None and name in state.nodes.row_of and number % 2:
            state.delete(Kind.NODE, name)
        else:
            put(state, name, price)
        if rest:
            finish(values)
        else:
            some(values)
    finish(values)
    again = NodeValues(step, ClusterView(state))
    finish(again)
    rows = ClusterView(state).nodes_in_order
    assert found(values, rows) == found(again, rows)
    assert len(found(values)) == len(ClusterView(state).nodes), "also if it has given up rows"


def test_a_row_that_was_given_up_has_the_value_of_the_node_that_gets_it_next() -> None:
    state = priced("1", "2", "3")
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    finish(values)
    state.delete(Kind.NODE, "n2")
    finish(values)
    assert found(values) == [1, 2]
    put(state, "n3", "4")
    assert not values.is_current
    finish(values)
    assert found(values) == [1, 2, 4]


def test_nodes_may_go_and_others_get_their_rows_while_values_are_evaluated() -> None:
    state = priced("1", "2", "3")
    values = NodeValues(interpreted("int(node.labels.price)"), ClusterView(state))
    for _ in range(2):
        some(values)
    for name in ("n2", "n1"):
        state.delete(Kind.NODE, name)
    assert len(found(values)) == 1
    put(state, "n3", "4")
    finish(values)
    assert found(values) == [1, 4]


def test_what_each_row_takes_is_a_part_of_the_cost() -> None:
    few = NodeValues(interpreted("size(node.zone)"), ClusterView(priced(*["1"] * 10)))
    many = NodeValues(interpreted("size(node.zone)"), ClusterView(priced(*["1"] * 110)))
    assert many.units - few.units >= 100 * 10, "no row is for nothing"
