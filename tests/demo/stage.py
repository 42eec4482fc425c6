"""Where the demo plays: a control plane of its own, swept away after it or kept."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import replica
from controlplane import Access, ControlPlane, background
from controlplane.background import Options
from controlplane.build import kubernetes_version
from controlplane.client import Client
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, Program, free_ports
from demo.errors import DemoError

__all__ = [
    "KEPT_NAME",
    "NODES",
    "ZONES",
    "Operator",
    "OwnStage",
    "Spawn",
    "Stage",
    "child_of",
    "envtest_programs",
    "kept_stage",
    "start_mooring",
    "temporary_folder",
    "temporary_stage",
]

NODES: Final = 20
ZONES: Final = 3
KEPT_NAME: Final = "demo"
"""The name under which `python -m controlplane` knows a control plane that is kept."""
DEPLOYMENT: Final = Path(__file__).with_name("deployment.yaml")

Spawn = Callable[[Sequence[str], Path], Program]


@dataclass(frozen=True)
class Operator:
    """The running operator."""

    program: Program
    secure_port: int
    kubeconfig: Path
    rights: str
    """As whom it runs."""

    @property
    def url(self) -> str:
        """Where its health, metrics and debug endpoints are."""
        return f"https://127.0.0.1:{self.secure_port}"


class Stage(Protocol):
    """A cluster with nodes, and the means to start an operator beside it and to run pods."""

    @property
    def namespace(self) -> str:
        """Of the pods that the demo runs."""

    @property
    def profile(self) -> str:
        """The SchedulingProfile by which they are scheduled, and their schedulerName."""

    @property
    def kubelets(self) -> str:
        """What stands in for the kubelets of the nodes."""

    @property
    def title(self) -> str:
        """What runs, and where."""

    @property
    def logs(self) -> Path:
        """The folder of the logs of all programs."""

    def client(self) -> Client:
        """Return a JSON client with every right that the demo needs."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what kubectl prints."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that the demo may use."""

    def prepare(self) -> Sequence[str]:
        """Make ready what Mooring needs; return lines that say what was done."""

    def start_operator(self) -> Operator:
        """Start the operator; wait until it mirrors the cluster."""

    def run_pods(self, count: int) -> str:
        """Make the missing pods, so that there are so many; return who makes them."""


def start_mooring(
    spawn: Spawn, kubeconfig: Path, log: Path, *options: str, rights: str
) -> Operator:
    """Start the operator with this kubeconfig's rights; wait until it mirrors the cluster."""
    (port,) = free_ports(1)
    program = spawn(replica.command(kubeconfig, port, *options), log)
    replica.wait_until_ready(program, port)
    return Operator(program, port, kubeconfig, rights)


@dataclass(frozen=True)
class OwnStage:
    """A control plane of the demo's own with nodes, on which the demo has every right."""

    access: Access
    spawn: Spawn
    programs: tuple[str, ...]
    """What runs, by program name."""
    namespace: str = "default"
    profile: str = "mooring"
    kubelets: str = "kwok"

    @property
    def title(self) -> str:
        """The programs that run, and the URL of the API server."""
        return f"{', '.join(self.programs)} run at {self.access.url}"

    @property
    def logs(self) -> Path:
        """The folder of the logs of all programs."""
        return self.access.folder / "logs"

    def client(self) -> Client:
        """Return a client of the administrator."""
        return self.access.client()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what kubectl prints for the administrator."""
        return self.access.kubectl(*arguments, stdin=stdin)

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""
        with self.client() as client:
            found: list[dict[str, Any]] = client.get("/api/v1/nodes")["items"]
        return found

    def prepare(self) -> Sequence[str]:
        """Apply crds/ and manifests/."""
        replica.apply_manifests(self.access)
        return (
            "crds/ are established, manifests/ are applied",
            "(but for Mooring's own Deployment: nothing here runs containers)",
        )

    def start_operator(self) -> Operator:
        """Start the operator as only its own service account; wait until it mirrors the cluster."""
        kubeconfig = self.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        rights = f"as the service account {'/'.join(replica.SERVICE_ACCOUNT)}"
        rights = f"{rights}, with the shipped RBAC only"
        return start_mooring(self.spawn, kubeconfig, self.logs / "mooring.log", rights=rights)

    def run_pods(self, count: int) -> str:
        """Give a Deployment so many replicas."""
        self.kubectl("apply", "-f", str(DEPLOYMENT))
        self.kubectl("scale", "deployment/web", f"--replicas={count}")
        return "a Deployment"


@contextmanager
def temporary_stage() -> Iterator[Stage]:
    """Yield a stage that leaves nothing running; after a failure its logs stay."""
    with (
        temporary_folder() as folder,
        ControlPlane({"kube-controller-manager", "kwok"}, data_dir=folder) as plane,
        ProcessGroup() as group,
    ):
        create_nodes(plane.access, NODES, zones=ZONES)
        yield OwnStage(plane.access, child_of(group), tuple(plane.pids))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder that is removed in the end; after a failure its subfolder `logs` stays."""
    folder = Path(tempfile.mkdtemp(prefix="mooring-demo-"))
    failed = False
    try:
        yield folder
    except Exception:
        failed = True
        raise
    finally:
        _sweep(folder, but_logs=failed)


@contextmanager
def kept_stage() -> Iterator[Stage]:
    """Yield a stage that goes on after the demo, even if the demo fails; Ctrl-C removes it."""
    options = Options(kwok_nodes=NODES, zones=ZONES, controller_manager=True)
    if background.status(KEPT_NAME):
        raise DemoError("a demo is still up; stop it first, as it said at its end")
    access = background.up(KEPT_NAME, options)
    running = background.status(KEPT_NAME)
    started: list[Program] = []

    def spawn(command: Sequence[str], log: Path) -> Program:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=replica.environment(),
                start_new_session=True,
            )
        started.append(Program("mooring", process, log))
        return started[-1]

    try:
        yield OwnStage(access, spawn, tuple(running.pids) if running else ())
    except KeyboardInterrupt:
        for program in started:
            program.stop()
        background.down(KEPT_NAME)
        raise


def envtest_programs() -> Path | None:
    """Return the folder of envtest's programs (KUBEBUILDER_ASSETS); None if it is not set.

    Raises:
        DemoError: if the folder lacks a program, or has another minor version of Kubernetes.
    """
    chosen = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not chosen:
        return None
    folder = Path(chosen)
    for name in ("etcd", "kube-apiserver", "kubectl"):
        if not os.access(folder / name, os.X_OK):
            raise DemoError(f"KUBEBUILDER_ASSETS: {folder} has no program {name}; unset it")
    command = [str(folder / "kube-apiserver"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    wanted = kubernetes_version().rpartition(".")[0]
    found = re.search(r"v\d+\.\d+", said)
    if found is None or found[0] != wanted:
        text = f"KUBEBUILDER_ASSETS: {folder} has {said or 'an unknown version'}"
        raise DemoError(f"{text}, and Mooring is tested with {wanted}; unset it")
    return folder.resolve()


def child_of(group: ProcessGroup) -> Spawn:
    """Return a function that starts programs that end with the group."""
    return lambda command, log: group.spawn("mooring", command, log=log, env=replica.environment())


def _sweep(folder: Path, *, but_logs: bool) -> None:
    for entry in folder.iterdir():
        if entry.name == "logs" and but_logs:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
    if not but_logs:
        folder.rmdir()
