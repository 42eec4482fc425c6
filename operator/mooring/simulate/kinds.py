"""The kinds of objects that a simulation reads, and the API versions of each kind.

A kind is an API group and a name, because Volcano has its own Job, and Longhorn its own Node.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.groups.state.pod_groups import GROUP_KINDS
from mooring.kube.api_resources import (
    DEVICE_CLASS,
    LIMIT_RANGE,
    PRIORITY_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    RUNTIME_CLASS,
    Resource,
)
from mooring.mirroring.mirror import MIRRORED, MIRRORED_IF_SERVED
from mooring.model.events import Kind
from mooring.model.fields import mapping, mappings
from mooring.model.manifest_error import ManifestError

_MIRRORED: Final = {**MIRRORED, **MIRRORED_IF_SERVED, PRIORITY_CLASS: Kind.PRIORITY_CLASS}
KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (resource.group, resource.kind): kind for resource, kind in _MIRRORED.items()
}
"""The objects that decisions read, by API group and kind."""
READ: Final[tuple[Resource, ...]] = (
    *_MIRRORED,
    RUNTIME_CLASS,
    LIMIT_RANGE,
    RESOURCE_CLAIM_TEMPLATE,
    *(
        replace(resource, version=version)
        for resource in (DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE)
        for version in ("v1beta2", "v1beta1")
    ),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)
"""Every API version of every kind that is read from files; the newest version comes first."""
_OF_KUBERNETES: Final = {"extensions", *(r.group for r in READ)} - {
    resource.group
    for resource, kind in MIRRORED_IF_SERVED.items()
    if kind in {*GROUP_KINDS, Kind.HYPER_NODE, Kind.QUEUE, Kind.ELASTIC_QUOTA} - {Kind.POD_GROUP}
}
"""The API groups of Kubernetes; `extensions` is the group that Deployments had until 1.16."""
_OF_EVERY_REQUEST: Final = ("name", "firstAvailable")


def as_read(raw: dict[str, Any], stored: str = "") -> dict[str, Any]:
    """Return the object with the fields of the newest API version of its kind.

    `stored` names an object that comes from a cluster; it is "" for other objects. Raises
    ManifestError if the apiVersion is absent or not supported.
    """
    given, kind = raw.get("apiVersion"), raw.get("kind")
    if not given or not isinstance(given, str):
        raise ManifestError("apiVersion", f"is required beside kind: {kind}")
    group = given.rpartition("/")[0]
    alike = [resource for resource in READ if resource.kind == kind]
    own = [resource for resource in alike if resource.group == group]
    if not any(resource.api_version == given for resource in own):
        right = own or [r for r in alike if {group, r.group} <= _OF_KUBERNETES]
        if right and stored:
            known = right[0]
            as_known = f"kubectl get {known.plural}.{known.version}.{known.group} -o yaml"
            how = f"have the cluster write it as {known.api_version}: {as_known}"
            raise ManifestError(f"{stored}: apiVersion", f"{given} is not read; {how}")
        if right:
            versions = " or ".join(resource.api_version for resource in right)
            raise ManifestError("apiVersion", f"{given} is not read for {kind}; write {versions}")
    convert = _OF_V1BETA1.get(str(kind)) if given == "resource.k8s.io/v1beta1" else None
    return raw if convert is None else {**convert(raw), "apiVersion": "resource.k8s.io/v1"}


def _slice(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ResourceSlice with the fields of each device's `basic` moved into the device."""
    spec = mapping(raw, "spec")
    devices = [
        {**_without(device, "basic"), **mapping(device, "basic", f"spec.devices[{index}]")}
        for index, device in enumerate(mappings(spec, "devices", "spec"))
    ]
    return {**raw, "spec": {**spec, "devices": devices}}


def _claim(raw: Mapping[str, Any], where: str = "spec") -> dict[str, Any]:
    """Return a ResourceClaim with the fields of each plain request moved into `exactly`."""
    spec = mapping(raw, "spec", where.removesuffix(".spec"))
    devices = mapping(spec, "devices", where)
    requests = []
    for request in mappings(devices, "requests", f"{where}.devices"):
        wanted = _without(request, *_OF_EVERY_REQUEST)
        alone = {"exactly": wanted} if wanted or not request.get("firstAvailable") else {}
        requests.append({k: request[k] for k in _OF_EVERY_REQUEST if k in request} | alone)
    return {**raw, "spec": {**spec, "devices": {**devices, "requests": requests}}}


def _without(raw: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names and value is not None}


_OF_V1BETA1: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "ResourceSlice": _slice,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": lambda raw: {
        **raw,
        "spec": _claim(mapping(raw, "spec"), "spec.spec"),
    },
}
"""Functions that convert objects of resource.k8s.io/v1beta1 to the newest version.

They do the same as pkg/apis/resource/v1beta1 in the API server.
"""
