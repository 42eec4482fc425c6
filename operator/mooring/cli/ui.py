"""The command `mooring ui`: opens the page of the leading replica in a browser."""

import asyncio
import hmac
import secrets
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import click
from aiohttp import web
from yarl import URL

from mooring import __version__
from mooring.cli.console import mistakes_reported
from mooring.cli.leader import Leader, LeadingReplica, leader_options, leading_replica
from mooring.kube.config import Connection, load_connection
from mooring.kube.errors import KubeError
from mooring.kube.errors import explain as explain_error
from mooring.page import MOST_BYTES
from mooring.simulate.manifests import InputError

_LOOPBACK: Final = "127.0.0.1"
_CONNECT_SECONDS: Final = 15.0
_TO_THE_OPERATOR: Final = ("Accept", "Content-Type", "If-None-Match")
_TO_THE_BROWSER: Final = (
    "Cache-Control",
    "Content-Security-Policy",
    "Content-Type",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "ETag",
    "Referrer-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
)


@click.command(
    epilog="""\b
Examples:
  mooring ui
  mooring ui --port 8080 --no-browser
  mooring ui --server https://scheduler.example:10259"""
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Port on this machine. Without it: any that is free.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@leader_options
def ui(port: int, *, no_browser: bool, **options: Any) -> None:
    """Open the page of the scheduler in a browser, until Ctrl-C.

    The page shows nodes, queue, pods and profiles of the leading replica, and can try new pods. The
    command forwards the replica's port to this machine, and sends the credentials of the kubeconfig
    with each request. The browser gets no credentials, only a key for this run. The user must be
    allowed to get /ui/api/* (ClusterRole mooring-page), and to reach the leading replica (Role
    mooring-explain). Exits with 2 if the leading replica cannot be reached or does not show the
    page.
    """
    with mistakes_reported(), suppress(KeyboardInterrupt):
        asyncio.run(_served(Leader(**options), port, open_browser=not no_browser))


async def _served(leader: Leader, port: int, *, open_browser: bool) -> None:
    try:
        connection = await load_connection(
            leader.kubeconfig, leader.context, user_agent=f"mooring/{__version__}"
        )
    except KubeError as error:
        raise InputError(explain_error(error)) from None
    async with leading_replica(connection, leader) as replica:
        connector = aiohttp.TCPConnector(ssl=replica.tls, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as client:
            proxy = Proxy(client, connection, replica)
            await proxy.check()
            async with proxy.served(port) as address:
                click.echo(f"the page is at {address}")
                click.echo("the address is good for one use; Ctrl-C ends this")
                if open_browser:
                    await asyncio.to_thread(webbrowser.open, address)
                await asyncio.Event().wait()


@dataclass(eq=False)
class Proxy:
    """Serves the page below /ui/ on this machine, and adds the user's credentials to requests.

    Everybody who can reach the port can get the files of the page. The data need the session's
    token. The page gets this token for the key after `#` in the address. The key works only once,
    because other users of this machine may see the address in the list of processes.
    """

    client: aiohttp.ClientSession
    connection: Connection
    replica: LeadingReplica
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _hosts: frozenset[str] = frozenset()

    async def check(self) -> None:
        """Raise InputError unless the leading replica serves the page to this user."""
        try:
            async with self._asked("GET", "/ui/api/session") as answer:
                status, text = answer.status, " ".join((await answer.text()).split())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise InputError(self._unreachable(error)) from None
        if status == 403:
            text += "; the ClusterRole mooring-page grants it"
        if status != 200:
            raise InputError(f"the leading replica answers {status}: {text}")

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[str]:
        """Serve the page; yield the address to open; raise InputError if the port is in use."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/ui/session", self._exchange)
        # Only plain paths, so that what is forwarded is the path whose token was checked.
        app.router.add_get("/ui/{file:[a-z_]*[.]?[a-z]*}", self._forward)
        app.router.add_get("/ui/api/{path:[a-z]+}", self._forward)
        app.router.add_post("/ui/api/{path:[a-z]+}", self._forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _LOOPBACK, port)
            try:
                await site.start()
            except OSError as error:
                raise InputError(f"port {port} cannot be used: {error.strerror}") from None
            bound = runner.addresses[0][1]
            self._hosts = frozenset((f"{_LOOPBACK}:{bound}", f"localhost:{bound}"))
            yield f"http://{_LOOPBACK}:{bound}/ui/#key={self.key}"
        finally:
            await runner.cleanup()

    async def _exchange(self, request: web.Request) -> web.Response:
        """Answer with the session's token if the request has the key, which is valid once."""
        self._check_host(request)
        given = await request.text()
        key, self.key = self.key, ""
        if not key or not hmac.compare_digest(given.encode(), key.encode()):
            self.key = key
            raise web.HTTPForbidden(text="this address was used already; run mooring ui again\n")
        return web.Response(text=self._token)

    def _check_host(self, request: web.Request) -> None:
        # Another Host header may be an attempt at DNS rebinding.
        if request.host not in self._hosts:
            raise web.HTTPForbidden(text="open the address that mooring ui has printed\n")

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self._check_host(request)
        if request.path.startswith("/ui/api/"):
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise web.HTTPUnauthorized(text="open the address that mooring ui has printed\n")
        kept = {n: request.headers[n] for n in _TO_THE_OPERATOR if n in request.headers}
        body = await request.read() if request.can_read_body else None
        try:
            async with self._asked(
                request.method, request.rel_url.raw_path_qs, kept, body
            ) as answer:
                shown = {n: answer.headers[n] for n in _TO_THE_BROWSER if n in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=shown)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise web.HTTPBadGateway(text=f"{self._unreachable(error)}\n") from None

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            credentials = await self.connection.credentials.headers()
        except KubeError as error:
            raise OSError(explain_error(error)) from None
        async with self.client.request(
            method,
            URL(self.replica.url + path, encoded=True),  # ".." is not resolved
            headers={**(headers or {}), **credentials},
            data=body,
            server_hostname=self.replica.name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        ) as answer:
            yield answer

    def _unreachable(self, error: Exception) -> str:
        return f"the leading replica cannot be reached: {self.replica.trouble or error}"
