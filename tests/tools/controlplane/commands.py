"""Makes the command line of each program of a control plane on loopback."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from policies import kube_configuration

Component = Literal["kube-controller-manager", "kube-scheduler", "kwok"]
"""The programs that a control plane may have besides etcd and kube-apiserver."""

COMPONENTS: tuple[Component, ...] = get_args(Component)

LOOPBACK = "127.0.0.1"
STAGES = Path(__file__).with_name("stages.yaml")

PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
"""The names of the ports in a layout."""


@dataclass(frozen=True)
class Layout:
    """The folder of one control plane, and its ports."""

    data: Path
    programs: Path
    ports: Mapping[str, int]

    def url(self, name: str, scheme: str = "https") -> str:
        """Return the URL of a program on loopback."""
        return f"{scheme}://{LOOPBACK}:{self.ports[name]}"

    @property
    def pki(self) -> Path:
        """The folder in which kube-apiserver generates its certificate and key."""
        return self.data / "pki"

    @property
    def serving_key(self) -> Path:
        """kube-apiserver's generated key, which also signs service-account tokens."""
        return self.pki / "apiserver.key"

    @property
    def token_file(self) -> Path:
        """The users that kube-apiserver knows, with their tokens and groups."""
        return self.data / "tokens.csv"


def etcd(layout: Layout) -> list[str]:
    """Return the command of etcd with one member, which syncs nothing to disk."""
    client, peer = layout.url("etcd", "http"), layout.url("etcd-peer", "http")
    return [
        str(layout.programs / "etcd"),
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=8589934592",
    ]


def kube_apiserver(layout: Layout, admission_off: Collection[str]) -> list[str]:
    """Return the command of kube-apiserver: RBAC, a token file, its own certificate and key.

    That key also signs service-account tokens: kube-apiserver writes it before it reads the flag.
    """
    command = [
        str(layout.programs / "kube-apiserver"),
        f"--etcd-servers={layout.url('etcd', 'http')}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--cert-dir={layout.pki}",
        f"--token-auth-file={layout.token_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={layout.serving_key}",
        f"--service-account-key-file={layout.serving_key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--delete-collection-workers=8",  # thousands of pods and events go in half the time
    ]
    if admission_off:
        command.append(f"--disable-admission-plugins={','.join(sorted(admission_off))}")
    return command


def kube_controller_manager(layout: Layout, kubeconfig: Path, ca_file: Path) -> list[str]:
    """Return the command of kube-controller-manager with all default controllers."""
    return [
        str(layout.programs / "kube-controller-manager"),
        *_serving(layout, "kube-controller-manager", kubeconfig),
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={layout.serving_key}",
        f"--root-ca-file={ca_file}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def kube_scheduler(layout: Layout, kubeconfig: Path, config: Path) -> list[str]:
    """Return the command of kube-scheduler under a configuration file."""
    return [
        str(layout.programs / "kube-scheduler"),
        *_serving(layout, "kube-scheduler", kubeconfig)[1:],
        f"--config={config}",
    ]


def scheduler_config(kubeconfig: Path, config: Mapping[str, Any]) -> str:
    """Return the text of the configuration file: these fields and the fixed ones."""
    connection = {"kubeconfig": str(kubeconfig), **config.get("clientConnection", {})}
    given = {"leaderElection": {"leaderElect": False}, **config, "clientConnection": connection}
    whole = kube_configuration(**given)
    return json.dumps(whole, indent=2) + "\n"


def kwok(layout: Layout, kubeconfig: Path) -> list[str]:
    """Return the command of kwok, which replaces all kubelets; `stages.yaml` has its rules."""
    return [
        str(layout.programs / "kwok"),
        f"--kubeconfig={kubeconfig}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        "--cidr=10.64.0.0/10",
        f"--server-address={LOOPBACK}:{layout.ports['kwok']}",
    ]


def health_url(layout: Layout, name: str) -> str:
    """Return the URL that answers 200, without credentials, once the program works."""
    match name:
        case "etcd":
            return layout.url(name, "http") + "/health"
        case "kwok":
            return layout.url(name, "http") + "/healthz"
        case "kube-controller-manager":
            return layout.url(name) + "/healthz"
    return layout.url(name) + "/readyz"


def _serving(layout: Layout, name: str, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[name]}",
    ]
