import pytest

from mooring.plugins.node_unschedulable import NodeUnschedulable
from mooring.testing.builders import node, pod, toleration
from plugin_answers import PluginAnswers, Rejected

CORDONED, OPEN = node("n1", unschedulable=True), node("n1")


def test_a_cordoned_node_is_out_and_eviction_does_not_help() -> None:
    asking = PluginAnswers(NodeUnschedulable, node("open"), node("cordoned", unschedulable=True))
    assert asking.rejections(pod()) == {
        "cordoned": Rejected(("node(s) were unschedulable",), resolvable=False)
    }


@pytest.mark.parametrize(
    ("tolerations", "out"),
    [
        ([toleration("node.kubernetes.io/unschedulable")], False),
        ([toleration("node.kubernetes.io/unschedulable", effect="NoSchedule")], False),
        ([toleration()], False),
        ([toleration("node.kubernetes.io/unschedulable", effect="NoExecute")], True),
        ([toleration("other")], True),
    ],
)
def test_who_tolerates_the_cordons_taint_is_let_in(
    tolerations: list[dict[str, str]], *, out: bool
) -> None:
    asking = PluginAnswers(NodeUnschedulable, CORDONED)
    assert bool(asking.rejections(pod(tolerations=tolerations))) == out


def test_a_new_node_and_an_uncordoned_one_queue() -> None:
    asking = PluginAnswers(NodeUnschedulable)
    assert asking.queueing_hint(pod(), after=OPEN)
    assert asking.queueing_hint(pod(), before=CORDONED, after=OPEN)
    assert not asking.queueing_hint(pod(), after=CORDONED)
    assert not asking.queueing_hint(pod(), before=OPEN, after=node("n1", cpu="64"))
    assert not asking.queueing_hint(pod(), before=pod(node="n1"))
