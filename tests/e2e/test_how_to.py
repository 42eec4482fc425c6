"""The commands of docs/how-to.md, run in their order beside a Mooring that runs already."""

from collections.abc import Callable
from pathlib import Path

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.pages import run_page

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


def test_every_way_leads_to_its_goal(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(
        components={"kube-controller-manager", "kwok"}, flags=chosen_release().admission_flags
    )
    create_nodes(plane.access, 3)
    text = run_page("how-to.md", plane.access, tmp_path, before=INSTALLED, stand_ins=("docker",))
    assert "podgroup.scheduling.x-k8s.io/train condition met" in text
    for profile in ("bin-packing", "gpus", "polite", "analytics"):
        assert f"{profile} condition met" in text, text
    assert "docker build -t registry.example.com/mooring-rack-aware:0.1.0" in text
    assert (tmp_path / "plugins" / "rack-aware" / "pyproject.toml").exists()
