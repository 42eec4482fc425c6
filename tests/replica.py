"""Mooring as a process of its own, run as its users run it: `mooring run` with a kubeconfig."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from controlplane import Access, ControlPlaneError
from controlplane.health import wait_until_healthy
from controlplane.processes import Program
from controlplane.releases import chosen_release

__all__ = [
    "SERVICE_ACCOUNT",
    "admission",
    "apply_manifests",
    "command",
    "environment",
    "is_established",
    "wait_until_established",
    "wait_until_ready",
]

ROOT = Path(__file__).parents[1]
SERVICE_ACCOUNT = ("mooring-system", "mooring")
"""Namespace and name, as in manifests/rbac.yaml."""

READY_SECONDS = 30.0
"""How long the API server may take for its CRDs, and a replica for its first mirror."""
LOOK_AGAIN = 0.05
"""Seconds between two looks at what nothing announces."""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def apply_manifests(access: Access) -> None:
    """Establish crds/ and apply manifests/, but for the Deployment of Mooring itself.

    Nothing here runs containers, so whoever wants Mooring starts it with `command`.
    """
    access.kubectl("apply", "-f", str(ROOT / "crds"))
    wait_until_established(access)
    rendered = access.kubectl("kustomize", str(ROOT / "manifests"))
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(rendered))
    without = [obj for obj in objects if obj["kind"] != "Deployment"]
    access.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(without))


def admission() -> str:
    """Return the component that sets the scheduler of a namespace's pods on the chosen release."""
    version = chosen_release().mutating_admission_policy
    return "admission" if version == "v1" else f"admission-{version}"


def command(kubeconfig: Path, secure_port: int, *options: str) -> list[str]:
    """Return the command line of a replica that serves its endpoints on loopback."""
    return [
        sys.executable,
        "-m",
        "mooring",
        "run",
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure_port}",
        *options,
    ]


def environment() -> dict[str, str]:
    """Return an environment without the caller's variables that Mooring takes for settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # aiohttp reads the machine's certificates when it is imported; none is needed here.
    return {**kept, "PYTHONPATH": str(ROOT / "operator"), "SSL_CERT_FILE": os.devnull}


def wait_until_ready(program: Program, secure_port: int) -> None:
    """Wait until the replica mirrors the cluster; ControlPlaneError if it ends or is too slow."""
    wait_until_healthy(program, f"https://127.0.0.1:{secure_port}/readyz", READY_SECONDS)


def wait_until_established(access: Access) -> None:
    """Wait for all CRDs; `kubectl wait` fails on one without conditions yet."""
    deadline = time.monotonic() + READY_SECONDS
    with access.client() as client:
        while not all(map(is_established, client.get(CRDS)["items"])):
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"crds/ not established within {READY_SECONDS:.0f} s")
            time.sleep(LOOK_AGAIN)


def is_established(crd: Mapping[str, Any]) -> bool:
    """Return whether objects of the CRD can be created."""
    conditions = crd.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
