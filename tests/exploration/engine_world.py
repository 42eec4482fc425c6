"""The whole engine in a small world with single pods, or a gang of two or three.

The loop, the attempts, the bindings and all parts around them are the program's own, built by
`Engine`. They run on an event loop that advances only when the explorer says so. The API server is
a model: the explorer chooses when it carries out a Binding, when its answer arrives, and when each
watch shows an event.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import orjson

from exploration.explorer import Action, Broken
from exploration.fingerprint import Fingerprint, attributes
from exploration.small_cluster import (
    ASSIGNED,
    KOPF,
    REGISTRY,
    SmallCluster,
    Stored,
    StoredNode,
)
from exploration.stepped_loop import SteppedLoop
from mooring.kube.api_resources import ApiCall
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, ConflictError, NotFoundError, ServerError, UnansweredError
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Uid
from mooring.observe.metrics import Metrics
from mooring.run.build import Engine, Options
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling import schedule_one
from mooring.scheduling.queue.queue import UNSCHEDULABLE_TIMEOUT
from mooring.state.cluster import ClusterState
from mooring.testing.builders import coscheduling_pod_group, pod_group

_ONE_BACKOFF: Final = Options(initial_backoff=1.0, max_backoff=1.0, most_per_attempt=None)
_METRICS: Final = Metrics()
"""Of all worlds: nothing is decided by them."""
_IDLE: Final = 9.0
"""The loop turns every ten seconds; a timer that ends later than this does nothing else."""


@dataclass(frozen=True)
class Scenario:
    """The start of a world: the CPUs of each node, and the names of the gang's members.

    Without a gang, pods and nodes that come later are larger than the first ones.
    """

    nodes: Mapping[str, int]
    members: str = "abc"
    others: str = ""
    """Of pods that are in no gang, and are created first."""
    minimum: int = 2
    elsewhere: str = ""
    """Of pods in another gang, h, which has no PodGroup. If there are any, labels name the gangs,
    and a pod may move from one to the other."""

    @property
    def kind(self) -> Kind:
        return Kind.COSCHEDULING_POD_GROUP if self.elsewhere else Kind.POD_GROUP


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "alone": Scenario({"n0": 1}, members="", others="ab"),
    "full": Scenario({"n0": 0}, members="", others="ab"),
    "fits": Scenario({"n0": 1, "n1": 1}, members="ab"),
    "waits": Scenario({"n0": 1}, members="ab"),
    "whole": Scenario({"n0": 2, "n1": 1}, minimum=3),
    "behind": Scenario({"n0": 2}, members="ab", others="c"),
    "moves": Scenario({"n0": 2, "n1": 1}, members="ab", elsewhere="c", minimum=3),
}


@dataclass(eq=False)
class _Binding:
    """A Binding that the program has sent."""

    uid: Uid
    name: str
    node: str
    answer: "asyncio.Future[bytes]"
    outcome: ApiError | None = None
    carried_out: bool = False
    """Whether the server has made of it what it can; the answer is on its way."""


class _Server(ApiClient):
    """The client of the modelled API server; see `EngineWorld`."""

    def __init__(self, world: "EngineWorld") -> None:
        self.url = "https://exploration"
        self._world = world

    def may_write(self) -> bool:
        return True

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        """Return the answer; for a Binding, wait until the explorer lets the answer arrive."""
        name = path.partition("/pods/")[2].partition("/")[0]
        if method == "POST" and path.endswith("/binding"):
            body = orjson.loads(options["body"])
            return await self._world.binding(body["metadata"]["uid"], name, body["target"]["name"])
        stored = self._world.pods.get(name)
        if method == "GET" and stored is not None:
            spec = {"nodeName": stored.node} if stored.node is not None else {}
            return orjson.dumps({"metadata": {"name": name, "uid": stored.uid}, "spec": spec})
        if method == "GET":
            raise _error(NotFoundError, 404)
        return b"{}"


def _error(kind: type[ApiError], status: int | None) -> ApiError:
    call = ApiCall.parse("POST", "/api/v1/namespaces/default/pods/a/binding")
    return kind(call, "refused in the exploration", status=status)


class _Errors(logging.Handler):
    """A log handler that keeps error messages; each of them is a bug of the program."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.messages.append(f"{record.getMessage()}: {error!r}")


_ERRORS: Final = _Errors()


@contextmanager
def exploring() -> Iterator[None]:
    """Allow exploring inside this context, and record the errors that the program logs.

    Ties are always broken in the same way, independent of the number of attempts.
    """
    logger = logging.getLogger("mooring")
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(schedule_one, "tie_break_seed", return_value=0))
        logger.addHandler(_ERRORS)
        patches.callback(logger.removeHandler, _ERRORS)
        yield


class EngineWorld(SmallCluster):
    """The pods of one of the `SCENARIOS`; at most `events` events happen.

    With `lagging`, the explorer chooses when watches show an event; otherwise they do so at once.
    """

    def __init__(self, scenario: str, events: int = 1, *, lagging: bool = False) -> None:
        self.given = SCENARIOS[scenario]
        self.labelled = bool(self.given.elsewhere)
        """Whether labels name the gangs."""
        members = [self._member(name, "g") for name in self.given.members]
        members += [self._member(name, "h") for name in self.given.elsewhere]
        others = [Stored(name, 0, 1) for name in self.given.others]
        nodes = [StoredNode(name, cpu) for name, cpu in self.given.nodes.items()]
        super().__init__([*others, *members], nodes, events)
        self.lagging = lagging
        self.minimum: int | None = self.given.minimum
        """What the PodGroup requires; None if there is none."""
        self.groups = 0
        """How many PodGroups of this name there were."""
        self.flushed = False
        self.broken: list[str] = []
        self.bindings: list[_Binding] = []
        self.sent = set[Uid]()
        """The pods of which a Binding was ever sent."""
        self.untold: dict[str, deque[tuple[str, Callable[[], object]]]] = {
            stream: deque() for stream in (KOPF, ASSIGNED)
        }
        self.loop = SteppedLoop(1000.0)
        _ERRORS.messages.clear()
        self._begin()
        for node in tuple(self.nodes.values()):
            self.put_node(node)
        if self.given.members:
            self.put_group()
        else:
            self.largest, self.minimum = 2, None
        for each in tuple(self.pods.values()):
            self.create(each)
        self.loop.settle()

    def _member(self, name: str, group: str) -> Stored:
        return Stored(name, 0, 1, group, labelled=self.labelled)

    def _begin(self) -> None:
        with self.loop.entered():
            self.engine = Engine(
                _Server(self),
                ClusterState(),
                REGISTRY,
                identity="exploration",
                options=_ONE_BACKOFF,
                metrics=_METRICS,
                clock=self.loop.time,
                sleep=asyncio.sleep,
            )
            self.scheduler, self.enqueuer = self.engine.scheduler, self.engine.pod_enqueuer
            self.put_profile()
            self.enqueuer.profiles_changed()
            self.loop.create_task(self.engine.loop.run())

    def close(self) -> None:
        """End all tasks of the program."""
        self.engine.loop.halt()
        self.loop.end()

    # What the program is told

    def tell(self, stream: str, what: str, tell: Callable[[], object]) -> None:
        """Call `tell` now, or with `lagging` store it as the next event of the stream."""
        if self.lagging:
            self.untold[stream].append((what, tell))
        else:
            tell()

    def told(self, stream: str) -> None:
        """Let the stream deliver its next event."""
        _, tell = self.untold[stream].popleft()
        tell()

    # What may happen

    def take(self, action: Action) -> None:
        """Take the action, and run the program until it needs time or an answer."""
        with self.loop.entered():
            getattr(self, action.method)(*action.args)
        self.loop.settle()

    def actions(self) -> list[Action]:
        """Return all actions that are possible now."""
        found = [*self._answers(), *self.events_that_may_come(), *self._events_of_group()]
        for stream, untold in self.untold.items():
            if untold:
                words = f"{stream} tells that {untold[0][0]}"
                found.append(Action(words, "told", (stream,), own=True))
        due = self.loop.due()
        if due and due[0] < _IDLE:
            found.append(Action("time passes to the next timer", "time_passes", own=True))
        if self.at_rest and not self.flushed and any(self.scheduler.queue.counts().values()):
            found.append(Action("five minutes pass", "five_minutes_pass"))
        return found

    def _answers(self) -> Iterator[Action]:
        for number, binding in enumerate(self.bindings):
            uid = binding.uid
            if binding.carried_out:
                yield Action(f"the answer about {uid} comes", "answered", (number,), own=True)
                continue
            yield Action(
                f"the server looks at the Binding of {uid}", "looked_at", (number,), own=True
            )
            if self.events:
                words = f"the server binds {uid}, and the answer is lost"
                yield Action(words, "lost", (number,))
                yield Action(f"the server fails to bind {uid}", "failed", (number,))

    def _events_of_group(self) -> Iterator[Action]:
        if not (self.events and self.given.members):
            return
        for each in self.pods.values():
            if each.labelled and each.node is None and each.name not in self.befallen:
                other = "h" if each.group == "g" else "g"
                words = f"pod {each.name} moves to gang {other}"
                yield Action(words, "pod_moved", (each.name, other))
        if self.minimum is None:
            yield Action("PodGroup g comes back", "group_put", (self.given.minimum,))
        elif "g" not in self.befallen:
            for minimum in {1, 2, 3} - {self.minimum}:
                words = f"the minimum of PodGroup g becomes {minimum}"
                yield Action(words, "group_put", (minimum,))
            yield Action("PodGroup g is deleted", "group_deleted")
            yield Action("PodGroup g is deleted and comes back", "group_replaced")

    # What happens

    def pod_created(self, name: str) -> None:
        """Create the pod of this name, as a member of the gang if there is one."""
        self.befall(name)
        member = self._member(name, "g")
        self.create(member if self.given.members else Stored(name, 0, self.largest))

    def put_group(self) -> None:
        """Let the watch show the current PodGroup."""
        kind, make = self.given.kind, coscheduling_pod_group if self.labelled else pod_group
        raw = make("g", self.minimum or 0)
        raw["metadata"]["uid"] = f"g-{self.groups}"
        self.scheduler.state.put(kind, "default/g", parse_object(kind, raw))

    def group_put(self, minimum: int) -> None:
        """Create the PodGroup, or change its minimum."""
        self.befall("g")
        self.minimum = minimum
        self.put_group()

    def group_deleted(self) -> None:
        self.befall("g")
        self._delete_group()

    def _delete_group(self) -> None:
        self.minimum = None
        self.groups += 1
        self.scheduler.state.delete(self.given.kind, "default/g")

    def group_replaced(self) -> None:
        """Delete the PodGroup, and create another one with the same name."""
        self.group_deleted()
        self.minimum = self.given.minimum
        self.put_group()

    async def binding(self, uid: str, name: str, node: str) -> bytes:
        """Note a Binding; return its answer when the answer arrives."""
        pod = self.scheduler.state.pods.get(Uid(uid))
        group = self.scheduler.cluster.pod_groups.of(pod.pod) if pod is not None else None
        if (
            group is not None
            and uid not in self.sent
            and group.scheduled_pods_count < group.minimum
        ):
            on = group.scheduled_pods_count
            self.broken.append(
                f"the Binding of {uid} is sent while {on} of {group.minimum} members have a node"
            )
        self.sent.add(Uid(uid))
        binding = _Binding(Uid(uid), name, node, self.loop.create_future())
        self.bindings.append(binding)
        try:
            return await binding.answer
        finally:
            if binding in self.bindings:
                self.bindings.remove(binding)

    def looked_at(self, number: int) -> None:
        """Let the server carry out a Binding or reject it."""
        binding = self.bindings[number]
        binding.carried_out = True
        stored = self.pods.get(binding.name)
        if stored is None:
            binding.outcome = _error(NotFoundError, 404)
        elif stored.uid != binding.uid or stored.node is not None:
            binding.outcome = _error(ConflictError, 409)
        else:
            self.bind(binding.name, binding.node)

    def lost(self, number: int) -> None:
        """Let the server carry out a Binding, and lose the answer."""
        self.events -= 1
        self.looked_at(number)
        self.bindings[number].outcome = _error(UnansweredError, None)
        self.answered(number)

    def failed(self, number: int) -> None:
        """Let the server fail before it has bound the pod."""
        self.events -= 1
        self.bindings[number].outcome = _error(ServerError, 500)
        self.answered(number)

    def answered(self, number: int) -> None:
        binding = self.bindings.pop(number)
        if binding.outcome is None:
            binding.answer.set_result(b"{}")
        else:
            binding.answer.set_exception(binding.outcome)

    def time_passes(self) -> None:
        """Advance the time to the end of the next timer."""
        self.loop.advance(self.loop.due()[0])

    def five_minutes_pass(self) -> None:
        """Advance the time by five minutes, and run the periodic work of the housekeeping."""
        self.flushed = True
        self.loop.advance(UNSCHEDULABLE_TIMEOUT)
        with self.loop.entered():
            self.engine.loop.schedule_one.expire_nominations()
            self.enqueuer.flush()

    # What is true

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight, no timer ends soon, and no pod is to be tried."""
        due = self.loop.due()
        if self.bindings or any(self.untold.values()) or (due and due[0] < _IDLE):
            return False
        counts = self.scheduler.queue.counts()
        return not (counts[SubQueue.ACTIVE] or counts[SubQueue.BACKOFF])

    def fingerprint(self) -> bytes:
        """Return a digest that is equal for states with the same possible future.

        It includes the positions and the variables of coroutines. The state of the cluster follows
        from its pods, nominations, groups and nodes, as tests/property checks.
        """
        scheduler = self.scheduler
        state = scheduler.state
        seen = Fingerprint(scheduler.queue, self.loop.now)
        one = attributes(self.engine.loop.schedule_one)
        placed = [
            (p.pod.uid, p.row, p.assumed, p.announced, p.deadline is None) for p in state.pods
        ]
        known = [
            (g.key.name, g.definition, *map(tuple, (g.unscheduled, g.assumed, g.assigned)))
            for g in scheduler.cluster.pod_groups
        ]
        nominated = [(n.pod.uid, n.row) for n in state.nominations]
        parts = [one[name] for name in ("_reservation", "_backoffs", "_calling")]
        binding = list(scheduler.being_bound.items()), list(scheduler.in_pre_bind)
        outside = [
            [(s.uid, s.node, s.label, s.group) for s in self.pods.values()],
            [(n.name, n.cpu, n.cordoned) for n in self.nodes.values()],
            [(b.uid, b.node, b.carried_out, type(b.outcome).__name__) for b in self.bindings],
            [[what for what, _ in untold] for untold in self.untold.values()],
            (self.minimum, self.groups, self.events, self.flushed, self.others_bind),
            (sorted(self.befallen), sorted(self.sent), sorted(scheduler.without_profile)),
            (sorted(state.nodes.row_of.items()), one["_start"]),
        ]
        timers = [seen.of(self.loop.now + due) for due in self.loop.due()]
        tasks = [seen.frames(task.get_coro()) for task in self.loop.tasks]
        return seen.digest(
            scheduler.queue, placed, known, nominated, parts, binding, outside, timers, tasks
        )

    def check(self) -> None:
        """Raise Broken if a rule is broken."""
        if trouble := [*self.broken, *self.loop.failures, *_ERRORS.messages]:
            raise Broken(trouble[0])
        scheduler, held = self.scheduler, set(self.scheduler.being_bound)
        assumed = {placed.pod.uid for placed in scheduler.state.pods if placed.assumed}
        if not any(self.untold.values()):
            self.check_places(held)
            self.check_gone(held)
            held |= {each.uid for each in self.pods.values() if each.node is not None}
            if left := sorted(assumed - held):
                raise Broken(f"pod {left[0]} is assumed, and nobody binds it")
        self.check_books()
        if self.at_rest:
            self._check_at_rest()

    def _check_at_rest(self) -> None:
        scheduler = self.scheduler
        if flying := [each.pod.uid for each in scheduler.queue.in_flight]:
            raise Broken(f"pod {flying[0]} is in flight, and no attempt about it runs")
        if scheduler.being_bound or len(scheduler.waiting):
            raise Broken("a binding has not ended")
        members = [each for each in self.pods.values() if each.group == "g"]
        waiting = [each for each in members if each.node is None]
        complete = self.minimum is not None and len(members) >= self.minimum
        for nominee in scheduler.state.nominations:
            if nominee.pod.uid not in {each.uid for each in waiting} or not complete:
                raise Broken(f"a node is reserved for pod {nominee.pod.uid}, whose group is gone")
        if not len(scheduler.state.nominations):
            self.check_nobody_sleeps()
        if not complete or not waiting or self.minimum is None:
            return
        needed = max(1, self.minimum - (len(members) - len(waiting)))
        fit = sum(max(self.free(n), 0) for n, each in self.nodes.items() if not each.cordoned)
        if needed <= min(len(waiting), fit):
            where = {each.uid: self._queue_of(each.uid) for each in waiting}
            raise Broken(f"{needed} members are enough and fit, and are left waiting: {where}")

    def _queue_of(self, uid: Uid) -> str | None:
        queued = self.scheduler.queue.get(uid)
        return str(queued.queue) if queued is not None else None
