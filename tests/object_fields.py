"""Writes the table of fields of all kinds that Mooring reads: `python -m object_fields`.

The table is made from the models of kubernetes_asyncio, because a command must not import these
slow models, and from fields of newer versions of Kubernetes.
"""

import json
import re
from pathlib import Path

from kubernetes_asyncio.client import models

from mooring.kube.api_resources import Resource
from mooring.simulate.kinds import READ

TABLE = Path(__file__).parents[1] / "operator" / "mooring" / "simulate" / "object_fields.json"
_QUANTITIES = frozenset(
    {
        "allocatable",
        "allocatedResources",
        "capacity",
        "consumedCapacity",
        "default",
        "defaultRequest",
        "divisor",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "maximumVolumeSize",
        "min",
        "minResources",
        "overhead",
        "podFixed",
        "requests",
        "sizeLimit",
        "step",
        "validValues",
    }
)
"""Fields of quantities: the models call them text, but a number is right too."""
_WITH_VALUE = ("Counter", "DeviceCapacity")
"""Types whose `value` is a quantity."""
Types = dict[str, dict[str, str]]
_BY_HAND: dict[str, Types] = {
    "scheduling.k8s.io/v1beta1 PodGroup": {
        "PodGroup": {"spec": "PodGroupSpec", "status": "V1alpha2PodGroupStatus"},
        "PodGroupSpec": {
            "parentCompositePodGroupName": "str",
            "workloadRef": "WorkloadReference",
            "schedulingPolicy": "V1alpha2PodGroupSchedulingPolicy",
            "schedulingConstraints": "V1alpha2PodGroupSchedulingConstraints",
            "resourceClaims": "[V1alpha2PodGroupResourceClaim]",
            "disruptionMode": "DisruptionMode",
            "priorityClassName": "str",
            "priority": "int",
            "preemptionPolicy": "str",
        },
        "WorkloadReference": {"workloadName": "str", "templateName": "str"},
        "DisruptionMode": {"single": "{*}", "all": "{*}"},
    },
    "scheduling.x-k8s.io/v1alpha1 PodGroup": {
        "PodGroup": {"spec": "CoschedulingPodGroupSpec", "status": "{*}"},
        "CoschedulingPodGroupSpec": {
            "minMember": "int",
            "minResources": "{*}",
            "scheduleTimeoutSeconds": "int",
        },
    },
    "scheduling.volcano.sh/v1beta1 PodGroup": {
        "PodGroup": {"spec": "VolcanoPodGroupSpec", "status": "{*}"},
        "VolcanoPodGroupSpec": {
            "minMember": "int",
            "minTaskMember": "{int}",
            "queue": "str",
            "priorityClassName": "str",
            "minResources": "{*}",
            "networkTopology": "{*}",
            "subGroupPolicy": "[*]",
        },
    },
    "topology.volcano.sh/v1alpha1 HyperNode": {
        "HyperNode": {"spec": "HyperNodeSpec", "status": "{*}"},
        "HyperNodeSpec": {"tier": "int", "tierName": "str", "members": "[HyperNodeMember]"},
        "HyperNodeMember": {"type": "str", "selector": "HyperNodeSelector"},
        "HyperNodeSelector": {
            "exactMatch": "HyperNodeExactMatch",
            "regexMatch": "HyperNodeRegexMatch",
            "labelMatch": "{*}",
        },
        "HyperNodeExactMatch": {"name": "str"},
        "HyperNodeRegexMatch": {"pattern": "str"},
    },
    "scheduling.mooring.dev/v1alpha1 Queue": {
        "Queue": {"spec": "QueueSpec", "status": "{*}"},
        "QueueSpec": {
            "parent": "str",
            "resources": "[QueueQuota]",
            "fairSharing": "QueueFairSharing",
            "preemption": "QueuePreemption",
            "namespaceSelector": "LabelSelector",
        },
        "QueueQuota": {
            "name": "str",
            "nominalQuota": "*",
            "borrowingLimit": "*",
            "lendingLimit": "*",
        },
        "QueueFairSharing": {"weight": "*"},
        "QueuePreemption": {"reclaimWithinCohort": "str", "withinQueue": "str"},
    },
    "scheduling.x-k8s.io/v1alpha1 ElasticQuota": {
        "ElasticQuota": {"spec": "ElasticQuotaSpec", "status": "{*}"},
        "ElasticQuotaSpec": {"min": "{*}", "max": "{*}"},
    },
    "scheduler.grove.io/v1alpha1 PodGang": {
        "PodGang": {"spec": "PodGangSpec", "status": "{*}"},
        "PodGangSpec": {
            "podgroups": "[GrovePodGroup]",
            "topologyConstraint": "GroveTopologyConstraint",
            "topologyConstraintGroupConfigs": "[GroveTopologyConstraintGroupConfig]",
            "priorityClassName": "str",
            "reuseReservationRef": "{*}",
        },
        "GrovePodGroup": {
            "name": "str",
            "podReferences": "[*]",
            "minReplicas": "int",
            "topologyConstraint": "GroveTopologyConstraint",
        },
        "GroveTopologyConstraintGroupConfig": {
            "name": "str",
            "podGroupNames": "[str]",
            "topologyConstraint": "GroveTopologyConstraint",
        },
        "GroveTopologyConstraint": {"packConstraint": "GroveTopologyPackConstraint"},
        "GroveTopologyPackConstraint": {"required": "str", "preferred": "str"},
    },
    "scheduling.run.ai/v2alpha2 PodGroup": {
        "PodGroup": {"spec": "KaiPodGroupSpec", "status": "{*}"},
        "KaiPodGroupSpec": {
            "minMember": "int",
            "minSubGroup": "int",
            "queue": "str",
            "priorityClassName": "str",
            "preemptibility": "str",
            "topologyConstraint": "KaiTopologyConstraint",
            "subGroups": "[KaiSubGroup]",
            "markUnschedulable": "bool",
            "schedulingBackoff": "int",
        },
        "KaiSubGroup": {
            "name": "str",
            "minMember": "int",
            "minSubGroup": "int",
            "parent": "str",
            "topologyConstraint": "KaiTopologyConstraint",
        },
        "KaiTopologyConstraint": {
            "topology": "str",
            "requiredTopologyLevel": "str",
            "preferredTopologyLevel": "str",
        },
    },
}
"""The fields of kinds without a model: of Kubernetes 1.37, of Mooring and of other schedulers."""
_LIKE = {
    "scheduling.k8s.io/v1 PodGroup": "scheduling.k8s.io/v1beta1 PodGroup",
    "scheduling.k8s.io/v1alpha3 PodGroup": "scheduling.k8s.io/v1beta1 PodGroup",
    "resource.k8s.io/v1 DeviceTaintRule": "resource.k8s.io/v1beta2 DeviceTaintRule",
    "scheduling.sigs.k8s.io/v1alpha1 PodGroup": "scheduling.x-k8s.io/v1alpha1 PodGroup",
    "scheduling.sigs.k8s.io/v1alpha1 ElasticQuota": "scheduling.x-k8s.io/v1alpha1 ElasticQuota",
}
"""Kinds whose fields are those of another: versions of Kubernetes 1.37, and an older group."""
_ADDED = {
    "ClusterTrustBundleProjection": {"user": "int"},
    "ConfigMapVolumeSource": {"defaultUser": "int"},
    "Device": {"nodeAllocatableResources": "{*}"},
    "DeviceCounterConsumption": {"compatibilityGroups": "[str]"},
    "DeviceRequestAllocationResult": {"skipNodeOperations": "[*]"},
    "DeviceSubRequest": {"derivedAttributes": "[*]"},
    "DownwardAPIVolumeFile": {"user": "int"},
    "DownwardAPIVolumeSource": {"defaultUser": "int"},
    "EmptyDirVolumeSource": {"mode": "int"},
    "EvictionResponder": {"name": "str", "priority": "int"},
    "ExactDeviceRequest": {"derivedAttributes": "[*]"},
    "GRPCAction": {"mode": "str"},
    "HTTPGetAction": {"protocol": "str"},
    "JobSchedulingConfiguration": {
        "disruptionMode": "*",
        "resourceClaims": "[*]",
        "schedulingConstraints": "*",
        "schedulingPolicy": "*",
    },
    "JobSpec": {"scheduling": "JobSchedulingConfiguration"},
    "KeyToPath": {"user": "int"},
    "NodeAllocatableResourceClaimStatus": {"mapping": "[*]", "overhead": "[*]"},
    "NodeSpec": {"podPreemptionPolicy": "*"},
    "NodeSystemInfo": {"runningInUserNamespace": "bool"},
    "PersistentVolumeClaimStatus": {"healthStatus": "*"},
    "PodCertificateProjection": {"user": "int"},
    "PodSpec": {"evictionResponders": "[EvictionResponder]"},
    "PodStatus": {"volumeHealth": "[*]"},
    "ProjectedVolumeSource": {"defaultUser": "int"},
    "ResourceSliceSpec": {"skipNodeOperations": "[*]", "partitionTypeAttribute": "str"},
    "SecretVolumeSource": {"defaultUser": "int"},
    "ServiceAccountTokenProjection": {"user": "int"},
    "V1beta1BasicDevice": {"nodeAllocatableResources": "{*}"},
    "V1beta1DeviceRequest": {"derivedAttributes": "[*]"},
    "V1beta1ResourceSliceSpec": {"skipNodeOperations": "[*]", "partitionTypeAttribute": "str"},
    "VolumeMount": {"bindMountOptions": "[str]"},
    "storage.k8s.io/v1 CSINode": {"status": "*"},
}
"""Fields of Kubernetes 1.37 that the models, those of 1.36, do not have (k8s.io/api)."""
_OF_EVERY_OBJECT = {"apiVersion": "str", "kind": "str", "metadata": "ObjectMeta"}
_LIST = re.compile(r"list\[(.*)\]")
_MAP = re.compile(r"dict[\[(]str, (.*)[\])]")


_UNSTABLE = re.compile(r"V\d+(alpha|beta)\d+")


def table() -> str:
    """Return the table as JSON, with one line per type."""
    types: Types = {}
    roots = {f"{resource.api_version} {resource.kind}": resource for resource in READ}
    for root, resource in roots.items():
        if root in _BY_HAND:
            inner = dict(_BY_HAND[root])
            types[root] = _OF_EVERY_OBJECT | inner.pop(resource.kind)
            types |= inner
        elif root not in _LIKE:
            types[root] = types.pop(_walk(_model(resource), types))
    for root, like in _LIKE.items():
        types[root] = types[like]
    _merge(types)
    for name, fields in _ADDED.items():
        known = types.setdefault(name, {})
        if repeated := known.keys() & fields.keys():
            raise ValueError(f"the models have {name} {sorted(repeated)}: remove it from _ADDED")
        known |= dict(fields)
    lines = (f"{json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _model(resource: Resource) -> str:
    """Return the name of the model of a kind; some names contain the group."""
    name = f"{resource.version.capitalize()}{resource.kind}"
    return name if hasattr(models, name) else f"{resource.group.partition('.')[0].title()}{name}"


def _merge(types: Types) -> None:
    """Remove types of alpha and beta versions with the same fields as the stable version."""
    while same := {
        name: stable
        for name in types
        if (stable := _UNSTABLE.sub("", name)) != name and types.get(stable) == types[name]
    }:
        for name in same:
            del types[name]
        for fields in types.values():
            for field, kind in fields.items():
                fields[field] = re.sub(r"\w+", lambda word: same.get(word[0], word[0]), kind)


def _walk(model: str, types: Types) -> str:
    """Put the model's type and its fields into the table; return the type's name."""
    name = re.sub(r"V1(?![a-z])", "", model)
    if name not in types:
        types[name] = {}
        found = getattr(models, model)
        types[name] |= {
            (field := found.attribute_map[attribute]): _field_type(name, field, kind, types)
            for attribute, kind in found.openapi_types.items()
        }
    return name


def _field_type(owner: str, field: str, kind: str, types: Types) -> str:
    written = _type(kind, types)
    is_quantity = field in _QUANTITIES or (field == "value" and owner.endswith(_WITH_VALUE))
    return written.replace("str", "*") if is_quantity else written


def _type(kind: str, types: Types) -> str:
    if items := _LIST.fullmatch(kind):
        return f"[{_type(items[1], types)}]"
    if values := _MAP.fullmatch(kind):
        return f"{{{_type(values[1], types)}}}"
    if hasattr(models, kind):
        return _walk(kind, types)
    return {"object": "*", "datetime": "str"}.get(kind, kind)


if __name__ == "__main__":
    TABLE.write_text(table())
