"""The volumes of a pod that restrict its nodes or influence their scores.

Config maps, secrets, empty directories and similar volumes exist on every node, so they are left
out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from mooring.model.fields import boolean, mapping, mappings, text, texts


class DiskKind(StrEnum):
    """The in-tree volume plugins whose disks are identified by one name."""

    AWS_EBS = "kubernetes.io/aws-ebs"
    AZURE_DISK = "kubernetes.io/azure-disk"
    CINDER = "kubernetes.io/cinder"
    GCE_PD = "kubernetes.io/gce-pd"
    ISCSI = "kubernetes.io/iscsi"
    PORTWORX = "kubernetes.io/portworx-volume"


CSI_DRIVERS: Final[Mapping[str, str]] = {
    DiskKind.AWS_EBS: "ebs.csi.aws.com",
    DiskKind.AZURE_DISK: "disk.csi.azure.com",
    DiskKind.CINDER: "cinder.csi.openstack.org",
    DiskKind.GCE_PD: "pd.csi.storage.gke.io",
    DiskKind.PORTWORX: "pxd.portworx.com",
}
"""Maps each migrated in-tree plugin to its CSI driver.

Only plugins that both NodeVolumeLimits and VolumeBinding treat as migrated
(nodevolumelimits/utils.go).
"""


@dataclass(frozen=True, slots=True)
class ClaimVolume:
    """A claim that a pod uses; an `ephemeral` claim is made for the pod and must belong to it."""

    claim: str
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of an in-tree plugin; `id` is the plugin's name for the disk.

    `uri` identifies a managed Azure disk for its CSI driver; "" for other disks.
    """

    kind: DiskKind
    id: str
    read_only: bool
    uri: str = ""


@dataclass(frozen=True, slots=True)
class RbdVolume:
    """A Ceph image; two are the same if pool and image are equal and they share a monitor."""

    monitors: frozenset[str]
    pool: str
    image: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class CsiVolume:
    """An inline volume of a CSI driver."""

    driver: str


PodVolume: TypeAlias = ClaimVolume | Disk | RbdVolume | CsiVolume

_DISKS: Final[Mapping[str, tuple[DiskKind, str]]] = {
    "awsElasticBlockStore": (DiskKind.AWS_EBS, "volumeID"),
    "azureDisk": (DiskKind.AZURE_DISK, "diskName"),
    "cinder": (DiskKind.CINDER, "volumeID"),
    "gcePersistentDisk": (DiskKind.GCE_PD, "pdName"),
    "iscsi": (DiskKind.ISCSI, "iqn"),
    "portworxVolume": (DiskKind.PORTWORX, "volumeID"),
}
"""Maps the field of a volume source to the plugin, and to the field with the disk's name."""


def pod_volumes(pod: Mapping[str, Any]) -> tuple[PodVolume, ...]:
    """Return those volumes of the pod that the filters need, in the order of its spec.

    Raises ManifestError with a field's path (`spec.volumes[0].name`) if its type is wrong.
    """
    found: list[PodVolume] = []
    for index, volume in enumerate(mappings(mapping(pod, "spec"), "volumes", "spec")):
        where = f"spec.volumes[{index}]"
        if volume.get("ephemeral") is not None:
            pod_name = text(mapping(pod, "metadata"), "name", "metadata")
            found.append(ClaimVolume(f"{pod_name}-{text(volume, 'name', where)}", ephemeral=True))
        for field in volume:
            read = _READERS.get(field)
            if read is not None and volume[field] is not None:
                found.append(read(mapping(volume, field, where), f"{where}.{field}"))
        disk = parse_disk(volume, where)
        if disk is not None:
            found.append(disk)
    return tuple(found)


def has_local_storage(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has a hostPath, or an emptyDir that is not in memory.

    Raises ManifestError with the path of a field of the wrong type, beginning with `spec`.
    """
    for index, volume in enumerate(mappings(mapping(pod, "spec"), "volumes", "spec")):
        if volume.get("hostPath") is not None:
            return True
        if volume.get("emptyDir") is not None:
            where = f"spec.volumes[{index}]"
            medium = text(mapping(volume, "emptyDir", where), "medium", f"{where}.emptyDir")
            if medium != "Memory":
                return True
    return False


def parse_disk(source: Mapping[str, Any], where: str) -> Disk | None:
    """Parse the disk in a pod's volume or in a PersistentVolume's spec; None without a disk.

    Raises ManifestError with the path of a field of the wrong type, beginning with `where`.
    """
    for field in source:
        if field in _DISKS and source[field] is not None:
            kind, id_field = _DISKS[field]
            raw, path = mapping(source, field, where), f"{where}.{field}"
            return Disk(
                kind, text(raw, id_field, path), boolean(raw, "readOnly", path), _uri(raw, path)
            )
    return None


def _uri(raw: Mapping[str, Any], where: str) -> str:
    managed = (text(raw, "kind", where) or "Managed").lower() == "managed"
    return text(raw, "diskURI", where) if managed else ""


def _rbd(raw: Mapping[str, Any], where: str) -> RbdVolume:
    return RbdVolume(
        monitors=frozenset(texts(raw, "monitors", where)),
        pool=text(raw, "pool", where) or "rbd",  # the API server's default
        image=text(raw, "image", where),
        read_only=boolean(raw, "readOnly", where),
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], PodVolume]]] = {
    "csi": lambda raw, where: CsiVolume(text(raw, "driver", where)),
    "persistentVolumeClaim": lambda raw, where: ClaimVolume(
        text(raw, "claimName", where), ephemeral=False
    ),
    "rbd": _rbd,
}
