from asking import Asking, Refusal
from mooring.plugins.node_name import NodeName
from mooring.testing.builders import node, pod


def test_a_pod_that_names_its_node_fits_there_only() -> None:
    asking = Asking(NodeName, node("n1"), node("n2"))
    assert asking.refusals(pod(node="n1")) == {
        "n2": Refusal(("node(s) didn't match the requested node name",), resolvable=False)
    }


def test_a_pod_that_names_a_node_nobody_knows_fits_nowhere() -> None:
    refusals = Asking(NodeName, node("n1"), node("n2")).refusals(pod(node="n3"))
    assert refusals is not None
    assert refusals.keys() == {"n1", "n2"}


def test_a_pod_that_names_none_is_not_asked_about() -> None:
    assert Asking(NodeName, node("n1")).refusals(pod()) is None


def test_only_the_named_node_cures() -> None:
    asking = Asking(NodeName)
    assert asking.cures(pod(node="n1"), after=node("n1"))
    assert not asking.cures(pod(node="n1"), after=node("n2"))
