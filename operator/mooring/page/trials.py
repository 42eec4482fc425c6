"""Decides about pods that do not exist, or with other profiles, on the live state.

The page's view Try it and the endpoint what-if use this module. It writes nothing: decisions are
made in trials (`mooring.scheduling.what_if`), and plugins of an edited profile get an API whose
calls fail.

The work is done in steps of about one decision. After each step, the event loop is free for three
times as long. A step first adds the pods of earlier steps again.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, takewhile
from math import inf
from operator import itemgetter
from typing import Any, Final

from mooring.framework.decision import PodRef
from mooring.framework.evaluations import MOST_PER_ATTEMPT, AttemptTooLongError
from mooring.framework.plugin import by_priority
from mooring.framework.post_filter import GroupNomination, GroupPreemption
from mooring.framework.registry import Registry
from mooring.framework.verdicts import PluginError
from mooring.groups.model.pod_group import GroupKey
from mooring.groups.search.group_decision import GroupDecision
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import GROUP_KINDS, PodGroups, PodGroupState
from mooring.model.events import Kind
from mooring.model.fields import mapping
from mooring.model.manifest_error import ManifestError
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.pod_spec import PodSpec
from mooring.observe.documents import fields_of
from mooring.page.full_decision import DecisionInFull, decision_in_full
from mooring.page.profile_comparison import compared_nodes
from mooring.page.turns import Turns
from mooring.pausing import pause
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.rule import plan_one_by_one
from mooring.process.time_slices import REST, TimeSlices
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.pod_report import SuggestedChange, smallest_suggestions
from mooring.scheduling.profiles_in_force import Profiles
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.what_if import WhatIf, held_back, stays_on_its_node, without_preemption
from mooring.simulate.admission import as_stored
from mooring.simulate.kinds import KINDS
from mooring.simulate.load_profiles import read_profiles
from mooring.simulate.manifests import InputError, Limits, Manifest, manifests_in
from mooring.simulate.new_objects import (
    SELECT_PODS,
    NewObjects,
    RejectedPod,
    Written,
    makes_pods,
    read_all,
)
from mooring.simulate.offline import offline_handle
from mooring.state.pods import PodTable

MOST_PODS: Final = 500
"""The most pods that one request decides about; it reports that there are more."""
MOST_COMPARED: Final = 100
"""The most pods for which two profiles are compared."""
_MOST_SUGGESTED_FOR: Final = 3
"""The most pods and groups that get suggestions, because each search takes up to a second."""
_TRIAL_SECONDS: Final = 0.01
"""The seconds after which a trial begins no further decision. Before the first decision, the trial
puts all earlier pods on their nodes, and the request's Services into the state."""
_LIMITS: Final = Limits(depth=64, values=50_000, objects=MOST_PODS, aliases=False)
"""The limits for the manifests in a request; a text that exceeds a limit is an error."""
_PROFILE_LIMITS: Final = replace(_LIMITS, values=5_000)
"""The limits for a profile, because finding mistakes in 50,000 values takes seconds."""
_MOST_MISTAKES: Final = 20
_SCHEDULING_GATES: Final = "SchedulingGates"
_NO_RUNTIME_CLASS: Final = (
    "RuntimeClasses are not known here: their overhead and node selectors are not added"
)
_CUT: Final = f"has members that are not decided about: a request may have at most {MOST_PODS} pods"
_NO_CLAIMS: Final = "claims of volumeClaimTemplates are not made; such pods wait for them"


@dataclass(frozen=True, slots=True)
class TryRequest:
    """Objects to try, as YAML or JSON, and the profile to use.

    Without `profile` and `profile_text`, each pod's own profile decides. `profile_text` is a
    SchedulingProfile, a KubeSchedulerConfiguration or a Policy.
    """

    manifests: str
    profile: str = ""
    profile_text: str = ""


@dataclass(frozen=True, slots=True)
class TriedPod:
    """A pod, and the node that it would get or would be nominated to."""

    pod: PodRef
    node: str | None
    nominated_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The decision about a pod, or about a whole pod group.

    Attributes:
        fits: Whether the pod, or at least the minimum of the group, gets nodes now.
        message: Why pods have no node.
        cause: The message in a few words.
        feasible: The number of nodes that fit a single pod.
        victims: The pods that would be evicted before the pod or group gets its nodes.
        suggestions: Changes that would make the pod or group fit; None if there was no search.
    """

    pod_group: str | None = None
    profile: str | None
    fits: bool
    message: str | None
    cause: str | None
    feasible: int | None = None
    victims: Sequence[PodRef]
    suggestions: Sequence[SuggestedChange] | None = None
    pods: Sequence[TriedPod]


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAnswer:
    """The decisions about the pods of a text, in the order in which they were made.

    `details` is the whole decision about the first pod, if the request asks for it and the pod is
    in no group. `more` is True if the text makes further pods, which were not tried.
    """

    decisions: Sequence[Tried]
    notes: Sequence[str]
    more: bool
    details: DecisionInFull | None = None


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Two profiles to compare; the second is `other`, or the profile in `other_text`.

    Both decide about pending pods; with `running`, about the running pods of the namespace, as if
    these pods had no node.
    """

    profile: str
    other: str = ""
    other_text: str = ""
    namespace: str = ""
    running: bool = False


@dataclass(slots=True, eq=False)
class _Objects:
    """The pods and pod groups of a text, and notes about them.

    Attributes:
        sources: Where in the text each pod is.
        groups: Kind, key and definition of pod groups.
        selecting: Kind, key and value of the Services and controllers that select pods.
        more: Whether the text makes more pods than are tried.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    groups: list[tuple[Kind, str, Any]] = field(default_factory=list)
    selecting: list[tuple[Kind, str, Any]] = field(default_factory=list)
    rejected: list[RejectedPod] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    more: bool = False


@dataclass(eq=False, repr=False)
class WhatIfRunner:
    """Answers one request at a time; `now` is the time since the epoch, in seconds."""

    scheduler: SchedulerState
    registry: Registry
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    _turns: Turns = field(default_factory=Turns, init=False)

    async def tried(
        self,
        wanted: TryRequest,
        may_see: Callable[[Iterable[str]], Any],
        user: str = "",
        *,
        detailed: bool = False,
    ) -> TryAnswer:
        """Return decisions about the pods of `wanted`; `detailed` asks for `TryAnswer.details`.

        `may_see` returns which of the given namespaces the user may see.

        Raises:
            InputError: The texts have mistakes.
            TrialsBusy: Too many requests wait.
            TooLongError: The work takes too long.
        """
        async with self._turns.turn("try fewer pods", user):
            pipeline = await self._pipeline(wanted.profile, wanted.profile_text)
            manifests = await asyncio.to_thread(_new_objects, wanted.manifests)
            objects = await self._objects(manifests)
            # The answer would tell about groups, claims and other pods of the namespaces.
            await _reject_hidden(objects, may_see)
            if not objects.pods and not objects.rejected:
                raise InputError("the text makes no pods: write a Pod, a Deployment or the like")
            what_if = self._what_if(self._replaced(objects.pods), objects.selecting)
            found = [*map(_rejected, objects.rejected)]
            details: DecisionInFull | None = None
            suggested_for = set[PodSpec]()
            units = self._units(objects, pipeline)
            async for unit, documents in self._decided(units, what_if, detailed=detailed):
                if detailed and unit is units[0] and unit.group is None:
                    details = documents[0]
                tried = _tried(unit, documents)
                spec = unit.pods[0].spec
                is_new = spec not in suggested_for and len(suggested_for) < _MOST_SUGGESTED_FOR
                if not tried.fits and documents[0].nodes and is_new:
                    suggested_for.add(spec)
                    changes = await self._suggestions(unit, what_if)
                    tried = replace(tried, suggestions=changes)
                found.append(tried)
        return TryAnswer(
            decisions=found, notes=list(objects.notes), more=objects.more, details=details
        )

    async def compared(
        self,
        wanted: CompareRequest,
        may_see: Callable[[Iterable[str]], Any],
        user: str = "",
    ) -> dict[str, Any]:
        """Return the nodes that both profiles choose for the pods, as JSON values.

        For `may_see` and the errors see `tried`.
        """
        async with self._turns.turn("compare a namespace with fewer pods", user):
            if not (wanted.other or wanted.other_text):
                raise InputError("name the other profile, or write it")
            pipelines = [
                await self._pipeline(wanted.profile, ""),
                await self._pipeline(wanted.other, wanted.other_text),
            ]
            pods, total = await self._pods(wanted, may_see)
            removed = [pod.uid for pod in pods] if wanted.running else []
            sides: list[list[dict[str, Any]]] = []
            for pipeline in filter(None, pipelines):
                units = [_Unit([pod], without_preemption(pipeline)) for pod in pods]
                what_if = self._what_if(removed)
                side: list[dict[str, Any]] = []
                async for _, documents in self._decided(units, what_if, detailed=False):
                    side += [_short(document) for document in documents]
                sides.append(side)
            nodes = await compared_nodes(
                self.scheduler, pods, sides, self.clock, running=wanted.running
            )
        results = [
            {
                "pod": first["pod"],
                "now": self._node_of(first["pod"].key),
                "nodes": [first["node"], second["node"]],
                "causes": [first["cause"], second["cause"]],
            }
            for first, second in zip(*sides, strict=True)
        ]
        return {
            "profiles": [pipeline.profile for pipeline in pipelines if pipeline is not None],
            "results": results,
            "placed": [sum(result["node"] is not None for result in side) for side in sides],
            "different": sum(r["nodes"][0] != r["nodes"][1] for r in results),
            "total": total,
            "nodes": nodes,
        }

    async def _pipeline(self, name: str, text: str) -> Pipeline | None:
        """Return the pipeline of the profile in `text`, else of the profile `name`, else None."""
        if not text:
            return self._named(name) if name else None
        try:
            read = manifests_in(text, "the profile", limits=_PROFILE_LIMITS)
            manifests = await asyncio.to_thread(list, read)
            slices = TimeSlices(0.0, rest=REST, clock=self.clock)
            for manifest in manifests:
                await slices.run(partial(plan_one_by_one, manifest.raw))
            server = self.scheduler.cluster.kubernetes
            found = read_profiles(manifests, self.registry, server=server)
            if len(found) != 1:
                raise InputError(f"the profile: holds {len(found)} profiles; write one")
            profiles = Profiles(
                self.registry,
                offline_handle(self.scheduler.state),
                most_per_attempt=MOST_PER_ATTEMPT,
            )
            return profiles.build(found[0].profile, found[0].effective).pipeline
        except ProfileInvalid as invalid:
            mistakes = [f"the profile: {error}" for error in invalid.errors[:_MOST_MISTAKES]]
            raise InputError("\n".join(mistakes)) from None

    def _named(self, name: str) -> Pipeline:
        in_force = self.scheduler.profiles.in_force
        if name not in in_force:
            raise InputError(f'there is no profile "{name}" in force')
        return in_force[name].pipeline

    def _what_if(
        self, removed: Iterable[Uid], selecting: Iterable[tuple[Kind, str, Any]] = ()
    ) -> WhatIf:
        scheduler = self.scheduler
        what_if = WhatIf(ResultCache(scheduler.cluster), now=self.now)
        for uid in removed:
            what_if.remove(uid)
        for each in selecting:
            what_if.put(*each)
        return what_if

    async def _objects(self, manifests: Sequence[Manifest]) -> _Objects:
        """Return the pods that the cluster would make of these objects."""
        new_objects, found = NewObjects(self.scheduler.state), _Objects()
        for manifest in manifests:
            with manifest.locating_errors():
                kind = KINDS.get((manifest.group, manifest.kind))
                if kind in GROUP_KINDS:
                    _add_group(manifest, new_objects, found)
                    continue
                if kind in SELECT_PODS:
                    found.selecting.append(_selecting(manifest))
                if kind is Kind.SERVICE:
                    continue
                # One more than are tried shows that there are more; a ReplicaSet may come first.
                fitting = islice(_made_of(manifest, new_objects, found.notes), MOST_PODS + 2)
                # In a thread: a DaemonSet's terms are compared with all nodes.
                async with self.scheduler.turn:
                    made_of_it = await asyncio.to_thread(list, fitting)
            for made in made_of_it:
                if made.kind != "Pod":
                    found.selecting.append(_selecting(made))
                    continue
                if len(found.pods) + len(found.rejected) >= MOST_PODS:
                    found.more = True
                    break
                slices = TimeSlices(0.0, rest=REST, clock=self.clock)
                with made.locating_errors():
                    _add_pod(made, new_objects, found)
                await slices.pause()
        return found

    def _units(self, objects: _Objects, pipeline: Pipeline | None) -> "list[_Unit]":
        scheduler = self.scheduler
        chosen: dict[str, Pipeline | None] = {}
        for pod in objects.pods.values():
            profile = None if pipeline else scheduler.profiles.of(pod, scheduler.cluster)
            chosen[pod.key] = pipeline or (profile.pipeline if profile is not None else None)
        writer = PodGroups(PodTable())
        formats = (f for p in chosen.values() if p is not None for f in p.pod_group_formats)
        writer.track(tuple(dict.fromkeys(formats)))
        for kind, key, definition in objects.groups:
            writer.define(kind, key, definition)
        for pod in objects.pods.values():
            writer.put_unscheduled(pod)
        units: dict[GroupKey | str, _Unit] = {}
        for pod in sorted(objects.pods.values(), key=lambda pod: -pod.spec.priority):
            used = chosen[pod.key]
            group = None
            if used is not None and used.group_policy is not None:
                group = writer.of(pod)
            unit_key = pod.key if group is None else group.key
            unit = units.setdefault(unit_key, _Unit([], used, group, cut=objects.more))
            unit.pods.append(pod)
        return list(units.values())

    def _beside_members(self, group: PodGroupState) -> PodGroupState:
        """Return the text's group together with the cluster's members of the same group."""
        live = self.scheduler.cluster.pod_groups.get(group.key)
        if live is None:
            return group
        pods = group.unscheduled.values()
        found = live.with_members(pods, {*self._replaced(pod.key for pod in pods)})
        if group.definition is not None:
            # Of what members declare, the highest minimum counts.
            # If the text has no definition, the cluster's is used.
            is_higher = not group.key.source.has_object and live.minimum > group.minimum
            found.definition = live.definition if is_higher else group.definition
        return found

    async def _decided(
        self, units: "Iterable[_Unit]", what_if: WhatIf, *, detailed: bool
    ) -> "AsyncIterator[tuple[_Unit, list[DecisionInFull]]]":
        nodes, left = 100 if detailed else 0, deque(units)
        while left:
            slices = TimeSlices(0.0, rest=REST, clock=self.clock)
            found = await self._of_first(left, what_if, nodes, slices)
            await slices.pause()  # here: whoever works on the documents pauses by itself
            for documents in found:
                yield left.popleft(), documents
            nodes = 0

    async def _of_first(
        self, units: "deque[_Unit]", what_if: WhatIf, nodes: int, slices: TimeSlices
    ) -> list[list[DecisionInFull]]:
        """Return the decisions about the first pod or group, and about more if time is left."""
        unit = units[0]
        while True:
            try:
                if unit.group is not None and unit.pipeline is not None:
                    return [await self._group(unit, unit.pipeline, unit.group, what_if, slices)]
                decide = partial(self._decide_first, units, what_if, nodes)
                return await self.scheduler.turn.run(decide, slices)
            # Continued later: for an edited profile, no results are cached.
            except AttemptTooLongError:
                await slices.pause()
            except PluginError as error:
                return [[_without_node(pod, unit.pipeline, str(error)) for pod in unit.pods]]

    def _replaced(self, keys: Iterable[str]) -> Iterator[Uid]:
        for key in keys:
            if (queued := self.scheduler.queue.named(key)) is not None:
                yield queued.pod.uid
            if (placed := self.scheduler.cluster.pod_named(key)) is not None:
                yield placed.pod.uid

    def _no_profile(self, pod: Pod) -> str:
        name = pod.spec.scheduler_name
        meant = self.scheduler.profiles.did_you_mean(name)
        return f'no profile in force takes the pod (schedulerName "{name}"{meant}); choose one'

    def _decide_first(
        self, units: "deque[_Unit]", what_if: WhatIf, nodes: int
    ) -> list[list[DecisionInFull]]:
        """Return the decisions about the first single pods, made in one trial."""
        found = list[list[DecisionInFull]]()
        until = inf
        with what_if.trial():
            for unit in takewhile(lambda unit: unit.group is None, units):
                try:
                    document = self._decide(unit, what_if, nodes)
                except (AttemptTooLongError, PluginError):
                    if not found:
                        raise
                    break
                if not found:  # it may take as long as the trial: 500 Services take 40 ms
                    until = self.clock() + _TRIAL_SECONDS
                found.append([document])
                # The suggestions for a pod without a node need this state.
                if document.node is None or self.clock() >= until:
                    break
                nodes = 0
        return found

    def _decide(self, unit: "_Unit", what_if: WhatIf, nodes: int) -> DecisionInFull:
        pipeline, (pod,) = unit.pipeline, unit.pods
        if pipeline is None:
            return _without_node(pod, None, self._no_profile(pod))
        if (message := held_back(pod, pipeline)) is not None:
            return _without_node(pod, pipeline, message)
        row, document = decision_in_full(pod, pipeline, what_if, nodes=nodes)
        if row is not None:
            what_if.add(pod, what_if.cluster.nodes.name(row), pipeline)
        elif document.nominated_node is not None:
            what_if.nominate(pod, document.nominated_node)
        return document

    async def _group(
        self,
        unit: "_Unit",
        pipeline: Pipeline,
        group: PodGroupState,
        what_if: WhatIf,
        slices: TimeSlices,
    ) -> list[DecisionInFull]:
        group = self._beside_members(group)
        obstacles = (held_back(pod, pipeline, only=_SCHEDULING_GATES) for pod in unit.pods)
        incomplete = _CUT if unit.cut and group.incomplete else group.incomplete
        message = next(filter(None, obstacles), None) or incomplete
        if message is not None:
            return [_without_node(pod, pipeline, message) for pod in unit.pods]

        def decide() -> list[DecisionInFull]:
            decision = what_if.decide_group(group, unit.pods, pipeline, SearchBudget())
            if not decision.may_preempt or decision.rows:
                return [_member(pod, pipeline, decision, what_if) for pod in unit.pods]
            answer = what_if.preempt_for_group(group, unit.pods, pipeline)
            return _nominated(unit.pods, pipeline, decision, answer, what_if)

        return await self.scheduler.turn.run(decide, slices)

    async def _suggestions(self, unit: "_Unit", what_if: WhatIf) -> list[SuggestedChange]:
        if unit.pipeline is None:
            return []
        group = self._beside_members(unit.group) if unit.group is not None else None
        turn = self.scheduler.turn
        return await smallest_suggestions(
            unit.pods, unit.pipeline, what_if, self.clock, turn, group
        )

    async def _pods(
        self, wanted: CompareRequest, may_see: Callable[[Iterable[str]], Any]
    ) -> tuple[list[Pod], int]:
        """Return the first `MOST_COMPARED` pods to compare, and the number of all such pods."""
        if wanted.running and not wanted.namespace:
            raise InputError("say of which namespace the running pods are")
        found: list[tuple[Any, Pod]] = []
        namespaces = Counter[str]()

        def looked_for() -> None:
            for order, pod in self._comparable(wanted):
                if wanted.namespace in ("", pod.namespace):
                    found.append((order, pod))
                    namespaces[pod.namespace] += 1
                pause()

        await TimeSlices(rest=REST, clock=self.clock).run(looked_for)
        visible = await may_see([namespace for namespace, _ in namespaces.most_common()])
        first: list[tuple[Any, Pod]] = []
        total = 0

        def chosen() -> None:
            nonlocal first, total
            for start in range(0, len(found), MOST_COMPARED):
                part = [
                    each
                    for each in found[start : start + MOST_COMPARED]
                    if each[1].namespace in visible and each[1].limit_exceeded is None
                ]
                total += len(part)
                first = sorted(first + part, key=itemgetter(0))[:MOST_COMPARED]
                pause()

        await TimeSlices(rest=REST, clock=self.clock).run(chosen)
        if not first:
            raise InputError("there is no such pod that you may get")
        return [replace(pod, node_name=None) for _, pod in first], total

    def _comparable(self, wanted: CompareRequest) -> Iterator[tuple[Any, Pod]]:
        if not wanted.running:
            yield from ((by_priority(queued), queued.pod) for queued in self.scheduler.queue)
            return
        for placed in tuple(self.scheduler.state.pods):
            pod = placed.pod
            if not (pod.terminating or stays_on_its_node(pod)):
                yield (-pod.spec.priority, pod.created, pod.key), pod

    def _node_of(self, key: str) -> str | None:
        placed = self.scheduler.cluster.pod_named(key)
        return placed.pod.node_name if placed is not None else None


@dataclass(slots=True, eq=False)
class _Unit:
    """A single pod, or the members of a group, which are decided together.

    `cut` is True if the group has members beyond the limit on pods.
    """

    pods: list[Pod]
    pipeline: Pipeline | None
    group: PodGroupState | None = None
    cut: bool = False


def _new_objects(text: str) -> list[Manifest]:
    found: list[Manifest] = []
    written = Written(_MOST_MISTAKES)

    def take(manifest: Manifest) -> None:
        raw = {name: value for name, value in manifest.raw.items() if name != "status"}
        raw["metadata"] = {**mapping(raw, "metadata")}
        raw["metadata"].pop("uid", None)
        found.append(written.checked(replace(manifest, raw=raw)))

    read_all(manifests_in(text, "the pods", limits=_LIMITS), take)
    return found


def _add_group(manifest: Manifest, new_objects: NewObjects, found: _Objects) -> None:
    kind, raw = KINDS[manifest.group, manifest.kind], manifest.raw
    is_native = kind is Kind.POD_GROUP
    definition = new_objects.pod_group(raw) if is_native else parse_object(kind, raw)
    found.groups.append((kind, object_key(kind, raw), definition))


def _selecting(manifest: Manifest) -> tuple[Kind, str, Any]:
    kind = KINDS[manifest.group, manifest.kind]
    raw = as_stored(kind, manifest.raw)
    return kind, object_key(kind, raw), parse_object(kind, raw)


def _add_pod(manifest: Manifest, new_objects: NewObjects, found: _Objects) -> None:
    raw = new_objects.admit(manifest)
    if isinstance(raw, RejectedPod):
        found.rejected.append(raw)
        return
    pod = parse_pod(raw)
    if pod.key in found.pods:
        raise ManifestError(f"Pod {pod.key}", f"is given already in {found.sources[pod.key]}")
    found.pods[pod.key] = pod
    found.sources[pod.key] = manifest.source


async def _reject_hidden(objects: _Objects, may_see: Callable[[Iterable[str]], Any]) -> None:
    visible = await may_see(pod.namespace for pod in objects.pods.values())
    for pod in tuple(objects.pods.values()):
        if pod.namespace not in visible:
            del objects.pods[pod.key]
            message = (
                f"you may not get the pods of namespace {pod.namespace}; choose another namespace"
            )
            objects.rejected.append(RejectedPod(pod.key, "", message))


def _made_of(
    manifest: Manifest, new_objects: NewObjects, notes: dict[str, None]
) -> Iterator[Manifest]:
    if not makes_pods(manifest):
        version = manifest.raw.get("apiVersion") or "no apiVersion"
        raise manifest.error(
            f"kind: {manifest.kind} of {version} makes no pods here; write Pods, PodGroups, "
            "Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs or CronJobs, and their "
            "Services"
        )
    for made in new_objects.expand(manifest):
        if made.kind == "PersistentVolumeClaim":
            notes[_NO_CLAIMS] = None
        elif made.kind == "Pod":
            spec = dict(mapping(made.raw, "spec"))
            if spec.pop("runtimeClassName", None) is not None:
                notes[_NO_RUNTIME_CLASS] = None
            spec.pop("nodeName", None)
            yield replace(made, raw={**made.raw, "spec": spec})
        else:
            yield made


def _member(
    pod: Pod, pipeline: Pipeline, decision: GroupDecision, what_if: WhatIf
) -> DecisionInFull:
    document = _without_node(pod, pipeline, decision.message, decision.cause)
    document = replace(document, nodes=what_if.cluster.node_count)
    row = decision.rows.get(pod.uid)
    if row is None:
        return document
    name = what_if.cluster.nodes.name(row)
    what_if.add(pod, name, pipeline, decision.devices.get(pod.uid))
    return replace(document, node=name, message=None, cause=None)


def _nominated(
    pods: Sequence[Pod],
    pipeline: Pipeline,
    decision: GroupDecision,
    answer: GroupPreemption,
    what_if: WhatIf,
) -> list[DecisionInFull]:
    """Return the decisions about a group that does not fit; nominate its members in `what_if`."""
    decision = decision.after(answer)
    if not isinstance(answer, GroupNomination):
        return [_member(pod, pipeline, decision, what_if) for pod in pods]
    found = list[DecisionInFull]()
    for pod in pods:
        document = _member(pod, pipeline, decision, what_if)
        if (node := answer.nodes.get(pod.uid)) is not None:
            document = replace(document, nominated_node=node)
            what_if.nominate(pod, node)
        found.append(document)
    # Only the first member's decision has the victims, so that they are counted once.
    found[0] = replace(found[0], victims=tuple(map(PodRef.of, answer.victims)))
    return found


def _without_node(
    pod: Pod, pipeline: Pipeline | None, message: str, cause: str = ""
) -> DecisionInFull:
    return DecisionInFull(
        pod=PodRef.of(pod),
        profile=pipeline.profile if pipeline is not None else None,
        node=None,
        nominated_node=None,
        victims=(),
        scores=None,
        rejections={},
        message=message,
        nodes=0,
        feasible=0,
        cause=cause or message,
        pre_filter=None,
        filters=[],
    )


def _rejected(each: RejectedPod) -> Tried:
    pods = [TriedPod(PodRef.of_key(each.pod), None)]
    return Tried(
        profile=None, fits=False, message=each.message, cause=each.message, victims=(), pods=pods
    )


def _tried(unit: _Unit, documents: Sequence[DecisionInFull]) -> Tried:
    first = next((each for each in documents if each.node is None), documents[0])
    group = unit.group
    return Tried(
        pod_group=f"{group.key.namespace}/{group.key.name}" if group is not None else None,
        profile=first.profile,
        fits=any(each.node is not None for each in documents),
        message=first.message,
        cause=first.cause,
        feasible=first.feasible if group is None else None,
        victims=[victim for each in documents for victim in each.victims],
        pods=[TriedPod(each.pod, each.node, each.nominated_node) for each in documents],
    )


def _short(decision: DecisionInFull) -> dict[str, Any]:
    shown = ("pod", "profile", "node", "feasible", "message", "cause", "nominatedNode", "victims")
    every = fields_of(decision)
    return {name: every[name] for name in shown}
