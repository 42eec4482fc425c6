"""HTTP servers on loopback with answers of a test; they run on its event loop or in a thread."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Thread

from aiohttp import web


def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    """Return an application that passes every request to the handler."""
    served = web.Application(client_max_size=2**30)
    served.router.add_route("*", "/{path:.*}", handler)
    return served


@asynccontextmanager
async def serving(
    served: web.Application, tls: ssl.SSLContext | None = None, *, cancels: bool = False
) -> AsyncIterator[int]:
    """Yield the port of 127.0.0.1 on which the application is served inside this context.

    With `cancels`, a handler is cancelled when its client has closed the connection.
    """
    # A timeout of 0 would wait for ever for handlers that do not answer, as after a failed test.
    runner = web.AppRunner(
        served, access_log=None, shutdown_timeout=0.1, handler_cancellation=cancels
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextmanager
def served_by_thread(served: web.Application) -> Iterator[int]:
    """Yield the port of 127.0.0.1 on which a thread serves the application inside this context."""
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with serving(served) as port:
            started.set_result((port, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    port, loop, stop = started.result(10.0)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
