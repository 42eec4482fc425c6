"""Compiles the programs of the control plane, and tools for tests, once, outside the tree.

The programs of a Go module are in `<cache>/<module>/<key>/`; the key is a hash of the module's
files and the platform. Programs are built beside that folder and renamed into it when complete; a
lock lets a second builder wait for the first. One `go build` builds all programs: it compiles
common packages once, and links one program while it compiles another.

Each release of Kubernetes has a module, and etcd and kwok, which all releases share, have another:
they are built once, and linked into the folder of each release.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import ControlPlaneError, with_log
from controlplane.processes import ProcessGroup
from controlplane.progress import Progress
from controlplane.releases import NEWEST, RELEASES, VARIABLE, Release, chosen_release
from controlplane.toolchain import find_go

HERE = Path(__file__).parent

SHARED_PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
"""The programs, with the Go package of each, from the tool lines of `go.mod`."""

KUBERNETES_PROGRAMS = {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
}
"""The programs of `versions/<minor>/go.mod`, with the Go package of each."""

SERVER_PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
"""The programs of a control plane without controllers; envtest's archives have them, too."""

TOOLS = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
}
"""The programs of `tools/go.mod`, with the Go package of each."""


@dataclass(frozen=True)
class GoModule:
    """A Go module and the programs of its tool lines; `make <target>` builds it."""

    name: str
    folder: Path
    programs: Mapping[str, str]
    """By program, its package, or the path of a Go file that is the whole program."""
    target: str
    about: str
    """A description of the build, with its duration."""
    flags: tuple[str, ...]
    beside: "GoModule | None" = None
    """A module with other programs, which are linked into the folder of this module."""
    go: str = "local"
    """The Go version for GOTOOLCHAIN; `local` means the Go that was found."""

    @property
    def all_programs(self) -> Collection[str]:
        """The names of all programs that its folder has after the build."""
        return (*self.programs, *self.linked_programs)

    @property
    def linked_programs(self) -> Collection[str]:
        """The names of the programs that the folder gets from the module `beside`."""
        beside = self.beside.all_programs if self.beside else ()
        return [name for name in beside if name not in self.programs]


_FLAGS = ("-trimpath", "-buildvcs=false")


def cache_root() -> Path:
    """Return the folder of the cache: $MOORING_CACHE, or ~/.cache/mooring."""
    chosen = os.environ.get("MOORING_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mooring"


def kubernetes_flags(version: str) -> tuple[str, ...]:
    """Return the options of `go build` that set the version which the programs report."""
    _, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    package = "k8s.io/component-base/version"
    stamped = " ".join(f"-X {package}.{field}={value}" for field, value in stamps.items())
    return (*_FLAGS, f"-ldflags=-s -w {stamped}")


def control_plane(release: Release | None = None) -> GoModule:
    """Return the module of a release's control plane; by default of the chosen release."""
    release = release or chosen_release()
    chosen = "" if release is NEWEST else f" {VARIABLE}={release.minor}"
    programs, beside = KUBERNETES_PROGRAMS, SHARED_MODULE
    if release.servers_of:
        programs = {"kube-scheduler": KUBERNETES_PROGRAMS["kube-scheduler"]}
        beside = control_plane(next(r for r in RELEASES if r.minor == release.servers_of))
    return GoModule(
        f"kubernetes-{release.minor}",
        release.folder,
        programs,
        target=f"controlplane{chosen}",
        about=f"Kubernetes {release.version}, some minutes",
        flags=kubernetes_flags(release.version),
        beside=beside,
        go=release.go,
    )


SHARED_MODULE = GoModule(
    "etcd-and-kwok",
    HERE,
    SHARED_PROGRAMS,
    target="controlplane",
    about="some minutes",
    flags=(*_FLAGS, "-ldflags=-s -w"),
)
TOOLS_MODULE = GoModule(
    "tools",
    HERE / "tools",
    TOOLS,
    target="tools",
    about="some minutes",
    # Rules are evaluated without the clients of every cloud's service discovery.
    flags=(*_FLAGS, "-ldflags=-s -w", "-tags=remove_all_sd"),
)


def programs_folder(
    module: GoModule | None = None, programs: Collection[str] | None = None
) -> Path:
    """Return the folder of the built programs; ControlPlaneError if a program is not built.

    By default, the module is the control plane of the chosen release.
    """
    module = module or control_plane()
    folder = _target(module)
    if _missing(folder, module.all_programs, programs):
        raise ControlPlaneError(f"{module.name} is not built: run `make {module.target}`")
    return folder


def built_releases(programs: Collection[str] | None = None) -> list[Release]:
    """Return the releases for which these programs are built, from the oldest to the newest.

    A release with the servers of another release is left out.
    """
    own = (release for release in RELEASES if not release.servers_of)
    modules = ((release, control_plane(release)) for release in own)
    return [
        release
        for release, module in modules
        if not _missing(_target(module), module.all_programs, programs)
    ]


def ensure_built(
    progress: Progress | None = None,
    module: GoModule | None = None,
    programs: Collection[str] | None = None,
) -> Path:
    """Return the folder of these programs (by default all); build the missing ones first.

    By default, the module is the control plane of the chosen release.
    """
    progress = progress or Progress()
    module = module or control_plane()
    target = _target(module)
    if not _missing(target, module.all_programs, programs):
        return target
    with only_one(target, module.name, progress):
        if missing := _missing(target, module.programs, programs):
            go = find_go(cache_root(), progress)
            packages = {name: module.programs[name] for name in missing}
            _build(go, target, module, packages, progress)
        beside = module.beside
        if beside and (missing := _missing(target, module.linked_programs, programs)):
            folder = ensure_built(progress, beside, missing)
            target.mkdir(exist_ok=True)
            for name in missing:
                (target / name).hardlink_to(folder / name)
    return target


def _missing(
    folder: Path, known: Collection[str], wanted: Collection[str] | None
) -> Collection[str]:
    """Return the wanted names (None: all known) without a program in the folder."""
    names = known if wanted is None else [name for name in known if name in wanted]
    return [name for name in names if not (folder / name).exists()]


def _target(module: GoModule) -> Path:
    key = hashlib.sha256()
    for source in _sources(module):
        key.update(source.read_bytes())
    key.update(f"{platform.system()} {platform.machine()}".encode())
    return cache_root() / module.name / key.hexdigest()[:16]


def _sources(module: GoModule) -> Iterator[Path]:
    """Yield the files from which the module's programs are built."""
    yield from (module.folder / "go.mod", module.folder / "go.sum")
    yield from sorted(module.folder.glob("*.go"))
    yield from (Path(package) for package in module.programs.values() if _is_file(package))
    if module.beside:
        yield from _sources(module.beside)


@contextlib.contextmanager
def only_one(target: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of a folder in the cache, so that only one process at a time fills it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"{what}: waiting for another build of it to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(
    go: Path, target: Path, module: GoModule, programs: Mapping[str, str], progress: Progress
) -> None:
    partial, log = target.with_suffix(".partial"), target.with_suffix(".log")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    log.unlink(missing_ok=True)
    waiting = {name: partial / _output_name(package) for name, package in programs.items()}
    progress.say(f"{module.name}: building {', '.join(programs)} ({module.about}); log: {log}")
    command = [str(go), "build", *module.flags, "-o", f"{partial}/", *programs.values()]
    progress.begin(f"{module.name}: building")
    with ProcessGroup() as group:
        build = group.spawn("go", command, log=log, env=_environment(module), cwd=module.folder)
        while build.wait(1.0) is None:
            _say_what_is_built(waiting, module, progress)
            progress.tick()
        if build.exit_code:
            progress.end("failed")
            raise with_log(f"{module.name}: building {', '.join(waiting)} failed", log)
    _say_what_is_built(waiting, module, progress)
    progress.end()
    target.mkdir(exist_ok=True)
    for name, package in programs.items():
        (partial / _output_name(package)).rename(target / name)
    partial.rmdir()


def _say_what_is_built(waiting: dict[str, Path], module: GoModule, progress: Progress) -> None:
    """Report each program that has been linked, and remove it from `waiting`."""
    for name, path in [*waiting.items()]:
        if path.exists():
            del waiting[name]
            progress.say(f"{module.name}: {name} is built")


def _is_file(package: str) -> bool:
    return package.endswith(".go")


def _output_name(package: str) -> str:
    """Return the name that `go build` gives a package's program: its last part that is no version.

    The program of a Go file has the file's name.
    """
    if _is_file(package):
        return Path(package).stem
    *_, before, last = package.split("/")
    return before if re.fullmatch(r"v\d+", last) else last


def _environment(module: GoModule) -> dict[str, str]:
    # GOTOOLCHAIN: nothing is fetched in place of the Go that was found, unless the module says so.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": module.go, "GOWORK": "off"}
