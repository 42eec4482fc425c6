"""Kueue's controller from its Go module, run beside a control plane as its manifests install it.

Three things differ from an installation, because nothing here runs containers. The controller is a
process on loopback, with the rights of its service account. Its webhook Service is an ExternalName
for `localhost`, so the API server finds it there and verifies the certificate that Kueue makes
for itself. That certificate's Secret is copied into a folder, as a kubelet would mount it.
"""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

import replica
from controlplane import Access, ControlPlaneError
from controlplane.build import GoModule, cache_root, programs_folder
from controlplane.commands import LOOPBACK
from controlplane.health import wait_until_healthy
from controlplane.processes import ProcessGroup, Program, free_ports
from controlplane.progress import Progress
from controlplane.toolchain import find_go

Raw = dict[str, Any]

HERE: Final = Path(__file__).parent
PROGRAM: Final = "kueue"
GO_MODULE: Final = "sigs.k8s.io/kueue"
MODULE: Final = GoModule(
    PROGRAM,
    HERE,
    {PROGRAM: f"{GO_MODULE}/cmd/kueue"},
    target="kueue",
    about="some minutes",
    flags=("-trimpath", "-buildvcs=false", "-ldflags=-s -w"),
)

NAMESPACE: Final = "kueue-system"
_SERVICE: Final = "kueue-webhook-service"
_SECRET: Final = "kueue-webhook-server-cert"  # noqa: S105 - a Secret's name
_CONFIG: Final = "controller_manager_config.yaml"
_LEFT_OUT: Final = frozenset({"APIService", "Deployment"})
"""Kinds whose objects lead to containers; the APIServices are those of VisibilityOnDemand."""
_START_SECONDS: Final = 90.0


def sources() -> Path:
    """Return the folder of Kueue's Go module, fetched if need be and verified by go.sum."""
    go = find_go(cache_root(), Progress())
    command = [str(go), "mod", "download", "-json", GO_MODULE]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ControlPlaneError(f"{GO_MODULE}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


@contextmanager
def controller(access: Access, folder: Path, **fields: Any) -> Iterator[Program]:
    """Yield Kueue's controller, installed and ready; its files and its log are in the folder.

    Its configuration is that of its manifests, with these fields too.
    """
    health, metrics, webhook = free_ports(3)
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    objects = _manifests(access.kubectl_program)
    [config] = [yaml.safe_load(raw["data"][_CONFIG]) for raw in objects if _CONFIG in _data(raw)]
    config |= {
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}"},
        "webhook": {"host": LOOPBACK, "port": webhook, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "featureGates": {"VisibilityOnDemand": False},  # an API server of its own
        **fields,
    }
    config_file = folder / "config.json"
    config_file.write_text(json.dumps(config))
    installed = yaml.safe_dump_all(_on_loopback(objects, webhook), sort_keys=False)
    access.kubectl("apply", "--server-side", "-f", "-", stdin=installed)
    replica.wait_until_established(access)
    account = access.kubeconfig_for_service_account(NAMESPACE, "kueue-controller-manager")
    command = [str(programs_folder(MODULE) / PROGRAM), f"--config={config_file}"]
    with ProcessGroup() as group:
        program = group.spawn(
            PROGRAM,
            [*command, f"--kubeconfig={account}", "--zap-log-level=2"],
            log=folder / "kueue.log",
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        )
        _mount(access, program, certificates)
        wait_until_healthy(program, f"http://{LOOPBACK}:{health}/readyz", _START_SECONDS)
        yield program


def _manifests(kubectl: Path) -> list[Raw]:
    """Return the objects of Kueue's default installation."""
    folder = sources() / "config" / "default"
    rendered = subprocess.check_output([kubectl, "kustomize", folder], text=True)
    return list(yaml.load_all(rendered, yaml.CSafeLoader))


def _data(raw: Raw) -> Raw:
    found: Raw = raw.get("data") or {}
    return found


def _on_loopback(objects: Iterable[Raw], port: int) -> Iterator[Raw]:
    """Yield the objects to apply, with webhooks at this port of loopback."""
    for raw in objects:
        if raw["kind"] in _LEFT_OUT:
            continue
        if raw["kind"] == "Service" and raw["metadata"]["name"] == _SERVICE:
            raw["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        conversion = (raw.get("spec") or {}).get("conversion") or {}
        for webhook in (*raw.get("webhooks", ()), conversion.get("webhook") or {}):
            if service := webhook.get("clientConfig", {}).get("service"):
                service["port"] = port
        yield raw


def _mount(access: Access, program: Program, folder: Path) -> None:
    """Write the Secret with the controller's certificate into the folder once it is there."""
    deadline = time.monotonic() + _START_SECONDS
    with access.client() as client:
        while not (data := _data(client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}"))):
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"Kueue made no certificate; log: {program.log}")
            program.wait(replica.LOOK_AGAIN)
            program.require_alive()
    for name, content in data.items():
        (folder / name).write_bytes(base64.b64decode(content))
