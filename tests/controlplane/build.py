"""The programs of the control plane, compiled once and kept outside the tree.

They stand in `<cache>/controlplane/<key>/`, where the key hashes `go.mod`, `go.sum` and the
platform. A build happens beside that folder and is renamed into place, so whoever sees the folder
sees all programs whole; a lock lets a second builder wait for the first.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from controlplane.errors import ControlPlaneError, with_log
from controlplane.processes import ProcessGroup
from controlplane.progress import Progress
from controlplane.toolchain import find_go

HERE = Path(__file__).parent

PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
"""Program name and the Go package it is built from: the tool lines of `go.mod`."""


def cache_root() -> Path:
    """Where everything that outlives a run is kept: MOORING_CACHE, else ~/.cache/mooring."""
    chosen = os.environ.get("MOORING_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mooring"


def kubernetes_version(module: Path = HERE / "go.mod") -> str:
    """The Kubernetes release that `go.mod` requires, such as v1.36.3."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", module.read_text(), re.MULTILINE)
    if not match:
        raise ControlPlaneError(f"{module}: no version of k8s.io/kubernetes is required there")
    return match[1]


def programs_folder() -> Path:
    """The folder of the built programs; raises ControlPlaneError when they are not built."""
    folder = _target()
    if not folder.is_dir():
        raise ControlPlaneError("the control plane is not built: run `make controlplane`")
    return folder


def ensure_built(progress: Progress | None = None) -> Path:
    """The folder of the programs, built now if need be (about five minutes on two cores)."""
    progress = progress or Progress()
    target = _target()
    if target.is_dir():
        return target
    with _only_builder(target, progress):
        if not target.is_dir():
            go = find_go(cache_root(), progress)
            _build_all(go, target, progress)
    return target


def _target() -> Path:
    key = hashlib.sha256()
    for part in (HERE / "go.mod", HERE / "go.sum"):
        key.update(part.read_bytes())
    key.update(f"{platform.system()} {platform.machine()}".encode())
    return cache_root() / "controlplane" / key.hexdigest()[:16]


@contextlib.contextmanager
def _only_builder(target: Path, progress: Progress) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("control plane: waiting for another build of it to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(go: Path, target: Path, progress: Progress) -> None:
    partial, log = target.with_suffix(".partial"), target.with_suffix(".log")
    partial.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    version = kubernetes_version()
    progress.say(f"control plane: building {version} once, about 5 minutes; log: {log}")
    with ProcessGroup() as group:
        for number, (name, package) in enumerate(PROGRAMS.items(), start=1):
            progress.begin(f"control plane: building {name} ({number} of {len(PROGRAMS)})")
            command = [str(go), "build", *_flags(), "-o", str(partial / name), package]
            build = group.spawn(name, command, log=log, env=_environment(), cwd=HERE)
            while build.wait(1.0) is None:
                progress.tick()
            if build.exit_code:
                progress.end("failed")
                raise with_log(f"control plane: building {name} failed", log)
            progress.end()
    partial.rename(target)


def _flags() -> list[str]:
    version = kubernetes_version()
    _, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    package = "k8s.io/component-base/version"
    stamped = " ".join(f"-X {package}.{field}={value}" for field, value in stamps.items())
    return ["-trimpath", "-buildvcs=false", f"-ldflags=-s -w {stamped}"]


def _environment() -> dict[str, str]:
    # GOTOOLCHAIN: the Go that was found is the Go that is used, nothing is fetched in its place.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
