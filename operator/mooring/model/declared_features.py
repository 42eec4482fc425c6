"""Features of the kubelet that some pods need, and that nodes declare in `status.declaredFeatures`.

Source: component-helpers `nodedeclaredfeatures/features/`. Mooring ignores all other features,
because they matter only when a pod is updated.
"""

from collections.abc import Mapping
from typing import Any, Final

from mooring.model.fields import boolean, mappings

RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
VOLUME_BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"

_KNOWN: Final = frozenset(
    (RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK, VOLUME_BIND_MOUNT_OPTIONS)
)
_GROUPS: Final = ("containers", "initContainers", "ephemeralContainers")
"""The fields of a spec that list containers; the last one's containers have no restart rules."""


def declared_features(names: tuple[str, ...]) -> frozenset[str]:
    """Return the features among `names` that a pod may need."""
    return _KNOWN.intersection(names)


def required_features(spec: Mapping[str, Any]) -> list[str]:
    """Return, sorted, the node features that a pod's `spec` needs; ManifestError if malformed."""
    restarts = mounts = False
    for group in _GROUPS:
        if spec.get(group) is None:
            continue  # most specs have one of the groups, and every pod is looked at
        for index, container in enumerate(mappings(spec, group, "spec")):
            if "restartPolicyRules" in container and group != _GROUPS[-1]:
                rules = mappings(container, "restartPolicyRules", f"spec.{group}[{index}]")
                restarts |= any(rule.get("action") == "RestartAllContainers" for rule in rules)
            if "volumeMounts" in container:
                for mount in mappings(container, "volumeMounts", f"spec.{group}[{index}]"):
                    mounts |= bool(mount.get("bindMountOptions"))
    own_users = spec.get("hostUsers") is not None and not boolean(spec, "hostUsers", "spec")
    needed = (
        (RESTART_ALL_CONTAINERS, restarts),
        (USER_NAMESPACES_HOST_NETWORK, own_users and boolean(spec, "hostNetwork", "spec")),
        (VOLUME_BIND_MOUNT_OPTIONS, mounts),
    )
    return [feature for feature, is_needed in needed if is_needed]
