"""Calls one extender over HTTP and HTTPS, with servers on loopback."""

import asyncio
import ssl
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from certificates import Authority, Pair
from http_servers import answering, serving
from mooring.extenders import http_client as calling
from mooring.extenders.http_client import MOST_ANSWER, ExtenderClient, NotLeading
from mooring.extenders.verdicts import ExtenderError
from mooring.policy.extender import Extender
from mooring.policy.reading import read

AUTHORITY = Authority()


def extender(port: int, scheme: str = "http", **fields: Any) -> Extender:
    given = {"urlPrefix": f"{scheme}://127.0.0.1:{port}/x/", "filterVerb": "filter", **fields}
    return read(Extender, given, "")


class Seen:
    """Records the observed calls: their results, and the names of the extenders."""

    def __init__(self) -> None:
        self.results: Counter[tuple[str, str]] = Counter()
        self.names: set[str] = set()

    def __call__(self, name: str, verb: str, result: str, _seconds: float) -> None:
        self.results[verb, result] += 1
        self.names.add(name)


def client_of(found: Extender, seen: Seen | None = None) -> ExtenderClient:
    return ExtenderClient(found, seen or Seen())


async def call(found: Extender, body: bytes = b"{}", seen: Seen | None = None) -> bytes:
    client = client_of(found, seen)
    try:
        return await client.call("filter", found.filter_verb, body, bytes)
    finally:
        await client.close()


async def test_a_call_is_a_post_of_json_to_the_prefix_and_the_verb() -> None:
    async def handler(request: web.Request) -> web.Response:
        kind, path = request.headers["Content-Type"], request.path
        return web.json_response([path, kind, (await request.read()).decode()])

    seen = Seen()
    async with serving(answering(handler)) as port:
        answer = await call(extender(port), b'{"Pod":{}}', seen)
    assert answer == b'["/x/filter", "application/json", "{\\"Pod\\":{}}"]'
    assert seen.results == {("filter", "success"): 1}
    assert seen.names == {f"http://127.0.0.1:{port}/x/"}


async def test_a_query_in_the_prefix_is_kept_and_user_and_password_are_basic_authorization() -> (
    None
):
    async def handler(request: web.Request) -> web.Response:
        host, user = request.headers["Host"], request.headers.get("Authorization")
        return web.json_response([request.path_qs, host, user])

    async with serving(answering(handler)) as port:
        prefix = f"http://me:s%40cret@127.0.0.1:{port}/a%20b?x=1"
        answer = await call(read(Extender, {"urlPrefix": prefix, "filterVerb": "filter"}, ""))
    assert orjson.loads(answer) == [
        "/a%20b?x=1/filter",
        f"127.0.0.1:{port}",
        f"Basic {base64(b'me:s@cret')}",
    ]


async def test_connections_are_kept() -> None:
    peers = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response({})

    async with serving(answering(handler)) as port:
        client = client_of(extender(port))
        for _ in range(5):
            await client.call("filter", "filter", b"{}", bytes)
        await client.close()
    assert len(peers) == 1


@pytest.mark.parametrize("status", [201, 204, 302, 404, 500])
async def test_only_status_200_counts_and_redirects_are_not_followed(status: int) -> None:
    paths = []

    async def handler(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async with serving(answering(handler)) as port:
        with pytest.raises(ExtenderError, match=f"failed to filter: it answered with .* {status}"):
            await call(extender(port))
    assert paths == ["/x/filter"]


async def test_an_answer_that_does_not_come_in_time_is_a_timeout() -> None:
    hang = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        await hang.wait()
        return web.Response()

    seen = Seen()
    async with serving(answering(handler)) as port:
        with pytest.raises(ExtenderError, match=r"no answer within 0\.05 seconds"):
            await call(extender(port, httpTimeout="50ms"), seen=seen)
        hang.set()
    assert seen.results == {("filter", "timeout"): 1}


async def test_an_answer_that_comes_byte_by_byte_is_a_timeout_too() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.005)
        except ConnectionError:
            return response

    async with serving(answering(handler)) as port:
        with pytest.raises(ExtenderError, match=r"no answer within 0\.05 seconds"):
            await call(extender(port, httpTimeout="50ms"))


async def test_an_answer_that_never_ends_is_cut_off() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * 2**20)
        except ConnectionError:
            return response

    async with serving(answering(handler)) as port:
        with pytest.raises(ExtenderError, match=f"more than {MOST_ANSWER + 4} bytes"):
            await call(extender(port))


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    async with serving(answering(handler)) as port:
        assert await call(extender(port)) == b"\x1f\x8b"


async def test_a_dead_extender_is_named_with_the_cause_and_without_its_password() -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response()

    async with serving(answering(handler)) as port:
        pass
    found = read(Extender, {"urlPrefix": f"http://me:secret@127.0.0.1:{port}"}, "")
    with pytest.raises(ExtenderError) as failure:
        await call(found)
    assert str(failure.value).startswith(f'extender "http://127.0.0.1:{port}" failed to filter: ')
    assert "secret" not in str(failure.value)


async def test_a_server_that_breaks_off_is_an_error() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(answering(handler)) as port:
        with pytest.raises(ExtenderError, match="failed to filter"):
            await call(extender(port))


async def test_nothing_is_sent_when_it_may_not_be() -> None:
    async def handler(_request: web.Request) -> web.Response:
        raise AssertionError("sent")

    async with serving(answering(handler)) as port:
        client = client_of(extender(port))
        with pytest.raises(NotLeading, match="does not lead"):
            await client.call("bind", "bind", b"{}", bytes, lambda: False)
        await client.close()


def server_context(pair: Pair, folder: Path, *, trusting: bytes | None = None) -> ssl.SSLContext:
    (folder / "s.crt").write_bytes(pair.certificate)
    (folder / "s.key").write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "s.crt", folder / "s.key")
    if trusting is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusting.decode())
    return context


async def ok(_request: web.Request) -> web.Response:
    return web.json_response({})


def base64(data: bytes) -> str:
    return b64encode(data).decode()


async def test_a_server_is_verified_by_the_ca_and_a_client_by_its_certificate(
    tmp_path: Path,
) -> None:
    user = AUTHORITY.client("mooring")
    (tmp_path / "c.crt").write_bytes(user.certificate)
    (tmp_path / "c.key").write_bytes(user.key)
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    files = {
        "certFile": str(tmp_path / "c.crt"),
        "keyFile": str(tmp_path / "c.key"),
        "caFile": str(tmp_path / "ca.crt"),
    }
    data = {
        "certData": base64(user.certificate),
        "keyData": base64(user.key),
        "caData": base64(AUTHORITY.certificate),
    }
    context = server_context(AUTHORITY.server(), tmp_path, trusting=AUTHORITY.certificate)
    async with serving(answering(ok), context) as port:
        for given in (files, data):
            assert await call(extender(port, "https", enableHTTPS=True, tlsConfig=given)) == b"{}"
        without = {"caFile": files["caFile"]}
        with pytest.raises(ExtenderError, match="failed to filter"):
            await call(extender(port, "https", enableHTTPS=True, tlsConfig=without))


async def test_a_server_of_another_ca_is_refused_unless_nothing_is_verified(tmp_path: Path) -> None:
    context = server_context(Authority("other").server(), tmp_path)
    trusted = {"caData": base64(AUTHORITY.certificate)}
    async with serving(answering(ok), context) as port:
        with pytest.raises(ExtenderError, match="its certificate is not trusted"):
            await call(extender(port, "https", enableHTTPS=True, tlsConfig=trusted))
        with pytest.raises(ExtenderError, match="its certificate is not trusted"):
            await call(extender(port, "https"))
        assert await call(extender(port, "https", tlsConfig={"insecure": True})) == b"{}"
        assert await call(extender(port, "https", enableHTTPS=True)) == b"{}"


async def test_the_server_name_is_what_is_verified(tmp_path: Path) -> None:
    context = server_context(AUTHORITY.server(), tmp_path)
    tls = {"caData": base64(AUTHORITY.certificate), "serverName": "extender.example"}
    async with serving(answering(ok), context) as port:
        with pytest.raises(ExtenderError, match=r"extender\.example"):
            await call(extender(port, "https", enableHTTPS=True, tlsConfig=tls))


async def test_a_call_that_is_cancelled_is_no_error_of_the_extender() -> None:
    """Mooring cancels a call if another extender fails or the replica stops."""
    seen, arrived, end = Seen(), asyncio.Event(), asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        arrived.set()
        await end.wait()
        return web.Response()

    async with serving(answering(handler)) as port:
        calling = asyncio.create_task(call(extender(port), seen=seen))
        await arrived.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        end.set()
    assert calling.cancelled()
    assert seen.results == {}


async def test_a_time_out_takes_a_place_away_and_answers_give_places_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calling, "MOST_CALLS", 3)
    inside, most, together, end = 0, 0, asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        nonlocal inside, most
        if request.path.endswith("silent"):
            await end.wait()
            return web.json_response({})
        inside += 1
        most = max(most, inside)
        if request.path.endswith("together"):
            if inside == 3:
                together.set()
            await together.wait()
        inside -= 1
        return web.json_response({})

    async with serving(answering(handler)) as port:
        client = client_of(extender(port, httpTimeout="500ms"))

        async def thrice(verb: str) -> list[object]:
            calls = (client.call("filter", verb, b"{}", bytes) for _ in range(3))
            return [*await asyncio.gather(*calls, return_exceptions=True)]

        assert {type(found) for found in await thrice("silent")} == {ExtenderError}
        end.set()
        assert await thrice("plain") == [b"{}"] * 3
        assert most <= 2
        assert await thrice("together") == [b"{}"] * 3
        await client.close()
