from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.volumes.model.pod_volumes import (
    CSI_DRIVERS,
    ClaimVolume,
    CsiVolume,
    Disk,
    DiskKind,
    PodVolume,
    RbdVolume,
    has_local_storage,
    parse_disk,
    pod_volumes,
)


def pod(*volumes: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"v{i}"} | volume for i, volume in enumerate(volumes)]
    return {"metadata": {"name": "web", "namespace": "team-a"}, "spec": {"volumes": named}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"persistentVolumeClaim": {"claimName": "data"}}, ClaimVolume("data", ephemeral=False)),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, ClaimVolume("web-v0", ephemeral=True)),
        ({"csi": {"driver": "secrets.example"}}, CsiVolume("secrets.example")),
        (
            {"gcePersistentDisk": {"pdName": "d1", "readOnly": True}},
            Disk(DiskKind.GCE_PD, "d1", read_only=True),
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            Disk(DiskKind.AWS_EBS, "vol-1", read_only=False),
        ),
        (
            {"azureDisk": {"diskName": "d1", "diskURI": "https://d1"}},
            Disk(DiskKind.AZURE_DISK, "d1", read_only=False, uri="https://d1"),
        ),
        (
            {"azureDisk": {"diskName": "d1", "diskURI": "https://d1", "kind": "Shared"}},
            Disk(DiskKind.AZURE_DISK, "d1", read_only=False),
        ),
        ({"iscsi": {"iqn": "iqn.a", "lun": 0}}, Disk(DiskKind.ISCSI, "iqn.a", read_only=False)),
        ({"cinder": {"volumeID": "c1"}}, Disk(DiskKind.CINDER, "c1", read_only=False)),
        ({"portworxVolume": {"volumeID": "p1"}}, Disk(DiskKind.PORTWORX, "p1", read_only=False)),
        (
            {"rbd": {"monitors": ["a", "b"], "pool": "p", "image": "i", "readOnly": True}},
            RbdVolume(frozenset({"a", "b"}), "p", "i", read_only=True),
        ),
    ],
)
def test_a_volume_that_a_filter_reads_is_parsed(
    source: dict[str, Any], expected: PodVolume
) -> None:
    assert pod_volumes(pod(source)) == (expected,)


def test_volumes_that_exist_on_every_node_are_left_out() -> None:
    assert pod_volumes(pod({"emptyDir": {}}, {"configMap": {"name": "c"}}, {"projected": {}})) == ()


def test_a_pod_without_volumes_has_none() -> None:
    assert pod_volumes({"metadata": {"name": "web"}, "spec": {}}) == ()


def test_the_order_of_the_spec_is_kept() -> None:
    claims = [{"persistentVolumeClaim": {"claimName": name}} for name in "bca"]
    assert [v.claim for v in pod_volumes(pod(*claims)) if isinstance(v, ClaimVolume)] == [*"bca"]


def test_an_rbd_image_without_a_pool_is_in_the_default_one() -> None:
    (volume,) = pod_volumes(pod({"rbd": {"monitors": ["a"], "image": "i"}}))
    assert volume == RbdVolume(frozenset({"a"}), "rbd", "i", read_only=False)


def test_a_source_that_is_null_is_no_source() -> None:
    assert pod_volumes(pod({"rbd": None, "iscsi": None, "ephemeral": None})) == ()


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ({"persistentVolumeClaim": "data"}, "spec.volumes[0].persistentVolumeClaim"),
        ({"rbd": {"monitors": "a"}}, "spec.volumes[0].rbd.monitors"),
        ({"iscsi": {"readOnly": "yes"}}, "spec.volumes[0].iscsi.readOnly"),
    ],
)
def test_a_malformed_volume_raises_an_error_with_its_path(
    source: dict[str, Any], where: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        pod_volumes(pod(source))
    assert caught.value.where == where


def test_the_disk_of_a_persistent_volume_is_read_from_its_spec() -> None:
    spec = {"capacity": {}, "awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}
    assert parse_disk(spec, "spec") == Disk(DiskKind.AWS_EBS, "vol-1", read_only=True)
    assert parse_disk({"capacity": {}, "nfs": {}}, "spec") is None


def test_a_storage_class_names_the_csi_driver_of_its_in_tree_provisioner() -> None:
    assert CSI_DRIVERS["kubernetes.io/aws-ebs"] == "ebs.csi.aws.com"
    assert "kubernetes.io/iscsi" not in CSI_DRIVERS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"hostPath": {"path": "/var/log"}}, True),
        ({"configMap": {"name": "settings"}}, False),
        ({"persistentVolumeClaim": {"claimName": "data"}}, False),
    ],
)
def test_a_pod_that_keeps_data_on_its_node_has_local_storage(
    source: dict[str, Any], *, expected: bool
) -> None:
    assert has_local_storage(pod({"secret": {"secretName": "tls"}}, source)) is expected
