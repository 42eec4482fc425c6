"""The merge patches by which volumes and claims find together, as upstream's scheduler writes them.

Each fails if the object has changed since it was read (component-helpers
storage/volume/pv_helpers.go).
"""

from typing import Any, Final

from mooring.model.storage import (
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)

__all__ = ["BOUND_BY_CONTROLLER", "binding_patch", "node_patch"]

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""The annotation that says that nobody but a controller chose the claim for a volume."""


def binding_patch(
    volume: PersistentVolume, claim: PersistentVolumeClaim, *, prebound: bool
) -> dict[str, Any]:
    """Binds the volume to the claim; `prebound` says that its user had kept it for the claim."""
    metadata: dict[str, Any] = {"resourceVersion": volume.resource_version}
    if not prebound:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    claim_ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    return {"metadata": metadata, "spec": {"claimRef": claim_ref}}


def node_patch(claim: PersistentVolumeClaim, node: str) -> dict[str, Any]:
    """Has the claim's provisioner make a volume for the node."""
    return {
        "metadata": {
            "resourceVersion": claim.resource_version,
            "annotations": {SELECTED_NODE: node},
        }
    }
