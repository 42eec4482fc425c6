"""The Kubernetes objects of a workload."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.devices import TEMPLATE, resource_name
from bench.workloads import Devices, EquivalentPods, Workload
from controlplane.nodes import node_object
from controlplane.releases import chosen_release

Creation = tuple[str, dict[str, Any]]
"""The path of a collection and an object to create in it."""

_GROUP_VERSION = "scheduling.mooring.dev/v1alpha1"
QUEUES = f"/apis/{_GROUP_VERSION}/queues"
_DEPARTMENTS = 13
"""The Queues between the root and the apps' Queues."""
GPU_MEMORY = "aliyun.com/gpu-mem"
EXTENDED = "example.com/extended"
"""The resource of the pods that the extender filters."""
HOPELESS_CPU = "1k"
"""More cpu than any node has."""


def nodes(workload: Workload) -> Iterator[Creation]:
    """Yield plain nodes, assigned to the zones in turn."""
    for index in range(workload.nodes):
        zone = f"zone-{index % workload.zones}"
        labels = _labels_for_rules(index) if workload.kind.team else {}
        yield "/api/v1/nodes", node_object(_node_name(index), zone, workload.node, labels)


def _labels_for_rules(index: int) -> dict[str, str]:
    """Return a price, and for every tenth node a second team."""
    price = {"acme.example/price": f"{1 + index % 7}.5"}
    return price if index % 10 else {**price, "team": "search"}


def priority_classes(workloads: Iterable[Workload]) -> Iterator[Creation]:
    """Yield a PriorityClass for each priority of the workloads' pods, except zero."""
    kinds = (kind for work in workloads for kind in (work.kind, work.existing_kind) if kind)
    for priority in sorted({kind.priority for kind in kinds} - {0}):
        yield (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": _priority_name(priority)}, "value": priority},
        )


FIVE_RULES: tuple[Mapping[str, Any], ...] = (
    {
        "name": "gpu-nodes",
        "filter": 'node.allocatable["nvidia.com/gpu"] == 0 || pod.requests["nvidia.com/gpu"] > 0',
    },
    {
        "name": "teams",
        "filter": "!has(node.labels.team) || "
        "(has(pod.labels.team) && pod.labels.team == node.labels.team)",
    },
    {
        "name": "headroom",
        "filter": "(node.requested.cpu + pod.requests.cpu) * 10 <= node.allocatable.cpu * 9",
    },
    {
        "name": "cheapest",
        "score": 'double(node.labels["acme.example/price"])',
        "normalize": "Reversed",
    },
    {"name": "emptiest", "score": "100 - 100 * node.requested.cpu / node.allocatable.cpu"},
)
"""Filters and scores by labels, amounts and the pod; docs/rules.md states the cost of each."""


def profiles(scheduler: str) -> Iterator[Creation]:
    """Yield the profiles for pods that need more than the defaults; a label chooses the profile.

    They are for pods with shares of GPU cards, and for pods with rules.
    """
    card_plugins = {"multiPoint": {"enabled": [{"name": "GPUShare"}, {"name": "GPUTopology"}]}}
    shared = {"matchLabels": {"gpu": "shared"}}
    of_a_team = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    yield _profile("gpus", scheduler, shared, plugins=card_plugins)
    yield _profile("rules", scheduler, of_a_team, rules=[*FIVE_RULES])


def queues(workload: Workload) -> Iterator[Creation]:
    """Yield a tree of three levels whose leaves are the apps' Queues; most apps must borrow."""
    if workload.kind.queue != "{app}":
        return
    yield queue("all", "", "10k")
    for number in range(_DEPARTMENTS):
        yield queue(f"department-{number}", "all", "0")
    for number in range(workload.kind.apps):
        yield queue(_app_name(number), f"department-{number % _DEPARTMENTS}", "1")


def queue(name: str, parent: str, cpu: str, **quota: str) -> Creation:
    """Return a Queue for pods of all namespaces; `quota` has more fields of its quota of cpu."""
    spec = {
        "parent": parent,
        "namespaceSelector": {},
        "resources": [{"name": "cpu", "nominalQuota": cpu, **quota}],
    }
    head = {"apiVersion": _GROUP_VERSION, "kind": "Queue", "metadata": {"name": name}}
    return QUEUES, {**head, "spec": spec}


def _profile(name: str, scheduler: str, pods: Mapping[str, Any], **spec: Any) -> Creation:
    match = {"schedulerNames": [scheduler], "podSelector": pods, "precedence": 10}
    return (
        f"/apis/{_GROUP_VERSION}/schedulingprofiles",
        {
            "apiVersion": _GROUP_VERSION,
            "kind": "SchedulingProfile",
            "metadata": {"name": name},
            "spec": {"match": match, **spec},
        },
    )


def extender(port: int) -> dict[str, Any]:
    """Return the configuration of the extender on this port, for both schedulers."""
    return {
        "urlPrefix": f"http://127.0.0.1:{port}/every",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
        "managedResources": [{"name": EXTENDED}],
    }


def extended_profile(scheduler: str, port: int) -> Creation:
    """Return the profile of the pods that the extender filters."""
    chosen = {"matchLabels": {"extended": "true"}}
    return _profile("extended", scheduler, chosen, extenders=[extender(port)])


def existing_pods(workload: Workload, namespace: str) -> Iterator[Creation]:
    """Yield pods on nodes; each app has equally many in every zone, and at most one per node.

    This requires at most one pod per node, and a number of pods that apps times zones divides.
    """
    kind = workload.existing_kind or workload.kind
    for index in range(workload.existing):
        app = (index // workload.zones) % kind.apps
        node = _node_name(index % workload.nodes)
        pod = _pod(kind, f"existing-{index:05}", app)
        yield _pods_path(namespace), _with_spec(pod, nodeName=node)


def hopeless_pods(workload: Workload, namespace: str, scheduler: str) -> Iterator[Creation]:
    """Yield pods that fit nowhere."""
    kind = EquivalentPods(cpu=HOPELESS_CPU)
    for index in range(workload.hopeless):
        pod = _pod(kind, f"hopeless-{index:05}", 0)
        yield _pods_path(namespace), _with_spec(pod, schedulerName=scheduler)


def pod_groups(workload: Workload, namespace: str) -> Iterator[Creation]:
    """Yield the pod groups of the measured pods; a group is placed as a whole or not at all."""
    release = chosen_release()
    for number, size in enumerate(_group_sizes(workload)):
        group = {
            "metadata": {"name": _group_name(number)},
            "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
        }
        yield release.pod_groups(namespace), group


def measured_pods(workload: Workload, namespace: str, scheduler: str) -> Iterator[Creation]:
    """Yield the pods to measure: one of each app in turn, and one group after the other."""
    members = (number for number, size in enumerate(_group_sizes(workload)) for _ in range(size))
    for index in range(workload.pods):
        kind = workload.kind if index % 2 else workload.second_kind or workload.kind
        pod = _pod(kind, f"measured-{index:05}", index % kind.apps)
        if (number := next(members, None)) is not None:
            pod = _with_spec(pod, schedulingGroup={"podGroupName": _group_name(number)})
        if workload.devices:
            pod = _claiming(pod, workload.devices, index)
        yield _pods_path(namespace), _with_spec(pod, schedulerName=scheduler)


def _group_sizes(workload: Workload) -> Iterator[int]:
    return (size for number, size in workload.groups for _ in range(number))


def _pod(kind: EquivalentPods, name: str, app_number: int) -> dict[str, Any]:
    app = _app_name(app_number)
    gpu = {GPU_MEMORY: str(kind.gpu_memory)} if kind.gpu_memory else {}
    counted = {**gpu, **({EXTENDED: "1"} if kind.extended else {})}
    resources = {"requests": {"cpu": kind.cpu, "memory": kind.memory, **counted}, "limits": counted}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "pause", "resources": resources}],
        # No kubelet is there to finish a graceful deletion.
        "terminationGracePeriodSeconds": 0,
        **kind.constraint(app),
    }
    if kind.priority:
        spec["priorityClassName"] = _priority_name(kind.priority)
    labels = {"app": app, **({"gpu": "shared"} if gpu else {})}
    if kind.extended:
        labels["extended"] = "true"
    if kind.team:
        labels["team"] = kind.team
    if kind.queue is not None:
        labels["scheduling.mooring.dev/queue"] = kind.queue.format(app=app)
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _claiming(pod: Mapping[str, Any], devices: Devices, index: int) -> dict[str, Any]:
    """Return the pod with a claim from the template, or with an extended resource."""
    (container,) = pod["spec"]["containers"]
    resources = container["resources"]
    if devices.resources:
        wanted = {resource_name(index % devices.resources): str(devices.per_claim)}
        with_wanted = {key: {**amounts, **wanted} for key, amounts in resources.items()}
        return _with_spec(pod, containers=[{**container, "resources": with_wanted}])
    used = {**resources, "claims": [{"name": "devices"}]}
    claims = [{"name": "devices", "resourceClaimTemplateName": TEMPLATE}]
    return _with_spec(pod, containers=[{**container, "resources": used}], resourceClaims=claims)


def _with_spec(pod: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], **fields}}


def _group_name(number: int) -> str:
    return f"group-{number:05}"


def _app_name(number: int) -> str:
    return f"app-{number:03}"


def _node_name(index: int) -> str:
    return f"node-{index:05}"


def _priority_name(priority: int) -> str:
    return f"bench-{priority}"


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
