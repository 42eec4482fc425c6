from dataclasses import FrozenInstanceError

import pytest

from mooring.framework.handle import Handle
from mooring.framework.waiting_pods import WaitingPods
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node
from mooring.testing.fakes import FakeApi


def test_a_plugin_gets_the_cluster_to_read_the_api_to_write_and_can_replace_neither() -> None:
    state = cluster(node("n1"))
    handle = Handle(ClusterView(state), WaitingPods(), FakeApi(), state)
    assert handle.cluster.node_count == 1
    with pytest.raises(FrozenInstanceError):
        handle.api = FakeApi()  # type: ignore[misc] # that it fails is what is tested
