"""What a scene says of faults that never happened."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from controlplane import ControlPlane
from controlplane.processes import ProcessGroup
from faults.control import FaultProxy
from faults.rules import Kind, Rule
from faults.scene import Injected, Scene


def test_of_two_rules_of_a_kind_the_one_that_struck_nothing_is_a_fault(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    access = control_plane.access
    with Scene.of(control_plane, tmp_path) as scene, ProcessGroup() as group:
        proxy = FaultProxy.start(access, tmp_path, group, "proxy")
        for path in ("/pods", "/nodes"):
            scene.injected.append(Injected(Rule(Kind.INTERNAL, "POST", path), [proxy], 0.0))
            scene.injected[-1].inject()
        config = json.loads(proxy.kubeconfig(access.admin_kubeconfig).read_text())
        url = config["clusters"][0]["cluster"]["server"]
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{url}/api/v1/pods", data=b"{}")  # noqa: S310 - on loopback
        failed.value.close()
        [idle] = scene.settle().faults
        assert idle.startswith("struck nothing: ")
        assert "/nodes" in idle
