"""Features of the kubelet that some pods need, and that nodes declare in `status.declaredFeatures`.

Source: component-helpers `nodedeclaredfeatures/features/`. Other features that nodes declare matter
only when a pod is updated, and are not read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.model.fields import boolean, mappings

__all__ = [
    "RESTART_ALL_CONTAINERS",
    "USER_NAMESPACES_HOST_NETWORK",
    "VOLUME_BIND_MOUNT_OPTIONS",
    "declared_features",
    "required_features",
]

RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
VOLUME_BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"

_KNOWN: Final = frozenset(
    (RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK, VOLUME_BIND_MOUNT_OPTIONS)
)
_RESTARTING: Final = ("containers", "initContainers")
_MOUNTING: Final = (*_RESTARTING, "ephemeralContainers")


def declared_features(names: tuple[str, ...]) -> frozenset[str]:
    """Return which of the features that a node declares some pods need."""
    return _KNOWN.intersection(names)


def required_features(spec: Mapping[str, Any]) -> list[str]:
    """Return the features that a node must declare for a pod of this raw spec, sorted.

    Raises:
        ManifestError: with the path of a field of the wrong type.
    """
    found = list[str]()
    rules = _in_containers(spec, _RESTARTING, "restartPolicyRules")
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        found.append(RESTART_ALL_CONTAINERS)
    own_users = spec.get("hostUsers") is not None and not boolean(spec, "hostUsers", "spec")
    if own_users and boolean(spec, "hostNetwork", "spec"):
        found.append(USER_NAMESPACES_HOST_NETWORK)
    mounts = _in_containers(spec, _MOUNTING, "volumeMounts")
    if any(mount.get("bindMountOptions") for mount in mounts):
        found.append(VOLUME_BIND_MOUNT_OPTIONS)
    return found


def _in_containers(
    spec: Mapping[str, Any], groups: tuple[str, ...], field: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a list field of all containers of these groups."""
    for group in groups:
        for index, container in enumerate(mappings(spec, group, "spec")):
            if field in container:
                yield from mappings(container, field, f"spec.{group}[{index}]")
