from typing import Any

import pytest

from mooring.model.node import BETA_REGION, BETA_ZONE, REGION, ZONE
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.volumes.model.migration import csi_source, migrated_affinity
from mooring.volumes.model.pod_volumes import Disk, DiskKind
from mooring.volumes.model.storage_objects import (
    CSISource,
    PersistentVolume,
    parse_persistent_volume,
)
from storage_builders import pv

GKE_ZONE = "topology.gke.io/zone"


def disk(kind: DiskKind, name: str, uri: str = "") -> Disk:
    return Disk(kind, name, read_only=False, uri=uri)


@pytest.mark.parametrize(
    ("one", "driver", "handle"),
    [
        (disk(DiskKind.AWS_EBS, "vol-1"), "ebs.csi.aws.com", "vol-1"),
        (disk(DiskKind.AWS_EBS, "aws://us-east-1a/vol-1"), "ebs.csi.aws.com", "vol-1"),
        (disk(DiskKind.AWS_EBS, "aws:///vol-1"), "ebs.csi.aws.com", "vol-1"),
        (disk(DiskKind.AZURE_DISK, "d", "/disks/d"), "disk.csi.azure.com", "/disks/d"),
        (disk(DiskKind.CINDER, "c1"), "cinder.csi.openstack.org", "c1"),
        (disk(DiskKind.PORTWORX, "p1"), "pxd.portworx.com", "p1"),
        (
            disk(DiskKind.GCE_PD, "d"),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
    ],
)
def test_a_migrated_disk_has_a_volume_handle_of_its_csi_driver(
    one: Disk, driver: str, handle: str
) -> None:
    assert csi_source(one, {}) == CSISource(driver, handle)


@pytest.mark.parametrize(
    "one",
    [
        disk(DiskKind.ISCSI, "iqn.a"),
        disk(DiskKind.AZURE_DISK, "unmanaged"),
        disk(DiskKind.AWS_EBS, "aws://us-east-1a/disk-1"),
    ],
)
def test_a_disk_without_a_csi_driver_has_no_csi_volume(one: Disk) -> None:
    assert csi_source(one, {}) is None


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({ZONE: "us-east1-b"}, "zones/us-east1-b"),
        ({BETA_ZONE: "us-east1-b", ZONE: "us-east1-c"}, "zones/us-east1-b"),
        ({ZONE: "us-east1-b__us-east1-c"}, "regions/us-east1"),
    ],
)
def test_the_handle_of_a_gce_disk_contains_the_volumes_zones(
    labels: dict[str, str], place: str
) -> None:
    source = csi_source(disk(DiskKind.GCE_PD, "d"), labels)
    assert source == CSISource("pd.csi.storage.gke.io", f"projects/UNSPECIFIED/{place}/disks/d")


@pytest.mark.parametrize("zones", ["us-east1-b__us-west1-a", "us-east1-b__here"])
def test_a_regional_gce_disk_needs_zones_of_one_region(zones: str) -> None:
    assert csi_source(disk(DiskKind.GCE_PD, "d"), {ZONE: zones}) is None


def gce_volume(*terms: dict[str, Any], labels: dict[str, str] | None = None) -> PersistentVolume:
    spec: dict[str, Any] = {"gcePersistentDisk": {"pdName": "d"}}
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [*terms]}}
    return parse_persistent_volume(pv("v", spec=spec, labels=labels))


def asking(*labels: tuple[str, str]) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": [value]} for key, value in labels
        ]
    }


def selector(*terms: dict[str, Any]) -> NodeSelector | None:
    return parse_node_selector({"nodeSelectorTerms": [*terms]})


def test_node_affinity_by_zone_uses_the_drivers_zone_label() -> None:
    volume = gce_volume(asking((ZONE, "a"), ("disk", "ssd")), asking((ZONE, "b")))
    assert migrated_affinity(volume) == selector(
        asking((GKE_ZONE, "a"), ("disk", "ssd")), asking((GKE_ZONE, "b"))
    )


def test_beta_labels_of_zone_and_region_are_both_replaced() -> None:
    volume = gce_volume(asking((BETA_ZONE, "a"), (BETA_REGION, "r")))
    assert migrated_affinity(volume) == selector(asking((GKE_ZONE, "a"), (REGION, "r")))


def test_without_a_zone_in_the_affinity_the_zone_label_is_added_to_every_term() -> None:
    volume = gce_volume(asking(("disk", "ssd")), labels={ZONE: "b__a"})
    zones = {"key": GKE_ZONE, "operator": "In", "values": ["a", "b"]}
    expected = asking(("disk", "ssd"))
    expected["matchExpressions"].append(zones)
    assert migrated_affinity(volume) == selector(expected)


def test_a_volume_with_only_a_zone_label_gets_a_term_for_it() -> None:
    volume = gce_volume(labels={ZONE: "a"})
    assert migrated_affinity(volume) == selector(asking((GKE_ZONE, "a")))


def test_a_volume_without_zones_keeps_its_affinity() -> None:
    assert migrated_affinity(gce_volume()) is None
    other = gce_volume(asking(("disk", "ssd")))
    assert migrated_affinity(other) == other.node_affinity


def test_the_affinity_of_a_disk_whose_driver_has_no_zone_label_is_kept() -> None:
    spec = {"portworxVolume": {"volumeID": "p1"}}
    volume = parse_persistent_volume(pv("v", nodes=("n1",), spec=spec, labels={ZONE: "a"}))
    assert migrated_affinity(volume) == volume.node_affinity
