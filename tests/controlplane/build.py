"""Programs of a Go module, such as those of the control plane, compiled once.

They are kept outside the tree in `<cache>/<name>/<key>/`, where the key hashes the module's files
and the platform. A build happens beside that folder and is renamed into place, so that the folder
always has all programs whole; a lock lets a second builder wait for the first.
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


@dataclass(frozen=True)
class GoModule:
    """A folder with `go.mod` and `go.sum`, and the programs that are built there.

    `name` is that of its folder in the cache. `programs` has the package of each program by its
    name. `title` and `about` say in the progress what is built, and how long that takes.
    """

    name: str
    folder: Path
    programs: Mapping[str, str]
    title: str
    about: str

    @property
    def files(self) -> list[Path]:
        """The files that decide what is built."""
        sources = sorted(self.folder.glob("*.go"))
        return [self.folder / "go.mod", self.folder / "go.sum", *sources]


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


CONTROL_PLANE = GoModule(
    "controlplane",
    HERE,
    PROGRAMS,
    "control plane",
    f"{kubernetes_version()} once, about 5 minutes",
)


def programs_folder() -> Path:
    """The folder of the control plane's programs; ControlPlaneError when they are not built."""
    folder = _target(CONTROL_PLANE)
    if not folder.is_dir():
        raise ControlPlaneError("the control plane is not built: run `make controlplane`")
    return folder


def ensure_built(progress: Progress | None = None, module: GoModule = CONTROL_PLANE) -> Path:
    """The folder of the module's programs, built now if need be."""
    progress = progress or Progress()
    target = _target(module)
    if target.is_dir():
        return target
    with _only_builder(target, progress):
        if not target.is_dir():
            go = find_go(cache_root(), progress)
            _build_all(go, module, target, progress)
    return target


def _target(module: GoModule) -> Path:
    key = hashlib.sha256()
    for part in module.files:
        key.update(part.read_bytes())
    key.update(f"{platform.system()} {platform.machine()}".encode())
    return cache_root() / module.name / key.hexdigest()[:16]


@contextlib.contextmanager
def _only_builder(target: Path, progress: Progress) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("waiting for another build of the same programs to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(go: Path, module: GoModule, target: Path, progress: Progress) -> None:
    partial, log = target.with_suffix(".partial"), target.with_suffix(".log")
    partial.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    title = module.title
    progress.say(f"{title}: building {module.about}; log: {log}")
    with ProcessGroup() as group:
        for number, (name, package) in enumerate(module.programs.items(), start=1):
            progress.begin(f"{title}: building {name} ({number} of {len(module.programs)})")
            command = [str(go), "build", *_flags(), "-o", str(partial / name), package]
            build = group.spawn(name, command, log=log, env=_environment(), cwd=module.folder)
            while build.wait(1.0) is None:
                progress.tick()
            if build.exit_code:
                progress.end("failed")
                raise with_log(f"{title}: building {name} failed", log)
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
