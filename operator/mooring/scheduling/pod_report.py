"""Reports the current state of one pod, and changes that would make it fit."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from mooring.claims.claim_report import ClaimsReport, ExplainsClaims
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.groups.model.pod_group import GroupKey, GroupSource
from mooring.groups.model.task_groups import TASK_GROUPS
from mooring.groups.search.members import group_of
from mooring.groups.search.search_budget import TURN_SECONDS
from mooring.groups.state.pod_groups import GROUP_KINDS, PodGroupState
from mooring.groups.status.group_status import gates_text
from mooring.kube.api_resources import Resource
from mooring.model.events import Kind
from mooring.model.pod import Pod, Uid
from mooring.model.wording import listed
from mooring.pausing import Interrupted
from mooring.process.time_slices import REST, TimeSlices
from mooring.process.turn import Turn
from mooring.runtime.extension_points import first_gate
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import PodState, QueuedPod, SubQueue
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.suggestions import EXAMPLES, Suggestion, suggestions
from mooring.scheduling.what_if import WhatIf

_KINDS: Final = {source: kind for kind, source in GROUP_KINDS.items()}
_SERVE: Final[Mapping[GroupSource, str]] = {
    GroupSource.KUBERNETES: "have the API server serve podgroups.scheduling.k8s.io, which it does "
    "not, or use another kind of pod group (docs/gangs.md)",
    **{
        source: f"install the CRD {source.value}, which the API server does not serve "
        "(docs/gangs.md)"
        for source in GROUP_KINDS.values()
        if source is not GroupSource.KUBERNETES
    },
}
"""Maps the source of a group to the advice for users if the API server does not serve its kind."""
_FOR_VOLUMES: Final = (
    Kind.STORAGE_CLASS,
    Kind.CSI_NODE,
    Kind.CSI_DRIVER,
    Kind.CSI_STORAGE_CAPACITY,
)
_NOMINATED: Final = "waits until the pods that it preempts have left its node"
_UNKNOWN: Final = "not decided yet"
_MOST_SUGGESTIONS: Final = 5
_KEPT_SECONDS: Final = 2.0


def pod_state(scheduler: SchedulerState, uid: Uid) -> PodState | None:
    """Return the pod's state on its way to a node; None if the pod is unknown."""
    queued = scheduler.queue.get(uid)
    if queued is not None:
        return queued.times.state
    if uid in scheduler.without_profile:
        return PodState.NO_PROFILE
    placed = scheduler.cluster.pod(uid)
    if placed is None:
        return None
    return PodState.BINDING if placed.assumed else PodState.BOUND


def pending_cause(scheduler: SchedulerState, pod: Pod) -> str:
    """Return why a pod without a node waits, in a few words that are the same for many pods."""
    queued = scheduler.queue.get(pod.uid)
    if queued is None:
        return _why_no_profile(scheduler, pod)
    group = scheduler.cluster.pod_groups.of(pod)
    if queued.queue is SubQueue.GATED:
        gates = gates_text(pod.spec.gates) if pod.spec.gates else None
        return gates or (group.incomplete if group is not None else None) or "gated"
    if _victims(scheduler, pod):
        return _NOMINATED
    plugins = ", ".join(sorted(queued.unschedulable_plugins))
    return scheduler.decisions.cause(pod.uid) or plugins or _UNKNOWN


def _victims(scheduler: SchedulerState, pod: Pod) -> list[PodRef]:
    if scheduler.cluster.nominations.get(pod.uid) is None:
        return []
    victims = scheduler.decisions.victims(pod.uid)
    return [each for each in victims if scheduler.cluster.pod(each.uid) is not None]


def _why_no_profile(scheduler: SchedulerState, pod: Pod) -> str:
    profiles, name = scheduler.profiles, pod.spec.scheduler_name
    why = profiles.why_none(pod)
    meant = f'no profile takes pods of schedulerName "{name}"{profiles.did_you_mean(name)}'
    return meant if why is None else why


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A `mooring.scheduling.suggestions.Suggestion` as a document for users."""

    change: str | TextAboutPods
    nodes: int
    examples: Sequence[str]
    ended: Sequence[PodRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """The current facts about a pod; fields that do not apply are None.

    Attributes:
        cause: The text of `pending_cause`.
        nominated_node: The node where the pod fits once the `victims` have left.
        victims: At most ten of the pods to evict.
        pending_seconds: The time since the scheduler first saw the pod.
        plugins: The names of the plugins that rejected or gated the pod.
        held_back: Why the pod is gated, or why no profile takes it.
        waits_for: The seconds that the pod may still wait, by Permit plugin.
        ahead: The number of active pods before this pod by priority and waiting time.
        not_served: Kinds that the pod's volumes need and the API server does not serve.
        claims: The ResourceClaims, and why they have no devices.
        suggestions: Changes after which an unschedulable pod or its group fits, the smallest first.
        group: The pod's group, without its pods.
    """

    state: PodState
    node: str | None = None
    profile: str | None = None
    cause: str | None = None
    nominated_node: str | None = None
    victims: Sequence[PodRef] | None = None
    attempts: int | None = None
    pending_seconds: float | None = None
    plugins: Sequence[str] | None = None
    held_back: str | None = None
    waits_for: Mapping[str, float] | None = None
    backoff_seconds: float | None = None
    ahead: int | None = None
    not_served: Sequence[str] | None = None
    claims: ClaimsReport | None = None
    suggestions: Sequence[SuggestedChange] | None = None
    group: Mapping[str, Any] | None = None


class PodReportBuilder:
    """Builds reports on request; searches run one at a time, so that decisions are not delayed.

    `groups` returns the documents about the groups of a namespace and name. `unserved` returns
    the kinds that the API server does not serve.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        *,
        groups: Callable[[str, str], list[dict[str, Any]]] = lambda _namespace, _name: [],
        unserved: Callable[[], Mapping[Kind, Resource]] = dict,
    ) -> None:
        self._scheduler = scheduler
        self._clock = scheduler.clock
        self._groups = groups
        self._unserved = unserved
        self._one_at_a_time = asyncio.Lock()
        self._latest: tuple[int, float, list[SuggestedChange]] = -1, 0.0, []
        """The last suggestions for a group: the group's number, the time until which they are shown
        again, and the suggestions."""

    async def of(self, key: str) -> PodReport | None:
        """Return the report of the pod with this "namespace/name"; None if it is not known."""
        uid = self._scheduler.uid_of(key)
        state = pod_state(self._scheduler, uid) if uid is not None else None
        if uid is None or state is None:
            return None
        scheduler = self._scheduler
        placed, queued = scheduler.cluster.pod(uid), scheduler.queue.get(uid)
        report = PodReport(state=state, node=placed.pod.node_name if placed is not None else None)
        if placed is not None and queued is None:
            return replace(report, group=self._described(placed.pod))
        if queued is None:
            why = _why_no_profile(scheduler, scheduler.without_profile[uid])
            return replace(report, plugins=[], held_back=why, cause=why)
        report = replace(self._queued(report, queued), group=self._described(queued.pod))
        if state is PodState.GATED:
            plugin, reason = _gate(queued)
            claims = await self._claims(queued)
            return replace(
                report, plugins=[plugin] if plugin else [], held_back=reason, claims=claims
            )
        if report.victims is None and (
            state is PodState.UNSCHEDULABLE
            or (state is PodState.BACKOFF and queued.unschedulable_plugins)
        ):
            group = group_of(queued.pod, queued.pipeline, scheduler.cluster)
            changes = await (self._of_group(group) if group else self._of_pod(queued))
            return replace(report, suggestions=changes, claims=await self._claims(queued))
        return report

    async def of_groups(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return the pod groups of this name as JSON values, with changes that make each fit."""
        found = list[dict[str, Any]]()
        for document in self._groups(namespace, name):
            key = GroupKey(GroupSource(document["source"]), namespace, name)
            group = self._scheduler.cluster.pod_groups.get(key)
            waits = group is not None and bool(group.unscheduled)
            victims = self._victims_for(group) if group and waits else None
            may_help = group and waits and not victims
            found.append(
                {
                    **document,
                    "cause": self._cause_of(group) if group and waits else None,
                    "remedy": self._remedy(group) if group and waits else None,
                    "victims": victims,
                    "suggestions": await self._of_group(group) if group and may_help else None,
                }
            )
        return found

    def _victims_for(self, group: PodGroupState) -> Sequence[PodRef] | None:
        found = (_victims(self._scheduler, pod) for pod in group.unscheduled.values())
        return next(filter(None, found), None)

    def _cause_of(self, group: PodGroupState) -> str | None:
        decidable = (queued.pod for queued in _decidable(group, self._scheduler))
        pods = chain(decidable, group.unscheduled.values())
        return next((pending_cause(self._scheduler, pod) for pod in pods), None)

    def _described(self, pod: Pod) -> Mapping[str, Any] | None:
        group = self._scheduler.cluster.pod_groups.of(pod)
        if group is None:
            return None
        for document in self._groups(group.key.namespace, group.key.name):
            if document["source"] == group.key.source.value:
                return {**document, "pods": None, "remedy": self._remedy(group)}
        return None

    def _remedy(self, group: PodGroupState) -> str | TextAboutPods | None:
        """Return the action that a user must take before the pod group can fit; else None."""
        definition, source = group.definition, group.key.source
        if definition is None and _KINDS.get(source) in self._unserved():
            return _SERVE[source]
        if definition is None:
            create = f"create {source.value}/{group.key.name} in namespace {group.key.namespace}"
            annotation = TASK_GROUPS if source is GroupSource.YUNIKORN else "pod-group-name"
            is_named = source.has_object and group.key.name
            return create if is_named else f"write the annotation {annotation} to its pods"
        if definition.invalid is not None:
            return f"correct {source.value}/{group.key.name}"
        if group.missing:
            text = f"create {group.missing} more of its members"
            exist = group.all_pods_count if not group.roles else 0
            return f"{text}, or require at most {exist}" if exist else text
        waiting = {queued.pod.uid for queued in _decidable(group, self._scheduler)}
        if group.short_of([group.unscheduled[uid] for uid in waiting]) is None:
            return None
        others = [pod for uid, pod in group.unscheduled.items() if uid not in waiting]
        gated = [pod for pod in others if pod.spec.gates]
        what = "remove the scheduling gates of" if gated else "have one profile take"
        about = gated or others
        names = listed([pod.name for pod in about], EXAMPLES)
        refs = tuple(map(PodRef.of, about[:EXAMPLES]))
        return TextAboutPods(f"{what} {names}", refs, f"{what} {len(about)} members")

    async def _of_group(self, group: PodGroupState) -> list[SuggestedChange]:
        """Return changes that would make the group fit; repeat the last answer for two seconds."""
        scheduler = self._scheduler
        waiting = _decidable(group, scheduler)
        if group.incomplete is not None or group.short_of([each.pod for each in waiting]):
            return []
        pipeline = waiting[0].pipeline
        if group_of(waiting[0].pod, pipeline, scheduler.cluster) is None:
            return []  # its members are decided about one by one
        async with self._one_at_a_time:
            number, until, found = self._latest
            if number == group.number and self._clock() < until:
                return found
            found = await self._smallest([queued.pod for queued in waiting], pipeline, group)
            self._latest = group.number, self._clock() + _KEPT_SECONDS, found
            return found

    def _queued(self, report: PodReport, queued: QueuedPod) -> PodReport:
        now, state = self._clock(), report.state
        waiting = self._scheduler.waiting.get(queued.pod.uid)
        pending = waiting.pending if waiting is not None else None
        backoff = queued.backoff_expiration if state is PodState.BACKOFF else None
        return replace(
            report,
            profile=queued.pipeline.profile,
            cause=pending_cause(self._scheduler, queued.pod),
            nominated_node=self._scheduler.nominated_node(queued.pod),
            victims=_victims(self._scheduler, queued.pod) or None,
            attempts=queued.attempts,
            pending_seconds=_seconds(now - queued.times.began),
            plugins=sorted(queued.unschedulable_plugins),
            waits_for={plugin: _seconds(until - now) for plugin, until in pending.items()}
            if pending is not None
            else None,
            backoff_seconds=_seconds(backoff - now) if backoff is not None else None,
            ahead=self._ahead(queued) if state is PodState.ACTIVE else None,
            not_served=self._not_served(queued.pod),
        )

    def _not_served(self, pod: Pod) -> list[str] | None:
        unserved = self._unserved()
        needed = _FOR_VOLUMES if pod.volumes else ()
        return [str(unserved[kind]) for kind in needed if kind in unserved] or None

    def _ahead(self, queued: QueuedPod) -> int:
        key = by_priority(queued)  # an estimate: Queues, groups and other plugins change the order
        return sum(
            other.times.state is PodState.ACTIVE and by_priority(other) < key
            for other in self._scheduler.queue
        )

    async def _of_pod(self, queued: QueuedPod) -> list[SuggestedChange]:
        async with self._one_at_a_time:
            return await self._smallest([queued.pod], queued.pipeline)

    async def _smallest(
        self, members: Sequence[Pod], pipeline: Pipeline, group: PodGroupState | None = None
    ) -> list[SuggestedChange]:
        scheduler = self._scheduler
        what_if = WhatIf(ResultCache(scheduler.cluster))
        turn = scheduler.turn
        return await smallest_suggestions(members, pipeline, what_if, self._clock, turn, group)

    async def _claims(self, queued: QueuedPod) -> ClaimsReport | None:
        if not queued.pod.spec.resource_claims:
            return None
        async with self._one_at_a_time:
            slices = TimeSlices(0.0, rest=REST, clock=self._clock)
            for plugin in queued.pipeline.filters:
                if isinstance(plugin, ExplainsClaims):
                    explain = partial(plugin.explain_claims, queued.pod)
                    found = await self._scheduler.turn.run(explain, slices)
                    await slices.pause()
                    return found
        return None


def _gate(queued: QueuedPod) -> tuple[str, str | None]:
    """Return the PreEnqueue plugin that rejects the pod, and the reason."""
    if queued.pod.limit_exceeded is not None:
        return "", queued.pod.limit_exceeded
    try:
        gate = first_gate(queued.pipeline, queued.pod)
    except PluginFailed as failure:
        return "", str(failure)
    # Without a gate, the queue will soon notice that the plugin accepts the pod now.
    return (gate[0], gate[1].reason) if gate is not None else ("", None)


async def smallest_suggestions(
    members: Sequence[Pod],
    pipeline: Pipeline,
    what_if: WhatIf,
    clock: Callable[[], float],
    turn: Turn,
    group: PodGroupState | None = None,
) -> list[SuggestedChange]:
    """Return at most five changes with which the pod or the group would fit, the smallest first.

    The search ends early if a plugin fails or a time limit is reached. It runs in one `turn`;
    `clock` returns seconds. See `mooring.scheduling.suggestions.suggestions`.
    """
    found = list[Suggestion]()

    def find() -> None:
        with suppress(PluginFailed):  # it is logged where it failed; other suggestions are true
            for suggestion in suggestions(members, pipeline, what_if, group):
                found.append(suggestion)

    rest = TimeSlices(0.0, rest=REST, clock=clock)
    async with turn:
        rest.begin()
        with suppress(Interrupted):
            until = clock() + TURN_SECONDS
            await TimeSlices(clock=clock).run(find, lambda: clock() < until)
        rest.stop()
    await rest.pause()
    found.sort(key=lambda suggestion: suggestion.cost)
    return [
        SuggestedChange(each.change, each.nodes, each.examples, each.ended)
        for each in found[:_MOST_SUGGESTIONS]
    ]


def _decidable(group: PodGroupState, scheduler: SchedulerState) -> list[QueuedPod]:
    found = list[QueuedPod]()
    for uid in group.unscheduled:
        queued = scheduler.queue.get(uid)
        if queued is not None and not queued.gated:
            found.append(queued)
    return [queued for queued in found if queued.pipeline is found[0].pipeline]


def _seconds(value: float) -> float:
    return round(max(value, 0.0), 1)
