from mooring.plugins.equal_priority import EqualPriority
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers


def test_every_node_scores_the_same() -> None:
    asking = PluginAnswers(EqualPriority, node("n1", cpu="1"), node("n2", cpu="64"))
    assert asking.scores(pod(cpu="1")) == {"n1": 1, "n2": 1}
