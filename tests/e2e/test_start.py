"""The messages of Mooring while it cannot work yet, and its start when it can."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replica
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, free_ports
from e2e.replicas import PROFILES, Replica, Replicas, bound, create_pods, eventually, pod, ready
from policies import profile

STRANGER = "dora"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/mooring"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(users={STRANGER: []}) as plane:
        yield plane


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> Access:
    """Return the cluster after crds/ and manifests/ were applied."""
    replica.apply_manifests(plane.access)
    create_nodes(plane.access, 1)
    return plane.access


@pytest.fixture
def client(installed: Access) -> Iterator[Client]:
    with installed.client() as client:
        yield client


def only_line(folder: Path, kubeconfig: Path) -> str:
    """Run Mooring, which ends at once with wrong usage; return the only line of its log."""
    with ProcessGroup() as group:
        log = folder / "mooring.log"
        program = group.spawn(
            "mooring", replica.command(kubeconfig, 0), log=log, env=replica.environment()
        )
        assert program.wait(30.0) == 2
    [line] = log.read_text().splitlines()
    return line


def test_without_the_crds_it_says_how_to_create_them(plane: ControlPlane, tmp_path: Path) -> None:
    line = only_line(tmp_path, plane.access.admin_kubeconfig)
    assert line == (
        "error: the cluster has no schedulingprofiles.scheduling.mooring.dev: its "
        "CustomResourceDefinition is missing; create it with: kubectl apply -f crds/"
    )


def test_without_a_server_it_says_what_to_check(plane: ControlPlane, tmp_path: Path) -> None:
    good = plane.access.admin_kubeconfig.read_text()
    [port] = free_ports(1)
    nowhere = tmp_path / "nowhere.kubeconfig"
    nowhere.write_text(good.replace(plane.access.url, f"https://127.0.0.1:{port}"))
    line = only_line(tmp_path, nowhere)
    assert line.startswith(f"error: cannot reach the API server at https://127.0.0.1:{port}: ")
    assert "check that it runs and that KUBECONFIG" in line


def test_without_rights_it_says_whose_are_missing(installed: Access, tmp_path: Path) -> None:
    line = only_line(tmp_path, installed.kubeconfig_for(STRANGER))
    assert line == (
        f'error: user "{STRANGER}" may not list schedulingprofiles.scheduling.mooring.dev; '
        "grant it with: kubectl apply -k manifests/"
    )


def without(role: dict[str, Any], resource: str) -> dict[str, Any]:
    """Return the role without any right to the resource."""
    rules = [
        {**rule, "resources": [name for name in rule["resources"] if name != resource]}
        for rule in role["rules"]
    ]
    return {**role, "rules": [rule for rule in rules if rule["resources"]]}


@pytest.fixture
def role(client: Client) -> Iterator[dict[str, Any]]:
    """Yield the shipped role, and restore it after the test."""
    role = client.get(ROLE)
    yield role
    client.patch(ROLE, {"rules": role["rules"]})


def works(client: Client, namespace: str, scheduler: Replica) -> None:
    create_pods(client, namespace, pod("web", cpu="1m"))
    eventually(lambda: bound(client, namespace), lambda nodes: "web" in nodes, "the pod bound")
    assert scheduler.terminate() == 0


@pytest.mark.parametrize("resource", ["nodes", "csinodes"])
def test_a_right_that_the_mirror_lacks_is_named_and_missed_until_it_is_granted(
    installed: Access, client: Client, role: dict[str, Any], tmp_path: Path, resource: str
) -> None:
    client.patch(ROLE, {"rules": without(role, resource)["rules"]})
    with Replicas.of(installed, tmp_path) as replicas:
        scheduler = replicas.start()
        scheduler.wait_until_says(f"may not watch {resource}")
        [line] = [r["message"] for r in scheduler.log() if "may not" in r["message"]]
        assert line.endswith("grant it with: kubectl apply -k manifests/")
        status, page = scheduler.get("/readyz")
        assert status == 500
        assert "[-]mirror failed: not listed yet: " in page
        assert f"may not watch {resource}" in page
        assert scheduler.get("/livez") == (200, "ok")
        client.patch(ROLE, {"rules": role["rules"]})
        works(client, create_namespace(installed), scheduler)


def test_a_missing_right_on_priority_classes_is_named_and_stops_nothing(
    installed: Access, client: Client, role: dict[str, Any], tmp_path: Path
) -> None:
    client.patch(ROLE, {"rules": without(role, "priorityclasses")["rules"]})
    with Replicas.of(installed, tmp_path) as replicas:
        scheduler = replicas.start()
        scheduler.wait_until_says("may not list priorityclasses.scheduling.k8s.io; grant it with")
        works(client, create_namespace(installed), scheduler)
        assert [r for r in scheduler.log() if r["level"] == "error"] == []
    client.patch(ROLE, {"rules": role["rules"]})


def test_a_profile_whose_status_may_not_be_written_works_all_the_same(
    installed: Access, client: Client, role: dict[str, Any], tmp_path: Path
) -> None:
    client.patch(ROLE, {"rules": without(role, "schedulingprofiles/status")["rules"]})
    with Replicas.of(installed, tmp_path) as replicas:
        scheduler = replicas.start()
        client.post(PROFILES, profile("team"))
        namespace = create_namespace(installed)
        create_pods(client, namespace, pod("theirs", cpu="1m", scheduler="team"))
        eventually(lambda: bound(client, namespace), lambda n: "theirs" in n, "the pod bound")
        assert ready(client.get(f"{PROFILES}/team"))[0] == ""
        client.patch(ROLE, {"rules": role["rules"]})
        works(client, namespace, scheduler)
