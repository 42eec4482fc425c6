"""A cluster with Kueue and Mooring, and what a team in it has and does."""

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import replica
from controlplane import Access, ControlPlane
from controlplane.access import ADMIN
from controlplane.client import Client
from controlplane.commands import Component
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.processes import Program
from e2e.replicas import PROFILES, Replica, Replicas, bound, eventually, pods
from kueue.controller import controller
from policies import profile
from soak.workloads import install_plugin

Raw = dict[str, Any]

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
IMAGE: Final = "registry.example/c:1"
POOL: Final = "example.com/pool"
"""The label by which a team's flavor selects its nodes."""
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
GANG, MINIMUM = "example.com/gang", "example.com/minimum"
HELD: Final = "held"
"""A profile whose pods wait at Permit until they are deleted."""
USER: Final = "ann"

_HOLD: Final = """
from mooring.framework.verdicts import Wait

class Hold:
    name = "Hold"
    depends_on_node_only = True

    def __init__(self, args, handle): ...

    def permit(self, pod, node):
        return Wait(600.0)
"""


@dataclass(frozen=True)
class Cluster:
    """A control plane with kube-controller-manager, kwok for kubelets, Kueue, and Mooring.

    Mooring is the default scheduler. It takes Kueue's groups of pods for gangs.
    """

    access: Access
    kueue: Program
    scheduler: Replica

    @contextmanager
    def team(self) -> Iterator["Team"]:
        """Yield a new team."""
        with self.access.client() as client:
            yield Team(create_namespace(self.access, "team"), self, client)

    def explain(self, pod: str, user: str = ADMIN) -> str:
        """Return what `mooring explain` says of the pod to the user."""
        command = [sys.executable, "-m", "mooring", "explain", pod]
        where = f"--server={self.scheduler.url}"
        who = f"--kubeconfig={self.access.kubeconfig_for(user)}"
        done = subprocess.run(
            [*command, where, who, "--insecure-skip-tls-verify"],
            capture_output=True,
            text=True,
            check=False,
            env=replica.environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def running(
    folder: Path, flags: Mapping[str, Sequence[str]] | None = None, **fields: Any
) -> Iterator[Cluster]:
    """Yield a new cluster; logs are in the folder.

    Its programs have these flags, and Kueue's configuration these fields.
    """
    components: Collection[Component] = ("kube-controller-manager", "kwok")
    with ExitStack() as stack:
        plane = ControlPlane(components, flags=flags, users={USER: []})
        access = stack.enter_context(plane).access
        replica.apply_manifests(access)
        _put_profiles(access)
        replicas = stack.enter_context(Replicas.of(access, folder))
        scheduler = replicas.start(packages=install_plugin(folder / "packages", _HOLD))
        kueue = stack.enter_context(controller(access, folder / "kueue", **fields))
        scheduler.wait_until_leads()
        yield Cluster(access, kueue, scheduler)
        assert scheduler.terminate() == 0


def _put_profiles(access: Access) -> None:
    labels = [{"name": GROUP, "minimum": TOTAL}, {"name": GANG, "minimum": MINIMUM}]
    config = [{"name": "GangScheduling", "args": {"podGroupLabels": labels}}]
    held = {"permit": {"enabled": [{"name": "Hold"}]}}
    with access.client() as client:
        client.post(PROFILES, profile("default-scheduler", pluginConfig=config))
        client.post(PROFILES, profile(HELD, pluginConfig=config, plugins=held))


@dataclass(frozen=True)
class Team:
    """A namespace, with nodes, queues and jobs of its own."""

    name: str
    cluster: Cluster
    client: Client

    def add_nodes(self, count: int, *, cpu: str = "2", **labels: str) -> list[str]:
        """Add nodes of the team's flavor; return their names."""
        return create_nodes(
            self.cluster.access,
            count,
            prefix="-".join((self.name, *labels.values())),
            capacity={"cpu": cpu, "memory": "8Gi", "pods": "110"},
            labels={POOL: self.name, **{f"example.com/{key}": v for key, v in labels.items()}},
        )

    def add_topology(self, *levels: str) -> None:
        """Add the team's Topology, with these node labels from the widest domain down."""
        spec = {"levels": [{"nodeLabel": label} for label in levels]}
        self._create("Topology", self.name, spec)

    def add_flavor(self, **spec: Any) -> None:
        """Add the team's ResourceFlavor."""
        self._create("ResourceFlavor", self.name, {"nodeLabels": {POOL: self.name}, **spec})

    def add_queue(self, name: str, cpu: str, **spec: Any) -> None:
        """Add a LocalQueue, and for it a ClusterQueue with a quota of the team's flavor."""
        quota = [{"name": "cpu", "nominalQuota": cpu}]
        flavors = [{"name": self.name, "resources": quota}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        self._create("ClusterQueue", f"{self.name}-{name}", spec)
        self._create("LocalQueue", name, {"clusterQueue": f"{self.name}-{name}"})

    def add_job(
        self, name: str, queue: str, size: int, *, metadata: Raw | None = None, **spec: Any
    ) -> None:
        """Add a Job whose pods request a CPU each; `metadata` is that of its pods."""
        container = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": metadata or {},
            "spec": {"restartPolicy": "Never", "containers": [container], **spec.pop("pods", {})},
        }
        spec = {"completions": size, "parallelism": size, "template": template, **spec}
        raw = {"metadata": {"name": name, "labels": {QUEUE: queue}}, "spec": spec}
        self.client.post(self.jobs, raw)

    @property
    def jobs(self) -> str:
        """The path of the team's Jobs."""
        return f"/apis/batch/v1/namespaces/{self.name}/jobs"

    def job(self, name: str) -> Raw:
        """Return the Job of this name."""
        found: Raw = self.client.get(f"{self.jobs}/{name}")
        return found

    def nodes_of(self, job: str) -> list[str]:
        """Return the nodes of the Job's pods that are bound and go on."""
        return [
            raw["spec"]["nodeName"]
            for raw in pods(self.client, self.name).values()
            if raw["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job
            and "nodeName" in raw["spec"]
            and "deletionTimestamp" not in raw["metadata"]
        ]

    def wait_until_placed(self, job: str, size: int) -> list[str]:
        """Return the nodes of the Job's pods once so many are bound."""
        return eventually(lambda: self.nodes_of(job), lambda on: len(on) == size, f"{job} placed")

    def wait_until_suspended(self, job: str) -> None:
        """Wait until the Job is suspended and has no pods."""

        def is_left() -> tuple[bool, list[str]]:
            return self.job(job)["spec"].get("suspend", False), self.nodes_of(job)

        eventually(is_left, lambda found: found == (True, []), f"{job} suspended")

    def finish(self, job: str) -> None:
        """Have all pods of the Job succeed, and wait until the Job is complete."""

        def is_complete() -> bool:
            for name, raw in pods(self.client, self.name).items():
                labels, phase = raw["metadata"]["labels"], raw["status"]["phase"]
                if labels.get("batch.kubernetes.io/job-name") == job and phase == "Running":
                    self.succeed(name)
            conditions = self.job(job).get("status", {}).get("conditions") or ()
            return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

        eventually(is_complete, bool, f"{job} complete")

    def succeed(self, pod: str) -> None:
        """Have the pod's containers end well."""
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/status"
        self.client.patch(path, {"status": {"phase": "Succeeded"}})

    def set_active(self, workload: str, *, active: bool) -> None:
        """Activate the Workload whose name begins so, or deactivate it, which evicts it."""
        name = self.workload(workload)["metadata"]["name"]
        self.client.patch(f"{self._workloads}/{name}", {"spec": {"active": active}})

    def workload(self, begins: str) -> Raw:
        """Return the Workload whose name begins so; empty without one."""
        items: list[Raw] = self.client.get(self._workloads)["items"]
        return next((raw for raw in items if raw["metadata"]["name"].startswith(begins)), {})

    @property
    def _workloads(self) -> str:
        return f"/apis/{KUEUE}/namespaces/{self.name}/workloads"

    def condition(self, workload: str, kind: str) -> Raw:
        """Return the condition of the Workload whose name begins so; empty without one."""
        conditions = self.workload(workload).get("status", {}).get("conditions") or ()
        return next((dict(each) for each in conditions if each["type"] == kind), {})

    def wait_for_condition(self, workload: str, kind: str, holds: Callable[[Raw], object]) -> Raw:
        """Return the Workload's condition once it is as wanted."""
        return eventually(lambda: self.condition(workload, kind), holds, f"{workload}: {kind}")

    def bound(self) -> dict[str, str]:
        """Return the node of every bound pod, by the pod's name."""
        return bound(self.client, self.name)

    def create(self, raw: Raw) -> Raw:
        """Create the object, in the team's namespace if it has one, as `kubectl create` does."""
        created = self.cluster.access.kubectl(
            "create", f"--namespace={self.name}", "-o", "json", "-f", "-", stdin=json.dumps(raw)
        )
        found: Raw = json.loads(created)
        return found

    def _create(self, kind: str, name: str, spec: Raw) -> None:
        metadata = (
            {"name": name, "namespace": self.name} if kind == "LocalQueue" else {"name": name}
        )
        raw = {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
        replica.put(self.client, raw)
