"""Makes Kubernetes objects from a few arguments, as an API server would store them.

    state = cluster(
        node("n1", cpu="4", zone="a", taints=["dedicated=gpu:NoSchedule"]),
        pod("web", cpu="500m", node="n1"),
    )

Every builder returns a raw API object with a uid and a creation time. A test may parse or change
this object. Names, labels and amounts have the meaning that they have in a manifest.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid
from mooring.state.cluster import ClusterState

__all__ = [
    "CREATED",
    "api_object",
    "cluster",
    "coscheduling_pod_group",
    "given",
    "hyper_node",
    "kai_pod_group",
    "namespace",
    "node",
    "pdb",
    "pod",
    "pod_gang",
    "pod_group",
    "priority_class",
    "queue_object",
    "service",
    "toleration",
    "uid_of",
    "volcano_pod_group",
]

CREATED: Final = "2026-01-01T00:00:00Z"
"""The creation time of objects, unless the test gives another time."""

Raw = dict[str, Any]
Labels = Mapping[str, str]
Amount = str | int
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_API_VERSIONS: Final = {
    "Queue": "scheduling.mooring.dev/v1alpha1",
    "SchedulingProfile": "scheduling.mooring.dev/v1alpha1",
    "CSINode": "storage.k8s.io/v1",
    "CSIDriver": "storage.k8s.io/v1",
    "CSIStorageCapacity": "storage.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "DeviceTaintRule": "resource.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "PodGroup": "scheduling.k8s.io/v1alpha2",
    "PriorityClass": "scheduling.k8s.io/v1",
    "ReplicaSet": "apps/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "StatefulSet": "apps/v1",
    "StorageClass": "storage.k8s.io/v1",
    "VolumeAttachment": "storage.k8s.io/v1",
}


def cluster(*objects: Mapping[str, Any]) -> ClusterState:
    """Return a state with the objects; it ignores pods without a node, except members of groups."""
    state = ClusterState()
    for raw in objects:
        kind = _kind(raw)
        value = parse_object(kind, raw)
        if isinstance(value, Pod) and value.node_name is None and not value.finished:
            state.put_unscheduled(value)
        else:
            state.put(kind, object_key(kind, raw), value)
    return state


def api_object(
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Labels | None = None,
    annotations: Labels | None = None,
    created: str = CREATED,
    **fields: Any,
) -> Raw:
    """Return an object of any kind; `fields` are its top-level fields, for example `spec`."""
    uid = _uid(kind, namespace, name)
    metadata: Raw = {"name": name, "uid": uid, "creationTimestamp": created}
    given = {"namespace": namespace, "labels": labels, "annotations": annotations}
    metadata |= {field: value for field, value in given.items() if value is not None}
    version = _API_VERSIONS.get(kind, "v1")
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _uid(kind: str, namespace: str | None, name: str) -> str:
    return "-".join(filter(None, (kind.lower(), namespace, name)))


def uid_of(name: str, namespace: str = "default") -> Uid:
    """Return the uid that `pod` gives to a pod with this name."""
    return Uid(_uid("Pod", namespace, name))


def pod(
    name: str = "web",
    *,
    namespace: str = "default",
    cpu: Amount | None = None,
    memory: Amount | None = None,
    requests: Mapping[str, Amount] | None = None,
    labels: Labels | None = None,
    annotations: Labels | None = None,
    node: str | None = None,
    priority: int = 0,
    ports: Iterable[int | Mapping[str, Any]] = (),
    images: Sequence[str] = ("registry.example/app:v1",),
    node_selector: Labels | None = None,
    affinity: Mapping[str, Any] | None = None,
    spread: Sequence[Mapping[str, Any]] = (),
    tolerations: Sequence[Mapping[str, str]] = (),
    gates: Iterable[str] = (),
    claims: Iterable[str] = (),
    owner: Mapping[str, Any] | None = None,
    created: str = CREATED,
    started: str | None = None,
    nominated: str | None = None,
    terminating: bool = False,
    phase: str | None = None,
    group: str | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Raw:
    """Return a pod with one container per image; the first container has all requests.

    - `requests`: Resources other than cpu and memory.
    - `ports`: Host ports: numbers (TCP, every address) or whole port objects.
    - `affinity`, `spread`, `tolerations`, `owner`: As in the API. `spread` stands for
      topologySpreadConstraints, `owner` for the controlling ownerReference.
    - `claims`: Names of PersistentVolumeClaims.
    - `group`: The name of a PodGroup of scheduling.k8s.io.
    - `spec`, `status`: More fields, which replace fields from other arguments.
    """
    raw = api_object(
        "Pod", name, namespace=namespace, labels=labels, annotations=annotations, created=created
    )
    if owner is not None:
        raw["metadata"]["ownerReferences"] = [{"controller": True, **owner}]
    if terminating:
        raw["metadata"]["deletionTimestamp"] = created
    amounts = {"cpu": cpu, "memory": memory, **(requests or {})}
    raw["spec"] = {
        "schedulerName": "default-scheduler",
        "priority": priority,
        "containers": _containers(images, amounts, ports),
        **given(
            nodeName=node,
            nodeSelector=node_selector,
            affinity=affinity,
            topologySpreadConstraints=spread,
            tolerations=tolerations,
            schedulingGroup={"podGroupName": group} if group is not None else None,
            schedulingGates=[{"name": gate} for gate in gates],
            volumes=[
                {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
            ],
        ),
        **(spec or {}),
    }
    raw["status"] = {
        "phase": phase or ("Running" if node else "Pending"),
        **given(startTime=started, nominatedNodeName=nominated),
        **(status or {}),
    }
    return raw


def node(
    name: str,
    *,
    cpu: Amount = "4",
    memory: Amount = "16Gi",
    pods: Amount = 110,
    resources: Mapping[str, Amount] | None = None,
    labels: Labels | None = None,
    annotations: Labels | None = None,
    zone: str | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
    conditions: Labels | None = None,
    status: Mapping[str, Any] | None = None,
) -> Raw:
    """Return a node with its hostname label; the amounts are allocatable.

    - `resources`: Resources other than cpu, memory and pods.
    - `taints`: Texts as for kubectl: `key=value:Effect` or `key:Effect`.
    - `images`: The bytes of each image, by name.
    - `conditions`: The status of each condition, by type; Ready is True by default.
    - `status`: More fields of the status.
    """
    own = {HOSTNAME: name, **({ZONE: zone} if zone is not None else {})}
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    return api_object(
        "Node",
        name,
        labels=own | dict(labels or {}),
        annotations=annotations,
        spec=given(unschedulable=unschedulable, taints=[_taint(text) for text in taints]),
        status={
            "allocatable": {resource: str(amount) for resource, amount in amounts.items()},
            "conditions": [
                {"type": kind, "status": value}
                for kind, value in {"Ready": "True", **(conditions or {})}.items()
            ],
            "images": [
                {"names": [image], "sizeBytes": size} for image, size in (images or {}).items()
            ],
            **(status or {}),
        },
    )


def toleration(key: str = "", value: str | None = None, effect: str = "") -> dict[str, str]:
    """Return a toleration; without `key` it tolerates every key, without `value` every value."""
    how = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    return {"key": key, "effect": effect, **how}


def namespace(name: str, labels: Labels | None = None) -> Raw:
    """Return a Namespace; like an API server, add its name as a label."""
    own = {"kubernetes.io/metadata.name": name}
    return api_object("Namespace", name, labels=own | dict(labels or {}))


def priority_class(
    name: str, value: int, *, default: bool = False, policy: str = "PreemptLowerPriority"
) -> Raw:
    """Return a PriorityClass; `default` makes it the globalDefault; `policy` may be Never."""
    return api_object(
        "PriorityClass", name, value=value, globalDefault=default, preemptionPolicy=policy
    )


def service(name: str, selector: Labels, *, namespace: str = "default") -> Raw:
    """Return a Service whose selector is these labels."""
    return api_object("Service", name, namespace=namespace, spec={"selector": dict(selector)})


def pdb(
    name: str,
    labels: Labels,
    *,
    allowed: int = 0,
    namespace: str = "default",
    selector: Mapping[str, Any] | None = None,
) -> Raw:
    """Return a PodDisruptionBudget for pods with these labels, or for `selector` if it is given."""
    return api_object(
        "PodDisruptionBudget",
        name,
        namespace=namespace,
        spec={"selector": {"matchLabels": dict(labels)} if selector is None else dict(selector)},
        status={"disruptionsAllowed": allowed},
    )


def pod_group(
    name: str,
    minimum: int | None = None,
    *,
    namespace: str = "default",
    topology: Iterable[str] = (),
    disruption_mode: str | None = None,
    priority: int | None = None,
    annotations: Labels | None = None,
    created: str = CREATED,
    status: Mapping[str, Any] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
) -> Raw:
    """Return a PodGroup of scheduling.k8s.io: a gang with a minimum, or with the policy `basic`."""
    policy: Raw = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    raw = api_object(
        "PodGroup", name, namespace=namespace, annotations=annotations, created=created
    )
    constraints = {"topology": [{"key": key} for key in topology]} if topology else None
    raw["spec"] = {
        "schedulingPolicy": policy,
        **given(schedulingConstraints=constraints, disruptionMode=disruption_mode),
        **given(resourceClaims=list(claims)),
        **({} if priority is None else {"priority": priority}),
    }
    raw["status"] = dict(status or {})
    return raw


def coscheduling_pod_group(
    name: str,
    minimum: int,
    *,
    namespace: str = "default",
    resources: Mapping[str, Amount] | None = None,
    timeout: int | None = None,
    annotations: Labels | None = None,
    created: str = CREATED,
    status: Mapping[str, Any] | None = None,
) -> Raw:
    """Return a PodGroup of scheduling.x-k8s.io; members name it by the label COSCHEDULING_LABEL."""
    raw = api_object(
        "PodGroup", name, namespace=namespace, annotations=annotations, created=created
    )
    raw["apiVersion"] = "scheduling.x-k8s.io/v1alpha1"
    fields = given(minResources=resources, scheduleTimeoutSeconds=timeout)
    raw["spec"] = {"minMember": minimum, **fields}
    raw["status"] = dict(status or {})
    return raw


def volcano_pod_group(name: str, minimum: int, **spec: Any) -> Raw:
    """Return a PodGroup of Volcano; members name it by an annotation."""
    raw = coscheduling_pod_group(name, minimum)
    raw["spec"] |= spec
    return raw | {"apiVersion": "scheduling.volcano.sh/v1beta1"}


def kai_pod_group(name: str, minimum: int | None = None, **spec: Any) -> Raw:
    """Return a PodGroup of KAI; members name it by an annotation."""
    raw = volcano_pod_group(name, 1, **{"minMember": minimum, **spec})
    return raw | {"apiVersion": "scheduling.run.ai/v2alpha2"}


def pod_gang(name: str, groups: Mapping[str, int], **spec: Any) -> Raw:
    """Return a PodGang of Grove; `groups` maps the name of each pod group to its `minReplicas`."""
    raw = coscheduling_pod_group(name, 1)
    parts = [
        {"name": role, "minReplicas": least, "podReferences": []} for role, least in groups.items()
    ]
    raw["spec"] = {"podgroups": parts, **spec}
    return raw | {"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang"}


def hyper_node(name: str, tier: int, *members: Raw, **spec: Any) -> Raw:
    """Return a HyperNode of Volcano; each of `members` is an entry of `spec.members`."""
    raw = api_object("HyperNode", name, spec={"tier": tier, "members": list(members), **spec})
    return raw | {"apiVersion": "topology.volcano.sh/v1alpha1"}


def queue_object(
    name: str,
    quotas: Mapping[str, Amount | Mapping[str, Amount]] = _NONE,
    *,
    parent: str = "",
    selector: Mapping[str, Any] | None = _NONE,
    status: Mapping[str, Any] = _NONE,
    **spec: Any,
) -> Raw:
    """Return a Queue; `quotas` has a nominal quota, or the fields of a quota, for each resource.

    The default `selector` accepts pods of every namespace; None accepts no pods.
    """
    resources = [
        {"name": resource, **(quota if isinstance(quota, Mapping) else {"nominalQuota": quota})}
        for resource, quota in quotas.items()
    ]
    selected = {} if selector is None else {"namespaceSelector": dict(selector)}
    fields = {**given(parent=parent, resources=resources), **selected, **spec}
    return api_object("Queue", name, spec=fields, **given(status=dict(status)))


def given(**fields: Any) -> Raw:
    """Return the fields, without fields that are None, False, 0 or empty."""
    return {name: value for name, value in fields.items() if value}


def _containers(
    images: Sequence[str],
    amounts: Mapping[str, Amount | None],
    ports: Iterable[int | Mapping[str, Any]],
) -> list[Raw]:
    containers: list[Raw] = [
        {"name": f"c{index}", "image": image} for index, image in enumerate(images)
    ]
    requests = {name: str(amount) for name, amount in amounts.items() if amount is not None}
    containers[0]["resources"] = {"requests": requests} if requests else {}
    containers[0]["ports"] = [
        {"containerPort": port, "hostPort": port} if isinstance(port, int) else dict(port)
        for port in ports
    ]
    return containers


_GROUP_KINDS: Final = {
    "scheduling.x-k8s.io": Kind.COSCHEDULING_POD_GROUP,
    "scheduling.volcano.sh": Kind.VOLCANO_POD_GROUP,
    "scheduling.run.ai": Kind.KAI_POD_GROUP,
}


def _kind(raw: Mapping[str, Any]) -> Kind:
    group, _, _ = raw["apiVersion"].partition("/")
    return _GROUP_KINDS.get(group) or Kind(raw["kind"])


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}
