import pytest

from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity, parse_quantity
from mooring.volumes.model.csi import (
    CSIDriver,
    CSINode,
    VolumeAttachment,
    parse_csi_driver,
    parse_csi_node,
    parse_csi_storage_capacity,
    parse_volume_attachment,
)


def test_a_csi_node_has_the_volume_limit_of_each_driver() -> None:
    drivers = [
        {"name": "limited", "allocatable": {"count": 3}},
        {"name": "full", "allocatable": {"count": 0}},
        {"name": "unlimited"},
        {"name": "silent", "allocatable": {}},
    ]
    parsed = parse_csi_node({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    limits = {"limited": 3, "full": 0, "unlimited": None, "silent": None}
    assert parsed == CSINode("n1", limits, frozenset())


def test_a_csi_node_lists_the_plugins_migrated_to_csi_in_an_annotation() -> None:
    migrated = "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"
    metadata = {
        "name": "n1",
        "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated},
    }
    assert parse_csi_node({"metadata": metadata}).migrated_plugins == {
        "kubernetes.io/aws-ebs",
        "kubernetes.io/gce-pd",
    }


def test_a_driver_has_the_checks_that_it_wants() -> None:
    spec = {"storageCapacity": True, "preventPodSchedulingIfMissing": True}
    assert parse_csi_driver({"metadata": {"name": "d"}, "spec": spec}) == CSIDriver(
        "d", storage_capacity=True, required_on_node=True
    )
    assert parse_csi_driver({"metadata": {"name": "d"}, "spec": {}}) == CSIDriver(
        "d", storage_capacity=False, required_on_node=False
    )


def test_a_capacity_has_its_class_size_and_nodes() -> None:
    parsed = parse_csi_storage_capacity(
        {
            "metadata": {"name": "c", "namespace": "csi"},
            "storageClassName": "fast",
            "nodeTopology": {"matchLabels": {"zone": "a"}},
            "capacity": "10Gi",
            "maximumVolumeSize": "1Gi",
        }
    )
    assert (parsed.key, parsed.storage_class) == ("csi/c", "fast")
    assert (parsed.capacity, parsed.maximum_volume_size) == (
        parse_quantity("10Gi"),
        parse_quantity("1Gi"),
    )
    assert parsed.node_topology is not None
    assert parsed.node_topology.matches({"zone": "a"})


def test_a_capacity_may_have_no_size_and_no_topology() -> None:
    parsed = parse_csi_storage_capacity({"metadata": {"name": "c"}})
    assert (parsed.capacity, parsed.maximum_volume_size, parsed.node_topology) == (None, None, None)


def test_the_largest_volume_is_the_maximum_volume_size_if_there_is_one() -> None:
    sizes: tuple[dict[str, str], ...] = (
        {},
        {"capacity": "2"},
        {"capacity": "2", "maximumVolumeSize": "1"},
    )
    parsed = [parse_csi_storage_capacity({"metadata": {"name": "c"}} | size) for size in sizes]
    assert [capacity.largest for capacity in parsed] == [None, Quantity(2 * 10**9), Quantity(10**9)]


def test_an_attachment_has_a_volume_and_a_node() -> None:
    spec = {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}
    parsed = parse_volume_attachment({"metadata": {"name": "a"}, "spec": spec})
    assert parsed == VolumeAttachment("a", "d", "n1", "pv")


def test_an_inline_attachment_names_no_volume() -> None:
    spec = {"attacher": "d", "nodeName": "n1", "source": {"inlineVolumeSpec": {}}}
    assert parse_volume_attachment({"metadata": {"name": "a"}, "spec": spec}).volume_name == ""


def test_a_malformed_csi_node_raises_an_error_with_name_and_field() -> None:
    drivers = [{"name": "d", "allocatable": {"count": "3"}}]
    with pytest.raises(ManifestError) as caught:
        parse_csi_node({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    assert str(caught.value) == (
        "CSINode n1 spec.drivers[0].allocatable.count: must be a whole number, not '3'"
    )


def test_a_malformed_capacity_raises_an_error_with_name_and_field() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_csi_storage_capacity({"metadata": {"name": "c"}, "capacity": "much"})
    assert caught.value.where == "CSIStorageCapacity c capacity"
