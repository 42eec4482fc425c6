"""The verbs of the client: the requests that they send, and how they handle answers."""

import asyncio
from typing import Any

import pytest

from kube.api_server import ApiServer, Request, pod
from mooring.kube.api_resources import LEASE, NODE, POD
from mooring.kube.client import ApiClient, Listing, PatchType
from mooring.kube.config import Connection
from mooring.kube.errors import GoneError, ServerError, explain

LEASE_OBJECT = {"metadata": {"name": "mooring", "namespace": "kube-system"}, "spec": {}}


def page(items: list[dict[str, Any]], version: int, token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": token}, "items": items}


async def test_an_object_is_read_by_name(server: ApiServer, client: ApiClient) -> None:
    answer = asyncio.create_task(client.get(POD, "web", "team-a"))
    request = await server.next()
    request.reply(pod("web", 3))
    assert await answer == pod("web", 3)
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/team-a/pods/web")


@pytest.mark.parametrize(
    ("answer", "served"),
    [
        ({"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]}, True),
        ({"resources": [{"name": "workloads"}]}, False),
        ({"resources": None}, False),
        (None, False),
    ],
)
async def test_a_resource_is_served_if_discovery_names_it(
    server: ApiServer, client: ApiClient, answer: dict[str, Any] | None, *, served: bool
) -> None:
    found = asyncio.create_task(client.served_in("scheduling.k8s.io", "v1beta1"))
    request = await server.next()
    assert request.path == "/apis/scheduling.k8s.io/v1beta1"
    if answer is None:
        request.refuse(404, "NotFound", "the server could not find the requested resource")
    else:
        request.reply(answer)
    assert ("podgroups" in await found) is served


EMULATING = {"major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "36"}


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "37", "gitVersion": "v1.37.2"}, "1.37"),
        ({"major": "1", "minor": "34+", "gitVersion": "v1.34.4-eks-1a2b"}, "1.34"),
        (EMULATING, "1.36"),
        ({**EMULATING, "emulationMajor": "", "emulationMinor": ""}, "1.37"),
    ],
)
async def test_the_version_of_a_server_is_that_which_it_emulates_or_has(
    server: ApiServer, client: ApiClient, answer: dict[str, str], version: str
) -> None:
    found = asyncio.create_task(client.server_version())
    request = await server.next()
    assert request.path == "/version"
    request.reply(answer)
    assert await found == version


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({}, "None, None"),
        ({"major": 3}, "3, None"),
        ({"major": "1", "minor": "x" * 999}, f"'1', '{'x' * 34}..."),
    ],
)
async def test_a_server_without_a_version_is_an_error_in_one_line(
    server: ApiServer, client: ApiClient, answer: dict[str, Any], shown: str
) -> None:
    found = asyncio.create_task(client.server_version())
    (await server.next()).reply(answer)
    with pytest.raises(ServerError) as error:
        await found
    words = f"major, minor: must be numbers such as 1 and 37, not {shown}"
    assert error.value.message == f"the answer is malformed: {words}"


async def test_a_list_is_read_page_by_page(server: ApiServer, client: ApiClient) -> None:
    selectors = {"fieldSelector": "spec.nodeName!="}
    answer = asyncio.create_task(client.list_all(POD, selectors=selectors))
    first = await server.next()
    first.reply(page([pod("a", 1)], 9, "more"))
    second = await server.next()
    second.reply(page([pod("b", 2)], 9))
    assert await answer == Listing([pod("a", 1), pod("b", 2)], "9")
    assert first.query == {"fieldSelector": "spec.nodeName!=", "limit": "500"}
    assert second.query == {**first.query, "continue": "more"}


async def test_each_page_of_a_list_is_shown_to_who_wants_it(
    server: ApiServer, client: ApiClient
) -> None:
    pages: list[list[dict[str, Any]]] = []
    answer = asyncio.create_task(client.list_all(POD, on_page=pages.append))
    (await server.next()).reply(page([pod("a", 1)], 9, "more"))
    (await server.next()).reply(page([pod("b", 2)], 9))
    assert (await answer).items == [pod("a", 1), pod("b", 2)]
    assert pages == [[pod("a", 1)], [pod("b", 2)]]


async def test_a_list_of_metadata_says_that_it_wants_no_more(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.list_all(POD, metadata_only=True))
    request = await server.next()
    request.reply(page([pod("a", 1)], 9))
    assert await answer == Listing([pod("a", 1)], "9")
    wanted, otherwise = request.headers["Accept"].split(",")
    assert wanted == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert otherwise == "application/json"


async def test_a_list_whose_pages_expire_is_read_at_once(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.list_all(POD))
    (await server.next()).reply(page([pod("a", 1)], 9, "more"))
    (await server.next()).refuse(410, "Expired", "the token is too old")
    whole = await server.next()
    whole.reply(page([pod("b", 2)], 11))
    assert await answer == Listing([pod("b", 2)], "11")
    assert whole.query == {}


async def test_a_list_that_is_gone_from_the_start_is_an_error(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.list_all(POD))
    (await server.next()).refuse(410, "Expired", "gone")
    with pytest.raises(GoneError):
        await answer


async def test_an_empty_collection_may_have_no_items(server: ApiServer, client: ApiClient) -> None:
    answer = asyncio.create_task(client.list_all(NODE))
    (await server.next()).reply({"metadata": {"resourceVersion": "4"}, "items": None})
    assert await answer == Listing([], "4")


@pytest.mark.parametrize("items", [5, "pods", [5], [{}], [{"metadata": {"name": "a"}}]])
async def test_a_malformed_list_is_an_error_of_the_server_in_one_line(
    server: ApiServer, client: ApiClient, items: Any
) -> None:
    answer = asyncio.create_task(client.list_all(NODE))
    (await server.next()).reply({"metadata": {"resourceVersion": "4"}, "items": items})
    with pytest.raises(ServerError) as raised:
        await answer
    assert explain(raised.value).startswith("list nodes: the answer is malformed: items")


@pytest.mark.parametrize("answer", [5, [], None, {}, {"metadata": 5}])
async def test_a_malformed_object_is_an_error_of_the_server_in_one_line(
    server: ApiServer, client: ApiClient, answer: Any
) -> None:
    reading = asyncio.create_task(client.get(POD, "web", "team-a"))
    (await server.next()).reply(answer)
    with pytest.raises(ServerError) as raised:
        await reading
    assert explain(raised.value).startswith("get pods team-a/web: the answer is malformed: ")


@pytest.mark.parametrize("resources", [5, [5], [{"name": 5}], "podgroups"])
async def test_a_malformed_discovery_is_an_error_of_the_server_in_one_line(
    server: ApiServer, client: ApiClient, resources: Any
) -> None:
    found = asyncio.create_task(client.served_in("scheduling.k8s.io", "v1beta1"))
    (await server.next()).reply({"resources": resources})
    with pytest.raises(ServerError, match="the answer is malformed: resources"):
        await found


async def test_writes_go_where_the_metadata_say(server: ApiServer, client: ApiClient) -> None:
    creation = asyncio.create_task(client.create(LEASE, LEASE_OBJECT))
    created = await server.next()
    created.reply(LEASE_OBJECT)
    await creation
    update = asyncio.create_task(client.update(LEASE, LEASE_OBJECT))
    updated = await server.next()
    updated.reply(LEASE_OBJECT)
    await update
    collection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert (created.method, created.path, created.body) == ("POST", collection, LEASE_OBJECT)
    assert (updated.method, updated.path) == ("PUT", f"{collection}/mooring")
    assert created.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("patch_type", PatchType)
async def test_a_patch_says_of_which_kind_it_is(
    server: ApiServer, client: ApiClient, patch_type: PatchType
) -> None:
    patch = asyncio.create_task(
        client.patch(
            NODE, "n", {"a": 1}, subresource="status", patch_type=patch_type, params={"force": "1"}
        )
    )
    request = await server.next()
    request.reply({})
    await patch
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n/status")
    assert request.headers["Content-Type"] == patch_type.value
    assert (request.query, request.body) == ({"force": "1"}, {"a": 1})


async def test_a_deletion_may_name_the_uid(server: ApiServer, client: ApiClient) -> None:
    for uid, body in (("u1", {"preconditions": {"uid": "u1"}}), (None, None)):
        deletion = asyncio.create_task(client.delete(POD, "web", "team-a", uid=uid))
        request = await server.next()
        request.reply({})
        await deletion
        assert (request.method, request.body) == ("DELETE", body)


async def test_a_page_of_html_is_not_taken_for_an_api_server() -> None:
    def web_page(request: Request) -> None:
        request.reply(b"<html>welcome</html>")

    async with ApiServer(web_page) as server, ApiClient(Connection(server.url)) as client:
        with pytest.raises(ServerError) as raised:
            await client.list_all(NODE)
    assert explain(raised.value) == (
        "list nodes: the answer is not JSON; is this the URL of an API server?"
    )
