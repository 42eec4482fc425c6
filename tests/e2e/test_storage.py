"""Mooring binds volumes with the real volume controller; the test plays the provisioner."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import replica
from controlplane import Access, ControlPlane
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, free_ports
from mooring.testing import builders
from storage_builders import pv, pvc, storage_class

NODES = ("node-1", "node-2", "node-3")
PATIENCE = "60s"

Raw = Mapping[str, Any]


class Cluster:
    """A namespace whose pods Mooring schedules and kwok runs."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.namespace = create_namespace(access)
        self.kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={PATIENCE}")

    def kubectl(self, *words: str) -> str:
        return self.access.kubectl("--namespace", self.namespace, *words)

    def create(self, *objects: Raw) -> None:
        """Create objects in the namespace or in the cluster, depending on their kinds."""
        core, place = "/api/v1", f"namespaces/{self.namespace}"
        paths = {
            "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
            "PersistentVolume": f"{core}/persistentvolumes",
            "PersistentVolumeClaim": f"{core}/{place}/persistentvolumeclaims",
            "Pod": f"{core}/{place}/pods",
        }
        with self.access.client() as client:
            for raw in objects:
                client.post(paths[raw["kind"]], raw)

    def get(self, resource: str, name: str) -> Any:
        with self.access.client() as client:
            return client.get(f"/api/v1/namespaces/{self.namespace}/{resource}/{name}")

    def volume(self, name: str) -> Any:
        with self.access.client() as client:
            return client.get(f"/api/v1/persistentvolumes/{name}")

    def wait(self, what: str, condition: str) -> None:
        self.kubectl("wait", f"--for={condition}", what, f"--timeout={PATIENCE}")

    def runs_on(self, name: str) -> str:
        """Wait until the pod runs; return its node."""
        self.wait(f"pod/{name}", "jsonpath={.status.phase}=Running")
        return str(self.get("pods", name)["spec"]["nodeName"])

    def pvc(self, name: str, class_name: str) -> Raw:
        return pvc(name, namespace=self.namespace, storage_class=class_name)

    def pod(self, name: str, *claims: str) -> Raw:
        return builders.pod(
            name, namespace=self.namespace, claims=claims, spec={"schedulerName": "mooring"}
        )

    def rejection(self, name: str) -> str:
        """Wait until the pod is unschedulable; return the message of its condition."""
        self.wait(f"pod/{name}", "condition=PodScheduled=false")
        conditions = self.get("pods", name)["status"]["conditions"]
        return str(next(c["message"] for c in conditions if c["type"] == "PodScheduled"))


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    logs: Path = tmp_path_factory.mktemp("logs")
    with ControlPlane(components={"kube-controller-manager", "kwok"}) as plane:
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, len(NODES))
        kubeconfig = plane.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        (port,) = free_ports(1)
        with ProcessGroup() as group:
            program = group.spawn(
                "mooring",
                replica.command(kubeconfig, port),
                log=logs / "mooring.log",
                env=replica.environment(),
            )
            replica.wait_until_ready(program, port)
            yield plane.access


@pytest.fixture
def cluster(access: Access) -> Cluster:
    return Cluster(access)


def local(name: str, node: str, class_name: str) -> Raw:
    source = {"local": {"path": f"/mnt/{name}"}}
    return pv(name, nodes=[node], storage_class=class_name, spec=source)


def test_a_pod_runs_on_the_node_of_the_local_volume_that_its_claim_gets(cluster: Cluster) -> None:
    cluster.create(
        storage_class("disks"),
        local("small", "node-2", "disks"),
        cluster.pvc("data", "disks"),
        cluster.pod("web", "data"),
    )
    assert cluster.runs_on("web") == "node-2"
    claim, volume = cluster.get("persistentvolumeclaims", "data"), cluster.volume("small")
    assert claim["status"]["phase"] == volume["status"]["phase"] == "Bound"
    assert claim["spec"]["volumeName"] == "small"
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


def test_of_two_pods_that_race_for_one_volume_one_runs_and_the_other_says_why_not(
    cluster: Cluster,
) -> None:
    names = ("one", "two")
    cluster.create(
        storage_class("single"),
        local("only", "node-1", "single"),
        *(cluster.pvc(name, "single") for name in names),
        *(cluster.pod(name, name) for name in names),
    )
    cluster.wait("pv/only", "jsonpath={.status.phase}=Bound")
    winner = cluster.volume("only")["spec"]["claimRef"]["name"]
    (loser,) = set(names) - {winner}
    assert cluster.runs_on(winner) == "node-1"
    assert cluster.rejection(loser).startswith(
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."
    )
    assert cluster.get("persistentvolumeclaims", loser)["status"]["phase"] == "Pending"
    cluster.create(local("another", "node-3", "single"))
    assert cluster.runs_on(loser) == "node-3"


def test_a_claim_is_sent_to_the_pods_node_and_the_pod_waits_for_the_volume_made_there(
    cluster: Cluster,
) -> None:
    cluster.create(
        storage_class("made", provisioner="csi.example"),
        cluster.pvc("data", "made"),
        cluster.pod("web", "data"),
    )
    selected = "{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}"
    cluster.wait("pvc/data", f"jsonpath={selected}")
    claim = cluster.get("persistentvolumeclaims", "data")
    node = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
    assert "nodeName" not in cluster.get("pods", "web")["spec"]
    made_for = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": cluster.namespace,
        "name": "data",
        "uid": claim["metadata"]["uid"],
    }
    source = {"local": {"path": "/mnt/made"}, "claimRef": made_for}
    cluster.create(pv("made", nodes=[node], storage_class="made", spec=source))
    assert cluster.runs_on("web") == node


def test_a_provisioner_that_gives_up_has_the_pod_tried_again(cluster: Cluster) -> None:
    cluster.create(
        storage_class("failing", provisioner="csi.example"),
        cluster.pvc("data", "failing"),
        cluster.pod("web", "data"),
    )
    selected = "{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}"
    cluster.wait("pvc/data", f"jsonpath={selected}")
    cluster.kubectl("annotate", "pvc/data", "volume.kubernetes.io/selected-node-")
    assert cluster.rejection("web") == (
        'running PreBind plugin "VolumeBinding": '
        'binding volumes: provisioning failed for PVC "data"'
    )
    cluster.wait("pvc/data", f"jsonpath={selected}")
