from typing import ClassVar

import pytest

from asking import Asking, Refusal
from mooring.plugins.node_label import NodeLabel
from mooring.testing.builders import node, pod
from mooring.testing.contract import PluginContract, Scenario

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
    args: dict[str, list[str]], out: set[str]
) -> None:
    refusal = Refusal(("node(s) didn't have the requested labels",), resolvable=False)
    assert Asking(NodeLabel, *NODES, **args).refusals(pod()) == dict.fromkeys(out, refusal)


def test_the_score_is_the_share_of_preferences_that_are_met_rounded_down() -> None:
    asking = Asking(
        NodeLabel,
        *NODES,
        presentLabelsPreference=["rack", "gpu"],
        absentLabelsPreference=["retiring"],
    )
    assert asking.scores(pod()) == {"both": 33, "rack": 66, "retiring": 0, "neither": 33}


def test_without_labels_nothing_is_asked() -> None:
    asking = Asking(NodeLabel, *NODES)
    assert asking.refusals(pod()) is None
    assert asking.scores(pod()) is None


def test_a_node_that_came_or_was_relabelled_cures_if_its_labels_are_right_now() -> None:
    asking = Asking(NodeLabel, presentLabels=["rack"], absentLabels=["retiring"])
    right, wrong = (
        node("n1", labels={"rack": "r1"}),
        node("n1", labels={"rack": "", "retiring": ""}),
    )
    assert asking.cures(pod(), after=right)
    assert asking.cures(pod(), before=wrong, after=right)
    assert asking.cures(pod(), before=node("n1"), after=right)
    assert not asking.cures(pod(), after=wrong)
    assert not asking.cures(pod(), before=node("n1"), after=wrong)
    assert not asking.cures(pod(), before=right, after=node("n1", labels={"rack": "r2"}))


class TestContract(PluginContract):
    plugin = NodeLabel
    args: ClassVar[dict[str, list[str]]] = {
        "presentLabels": ["rack"],
        "presentLabelsPreference": ["gpu"],
        "absentLabelsPreference": ["retiring"],
    }
    scenarios: ClassVar[list[Scenario]] = [Scenario(nodes=NODES, pod=pod())]
