import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from http_servers import answering, serving
from kube.refusing_proxy import refusing_proxy
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, ForbiddenError
from mooring.kube.port_forward import PROTOCOL, port_forward

PORT = 10259
GREETING = PORT.to_bytes(2, "little")
PATH = "/api/v1/namespaces/mooring-system/pods/mooring-0/portforward"


@asynccontextmanager
async def kubelet(*frames: bytes, status: int = 101) -> AsyncIterator[Connection]:
    """Serve a port-forward that sends `frames`, then echoes; with another `status`, refuse it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if status != 101:
            return web.Response(status=status, text="no")
        assert (request.path, request.query["ports"]) == (PATH, str(PORT))
        stream = web.WebSocketResponse(protocols=(PROTOCOL,))
        await stream.prepare(request)
        for frame in (b"\0" + GREETING, b"\1" + GREETING, *frames):
            await stream.send_bytes(frame)
        async for message in stream:
            await stream.send_bytes(message.data)
        return stream

    async with serving(answering(answer)) as port:
        yield Connection(f"http://127.0.0.1:{port}")


@asynccontextmanager
async def forwarded(
    connection: Connection,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Task[str]]]:
    """Yield a reader and a writer for the pod's port, and the task of the port-forward."""
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    streams = await asyncio.open_connection(sock=far)
    task = asyncio.create_task(
        port_forward(connection, "mooring-system", "mooring-0", PORT, *streams)
    )
    yield reader, writer, task
    writer.close()
    await asyncio.wait([task])
    streams[1].close()


async def test_bytes_go_both_ways_and_the_greetings_are_none_of_them() -> None:
    sent = bytes(range(256)) * 100
    async with kubelet() as connection, forwarded(connection) as (reader, writer, task):
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
    assert task.result() == ""


async def test_what_the_kubelet_says_is_wrong_is_returned() -> None:
    frames = b"\1connection refused", b"\0x"
    async with kubelet(*frames) as connection, forwarded(connection) as (reader, _, task):
        assert await reader.readexactly(1) == b"x"
    assert task.result() == "connection refused"


async def test_a_refusal_is_an_error_of_the_api() -> None:
    async with kubelet(status=403) as connection, forwarded(connection) as (_, _, task):
        with pytest.raises(ForbiddenError, match="create pods/portforward mooring-system/m"):
            await task


async def test_no_server_is_an_error_of_the_api(unused_tcp_port: int) -> None:
    async with forwarded(Connection(f"http://127.0.0.1:{unused_tcp_port}")) as (_, _, task):
        with pytest.raises(ApiError):
            await task


async def test_a_proxy_that_refuses_is_an_error_without_its_password() -> None:
    async with refusing_proxy() as proxy:
        connection = Connection("https://api.invalid", proxy=proxy)
        async with forwarded(connection) as (_, _, task):
            with pytest.raises(ApiError, match="the proxy answers 407") as failure:
                await task
    assert "secret" not in str(failure.value)
