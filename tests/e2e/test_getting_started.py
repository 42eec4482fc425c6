"""The commands of docs/getting-started.md, run in their order as a newcomer runs them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.pages import run_page
from e2e.replicas import eventually, pods


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
    plane = fresh_control_plane(
        components={"kube-controller-manager", "kube-scheduler", "kwok"},
        flags=chosen_release().admission_flags,
    )
    create_nodes(plane.access, 6, zones=3)
    with plane.access.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        client.post("/apis/apps/v1/namespaces/shop/deployments", deployment(replicas=4))
        eventually(
            lambda: [raw["spec"].get("nodeName") for raw in pods(client, "shop").values()],
            lambda nodes: len(nodes) == 4 and all(nodes),
            "the pods of the deployment",
        )
        text = run_page("getting-started.md", plane.access, tmp_path)
        assert re.search(r"candidate: \d+ pods compared since", text), text
        decided = r"on node-\d\n  profile mooring, generation \d+, Kubernetes 1\.\d+"
        assert re.search(rf"pod shop/web-\S+: bound on node-\d\n(.*\n)+?.*{decided}", text), text
        running = [
            raw
            for raw in pods(client, "shop").values()
            if "deletionTimestamp" not in raw["metadata"]
        ]
        assert {raw["spec"]["schedulerName"] for raw in running} == {"mooring"}
        assert all("nodeName" in raw["spec"] for raw in running)
        profile = client.get("/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles/candidate")
        assert profile["spec"]["mode"] == "Shadow"
