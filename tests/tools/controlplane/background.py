"""Runs a control plane that survives the command that started it; its name finds it again.

A detached process, the holder, owns it and keeps a lock on `<cache>/running/<name>/lock` during its
life. The lock shows whether the name runs; a stale file could not.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from controlplane.access import Access
from controlplane.build import cache_root
from controlplane.cluster import ControlPlane
from controlplane.commands import Component
from controlplane.errors import ControlPlaneError
from controlplane.health import is_healthy
from controlplane.kubelets import kubelets
from controlplane.nodes import create_nodes

DEFAULT_NAME = "default"


@dataclass(frozen=True)
class Options:
    """The programs to run: with nodes, kwok or else this process replaces their kubelets.

    `programs` is the folder of the programs; None means the built ones.
    """

    kwok_nodes: int = 0
    zones: int = 1
    controller_manager: bool = False
    scheduler: bool = False
    programs: Path | None = None

    @property
    def components(self) -> set[Component]:
        """The programs to run besides etcd and kube-apiserver."""
        asked: dict[Component, bool] = {
            "kwok": self.kwok_nodes > 0 and self.programs is None,
            "kube-controller-manager": self.controller_manager,
            "kube-scheduler": self.scheduler,
        }
        return {name for name, wanted in asked.items() if wanted}

    def arguments(self) -> list[str]:
        """Return the options as arguments of `python -m controlplane up`."""
        arguments = [f"--kwok-nodes={self.kwok_nodes}", f"--zones={self.zones}"]
        if self.controller_manager:
            arguments.append("--controller-manager")
        if self.scheduler:
            arguments.append("--scheduler")
        if self.programs is not None:
            arguments.append(f"--programs={self.programs}")
        return arguments


@dataclass(frozen=True)
class Running:
    """The data about a running control plane; `access` is None while it starts."""

    name: str
    holder: int
    access: Access | None
    pids: dict[str, int]
    logs: dict[str, str]

    @property
    def healthy(self) -> bool:
        """Whether kube-apiserver reports that it is ready."""
        return self.access is not None and is_healthy(f"{self.access.url}/readyz")


def up(name: str = DEFAULT_NAME, options: Options | None = None) -> Access:
    """Run the control plane in the background until `down`; an interrupt stops all programs."""
    if _holder_of(name):
        raise _already_running(name)
    folder = _folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "controlplane", "up", "--foreground", f"--name={name}"]
    with (folder / "holder.log").open("wb") as output:
        holder = subprocess.Popen(
            [*command, *(options or Options()).arguments()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3])),
            },
            start_new_session=True,
        )
    try:
        access = _wait_until_usable(name, holder)
    except BaseException:
        holder.terminate()
        holder.wait()
        raise
    # Somebody must collect the holder's exit code, should this process live to see its end.
    threading.Thread(target=holder.wait, daemon=True).start()
    return access


def down(name: str = DEFAULT_NAME) -> None:
    """Stop the whole control plane; raise ControlPlaneError if none runs."""
    holder = _holder_of(name)
    if not holder:
        raise ControlPlaneError(f"no control plane named {name!r} is running")
    os.kill(holder, signal.SIGTERM)
    with (_folder(name) / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def status(name: str = DEFAULT_NAME) -> Running | None:
    """Return the control plane of this name; None if it does not run."""
    holder = _holder_of(name)
    if not holder:
        return None
    try:
        state = json.loads((_folder(name) / "state.json").read_text())
    except FileNotFoundError:
        return Running(name, holder, None, {}, {})
    access = Access(
        url=state["url"],
        folder=Path(state["folder"]),
        ca_file=Path(state["ca_file"]),
        kubectl_program=Path(state["kubectl_program"]),
        tokens=state["tokens"],
    )
    return Running(name, holder, access, state["pids"], state["logs"])


def running_names() -> list[str]:
    """Return the names of the control planes that run in the background."""
    folders = sorted((cache_root() / "running").glob("*/"))
    return [folder.name for folder in folders if _holder_of(folder.name)]


def hold(name: str, options: Options, ready: Callable[[Running], None]) -> None:
    """Run the control plane until SIGTERM or SIGINT; call `ready` once it is usable."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = _folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    data, state = folder / "data", folder / "state.json"
    with _held_lock(name):
        shutil.rmtree(data, ignore_errors=True)
        state.unlink(missing_ok=True)
        try:
            with (
                ControlPlane(
                    options.components, data_dir=data, programs=options.programs
                ) as control_plane,
                nullcontext()
                if options.programs is None
                else kubelets(control_plane.access.client),
            ):
                create_nodes(control_plane.access, options.kwok_nodes, zones=options.zones)
                _write_state(state, control_plane)
                if running := status(name):
                    ready(running)
                signal.pause()
        except KeyboardInterrupt:
            shutil.rmtree(data, ignore_errors=True)
        finally:
            state.unlink(missing_ok=True)


def _wait_until_usable(name: str, holder: "subprocess.Popen[bytes]") -> Access:
    while holder.poll() is None:
        running = status(name)
        if running and running.access:
            return running.access
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(0.1)
    raise ControlPlaneError(_holder_complaint(_folder(name) / "holder.log"))


def _holder_complaint(log: Path) -> str:
    said = log.read_text().strip().removeprefix("error: ")
    return said or f"the control plane ended while it started; log: {log}"


def _write_state(path: Path, control_plane: ControlPlane) -> None:
    access = control_plane.access
    state = {
        "url": access.url,
        "folder": str(access.folder),
        "ca_file": str(access.ca_file),
        "kubectl_program": str(access.kubectl_program),
        "tokens": dict(access.tokens),
        "pids": control_plane.pids,
        "logs": {program: str(log) for program, log in control_plane.logs.items()},
    }
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(state, indent=2) + "\n")
    partial.rename(path)


def _folder(name: str) -> Path:
    if not name.replace("-", "").isalnum():
        raise ControlPlaneError(f"name {name!r}: letters, digits and hyphens only")
    return cache_root() / "running" / name


def _already_running(name: str) -> ControlPlaneError:
    return ControlPlaneError(f"a control plane named {name!r} runs already: take it down first")


@contextlib.contextmanager
def _held_lock(name: str) -> Iterator[None]:
    with (_folder(name) / "lock").open("a+") as lock:
        while not _try_lock(lock, fcntl.LOCK_EX):
            # A shared lock is kept out by a holder, but not by whoever just looks for one.
            if not _try_lock(lock, fcntl.LOCK_SH):
                raise _already_running(name)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _holder_of(name: str) -> int | None:
    """Return the process id of the holder; None if nobody holds the lock."""
    try:
        with (_folder(name) / "lock").open() as lock:
            return None if _try_lock(lock, fcntl.LOCK_SH) else int(lock.read() or 0) or None
    except FileNotFoundError:
        return None


def _try_lock(lock: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
