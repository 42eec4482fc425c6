"""Where the demo plays: a control plane and an operator, swept away after it or kept."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import replica
from controlplane import Access, ControlPlane, background
from controlplane.background import Options
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, Program, free_ports
from demo.errors import DemoError

__all__ = ["KEPT_NAME", "NODES", "ZONES", "Operator", "Stage", "kept_stage", "temporary_stage"]

NODES = 20
ZONES = 3
KEPT_NAME = "demo"
"""The name under which `python -m controlplane` knows a control plane that is kept."""

Spawn = Callable[[Sequence[str], Path], Program]


@dataclass(frozen=True)
class Operator:
    """The running operator."""

    program: Program
    secure_port: int
    kubeconfig: Path

    @property
    def url(self) -> str:
        """Where its health, metrics and debug endpoints are."""
        return f"https://127.0.0.1:{self.secure_port}"


@dataclass(frozen=True)
class Stage:
    """A control plane with nodes, and the means to start an operator beside it."""

    access: Access
    spawn: Spawn
    programs: tuple[str, ...]
    """What runs, by program name."""

    @property
    def logs(self) -> Path:
        """The folder of the logs of all programs."""
        return self.access.folder / "logs"

    def start_operator(self) -> Operator:
        """The operator mirrors the cluster, as its own service account and nothing more."""
        kubeconfig = self.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        (port,) = free_ports(1)
        program = self.spawn(replica.command(kubeconfig, port), self.logs / "mooring.log")
        replica.wait_until_ready(program, port)
        return Operator(program, port, kubeconfig)


@contextmanager
def temporary_stage() -> Iterator[Stage]:
    """A stage that leaves nothing running; after a failure its logs stay."""
    folder = Path(tempfile.mkdtemp(prefix="mooring-demo-"))
    failed = False
    try:
        with ControlPlane({"kube-controller-manager", "kwok"}, data_dir=folder) as plane:
            create_nodes(plane.access, NODES, zones=ZONES)
            with ProcessGroup() as group:
                yield Stage(plane.access, _child_of(group), tuple(plane.pids))
    except Exception:
        failed = True
        raise
    finally:
        _sweep(folder, but_logs=failed)


@contextmanager
def kept_stage() -> Iterator[Stage]:
    """A stage that goes on after the demo, also after a failed one; Ctrl-C sweeps it away."""
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
        yield Stage(access, spawn, tuple(running.pids) if running else ())
    except KeyboardInterrupt:
        for program in started:
            program.stop()
        background.down(KEPT_NAME)
        raise


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


def _child_of(group: ProcessGroup) -> Spawn:
    return lambda command, log: group.spawn("mooring", command, log=log, env=replica.environment())
