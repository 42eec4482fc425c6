"""The program of `oracle.go`, which answers what kube-scheduler's allocator decides."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from controlplane.build import GoModule, cache_root, ensure_built, kubernetes_flags
from controlplane.errors import ControlPlaneError
from controlplane.progress import Progress
from controlplane.releases import RELEASES, Release

Answer = dict[str, Any]
"""What the program says about a node; empty, if the claims cannot be allocated there."""

VERSIONS: Final = ("1.36", "1.37", "1.38")
"""The minor versions whose allocator is asked: from 1.36 there is the one that is ported."""

_SOURCE: Final = Path(__file__).with_name("oracle.go")
_PROGRAM: Final = "oracle"


def oracle_module(minor: str) -> GoModule:
    """Return the program of a release, which is built in the Go module of its control plane."""
    release = _release(minor)
    return GoModule(
        f"dra-oracle-{minor}",
        release.folder,
        {_PROGRAM: str(_SOURCE)},
        target="dra",
        about=f"the allocator of Kubernetes {release.version}, a minute or two",
        flags=kubernetes_flags(release.version),
        go=release.go,
    )


def _release(minor: str) -> Release:
    for release in RELEASES:
        if release.minor == minor and minor in VERSIONS:
            return release
    raise ControlPlaneError(f"{minor}: choose one of {', '.join(VERSIONS)}")


def answers(
    minor: str, cases: Iterable[object], progress: Progress | None = None
) -> list[Sequence[Sequence[Answer]]]:
    """Return by case and node the distinct answers of this release's allocator.

    There is more than one answer only where they depend on the order in which Go walks a map.

    Raises:
        ControlPlaneError: a case is no such JSON, with the number of its line; nothing is built.
    """
    progress = progress or Progress()
    module = oracle_module(minor)
    program = ensure_built(progress, module) / _PROGRAM
    lines = b"\n".join(orjson.dumps(case) for case in cases)
    done = subprocess.run([program], input=lines, capture_output=True, check=False)
    if done.returncode:
        log = cache_root() / module.name / "last.log"
        log.write_bytes(done.stderr)
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ControlPlaneError(f"{module.name}: {said[0] if said else 'no text'}; log: {log}")
    return [orjson.loads(line) for line in done.stdout.splitlines()]
