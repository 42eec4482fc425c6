"""PersistentVolume, PersistentVolumeClaim and StorageClass objects.

Sizes are exact. If an object names its storage class in the old annotation and in the field, the
annotation takes precedence (component-helpers' `storage/volume/helpers.go`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.model.fields import (
    controller_uid,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    quantity,
    strings,
    text,
    texts,
)
from mooring.model.quantity import Quantity
from mooring.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    parse_label_selector,
    parse_node_selector,
)
from mooring.volumes.model.pod_volumes import Disk, parse_disk

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation of a claim that names the node for which a volume must be provisioned."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""The annotation of a claim whose binding is complete."""
_OLD_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NO_SIZE: Final = Quantity(0)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The claim for which a volume is reserved; `uid` is "" if only the name is known."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CSISource:
    """A volume of a CSI driver; an in-tree disk is translated to such a volume."""

    driver: str
    handle: str
    migrated: bool = field(default=False, compare=False)
    """Whether this volume was an in-tree disk; a node without a CSINode attaches such a disk
    without CSI."""


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A volume of the cluster.

    A `node_affinity` of None allows every node. `source` is None if no filter reads the volume's
    source. `labels` include the zones for VolumeZone.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    deleting: bool
    capacity: Quantity
    access_modes: frozenset[str]
    volume_mode: str
    storage_class: str
    attributes_class: str
    claim: ClaimRef | None
    node_affinity: NodeSelector | None
    source: Disk | CSISource | None
    phase: str


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """A claim for a volume.

    `requested`, `selected_node` and `selector` are None if not set. `controller_uid` is the uid of
    the pod for which an ephemeral claim was created. `annotated` is True if the claim has any
    annotation.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool
    controller_uid: str
    requested: Quantity | None
    access_modes: frozenset[str]
    volume_mode: str
    storage_class: str
    attributes_class: str
    selector: LabelSelector | None
    volume_name: str
    selected_node: str | None
    annotated: bool
    bind_completed: bool
    phase: str

    @property
    def key(self) -> str:
        """The claim as `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def size(self) -> Quantity:
        """The requested size; 0 if it is not set."""
        return self.requested or _NO_SIZE

    @property
    def bound(self) -> bool:
        """Whether the binding of the claim is complete (isPVCFullyBound)."""
        return self.volume_name != "" and self.bind_completed


@dataclass(frozen=True, slots=True)
class StorageClass:
    """How volumes of the class are provisioned; `allowed_topologies` of None allows every node."""

    name: str
    provisioner: str
    waits_for_consumer: bool
    allowed_topologies: NodeSelector | None


@naming_the_object("PersistentVolume")
def parse_persistent_volume(raw: Mapping[str, Any]) -> PersistentVolume:
    """Parse a PersistentVolume; ManifestError names the object and the wrong field."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    affinity = mapping(spec, "nodeAffinity", "spec")
    return PersistentVolume(
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        resource_version=text(metadata, "resourceVersion", "metadata"),
        labels=strings(metadata, "labels", "metadata"),
        deleting=metadata.get("deletionTimestamp") is not None,
        capacity=quantity(mapping(spec, "capacity", "spec"), "storage", "spec.capacity")
        or _NO_SIZE,
        access_modes=frozenset(texts(spec, "accessModes", "spec")),
        volume_mode=text(spec, "volumeMode", "spec") or "Filesystem",
        storage_class=_storage_class(metadata, spec),
        attributes_class=text(spec, "volumeAttributesClassName", "spec"),
        claim=_claim_ref(spec),
        node_affinity=parse_node_selector(
            optional_mapping(affinity, "required", "spec.nodeAffinity"),
            "spec.nodeAffinity.required",
        ),
        source=_source(spec),
        phase=text(mapping(raw, "status"), "phase", "status") or "Pending",
    )


@naming_the_object("PersistentVolumeClaim")
def parse_persistent_volume_claim(raw: Mapping[str, Any]) -> PersistentVolumeClaim:
    """Parse a claim; ManifestError names the object and the wrong field."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    annotations = strings(metadata, "annotations", "metadata")
    resources = mapping(spec, "resources", "spec")
    requests = mapping(resources, "requests", "spec.resources")
    return PersistentVolumeClaim(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        resource_version=text(metadata, "resourceVersion", "metadata"),
        deleting=metadata.get("deletionTimestamp") is not None,
        controller_uid=controller_uid(metadata),
        requested=quantity(requests, "storage", "spec.resources.requests"),
        access_modes=frozenset(texts(spec, "accessModes", "spec")),
        volume_mode=text(spec, "volumeMode", "spec") or "Filesystem",
        storage_class=_storage_class(metadata, spec),
        attributes_class=text(spec, "volumeAttributesClassName", "spec"),
        selector=parse_label_selector(optional_mapping(spec, "selector", "spec"), "spec.selector"),
        volume_name=text(spec, "volumeName", "spec"),
        selected_node=annotations.get(SELECTED_NODE),
        annotated=bool(annotations),
        bind_completed=BIND_COMPLETED in annotations,
        phase=text(mapping(raw, "status"), "phase", "status") or "Pending",
    )


@naming_the_object("StorageClass")
def parse_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    """Parse a StorageClass; the default of `volumeBindingMode` is Immediate."""
    return StorageClass(
        name=name_of(raw),
        provisioner=text(raw, "provisioner"),
        waits_for_consumer=text(raw, "volumeBindingMode") == "WaitForFirstConsumer",
        allowed_topologies=_topologies(raw),
    )


def _storage_class(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    old = strings(metadata, "annotations", "metadata").get(_OLD_STORAGE_CLASS)
    return text(spec, "storageClassName", "spec") if old is None else old


def _claim_ref(spec: Mapping[str, Any]) -> ClaimRef | None:
    ref, where = mapping(spec, "claimRef", "spec"), "spec.claimRef"
    if not ref:
        return None
    return ClaimRef(
        text(ref, "namespace", where), text(ref, "name", where), text(ref, "uid", where)
    )


def _source(spec: Mapping[str, Any]) -> Disk | CSISource | None:
    csi, where = mapping(spec, "csi", "spec"), "spec.csi"
    if csi:
        return CSISource(text(csi, "driver", where), text(csi, "volumeHandle", where))
    return parse_disk(spec, "spec")


def _topologies(raw: Mapping[str, Any]) -> NodeSelector | None:
    terms = []
    for index, term in enumerate(mappings(raw, "allowedTopologies")):
        where = f"allowedTopologies[{index}]"
        requirements = [
            Requirement(
                text(expression, "key", f"{where}.matchLabelExpressions[{at}]"),
                "In",
                texts(expression, "values", f"{where}.matchLabelExpressions[{at}]"),
            )
            for at, expression in enumerate(mappings(term, "matchLabelExpressions", where))
        ]
        terms.append(NodeSelectorTerm(expressions=tuple(requirements)))
    # Without terms, every node is allowed.
    return NodeSelector(tuple(terms)) if terms else None
