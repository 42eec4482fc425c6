"""One replica of Mooring as a process of the simulated world.

It runs the same parts as `mooring run` except the endpoints, on its own event loop. The process may
be stopped for a while, like a stalled machine, or end at once, as by SIGKILL. An ended process
cannot use the network; its tasks are ended apart from the world, so that nothing of it is left.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import EntryPoint
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from aiohttp import UnixConnector

from mooring.framework.registry import Registry
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials
from mooring.kube.errors import KubeError
from mooring.plugins import SHIPPED
from mooring.run.replica import Environment, Scheduler
from mooring.run.service import connected_replica
from mooring.run.settings import RunSettings
from simulation.api_server import EPOCH
from simulation.kopf_stream import SimulatedKopf
from simulation.network import API, Network
from simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from simulation.timeline import Timeline


_MOST_TURNS: Final = 20_000
"""In so many turns all tasks of a process that was ended must have ended."""
_RUNS_A_PLUGIN: Final = "_checked"
"""The function of scheduling/binding.py that a task for a plugin of another distribution runs."""
LEASE_NAMESPACE: Final = "mooring-system"
_PLUGIN_SECONDS: Final = 5.0
"""How long asynchronous calls of plugins of other distributions may take."""


class Replica:
    """A process that is started again after each end.

    Attributes:
        alive: Whether the process exists.
        lives: How often it was started.
        identity: Its identity in the lease since its last start.
        looking_costs: The seconds that pass at each reading of the clock, to simulate work.
    """

    def __init__(
        self,
        name: str,
        timeline: "Timeline",
        network: Network,
        random: Random,
        failed: Callable[[str], None],
        announced: Mapping[str, EntryPoint],
    ) -> None:
        self.name = name
        self.alive = False
        self.lives = 0
        self.identity = ""
        self.paused_until = 0.0
        self.looking_costs = 0.0
        self.wall_clock_error = 0.0
        self.exit_code: int | None = None
        self.left_behind: list[str] = []
        """The tasks that it had not ended when it stopped by itself."""
        self.scheduler: Scheduler | None = None
        self.loop = self._new_loop(timeline, network)
        self.loop.close()  # until it is started
        self._timeline = timeline
        self._network = network
        self._random = random
        self._failed = failed
        self._announced = announced
        self._apart: float | None = None
        """The time of a process that has ended, while its tasks are ended."""
        self._ends_turn: Callable[[], bool] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        """What it answers somebody who asks; its endpoints end with it."""

    def _new_loop(self, timeline: "Timeline", network: Network) -> VirtualLoop:
        return VirtualLoop(
            lambda: self._apart if self._apart is not None else timeline.now,
            lambda protocol, address: network.connect(self, protocol, address),
        )

    @property
    def connected(self) -> bool:
        """Whether the process can use the network."""
        return self.alive

    @property
    def running(self) -> bool:
        """Whether the process exists and is not stopped."""
        return self.alive and self._timeline.now >= self.paused_until

    def clock(self) -> float:
        """Return the monotonic time; each reading takes `looking_costs` seconds."""
        if self._apart is not None:
            return self._apart
        self._timeline.now += self.looking_costs
        return self._timeline.now

    @contextmanager
    def looked_into(self) -> Iterator[None]:
        """Let no time pass at a reading of the clock, because the replica itself does no work."""
        costs, self.looking_costs = self.looking_costs, 0.0
        try:
            yield
        finally:
            self.looking_costs = costs

    def now(self) -> float:
        """Return the time of day on this machine's clock."""
        return EPOCH + self._timeline.now + self.wall_clock_error

    def start(self) -> None:
        """Start the process again."""
        self.lives += 1
        self.identity = f"{self.name}-{self.lives}"
        self.alive, self.exit_code, self.scheduler = True, None, None
        self.loop = self._new_loop(self._timeline, self._network)
        self.loop.ends_turn = self._ends_turn
        with self.loop.entered():
            task = self.loop.create_task(self._run())
            task.add_done_callback(self._ended)

    def answer(self, request: Coroutine[Any, Any, None]) -> None:
        """Run a request to an endpoint of the replica in a task of its own."""
        with self.loop.entered():
            task = self.loop.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def next_due(self) -> float:
        """Return the time of its next work; infinity if there is none."""
        if not self.alive:
            return inf
        due = self.loop.next_due()
        if due is None:
            return inf
        return max(self.paused_until, due)

    def turn(self) -> bool:
        """Run one turn of the event loop; return whether there was any work."""
        worked = self.loop.turn()
        if not self.alive:
            self._bury()
        return worked

    def pause(self, seconds: float) -> None:
        """Stop the process for a while; the world goes on."""
        self.paused_until = max(self.paused_until, self._timeline.now + seconds)

    def after_steps(self, count: int, call: Callable[[], object]) -> None:
        """Make the call in the middle of a turn, after `count` steps of tasks or callbacks."""
        self.loop.after_steps(count, lambda: call() if self.alive else None)

    def end_turns_when(self, call: Callable[[], bool] | None) -> None:
        """Call `call` after each task step, also after a restart; True ends the turn."""
        self._ends_turn = self.loop.ends_turn = call

    def kill(self) -> None:
        """End the process at once."""
        if self.loop.is_turning:
            self._end()  # `turn` does the rest
        elif self.alive:
            self._end()
            self._bury()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process."""
        handler = self.loop.signals.get(signal.SIGTERM)
        if not self.alive:
            return
        if handler is None:
            self.kill()
        else:
            self.loop.call_soon(handler)

    async def _run(self) -> int:
        connector = partial(UnixConnector, path=API)
        token = _Token(self._network)
        credentials = Credentials(token, await token.current(), reread=None, clock=self.clock)
        connection = Connection(f"http://{API}", credentials, connector=connector)
        environment = Environment(
            clock=self.clock,
            now=self.now,
            random=Random(self._random.random()),  # noqa: S311 - a seed
            identity=self.identity,
            registry=Registry(SHIPPED, self._announced),
            kopf=lambda *args: SimulatedKopf(*args, clock=self.clock, random=self._random),
            end_process=self._end_process,
            spare_mirror=lambda: None,
            calm_collector=lambda: None,
        )
        settings = RunSettings(
            lease_namespace=LEASE_NAMESPACE,
            decision_record_mib=1.0,
            plugin_timeout_seconds=_PLUGIN_SECONDS,
        )
        try:
            async with connected_replica(settings, connection, environment) as scheduler:
                self.scheduler = scheduler
                return await scheduler.run_without_endpoints()
        except KubeError:
            return 1

    def _end_process(self, code: int) -> None:
        """End the process at once, in the middle of a turn."""
        self.exit_code = code
        self._end()

    def _end(self) -> None:
        self.alive = False
        self.loop.halted = True
        self._apart = self._timeline.now
        self._network.end_all(lambda link: link.process is self)

    def _ended(self, task: "asyncio.Task[int]") -> None:
        if self.alive:
            self.alive = False
            self.loop.halted = True
            if task.exception() is not None:
                self._failed(f"{self.identity} ended with {task.exception()!r}")
            self.exit_code = 1 if task.exception() is not None else task.result()
            left = [
                left for left in asyncio.all_tasks(self.loop) - self._requests if not left.done()
            ]
            self.left_behind += [
                _began_as(task) for task in sorted(left, key=hash) if not _lingers(task)
            ]

    def _bury(self) -> None:
        """End all tasks of an ended process without an effect on the world."""
        self._apart = self._timeline.now
        loop, self.loop.halted = self.loop, False
        with loop.entered():
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            for task in sorted(left, key=hash):
                task.cancel()
        for _ in range(_MOST_TURNS):
            due = loop.next_due()
            if due is None:
                break
            self._apart = max(self._apart, due)
            loop.turn()
        with loop.entered():
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if left:
            self._failed(f"{self.identity} leaves tasks: {sorted(map(repr, left))[:3]}")
        loop.close()
        self._apart = None


class _Token:
    """The file with the service account's token; the server changes the token at times."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def current(self) -> str | None:
        """Return the token that the API server accepts now."""
        return f"Bearer {self._network.token}" if self._network.token else None

    async def replaced(self) -> str | None:
        """Return the current token: the file has had it for some time."""
        return await self.current()


def _began_as(task: "asyncio.Task[Any]") -> str:
    """Return the name of the function that the task runs."""
    return getattr(task.get_coro(), "__qualname__", "?")


def _lingers(task: "asyncio.Task[Any]") -> bool:
    """Return whether the task runs a plugin that ignores its cancellation."""
    return _began_as(task) == _RUNS_A_PLUGIN and task.cancelling() > 0
