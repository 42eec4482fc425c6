"""The commands of docs/getting-started.md, run in their order as a newcomer runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from controlplane.processes import free_ports
from e2e.replicas import eventually, pods

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "getting-started.md"
PORT = "10259"
SECONDS = 280

PIP = f"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
pip() {{  # what it does for this project, without an index of packages
  [ "$*" = "install ." ]
  printf '#!/bin/sh\\nexec {sys.executable} -m mooring "$@"\\n' > "$VIRTUAL_ENV/bin/mooring"
  chmod +x "$VIRTUAL_ENV/bin/mooring"
}}
"""


def commands() -> str:
    """All commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    return "\n".join(blocks)


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}}
    container = {"name": "c", "image": "registry.example/c:1", "resources": resources}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }


def test_the_way_of_a_newcomer_ends_with_a_namespace_that_mooring_schedules(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(components={"kube-controller-manager", "kube-scheduler", "kwok"})
    create_nodes(plane.access, 6, zones=3)
    with plane.access.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        client.post("/apis/apps/v1/namespaces/shop/deployments", deployment(replicas=4))
        eventually(
            lambda: [raw["spec"].get("nodeName") for raw in pods(client, "shop").values()],
            lambda nodes: len(nodes) == 4 and all(nodes),
            "the pods of the deployment",
        )
        script = commands().replace(PORT, str(free_ports(1)[0]))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "kubectl").symlink_to(plane.access.kubectl_program)
        output = tmp_path / "output.txt"
        with output.open("w") as out:
            done = subprocess.run(
                ["bash", "-c", PIP + script.replace("mooring.log", f"{tmp_path}/mooring.log")],
                cwd=ROOT,
                env={
                    "HOME": str(tmp_path),
                    "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
                    "PYTHONPATH": str(ROOT / "operator"),
                    "KUBECONFIG": str(plane.access.admin_kubeconfig),
                },
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        text = output.read_text()
        assert done.returncode == 0, text
        assert re.search(r"candidate: \d+ pods compared since", text), text
        assert re.search(r"shop/web-\S+  .*\(profile mooring, generation \d+\)", text), text
        running = [
            raw
            for raw in pods(client, "shop").values()
            if "deletionTimestamp" not in raw["metadata"]
        ]
        assert {raw["spec"]["schedulerName"] for raw in running} == {"mooring"}
        assert all("nodeName" in raw["spec"] for raw in running)
        profile = client.get("/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles/candidate")
        assert profile["spec"]["mode"] == "Shadow"
