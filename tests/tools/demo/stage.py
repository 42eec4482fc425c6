"""The place of the demo: a control plane of its own, which is removed or kept afterwards."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import replica
from controlplane import Access, ControlPlane, background
from controlplane.background import Options
from controlplane.client import Client
from controlplane.commands import Component
from controlplane.kubelets import kubelets
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, Program, free_ports
from demo.errors import DemoError

NODES: Final = 20
ZONES: Final = 3
KEPT_NAME: Final = "demo"
"""The name of a kept control plane for `python -m controlplane`."""
DEPLOYMENT: Final = Path(__file__).with_name("deployment.yaml")
PIDS: Final = "programs-of-the-demo"
"""The name of the file with the process ids of the programs beside a kept control plane."""
PAGE_SECONDS: Final = 30.0
LOOK_AGAIN: Final = 0.1

Spawn = Callable[[Sequence[str], Path], Program]


@dataclass(frozen=True)
class Operator:
    """A running operator: its program, its user and its endpoints."""

    program: Program
    secure_port: int
    kubeconfig: Path
    rights: str
    """A description of the operator's user."""

    @property
    def url(self) -> str:
        """The URL of the health, metrics and debug endpoints."""
        return f"https://127.0.0.1:{self.secure_port}"


class Stage(Protocol):
    """A cluster with nodes where the demo can run an operator and pods."""

    @property
    def namespace(self) -> str:
        """The namespace of the demo's pods."""

    @property
    def profile(self) -> str:
        """The SchedulingProfile of the demo's pods, and their schedulerName."""

    @property
    def kubelets(self) -> str:
        """A description of what replaces the kubelets."""

    @property
    def title(self) -> str:
        """A description of the cluster and its programs."""

    @property
    def logs(self) -> Path:
        """The folder with the logs of all programs."""

    def client(self) -> Client:
        """Return a JSON client with every right that the demo needs."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return the output of kubectl."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that the demo may use."""

    def prepare(self) -> Sequence[str]:
        """Create the objects that Mooring needs; return lines about them."""

    def start_operator(self) -> Operator:
        """Start the operator; wait until it mirrors the cluster."""

    @property
    def spawn(self) -> Spawn:
        """The function that starts programs beside the operator."""

    @property
    def options(self) -> Sequence[str]:
        """The options by which a command of Mooring finds this operator and these pods."""

    @property
    def command_kubeconfig(self) -> Path:
        """The kubeconfig for a command of Mooring."""

    @property
    def pod_fields(self) -> Mapping[str, Any]:
        """Fields of a pod's spec that keep it on the demo's nodes."""

    @property
    def has_pod_groups(self) -> bool:
        """Whether the API server serves PodGroups."""

    def run_pods(self, count: int) -> str:
        """Create pods until there are `count` of them; return a description of who creates them."""


def start_mooring(
    spawn: Spawn, kubeconfig: Path, log: Path, *options: str, rights: str
) -> Operator:
    """Start the operator with this kubeconfig; wait until it mirrors the cluster."""
    (port,) = free_ports(1)
    program = spawn(replica.command(kubeconfig, port, *options), log)
    replica.wait_until_ready(program, port)
    return Operator(program, port, kubeconfig, rights)


@dataclass(frozen=True)
class OwnStage:
    """A control plane with nodes only for the demo, which has every right there."""

    access: Access
    spawn: Spawn
    programs: tuple[str, ...]
    """The names of the running programs."""
    namespace: str = "default"
    profile: str = "mooring"
    options: tuple[str, ...] = ()
    pod_fields: Mapping[str, Any] = field(default_factory=dict)
    has_pod_groups: bool = True

    @property
    def command_kubeconfig(self) -> Path:
        """The kubeconfig for a command of Mooring."""
        return self.access.admin_kubeconfig

    @property
    def kubelets(self) -> str:
        """A description of what replaces the kubelets."""
        return "kwok" if "kwok" in self.programs else "the demo itself"

    @property
    def title(self) -> str:
        """The running programs and the URL of the API server, as one line."""
        return f"{', '.join(self.programs)} run at {self.access.url}"

    @property
    def logs(self) -> Path:
        return self.access.folder / "logs"

    def client(self) -> Client:
        return self.access.client()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return the output of kubectl, run as the administrator."""
        return self.access.kubectl(*arguments, stdin=stdin)

    def nodes(self) -> list[dict[str, Any]]:
        with self.client() as client:
            found: list[dict[str, Any]] = client.get("/api/v1/nodes")["items"]
        return found

    def prepare(self) -> Sequence[str]:
        replica.apply_manifests(self.access)
        return (
            "crds/ are established, manifests/ are applied",
            "(but for Mooring's own Deployment: nothing here runs containers)",
        )

    def start_operator(self) -> Operator:
        """Start the operator as its service account; wait until it mirrors the cluster."""
        kubeconfig = self.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        rights = f"as the service account {'/'.join(replica.SERVICE_ACCOUNT)}"
        rights = f"{rights}, with the shipped RBAC only"
        return start_mooring(self.spawn, kubeconfig, self.logs / "mooring.log", rights=rights)

    def run_pods(self, count: int) -> str:
        """Scale a Deployment to `count` pods; without a controller, create the missing pods."""
        if "kube-controller-manager" in self.programs:
            self.kubectl("apply", "-f", str(DEPLOYMENT))
            self.kubectl("scale", "deployment/web", f"--replicas={count}")
            return "a Deployment"
        make_missing_pods(self, count)
        return "the demo itself"


def make_missing_pods(stage: Stage, count: int) -> None:
    """Create pods that request a sixteenth of a node each, until there are `count` pods."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    with stage.client() as client:
        for number in range(len(client.get(path)["items"]), count):
            client.post(path, pod_of(stage, f"web-{number:02}", {"app": "web"}, "250m", "2Gi"))


def pod_of(
    stage: Stage, name: str, labels: Mapping[str, str], cpu: str, memory: str
) -> dict[str, Any]:
    """Return a pod with these requests for the stage's nodes and operator."""
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    spec = {"schedulerName": stage.profile, "containers": [container], **stage.pod_fields}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": stage.namespace, "labels": dict(labels)},
        "spec": spec,
    }


def mooring(stage: Stage, *words: str) -> str:
    """Return the output of a command of Mooring in 80 columns; raise DemoError if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "mooring", *words, *stage.options],
        env={
            **replica.environment(),
            "KUBECONFIG": str(stage.command_kubeconfig),
            "COLUMNS": "80",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"mooring {' '.join(words)}: {done.stderr.strip() or done.stdout}")
    return done.stdout


def open_page(stage: Stage) -> tuple[Program, str]:
    """Start `mooring ui`; return the program and the URL of the page."""
    command = [sys.executable, "-m", "mooring", "ui", "--no-browser", *stage.options]
    log = stage.logs / "ui.log"
    program = stage.spawn([*command, f"--kubeconfig={stage.command_kubeconfig}"], log)
    deadline = time.monotonic() + PAGE_SECONDS
    while not (found := re.search(r"the page is at (\S+)\n", log.read_text())):
        program.wait(LOOK_AGAIN)
        program.require_alive()
        if time.monotonic() > deadline:
            raise DemoError(f"the page was not served within {PAGE_SECONDS:.0f} s; log: {log}")
    return program, found[1]


@contextmanager
def temporary_stage(programs: Path | None) -> Iterator[Stage]:
    """Yield a stage whose programs end with the context; after a failure its logs stay.

    `programs` is a folder of etcd, kube-apiserver and kubectl; None: all programs were built.
    """
    components: set[Component] = set() if programs else {"kube-controller-manager", "kwok"}
    with (
        temporary_folder() as folder,
        ControlPlane(components, data_dir=folder, programs=programs) as plane,
        kubelets(plane.access.client) if programs else nullcontext(),
        ProcessGroup() as group,
    ):
        create_nodes(plane.access, NODES, zones=ZONES)
        yield OwnStage(plane.access, child_of(group), tuple(plane.pids))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, and remove it at the end; after a failure its subfolder `logs` stays."""
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
def kept_stage(programs: Path | None) -> Iterator[Stage]:
    """Yield a stage that keeps running after the demo, even a failed one; Ctrl-C removes it.

    `programs` is a folder of etcd, kube-apiserver and kubectl; None: all programs were built.
    """
    options = Options(
        kwok_nodes=NODES, zones=ZONES, controller_manager=programs is None, programs=programs
    )
    if background.status(KEPT_NAME):
        raise DemoError("a demo is still up; stop it with: make demo-down")
    access = background.up(KEPT_NAME, options)
    running = background.status(KEPT_NAME)
    started: list[Program] = []
    # In a folder that goes with the control plane, so that it never names programs of another demo.
    pids = access.folder / PIDS

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
        pids.write_text("".join(f"{program.pid}\n" for program in started))
        return started[-1]

    try:
        yield OwnStage(access, spawn, tuple(running.pids) if running else ())
    except KeyboardInterrupt:
        for program in started:
            program.stop()
        background.down(KEPT_NAME)
        raise


def stop_kept() -> bool:
    """Stop the kept demo: Mooring, page and control plane; return False if there is none."""
    running = background.status(KEPT_NAME)
    if running is None:
        return False
    with suppress(FileNotFoundError):
        pids = (running.access.folder / PIDS).read_text() if running.access else ""
        for pid in map(int, pids.split()):
            if _is_mooring(pid):
                os.kill(pid, signal.SIGTERM)
    background.down(KEPT_NAME)
    return True


def _is_mooring(pid: int) -> bool:
    """Return whether the process is Mooring: the id of an ended process may be used again."""
    command = ["ps", "-o", "args=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return " -m mooring " in found.stdout


def child_of(group: ProcessGroup) -> Spawn:
    """Return a function that starts programs as members of the group, which end with it."""
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
