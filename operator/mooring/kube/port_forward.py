"""A connection to a port of a pod, through the API server and the pod's kubelet.

It uses the subresource `pods/portforward` over a websocket. The first byte of each binary message
is its channel: 0 for data, 1 for errors. The first message of each channel names the port
(k8s.io/cri-streaming pkg/streaming/portforward/websocket.go).
"""

import asyncio
from contextlib import suppress
from typing import Final

import aiohttp

from mooring.kube.api_resources import POD, ApiCall
from mooring.kube.config import Connection
from mooring.kube.errors import error_from_response
from mooring.kube.transport import refusal_by_proxy

PROTOCOL: Final = "v4.channel.k8s.io"
_CHUNK: Final = 1 << 15
_DATA: Final = 0


async def port_forward(
    connection: Connection,
    namespace: str,
    pod: str,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    """Connect the streams to `port` of the pod until one side ends.

    Returns the kubelet's error message about the port; "" without an error. Raises ApiError if the
    API server refuses the connection.
    """
    path = f"{POD.path(namespace, pod, 'portforward')}?ports={port}"
    call = ApiCall("create", "pods/portforward", "", namespace, pod)
    credentials = await connection.credentials.headers()
    async with aiohttp.ClientSession() as session:
        try:
            stream = await session.ws_connect(
                connection.url + path,
                protocols=(PROTOCOL,),
                headers={"User-Agent": connection.user_agent, **credentials},
                ssl=connection.tls,
                server_hostname=connection.server_name,
                proxy=connection.proxy,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise error_from_response(call, error.status, b"", server=connection.url) from error
        except aiohttp.ClientHttpProxyError as error:
            words = refusal_by_proxy(error).encode()
            raise error_from_response(call, 502, words, server=connection.url) from None
        except (aiohttp.ClientError, OSError) as error:
            words = str(error).encode()
            raise error_from_response(call, 502, words, server=connection.url) from error
        to_pod = asyncio.create_task(_to_pod(reader, stream))
        try:
            return await _from_pod(stream, writer)
        finally:
            to_pod.cancel()
            await asyncio.gather(to_pod, return_exceptions=True)
            await stream.close()


async def _to_pod(reader: asyncio.StreamReader, stream: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            await stream.send_bytes(bytes([_DATA]) + data)
    await stream.close()


async def _from_pod(stream: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    greeted, error = set[int](), ""
    async for message in stream:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            break
        channel, data = message.data[0], message.data[1:]
        if channel not in greeted:
            greeted.add(channel)
        elif channel != _DATA:
            error += data.decode(errors="replace")
        elif not writer.is_closing():
            writer.write(data)
            with suppress(ConnectionError):
                await writer.drain()
    return error
