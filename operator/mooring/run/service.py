"""The process of `mooring run`: a connection, one replica, and an exit code.

The modules of a replica take most of the start-up time. They are imported only when the API server
has answered, so that a wrong server address is reported quickly.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import uvloop

from mooring import __version__
from mooring.kube.api_resources import SCHEDULING_PROFILE
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.kube.errors import KubeError, explain
from mooring.kube.lease import LeaderElector, Leadership
from mooring.kube.limiter import TokenBucket
from mooring.process.importing import import_module_quickly
from mooring.run.settings import RunSettings

if TYPE_CHECKING:
    from mooring.run.replica import Environment, Scheduler


logger = logging.getLogger(__name__)


_TLS_ERROR: Final = "Fatal error on SSL protocol"
"""The text of uvloop's RuntimeError when it writes to a connection that was just aborted."""


class StartError(Exception):
    """Raised if the scheduler cannot start; the text is one line that says how to correct it."""


def run(settings: RunSettings) -> int:
    """Run one replica until it stops; return 0 after SIGTERM or SIGINT.

    Return 1 if the lease is lost, a part fails, or the process must be started again. Raise
    StartError if the replica cannot start.
    """
    return uvloop.run(_serve(settings))


async def _serve(settings: RunSettings) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(on_loop_error)
    serving = asyncio.create_task(_run(settings))
    for number in (signal.SIGTERM, signal.SIGINT):  # until the scheduler takes them over
        loop.add_signal_handler(number, serving.cancel)
    try:
        return await serving
    except asyncio.CancelledError:
        if not serving.cancelling():
            raise
        logger.info("stopped before it had started")
        return 0


async def _run(settings: RunSettings) -> int:
    try:
        connection = await load_connection(
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            user_agent=f"mooring/{__version__}",
        )
        async with connected_replica(settings, connection) as scheduler:
            return await _run_replica(scheduler)
    except KubeError as error:
        raise StartError(explain(error)) from error


async def _run_replica(scheduler: "Scheduler") -> int:
    from mooring.observe.http import ListenError  # noqa: PLC0415 - slow, see the top

    try:
        return await scheduler.run()
    except ListenError as error:
        raise StartError(str(error)) from error


@asynccontextmanager
async def connected_replica(
    settings: RunSettings, connection: Connection, environment: "Environment | None" = None
) -> AsyncIterator["Scheduler"]:
    """Yield one replica, ready to run, with the connections that it needs.

    Raises KubeError if the first request, a list of SchedulingProfiles, fails.
    """
    async with AsyncExitStack() as stack:
        # Renewals of the lease wait for no other request: a client of their own, without a limit.
        leases = await stack.enter_async_context(ApiClient(connection))
        await leases.request("GET", SCHEDULING_PROFILE.path(), params={"limit": "1"})
        app = import_module_quickly("mooring.run.replica")
        environment = environment or app.Environment()
        leadership = Leadership(environment.clock) if settings.leader_elect else None
        client = ApiClient(
            connection,
            limiter=_limiter(settings, environment.clock),
            may_write=leadership.valid if leadership is not None else None,
        )
        await stack.enter_async_context(client)
        elector = None
        if leadership is not None:
            elector = _elector(settings, leases, leadership, environment)
        yield app.Scheduler(settings, connection, client, elector, environment=environment)


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a task or callback that no code awaits.

    Harmless errors of kopf, and of connections that were aborted, get the level debug.
    """
    from mooring.handlers.runner import is_kopfs  # noqa: PLC0415 - slow, see the top

    error = context.get("exception")
    if "asyncgen" in context or (error is not None and is_kopfs(error)):
        logger.debug("kopf did not stop cleanly: %s", context["message"])
    elif context.get("message", "").startswith(_TLS_ERROR) and isinstance(error, RuntimeError):
        logger.debug("a connection was ended during its TLS handshake: %s", error)
    else:
        loop.default_exception_handler(context)


def _elector(
    settings: RunSettings, client: ApiClient, leadership: Leadership, environment: "Environment"
) -> LeaderElector:
    return LeaderElector(
        client,
        name=settings.lease_name,
        namespace=settings.lease_namespace,
        identity=environment.identity,
        leadership=leadership,
        lease_duration=settings.lease_duration,
        renew_deadline=settings.renew_deadline,
        retry_period=settings.retry_period,
        clock=environment.clock,
        now=lambda: datetime.fromtimestamp(environment.now(), UTC),
        random=environment.random,
    )


def _limiter(settings: RunSettings, clock: Callable[[], float]) -> TokenBucket | None:
    if settings.qps is None:
        return None
    burst = settings.burst or max(1, round(2 * settings.qps))
    return TokenBucket(settings.qps, burst, clock=clock)
