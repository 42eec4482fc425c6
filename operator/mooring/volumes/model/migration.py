"""Translates volumes of in-tree plugins to volumes of CSI drivers (csi-translation-lib).

A node's CSINode may list an in-tree plugin as migrated. On such a node, the plugin's CSI driver
attaches the disks. The disks count for the driver's limit, under the driver's volume handles. The
node affinities of their PersistentVolumes use the driver's zone label.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mooring.model.node import BETA_REGION, BETA_ZONE, REGION, ZONE
from mooring.model.selectors import NodeSelector, NodeSelectorTerm, Requirement
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, Disk, DiskKind
from mooring.volumes.model.storage_objects import CSISource, PersistentVolume

ZONE_DELIMITER: Final = "__"
"""Separates zones in the zone label of a PersistentVolume."""

_ZONE_LABELS: Final[Mapping[DiskKind, str]] = {
    DiskKind.AWS_EBS: "topology.ebs.csi.aws.com/zone",
    DiskKind.CINDER: "topology.cinder.csi.openstack.org/zone",
    DiskKind.GCE_PD: "topology.gke.io/zone",
}
"""The zone label of each driver that changes the node affinity of volumes."""

_AWS_URL: Final = "aws://"
_AWS_VOLUME: Final = re.compile(r"vol-[^/]*")


def csi_source(disk: Disk, labels: Mapping[str, str]) -> CSISource | None:
    """Return the CSI volume of a migrated disk; None without a CSI driver or a valid name.

    `labels` are the labels of the disk's PersistentVolume, or {} for a disk in a pod's spec.
    """
    driver = CSI_DRIVERS.get(disk.kind)
    if driver is None:
        return None
    match disk.kind:
        case DiskKind.AWS_EBS:
            handle = _aws_handle(disk.id)
        case DiskKind.AZURE_DISK:
            handle = disk.uri
        case DiskKind.GCE_PD:
            handle = _gce_handle(disk.id, labels.get(BETA_ZONE) or labels.get(ZONE) or "")
        case _:
            handle = disk.id
    return CSISource(driver, handle, migrated=True) if handle else None


def migrated_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """Return the volume's node affinity; a migrated disk's zones are in the CSI driver's label.

    If the affinity names no zones, the zones in the volume's labels are added. Returns None if
    every node is allowed.
    """
    affinity = volume.node_affinity
    key = _ZONE_LABELS.get(volume.source.kind) if isinstance(volume.source, Disk) else None
    if key is None:
        return affinity
    zone, region = _topology_labels(volume)
    terms = affinity.terms if affinity is not None else ()
    by_zone = any(r.values for term in terms for r in term.expressions if r.key == zone)
    renamed = {zone: key} if by_zone else {}
    if region == BETA_REGION:
        renamed[region] = REGION
    zones = () if by_zone else tuple(sorted(_zones(volume.labels.get(zone, ""))))
    added = (Requirement(key, "In", zones),) if zones else ()
    if added and not terms:
        return NodeSelector((NodeSelectorTerm(expressions=added),))
    return affinity and NodeSelector(tuple(_rewritten(term, renamed, added) for term in terms))


def _rewritten(
    term: NodeSelectorTerm, renamed: Mapping[str, str], added: tuple[Requirement, ...]
) -> NodeSelectorTerm:
    kept = (replace(r, key=renamed.get(r.key, r.key)) for r in term.expressions)
    return replace(term, expressions=(*kept, *added))


def _topology_labels(volume: PersistentVolume) -> tuple[str, str]:
    terms = volume.node_affinity.terms if volume.node_affinity is not None else ()
    asked = {r.key for term in terms for r in term.expressions}
    for keys in (asked, volume.labels):
        if ZONE in keys:
            break
        if BETA_ZONE in keys:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _zones(label: str) -> set[str]:
    return {zone.strip() for zone in label.split(ZONE_DELIMITER)} - {""}


def _aws_handle(volume_id: str) -> str:
    if not volume_id.startswith(_AWS_URL):
        return volume_id
    # For example, aws://zone/vol-1.
    name = volume_id.removeprefix(_AWS_URL).partition("/")[2].strip("/")
    return name if _AWS_VOLUME.fullmatch(name) else ""


def _gce_handle(name: str, zone_label: str) -> str:
    zones = zone_label.split(ZONE_DELIMITER)
    if len(zones) == 1:
        return f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{name}"
    regions = {zone.rpartition("-")[0] for zone in zones if zone.count("-") == 2}
    if len(regions) != 1 or any(zone.count("-") != 2 for zone in zones):
        return ""
    return f"projects/UNSPECIFIED/regions/{regions.pop()}/disks/{name}"
