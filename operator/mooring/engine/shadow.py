"""Decides about pods that another scheduler binds, for comparison only (profiles with mode Shadow).

A pod is decided once the watch shows it bound, on the cluster as it was before: without the pod and
without the pods that were bound after it. So both schedulers have seen the same pods. The other
scheduler's binding alone counts; a decision of a shadow profile changes nothing in the state that
other decisions see.

Everything here runs on the event loop's thread.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from mooring.engine.cycle import decide, tie_break_seed
from mooring.engine.outcome import FitError, ScheduleResult
from mooring.engine.profiles import InForce
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.decision import NodeScore
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.kube.resources import SCHEDULING_PROFILE
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.observe.metrics import Metrics

__all__ = ["COMPARED", "Shadow", "ShadowStatusWriter"]

logger = logging.getLogger(__name__)

COMPARED: Final = ("same", "tied", "different", "rejected", "unschedulable")
"""The results of comparisons.

same: both chose the node. tied: the nodes have equal scores. different: the profile's node has a
higher score. rejected: a plugin of the profile rejects the pod's node. unschedulable: the profile
finds no node.
"""

_CHOICES: Final = ("bound", "shadow")
"""By whom a node was chosen: the scheduler that bound the pod, and the profile."""
_MOST_WAITING: Final = 512
"""Bound pods that wait to be compared; when more come, the first ones are not compared."""
_MOST_RECORDS: Final = 1000
_MOST_PENDING: Final = 1000
"""Pending pods that are looked at, and uids that are remembered."""
_SHOWN_SECONDS: Final = 10.0
"""How long after its binding a pod may take to be shown as one that was pending."""
_PENDING_SECONDS: Final = 30.0
"""A pod that is not bound after this time is decided, too."""
_LOOK_SECONDS: Final = 10.0
"""How often pending pods are looked at."""
_STATUS_SECONDS: Final = 10.0
"""How often the statuses are written."""


@dataclass(slots=True, eq=False)
class _BoundPod:
    """A pod that was bound; without `profile` it is only one that later decisions must not see.

    `was_pending` says that it has been seen without a node: others, such as static pods, had a node
    from the beginning, and no scheduler chose it.
    """

    pod: Pod
    profile: InForce | None
    since: float
    was_pending: bool


@dataclass(slots=True, eq=False)
class _Summary:
    """What the comparisons of a profile have shown since it is in force."""

    profile: InForce
    pipeline: Pipeline
    since: float
    results: Counter[str] = field(default_factory=Counter)
    """Pods by result: those of `COMPARED`, and pending, error and missed."""
    nodes: int = 0
    """Pods that are in the sums: those for which both have a node."""
    utilization: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CHOICES, 0.0))
    balance: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CHOICES, 0.0))


class Shadow:
    """Compares what the profiles in mode Shadow decide with the nodes that pods were bound to.

    `wake` is called when there may be work for `compare`. `clock` is monotonic, `now` is the time
    since the epoch, both in seconds.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        metrics: Metrics,
        *,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._metrics = metrics
        self._wake = wake
        self._clock = clock
        self._now = now
        self._results = ResultCache(scheduler.state.nodes)
        self._start = 0
        self._bound: deque[_BoundPod] = deque()
        self._left: OrderedDict[str, None] = OrderedDict()
        self._pending: dict[str, float | None] = {}
        self._look_at = 0.0
        self._due: deque[Pod] = deque()
        self._summaries: dict[str, _Summary] = {}
        self._records: deque[dict[str, Any]] = deque(maxlen=_MOST_RECORDS)

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Notes the pods that are bound now."""
        if not self._scheduler.profiles.has_shadows:
            self._bound.clear()
            return
        for event in events:
            if event.kind is Kind.POD and event.action is Action.ADD:
                self._note(event.after)

    def left(self, uid: str) -> None:
        """The pod is shown no more among those without a node, so it was pending."""
        if not self._scheduler.profiles.has_shadows:
            return
        for bound in self._bound:
            if bound.pod.uid == uid:
                bound.was_pending = True
                self._wake()
                return
        self._left[uid] = None
        if len(self._left) > _MOST_PENDING:
            self._left.popitem(last=False)

    def compare(self, until: float) -> bool:
        """Decides about some pods, those bound last first; returns False if there are none.

        Begins no decision after `until`, but makes one at least.
        """
        now = self._clock()
        self._drop_settled(now)
        if not any(_is_due(bound) for bound in self._bound):
            return self._decide_pending(now, until)
        with self._scheduler.state.trial() as trial:
            for bound in reversed(self._bound):
                placed = self._scheduler.state.pods.get(bound.pod.key)
                if placed is not None and placed.pod.uid == bound.pod.uid:
                    trial.remove(bound.pod.key)
                if _is_due(bound):
                    self._compare(bound)
                    if self._clock() >= until:
                        break
        self._drop_settled(now)
        return True

    def statuses(self) -> Mapping[str, dict[str, Any]]:
        """By name of each shadow profile, its comparisons as its status shows them."""
        found = {}
        for name, entry in self._scheduler.profiles.in_force.items():
            if entry.profile.spec.mode == "Shadow":
                found[name] = _status(self._summary(entry))
        return found

    def report(self, namespace: str = "") -> dict[str, Any]:
        """The profiles with their statuses, and the last 1,000 pods, newest first.

        Args:
            namespace: Whose pods; empty for all.
        """
        prefix = f"{namespace}/" if namespace else ""
        pods = [record for record in reversed(self._records) if record["pod"].startswith(prefix)]
        return {"profiles": self.statuses(), "pods": pods}

    def _note(self, pod: object) -> None:
        if not isinstance(pod, Pod) or pod.node_name is None:
            return
        scheduler = self._scheduler
        profile = scheduler.profiles.shadow_of(pod, scheduler.cluster)
        if profile is None and not self._bound:
            return
        pending = scheduler.without_profile.get(pod.key)
        was_pending = pending is not None and pending.uid == pod.uid
        if pod.uid in self._left:
            del self._left[pod.uid]
            was_pending = True
        if profile is not None:
            self._summary(profile)
        self._bound.append(_BoundPod(pod, profile, self._clock(), was_pending))
        if len(self._bound) > _MOST_WAITING:
            first = self._bound.popleft()
            if _is_due(first) and first.profile is not None:
                self._count(first.profile, "missed")
        self._wake()

    def _drop_settled(self, now: float) -> None:
        """Forgets bound pods that no later decision needs: those before the first undecided one."""
        while self._bound:
            first = self._bound[0]
            undecided = first.profile is not None and self._is_in_force(first.profile)
            if undecided and (first.was_pending or now - first.since < _SHOWN_SECONDS):
                return
            self._bound.popleft()

    def _is_in_force(self, profile: InForce) -> bool:
        return self._scheduler.profiles.in_force.get(profile.profile.name) is profile

    def _decide_pending(self, now: float, until: float) -> bool:
        """Decides about pods that have not been bound for long."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._look(now)
        decided = False
        while self._due and not (decided and self._clock() >= until):
            pod = self._due.popleft()
            waiting = self._scheduler.without_profile.get(pod.key)
            if waiting is not None and waiting.uid == pod.uid:
                self._decide_one_pending(pod)
                decided = True
        return decided

    def _look(self, now: float) -> None:
        """Notes since when pods are pending; each that is for long is due once."""
        pods: Iterable[Pod] = ()
        if self._scheduler.profiles.has_shadows:
            pods = islice(self._scheduler.without_profile.values(), _MOST_PENDING)
        known, self._pending = self._pending, {}
        for pod in pods:
            since = self._pending[pod.uid] = known.get(pod.uid, now)
            if since is not None and now - since >= _PENDING_SECONDS:
                self._pending[pod.uid] = None
                self._due.append(pod)

    def _decide_one_pending(self, pod: Pod) -> None:
        profile = self._scheduler.profiles.shadow_of(pod, self._scheduler.cluster)
        outcome = self._decide(profile, pod) if profile is not None else None
        if profile is None or outcome is None:
            return
        chosen = outcome if isinstance(outcome, ScheduleResult) else None
        message = outcome.message if isinstance(outcome, FitError) else None
        scores = {chosen.node: chosen.score_of(chosen.row)} if chosen is not None else {}
        self._record(profile, pod, "pending", chosen, None, scores, message)

    def _compare(self, bound: _BoundPod) -> None:
        """Decides about a bound pod; the trial has removed it and those bound later."""
        profile, bound.profile = bound.profile, None
        node = bound.pod.node_name
        if profile is None or node is None or not self._is_in_force(profile):
            return
        outcome = self._decide(profile, replace(bound.pod, node_name=None))
        if outcome is None:
            return
        if isinstance(outcome, FitError):
            self._record(profile, bound.pod, "unschedulable", None, node, {}, outcome.message)
            return
        row = self._scheduler.state.nodes.row_of.get(node)
        scores = {outcome.node: outcome.score_of(outcome.row)}
        message = None
        if outcome.node == node:
            result = "same"
        else:
            scores[node] = outcome.score_of(row) if row is not None else None
            message = _rejection(outcome, row) if scores[node] is None else None
            totals = {score.total for score in scores.values() if score is not None}
            tied = scores[node] is not None and len(totals) == 1
            result = "rejected" if message is not None else "tied" if tied else "different"
        if row is not None:
            self._measure(profile, bound.pod, row, outcome.row)
        self._record(profile, bound.pod, result, outcome, node, scores, message)

    def _decide(self, profile: InForce, pod: Pod) -> "ScheduleResult | FitError | None":
        """The decision, without preemption; None if a plugin fails, which is counted."""
        scheduler = self._scheduler
        if pod.limit_exceeded is not None:
            self._count(profile, "error")
            return None
        try:
            outcome = decide(
                pod,
                self._summary(profile).pipeline,
                scheduler.cluster,
                self._results,
                seed=tie_break_seed(pod.uid, 1),
                start=self._start,
                now=self._now(),
            )
        except Exception as error:
            if not isinstance(error, PluginFailed):
                logger.exception("the shadow decision about pod %s failed", pod.key)
            logger.debug("no shadow decision about pod %s: %s", pod.key, text_of(error))
            self._count(profile, "error")
            return None
        if isinstance(outcome, ScheduleResult):
            self._start = (self._start + outcome.evaluated_nodes) % scheduler.cluster.node_count
        return outcome

    def _summary(self, profile: InForce) -> _Summary:
        """The summary of the profile; a profile that was changed begins anew."""
        known = self._summaries.get(profile.profile.name)
        if known is None or known.profile is not profile:
            # Which pods would be evicted is nobody's question here, and takes long to find out.
            pipeline = replace(profile.pipeline, post_filter=())
            known = _Summary(profile, pipeline, self._now())
            self._summaries = {
                name: summary
                for name, summary in self._summaries.items()
                if self._is_in_force(summary.profile)
            }
            self._summaries[profile.profile.name] = known
        return known

    def _count(self, profile: InForce, result: str) -> None:
        self._summary(profile).results[result] += 1
        self._metrics.shadow_decided(profile.profile.name, result)

    def _measure(self, profile: InForce, pod: Pod, bound_row: int, shadow_row: int) -> None:
        """Adds how full and how evenly used each of the two nodes is with the pod."""
        summary = self._summary(profile)
        summary.nodes += 1
        for choice, row in zip(_CHOICES, (bound_row, shadow_row), strict=True):
            utilization, balance = self._usage(pod, row)
            summary.utilization[choice] += utilization
            summary.balance[choice] += balance
            self._metrics.shadow_node(profile.profile.name, choice, utilization, balance)

    def _usage(self, pod: Pod, row: int) -> tuple[float, float]:
        """Utilization and balance of the node with the pod, from cpu and memory requests.

        Utilization is the mean of the requested fractions of both; balance is one minus their
        standard deviation, as in NodeResourcesBalancedAllocation.
        """
        nodes = self._scheduler.cluster.nodes
        fractions = []
        for resource in ("cpu", "memory"):
            amount = pod.shape.demand.resources.get(resource, 0)
            requested = int(nodes.requested(resource)[row]) + amount
            fractions.append(min(1.0, requested / max(1, int(nodes.allocatable(resource)[row]))))
        first, second = fractions
        return (first + second) / 2, 1 - abs(first - second) / 2

    def _record(
        self,
        profile: InForce,
        pod: Pod,
        result: str,
        chosen: ScheduleResult | None,
        bound: str | None,
        scores: Mapping[str, NodeScore | None],
        message: str | None,
    ) -> None:
        self._count(profile, result)
        self._records.append(
            {
                "time": _iso(self._now()),
                "pod": pod.key,
                "profile": profile.profile.name,
                "result": result,
                "node": chosen.node if chosen is not None else None,
                "boundNode": bound,
                "scores": {
                    node: {"plugins": dict(score.plugins), "total": score.total}
                    for node, score in scores.items()
                    if score is not None
                },
                "message": message,
            }
        )


class ShadowStatusWriter:
    """Writes what the comparisons show into the status of each profile in mode Shadow."""

    def __init__(
        self,
        shadow: Shadow,
        client: ApiClient,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._shadow = shadow
        self._client = client
        self._sleep = sleep
        self._written: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        """Writes until cancelled, where something has changed."""
        while True:
            await self._sleep(_STATUS_SECONDS)
            statuses = dict(self._shadow.statuses())
            self._written = {n: w for n, w in self._written.items() if n in statuses}
            for name, status in statuses.items():
                if self._written.get(name) != status:
                    await self._write(name, status)

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        patch = {"status": {"shadow": status}}
        try:
            await self._client.patch(SCHEDULING_PROFILE, name, patch, subresource="status")
        except NotFoundError:
            return  # kopf will tell that it was deleted
        except ApiError as error:
            logger.warning("the status of profile %s was not written: %s", name, explain(error))
        else:
            self._written[name] = status


def _is_due(bound: _BoundPod) -> bool:
    return bound.profile is not None and bound.was_pending


def _rejection(outcome: ScheduleResult, row: int | None) -> str | None:
    """Which plugin rejects the row, and why; None if none does."""
    for group in outcome.diagnosis().rejected:
        for index in (group.rows == row).nonzero()[0].tolist():
            return f"{group.plugin}: {', '.join(group.explanation.reasons_at(index))}"
    return None


def _status(summary: _Summary) -> dict[str, Any]:
    """The summary as `ShadowStatus` of `mooring.policy.status`; percentages are rounded."""
    results, nodes = summary.results, summary.nodes
    return {
        "since": _iso(summary.since),
        "compared": sum(results[name] for name in COMPARED),
        **{name: results[name] for name in COMPARED},
        "notCompared": results["error"] + results["missed"],
        **{
            f"{choice}{what}Percent": round(100 * sums[choice] / nodes) if nodes else 0
            for what, sums in (("Utilization", summary.utilization), ("Balance", summary.balance))
            for choice in _CHOICES
        },
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
