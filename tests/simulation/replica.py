"""One replica of Mooring as a process of the simulated world.

It runs the same parts as `mooring run`, but for the endpoints, on a loop of its own. A
process may be stopped for a while, as by a machine that stalls, and may end at once, as by SIGKILL.
What has ended reaches nothing any more; its tasks are then ended apart from the world, so that
nothing is left of it.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
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
        identity: What the lease calls it in this life.
        looking_costs: Seconds that pass at each look at the clock, which is how work takes time.
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
        """Whether what it sends goes anywhere."""
        return self.alive

    @property
    def running(self) -> bool:
        """Whether it is not stopped."""
        return self.alive and self._timeline.now >= self.paused_until

    def clock(self) -> float:
        """Return the time on its monotonic clock; a look takes some time itself."""
        if self._apart is not None:
            return self._apart
        self._timeline.now += self.looking_costs
        return self._timeline.now

    def now(self) -> float:
        """Return the time of day as this machine has it."""
        return EPOCH + self._timeline.now + self.wall_clock_error

    def start(self) -> None:
        """Begin a new life."""
        self.lives += 1
        self.identity = f"{self.name}-{self.lives}"
        self.alive, self.exit_code, self.scheduler = True, None, None
        self.loop = self._new_loop(self._timeline, self._network)
        self.loop.ends_turn = self._ends_turn
        with self.loop.entered():
            task = self.loop.create_task(self._run())
            task.add_done_callback(self._ended)

    def answer(self, request: Coroutine[Any, Any, None]) -> None:
        """Work on a request to its endpoints, which are not there, in a task of its own."""
        with self.loop.entered():
            task = self.loop.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def next_due(self) -> float:
        """Return when it has something to do; infinity if nothing."""
        if not self.alive:
            return inf
        due = self.loop.next_due()
        if due is None:
            return inf
        return max(self.paused_until, due)

    def turn(self) -> bool:
        """Run what is ready; return whether there was anything."""
        worked = self.loop.turn()
        if not self.alive:
            self._bury()
        return worked

    def pause(self, seconds: float) -> None:
        """Stop the process for a while; the world goes on."""
        self.paused_until = max(self.paused_until, self._timeline.now + seconds)

    def after_steps(self, count: int, call: Callable[[], object]) -> None:
        """Make a call in the middle of a turn, after so many steps of tasks or callbacks."""
        self.loop.after_steps(count, lambda: call() if self.alive else None)

    def end_turns_when(self, call: Callable[[], bool] | None) -> None:
        """Ask after each step of a task whether the turn ends there, in this life and the next."""
        self._ends_turn = self.loop.ends_turn = call

    def kill(self) -> None:
        """End the process at once."""
        if self.loop.is_turning:
            self._end()  # `turn` does the rest
        elif self.alive:
            self._end()
            self._bury()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
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
        """End at once, in the middle of what runs now."""
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
        """End all tasks of a process that has ended, apart from the world."""
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
    """The file with the token of the service account, which is another one now and then."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def current(self) -> str | None:
        """Return what the API server wants to see now."""
        return f"Bearer {self._network.token}" if self._network.token else None

    async def replaced(self) -> str | None:
        """Return the same: the file has had the new token for some time."""
        return await self.current()


def _began_as(task: "asyncio.Task[Any]") -> str:
    """Return the name of the function that the task runs."""
    return getattr(task.get_coro(), "__qualname__", "?")


def _lingers(task: "asyncio.Task[Any]") -> bool:
    """Return whether it runs a plugin that goes on after it was cancelled: nothing can end that."""
    return _began_as(task) == _RUNS_A_PLUGIN and task.cancelling() > 0
