from typing import Any, ClassVar

import pytest

from mooring.plugins.node_label import NodeLabel
from mooring.testing.builders import node, pod
from mooring.testing.contract import PluginContract, Scenario
from plugin_answers import PluginAnswers, Rejected

NODES = (
    node("both", labels={"rack": "", "retiring": "2026-01-01"}),
    node("rack", labels={"rack": "r1"}),
    node("retiring", labels={"retiring": ""}),
    node("neither"),
)


@pytest.mark.parametrize(
    ("args", "out"),
    [
        ({"presentLabels": ["rack"]}, {"retiring", "neither"}),
        ({"absentLabels": ["retiring"]}, {"both", "retiring"}),
        (
            {"presentLabels": ["rack"], "absentLabels": ["retiring"]},
            {"both", "retiring", "neither"},
        ),
        ({"presentLabels": ["rack", "retiring"]}, {"rack", "retiring", "neither"}),
    ],
)
def test_labels_must_be_there_or_not_whatever_their_values(
    args: dict[str, Any], out: set[str]
) -> None:
    rejection = Rejected(("node(s) didn't have the requested labels",), resolvable=False)
    assert PluginAnswers(NodeLabel, *NODES, **args).rejections(pod()) == dict.fromkeys(
        out, rejection
    )


def test_the_score_is_the_share_of_preferences_that_are_met_rounded_down() -> None:
    asking = PluginAnswers(
        NodeLabel,
        *NODES,
        presentLabelsPreference=["rack", "gpu"],
        absentLabelsPreference=["retiring"],
    )
    assert asking.scores(pod()) == {"both": 33, "rack": 66, "retiring": 0, "neither": 33}


def test_without_labels_every_pod_is_skipped() -> None:
    asking = PluginAnswers(NodeLabel, *NODES)
    assert asking.rejections(pod()) is None
    assert asking.scores(pod()) is None


def test_a_node_added_or_relabelled_queues_if_its_labels_are_right_now() -> None:
    asking = PluginAnswers(NodeLabel, presentLabels=["rack"], absentLabels=["retiring"])
    right, wrong = (
        node("n1", labels={"rack": "r1"}),
        node("n1", labels={"rack": "", "retiring": ""}),
    )
    assert asking.queueing_hint(pod(), after=right)
    assert asking.queueing_hint(pod(), before=wrong, after=right)
    assert asking.queueing_hint(pod(), before=node("n1"), after=right)
    assert not asking.queueing_hint(pod(), after=wrong)
    assert not asking.queueing_hint(pod(), before=node("n1"), after=wrong)
    assert not asking.queueing_hint(pod(), before=right, after=node("n1", labels={"rack": "r2"}))


class TestContract(PluginContract):
    plugin = NodeLabel
    args: ClassVar[dict[str, list[str]]] = {
        "presentLabels": ["rack"],
        "presentLabelsPreference": ["gpu"],
        "absentLabelsPreference": ["retiring"],
    }
    scenarios: ClassVar[list[Scenario]] = [Scenario(nodes=NODES, pod=pod())]
