import pytest

from deciding import Deciding
from mooring.plugins.dynamic_resources.plugin import DynamicResources
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

CLAIMING = pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})


def test_a_pod_with_resource_claims_is_rejected() -> None:
    """After a rejection before the filters upstream's plugin adds "not found", and so does this."""
    decision = Deciding(node("n1")).decision(CLAIMING)
    assert decision.node is None
    assert decision.message is not None
    assert decision.message.startswith(
        "0/1 nodes are available: pod has resource claims, which Mooring does not allocate. "
        "not found"
    )


@pytest.mark.parametrize(
    ("version", "text"),
    [("1.36", "no new claims to deallocate, preemption: "), ("1.37", "preempt")],
)
def test_its_post_filter_returns_kube_schedulers_text(version: str, text: str) -> None:
    deciding = Deciding(node("n1", cpu="1"), kubernetesVersion=version)
    message = deciding.decision(pod(cpu="2")).message
    assert message is not None
    assert message.startswith(f"0/1 nodes are available: 1 Insufficient cpu. {text}")


def test_no_cluster_event_queues_it() -> None:
    assert not PluginAnswers(DynamicResources).queueing_hint(CLAIMING, after=node("n1"))
