"""Runs the commands of each part of docs/quickstart.md, in the order of the page."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.pages import run_part
from e2e.replicas import eventually, pods

DECIDED = r"on node-1\n  profile mooring, generation \d+, Kubernetes 1\.\d+"
INSTALLED = """
python3 -m venv ~/mooring && . ~/mooring/bin/activate
pip install .
kubectl apply -f crds/
kubectl wait --for=condition=Established -f crds/
kubectl apply -f manifests/namespace.yaml -f manifests/profile.yaml
mooring run --bind-address 127.0.0.1 --secure-port 10259 > mooring.log 2>&1 &
kubectl wait --for=condition=Ready sprof/mooring --timeout=60s
kubectl create namespace shop
kubectl run web -n shop --image=registry.example/web:1
"""


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
        text = run_part("In a cluster of yours", plane.access, tmp_path)
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


def test_the_way_leads_from_an_empty_cluster_to_an_explained_pod(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(components={"kube-controller-manager", "kwok"})
    create_nodes(plane.access, 1)
    text = run_part("In an empty cluster", plane.access, tmp_path, stand_ins=("kind",))
    assert "kind create cluster --name mooring" in text
    assert re.search(r"Scheduled.*Successfully assigned default/hello", text), text
    assert re.search(rf"pod default/hello: bound on node-1\n(.*\n)+?.*{DECIDED}", text), text
    found = r"The cause: Insufficient cpu\. It would fit\n  - on node-1 if it requested"
    assert re.search(found, text), text
    assert re.search(rf"pod default/small: bound on node-1\n(.*\n)+?.*{DECIDED}", text), text


def test_every_goal_is_reached(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(
        components={"kube-controller-manager", "kwok"}, flags=chosen_release().admission_flags
    )
    create_nodes(plane.access, 3)
    text = run_part("Common goals", plane.access, tmp_path, before=INSTALLED, stand_ins=("docker",))
    assert "podgroup.scheduling.x-k8s.io/train condition met" in text
    for profile in ("bin-packing", "gpus", "analytics"):
        assert f"{profile} condition met" in text, text
    assert "docker build -t registry.example.com/mooring-rack-aware:0.1.0" in text
    assert (tmp_path / "plugins" / "rack-aware" / "pyproject.toml").exists()
