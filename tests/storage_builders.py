"""Builds volumes, claims, classes and CSI objects, as `mooring.testing.builders` builds pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.model.node import HOSTNAME
from mooring.testing.builders import api_object, given
from mooring.volumes.model.storage_objects import BIND_COMPLETED, SELECTED_NODE


def storage_class(
    name: str,
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    waits: bool = True,
    **fields: Any,
) -> dict[str, Any]:
    """Return a storage class; if it `waits`, a claim is bound when a pod first uses it."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return api_object(
        "StorageClass", name, provisioner=provisioner, volumeBindingMode=mode, **fields
    )


def pv(
    name: str,
    *,
    size: str | int = "1Gi",
    storage_class: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    nodes: Sequence[str] = (),
    claim: str | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a volume that only `nodes` can use (by default all), reserved for `claim` if given.

    `claim` is `namespace/name`; `spec` has further fields, for example the source.
    """
    hostnames = {"key": HOSTNAME, "operator": "In", "values": [*nodes]}
    terms = [{"matchExpressions": [hostnames]}] if nodes else []
    place, _, claim_name = (claim or "").partition("/")
    return api_object(
        "PersistentVolume",
        name,
        labels=labels,
        spec={
            "capacity": {"storage": str(size)},
            "storageClassName": storage_class,
            "accessModes": [*modes],
            **given(
                nodeAffinity=terms and {"required": {"nodeSelectorTerms": terms}},
                claimRef=claim and {"namespace": place, "name": claim_name},
            ),
            **(spec or {}),
        },
        status={"phase": "Bound" if claim else "Available"},
    )


def pvc(
    name: str,
    *,
    namespace: str = "default",
    size: str | int = "1Gi",
    storage_class: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    volume: str | None = None,
    selected_node: str | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a claim, bound to `volume` if one is named; `spec` has further fields.

    `selected_node` is the node on which a provisioner shall create the volume.
    """
    return api_object(
        "PersistentVolumeClaim",
        name,
        namespace=namespace,
        annotations=given(
            **{BIND_COMPLETED: volume and "yes", SELECTED_NODE: selected_node},
        )
        or None,
        spec={
            "resources": {"requests": {"storage": str(size)}},
            "storageClassName": storage_class,
            "accessModes": [*modes],
            **given(volumeName=volume),
            **(spec or {}),
        },
        status={"phase": "Bound" if volume else "Pending"},
    )


def csi_node(
    name: str, limits: Mapping[str, int | None], *, migrated: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a CSINode with the drivers' volume limits (None: no limit) and migrated plugins."""
    drivers = [
        {
            "name": driver,
            "nodeID": name,
            **({} if limit is None else {"allocatable": {"count": limit}}),
        }
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)}
    return api_object(
        "CSINode", name, annotations=annotations if migrated else None, spec={"drivers": drivers}
    )


def csi_driver(
    name: str, *, storage_capacity: bool = False, required_on_node: bool = False
) -> dict[str, Any]:
    """Return a CSIDriver; the flags say whether its capacity and its nodes must be checked."""
    spec = {
        "storageCapacity": storage_capacity,
        "preventPodSchedulingIfMissing": required_on_node,
    }
    return api_object("CSIDriver", name, spec=spec)


def storage_capacity(
    name: str,
    storage_class: str,
    size: str | int,
    topology: Mapping[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return a CSIStorageCapacity for a class on the nodes with these labels (None: no node)."""
    if topology is not None:
        fields["nodeTopology"] = {"matchLabels": {**topology}}
    return api_object(
        "CSIStorageCapacity",
        name,
        namespace="default",
        storageClassName=storage_class,
        capacity=str(size),
        **fields,
    )


def volume_attachment(name: str, driver: str, node: str, volume: str) -> dict[str, Any]:
    """Return a VolumeAttachment: the driver has attached the PersistentVolume to the node."""
    source = {"persistentVolumeName": volume}
    return api_object(
        "VolumeAttachment", name, spec={"attacher": driver, "nodeName": node, "source": source}
    )
