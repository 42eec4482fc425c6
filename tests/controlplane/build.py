"""The programs of the control plane, and tools for tests, compiled once and kept outside the tree.

Those of a Go module stand in `<cache>/<module>/<key>/`, where the key hashes the module's files and
the platform. A build happens beside that folder and is renamed into place, so that a folder that is
there has all programs; a lock lets a second builder wait for the first.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

TOOLS = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
}
"""The same of `tools/go.mod`."""


@dataclass(frozen=True)
class GoModule:
    """A Go module and the programs of its tool lines; `target` is the goal of make."""

    name: str
    folder: Path
    programs: Mapping[str, str]
    target: str
    about: str
    """What is built, and how long that takes."""
    flags: tuple[str, ...]
    """Options of `go build`."""


_FLAGS = ("-trimpath", "-buildvcs=false")


def cache_root() -> Path:
    """Return where what outlives a run is kept: MOORING_CACHE, else ~/.cache/mooring."""
    chosen = os.environ.get("MOORING_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mooring"


def kubernetes_version(module: Path = HERE / "go.mod") -> str:
    """Return the Kubernetes release that `go.mod` requires, such as v1.36.3."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", module.read_text(), re.MULTILINE)
    if not match:
        raise ControlPlaneError(f"{module}: no version of k8s.io/kubernetes is required there")
    return match[1]


def _version_stamps() -> str:
    version = kubernetes_version()
    _, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    package = "k8s.io/component-base/version"
    return " ".join(f"-X {package}.{field}={value}" for field, value in stamps.items())


CONTROL_PLANE = GoModule(
    "controlplane",
    HERE,
    PROGRAMS,
    target="controlplane",
    about=f"Kubernetes {kubernetes_version()}, about 5 minutes",
    flags=(*_FLAGS, f"-ldflags=-s -w {_version_stamps()}"),
)
TOOLS_MODULE = GoModule(
    "tools",
    HERE / "tools",
    TOOLS,
    target="tools",
    about="promtool and helm, about 5 minutes",
    # Rules are evaluated without the clients of every cloud's service discovery.
    flags=(*_FLAGS, "-ldflags=-s -w", "-tags=remove_all_sd"),
)


def programs_folder(module: GoModule = CONTROL_PLANE) -> Path:
    """Return the folder of the built programs; raises ControlPlaneError when they are not built."""
    folder = _target(module)
    if not folder.is_dir():
        raise ControlPlaneError(f"{module.name} is not built: run `make {module.target}`")
    return folder


def ensure_built(progress: Progress | None = None, module: GoModule = CONTROL_PLANE) -> Path:
    """Return the folder of the programs, built now if need be (about five minutes on two cores)."""
    progress = progress or Progress()
    target = _target(module)
    if target.is_dir():
        return target
    with _only_builder(target, module, progress):
        if not target.is_dir():
            go = find_go(cache_root(), progress)
            _build_all(go, target, module, progress)
    return target


def _target(module: GoModule) -> Path:
    key = hashlib.sha256()
    sources = sorted(module.folder.glob("*.go"))
    for part in (module.folder / "go.mod", module.folder / "go.sum", *sources):
        key.update(part.read_bytes())
    key.update(f"{platform.system()} {platform.machine()}".encode())
    return cache_root() / module.name / key.hexdigest()[:16]


@contextlib.contextmanager
def _only_builder(target: Path, module: GoModule, progress: Progress) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"{module.name}: waiting for another build of it to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(go: Path, target: Path, module: GoModule, progress: Progress) -> None:
    partial, log = target.with_suffix(".partial"), target.with_suffix(".log")
    partial.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    progress.say(f"{module.name}: building {module.about}, once; log: {log}")
    with ProcessGroup() as group:
        for number, (name, package) in enumerate(module.programs.items(), start=1):
            progress.begin(f"{module.name}: building {name} ({number} of {len(module.programs)})")
            command = [str(go), "build", *module.flags, "-o", str(partial / name), package]
            build = group.spawn(name, command, log=log, env=_environment(), cwd=module.folder)
            while build.wait(1.0) is None:
                progress.tick()
            if build.exit_code:
                progress.end("failed")
                raise with_log(f"{module.name}: building {name} failed", log)
            progress.end()
    partial.rename(target)


def _environment() -> dict[str, str]:
    # GOTOOLCHAIN: the Go that was found is the Go that is used, nothing is fetched in its place.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
