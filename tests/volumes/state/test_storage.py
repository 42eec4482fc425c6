"""ClusterState reports every change to its storage.

The tests of the parts check the counts; tests/property checks changes in any order.
"""

import numpy as np

from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.volumes.model.pod_volumes import Disk, DiskKind
from mooring.volumes.model.storage_objects import parse_persistent_volume
from mooring.volumes.state.storage import Storage
from relists import replace_all
from storage_builders import csi_node, pv, pvc, storage_class

LIMITS = csi_node("n1", {"csi.example": 3})
DISK = Disk(DiskKind.AWS_EBS, "vol-1", read_only=False)
VOLUMES = [
    {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
]
WEB = parse_pod(pod("web", spec={"volumes": VOLUMES}))


def storage(state: ClusterState) -> Storage:
    return ClusterView(state).storage


def in_use(state: ClusterState) -> tuple[bool, list[int], list[int]]:
    """Return whether the claim is in use, the rows of the disk, and the volume counts on n1."""
    view, rows = storage(state), np.array([state.nodes.row_of["n1"]])
    counts = [int(view.attachments.counts(d, rows)[0]) for d in ("csi.example", "ebs.csi.aws.com")]
    return view.users.claim_in_use("default/data"), [*view.users.rows_in_conflict(DISK)], counts


def test_an_assumed_pod_uses_its_volumes_until_it_is_forgotten() -> None:
    made = storage_class("fast", provisioner="csi.example")
    state = cluster(node("n1"), made, pvc("data", storage_class="fast"))
    row = state.nodes.row_of["n1"]
    state.assume(WEB, row)
    assert in_use(state) == (True, [row], [1, 1])
    state.forget(WEB)
    assert in_use(state) == (False, [], [0, 0])


def test_what_a_trial_changes_is_undone() -> None:
    state = cluster(node("n1"))
    row = state.nodes.row_of["n1"]
    with state.trial() as trial:
        trial.add(WEB, row)
        assert in_use(state) == (True, [row], [0, 1])
    assert in_use(state) == (False, [], [0, 0])


def test_after_a_relist_only_the_listed_objects_are_known() -> None:
    state = cluster(node("n1"), LIMITS, pv("v", storage_class="fast"))
    rows = np.array([state.nodes.row_of["n1"]])
    replace_all(state, Kind.CSI_NODE, {})
    other = parse_persistent_volume(pv("other", storage_class="fast"))
    replace_all(state, Kind.PERSISTENT_VOLUME, {"other": other})
    assert storage(state).csi_nodes.limits("csi.example", rows)[0] > 3
    assert [volume.name for volume in storage(state).volumes.available("fast").items] == ["other"]
    assert storage(state).volumes.volume("v") is None


def test_volumes_assumed_for_a_pod_are_restored_for_it() -> None:
    state = cluster(pv("v", storage_class="fast"))
    volume = storage(state).volumes.volume("v")
    assert volume is not None
    state.assume_volumes(WEB, [volume], [])
    state.restore_volumes(WEB)
    assert storage(state).volumes.volume("v") is volume
