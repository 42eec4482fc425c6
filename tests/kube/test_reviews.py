import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kube.api_server import ApiServer, Request
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.reviews import CACHE_SECONDS, Reviews
from mooring.model.access import NonResourceAttributes, ReviewError, User, pod_read

ANN = User("ann", ("sre",))
METRICS = NonResourceAttributes("get", "/metrics")


def accepting(request: Request) -> None:
    """Answer a review: every token belongs to the user ann, and every access is allowed."""
    user = {"username": "ann", "groups": ["sre"]}
    request.reply({"status": {"authenticated": True, "user": user, "allowed": True}}, 201)


def refusing(request: Request) -> None:
    request.reply({"status": {"authenticated": False, "allowed": False, "error": "x"}}, 201)


def failing(request: Request) -> None:
    request.refuse(500, "InternalError", "no etcd")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_is_looked_up_once_in_ten_seconds() -> None:
    clock = Clock()
    async with ApiServer(accepting) as server, ApiClient(Connection(server.url)) as client:
        reviews = Reviews(client, clock=clock)
        assert await reviews.user_of("t1") == ANN
        clock.now = CACHE_SECONDS - 0.1
        assert await reviews.user_of("t1") == ANN
        assert len(server.seen) == 1
        clock.now = CACHE_SECONDS
        await reviews.user_of("t1")
        assert len(server.seen) == 2
    first = server.seen[0]
    assert first.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert first.body["spec"] == {"token": "t1"}


async def test_an_access_is_reviewed_once_in_ten_seconds_for_each_user_and_each_access() -> None:
    async with ApiServer(accepting) as server, ApiClient(Connection(server.url)) as client:
        reviews = Reviews(client)
        for _ in range(2):
            assert await reviews.allows(ANN, METRICS)
            assert await reviews.allows(User("bob"), METRICS)
            assert await reviews.allows(ANN, pod_read("shop", "web"))
    assert [request.body["spec"].get("user") for request in server.seen] == ["ann", "bob", "ann"]
    assert server.seen[0].path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert server.seen[0].body["spec"]["nonResourceAttributes"] == {
        "verb": "get",
        "path": "/metrics",
    }
    pods = server.seen[2].body["spec"]["resourceAttributes"]
    assert (pods["verb"], pods["resource"], pods["namespace"], pods["name"]) == (
        "get",
        "pods",
        "shop",
        "web",
    )


async def test_a_denial_is_cached_too() -> None:
    async with ApiServer(refusing) as server, ApiClient(Connection(server.url)) as client:
        reviews = Reviews(client)
        for _ in range(2):
            assert await reviews.user_of("bad") is None
            assert not await reviews.allows(ANN, METRICS)
    assert len(server.seen) == 2


async def test_equal_requests_at_once_cost_one_review() -> None:
    async with ApiServer(accepting) as server, ApiClient(Connection(server.url)) as client:
        reviews = Reviews(client)
        users = await asyncio.gather(*(reviews.user_of("t1") for _ in range(100)))
    assert set(users) == {ANN}
    assert len(server.seen) <= 8


async def test_the_cache_holds_only_the_latest_answers() -> None:
    async with ApiServer(accepting) as server, ApiClient(Connection(server.url)) as client:
        reviews = Reviews(client, cache_bytes=100_000)
        for number in range(200):
            await reviews.user_of(f"t{number}")
        seen = len(server.seen)
        await reviews.user_of("t150")
        assert len(server.seen) == seen
        await reviews.user_of("t0")
        assert len(server.seen) == seen + 1


async def test_without_an_answer_nobody_is_known_and_nothing_is_cached() -> None:
    answers: list[Callable[[Request], None]] = [failing, failing, accepting, accepting]

    def in_turn(request: Request) -> None:
        answers.pop(0)(request)

    async with (
        ApiServer(in_turn) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        reviews = Reviews(client)
        with pytest.raises(ReviewError, match="no etcd"):
            await reviews.user_of("t1")
        with pytest.raises(ReviewError, match="no etcd"):
            await reviews.allows(ANN, METRICS)
        assert await reviews.user_of("t1") == ANN
        assert await reviews.allows(ANN, METRICS)


@pytest.mark.parametrize("body", [b"hello", b"[]", b"{}", b'{"status": "yes"}'])
async def test_an_answer_that_is_none_lets_nobody_in(body: bytes) -> None:
    async with (
        ApiServer(lambda request: request.reply(body)) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        with pytest.raises(ReviewError):
            await Reviews(client).allows(ANN, METRICS)


async def test_a_token_that_no_api_server_issues_is_not_looked_up() -> None:
    async with ApiServer(accepting) as server, ApiClient(Connection(server.url)) as client:
        assert await Reviews(client).user_of("tök\udc80n") is None
    assert server.seen == []


CONFIG = {"metadata": {"name": "extension-apiserver-authentication", "uid": "u1"}}


@pytest.mark.parametrize("data", [5, "PEM", {"client-ca-file": 5}])
async def test_a_client_ca_that_is_malformed_is_an_error(data: object) -> None:
    async with (
        ApiServer(lambda request: request.reply({**CONFIG, "data": data})) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        with pytest.raises(ReviewError, match="data"):
            await Reviews(client).client_ca()


@pytest.mark.parametrize(
    ("data", "ca"), [({"data": {"client-ca-file": "PEM"}}, "PEM"), ({"data": None}, None)]
)
async def test_the_client_ca_is_what_the_cluster_publishes(
    data: dict[str, Any], ca: str | None
) -> None:
    async with (
        ApiServer(lambda request: request.reply({**CONFIG, **data})) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        assert await Reviews(client).client_ca() == ca
    assert server.seen[0].path == (
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    )


async def test_a_cluster_without_that_configmap_has_no_client_ca() -> None:
    async with (
        ApiServer(lambda request: request.refuse(404, "NotFound", "no")) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        assert await Reviews(client).client_ca() is None


async def test_a_client_ca_that_may_not_be_read_is_an_error() -> None:
    async with (
        ApiServer(lambda request: request.refuse(403, "Forbidden", "no")) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        with pytest.raises(ReviewError, match="no"):
            await Reviews(client).client_ca()
