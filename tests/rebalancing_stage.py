"""A cluster with pods of a ReplicaSet, an engine over it, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from background import in_background
from kube.api_server import Request
from kube.virtual_clock import VirtualClock
from mooring.framework.decision import PodRef
from mooring.kube.client import ApiClient
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_pod_disruption_budget
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.plan import Move, Plan, Step
from mooring.rebalancing.profile_rebalancing import LOOK_SECONDS
from mooring.rebalancing.record import whole
from mooring.rebalancing.running_step import RunningStep
from mooring.rebalancing.under_way import UnderWay
from mooring.run.build import Engine
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf
from mooring.testing.builders import cluster, node, pod, uid_of
from scheduler_states import SHIPPED_ONLY, put_profile

Raw = dict[str, Any]
OWNER: Final = {"kind": "ReplicaSet", "name": "web", "uid": "rs-web", "apiVersion": "apps/v1"}
OLD: Final = "1970-01-01T00:00:00Z"
READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}
UID: Final = "uid-of-profile"
PROFILE: Final = {"metadata": {"uid": UID, "resourceVersion": "1"}}
WAIT_SECONDS: Final = 60.0
APPLY: Final = {"mode": "Apply", "goals": ["Pack"], "intervalSeconds": 300}


def running(name: str, node_name: str, *, owner: Mapping[str, str] = OWNER, **fields: Any) -> Raw:
    """Return a ready pod of a controller on this node."""
    shown = {"cpu": "1", "labels": {"app": "web"}, "status": READY, "created": OLD, **fields}
    return pod(name, node=node_name, owner=owner, phase="Running", **shown)


class Stage:
    """Two nodes of four cores, and the objects that a test adds.

    Attributes:
        steps: The steps of the next plan.
        resting: The uids that the last plan was told not to move.
        examined: How many pods a plan examines before its budget is spent; None: no limit.
    """

    def __init__(
        self,
        client: ApiClient,
        *objects: Raw,
        clock: VirtualClock | None = None,
        **section: Any,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.steps: list[Step] = []
        self.plans = 0
        self.breaks = False
        self.examined: int | None = None
        self.resting: frozenset[str] = frozenset()
        parts = self.parts = Engine(
            client,
            cluster(node("a"), node("b"), *objects),
            SHIPPED_ONLY,
            identity="test",
            make_plan=self._make_plan,
            clock=self.clock,
            now=self.clock,
            sleep=self.clock.sleep,
        )
        self.scheduler, self.state = parts.scheduler, parts.scheduler.state
        self.rebalancer, self.expected = parts.rebalancer, parts.expected
        self.entry = self.put_profile(**section)
        parts.profile_writer.seen(self.entry.profile.name, UID, "1")

    def put_profile(self, *, profile_mode: str = "Active", **section: Any) -> ActiveProfile:
        own = {**APPLY, **section}
        self.entry = put_profile(self.scheduler, mode=profile_mode, rebalancing=own)
        self.parts.pod_enqueuer.profiles_changed()
        return self.entry

    def put_profile_without_section(self) -> None:
        """Put the profile in force without a section `rebalancing`."""
        self.entry = put_profile(self.scheduler)

    def _make_plan(
        self,
        _entry: ActiveProfile,
        _section: Rebalancing,
        resting: Collection[str],
        _position: int,
    ) -> Plan:
        pause()
        self.plans += 1
        if self.breaks:
            raise ValueError("broken")
        self.resting = frozenset(resting)
        steps, self.steps = self.steps, []
        pods = len(self.state.pods)
        return Plan(tuple(steps), pods, self.examined, spent=self.examined is not None)

    def placed(self, name: str) -> Pod:
        """Return the placed pod of this name from the state."""
        found = self.state.pods.get(uid_of(name))
        assert found is not None
        return found.pod

    def move(self, name: str, target: str) -> Move:
        found = self.placed(name)
        return Move(found, found.node_name or "", target)

    def step(self, *moves: Move, group: str = "") -> Step:
        return Step(Goal.PACK, moves, "node a is emptied", 1000, group=group)

    def room(self, waiting: Pod, on: str, *moves: Move) -> Step:
        """Return a step with these moves, after which the waiting pod fits on the node."""
        step = replace(self.step(*moves), goal=Goal.MAKE_ROOM, reason=f"{waiting.key} fits then")
        return replace(step, fits=(PodRef.of(waiting),), nodes=(on,))

    def emptying(self, name: str, *moves: Move) -> Step:
        """Return a step with these moves, after which the node `name` is empty."""
        return replace(self.step(*moves), emptied=(name,))

    def keep(self, name: str, target: str, step: Step | None = None) -> UnderWay:
        """Reserve room on `target` for the replacement of the pod; return the move."""
        move = self.move(name, target)
        under_way = UnderWay(move, step or self.step(move), "default-scheduler", self.clock())
        self.expected.moves.append(under_way)
        self.expected.keep(under_way)
        return under_way

    def running(self, step: Step) -> RunningStep:
        """Return the step as a RunningStep of the profile."""
        section = self.entry.profile.spec.rebalancing
        assert section is not None
        return RunningStep(step, self.entry, section, self.scheduler, self.expected)

    def show(self, raw: Raw) -> None:
        """Put the pod into the state, as the watch of assigned pods does."""
        shown = parse_pod(raw)
        self.state.put(Kind.POD, shown.uid, shown)

    def pending(self, raw: Raw) -> Pod:
        """Pass a pod without a node to the pod enqueuer, as kopf does; return the parsed pod."""
        shown = parse_pod(raw)
        self.parts.pod_enqueuer.pending(shown)
        return shown

    def come(self, name: str, **fields: Any) -> Pod:
        """Pass a new pod of the ReplicaSet to the pod enqueuer; return the parsed pod."""
        shown = {"cpu": "1", "labels": {"app": "web"}, "owner": OWNER, **fields}
        return self.pending(pod(name, **shown))

    def add_node(self, name: str) -> None:
        """Put one more node into the state."""
        self.state.put(Kind.NODE, name, parse_node(node(name)))

    def put_budget(self, raw: Raw) -> None:
        """Put this disruption budget into the state."""
        budget = parse_pod_disruption_budget(raw)
        self.state.put(Kind.POD_DISRUPTION_BUDGET, budget.key, budget)

    def gone(self, name: str) -> None:
        """Remove the placed pod from the state, as the watch does when it was deleted."""
        self.state.delete(Kind.POD, uid_of(name))

    def nominated(self) -> dict[str, str]:
        """Return the node of each nomination, by the uid of the pod."""
        nominations, names = self.state.nominations, self.state.nodes.names
        return {nominee.pod.uid: names[nominee.row] for nominee in nominations}

    def what_fits(self, raw: Raw) -> set[str]:
        what_if = WhatIf(ResultCache(self.scheduler.cluster))
        rows = what_if.feasible_rows(parse_pod(raw), self.entry.pipeline)
        return {self.state.nodes.names[row] for row in rows.tolist()}

    def as_pending(self, name: str) -> Pod:
        """Return the placed pod as if it had no node."""
        return replace(self.placed(name), node_name=None)

    @property
    def message(self) -> str:
        """The message about the rebalancing of the only profile, with the names of pods."""
        return whole(self.rebalancer.report()[0].message)

    def replaced(self, name: str, node: str = "b", **fields: Any) -> None:
        """Remove the pod, and add its ready replacement on the node."""
        self.gone(name)
        self.come(f"{name}-new", **fields)
        self.show(running(f"{name}-new", node, **fields))


class Api:
    """Answers writes; keeps the statuses of profiles, the evictions and the events.

    Attributes:
        statuses: The section `rebalancing` of each written profile status.
        evicted: The names of the pods whose evictions were sent.
        refuse_status: Whether writes of statuses fail.
        evict: Is called with the name of each evicted pod.
        answers: Functions that answer the eviction of a pod, by the pod's name.
        held: Unanswered writes of statuses; None: each write is answered at once.
    """

    def __init__(self) -> None:
        self.statuses: list[Raw] = []
        self.evicted: list[str] = []
        self.events: list[Raw] = []
        self.refuse_status = False
        self.answers: dict[str, Callable[[Request], object]] = {}
        self.held: list[Request] | None = None
        self.evict: Callable[[str], object] = lambda _name: None

    @property
    def status(self) -> Raw:
        """The last written status; empty before the first write."""
        return self.statuses[-1] if self.statuses else {}

    def __call__(self, request: Request) -> None:
        """Answer one request, and record it."""
        if "/schedulingprofiles/" in request.path:
            self._write_status(request)
            return
        if request.path.endswith("/eviction"):
            name = request.path.split("/")[-2]
            self.evicted.append(name)
            if name in self.answers:
                self.answers[name](request)
                return
            self.evict(name)
        elif "/events" in request.path:
            self.events.append(request.body)
        elif request.method == "GET":
            self.answers["GET"](request)
            return
        request.reply({}, 201)

    def _write_status(self, request: Request) -> None:
        if self.refuse_status:
            request.refuse(403, "Forbidden", "no")
            return
        self.statuses.append(request.body["status"]["rebalancing"])
        if self.held is not None:
            self.held.append(request)
        else:
            request.reply(PROFILE)


@asynccontextmanager
async def working(stage: Stage) -> AsyncIterator[None]:
    """Run the rebalancer and the event recorder inside; check at the end that nothing is kept."""
    async with in_background(stage.rebalancer.run(), stage.parts.recorder.run()):
        yield
    assert (stage.nominated(), len(stage.expected.moves)) == ({}, 0)


async def until(stage: Stage, holds: Callable[[], object], *, within: float = 3600.0) -> None:
    """Advance the clock in small steps until `holds` returns True, at most `within` seconds."""
    async with asyncio.timeout(WAIT_SECONDS):
        end = stage.clock.time + within
        while not holds():
            assert stage.clock.time < end, "it does not come about"
            await stage.clock.sleepers(seconds=None)
            await stage.clock.advance(LOOK_SECONDS)
            for _ in range(30):
                await asyncio.sleep(0)
