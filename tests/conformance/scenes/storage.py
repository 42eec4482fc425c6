"""Claims in every state, their volumes, and pods that already use them."""

from collections.abc import Callable, Sequence
from typing import Final

from conformance.scenes.cluster import Cluster, Feature, Raw
from conformance.scenes.storage_objects import (
    DRIVER,
    EBS_DRIVER,
    TRACKED_DRIVER,
    attach,
    bound_claim,
    claim,
    csi_nodes,
    users,
    volume,
)
from conformance.scenes.vocabulary import HOSTNAME, ZONE, ZONES

NO_PROVISIONER = "kubernetes.io/no-provisioner"


def mounting(kinds: Sequence[Callable[[Cluster, str, str], None]]) -> Feature:
    """Return a feature that gives the pod one or two claims of these kinds."""

    def apply(cluster: Cluster, pod: Raw) -> None:
        if not cluster.named("StorageClass"):
            _classes(cluster)
            csi_nodes(cluster)
        for number in range(cluster.draw.randint(1, 2)):
            name = f"{cluster.label}-claim{number}"
            make = cluster.draw.choice(kinds)
            make(cluster, pod["metadata"]["namespace"], name)
            attach(pod, name)
        if cluster.draw.chance(0.05):
            _ephemeral(cluster, pod)

    return apply


def inline_disk(cluster: Cluster, pod: Raw) -> None:
    """Give the pod an inline disk that other pods may also use."""
    draw = cluster.draw
    monitors = draw.choice((["a", "b"], ["b", "c"], ["d"]))
    disk = draw.choice(
        (
            {"gcePersistentDisk": {"pdName": "d1"}},
            {"awsElasticBlockStore": {"volumeID": "vol1"}},
            {"iscsi": {"targetPortal": "1.1.1.1", "iqn": "iqn.2001-04.com.example:d", "lun": 0}},
            {"rbd": {"monitors": monitors, "image": "i", "pool": "p"}},
        )
    )
    (kind,) = disk
    for user in (pod, *draw.some(cluster.pods, 0, 4)):
        source = {**disk[kind], "readOnly": True} if draw.chance(0.5) else disk[kind]
        _mount(user, {kind: source})


def _mount(pod: Raw, source: Raw) -> None:
    mounted = pod["spec"].setdefault("volumes", [])
    mounted.append({"name": f"v{len(mounted)}", **source})


def _classes(cluster: Cluster) -> None:
    """Add classes: immediate, for local volumes, provisioned on first use, and with capacities."""
    draw = cluster.draw
    later = {"volumeBindingMode": "WaitForFirstConsumer"}
    cluster.add("StorageClass", "now", provisioner=DRIVER)
    cluster.add("StorageClass", "wait", provisioner=NO_PROVISIONER, **later)
    dynamic = cluster.add("StorageClass", "dyn", provisioner=DRIVER, **later)
    if draw.chance(0.5):
        zones = {"key": ZONE, "values": draw.some(ZONES, 1, 2)}
        dynamic["allowedTopologies"] = [{"matchLabelExpressions": [zones]}]
    cluster.add("StorageClass", "measured", provisioner=TRACKED_DRIVER, **later)
    cluster.add("CSIDriver", TRACKED_DRIVER, spec={"storageCapacity": True})
    for zone in draw.some(ZONES, 1, 3):
        sizes = {"capacity": draw.choice(("1Gi", "8Gi", "20Gi"))}
        if draw.chance(0.3):
            sizes["maximumVolumeSize"] = draw.choice(("1Gi", "6Gi"))
        cluster.add(
            "CSIStorageCapacity",
            f"{cluster.label}-{zone}",
            "team-a",
            storageClassName="measured",
            nodeTopology={"matchLabels": {ZONE: zone}},
            **sizes,
        )


def _bound(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim bound to a volume without node affinity, of one node, or with zone labels."""
    draw = cluster.draw
    made = bound_claim(cluster, namespace, name, {"hostPath": {"path": "/mnt/y"}})
    place = draw.choice(("anywhere", "node", "zone", "label", "beta label"))
    if place == "node":
        _pin(made, HOSTNAME, [draw.choice(cluster.node_names)])
    elif place == "zone":
        _pin(made, ZONE, draw.some(ZONES, 1, 2))
    elif place != "anywhere":
        key = ZONE if place == "label" else "failure-domain.beta.kubernetes.io/zone"
        made["metadata"]["labels"] = {key: draw.choice((*ZONES, "z0__z1"))}


def _attached(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim bound to a CSI volume; other volumes are already attached to nodes."""
    draw = cluster.draw
    handles = [name, *(f"{name}-used{number}" for number in range(draw.randint(0, 8)))]
    for handle in handles:
        source = {"csi": {"driver": DRIVER, "volumeHandle": handle}}
        bound_claim(cluster, namespace, handle, source)
    for handle in handles[1:]:
        for user in users(cluster, namespace, 1):
            attach(user, handle)
    if draw.chance(0.3):
        node, attached = draw.choice(cluster.node_names), draw.choice(handles)
        spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": attached}}
        cluster.add("VolumeAttachment", f"{name}-attachment", spec=spec, status={"attached": True})


def _migrated(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim bound to an in-tree volume that counts for the limit of its CSI driver."""
    for handle in (name, f"{name}-used"):
        bound_claim(cluster, namespace, handle, {"awsElasticBlockStore": {"volumeID": handle}})
    for user in users(cluster, namespace, 1):
        attach(user, f"{name}-used")
    for node in (raw for raw in cluster.others if raw["kind"] == "CSINode"):
        node["metadata"]["annotations"] = {
            "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"
        }
        driver = {"name": EBS_DRIVER, "nodeID": "n", "topologyKeys": [ZONE]}
        if EBS_DRIVER not in {had["name"] for had in node["spec"]["drivers"]}:
            limited = {**driver, "allocatable": {"count": cluster.draw.choice((1, 2))}}
            node["spec"]["drivers"].append(limited)


def _for_one_pod(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim bound to a ReadWriteOncePod volume; sometimes a pod already uses it."""
    source = {"hostPath": {"path": "/mnt/y"}}
    bound_claim(cluster, namespace, name, source, mode="ReadWriteOncePod")
    for user in users(cluster, namespace, 1 if cluster.draw.chance(0.6) else 0):
        attach(user, name)


def _local(cluster: Cluster, namespace: str, name: str) -> None:
    """Add an unbound claim, and local volumes; some of them do not suit the claim."""
    draw = cluster.draw
    wanted = claim(cluster, namespace, name, "wait")
    if draw.chance(0.2):
        wanted["spec"]["selector"] = {"matchLabels": {"grade": "gold"}}
    if draw.chance(0.15):
        wanted["spec"]["volumeMode"] = "Block"
    for number in range(draw.randint(0, 5)):
        size, mode = draw.choice(("3Gi", "5Gi", "10Gi")), draw.choice(("Once", "Once", "Many"))
        local = {"local": {"path": "/mnt/x"}}
        made = volume(cluster, f"{name}-{number}", "wait", local, size, f"ReadWrite{mode}")
        _pin(made, HOSTNAME, [draw.choice(cluster.node_names)])
        made["metadata"]["labels"] = {"grade": draw.choice(("gold", "tin"))}
        made["spec"]["volumeMode"] = draw.choice(("Filesystem", "Filesystem", "Block"))
        made["status"]["phase"] = draw.choice(("Available", "Available", "Available", "Released"))
        if draw.chance(0.15):
            made["spec"]["claimRef"] = {"namespace": namespace, "name": name}


def _provisioned(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim that needs a new volume; sometimes a node is already selected."""
    made = claim(cluster, namespace, name, cluster.draw.choice(("dyn", "measured")))
    if cluster.draw.chance(0.25):
        node = cluster.draw.choice(cluster.node_names)
        made["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": node}


def _immediate(cluster: Cluster, namespace: str, name: str) -> None:
    """Add an unbound claim that binds immediately or already names a volume."""
    made = claim(cluster, namespace, name, cluster.draw.choice(("now", "", "wait")))
    if made["spec"]["storageClassName"] == "wait":
        made["spec"]["volumeName"] = f"{name}-elsewhere"


def _missing(_: Cluster, _namespace: str, _name: str) -> None:
    """Add nothing, so that the pod's claim does not exist."""


def _lost(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a claim bound to a volume that does not exist."""
    bound_claim(cluster, namespace, name, {"hostPath": {"path": "/mnt/y"}})
    cluster.others = [
        raw
        for raw in cluster.others
        if (raw["kind"], raw["metadata"]["name"]) != ("PersistentVolume", name)
    ]
    if cluster.draw.chance(0.5):
        cluster.others[-1]["status"]["phase"] = "Lost"


def _leaving(cluster: Cluster, namespace: str, name: str) -> None:
    """Add a bound claim that is being deleted."""
    bound_claim(cluster, namespace, name, {"hostPath": {"path": "/mnt/y"}})
    metadata = cluster.others[-1]["metadata"]
    metadata["finalizers"], metadata["deletionTimestamp"] = ["example.com/hold"], "now"


def _ephemeral(cluster: Cluster, pod: Raw) -> None:
    """Give the pod an ephemeral claim that is missing or belongs to another owner."""
    name = f"v{len(pod['spec']['volumes'])}"
    if cluster.draw.chance(0.5):
        metadata = pod["metadata"]
        claim(cluster, metadata["namespace"], f"{metadata['name']}-{name}", "dyn")
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"spec": {**asked, "storageClassName": "dyn"}}
    _mount(pod, {"ephemeral": {"volumeClaimTemplate": template}})


_KINDS: tuple[Callable[[Cluster, str, str], None], ...] = (
    *(_bound,) * 5,
    *(_attached,) * 4,
    *(_local,) * 5,
    *(_provisioned,) * 4,
    *(_for_one_pod,) * 3,
    *(_migrated,) * 2,
    _immediate,
    _missing,
    _lost,
    _leaving,
)
"""What a claim may be, as often as it stands here."""

volumes: Final = mounting(_KINDS)
"""Lets the pod mount one or two claims."""


def required_driver(cluster: Cluster, pod: Raw) -> None:
    """Give the pod CSI volumes; one of their drivers must be installed on its node."""
    mounting((_attached, _attached, _provisioned, _migrated))(cluster, pod)
    required = cluster.draw.choice((DRIVER, DRIVER, EBS_DRIVER, TRACKED_DRIVER))
    if required != TRACKED_DRIVER:
        cluster.add("CSIDriver", required, spec={"attachRequired": True})
    for raw in cluster.others:
        if raw["kind"] == "CSIDriver" and raw["metadata"]["name"] == required:
            raw["spec"]["preventPodSchedulingIfMissing"] = cluster.draw.chance(0.85)
        elif raw["kind"] == "CSINode":
            _change_drivers(cluster, raw["spec"], required)


def _change_drivers(cluster: Cluster, csi_node: Raw, required: str) -> None:
    """Install TRACKED_DRIVER on some nodes, and remove the required driver from some nodes."""
    if cluster.draw.chance(0.5):
        tracked = {"name": TRACKED_DRIVER, "nodeID": "n", "topologyKeys": [ZONE]}
        csi_node["drivers"].append(tracked)
    if cluster.draw.chance(0.5):
        csi_node["drivers"] = [each for each in csi_node["drivers"] if each["name"] != required]


def _pin(made: Raw, key: str, values: list[str]) -> None:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
    made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
