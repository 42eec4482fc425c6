"""Volumes, claims, and the attach limits of nodes."""

from typing import Final

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.vocabulary import ZONE

DRIVER: Final = "csi.example"
TRACKED_DRIVER: Final = "csi.tracked"
EBS_DRIVER: Final = "ebs.csi.aws.com"

SIZE: Final = "5Gi"


def csi_nodes(cluster: Cluster) -> None:
    """Add a CSINode for most nodes, with or without a limit for volumes of DRIVER."""
    draw = cluster.draw
    for name in cluster.node_names:
        if draw.chance(0.7):
            driver: Raw = {"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]}
            if draw.chance(0.9):
                driver["allocatable"] = {"count": draw.choice((1, 1, 2, 5))}
            cluster.add("CSINode", name, spec={"drivers": [driver]})


def volume(
    cluster: Cluster, name: str, storage_class: str, source: Raw, size: str, mode: str
) -> Raw:
    """Add an available volume; return it."""
    return cluster.add(
        "PersistentVolume",
        name,
        spec={
            **source,
            "capacity": {"storage": size},
            "accessModes": [mode],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
        },
        status={"phase": "Available"},
    )


def claim(
    cluster: Cluster,
    namespace: str,
    name: str,
    storage_class: str,
    mode: str = "ReadWriteOnce",
) -> Raw:
    """Add an unbound claim; return it."""
    return cluster.add(
        "PersistentVolumeClaim",
        name,
        namespace,
        spec={
            "accessModes": [mode],
            "resources": {"requests": {"storage": SIZE}},
            "storageClassName": storage_class,
        },
        status={"phase": "Pending"},
    )


def bound_claim(
    cluster: Cluster, namespace: str, name: str, source: Raw, mode: str = "ReadWriteOnce"
) -> Raw:
    """Add a volume, and a claim of the same name bound to it; return the volume.

    The claim is the newest object of the cluster.
    """
    made = volume(cluster, name, "now", source, SIZE, mode)
    made["spec"]["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
    }
    made["status"]["phase"] = "Bound"
    bound = claim(cluster, namespace, name, "now", mode)
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    bound["spec"]["volumeName"] = name
    bound["status"] = {"phase": "Bound", "accessModes": [mode], "capacity": {"storage": SIZE}}
    return made


def users(cluster: Cluster, namespace: str, most: int) -> list[Raw]:
    """Return at most `most` bound pods of the namespace, to use its claims."""
    there = [pod for pod in cluster.pods if pod["metadata"]["namespace"] == namespace]
    return cluster.draw.some(there, most, most)


def attach(pod: Raw, claim_name: str) -> None:
    """Give the pod a volume for this claim."""
    mounted = pod["spec"].setdefault("volumes", [])
    source = {"persistentVolumeClaim": {"claimName": claim_name}}
    mounted.append({"name": f"v{len(mounted)}", **source})
