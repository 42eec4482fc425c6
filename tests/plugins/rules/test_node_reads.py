import pytest

from mooring.cel.values import Failure
from mooring.model.pod import parse_pod
from mooring.plugins.rules.node_reads import codes_of, distinct, evaluated, of_pod
from mooring.policy.rules.rule_plan import Interpreted, Operation, Read, plan_filter
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, namespace, node, pod

STATE = ClusterView(
    cluster(
        namespace("team-a", {"env": "prod"}),
        node("n0", labels={"disk": "ssd", "rack": "1"}, zone="a", taints=["x:NoSchedule"]),
        node("n1", labels={"disk": "hdd"}, zone="b"),
        node("n2", labels={"disk": "ssd", "rack": "2"}, unschedulable=True),
    )
)


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (Read("node.name"), ["n0", "n1", "n2"]),
        (Read("node.labels", "rack"), ["1", None, "2"]),
        (Read("node.unschedulable"), [False, False, True]),
        (Read("node.region"), ["", "", ""]),
    ],
)
def test_a_read_of_nodes_is_a_column_of_codes(read: Read, values: list[object]) -> None:
    codes = codes_of(read, STATE.nodes, STATE)
    assert [codes.table[code] for code in codes.codes.tolist()] == values


@pytest.mark.parametrize(
    "variable", ["node.name", "node.taints", "node.conditions", "node.zone", "node.unschedulable"]
)
def test_distinct_values_are_counted_without_making_the_column(variable: str) -> None:
    table = codes_of(Read(variable), STATE.nodes, STATE).table
    assert distinct([Read(variable)], STATE) == min(len(table), 3)


def test_several_reads_have_at_most_as_many_combinations_as_there_are_nodes() -> None:
    both = [Read("node.labels", "disk"), Read("node.labels", "rack")]
    assert distinct(both, STATE) == 3


def test_a_map_of_the_pod_is_read_as_its_sorted_items() -> None:
    incoming = parse_pod(pod(namespace="team-a", labels={"b": "2", "a": "1"}))
    assert of_pod(incoming, Read("pod.labels"), STATE) == (("a", "1"), ("b", "2"))
    assert of_pod(incoming, Read("pod.labels", "c"), STATE) is None
    assert of_pod(incoming, Read("pod.namespaceLabels", "env"), STATE) == "prod"


def _interpreted(source: str) -> Interpreted:
    step = plan_filter(source).step
    while isinstance(step, Operation):
        step = step.operands[0]
    assert isinstance(step, Interpreted)
    return step


@pytest.mark.parametrize(
    ("source", "raw", "why"),
    [
        (
            "pod.ownerKind.matches('^(a+)+$')",
            "a" * 513,
            "pod.ownerKind has a text of 513 characters, at most 512 are read",
        ),
        (
            "node.conditions.exists(c, c == 'x')",
            frozenset({("a" * 600, "True")}),
            "node.conditions has a text of 600 characters, at most 512 are read",
        ),
        (
            "node.conditions.exists(c, c == 'x')",
            frozenset((str(n), "True") for n in range(101)),
            "node.conditions has 101 items, at most 100 are read",
        ),
    ],
)
def test_values_that_somebody_has_made_long_are_not_read(
    source: str, raw: object, why: str
) -> None:
    found = evaluated(_interpreted(source), (raw,))
    assert isinstance(found, Failure)
    assert found.text == why
