"""Makes the lines of watches by which an API server shows a large cluster, one by one.

A node has 30 pods: 6 of DaemonSets, 4 of StatefulSets and 20 of Deployments. As in a real cluster,
pods also have fields that no decision reads, about 4 KB of JSON, and the pods of a workload come
one after the other. Each pod of a StatefulSet has its own labels; all other pods have many equal
ones.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import orjson

from mooring.kube.api_resources import NAMESPACE, NODE, POD, Resource
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.reflector import INITIAL_EVENTS_END
from mooring.testing.builders import namespace, node, pod

PODS_PER_NODE: Final = 30
_AGENTS, _DATABASES = 6, 4
_REPLICAS: Final = 40
"""The number of pods of a Deployment or a StatefulSet."""
_ZONES: Final = 3
_NAMESPACES: Final = 200
_LINES_AT_ONCE: Final = 16
"""How many lines come with one read of a connection."""
_NOBODY: Final = Connection("http://127.0.0.1:9")

Raw = dict[str, Any]


class LargeCluster:
    """The nodes, their pods and the namespaces, as the API server would send them."""

    def __init__(self, nodes: int, *, pods_per_node: int = PODS_PER_NODE) -> None:
        self.nodes = nodes
        self.pods_per_node = pods_per_node

    def objects(self, resource: Resource) -> Iterator[Raw]:
        """Yield all objects of the resource: nodes, pods or namespaces; none of other resources."""
        if resource is NODE:
            return (self.node(number) for number in range(self.nodes))
        if resource is NAMESPACE:
            return (namespace(f"team-{number}") for number in range(_NAMESPACES))
        return self._pods() if resource is POD else iter(())

    def node(self, number: int) -> Raw:
        """Return a node of 64 CPUs with the usual fields of a kubelet and a cloud."""
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": f"m{number % 4}.16xlarge",
            "topology.kubernetes.io/region": "north-1",
        }
        images = {f"registry.example/app-{(number + i) % 500}:v1": 10**8 + i for i in range(20)}
        return node(
            _node_name(number),
            cpu="64",
            memory="256Gi",
            zone=_zone(number),
            labels=labels,
            images=images,
            conditions={"MemoryPressure": "False", "DiskPressure": "False"},
        )

    def waiting(self, number: int, templates: int) -> Raw:
        """Return a pod without a node, made from one of `templates` templates."""
        app = f"new-{number % templates}"
        return _pod(
            f"{app}-5d4f8c7b9d-{number:06d}",
            _namespace(number % templates),
            {"app": app, "pod-template-hash": "5d4f8c7b9d"},
            owner=("ReplicaSet", f"{app}-5d4f8c7b9d"),
            cpu=f"{100 + number % templates % 50}m",
            uid=1_000_000_000 + number,
        )

    def _pods(self) -> Iterator[Raw]:
        """Yield the pods on nodes, workload by workload."""
        total, done = self.nodes * self.pods_per_node, 0
        for number in range(total):
            on, place = number % self.nodes, number // self.nodes
            if place < _AGENTS:
                yield self._agent(number, on, f"agent-{place}")
            elif place < _AGENTS + _DATABASES:
                yield self._replica(number, on, done // _REPLICAS, done % _REPLICAS)
                done += 1
            else:
                yield self._web(number, on, done // _REPLICAS)
                done += 1

    def _agent(self, number: int, on: int, name: str) -> Raw:
        labels = {
            "app": name,
            "controller-revision-hash": "6c8f9d7b5c",
            "pod-template-generation": "1",
        }
        return _pod(
            f"{name}-{number:06d}",
            "kube-system",
            labels,
            owner=("DaemonSet", name),
            on=on,
            uid=number,
        )

    def _replica(self, number: int, on: int, app: int, ordinal: int) -> Raw:
        name = f"db-{app}"
        labels = {
            "app": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": f"{name}-7f9c6d8b4",
            "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
        }
        return _pod(
            f"{name}-{ordinal}",
            _namespace(app),
            labels,
            owner=("StatefulSet", name),
            on=on,
            uid=number,
            claims=[f"data-{name}-{ordinal}"],
        )

    def _web(self, number: int, on: int, app: int) -> Raw:
        name = f"web-{app}"
        labels = {"app": name, "pod-template-hash": "5d4f8c7b9d", "team": f"t{app % 40}"}
        return _pod(
            f"{name}-5d4f8c7b9d-{number:06d}",
            _namespace(app),
            labels,
            owner=("ReplicaSet", f"{name}-5d4f8c7b9d"),
            annotations={"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            on=on,
            uid=number,
        )


def lines(objects: Iterable[Raw]) -> Iterator[bytes]:
    """Yield the lines of a watch that sends these objects and then a bookmark for their end."""
    for raw in objects:
        raw["metadata"]["resourceVersion"] = "1"
        yield orjson.dumps({"type": "ADDED", "object": raw})
    end = {"resourceVersion": "1", "annotations": {INITIAL_EVENTS_END: "true"}}
    yield orjson.dumps({"type": "BOOKMARK", "object": {"kind": "", "metadata": end}})


class Watches(ApiClient):
    """A client of an API server that shows a cluster without changes."""

    def __init__(self, cluster: LargeCluster, resources: Iterable[Resource]) -> None:
        super().__init__(_NOBODY)
        self._cluster = cluster
        self._by_path = {resource.path(): resource for resource in resources}

    async def watch_lines(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch."""
        del params, silence
        yield []
        chunk: list[bytes] = []
        for line in lines(self._cluster.objects(self._by_path[path])):
            chunk.append(line)
            if len(chunk) == _LINES_AT_ONCE:
                await asyncio.sleep(0)  # a connection has more only when the event loop has run
                yield chunk
                chunk = []
        yield chunk
        await asyncio.Event().wait()


def _pod(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    owner: tuple[str, str],
    uid: int,
    on: int | None = None,
    cpu: str = "100m",
    annotations: Mapping[str, str] | None = None,
    claims: Iterable[str] = (),
) -> Raw:
    """Return a pod with topology labels, managed fields, mounts, conditions and statuses."""
    topology = _topology(on) if on is not None else {}
    raw = pod(
        name,
        namespace=namespace,
        labels={**labels, **topology},
        annotations=annotations,
        owner=_owner(*owner),
        node=_node_name(on) if on is not None else None,
        started="2026-01-01T00:00:07Z" if on is not None else None,
        cpu=cpu,
        memory="128Mi",
        images=(f"registry.example/{labels['app']}:v1",),
        claims=claims,
        spec=_UNREAD_SPEC,
        status={"conditions": _CONDITIONS, **_ADDRESSES} if on is not None else None,
    )
    raw["metadata"] |= {
        "uid": str(UUID(int=uid << 64 | uid)),
        "managedFields": _MANAGED_FIELDS,
    }
    raw["spec"]["containers"][0] |= _UNREAD_CONTAINER
    return raw


def _owner(kind: str, name: str) -> dict[str, Any]:
    uid = str(UUID(int=hash_of(name)))
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}


def hash_of(name: str) -> int:
    """Return a hash of the name that is the same in every process."""
    return int.from_bytes(name.encode()[-16:].rjust(16, b"0"), "big")


def _node_name(number: int) -> str:
    return f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}.north-1.internal"


def _zone(number: int) -> str:
    return f"north-1{'abc'[number % _ZONES]}"


def _topology(on: int) -> dict[str, str]:
    """Return the labels that the API server adds to a pod with its Binding."""
    return {
        "topology.kubernetes.io/region": "north-1",
        "topology.kubernetes.io/zone": _zone(on),
    }


def _namespace(app: int) -> str:
    return f"team-{app % _NAMESPACES}"


_MANAGED_FIELDS: Final = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{group}": {f"f:{field}": {} for field in fields} for group in groups},
    }
    for manager, groups, fields in (
        ("kube-controller-manager", ("metadata", "spec"), ("labels", "ownerReferences", "image")),
        ("kubelet", ("status",), ("conditions", "containerStatuses", "hostIP", "phase", "podIPs")),
    )
]
_UNREAD_CONTAINER: Final = {
    "env": [{"name": f"SETTING_{i}", "value": f"value of the setting {i}"} for i in range(8)],
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
    "volumeMounts": [
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ],
}
_UNREAD_SPEC: Final = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_CONDITIONS: Final = [
    {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
]
_ADDRESSES: Final = {
    "hostIP": "10.0.0.1",
    "podIPs": [{"ip": "10.1.0.1"}],
    "qosClass": "Burstable",
    "containerStatuses": [
        {
            "name": "c0",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "image": "registry.example/app:v1",
            "imageID": f"registry.example/app@sha256:{'0' * 64}",
            "containerID": f"containerd://{'0' * 64}",
            "state": {"running": {"startedAt": "2026-01-01T00:00:08Z"}},
        }
    ],
}
