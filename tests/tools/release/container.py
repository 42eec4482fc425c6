"""Runs the image with runc as a kubelet would, and reports the result.

As manifests/deployment.yaml says, the container has the image's entrypoint with the same arguments,
its user, no capabilities, a read-only root file system, and the service account's token at the
usual path. Only its network is the machine's, to reach the API server.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

import replica
from controlplane import Access
from controlplane.client import Client
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, Program, free_ports
from release.commands import run
from release.image import ROOT, Image, Images

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
PODS: Final = 20
SECONDS: Final = 30.0
"""The most seconds until the pods are bound; also Kubernetes' wait after SIGTERM."""
LOOK_AGAIN: Final = 0.02


@dataclass(frozen=True)
class Container:
    """A running container; runc passes signals to it, and ends with its exit code."""

    program: Program
    port: int
    folder: Path

    def pid(self) -> int:
        """Return the process id of the entrypoint on this machine."""
        return int((self.folder / "pid").read_text())

    def status(self) -> dict[str, str]:
        """Return the entrypoint's `Uid`, `CapEff` and `NoNewPrivs` from the kernel."""
        lines = Path(f"/proc/{self.pid()}/status").read_text().splitlines()
        return {
            name: " ".join(value.split()) for name, _, value in (n.partition(":") for n in lines)
        }

    def root_options(self) -> list[str]:
        """Return the mount options of the entrypoint's root file system."""
        mounts = Path(f"/proc/{self.pid()}/mountinfo").read_text().splitlines()
        (options,) = (fields[5] for line in mounts if (fields := line.split())[4] == "/")
        return options.split(",")


@contextmanager
def run_container(
    access: Access, images: Images, image: Image, folder: Path
) -> Iterator[Container]:
    """Yield the running container; its bundle and its log are in `folder`."""
    (port,) = free_ports(1)
    state, name = folder / "runc", f"mooring-{port}"
    with images.mounted(image) as files, ProcessGroup() as group:
        account = _service_account(access, folder / "serviceaccount")
        config = _config(image, files, account, _arguments(port), _address(access))
        (folder / "config.json").write_text(json.dumps(config))
        runc = ["runc", "--root", str(state)]
        program = group.spawn(
            "runc",
            [*runc, "run", "--bundle", str(folder), "--pid-file", str(folder / "pid"), name],
            log=folder / "mooring.log",
            env={"PATH": os.environ["PATH"]},
        )
        try:
            yield Container(program, port, folder)
        finally:
            run([*runc, "delete", "--force", name])


def _service_account(access: Access, folder: Path) -> Path:
    """Write the files of a service account as they are in a pod; return their folder."""
    namespace, name = replica.SERVICE_ACCOUNT
    kubeconfig = json.loads(access.kubeconfig_for_service_account(namespace, name).read_text())
    folder.mkdir()
    (folder / "token").write_text(kubeconfig["users"][0]["user"]["token"])
    (folder / "ca.crt").write_bytes(access.ca_file.read_bytes())
    (folder / "namespace").write_text(namespace)
    return folder


def _address(access: Access) -> dict[str, str]:
    server = urlsplit(access.url)
    return {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


def _arguments(port: int) -> list[str]:
    """Return the Deployment's arguments, with loopback and this port."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "deployment.yaml").read_text())
    (deployment,) = (found for found in documents if found["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [*container["args"], "--bind-address=127.0.0.1", f"--secure-port={port}"]


def _config(
    image: Image, files: Path, account: Path, arguments: list[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return runc's configuration; the container has nothing that is not in it."""
    user, _, group = image.config["User"].partition(":")
    added = [f"{name}={value}" for name, value in variables.items()]
    quiet = ["nosuid", "noexec", "nodev"]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(files), "readonly": True},
        "process": {
            "args": [*image.config["Entrypoint"], *arguments],
            "env": [*image.config["Env"], *added],
            "cwd": image.config.get("WorkingDir") or "/",
            "user": {"uid": int(user), "gid": int(group)},
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": quiet},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
            {"destination": ACCOUNT, "source": str(account), "options": ["bind", "ro"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


@dataclass(frozen=True)
class Trial:
    """The results of a run of the image."""

    size: int
    ready: float
    """Seconds from the start until Mooring leads and has mirrored the cluster."""
    bound: int
    user: str
    read_only: bool
    privileges: str
    """The capabilities in the kernel's form: zeros."""
    exit_code: int | None
    stopped: float
    """Seconds from SIGTERM to the end."""

    @property
    def passed(self) -> bool:
        """Return whether all results are right."""
        return (
            self.bound == PODS
            and self.read_only
            and not int(self.privileges, 16)
            and self.user != "0"
            and self.exit_code == 0
        )

    def __str__(self) -> str:
        """Return the results in one line."""
        root = "read-only" if self.read_only else "WRITABLE"
        return (
            f"{self.size / 1e6:.0f} MB unpacked, ready after {self.ready:.1f} s, "
            f"user {self.user} with capabilities {int(self.privileges, 16):x} on a {root} root, "
            f"{self.bound} of {PODS} pods bound, "
            f"exit code {self.exit_code} {self.stopped:.1f} s after SIGTERM"
        )


def try_image(access: Access, images: Images, image: Image, folder: Path) -> Trial:
    """Run the image on a cluster with the manifests; return how it scheduled pods."""
    create_nodes(access, 2)
    namespace = create_namespace(access, "image")
    try:
        with run_container(access, images, image, folder) as container, access.client() as client:
            started = time.monotonic()
            replica.wait_until_ready(container.program, container.port)
            ready = time.monotonic() - started
            status, options = container.status(), container.root_options()
            bound = _bound(client, namespace, container.program)
            stopping = time.monotonic()
            os.kill(container.program.pid, signal.SIGTERM)
            exit_code = container.program.wait(SECONDS)
            return Trial(
                image.size,
                ready,
                bound,
                status["Uid"].split()[0],
                "ro" in options,
                status["CapEff"],
                exit_code,
                time.monotonic() - stopping,
            )
    finally:
        delete_namespace(access, namespace)


def _bound(client: Client, namespace: str, program: Program) -> int:
    """Create the pods, and return how many of them got a node."""
    for number in range(PODS):
        spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "c"}]}
        client.post(
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": {"name": f"pod-{number}"}, "spec": spec},
        )
    deadline = time.monotonic() + SECONDS
    while True:
        items = client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        bound = sum("nodeName" in item["spec"] for item in items)
        if bound == PODS or time.monotonic() > deadline:
            return bound
        program.require_alive()
        time.sleep(LOOK_AGAIN)
