import pytest

from mooring.plugins.node_condition import NodeCondition
from mooring.testing.builders import node, pod, toleration
from plugin_answers import PluginAnswers, Rejected

NOT_READY = "node(s) were not ready"
OUT_OF_DISK = "node(s) were out of disk space"
NO_NETWORK = "node(s) had unavailable network"
CORDONED = "node(s) were unschedulable"


@pytest.mark.parametrize(
    ("conditions", "reasons"),
    [
        ({"Ready": "True"}, ()),
        ({"Ready": "False"}, (NOT_READY,)),
        ({"Ready": "Unknown"}, (NOT_READY,)),
        ({"NetworkUnavailable": "False"}, ()),
        ({"NetworkUnavailable": "True"}, (NO_NETWORK,)),
        ({"NetworkUnavailable": "Unknown"}, (NO_NETWORK,)),
        ({"OutOfDisk": "True"}, (OUT_OF_DISK,)),
        ({"OutOfDisk": "Unknown"}, (OUT_OF_DISK,)),
        ({"MemoryPressure": "True"}, ()),
        (
            {"Ready": "False", "OutOfDisk": "True", "NetworkUnavailable": "True"},
            (NOT_READY, OUT_OF_DISK, NO_NETWORK),
        ),
    ],
)
def test_a_node_that_reports_being_unfit_is_out_with_every_reason(
    conditions: dict[str, str], reasons: tuple[str, ...]
) -> None:
    asking = PluginAnswers(NodeCondition, node("n1", conditions=conditions), node("sound"))
    expected = {"n1": Rejected(reasons, resolvable=False)} if reasons else {}
    assert asking.rejections(pod()) == expected


def test_a_condition_that_is_not_reported_is_no_reason() -> None:
    assert (
        PluginAnswers(NodeCondition, node("n1", status={"conditions": []})).rejections(pod()) == {}
    )


def test_a_cordoned_node_is_out_whatever_the_pod_tolerates() -> None:
    asking = PluginAnswers(
        NodeCondition, node("n1", unschedulable=True, conditions={"Ready": "False"})
    )
    assert asking.rejections(pod(tolerations=[toleration()])) == {
        "n1": Rejected((NOT_READY, CORDONED), resolvable=False)
    }


def test_a_node_queues_when_it_is_added_or_loses_bad_conditions() -> None:
    asking, sound = PluginAnswers(NodeCondition), node("n1")
    ill, cordoned = node("n1", conditions={"Ready": "False"}), node("n1", unschedulable=True)
    assert asking.queueing_hint(pod(), after=sound)
    assert asking.queueing_hint(pod(), before=ill, after=sound)
    assert asking.queueing_hint(pod(), before=cordoned, after=sound)
    assert not asking.queueing_hint(pod(), after=ill)
    assert not asking.queueing_hint(pod(), before=ill, after=cordoned)
    assert not asking.queueing_hint(pod(), before=sound, after=node("n1", cpu="9"))
