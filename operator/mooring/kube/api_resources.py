"""The API resources that Mooring reads and writes, and the address of each.

`Resource.path` builds a request's path. `ApiCall.parse` turns a path back into verb and resource
for error messages.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

MOORING_GROUP: Final = "scheduling.mooring.dev"
"""The API group of Mooring's own custom resources."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of API object; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`, such as `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """Return the absolute path of the collection, of one object, or of its subresource.

        Without `namespace`, return the path for the objects of all namespaces.
        """
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if namespace is not None:
            parts += ("namespaces", _quoted(namespace))
        parts.append(self.plural)
        if name is not None:
            parts.append(_quoted(name))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_is_plain: Final = re.compile(r"[a-z0-9.-]+").fullmatch


def _quoted(name: str) -> str:
    return name if _is_plain(name) else quote(name, safe=":")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """The verb and the resource of a request, as RBAC names them.

    `resource` includes the subresource (`pods/binding`). For a path outside the resource API, such
    as `/version`, `resource` is the path itself.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str | None = None
    name: str | None = None

    @classmethod
    def parse(cls, method: str, path: str, *, watch: bool = False) -> "ApiCall":
        """Return the verb and resource behind an HTTP method and path."""
        rest = [unquote(part) for part in path.strip("/").split("/")]
        if rest[:1] == ["api"] and len(rest) > 2:
            group, rest = "", rest[2:]
        elif rest[:1] == ["apis"] and len(rest) > 3:
            group, rest = rest[1], rest[3:]
        else:
            return cls(verb=method.lower(), resource=path)
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            namespace, rest = rest[1], rest[2:]
        name = rest[1] if len(rest) > 1 else None
        resource = "/".join([rest[0], *rest[2:]])
        return cls(_verb(method, name, watch=watch), resource, group, namespace, name)

    def __str__(self) -> str:
        target = f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"
        if self.name is None:
            return f"{target} in namespace {self.namespace}" if self.namespace else target
        return (
            f"{target} {self.namespace}/{self.name}" if self.namespace else f"{target} {self.name}"
        )


_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


def _verb(method: str, name: str | None, *, watch: bool) -> str:
    # As in requestinfo.go of k8s.io/apiserver.
    if method == "GET":
        return "watch" if watch else "list" if name is None else "get"
    if method == "DELETE" and name is None:
        return "deletecollection"
    return {"POST": "create", "PUT": "update"}.get(method, method.lower())


POD: Final = Resource("", "v1", "pods", "Pod")
NODE: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICE: Final = Resource("", "v1", "services", "Service")
REPLICATION_CONTROLLER: Final = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController"
)
PERSISTENT_VOLUME: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PERSISTENT_VOLUME_CLAIM: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
REPLICA_SET: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SET: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
STORAGE_CLASS: Final = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
CSI_NODE: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVER: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITY: Final = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"
)
VOLUME_ATTACHMENT: Final = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
POD_DISRUPTION_BUDGET: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
PRIORITY_CLASS: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
LIMIT_RANGE: Final = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASS: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
POD_GROUP_V1: Final = Resource("scheduling.k8s.io", "v1", "podgroups", "PodGroup")
"""PodGroups as a release after 1.38.0-beta.0 will serve them, with the fields of v1beta1
(KEP-4671)."""
POD_GROUP: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
POD_GROUP_V1ALPHA3: Final = Resource("scheduling.k8s.io", "v1alpha3", "podgroups", "PodGroup")
"""PodGroups as Kubernetes 1.37 serves them if a user enables v1alpha3; the fields are as in
v1beta1."""
POD_GROUP_V1ALPHA2: Final = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
"""Kubernetes 1.36 serves this version behind a feature gate."""
COSCHEDULING_POD_GROUP: Final = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
SIGS_POD_GROUP: Final = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
"""The coscheduling PodGroup under its older group name, which Koordinator uses."""
VOLCANO_POD_GROUP: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KUEUE_WORKLOAD: Final = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
KUEUE_WORKLOAD_V1BETA1: Final = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
"""Workloads as Kueue before 0.15 serves them."""
KAI_POD_GROUP: Final = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
HYPER_NODE: Final = Resource(
    "topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False
)
POD_GANG: Final = Resource("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang")
RESOURCE_CLAIM: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATE: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
RESOURCE_SLICE: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASS: Final = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
DEVICE_TAINT_RULE: Final = Resource(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
"""DeviceTaintRules as Kubernetes serves them from 1.37 on."""
DEVICE_TAINT_RULE_V1BETA2: Final = Resource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
"""Kubernetes 1.36 serves this version behind a feature gate."""
EVENT: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASE: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SCHEDULING_PROFILE: Final = Resource(
    MOORING_GROUP, "v1alpha1", "schedulingprofiles", "SchedulingProfile", namespaced=False
)
ELASTIC_QUOTA: Final = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
SIGS_ELASTIC_QUOTA: Final = Resource(
    "scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota"
)
"""The ElasticQuota under its older group name, which Koordinator uses."""
QUEUE: Final = Resource(MOORING_GROUP, "v1alpha1", "queues", "Queue", namespaced=False)
