import asyncio
from pathlib import Path
from typing import Any

import pytest

from kube.api_server import ApiServer, Objects, Request
from mooring.kube.config import Connection
from mooring.simulate.live import KINDS, read_cluster, save
from mooring.simulate.manifests import InputError, Manifest, read_manifests
from mooring.simulate.server import server_object
from mooring.testing.builders import node, pod


def read(server: Objects, said: list[str] | None = None) -> tuple[list[Manifest], list[str]]:
    """Return the objects of a 1.36 cluster, without its version object, and the notes."""
    server.known["/version"] = {"major": "1", "minor": "36"}
    (version, *found), notes = read_all(server, said)
    assert version.raw == server_object("1.36")
    return found, notes


def read_all(answer: Any, said: list[str] | None = None) -> tuple[list[Manifest], list[str]]:
    async def run() -> tuple[list[Manifest], list[str]]:
        async with ApiServer(answer) as server:
            lines = [] if said is None else said
            return await read_cluster(Connection(server.url), lines.append)

    return asyncio.run(run())


def test_a_version_that_the_user_may_not_read_is_a_note() -> None:
    refusal = (403, 'User "ann" cannot get path "/version"')
    found, (text,) = read_all(Objects(refused={"/version": refusal}, others=True))
    assert found == []
    assert text == (
        "the API server does not tell you its version: "
        "the rules of Kubernetes 1.37 apply, and --kubernetes names others"
    )


def test_every_kind_is_listed_once_and_the_objects_know_what_they_are() -> None:
    paths: list[tuple[str, str]] = []
    said: list[str] = []
    server = Objects({"/nodes": [{"metadata": {"name": "n1", "uid": "n1"}}]}, others=True)
    server.known["/version"] = {"major": "1", "minor": "36"}

    def answer(request: Request) -> None:
        paths.append((request.method, request.path))
        server(request)

    (_, found), notes = read_all(answer, said)
    once = {(kind.group, kind.kind): kind.path() for kind in reversed(KINDS)}
    assert sorted(paths) == sorted(("GET", path) for path in ("/version", *once.values()))
    assert found.raw == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "n1"},
    }
    assert "reading nodes: 1" in said
    assert notes == []


def test_a_kind_that_the_cluster_does_not_serve_is_a_note() -> None:
    missing = dict.fromkeys(("/schedulingprofiles", "/csistoragecapacities"), (404, "not found"))
    _, notes = read(Objects(refused=missing, others=True))
    assert notes == [
        "the cluster does not serve csistoragecapacities.storage.k8s.io v1",
        "Mooring is not installed in the cluster: it has no SchedulingProfiles",
    ]


def test_of_a_kind_that_not_every_cluster_has_the_first_version_that_is_served_is_read() -> None:
    group = {"metadata": {"name": "g", "uid": "g"}}
    server = Objects({"/scheduling.k8s.io/v1alpha2/podgroups": [group]}, others=True)
    server.refused["/scheduling.x-k8s.io/v1alpha1/podgroups"] = (403, "no")
    for version in ("v1", "v1beta1", "v1alpha3"):
        server.refused[f"/scheduling.k8s.io/{version}/podgroups"] = (404, "not found")
    (found,), notes = read(server)
    assert found.raw["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert notes == ["you may not list podgroups.scheduling.x-k8s.io: they are taken for absent"]


def test_every_kind_that_the_user_may_not_list_is_named_in_one_line() -> None:
    refusal = (403, 'User "ann" cannot list resource')
    with pytest.raises(InputError) as caught:
        read(Objects(refused=dict.fromkeys(("/nodes", "/csinodes"), refusal), others=True))
    assert str(caught.value) == (
        "the API server does not let you list nodes, csinodes.storage.k8s.io "
        '(User "ann" cannot list resource); docs/simulate.md has a ClusterRole to copy'
    )


def test_what_no_decision_reads_is_left_out() -> None:
    raw = pod(
        "web", node="n1", annotations={"kubectl.kubernetes.io/last-applied-configuration": ""}
    )
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    raw["spec"]["containers"][0] |= {"env": [{"name": "PASSWORD"}], "command": ["sh"]}
    raw["status"]["containerStatuses"] = [{"name": "c0", "imageID": "sha256:1"}]
    (found,), _ = read(Objects({"/pods": [raw]}, others=True))
    assert "managedFields" not in found.raw["metadata"]
    assert found.raw["metadata"]["annotations"] == {}
    assert found.raw["spec"]["containers"][0].keys() == {"name", "image", "resources", "ports"}
    assert found.raw["status"]["containerStatuses"] == [{"name": "c0"}]


def test_a_server_that_fails_is_one_line() -> None:
    with pytest.raises(InputError, match="cannot reach the API server"):
        asyncio.run(read_cluster(Connection("http://127.0.0.1:1"), lambda _: None))


def test_what_is_saved_can_be_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.jsonl")
    objects = [Manifest("cluster", raw) for raw in (node("n1"), pod("web"), node("n2"))]
    assert [*save(objects, path)] == objects
    assert [m.raw for m in read_manifests([path])] == [m.raw for m in objects]
