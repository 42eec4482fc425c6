"""Finds the workloads of the chosen release of Kubernetes."""

import json
import os
import subprocess
from pathlib import Path

from controlplane import ControlPlaneError
from controlplane.build import cache_root
from controlplane.progress import Progress
from controlplane.releases import Release
from controlplane.toolchain import find_go

MODULE = "k8s.io/kubernetes"


def workloads_folder(release: Release) -> Path:
    """Return the workloads' folder in Go's module cache, which the control plane's build fills.

    Raises:
        ControlPlaneError: Go cannot get the module.
    """
    answer = subprocess.run(
        [find_go(cache_root(), Progress()), "mod", "download", "-json", MODULE],
        cwd=release.folder,
        env={**os.environ, "GOTOOLCHAIN": release.go, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise ControlPlaneError(f"{MODULE} {release.version}: {answer.stderr or answer.stdout}")
    return Path(json.loads(answer.stdout)["Dir"]) / "test/integration/scheduler_perf"
