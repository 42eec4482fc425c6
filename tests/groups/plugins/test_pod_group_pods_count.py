import numpy as np

from mooring.framework.placements import Placement, PodGroupAssignments
from mooring.framework.registry import NoArgs
from mooring.groups.plugins.pod_group_pods_count import PodGroupPodsCount
from mooring.model.pod import Uid
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, pod_group
from mooring.testing.fakes import handle


def test_members_on_a_node_count_with_those_that_would_be() -> None:
    state = cluster(pod_group("g", 2))
    (group,) = state.pod_groups
    assignments = PodGroupAssignments(
        Placement(np.zeros(0, np.int64)), {Uid("u1"): 0, Uid("u2"): 0}, 3
    )
    plugin = PodGroupPodsCount(NoArgs(), handle(state))
    assert plugin.score_placement(group, assignments, ClusterView(state)) == 5
