"""The HTTP endpoints of a running scheduler: health, metrics, configuration, recent decisions.

Health pages are in the style of Kubernetes components: "ok", or with `?verbose` (and whenever a
check fails) one line per check. Unlike kube-scheduler's, they say why a check failed.
"""

import os
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from aiohttp import web

from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog

__all__ = ["Check", "Endpoints", "ListenError"]

Check = Callable[[], str | None]
"""Says in one line what is wrong, or None when all is well. Called on the event loop."""


class ListenError(Exception):
    """The endpoints cannot be served where they were asked to; the text is one line for users."""


class Endpoints:
    """Serves /livez, /readyz, /healthz, /metrics, /configz and /debug/decisions once started.

    Args:
        live: Checks by name whose failure means that only a restart helps. /healthz is the same.
        ready: Checks by name whose failure means that this replica cannot do its work yet.
        metrics: What /metrics shows.
        decisions: What /debug/decisions?pod=NAMESPACE/NAME searches.
        configuration: Gives the configuration in force, as JSON values, for /configz.
    """

    def __init__(
        self,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        metrics: Metrics,
        decisions: DecisionLog,
        configuration: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._health = {"livez": live, "healthz": live, "readyz": ready}
        self._metrics = metrics
        self._decisions = decisions
        self._configuration = configuration
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int) -> int:
        """The endpoints answer on `port` of the IP address `address`; port 0 takes a free one.

        Returns:
            The port in use.

        Raises:
            ListenError: The address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get("/{page:livez|readyz|healthz}", self._show_health)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/configz", self._show_configuration)
        app.router.add_get("/debug/decisions", self._show_decisions)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, str(ip_address(address)), port).start()
        except (OSError, ValueError) as error:
            await runner.cleanup()
            raise ListenError(_cannot_listen(address, port, error)) from error
        self._runner = runner
        bound: int = runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """The port is free again; requests being answered had a second to end."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _show_health(self, request: web.Request) -> web.Response:
        page = request.match_info["page"]
        outcomes = {name: check() for name, check in self._health[page].items()}
        failed = any(outcome is not None for outcome in outcomes.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            f"[+]{name} ok" if outcome is None else f"[-]{name} failed: {outcome}"
            for name, outcome in outcomes.items()
        ]
        lines.append(f"{page} check {'failed' if failed else 'passed'}\n")
        return web.Response(text="\n".join(lines), status=500 if failed else 200)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _show_configuration(self, _: web.Request) -> web.Response:
        return web.json_response(self._configuration())

    async def _show_decisions(self, request: web.Request) -> web.Response:
        pod = request.query.get("pod", "")
        if pod.count("/") != 1:
            raise web.HTTPBadRequest(text="say which pod: /debug/decisions?pod=NAMESPACE/NAME\n")
        records = self._decisions.of(pod)
        if not records:
            raise web.HTTPNotFound(
                text=f"no recent decision about pod {pod} is kept by this replica;"
                " only the leading replica decides\n"
            )
        return web.json_response({"decisions": records})


def _cannot_listen(address: str, port: int, error: OSError | ValueError) -> str:
    # asyncio puts a sentence of its own around the system's words; these alone are clearer.
    errno = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(errno).lower() if errno is not None else error
    return f"cannot listen on port {port} of {address}: {reason}; choose another address or port"
