"""The commands of docs/tutorial.md, run in their order by someone who has nothing yet."""

import re
from collections.abc import Callable
from pathlib import Path

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from e2e.pages import run_page

DECIDED = r"on node-1\n  profile mooring, generation \d+, Kubernetes 1\.\d+"


def test_the_tutorial_leads_from_an_empty_cluster_to_an_explained_pod(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(components={"kube-controller-manager", "kwok"})
    create_nodes(plane.access, 1)
    text = run_page("tutorial.md", plane.access, tmp_path, stand_ins=("kind",))
    assert "kind create cluster --name mooring" in text
    assert re.search(r"Scheduled.*Successfully assigned default/hello", text), text
    assert re.search(rf"pod default/hello: bound on node-1\n(.*\n)+?.*{DECIDED}", text), text
    found = r"The cause: Insufficient cpu\. It would fit\n  - on node-1 if it requested"
    assert re.search(found, text), text
    assert re.search(rf"pod default/small: bound on node-1\n(.*\n)+?.*{DECIDED}", text), text
