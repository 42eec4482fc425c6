"""The world of one run: a server, replicas and actors, and the order of all events.

    outcome = run(draw(seed, ACTORS))

The world runs the replicas' event loops and makes planned calls; when nothing is ready, the time
jumps to the next event. After the last step the faults end, and the cluster has time to come to
rest; then the replicas are told to stop. Invariants are checked at every request and every change,
when all is calm, and at the end.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, TypeVar
from unittest.mock import patch

import orjson

from mooring.kube.api_resources import (
    DEVICE_CLASS,
    LEASE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    STORAGE_CLASS,
    Resource,
)
from mooring.model import pod_spec
from mooring.model.pod import Pod
from mooring.state.evictions import Evictions
from simulation import invariants
from simulation.actors import ACTORS
from simulation.actors.extenders import Extenders
from simulation.actors.faults import FAULTS, Faults
from simulation.actors.group_formats import RESOURCES
from simulation.actors.plugins import Plugins
from simulation.api_server import ApiServer
from simulation.cluster_books import Books
from simulation.coverage import Coverage
from simulation.decisions import Decisions
from simulation.network import API, Network, Request
from simulation.progress_invariants import LOOK_SECONDS, Progress
from simulation.queue_invariants import quota_refuses
from simulation.removals import Removals
from simulation.replica import Replica
from simulation.scenario import Actor, Scenario, Step
from simulation.state_invariants import engines
from simulation.storage import Change
from simulation.timeline import Timeline
from simulation.virtual_loop import NumberedTask
from turn_guard import guard_turns

guard_turns()


_Actor = TypeVar("_Actor", bound=Actor)

_RESTART_SECONDS: Final = 2.0
_AFTER_STEPS: Final = 0.01
"""So long after the last moment for steps all of them have been taken."""
_CALM_SECONDS: Final = 100.0
"""Longer than a Binding waits for its answer (30 seconds), then for its confirmation (a minute),
and then until the pod is read (5 seconds): a pod that ended before its Binding needs all of it."""
_MOVE_SECONDS: Final = 60.0
"""Longer than rebalancing awaits a replacement, 45 seconds: a move may have begun late."""
_CHARGED_SECONDS: Final = 130.0
"""Longer than a budget may be charged for a pod that has left."""
_QUIET_SECONDS: Final = 12.0
"""Longer than the longest backoff."""
_LOOK_SECONDS: Final = 5.0
_WAITS_LONG: Final = 8
"""One of so many seeds waits all these seconds also if everything rests before."""
_EMPTY_SECONDS: Final = 10.0
_UNANSWERED_SECONDS: Final = 300.0
"""How long Bindings and events may wait then for the ends of requests that are not answered."""
_EMPTIED: Final[tuple[Resource, ...]] = (
    *(POD, *RESOURCES, PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS),
    *(RESOURCE_CLAIM, RESOURCE_SLICE, DEVICE_CLASS),
)
"""What is deleted at the end: pods and what is theirs."""
_STOP_SECONDS: Final = 40.0
_TURN_SECONDS: Final = 1e-6
"""What a turn of an event loop takes at least."""
_MOST_TURNS: Final = 200_000
"""A run that takes more is taken for one that never ends."""


class Broken(Exception):  # noqa: N818 - says what happened
    """An invariant is broken; the text says which one, when and how."""


@dataclass(frozen=True)
class Sent:
    """A request at the moment when it leaves its process."""

    at: float
    identity: str
    what: str
    path: str
    body: bytes
    authorization: str = ""


@dataclass
class Outcome:
    """The result of a run."""

    scenario: Scenario
    broken: str = ""
    """The invariant that does not hold, and how; empty if all hold."""
    trace: str = ""
    """A hash of all requests and changes: equal for equal runs."""
    seconds: float = 0.0
    bound: int = 0
    log: list[str] = field(default_factory=list)
    """Requests and changes as lines, if they were wanted."""

    @property
    def rule(self) -> str:
        """The name of the broken invariant, without the details."""
        return self.broken.split(":", 1)[0]


class World:
    """One run; actors, faults and invariants get this object."""

    def __init__(
        self, scenario: Scenario, *, keep_log: bool = False, coverage: Coverage | None = None
    ) -> None:
        NumberedTask.start_counting()
        self.scenario = scenario
        self.random = Random(f"world {scenario.seed}")  # noqa: S311 - a simulation
        self.timeline = Timeline()
        self.began = self.timeline.now
        self.network = Network(self.timeline, self._random("network"), sent=self._sent)
        self.server = ApiServer(self.timeline, self._random("watches"), self._changed)
        self.network.servers[API] = self.server
        self.network.delete_pod = self.server.delete_pod_of
        self.books = Books()
        self.decisions = Decisions(self.server.storage, self.server.watches)
        self.is_calm = False
        self._is_stopping = False
        self.problems: list[str] = []
        self.log: list[str] | None = [] if keep_log else None
        self.actors = {actor.name: actor for actor in (kind() for kind in ACTORS)}
        self.replicas = {name: self._replica(name) for name in scenario.replicas}
        self.books.refusals = [
            *(self.actor(Extenders).refuses, Plugins.refuses, partial(quota_refuses, self))
        ]
        self.bound = 0
        self.moved: list[str] = []
        """The uids of pods that were evicted to be moved."""
        self.preempted: set[str] = set()
        """The uids of such pods whose eviction was sent for a pod that preempts them."""
        self.removals = Removals()
        self._progress = Progress()
        # Always: a replica that is looked into notes which devices are known.
        self.coverage = coverage if coverage is not None else Coverage()
        self.network.goes_wrong = self.coverage.note_request
        self._changed_at = 0.0
        """When anything but the lease changed last."""
        self._trace = hashlib.sha256()
        self._turns = 0

    @property
    def now(self) -> float:
        """The seconds since the run's start."""
        return self.timeline.now - self.began

    def actor(self, kind: type[_Actor]) -> _Actor:
        found = self.actors[kind.name]
        assert isinstance(found, kind)
        return found

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Plan a call `seconds` from now."""
        self.timeline.after(seconds, call)

    def fail(self, broken: str) -> None:
        """Note a broken invariant; the run ends after the present turn."""
        self.problems.append(broken)

    def run(self) -> None:
        """Take all steps, let the cluster come to rest, and stop the replicas.

        Raises:
            Broken: At the first broken invariant.
        """
        for step in self.scenario.steps:
            self.timeline.at(self.began + step.at, partial(self.take, step))
        for replica in self.replicas.values():
            self._keep_running(replica)
        self._look_at_progress()
        self._run_until(self.began + self.scenario.seconds + _AFTER_STEPS)
        self._calm()
        self._empty()
        self._stop()

    def close(self) -> None:
        """End all processes."""
        for replica in self.replicas.values():
            replica.kill()

    @property
    def trace(self) -> str:
        """A hash of everything that has happened."""
        return self._trace.hexdigest()[:16]

    def _random(self, name: str) -> Random:
        return Random(f"{name} {self.scenario.seed}")  # noqa: S311 - a simulation

    def _replica(self, name: str) -> Replica:
        announced = self.actor(Plugins).announced(self)
        random = self._random(name)
        return Replica(name, self.timeline, self.network, random, self.fail, announced)

    def _keep_running(self, replica: Replica) -> None:
        """Start the replica if it has ended, and check again later, as a kubelet does."""
        if self._is_stopping:
            return
        if not replica.alive:
            replica.start()
        self.timeline.after(_RESTART_SECONDS, partial(self._keep_running, replica))

    def take(self, step: Step) -> None:
        """Let the step's actor take the step."""
        self._note(f"step {step}")
        is_fault = step.does in FAULTS and step.actor == Faults.name
        if is_fault:
            self.coverage.note_fault(self, step.does)
        actor = self.actors.get(step.actor)
        if actor is not None:
            actor.act(self, step)

    def _look_at_progress(self) -> None:
        """Check the progress of pods now, and every few seconds until the end."""
        if self._is_stopping:
            return
        if (broken := self._progress.look(self)) is not None:
            self.fail(f"everything goes on: {broken} (at {self.now:.3f})")
        self.timeline.after(LOOK_SECONDS, self._look_at_progress)

    def _calm(self) -> None:
        """End all faults, and wait until everything is at rest."""
        self.is_calm = True
        for actor in self.actors.values():
            actor.calm(self)
        latest = self.timeline.now + _CALM_SECONDS
        while self.timeline.now < latest and not self._rests():
            quiet = max(self._changed_at + _QUIET_SECONDS, self.timeline.now + _LOOK_SECONDS)
            self._run_until(min(latest, quiet))
        self._run_until(self.timeline.now + _MOVE_SECONDS, self._moves_nothing)
        self._run_until(self.timeline.now + _CHARGED_SECONDS, self._charges_nothing)
        self._check(invariants.WHEN_CALM)

    def _rests(self) -> bool:
        """Return whether nothing has changed for a while, nothing runs, and all invariants hold.

        Errors that appear later are missed; some seeds wait longer for them.
        """
        if self.scenario.seed % _WAITS_LONG == 0:
            return False
        if self.timeline.now < self._changed_at + _QUIET_SECONDS:
            return False
        if any(engine.scheduler.state.pods.assumed for _, engine in engines(self)):
            return False
        return all(invariant(self) is None for invariant in invariants.WHEN_CALM)

    def _moves_nothing(self) -> bool:
        """Return whether no replica awaits the replacement of a moved pod."""
        return not any(move.place for _, each in engines(self) for move in each.expected.moves)

    def _charges_nothing(self) -> bool:
        """Return whether no replica charges a budget."""
        return not any(
            engine.scheduler.state.evictions._records.charges for _, engine in engines(self)
        )

    def _empty(self) -> None:
        """Delete all pods and their objects, and let the replicas forget them."""
        for resource in _EMPTIED:
            for raw in self.server.storage.all(resource):
                self.server.delete(resource, raw, "end")
        # Those that hang since before the calm go as late as they were told to.
        self._run_until(
            self.timeline.now + _UNANSWERED_SECONDS,
            lambda: next(self.server.storage.all(POD), None) is None,
        )
        self._run_until(self.timeline.now + _UNANSWERED_SECONDS, self._has_all_answers)
        self._run_until(self.timeline.now + _EMPTY_SECONDS)  # what was due behind them
        self._run_until(self.timeline.now + _UNANSWERED_SECONDS, self._has_all_answers)
        self._check(invariants.WHEN_EMPTY)

    def _has_all_answers(self) -> bool:
        """Return whether no replica has unwritten events or statuses, pods being bound, or charges.

        A charge ends within two minutes even if the budget's status is not written.
        """
        return self._charges_nothing() and not any(
            engine.recorder.unwritten
            or not engine.queue_reports._statuses._settled.is_set()
            or engine.scheduler.being_bound
            for _, engine in engines(self)
        )

    def _stop(self) -> None:
        self._is_stopping = True
        for replica in self.replicas.values():
            replica.ask_to_stop()
        self._run_until(
            self.timeline.now + _STOP_SECONDS,
            lambda: not any(replica.alive for replica in self.replicas.values()),
        )
        self._check(invariants.AT_THE_END)

    def _run_until(self, end: float, done: Callable[[], bool] = lambda: False) -> None:
        timeline, replicas = self.timeline, tuple(self.replicas.values())
        while not done():
            if self.problems:
                raise Broken(self.problems[0])
            due = timeline.next_due()
            if due > timeline.now:
                due = min(due, *(replica.next_due() for replica in replicas))
            if due >= end:
                timeline.now = max(timeline.now, end)
                return
            timeline.now = max(timeline.now, due)
            if timeline.run_due():
                continue
            for replica in replicas:
                if replica.next_due() <= timeline.now:
                    replica.turn()
                    self.decisions.look(replica, timeline.now)
                    timeline.now += _TURN_SECONDS
                    self._turns += 1
            if self._turns > _MOST_TURNS:
                raise Broken("the replicas come to rest: they do not")

    def _sent(self, request: Request) -> None:
        process = request.process
        shown = request.headers.get("Authorization", "")
        sent = Sent(self.now, process.identity, request.what, request.path, request.body, shown)
        self._note(f"{sent.identity} sends {request.method} {sent.path}")
        rules = invariants.AT_EVERY_REQUEST if request.is_write else invariants.AT_EVERY_READ
        for invariant in rules:
            if (broken := invariant(self, sent)) is not None:
                self.fail(_sentence(invariant, broken, self.now))

    def _changed(self, change: Change) -> None:
        self._note(f"{change.by}: {change.what} {change.resource.plural} {change.name}")
        self._trace.update(orjson.dumps(change.object, option=orjson.OPT_SORT_KEYS))
        self.coverage.note(self, change)
        if change.resource is not LEASE:
            self._changed_at = change.at
        self.books.note(change)
        self._progress.note(change)
        self.removals.note(change)
        if change.what == "bind":
            self.bound += 1
        for invariant in invariants.AT_EVERY_CHANGE:
            if (broken := invariant(self, change)) is not None:
                self.fail(_sentence(invariant, broken, self.now))
        for actor in self.actors.values():
            actor.changed(self, change)

    def _check(self, rules: tuple[Callable[["World"], str | None], ...]) -> None:
        for invariant in rules:
            if (broken := invariant(self)) is not None:
                raise Broken(_sentence(invariant, broken, self.now))

    def note_log(self, record: logging.LogRecord) -> None:
        """Keep a line of Mooring's log, if the log is wanted."""
        if self.log is not None:
            self.log.append(f"{self.now:.6f} logged: {record.getMessage()}")

    def _note(self, line: str) -> None:
        text = f"{self.now:.6f} {line}"
        self._trace.update(text.encode())
        if self.log is not None:
            self.log.append(text)


def _sentence(invariant: Callable[..., object], broken: str, at: float) -> str:
    name = invariant.__name__.replace("_", " ")
    return f"{name}: {broken} (at {at:.3f})"


class _Logs(logging.Handler):
    """A log handler for Mooring's log; a traceback in it is a bug of Mooring."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; fail the run if it has a traceback."""
        if record.exc_info:
            self._world.fail(
                f"no traceback is logged: {record.getMessage()}: {record.exc_info[1]!r}"
            )
        self._world.note_log(record)


@contextmanager
def _logs_to(world: World) -> Iterator[None]:
    """Send Mooring's log only to the world, inside this context."""
    loggers = [logging.getLogger("mooring"), logging.getLogger("simulation")]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    for each in loggers:
        each.handlers, each.propagate = [_Logs(world)], False
        each.setLevel(logging.WARNING if world.log is not None else logging.ERROR)
    try:
        yield
    finally:
        for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
            each.handlers, each.propagate = handlers, propagate
            each.setLevel(level)


@contextmanager
def _evictions_told_to(world: World) -> Iterator[None]:
    """Tell the world of every eviction as it begins, inside this context.

    After the turn it is too late: another preemptor may wait for the victim by then.
    """
    begin = Evictions.begin

    def told(evictions: Evictions, preemptor: Pod, victims: Iterable[Pod]) -> list[Pod]:
        begun = begin(evictions, preemptor, victims)
        world.removals.note_begun(evictions, preemptor, begun, world.timeline.now)
        return begun

    with patch.object(Evictions, "begin", told):
        yield


@contextmanager
def _no_specs_known() -> Iterator[None]:
    """Use an empty cache of pod specs: large specs known from other runs would be read faster."""
    with patch.object(pod_spec, "_SPECS", pod_spec.PodSpecCache(64 * 1024 * 1024)):
        yield


def run(scenario: Scenario, *, keep_log: bool = False, coverage: Coverage | None = None) -> Outcome:
    """Run a scenario and return its outcome; `coverage` counts its situations."""
    world = World(scenario, keep_log=keep_log, coverage=coverage)
    outcome = Outcome(scenario)
    with _logs_to(world), _evictions_told_to(world), _no_specs_known():
        try:
            world.run()
        except Broken as broken:
            outcome.broken = str(broken)
        finally:
            world.close()
    outcome.trace, outcome.seconds, outcome.bound = world.trace, world.now, world.bound
    outcome.log = world.log or []
    return outcome
