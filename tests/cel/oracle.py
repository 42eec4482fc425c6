"""Runs the Go program `oracle.go`, which evaluates device selectors with kube-scheduler's code."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import orjson

from controlplane.build import GoModule, cache_root, ensure_built, kubernetes_flags
from controlplane.errors import ControlPlaneError
from controlplane.progress import Progress
from controlplane.releases import RELEASES

Answers = dict[str, Any]
"""The mistake in an expression, or by device the distinct answers, as `oracle.go` writes them."""

VERSIONS: Final = ("1.36", "1.37")
"""The minor versions whose selectors are asked: attributes got another type in 1.37."""

_SOURCE: Final = Path(__file__).with_name("oracle.go")
_PROGRAM: Final = "oracle"


def _module(minor: str) -> GoModule:
    """Return the Go module that builds the program with the sources of a Kubernetes version."""
    release = next(release for release in RELEASES if release.minor == minor)
    return GoModule(
        f"cel-oracle-{minor}",
        release.folder,
        {_PROGRAM: str(_SOURCE)},
        target="cel",
        about=f"the selectors of Kubernetes {release.version}, a minute or two",
        flags=kubernetes_flags(release.version),
    )


def answers(minor: str, cases: Iterable[object], progress: Progress | None = None) -> list[Answers]:
    """Return kube-scheduler's answer to each case.

    Raises ControlPlaneError, with the line of the case, if a case is malformed.
    """
    module = _module(minor)
    program = ensure_built(progress or Progress(), module) / _PROGRAM
    lines = b"\n".join(orjson.dumps(case) for case in cases)
    done = subprocess.run([program], input=lines, capture_output=True, check=False)
    if done.returncode:
        log = cache_root() / module.name / "last.log"
        log.write_bytes(done.stderr)
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ControlPlaneError(f"{module.name}: {said[0] if said else 'no text'}; log: {log}")
    return [orjson.loads(line) for line in done.stdout.splitlines()]
