"""Nodes with different free storage, and claims for some of this storage."""

from itertools import count

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.storage_objects import TRACKED_DRIVER, attach, bound_claim, claim, volume
from conformance.scenes.vocabulary import HOSTNAME, ZONE, ZONES

NO_PROVISIONER = "kubernetes.io/no-provisioner"
CLASSES = {
    "made": TRACKED_DRIVER,
    "made-too": TRACKED_DRIVER,
    "found": NO_PROVISIONER,
    "either": TRACKED_DRIVER,
    "unmeasured": "csi.unmeasured",
}
"""Each class's provisioner. Available volumes of `found` and `either` exist."""
EXACT_SIZES = ("1500m", "16e-1", "1999999999n", "2", "10E", "20E")


def measured_storage(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one to three claims for available or new volumes of different sizes.

    A node has one capacity per class, because kube-scheduler takes any of several.
    """
    draw = cluster.draw
    _classes(cluster)
    sizes = draw.sample(range(1, 30), 3)
    for number in range(draw.randint(1, 3)):
        name = f"{cluster.label}-claim{number}"
        namespace = pod["metadata"]["namespace"]
        if draw.chance(0.1):
            bound_claim(cluster, namespace, name, {"hostPath": {"path": "/mnt/y"}})
        else:
            wanted = claim(cluster, namespace, name, draw.choice(tuple(CLASSES)))
            wanted["spec"]["resources"]["requests"]["storage"] = f"{sizes[number]}Gi"
            if draw.chance(0.1):
                node = draw.choice(cluster.node_names)
                wanted["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": node}
        attach(pod, name)


def exact_storage(cluster: Cluster, pod: Raw) -> None:
    """Like `measured_storage`, but sizes differ by less than a byte, or are beyond 2**63."""
    draw = cluster.draw
    measured_storage(cluster, pod)
    for raw in cluster.others:
        match raw["kind"]:
            case "PersistentVolumeClaim" if "volumeName" not in raw["spec"]:
                raw["spec"]["resources"]["requests"]["storage"] = draw.choice(EXACT_SIZES)
            case "PersistentVolume" if "claimRef" not in raw["spec"]:
                raw["spec"]["capacity"]["storage"] = draw.choice(EXACT_SIZES)
            case "CSIStorageCapacity":
                for name in raw.keys() & {"capacity", "maximumVolumeSize"}:
                    raw[name] = draw.choice(EXACT_SIZES)


def _classes(cluster: Cluster) -> None:
    draw = cluster.draw
    for name, provisioner in CLASSES.items():
        cluster.add(
            "StorageClass",
            name,
            provisioner=provisioner,
            volumeBindingMode="WaitForFirstConsumer",
        )
    cluster.add("CSIDriver", TRACKED_DRIVER, spec={"storageCapacity": True})
    for name, provisioner in CLASSES.items():
        if provisioner == TRACKED_DRIVER:
            key, places = draw.choice(((ZONE, ZONES), (HOSTNAME, cluster.node_names)))
            _capacities(cluster, name, key, draw.some(places, max(1, len(places) - 2), len(places)))
    for name in ("found", "either"):
        _volumes(cluster, name)


def _capacities(cluster: Cluster, storage_class: str, key: str, places: list[str]) -> None:
    """Add a capacity of the class for each place; some have a maximum volume size."""
    draw = cluster.draw
    for place in places:
        amounts = {"capacity": f"{draw.choice((0, 20, 32, 50, 100, 333))}Gi"}
        if draw.chance(0.2):
            amounts["maximumVolumeSize"] = f"{draw.choice((10, 25))}Gi"
        cluster.add(
            "CSIStorageCapacity",
            f"{storage_class}-{place}",
            "team-a",
            storageClassName=storage_class,
            nodeTopology={"matchLabels": {key: place}},
            **amounts,
        )


def _volumes(cluster: Cluster, storage_class: str) -> None:
    """Add available volumes of different sizes, each on a node or in a zone."""
    draw, numbers = cluster.draw, count()
    sizes = draw.sample(range(1, 120), 12)
    for node in draw.some(cluster.node_names, 1, 6):
        for size in sizes[:: draw.choice((3, 4, 6))]:
            name = f"{cluster.label}-{storage_class}-{next(numbers)}"
            made = volume(
                cluster,
                name,
                storage_class,
                {"local": {"path": "/mnt/x"}},
                f"{size + next(numbers)}Gi",
                "ReadWriteOnce",
            )
            key, value = draw.choice(
                ((HOSTNAME, node), (HOSTNAME, node), (ZONE, draw.choice(ZONES)))
            )
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
            made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
