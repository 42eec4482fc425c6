import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube.api_server import ApiServer, Request
from mooring.kube.config import Connection
from mooring.simulate.live import KINDS, read_cluster, save
from mooring.simulate.manifests import InputError, Manifest, read_manifests
from mooring.simulate.server import server_object
from mooring.testing.builders import node, pod


def listing(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "items": [*items]}


def read(answer: Any, said: list[str] | None = None) -> tuple[list[Manifest], list[str]]:
    """Return the objects of a cluster of Kubernetes 1.36 but for its version, and the notes."""
    (server, *found), notes = read_all(partial(_of_1_36, answer), said)
    assert server.raw == server_object("1.36")
    return found, notes


def _of_1_36(answer: Any, request: Request) -> None:
    if request.path == "/version":
        request.reply({"major": "1", "minor": "36"})
    else:
        answer(request)


def read_all(answer: Any, said: list[str] | None = None) -> tuple[list[Manifest], list[str]]:
    async def run() -> tuple[list[Manifest], list[str]]:
        async with ApiServer(answer) as server:
            lines = [] if said is None else said
            return await read_cluster(Connection(server.url), lines.append)

    return asyncio.run(run())


def test_a_version_that_the_user_may_not_read_is_a_note() -> None:
    def answer(request: Request) -> None:
        if request.path == "/version":
            request.refuse(403, "Forbidden", 'User "ann" cannot get path "/version"')
        else:
            request.reply(listing())

    found, (text,) = read_all(answer)
    assert found == []
    assert text == (
        "the API server does not tell you its version: "
        "the rules of Kubernetes 1.37 apply, and --kubernetes names others"
    )


def test_every_kind_is_listed_once_and_the_objects_know_what_they_are() -> None:
    paths: list[tuple[str, str]] = []
    said: list[str] = []

    def answer(request: Request) -> None:
        paths.append((request.method, request.path))
        item = {"metadata": {"name": "n1", "uid": "n1"}}
        request.reply(listing(item) if request.path.endswith("/nodes") else listing())

    (found,), notes = read(answer, said)
    once = {(kind.group, kind.kind): kind.path() for kind in reversed(KINDS)}
    assert sorted(paths) == sorted(("GET", path) for path in once.values())
    assert found.raw == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "n1"},
    }
    assert "reading nodes: 1" in said
    assert notes == []


def test_a_kind_that_the_cluster_does_not_serve_is_a_note() -> None:
    def answer(request: Request) -> None:
        if request.path.endswith(("schedulingprofiles", "csistoragecapacities")):
            request.refuse(404, "NotFound", "the server could not find the requested resource")
        else:
            request.reply(listing())

    _, notes = read(answer)
    assert notes == [
        "the cluster does not serve csistoragecapacities.storage.k8s.io v1",
        "Mooring is not installed in the cluster: it has no SchedulingProfiles",
    ]


def test_of_a_kind_that_not_every_cluster_has_the_first_version_that_is_served_is_read() -> None:
    def answer(request: Request) -> None:
        if not request.path.endswith("/podgroups"):
            request.reply(listing())
        elif "v1alpha2" in request.path:
            request.reply(listing({"metadata": {"name": "g", "uid": "g"}}))
        elif "x-k8s" in request.path:
            request.refuse(403, "Forbidden", "no")
        else:
            request.refuse(404, "NotFound", "the server could not find the requested resource")

    (found,), notes = read(answer)
    assert found.raw["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert notes == ["you may not list podgroups.scheduling.x-k8s.io: they are taken for absent"]


def test_every_kind_that_the_user_may_not_list_is_named_in_one_line() -> None:
    def answer(request: Request) -> None:
        if request.path.endswith(("/nodes", "/csinodes")):
            request.refuse(403, "Forbidden", 'User "ann" cannot list resource')
        else:
            request.reply(listing())

    with pytest.raises(InputError) as caught:
        read(answer)
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

    def answer(request: Request) -> None:
        request.reply(listing(raw) if request.path.endswith("/pods") else listing())

    (found,), _ = read(answer)
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
