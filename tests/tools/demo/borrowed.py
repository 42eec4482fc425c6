"""Plays the demo in a user's own cluster, and changes little there.

The demo has its own namespace, nodes and SchedulingProfile. A thread does the kubelets' work for
these nodes and their pods.
"""

import http.client
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import replica
from controlplane import ApiError, ControlPlaneError
from controlplane.client import TIMEOUT, Client
from controlplane.kubelets import AT_ONCE, kubelets
from controlplane.nodes import CAPACITY, node_object
from controlplane.processes import ProcessGroup, Program
from demo.errors import DemoError
from demo.stage import (
    NODES,
    ZONES,
    Operator,
    Spawn,
    Stage,
    child_of,
    make_missing_pods,
    start_mooring,
    temporary_folder,
)
from policies import profile

Raw = dict[str, Any]

LABEL: Final = "scheduling.mooring.dev/demo"
CRD: Final = "schedulingprofiles.scheduling.mooring.dev"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROFILES: Final = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"

_LOOK_AGAIN: Final = 0.2
_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class _BorrowedStage:
    """The demo's namespace and nodes in a user's cluster; `name` is the name of all its objects."""

    name: str
    folder: Path
    kubeconfig: Path
    kubectl_program: Path
    make_client: Callable[[], Client]
    spawn: Spawn
    where: str
    kubelets: str = "the demo itself"
    has_pod_groups: bool = False
    made: list[str] = field(default_factory=list)
    """The paths of the objects outside of the namespace that the demo has created."""

    @property
    def namespace(self) -> str:
        """The namespace of the demo's pods."""
        return self.name

    @property
    def profile(self) -> str:
        """The SchedulingProfile of the demo's pods, and their schedulerName."""
        return self.name

    @property
    def options(self) -> tuple[str, ...]:
        """The options by which a command of Mooring finds this operator."""
        return (f"--lease-namespace={self.name}",)

    @property
    def command_kubeconfig(self) -> Path:
        """The kubeconfig for a command of Mooring."""
        return self.kubeconfig

    @property
    def pod_fields(self) -> Mapping[str, Any]:
        """Fields of a pod's spec that keep it on the demo's nodes."""
        return {
            "nodeSelector": {LABEL: self.name},
            "tolerations": [{"key": LABEL, "operator": "Exists"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }

    @property
    def title(self) -> str:
        """A description of the demo's objects and the cluster."""
        return f"the demo has a namespace {self.name} and {NODES} nodes at {self.where}"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def client(self) -> Client:
        """Return a JSON client with the rights of the kubeconfig."""
        return self.make_client()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return the output of kubectl, run with the rights of the kubeconfig."""
        return run_kubectl(self.kubectl_program, self.kubeconfig, *arguments, stdin=stdin)

    def nodes(self) -> list[Raw]:
        """Return the nodes that the demo has created."""
        with self.client() as client:
            found: list[Raw] = client.get(f"/api/v1/nodes?labelSelector={LABEL}%3D{self.name}")[
                "items"
            ]
        return found

    def prepare(self) -> Sequence[str]:
        """Create the CRD and the profile."""
        self.kubectl("apply", "-f", str(replica.ROOT / "crds" / "schedulingprofiles.yaml"))
        self.made.append(f"{CRDS}/{CRD}")
        self._wait_until_established()
        with self.client() as client:
            client.post(PROFILES, profile(self.profile, {"labels": {LABEL: self.name}}))
        self.made.append(f"{PROFILES}/{self.profile}")
        return (
            f"the CRD {CRD} is established, SchedulingProfile {self.profile} is applied",
            f"(if the demo is killed: kubectl delete ns,nodes,sprof -l {LABEL})",
        )

    def _wait_until_established(self) -> None:
        """Wait until profiles can be created; `kubectl wait` fails on a CRD without conditions."""
        deadline = time.monotonic() + _WAIT_SECONDS
        with self.client() as client:
            while not replica.is_established(client.get(f"{CRDS}/{CRD}")):
                if time.monotonic() > deadline:
                    raise DemoError(f"the CRD {CRD} was not established")
                time.sleep(_LOOK_AGAIN)

    def start_operator(self) -> Operator:
        """Start the operator with the kubeconfig's rights; wait until it mirrors the cluster."""
        options = (f"--lease-namespace={self.namespace}",)
        log, rights = self.logs / "mooring.log", "with the rights of the kubeconfig's user"
        return start_mooring(self.spawn, self.kubeconfig, log, *options, rights=rights)

    def run_pods(self, count: int) -> str:
        make_missing_pods(self, count)
        return "the demo itself"


@contextmanager
def borrowed_stage(kubeconfig: Path, kubectl: Path) -> Iterator[Stage]:
    """Yield the cluster of the kubeconfig's current context; remove the demo's objects at the end.

    Raises:
        DemoError: if Mooring is installed in the cluster: both would schedule the same pods.
    """
    name = f"mooring-demo-{secrets.token_hex(2)}"
    with (
        temporary_folder() as folder,
        # The path of a socket may have about 100 bytes, and TMPDIR may be long, as on macOS.
        TemporaryDirectory(prefix="mooring-", dir="/tmp") as short,
        ProcessGroup() as group,
    ):
        (folder / "logs").mkdir()
        proxy_socket = Path(short) / "proxy"
        _proxy(group, proxy_socket, folder / "logs" / "kubectl-proxy.log", kubeconfig, kubectl)
        stage = _BorrowedStage(
            name=name,
            folder=folder,
            kubeconfig=kubeconfig,
            kubectl_program=kubectl,
            make_client=lambda: Client(_SocketConnection(proxy_socket)),
            spawn=child_of(group),
            where=run_kubectl(kubectl, kubeconfig, "config", "current-context").strip(),
        )
        with stage.client() as client:
            names = [crd["metadata"]["name"] for crd in client.get(CRDS)["items"]]
        if CRD in names:
            raise DemoError(f"{stage.where} has the CRD {CRD}: Mooring is installed there already")
        with _on_loan(stage):
            yield stage


@contextmanager
def _on_loan(stage: _BorrowedStage) -> Iterator[None]:
    """Create the stage's namespace and nodes; remove them at the end."""
    own = {"selector": f"{LABEL}={stage.name}", "namespace": stage.name}
    with kubelets(stage.client, **own):
        try:
            _set_up(stage)
            yield
        finally:
            _sweep(stage)


def _set_up(stage: _BorrowedStage) -> None:
    metadata = {"name": stage.name, "labels": {LABEL: stage.name}}
    with stage.client() as client:
        client.post("/api/v1/namespaces", {"metadata": metadata})
        stage.made.append(f"/api/v1/namespaces/{stage.name}")
        for number in range(1, NODES + 1):
            zone = f"zone-{(number - 1) % ZONES + 1}"
            node = node_object(f"{stage.name}-{number:02}", zone, CAPACITY, {LABEL: stage.name})
            # Without it, the DaemonSets of the cluster leave the nodes alone.
            del node["metadata"]["labels"]["kubernetes.io/os"]
            node["spec"] = {"taints": [{"key": LABEL, "effect": "NoSchedule"}]}
            client.post("/api/v1/nodes", node)
            stage.made.append(f"/api/v1/nodes/{node['metadata']['name']}")


def _sweep(stage: _BorrowedStage) -> None:
    """Remove the objects of the demo, and wait until the namespace has gone."""
    deadline = time.monotonic() + _WAIT_SECONDS
    with stage.client() as client:
        with suppress(ApiError):
            client.request("DELETE", f"/api/v1/namespaces/{stage.name}/pods", dict(AT_ONCE))
        for path in reversed(stage.made):
            with suppress(ApiError):
                client.delete(path)
        while _exists(client, f"/api/v1/namespaces/{stage.name}"):
            if time.monotonic() > deadline:
                raise DemoError(f"the namespace {stage.name} is being deleted, and is still there")
            time.sleep(_LOOK_AGAIN)


def _exists(client: Client, path: str) -> bool:
    try:
        client.get(path)
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            return False
        raise
    return True


def _proxy(group: ProcessGroup, where: Path, log: Path, kubeconfig: Path, kubectl: Path) -> None:
    """Open a socket to the cluster with the user's rights; only this user can use it.

    `kubectl proxy` serves the socket, so every login of kubectl works.
    """
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", "proxy", f"--unix-socket={where}"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    program = group.spawn("kubectl proxy", command, log=log, env=environment)
    _wait_for_socket(program, where)


def _wait_for_socket(program: Program, where: Path) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not where.exists():
        program.wait(_LOOK_AGAIN)
        program.require_alive()
        if time.monotonic() > deadline:
            raise DemoError("kubectl proxy did not start")


class _SocketConnection(http.client.HTTPConnection):
    """A connection to the socket of `kubectl proxy`."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(str(self._path))


def run_kubectl(kubectl: Path, kubeconfig: Path, *arguments: str, stdin: str | None = None) -> str:
    """Return the output of kubectl; raise ControlPlaneError if it fails."""
    done = subprocess.run(
        [str(kubectl), f"--kubeconfig={kubeconfig}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
