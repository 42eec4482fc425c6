"""A page over a cluster with many problems, served in a thread for a browser.

The cluster has 1,000 nodes, 1,970 running pods and 410 pending pods with one decision each.
"""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.kube.timestamps import rfc3339
from mooring.model.pod import parse_pod
from mooring.observe.http import Endpoints
from mooring.page.queue_view import Queue
from mooring.page.routes import Page
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.plan import Move, Plan, Step
from mooring.rebalancing.report import RebalancingReport, plan_report
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError, decision_of
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod, queue_object, uid_of
from pages import page, page_endpoints
from scheduler_states import put_profile, scheduler_state
from served_endpoints import Rights

GPU: Final = "nvidia.com/gpu"
HOUR: Final = 1_780_000_000
"""When the hour ends that the chart shows, in seconds since the epoch."""
PACKED: Final = {"scoringStrategy": {"type": "MostAllocated"}}
"""Arguments of a plugin of the profile "packed"."""
EVIL: Final = "<img src=x onerror=document.title='owned'>"
LONG: Final = "the-name-of-a-team-that-is-as-long-as-clouds-make-them"
"""A namespace."""


def cluster_in_trouble() -> Page:
    """Return the page of this cluster, with the counts of an hour."""
    shared = _decided()
    log = shared.decisions
    counted = itertools.count()
    queue = Queue(
        shared,
        bound=lambda: 0,
        clock=lambda: 0.0,
        now=lambda: HOUR - 3590 + 10 * next(counted),
    )
    for _ in range(360):
        queue.sample()
    plans = [_plan(shared)]
    return page(shared, log, queue=queue, objects=_stored(), plans=plans, now=2.0 * HOUR)


def _plan(shared: SchedulerState) -> RebalancingReport:
    """Return a plan that empties nodes, makes room and refuses pods; one of its moves has ended."""
    steps = []
    for source, target in (("general-0882", "general-0880"), ("general-0887", "general-0881")):
        moves = tuple(_moves(shared, source, target))
        steps.append(Step(Goal.PACK, moves, f"{source} is empty", 1000, emptied=(source,)))
    waiting = PodRef("ml", "train-resnet-007", uid_of("train-resnet-007", "ml"))
    (first, *_) = _moves(shared, "general-0100", "general-0890")
    reason = TextAboutPods(f"{waiting.key} fits on general-0100", (waiting,), "a pod fits")
    steps.append(Step(Goal.MAKE_ROOM, (first,), reason, 1000, fits=(waiting,)))
    refused = {"has a disruption budget that allows no eviction now": 12, f"is {LONG} {EVIL}": 1}
    found = Plan(tuple(steps), pods=2000, examined=1500, refused=refused, spent=True)
    published = plan_report("packed", Rebalancing(), found, rfc3339(HOUR))
    message = "the replacement of a pod was bound to another node: planned anew in 5 minutes"
    return RebalancingReport("packed", "Apply", message, 1, 1, published.steps[1:2], published)


def _moves(shared: SchedulerState, source: str, target: str) -> Iterator[Move]:
    for placed in shared.cluster.pods_of(source):
        yield Move(placed.pod, source, target)


def _stored() -> Iterator[dict[str, Any]]:
    """Yield a stored pod and an event about it, both with texts that look like markup."""
    found = next(_pending())
    found["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    found["metadata"]["annotations"] = {"note": EVIL, "script": "set -e\nexit 1\n"}
    yield found
    yield {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "ml", "creationTimestamp": "2026-06-01T10:00:00Z"},
        "involvedObject": {"kind": "Pod", "uid": found["metadata"]["uid"]},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": f"0/1000 nodes are available: {EVIL}",
        "count": 7,
        "source": {"component": "mooring"},
    }


def _decided() -> SchedulerState:
    """Return the state, after one decision about each of its pending pods."""
    shared = scheduler_state(*_nodes(), *_running(), *_devices(), *_queues())
    pipeline = put_profile(shared, "default-scheduler").pipeline
    put_profile(
        shared,
        "packed",
        pluginConfig=[{"name": "NodeResourcesFit", "args": PACKED}],
        rebalancing={"mode": "Apply", "goals": ["Violations", "Pack", "MakeRoom"]},
    )
    log, cache = shared.decisions, ResultCache(shared.cluster)
    for number, raw in enumerate(_pending()):
        waiting = parse_pod(raw)
        began = -float(number % 90 * 60)
        shared.queue.add(waiting, pipeline, began, gated=bool(waiting.spec.gates))
        if waiting.spec.gates:
            continue
        popped = shared.queue.pop(0.0)
        assert popped is not None
        outcome = decide(waiting, pipeline, cache, seed=0, start=0, now=0.0)
        assert isinstance(outcome, FitError), raw
        log.decided(decision_of(waiting, pipeline, outcome), 0.0, cause=outcome.cause)
        popped.times.enter(PodState.UNSCHEDULABLE, 0.0)
        shared.queue.add_unschedulable(popped, frozenset(outcome.diagnosis.plugins), 0.0)
    return shared


def _nodes() -> Iterator[dict[str, Any]]:
    for number in range(1000):
        gpus = number >= 900
        yield node(
            f"{'gpu' if gpus else 'general'}-{number:04}",
            cpu="64" if gpus else "16",
            memory="256Gi" if gpus else "64Gi",
            resources={GPU: 8} if gpus else None,
            zone=f"eu-west-1{'abc'[number % 3]}",
            labels={"karpenter.sh/nodepool": "gpu" if gpus else "general"},
            unschedulable=number in range(10),
            conditions={"Ready": "False"} if number in (17, 340) else None,
        )


def _running() -> Iterator[dict[str, Any]]:
    for number in range(2000):
        place = number % 1000
        if 880 <= place < 900:
            continue
        gpus = {GPU: 8} if place >= 900 and number < 1000 else None
        kind = {"kind": "ReplicaSet", "name": f"web-{number % 9}", "uid": f"rs-{number % 9}"}
        yield pod(
            f"web-{number % 9}-5d4f8b7c9d-{number:05}",
            namespace="shop",
            cpu=str(1 + number % 7),
            memory="4Gi",
            requests=gpus,
            node=f"{'gpu' if place >= 900 else 'general'}-{place:04}",
            owner=kind,
        )

    for number in range(10):
        owner = {"kind": "Job", "name": "nightly", "uid": "nightly"}
        yield pod(
            f"nightly-{number}",
            namespace="batch",
            cpu="1",
            memory="1Gi",
            node=f"general-{880 + number:04}",
            owner=owner,
        )


def _pending() -> Iterator[dict[str, Any]]:
    job = {"kind": "Job", "name": "train-resnet", "uid": "job"}
    for number in range(104):
        yield pod(
            f"train-resnet-{number:03}", namespace="ml", cpu="4", requests={GPU: 8}, owner=job
        )
    for number in range(150):
        yield pod(f"huge-{number:03}", namespace=LONG, cpu="96", priority=1000)
    for number in range(90):
        claims = [{"name": "gpu", "resourceClaimName": "large-gpu"}] if number == 7 else []
        spec = {"resourceClaims": claims}
        yield pod(f"db-{number:03}", namespace="bank", node_selector={"disk": "ssd"}, spec=spec)
    for number in range(66):
        yield pod(f"held-{number:03}", namespace="shop", gates=["example.com/quota"])


def _queues() -> Iterator[dict[str, Any]]:
    """Yield a tree of Queues with their statuses; one Queue is not ready."""
    amounts = ("nominal", "used", "borrowed", "lent")
    for name, parent, waiting, share, gpus, memory in (
        ("research", "", 104, "0", "80 80 0 0", "3Ti 1536Gi 0 0"),
        ("images", "research", 104, "0", "32 8 0 24", "2Ti 512Gi 0 0"),
        (LONG, "research", 0, "0.3", "16 40 24 0", "1Ti 1Ti 0 0"),
        ("speech", "research", 0, "0", "32 32 0 0", "0 0 0 0"),
    ):
        used = zip((GPU, "memory"), (gpus.split(), memory.split()), strict=True)
        resources = [{"name": r, **dict(zip(amounts, each, strict=True))} for r, each in used]
        ready = [{"type": "Ready", "status": "True", "reason": "InForce", "message": "in force"}]
        counts = {"pods": 10, "waiting": waiting, "share": share}
        status = {"conditions": ready, "resources": resources, **counts}
        yield queue_object(name, parent=parent, status=status)
    wrong = f"spec.parent: queue {EVIL} does not exist"
    condition = {"type": "Ready", "status": "False", "reason": "Invalid", "message": wrong}
    yield queue_object("lost", parent="gone", status={"conditions": [condition]})


def _devices() -> Iterator[dict[str, Any]]:
    """Yield a node's devices, a claim with one of them, and a claim that gets no device."""
    sick = [{"key": "health.example.com/xid-error", "value": "79", "effect": "NoExecute"}]
    memory = {"memory": {"value": "80Gi"}}
    model = {"model": "h100-sxm5-80gb"}
    devices = [device(f"gpu-{n}", attributes=model, capacity=memory) for n in range(3)]
    devices.append(device("gpu-3", attributes=model, capacity=memory, taints=sick))
    yield device_class("gpu")
    yield resource_slice("s", devices, node="gpu-0917")
    allocation = allocated("gpu-1", node="gpu-0917")
    yield device_claim("vision", namespace="ml", allocation=allocation, reserved_for=["vision-0"])
    larger = "device.capacity['gpu.example.com'].memory.compareTo(quantity('90Gi')) > 0"
    wanted = request("large", selectors=[{"cel": {"expression": larger}}])
    yield device_claim("large-gpu", wanted, namespace="bank")


class Stage:
    """The page, served at `url` by a thread of its own until `close`."""

    def __init__(self, shown: Page, rights: Rights | None = None) -> None:
        self._shown = shown
        self._rights = rights
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._serving: Endpoints | None = None
        self.port = 0
        self.serve()

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"https://127.0.0.1:{self.port}/ui/"

    def serve(self) -> None:
        """Serve the page at its former port."""
        self._serving = page_endpoints(self._shown, self._rights)
        self.port = self._run(self._serving.start("127.0.0.1", self.port))

    def stop(self) -> None:
        """Stop serving the page, until `serve` is called."""
        serving, self._serving = self._serving, None
        if serving is not None:
            self._run(serving.stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@contextmanager
def staged(shown: Page, rights: Rights | None = None) -> Iterator[Stage]:
    """Yield a Stage that serves the page inside this context."""
    stage = Stage(shown, rights)
    try:
        yield stage
    finally:
        stage.close()
