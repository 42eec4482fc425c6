"""`mooring simulate` of a live cluster, with only the right to list, and of its saved dump."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

import replica
from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from e2e.replicas import create_pods, pod
from mooring.cli.simulate import simulate
from policies import profile

ROOT = Path(__file__).parents[2]
VIEWER = "viewer"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Yield a server with nodes, pending pods, a LimitRange and claims, but without CRDs."""
    with ControlPlane(users={VIEWER: ()}) as started:
        access = started.access
        create_nodes(access, 6, zones=3)
        access.kubectl("apply", "-f", "-", stdin=json.dumps(binding()))
        access.kubectl("apply", "-f", "-", stdin=role())
        with access.client() as client:
            created = [pod(f"web-{i}", cpu="1", scheduler="default-scheduler") for i in range(9)]
            large = pod("large", cpu="999", scheduler="default-scheduler")
            create_pods(client, "default", *created, large)
        yield started


def role() -> str:
    text = (ROOT / "docs" / "simulate.md").read_text()
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def binding() -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "mooring-simulate"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": VIEWER}],
    }


def invoke(*words: str) -> Result:
    return CliRunner().invoke(simulate, list(words))


def live(plane: ControlPlane, *words: str) -> Result:
    kubeconfig = plane.access.kubeconfig_for(VIEWER)
    return invoke(f"--kubeconfig={kubeconfig}", *words, "-o", "json")


def decisions(result: Result) -> dict[str, str | None]:
    return {d["pod"]: d["node"] for d in json.loads(result.stdout)["decisions"]}


def test_a_live_cluster_and_its_saved_dump_decide_alike_also_without_the_crd(
    plane: ControlPlane, tmp_path: Path
) -> None:
    dump = str(tmp_path / "cluster.jsonl")
    result = live(plane, "--save", dump)
    assert "note: Mooring is not installed in the cluster" in result.stderr
    assert result.exit_code == 1
    found = decisions(result)
    assert found.pop("default/large") is None
    assert len(found) == 9
    assert None not in found.values()
    assert invoke(dump, "-o", "json").stdout == result.stdout

    plane.access.kubectl("apply", "-f", str(ROOT / "crds"))
    replica.wait_until_established(plane.access)
    default = profile("default-scheduler", percentageOfNodesToScore=100)
    plane.access.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(default))
    installed = live(plane, "--save", dump)
    assert installed.stderr == ""
    assert decisions(installed) == decisions(result)
    assert invoke(dump, "-o", "json").stdout == installed.stdout


def test_a_user_without_rights_is_told_what_is_missing(plane: ControlPlane) -> None:
    plane.access.kubectl("delete", "clusterrolebinding", "viewer")
    result = live(plane)
    assert result.exit_code == 2
    assert "does not let you list nodes, namespaces, pods" in result.stderr
    assert len(result.stderr.splitlines()) == 1
