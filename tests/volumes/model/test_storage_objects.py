from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity, parse_quantity
from mooring.volumes.model.pod_volumes import Disk, DiskKind
from mooring.volumes.model.storage_objects import (
    SELECTED_NODE,
    ClaimRef,
    CSISource,
    PersistentVolume,
    PersistentVolumeClaim,
    parse_persistent_volume,
    parse_persistent_volume_claim,
    parse_storage_class,
)

GIB = parse_quantity("1Gi")
OLD_CLASS = {"volume.beta.kubernetes.io/storage-class": "old"}


def volume(metadata: dict[str, Any] | None = None, **spec: Any) -> PersistentVolume:
    return parse_persistent_volume({"metadata": {"name": "pv"} | (metadata or {}), "spec": spec})


def claim(metadata: dict[str, Any] | None = None, **spec: Any) -> PersistentVolumeClaim:
    named = {"name": "data", "namespace": "team-a"} | (metadata or {})
    return parse_persistent_volume_claim({"metadata": named, "spec": spec})


# ---- PersistentVolume


def test_a_volume_has_all_fields_that_matching_reads() -> None:
    raw = {
        "metadata": {
            "name": "pv",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"topology.kubernetes.io/zone": "a__b"},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "volumeMode": "Block",
            "storageClassName": "fast",
            "volumeAttributesClassName": "gold",
            "claimRef": {"namespace": "team-a", "name": "data", "uid": "c"},
            "csi": {"driver": "csi.example", "volumeHandle": "h1"},
        },
        "status": {"phase": "Available"},
    }
    assert parse_persistent_volume(raw) == PersistentVolume(
        name="pv",
        uid="u",
        resource_version="7",
        labels={"topology.kubernetes.io/zone": "a__b"},
        deleting=True,
        capacity=parse_quantity("5Gi"),
        access_modes=frozenset({"ReadWriteOnce", "ReadOnlyMany"}),
        volume_mode="Block",
        storage_class="fast",
        attributes_class="gold",
        claim=ClaimRef("team-a", "data", "c"),
        node_affinity=None,
        source=CSISource("csi.example", "h1"),
        phase="Available",
    )


def test_a_volume_without_fields_is_a_pending_unclaimed_file_system() -> None:
    bare = volume()
    assert (bare.phase, bare.volume_mode, bare.capacity) == ("Pending", "Filesystem", Quantity(0))
    assert (bare.storage_class, bare.claim, bare.source) == ("", None, None)
    assert not bare.deleting


def test_a_volume_on_an_in_tree_disk_names_the_disk() -> None:
    source = volume(gcePersistentDisk={"pdName": "d1"}).source
    assert source == Disk(DiskKind.GCE_PD, "d1", read_only=False)


def test_a_claim_reference_without_a_uid_is_a_reservation_by_name() -> None:
    assert volume(claimRef={"namespace": "a", "name": "b"}).claim == ClaimRef("a", "b", "")


def test_the_node_affinity_of_a_volume_selects_nodes() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = volume(nodeAffinity={"required": {"nodeSelectorTerms": [term]}}).node_affinity
    assert affinity is not None
    assert affinity.matches("n1", {"zone": "a"})
    assert not affinity.matches("n1", {"zone": "b"})


# ---- PersistentVolumeClaim


def test_a_claim_has_all_fields_that_matching_reads() -> None:
    owner = {"kind": "Pod", "uid": "pod-uid", "controller": True}
    raw = {
        "metadata": {
            "name": "data",
            "namespace": "team-a",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {SELECTED_NODE: "n1", "pv.kubernetes.io/bind-completed": "yes"},
            "ownerReferences": [{"kind": "Backup", "uid": "other"}, owner],
        },
        "spec": {
            "resources": {"requests": {"storage": "1Gi"}},
            "accessModes": ["ReadWriteOncePod"],
            "volumeMode": "Block",
            "storageClassName": "fast",
            "volumeAttributesClassName": "gold",
            "volumeName": "pv",
        },
        "status": {"phase": "Bound"},
    }
    assert parse_persistent_volume_claim(raw) == PersistentVolumeClaim(
        namespace="team-a",
        name="data",
        uid="u",
        resource_version="7",
        deleting=False,
        controller_uid="pod-uid",
        requested=GIB,
        access_modes=frozenset({"ReadWriteOncePod"}),
        volume_mode="Block",
        storage_class="fast",
        attributes_class="gold",
        selector=None,
        volume_name="pv",
        selected_node="n1",
        annotated=True,
        bind_completed=True,
        phase="Bound",
    )


def test_a_claim_without_fields_requests_any_file_system() -> None:
    bare = claim()
    assert (bare.key, bare.phase, bare.volume_mode) == ("team-a/data", "Pending", "Filesystem")
    assert (bare.requested, bare.selected_node, bare.selector) == (None, None, None)
    assert not bare.annotated
    assert (bare.controller_uid, bare.storage_class) == ("", "")


@pytest.mark.parametrize(
    ("volume_name", "annotations", "bound"),
    [
        ("pv", {"pv.kubernetes.io/bind-completed": ""}, True),
        ("pv", {}, False),
        ("", {"pv.kubernetes.io/bind-completed": "yes"}, False),
    ],
    ids=["named and completed", "only named", "only completed"],
)
def test_a_claim_is_bound_once_it_has_a_volume_and_binding_is_completed(
    volume_name: str, annotations: dict[str, str], *, bound: bool
) -> None:
    assert claim({"annotations": annotations}, volumeName=volume_name).bound is bound


def test_a_claim_may_select_volumes_by_their_labels() -> None:
    selector = claim(selector={"matchLabels": {"tier": "fast"}}).selector
    assert selector is not None
    assert selector.matches({"tier": "fast"})
    assert not selector.matches({})


def test_the_storage_class_in_the_old_annotation_takes_precedence() -> None:
    assert claim({"annotations": OLD_CLASS}, storageClassName="new").storage_class == "old"
    assert volume({"annotations": OLD_CLASS}, storageClassName="new").storage_class == "old"


# ---- StorageClass


@pytest.mark.parametrize(
    ("mode", "waits"), [("WaitForFirstConsumer", True), ("Immediate", False), (None, False)]
)
def test_a_storage_class_binds_immediately_by_default(mode: str | None, *, waits: bool) -> None:
    parsed = parse_storage_class(
        {"metadata": {"name": "fast"}, "provisioner": "csi.example", "volumeBindingMode": mode}
    )
    assert (parsed.name, parsed.provisioner) == ("fast", "csi.example")
    assert parsed.waits_for_consumer is waits
    assert parsed.allowed_topologies is None


def test_allowed_topologies_are_alternatives_of_which_an_empty_one_allows_no_node() -> None:
    def term(*expressions: tuple[str, list[str]]) -> dict[str, Any]:
        return {"matchLabelExpressions": [{"key": k, "values": v} for k, v in expressions]}

    raw = {"metadata": {"name": "fast"}, "allowedTopologies": [term(), term(("zone", ["a", "b"]))]}
    allowed = parse_storage_class(raw).allowed_topologies
    assert allowed is not None
    assert allowed.matches("n1", {"zone": "b"})
    assert not allowed.matches("n1", {"zone": "c"})
    assert not allowed.matches("n1", {})


# ---- errors


def test_a_malformed_volume_raises_an_error_with_name_and_field() -> None:
    with pytest.raises(ManifestError) as caught:
        volume(capacity={"storage": "5GB"})
    assert str(caught.value).startswith("PersistentVolume pv spec.capacity.storage: '5GB' is not")


def test_a_malformed_claim_raises_an_error_with_name_and_field() -> None:
    with pytest.raises(ManifestError) as caught:
        claim(accessModes="ReadWriteOnce")
    assert str(caught.value) == (
        "PersistentVolumeClaim team-a/data spec.accessModes: must be a list, not 'ReadWriteOnce'"
    )


def test_a_malformed_storage_class_raises_an_error_with_name_and_field() -> None:
    term = {"matchLabelExpressions": [{"key": "zone", "values": "a"}]}
    with pytest.raises(ManifestError) as caught:
        parse_storage_class({"metadata": {"name": "fast"}, "allowedTopologies": [term]})
    assert caught.value.where == (
        "StorageClass fast allowedTopologies[0].matchLabelExpressions[0].values"
    )
