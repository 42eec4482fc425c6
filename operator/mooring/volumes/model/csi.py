"""CSINode, CSIDriver, CSIStorageCapacity and VolumeAttachment objects; sizes are exact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import (
    boolean,
    integer,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    quantity,
    strings,
    text,
)
from mooring.model.quantity import Quantity
from mooring.model.selectors import LabelSelector, parse_label_selector

_MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


@dataclass(frozen=True, slots=True)
class CSINode:
    """The CSI drivers on a node, and the most volumes of each driver; None means no limit.

    `migrated_plugins` are in-tree plugins whose volumes a CSI driver attaches on this node.
    """

    name: str
    limits: Mapping[str, int | None]
    migrated_plugins: frozenset[str]


@dataclass(frozen=True, slots=True)
class CSIDriver:
    """A CSI driver, and the checks that the driver wants from the scheduler."""

    name: str
    storage_capacity: bool
    """Whether to check the free capacity for new volumes; see CSIStorageCapacity."""
    required_on_node: bool
    """Whether pods with volumes of this driver fit only nodes that have the driver."""


@dataclass(frozen=True, slots=True)
class CSIStorageCapacity:
    """The capacity for new volumes of one class, on the nodes that `node_topology` selects.

    A `node_topology` of None selects no node. `capacity` and `maximum_volume_size` are None if
    unknown.
    """

    namespace: str
    name: str
    storage_class: str
    node_topology: LabelSelector | None
    capacity: Quantity | None
    maximum_volume_size: Quantity | None

    @property
    def key(self) -> str:
        """The object as `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def largest(self) -> Quantity | None:
        """The size of the largest volume that can be provisioned; None if unknown."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that the driver `attacher` attached to a node; `volume_name` is "" if inline."""

    name: str
    attacher: str
    node_name: str
    volume_name: str


@naming_the_object("CSINode")
def parse_csi_node(raw: Mapping[str, Any]) -> CSINode:
    """Parse a CSINode; ManifestError names the object and the wrong field."""
    limits = {}
    for index, driver in enumerate(mappings(mapping(raw, "spec"), "drivers", "spec")):
        where = f"spec.drivers[{index}]"
        allocatable = mapping(driver, "allocatable", where)
        limits[text(driver, "name", where)] = integer(allocatable, "count", f"{where}.allocatable")
    annotations = strings(mapping(raw, "metadata"), "annotations", "metadata")
    return CSINode(
        name=name_of(raw),
        limits=limits,
        migrated_plugins=frozenset(annotations.get(_MIGRATED_PLUGINS, "").split(",")) - {""},
    )


@naming_the_object("CSIDriver")
def parse_csi_driver(raw: Mapping[str, Any]) -> CSIDriver:
    """Parse a CSIDriver; ManifestError names the object and the wrong field."""
    spec = mapping(raw, "spec")
    return CSIDriver(
        name=name_of(raw),
        storage_capacity=boolean(spec, "storageCapacity", "spec"),
        required_on_node=boolean(spec, "preventPodSchedulingIfMissing", "spec"),
    )


@naming_the_object("CSIStorageCapacity")
def parse_csi_storage_capacity(raw: Mapping[str, Any]) -> CSIStorageCapacity:
    """Parse a CSIStorageCapacity; ManifestError names the object and the wrong field."""
    return CSIStorageCapacity(
        namespace=namespace_of(raw),
        name=name_of(raw),
        storage_class=text(raw, "storageClassName"),
        node_topology=parse_label_selector(optional_mapping(raw, "nodeTopology"), "nodeTopology"),
        capacity=quantity(raw, "capacity"),
        maximum_volume_size=quantity(raw, "maximumVolumeSize"),
    )


@naming_the_object("VolumeAttachment")
def parse_volume_attachment(raw: Mapping[str, Any]) -> VolumeAttachment:
    """Parse a VolumeAttachment; ManifestError names the object and the wrong field."""
    spec = mapping(raw, "spec")
    source = mapping(spec, "source", "spec")
    return VolumeAttachment(
        name=name_of(raw),
        attacher=text(spec, "attacher", "spec"),
        node_name=text(spec, "nodeName", "spec"),
        volume_name=text(source, "persistentVolumeName", "spec.source"),
    )
