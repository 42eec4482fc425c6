import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

GPU = "example.com/gpu"


def test_a_pod_that_evens_out_a_nodes_use_scores_above_75() -> None:
    """The evenness grows from 75 (50 % of cpu and no memory used) to 100 (50 % of both used)."""
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        node("n1", cpu="4", memory="4Gi"),
        pod("placed", cpu="2", memory="0", node="n1"),
    )
    assert asking.scores(pod(cpu="0", memory="2Gi")) == {"n1": 50 + (50 + 100 - 75) // 2}


def test_a_pod_that_makes_it_more_uneven_scores_below_75() -> None:
    asking = PluginAnswers(NodeResourcesBalancedAllocation, node("n1", cpu="4", memory="4Gi"))
    assert asking.scores(pod(cpu="2", memory="0")) == {"n1": 50 + (50 + 75 - 100) // 2}


@pytest.mark.parametrize(("kubernetes", "score"), [("1.35", 75), ("1.36", 62)])
def test_before_1_36_the_score_is_the_evenness_with_the_pod(kubernetes: str, score: int) -> None:
    stored = node("n1", cpu="4", memory="4Gi")
    asking = PluginAnswers(NodeResourcesBalancedAllocation, stored, kubernetes=kubernetes)
    assert asking.scores(pod(cpu="2", memory="0")) == {"n1": score}


def test_where_the_pod_changes_nothing_the_score_is_75() -> None:
    asking = PluginAnswers(NodeResourcesBalancedAllocation, node("n1", cpu="4", memory="4Gi"))
    assert asking.scores(pod(cpu="1", memory="1Gi")) == {"n1": 75}


def test_a_pod_that_requests_none_of_the_resources_is_skipped() -> None:
    asking = PluginAnswers(NodeResourcesBalancedAllocation, node("n1"))
    assert asking.scores(pod()) is None
    assert asking.scores(pod(requests={GPU: 1})) is None


def test_a_resource_a_node_does_not_offer_does_not_count_there() -> None:
    """On the node without memory only cpu counts, and one resource alone is always even."""
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        node("both", cpu="4", memory="4Gi"),
        node("cpu-only", cpu="4", memory="0"),
    )
    assert asking.scores(pod(cpu="2")) == {"both": 62, "cpu-only": 75}


def test_use_above_the_whole_counts_as_the_whole() -> None:
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        node("n1", cpu="1", memory="4Gi"),
        pod("placed", cpu="9", memory="4Gi", node="n1"),
    )
    assert asking.scores(pod(cpu="1")) == {"n1": 75}


def test_a_request_at_the_limit_of_int64_counts_as_the_whole() -> None:
    """Nodes without room get scores, too; request and use together exceed int64."""
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        node("n1", cpu="4", memory="4Gi"),
        pod("placed", cpu="2", memory="0", node="n1"),
    )
    assert asking.scores(pod(cpu="8Ei", memory="0")) == {"n1": 50 + (50 + 50 - 75) // 2}


@pytest.mark.parametrize(("gpus", "score"), [(0, 75), (4, 53)])
def test_three_resources_are_compared_by_their_standard_deviation(gpus: int, score: int) -> None:
    """The used fractions are 1/4, 1/4 and gpus/4; (1/4, 1/4, 1) has the deviation 0.3535."""
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        node("n1", cpu="4", memory="4Gi", resources={GPU: 4}),
        resources=[{"name": name, "weight": 1} for name in ("cpu", "memory", GPU)],
    )
    wanted = pod(cpu="1", memory="1Gi", requests={GPU: gpus} if gpus else None)
    expected = 50 + (50 + int((1 - 0.35355339) * 100) - 100) // 2 if gpus else score
    assert asking.scores(wanted) == {"n1": expected}


def test_the_devices_of_a_class_count_as_a_resource() -> None:
    """The used fractions are 0 and 1/4 without the pod, 1/4 and 2/4 with it: equally uneven."""
    names = ("cpu", GPU)
    asking = PluginAnswers(
        NodeResourcesBalancedAllocation,
        device_class("gpu", extendedResourceName=GPU),
        resource_slice("s1", ["d0", "d1", "d2", "d3"], node="n1"),
        device_claim(allocation=allocated("d0", node="n1")),
        node("n1", cpu="4"),
        resources=[{"name": name, "weight": 1} for name in names],
    )
    assert asking.scores(pod(cpu="1", requests={GPU: 1})) == {"n1": 75}
    assert asking.scores(pod(cpu="0", requests={GPU: 2})) == {"n1": 50 + (50 + 62 - 87) // 2}
