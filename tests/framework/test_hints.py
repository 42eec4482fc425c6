from mooring.framework.hints import freed_node, node_newly
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node, parse_node
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod

CLOSED, OPEN = parse_node(node("n1", unschedulable=True)), parse_node(node("n1"))


def opens(before: Node | None, after: Node | None) -> bool:
    event = ClusterEvent(Kind.NODE, Action.UPDATE, before, after)
    return node_newly(event, lambda seen: not seen.unschedulable)


def test_a_node_opens_when_it_is_admitted_and_was_not_before() -> None:
    assert opens(None, OPEN)
    assert opens(CLOSED, OPEN)
    assert not opens(OPEN, OPEN)
    assert not opens(None, CLOSED)
    assert not opens(OPEN, None)


def test_a_pod_leaves_the_node_it_was_on_or_hoped_for() -> None:
    assert freed_node(parse_pod(pod(node="n1"))) == "n1"
    assert freed_node(parse_pod(pod(nominated="n2"))) == "n2"
    assert freed_node(parse_pod(pod())) is None
