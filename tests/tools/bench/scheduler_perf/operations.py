"""Runs the operations of a workload against an API server, beside a scheduler."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from queue import Empty, SimpleQueue
from typing import Any, Final

from bench.loader import create, patch
from bench.scheduler_perf import objects
from bench.scheduler_perf.bound_pods import BindingTimes, BoundPods, has_labels
from bench.scheduler_perf.claims import allocations
from bench.scheduler_perf.reading import Operation, Workload
from bench.scheduler_perf.throughput import Throughput, rates
from bench.usage import usage_of
from controlplane import Access, ControlPlaneError
from controlplane.client import ApiError, Client
from controlplane.namespaces import NO_GRACE
from controlplane.releases import chosen_release

Raw = dict[str, Any]

DEVICES: Final = "/apis/resource.k8s.io/v1"
LOOK_AGAIN: Final = 0.1
"""Seconds between two looks at the number of bound pods."""
LIST_AGAIN: Final = 1.0
"""Seconds between two looks that list all pods."""
STALL_SECONDS: Final = 120.0
"""An operation is given up after so many seconds without a change."""
CHURN_MILLISECONDS: Final = 500
BACKGROUND_SECONDS: Final = 60.0
"""The most seconds that work beside the operations may take to end."""


class StalledError(Exception):
    """An operation has waited too long without a change."""


class Execution:
    """Runs the operations of one workload, and keeps the objects that they have made."""

    def __init__(
        self, access: Access, workload: Workload, scheduler: str, pid: int, bound: BoundPods
    ) -> None:
        """Expect an empty cluster; pods get `scheduler` as spec.schedulerName."""
        self.measured: list[Throughput] = []
        self._access = access
        self._workload = workload
        self._scheduler = scheduler
        self._pid = pid
        self._bound = bound
        self._namespaces: set[str] = set()
        self._awaited: dict[str, int] = {}
        self._collections: dict[tuple[str, str], tuple[str, bool]] = {}
        self._measuring: tuple[BindingTimes, float] | None = None
        self._ending = threading.Event()
        self._background: list[threading.Thread] = []
        self._errors: list[Exception] = []

    def run(self) -> None:
        """Run all operations; stop their background work after the last one.

        Raises:
            StalledError: Pods are not scheduled.
            ControlPlaneError: The server rejects an object.
            NoDevicesError: No node has devices for a claim.
        """
        steps: Mapping[str, Callable[[int, Operation], None]] = {
            "allocResourceClaims": self._allocate_claims,
            "barrier": self._barrier,
            "churn": self._churn,
            "createAny": self._create_any,
            "createNamespaces": self._create_namespaces,
            "createNodes": self._create_nodes,
            "createPodGroups": self._create_pod_groups,
            "createPods": self._create_pods,
            "createResourceClaims": self._create_any,
            "deletePods": self._delete_pods,
            "sleep": self._sleep,
            "startCollectingMetrics": self._start_measuring,
            "stopCollectingMetrics": self._stop_measuring,
            "updateAny": self._update_any,
        }
        try:
            for number, operation in enumerate(self._workload.operations):
                steps[operation.opcode](number, operation)
        finally:
            self._ending.set()
            for thread in self._background:
                thread.join(BACKGROUND_SECONDS)
        if self._errors:
            raise self._errors[0]

    def _create_nodes(self, number: int, operation: Operation) -> None:
        nodes = [*objects.named_nodes(operation, self._workload.folder, number)]
        create(self._access, (("/api/v1/nodes", node) for node in nodes))
        found = (objects.csi_node(operation, node["metadata"]["name"]) for node in nodes)
        create(self._access, (("/apis/storage.k8s.io/v1/csinodes", item) for item in found if item))

    def _create_namespaces(self, _number: int, operation: Operation) -> None:
        path = operation.fields.get("namespaceTemplatePath")
        (base,) = objects.rendered(self._workload.folder / path, None, 1) if path else ({},)
        for index in range(operation.count):
            metadata = {
                **(base.get("metadata") or {}),
                "name": f"{operation.fields['prefix']}-{index}",
            }
            self._need_namespace(metadata["name"], {**base, "metadata": metadata})

    def _create_pods(self, number: int, operation: Operation) -> None:
        fields = operation.fields
        namespace = fields.get("namespace") or f"namespace-{number}"
        self._need_namespace(namespace)
        volumes = [*objects.volumes(operation, self._workload.folder, namespace)]
        found = objects.pods(
            operation, self._workload.folder, self._workload.default_pod, self._scheduler
        )
        # What a template costs is paid before the measurement begins.
        pods = [objects.with_claim(pod, at) if volumes else pod for at, pod in enumerate(found)]
        if fields.get("collectMetrics"):
            self._begin([namespace], {})
        self._create_volumes(namespace, volumes)
        collection = f"/api/v1/namespaces/{namespace}/pods"
        if fields.get("steadyState"):
            self._keep_busy(collection, namespace, pods, fields["duration"])
        else:
            create(self._access, ((collection, pod) for pod in pods))
        if fields.get("skipWaitToCompletion"):
            self._awaited[namespace] = self._awaited.get(namespace, 0) + operation.count
        elif not fields.get("steadyState"):
            self._wait_for_bound(namespace, operation.count, {})
        if fields.get("collectMetrics"):
            self._end()

    def _create_volumes(self, namespace: str, volumes: Sequence[tuple[Raw, Raw]]) -> None:
        """Create claims and volumes that are bound to each other."""
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        both = [
            (claims, [claim for claim, _ in volumes]),
            ("/api/v1/persistentvolumes", [volume for _, volume in volumes]),
        ]
        bound = {"status": {"phase": "Bound"}}
        for collection, items in both:
            create(self._access, ((collection, item) for item in items))
            names = [item["metadata"]["name"] for item in items]
            patch(self._access, ((f"{collection}/{name}/status", bound) for name in names))

    def _keep_busy(
        self, collection: str, namespace: str, pods: Sequence[Raw], seconds: float
    ) -> None:
        """Delete each bound pod and create another, for this number of seconds."""
        deadline = time.monotonic() + seconds
        queue = SimpleQueue[Raw]()

        def follower(metadata: Raw) -> None:
            if metadata["namespace"] == namespace:
                queue.put(metadata)

        self._bound.follow(follower)
        try:
            create(self._access, ((collection, pod) for pod in pods))
            with self._access.client() as client:
                while (left := deadline - time.monotonic()) > 0:
                    try:
                        name = queue.get(timeout=left)["name"]
                    except Empty:
                        return
                    _delete(client, f"{collection}/{name}", NO_GRACE)
                    client.post(collection, pods[0])
        finally:
            self._bound.unfollow(follower)

    def _create_any(self, _number: int, operation: Operation) -> None:
        create(self._access, self._rendered(operation))

    def _allocate_claims(self, _number: int, operation: Operation) -> None:
        namespace = operation.fields.get("namespace")
        path = f"namespaces/{namespace}/resourceclaims" if namespace else "resourceclaims"
        with self._access.client() as client:
            claims, slices, classes = (
                client.get(f"{DEVICES}/{listed}")["items"]
                for listed in (path, "resourceslices", "deviceclasses")
            )
            nodes = client.get("/api/v1/nodes")["items"]
        found = allocations(claims, slices, classes, nodes, chosen_release().minor)
        changes = [
            (_status_path(claim["metadata"]), {"status": {"allocation": allocation}})
            for claim, allocation in found
        ]
        patch(self._access, changes)

    def _create_pod_groups(self, _number: int, operation: Operation) -> None:
        """Create PodGroups of the served version, whatever the template says, as upstream does."""
        release = chosen_release()
        groups = ((path, release.versioned(group)) for path, group in self._rendered(operation))
        namespace = release.pod_groups(operation.fields["namespace"])
        create(self._access, ((namespace, group) for _, group in groups))

    def _update_any(self, _number: int, operation: Operation) -> None:
        """Replace the objects, and then the status of each."""
        per_second = operation.fields.get("updatePerSecond", 0)
        parts = operation.fields.get("subresources") or [""]
        with self._access.client() as client:
            for collection, item in self._rendered(operation):
                if per_second and self._ending.wait(1 / per_second):
                    return
                path = f"{collection}/{item['metadata']['name']}"
                client.put("/".join((path, *filter(None, parts))), item)
                client.put(f"{path}/status", item)

    def _rendered(self, operation: Operation) -> list[tuple[str, Raw]]:
        """Return the collection and the object of each index."""
        fields, namespace = operation.fields, operation.fields.get("namespace")
        if namespace:
            self._need_namespace(namespace)
        path, params = self._workload.folder / fields["templatePath"], fields.get("templateParams")
        found = (self._sent(item) for item in objects.rendered(path, params, operation.count))
        return [(self._collection(item, namespace), item) for item in found]

    def _sent(self, item: Raw) -> Raw:
        return objects.for_scheduler(item, self._scheduler) if item["kind"] == "Pod" else item

    def _churn(self, number: int, operation: Operation) -> None:
        fields = operation.fields
        namespace = fields.get("namespace") or f"namespace-{number}"
        self._need_namespace(namespace)
        found: list[tuple[str, Raw]] = []
        for path in fields["templatePaths"]:
            (item,) = map(self._sent, objects.rendered(self._workload.folder / path, None, 1))
            found.append((self._collection(item, namespace), item))
        seconds = fields.get("intervalMilliseconds", CHURN_MILLISECONDS) / 1e3
        limit = fields.get("number", 0)
        recreate = fields["mode"] == "recreate"
        self._beside(lambda: self._keep_churning(found, seconds, limit, recreate=recreate))

    def _keep_churning(
        self, found: Sequence[tuple[str, Raw]], seconds: float, limit: int, *, recreate: bool
    ) -> None:
        """Create objects of each kind again and again; `recreate`: also delete the older ones."""
        names: dict[tuple[int, str], str] = {}
        count = 0
        with self._access.client() as client:
            while not self._ending.wait(seconds):
                for collection, item in found:
                    key = (count % limit if recreate else count, collection)
                    if name := names.pop(key, ""):
                        _delete(client, f"{collection}/{name}")
                    else:
                        made = client.post(collection, item)["metadata"]["name"]
                        if recreate:
                            names[key] = made
                count += 1
                if not recreate and count == limit:
                    return

    def _delete_pods(self, _number: int, operation: Operation) -> None:
        fields = operation.fields
        collection = f"/api/v1/namespaces/{fields['namespace']}/pods"
        with self._access.client() as client:
            names = [
                pod["metadata"]["name"]
                for pod in client.get(collection)["items"]
                if has_labels(pod["metadata"], fields.get("labelSelector") or {})
            ]
        per_second = fields.get("deletePodsPerSecond", 0)

        def delete() -> None:
            with self._access.client() as client:
                for name in names:
                    if per_second and self._ending.wait(1 / per_second):
                        return
                    _delete(client, f"{collection}/{name}")

        if fields.get("skipWaitToCompletion"):
            self._beside(delete)
        else:
            delete()

    def _sleep(self, _number: int, operation: Operation) -> None:
        self._ending.wait(operation.fields["duration"])

    def _barrier(self, _number: int, operation: Operation) -> None:
        fields = operation.fields
        labels = fields.get("labelSelector") or {}
        attempted = fields.get("stageRequirement") == "Attempted"
        for namespace in fields.get("namespaces") or [*self._awaited]:
            if attempted:
                self._wait_for_attempts(namespace, self._awaited[namespace], labels)
            else:
                self._wait_for_bound(namespace, self._awaited.pop(namespace), labels)

    def _start_measuring(self, _number: int, operation: Operation) -> None:
        fields = operation.fields
        self._begin(fields["namespaces"], fields.get("labelSelector") or {})

    def _stop_measuring(self, _number: int, _operation: Operation) -> None:
        self._end()

    def _begin(self, namespaces: Collection[str], labels: Mapping[str, str]) -> None:
        cpu = usage_of(self._pid).cpu_seconds
        times = BindingTimes(frozenset(namespaces), labels)
        self._measuring = times, cpu
        self._bound.follow(times.note)

    def _end(self) -> None:
        if self._measuring is None:
            raise ControlPlaneError(f"{self._workload.name}: a measurement ends that began nowhere")
        (noted, cpu), self._measuring = self._measuring, None
        self._bound.unfollow(noted.note)
        used = usage_of(self._pid).cpu_seconds - cpu
        times = noted.times
        whole = times[-1] - noted.began if times else 0.0
        samples = tuple(rates(times, noted.began))
        self.measured.append(Throughput(len(times), samples, whole, used))

    def _need_namespace(self, name: str, described: Raw | None = None) -> None:
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        create(self._access, [("/api/v1/namespaces", described or {"metadata": {"name": name}})])

    def _collection(self, item: Raw, namespace: str | None) -> str:
        """Return the path of the object's collection, from the server's discovery."""
        version, kind = item["apiVersion"], item["kind"]
        if (version, kind) not in self._collections:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            with self._access.client() as client:
                resources = client.get(root)["resources"]
            for resource in resources:
                if resource["kind"] == kind and "/" not in resource["name"]:
                    found = f"{root}/{{}}{resource['name']}", bool(resource["namespaced"])
                    self._collections[version, kind] = found
                    break
            else:
                raise ControlPlaneError(f"{self._workload.name}: no {kind} of {version} is served")
        path, namespaced = self._collections[version, kind]
        return path.format(f"namespaces/{namespace}/" if namespaced else "")

    def _wait_for_bound(self, namespace: str, count: int, labels: Mapping[str, str]) -> None:
        self._wait(namespace, count, lambda: self._bound.count(namespace, labels), "scheduled")

    def _wait_for_attempts(self, namespace: str, count: int, labels: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"

        def attempted() -> int:
            with self._access.client() as client:
                pods = client.get(path)["items"]
            return sum(has_labels(pod["metadata"], labels) and _is_attempted(pod) for pod in pods)

        self._wait(namespace, count, attempted, "attempted", LIST_AGAIN)

    def _wait(
        self,
        namespace: str,
        count: int,
        so_far: Callable[[], int],
        what: str,
        seconds: float = LOOK_AGAIN,
    ) -> None:
        reached, changed_at = -1, time.monotonic()
        while (now := so_far()) < count:
            if self._errors:
                raise self._errors[0]
            if now != reached:
                reached, changed_at = now, time.monotonic()
            elif time.monotonic() - changed_at > STALL_SECONDS:
                raise StalledError(f"{now} of {count} pods in {namespace} are {what}, and no more")
            time.sleep(seconds)

    def _beside(self, work: Callable[[], None]) -> None:
        """Do the work on a thread of its own; `run` raises its error."""

        def guarded() -> None:
            try:
                work()
            except (ApiError, OSError) as error:
                self._errors.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        self._background.append(thread)
        thread.start()


def _status_path(claim: Raw) -> str:
    return f"{DEVICES}/namespaces/{claim['namespace']}/resourceclaims/{claim['name']}/status"


def _is_attempted(pod: Raw) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return "nodeName" in pod["spec"] or any(item["type"] == "PodScheduled" for item in conditions)


def _delete(client: Client, path: str, options: Raw | None = None) -> None:
    """Delete the object; do nothing if it does not exist."""
    try:
        client.request("DELETE", path, options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
