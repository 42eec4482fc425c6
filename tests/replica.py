"""Runs Mooring as a process, as its users do: `mooring run` with a kubeconfig."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from controlplane import Access, ApiError, ControlPlaneError
from controlplane.client import Client
from controlplane.health import wait_until_healthy
from controlplane.processes import Program
from controlplane.releases import chosen_release

ROOT = Path(__file__).parents[1]
SERVICE_ACCOUNT = ("mooring-system", "mooring")
"""Namespace and name, as in manifests/rbac.yaml."""

READY_SECONDS = 30.0
"""How long the API server may take for its CRDs, and a replica for its first mirror."""
LOOK_AGAIN = 0.05
"""Seconds between two looks at what nothing announces."""

UNSERVED = {HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS}
"""What the API server answers while it sets up a new kind."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def apply_manifests(access: Access) -> None:
    """Create the CRDs of crds/ and all objects of manifests/ except Mooring's Deployment.

    No containers run here, so tests start Mooring with `command`. Other tests check that kubectl
    applies the files; kubectl takes three times as long as these requests.
    """
    with access.client() as client:
        for raw in _crds():
            put(client, raw)
        wait_until_established(access)
        for raw in _manifests(access.kubectl_program):
            put(client, raw)


@cache
def _crds() -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted((ROOT / "crds").glob("*.yaml"))]
    return [raw for text in texts for raw in yaml.load_all(text, yaml.CSafeLoader)]


@cache
def _manifests(kubectl: Path) -> list[dict[str, Any]]:
    rendered = subprocess.check_output([kubectl, "kustomize", ROOT / "manifests"], text=True)
    objects = yaml.load_all(rendered, yaml.CSafeLoader)
    return [raw for raw in objects if raw["kind"] != "Deployment"]


def put(client: Client, raw: dict[str, Any]) -> None:
    """Create the object, or patch the existing one; wait until its kind is served."""
    version, kind, namespace = raw["apiVersion"], raw["kind"], raw["metadata"].get("namespace")
    root = "apis" if "/" in version else "api"
    within = f"/namespaces/{namespace}" if namespace else ""
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    path = f"/{root}/{version}{within}/{plural.lower()}"
    deadline = time.monotonic() + READY_SECONDS
    while (status := _posted(client, path, raw)) in UNSERVED:
        if time.monotonic() > deadline:
            raise ControlPlaneError(f"{path} is not served after {READY_SECONDS:.0f} s: {status}")
        time.sleep(LOOK_AGAIN)
    if status == HTTPStatus.CONFLICT:
        client.patch(f"{path}/{raw['metadata']['name']}", raw)


def _posted(client: Client, path: str, raw: dict[str, Any]) -> int:
    """Return the status of creating the object; raise ApiError for an unexpected status."""
    try:
        client.post(path, raw)
    except ApiError as error:
        if error.status not in {*UNSERVED, HTTPStatus.CONFLICT}:
            raise
        return error.status
    return HTTPStatus.CREATED


def admission() -> str:
    """Return the manifest component that sets the schedulerName of pods on the chosen release."""
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
    """Return the environment without the variables that Mooring reads as settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # aiohttp reads the machine's certificates when it is imported; none is needed here.
    return {**kept, "PYTHONPATH": str(ROOT / "operator"), "SSL_CERT_FILE": os.devnull}


def wait_until_ready(program: Program, secure_port: int) -> None:
    """Wait until the replica mirrors the cluster; ControlPlaneError if it ends or is too slow."""
    wait_until_healthy(program, f"https://127.0.0.1:{secure_port}/readyz", READY_SECONDS)


def wait_until_established(access: Access) -> None:
    """Wait until all CRDs are established; `kubectl wait` fails on a CRD without conditions."""
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
