"""An HTTP proxy that refuses every connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_ANSWER = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def refusing_proxy() -> AsyncIterator[str]:
    """Serve the proxy; yield its URL with a user and the password `secret`."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://me:secret@{host}:{port}"
