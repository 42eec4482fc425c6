"""Compares decisions of profiles in mode Shadow with the nodes that another scheduler chose.

When the watch shows that a pod is bound, the shadow profile decides about this pod in a trial,
without the pods that were bound later. So both schedulers have seen the same pods.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from mooring.framework.decision import NodeScore
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.policy.profile_status import COMPARED
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.what_if import WhatIf, without_preemption

logger = logging.getLogger(__name__)

_CHOICES: Final = ("bound", "shadow")
"""The two nodes that are compared: the pod's own node, and the choice of the shadow profile."""
_MOST_WAITING: Final = 32
"""The maximum number of bound pods that wait for a comparison; older pods are left out. Each later
pod adds 0.2 ms to a decision, because the trial must remove it."""
_MOST_RECORDS: Final = 1000
_MOST_CHARACTERS: Final = 4096
"""The maximum characters of a kept message, which may name many resources; the rest is cut off."""
_MOST_PENDING: Final = 1000
"""The most pending pods that are examined at the same time."""
_MOST_REMEMBERED: Final = 5000
"""The maximum number of pods in `_left`, and of comparisons in `_unconfirmed`; the oldest is
dropped."""
_PENDING_SECONDS: Final = 30.0
"""The seconds after which a shadow profile also decides about a pending pod."""
_LOOK_SECONDS: Final = 10.0
"""The time in seconds between two examinations of pending pods."""


@dataclass(slots=True, eq=False)
class _BoundPod:
    """A bound pod, and the profile that must still decide about it."""

    pod: Pod
    at: float
    """When the watch showed the pod as bound, in seconds since the epoch."""
    profile: ActiveProfile | None
    """The profile that decides; None if no decision is needed."""
    was_pending: bool
    """Whether the watch has shown the pod without a node."""


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """The result of a shadow profile's decision; `record` is None after a failure."""

    profile: ActiveProfile
    result: str
    record: dict[str, Any] | None = None
    usages: tuple[tuple[float, float], ...] = ()
    """Utilization and balance of each of `_CHOICES`; () if a scheduler chose no node."""


@dataclass(slots=True, eq=False)
class _Summary:
    """The comparisons of a profile since it came into force."""

    profile: ActiveProfile
    pipeline: Pipeline
    since: float
    results: Counter[str] = field(default_factory=Counter)
    """The number of pods by result: one of `COMPARED`, pending, error or missed."""
    nodes: int = 0
    """The number of pods for which both schedulers chose a node; only these are in the sums."""
    utilization: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CHOICES, 0.0))
    balance: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CHOICES, 0.0))


class Shadow:
    """Compares the decisions of profiles in mode Shadow with the nodes that pods are bound to."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self._scheduler = scheduler
        self._metrics = scheduler.metrics
        self._clock, self._now = scheduler.clock, scheduler.now
        self._what_if = WhatIf(ResultCache(scheduler.cluster), now=self._now)
        self._bound: deque[_BoundPod] = deque()
        self._left: OrderedDict[str, None] = OrderedDict()
        """The uids of pods that were pending, are not pending any more, and are not compared yet.
        They may be bound or deleted."""
        self._unconfirmed: OrderedDict[str, _Comparison] = OrderedDict()
        """Comparisons of bound pods that were never seen pending, perhaps static pods, by uid."""
        self._pending: dict[str, float | None] = {}
        """By uid, the monotonic time when a pending pod was first examined; None after it was added
        to `_due`."""
        self._look_at = 0.0
        self._due: deque[Pod] = deque()
        self._summaries: dict[str, _Summary] = {}
        self._records: deque[dict[str, Any]] = deque(maxlen=_MOST_RECORDS)

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Keep, for `compare`, the pods that the events show as bound."""
        if not self._scheduler.profiles.has_shadows:
            self._bound.clear()
            return
        for event in events:
            if event.kind is Kind.POD and event.action is Action.ADD:
                self._note(event.after)

    def forget(self, uid: str) -> None:
        """Note that a pod is no longer pending; if it was compared, count the comparison."""
        if not self._scheduler.profiles.has_shadows:
            self._left.clear()
            self._unconfirmed.clear()
        elif (comparison := self._unconfirmed.pop(uid, None)) is not None:
            self._keep(comparison)
        else:
            self._left[uid] = None
            if len(self._left) > _MOST_REMEMBERED:
                self._left.popitem(last=False)

    def compare(self, until: float) -> bool:
        """Decide about some pods, the most recently bound first; return False if there are none.

        No decision starts after the time `until`, but at least one is made.
        """
        self._drop_settled()
        if not self._bound:
            return self._decide_pending(self._clock(), until)
        with self._what_if.trial() as trial:
            for bound in reversed(self._bound):
                trial.remove(bound.pod.uid)
                profile, bound.profile = bound.profile, None
                if profile is None or not self._is_in_force(profile):
                    continue
                try:
                    comparison = self._compared(bound.pod, bound.at, profile)
                except AttemptTooLongError:
                    bound.profile = profile
                    break
                self._keep_once_confirmed(bound, comparison)
                if self._clock() >= until:
                    break
        self._drop_settled()
        return True

    def names(self) -> tuple[str, ...]:
        """Return the names of the profiles in mode Shadow."""
        in_force = self._scheduler.profiles.in_force
        return tuple(name for name, entry in in_force.items() if _is_shadow(entry))

    def status(self, name: str) -> dict[str, Any] | None:
        """Return the comparisons for the profile's status; None if the mode is not Shadow."""
        entry = self._scheduler.profiles.in_force.get(name)
        return _status(self._summary(entry)) if entry is not None and _is_shadow(entry) else None

    def report(self, namespace: str = "") -> dict[str, Any]:
        """Return the profiles with their statuses, and the last 1,000 pods, newest first.

        Args:
            namespace: The namespace of the pods; empty for all pods.
        """
        prefix = f"{namespace}/" if namespace else ""
        pods = [record for record in self._records if record["pod"].startswith(prefix)]
        pods.sort(key=itemgetter("time"), reverse=True)
        profiles = {name: self.status(name) for name in self.names()}
        return {"profiles": profiles, "pods": pods}

    def _note(self, pod: object) -> None:
        if not isinstance(pod, Pod) or pod.node_name is None:
            return
        scheduler = self._scheduler
        profile = scheduler.profiles.shadow_of(pod, scheduler.cluster)
        if pod.limit_exceeded is not None:
            profile = None  # such a pod is never decided, because that could take too long
        if profile is None and not self._bound:
            return
        if profile is not None:
            self._summary(profile)
        was_pending = pod.uid in scheduler.without_profile
        self._bound.append(_BoundPod(pod, self._now(), profile, was_pending))
        if len(self._bound) > _MOST_WAITING:
            first = self._bound.popleft()
            if first.profile is not None and self._is_in_force(first.profile):
                self._keep_once_confirmed(first, _Comparison(first.profile, "missed"))
        scheduler.work.set()

    def _drop_settled(self) -> None:
        while self._bound:
            profile = self._bound[0].profile
            if profile is not None and self._is_in_force(profile):
                return
            self._bound.popleft()

    def _is_in_force(self, profile: ActiveProfile) -> bool:
        return self._scheduler.profiles.in_force.get(profile.profile.name) is profile

    def _decide_pending(self, now: float, until: float) -> bool:
        """Decide about some long-pending pods; return whether a decision was made or begun."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._look(now)
        decided = False
        while self._due and not (decided and self._clock() >= until):
            pod = self._due.popleft()
            if pod.uid in self._scheduler.without_profile:
                profile = self._scheduler.profiles.shadow_of(pod, self._scheduler.cluster)
                try:
                    if profile is not None:
                        self._keep(self._compared(pod, self._now(), profile))
                except AttemptTooLongError:
                    self._due.appendleft(pod)
                    return True
                decided = True
        return decided

    def _look(self, now: float) -> None:
        pods: Iterable[Pod] = ()
        if self._scheduler.profiles.has_shadows:
            pods = islice(self._scheduler.without_profile.values(), _MOST_PENDING)
        known, self._pending = self._pending, {}
        for pod in pods:
            since = self._pending[pod.uid] = known.get(pod.uid, now)
            late = since is not None and now - since >= _PENDING_SECONDS
            if late and pod.limit_exceeded is None:
                self._pending[pod.uid] = None
                self._due.append(pod)

    def _compared(self, pod: Pod, at: float, profile: ActiveProfile) -> _Comparison:
        try:
            return self._decided(pod, at, profile)
        except AttemptTooLongError:  # the next call continues the decision
            raise
        except Exception as error:
            if not isinstance(error, PluginFailed):
                logger.exception("the shadow decision about pod %s failed", pod.key)
            logger.debug("no shadow decision about pod %s: %s", pod.key, text_of(error))
            return _Comparison(profile, "error")

    def _decided(self, pod: Pod, at: float, profile: ActiveProfile) -> _Comparison:
        """Let the shadow profile decide about the pod; compare its choice with the real node."""
        pipeline, node = self._summary(profile).pipeline, pod.node_name
        outcome = self._what_if.decide(replace(pod, node_name=None), pipeline)
        scores, usages = dict[str, NodeScore | None](), list[tuple[float, float]]()
        chosen, message = None, None
        if isinstance(outcome, FitError):
            result, message = "unschedulable" if node is not None else "pending", outcome.message
        else:
            chosen, result = outcome.node, "same" if node is not None else "pending"
            scores[chosen] = highest = outcome.score_of(outcome.row)
            row = self._scheduler.state.nodes.row_of.get(node) if node is not None else None
            if node not in (None, chosen):
                score = scores[node] = outcome.score_of(row) if row is not None else None
                message = _rejection(outcome, row) if score is None else None
                tied = score is not None and highest is not None and score.total == highest.total
                result = "rejected" if message is not None else "tied" if tied else "different"
            if row is not None:
                usages = [self._usage(pod, row), self._usage(pod, outcome.row)]
        record = {
            "time": _iso(at, "milliseconds"),
            "pod": pod.key,
            "profile": profile.profile.name,
            "result": result,
            "node": chosen,
            "boundNode": node,
            "scores": {
                name: {"plugins": dict(score.plugins), "total": score.total}
                for name, score in scores.items()
                if score is not None
            },
            "message": message if message is None else message[:_MOST_CHARACTERS],
        }
        return _Comparison(profile, result, record, tuple(usages))

    def _summary(self, profile: ActiveProfile) -> _Summary:
        known = self._summaries.get(profile.profile.name)
        if known is None or known.profile is not profile:
            # A shadow profile evicts nothing.
            known = _Summary(profile, without_preemption(profile.pipeline), self._now())
            self._summaries = {
                name: summary
                for name, summary in self._summaries.items()
                if self._is_in_force(summary.profile)
            }
            self._summaries[profile.profile.name] = known
        return known

    def _keep_once_confirmed(self, bound: _BoundPod, comparison: _Comparison) -> None:
        uid = bound.pod.uid
        if uid in self._left:
            del self._left[uid]
            bound.was_pending = True
        if bound.was_pending:
            self._keep(comparison)
            return
        self._unconfirmed[uid] = comparison
        if len(self._unconfirmed) > _MOST_REMEMBERED:
            self._unconfirmed.popitem(last=False)

    def _keep(self, comparison: _Comparison) -> None:
        profile = comparison.profile
        if not self._is_in_force(profile):
            return
        name, summary = profile.profile.name, self._summary(profile)
        summary.results[comparison.result] += 1
        self._metrics.shadow_decided(name, comparison.result)
        if comparison.record is not None:
            self._records.append(comparison.record)
        if comparison.usages:
            summary.nodes += 1
        for choice, (utilization, balance) in zip(_CHOICES, comparison.usages, strict=False):
            summary.utilization[choice] += utilization
            summary.balance[choice] += balance
            self._metrics.shadow_node(name, choice, utilization, balance)

    def _usage(self, pod: Pod, row: int) -> tuple[float, float]:
        """Return the utilization and balance, from 0 to 1, that the node has with the pod."""
        nodes = self._scheduler.cluster.nodes
        fractions = []
        for resource in ("cpu", "memory"):
            amount = pod.spec.demand.resources.get(resource, 0)
            requested = int(nodes.requested(resource)[row]) + amount
            fractions.append(min(1.0, requested / max(1, int(nodes.allocatable(resource)[row]))))
        first, second = fractions
        # The mean, and one minus the standard deviation (NodeResourcesBalancedAllocation).
        return (first + second) / 2, 1 - abs(first - second) / 2


def _rejection(outcome: ScheduleResult, row: int | None) -> str | None:
    for group in outcome.diagnosis().rejected:
        for index in (group.rows == row).nonzero()[0].tolist():
            return f"{group.plugin}: {', '.join(group.explanation.reasons_at(index))}"
    return None


def _is_shadow(entry: ActiveProfile) -> bool:
    return entry.profile.spec.mode == "Shadow"


def _status(summary: _Summary) -> dict[str, Any]:
    # The fields of `ShadowStatus`.
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


def _iso(seconds: float, precision: str = "seconds") -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")
