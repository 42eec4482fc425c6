"""Gives access to a running control plane: kubeconfig files, kubectl and a JSON client."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.client import Client
from controlplane.errors import ControlPlaneError

ADMIN = "admin"
"""The user with every right."""

TOKEN_SECONDS = 24 * 3600
"""How many seconds a service account's token is valid: longer than anyone looks at a demo."""


@dataclass(frozen=True)
class Access:
    """The address of a control plane and the credentials of its users."""

    url: str
    folder: Path
    ca_file: Path
    kubectl_program: Path
    tokens: Mapping[str, str]
    """The bearer tokens by user name, from the API server's token file."""

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig file of the user with every right."""
        return self.kubeconfig_for(ADMIN)

    def kubeconfig_for(self, user: str) -> Path:
        """Return the kubeconfig file of a user of the control plane."""
        if user not in self.tokens:
            known = ", ".join(sorted(self.tokens))
            raise ControlPlaneError(f"user {user!r} was not given to ControlPlane; known: {known}")
        return self._write_kubeconfig(user, self.tokens[user], "default")

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Return the kubeconfig file of an existing service account, with a token for a day."""
        with self.client() as client:
            answer = client.post(
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                {"spec": {"expirationSeconds": TOKEN_SECONDS}},
            )
        token = answer["status"]["token"]
        return self._write_kubeconfig(f"{namespace}-{name}", token, namespace)

    def client(self, user: str = ADMIN) -> Client:
        """Return a JSON client acting as the user."""
        return Client.to(self.url, self.tokens[user], self.ca_file)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `kubectl` as admin and return its output; raise ControlPlaneError if it fails."""
        command = [str(self.kubectl_program), f"--cache-dir={self.folder / 'kubectl-cache'}"]
        done = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.admin_kubeconfig)},
        )
        if done.returncode:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _write_kubeconfig(self, user: str, token: str, namespace: str) -> Path:
        # JSON is YAML: no YAML library is needed here, and every client reads it.
        context = {"cluster": "mooring", "user": user, "namespace": namespace}
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "mooring", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "mooring", "context": context}],
            "current-context": "mooring",
        }
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2) + "\n")
        return path
