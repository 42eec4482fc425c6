from mooring.plugins.node_name import NodeName
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers, Rejected


def test_a_pod_that_names_its_node_fits_there_only() -> None:
    asking = PluginAnswers(NodeName, node("n1"), node("n2"))
    assert asking.rejections(pod(node="n1")) == {
        "n2": Rejected(("node(s) didn't match the requested node name",), resolvable=False)
    }


def test_a_pod_that_names_a_node_nobody_knows_fits_nowhere() -> None:
    rejections = PluginAnswers(NodeName, node("n1"), node("n2")).rejections(pod(node="n3"))
    assert rejections is not None
    assert rejections.keys() == {"n1", "n2"}


def test_a_pod_that_names_no_node_is_skipped() -> None:
    assert PluginAnswers(NodeName, node("n1")).rejections(pod()) is None


def test_only_the_named_node_queues() -> None:
    asking = PluginAnswers(NodeName)
    assert asking.queueing_hint(pod(node="n1"), after=node("n1"))
    assert not asking.queueing_hint(pod(node="n1"), after=node("n2"))
