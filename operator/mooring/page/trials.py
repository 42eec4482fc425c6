"""Try it: decisions about pods that do not exist, or with other profiles, on the live state.

Nothing is written: pods are added and removed in trials on the state, which are undone before
other work runs, and plugins of an edited profile get an API that fails. Each step takes about as
long as a decision, and the event loop is free for three times as long after it. Pods that were
given a node in earlier steps are added again in each step, so that later pods see them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final

import yaml

from mooring.engine.groups.decision import GroupDecision, decide_group
from mooring.engine.groups.placement import DecisionOutdated
from mooring.engine.groups.slices import SearchBudget
from mooring.engine.pod_report import REST, SuggestedChange, smallest_suggestions
from mooring.engine.profiles import Profiles
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.decision import PodRef
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.registry import Registry
from mooring.framework.runtime import run_pre_enqueue
from mooring.framework.verdicts import PluginError
from mooring.model.errors import ManifestError
from mooring.model.events import Kind
from mooring.model.fields import mapping
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.pod_group import GroupKey
from mooring.observe.documents import fields_of
from mooring.page.decisions import DecisionInFull, decision_in_full
from mooring.page.slices import in_slices
from mooring.policy.errors import ProfileInvalid
from mooring.simulate.admission import Admission, Forbidden
from mooring.simulate.controllers import CONTROLLERS, Controllers
from mooring.simulate.manifests import InputError, Manifest, manifests_in
from mooring.simulate.object_fields import field_mistakes
from mooring.simulate.offline import offline_handle
from mooring.simulate.profiles import read_profiles
from mooring.state.cluster import Trial
from mooring.state.pod_groups import GROUP_KINDS, PodGroupState, PodGroupsWriter
from mooring.state.pods import PodTable

__all__ = ["MOST_BYTES", "MOST_PODS", "Compared", "Trials", "TrialsBusy", "Tried"]

MOST_BYTES: Final = 256 * 1024
"""Of a request, in all."""
MOST_PODS: Final = 100
"""Pods that one request decides about."""
_MOST_OBJECTS: Final = 50
_MOST_EVENTS: Final = 50_000
"""Scalars, lists and mappings of a YAML text."""
_DEEPEST: Final = 64
_MOST_WAITING: Final = 4
"""Requests that wait while one is worked on."""
_SECONDS: Final = 30.0
"""How long one request may take."""
_OUTDATED: Final = "the cluster changed while nodes for the group were searched; try again"
_MOST_MISTAKES: Final = 20
_SCHEDULING_GATES: Final = "SchedulingGates"
_GROUPS: Final = {
    ("scheduling.k8s.io", "PodGroup"): Kind.POD_GROUP,
    ("scheduling.x-k8s.io", "PodGroup"): Kind.COSCHEDULING_POD_GROUP,
}
_KINDS: Final = {source: kind for kind, source in GROUP_KINDS.items()}
_NO_RUNTIME_CLASS: Final = (
    "RuntimeClasses are not known here: their overhead and node selectors are not added"
)
_NO_CLAIMS: Final = "claims of volumeClaimTemplates are not made; such pods wait for them"


class TrialsBusy(Exception):  # noqa: N818 - an answer, and no error of ours
    """Too many requests wait already, or this one takes too long; the text says so."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What to try: objects as YAML or JSON, and by which profile.

    Without `profile` and `profile_text`, the profile in force that takes each pod decides.
    `profile_text` is a SchedulingProfile, a KubeSchedulerConfiguration or a Policy.
    """

    manifests: str
    profile: str = ""
    profile_text: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two profiles in force, or one and a text, to compare for pods.

    The pods are those that are pending, or, with `running`, those that run in the namespace; these
    are taken off their nodes first.
    """

    profile: str
    other: str = ""
    other_text: str = ""
    namespace: str = ""
    running: bool = False


@dataclass(slots=True, eq=False)
class _Overlay:
    """What is different from the live state in every step of a request."""

    removed: list[Uid] = field(default_factory=list)
    added: list[tuple[Pod, str]] = field(default_factory=list)
    """Pods that were given a node, with its name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Objects:
    """The pods of a text in its order, its pod groups, and what must be said about them."""

    pods: tuple[Pod, ...]
    more: bool
    groups: tuple[tuple[Kind, str, Any], ...]
    rejected: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


class Trials:
    """Works on one request at a time; `now` is the time since the epoch, in seconds."""

    def __init__(
        self,
        scheduler: SchedulerState,
        registry: Registry,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._clock = clock
        self._now = now
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def tried(self, wanted: Tried, may_see: Callable[[Iterable[str]], Any]) -> dict[str, Any]:
        """The decisions about the pods of a text, as JSON values.

        `details` is the whole decision about the first pod, `suggestions` what would make it fit if
        it has no node. `may_see` returns which of the namespaces the user may see, in an awaitable.
        Pods of others are not tried, because their groups, claims and namesakes would show.

        Raises:
            InputError: for mistakes in the texts.
            TrialsBusy: if other requests are worked on, or this takes too long.
        """
        async with self._turn():
            pipeline = await self._pipeline(wanted.profile, wanted.profile_text)
            manifests = await asyncio.to_thread(_new_objects, wanted.manifests)
            objects = await self._visible(await self._objects(manifests), may_see)
            if not objects.pods and not objects.rejected:
                raise InputError("the text makes no pods: write a Pod, a Deployment or the like")
            cache = ResultCache(self._scheduler.state.nodes)
            overlay = _Overlay([*self._replaced(objects.pods)])
            results = [
                {"pod": key, "node": None, "message": message, "cause": message}
                for key, message in objects.rejected
            ]
            details: list[DecisionInFull] = []
            units = self._units(objects, pipeline)
            async for documents in self._decided(units, overlay, cache, detailed=True):
                details += documents[:1] if not details else []
                results += [_short(document) for document in documents]
            found = await self._suggestions(objects.pods, pipeline, details, cache)
        return {
            "results": results,
            "details": details[0] if details else None,
            "suggestions": found,
            "notes": list(objects.notes),
            "more": objects.more,
        }

    async def compared(
        self, wanted: Compared, may_see: Callable[[Iterable[str]], Any]
    ) -> dict[str, Any]:
        """Where the pods go with either profile, as JSON values.

        `may_see` returns which of the namespaces the user may see, in an awaitable.

        Raises:
            InputError, TrialsBusy: as `tried`.
        """
        async with self._turn():
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
                cache = ResultCache(self._scheduler.state.nodes)
                units = [_Unit([pod], replace(pipeline, post_filter=())) for pod in pods]
                overlay = _Overlay(list(removed))
                side: list[dict[str, Any]] = []
                async for documents in self._decided(units, overlay, cache, detailed=False):
                    side += [_short(document) for document in documents]
                sides.append(side)
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
        }

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Inside, this request is the only one that is worked on, for a bounded time."""
        if self._waiting >= _MOST_WAITING:
            raise TrialsBusy("other requests are worked on; try again in some seconds")
        self._waiting += 1
        try:
            async with asyncio.timeout(_SECONDS), self._one_at_a_time:
                yield
        except TimeoutError:
            text = f"this takes longer than {_SECONDS:g} s; try fewer pods"
            raise TrialsBusy(text) from None
        finally:
            self._waiting -= 1

    async def _pipeline(self, name: str, text: str) -> Pipeline | None:
        """The pipeline of the text, else of the profile of this name; None without both."""
        if not text:
            return await self._named(name) if name else None
        try:
            manifests = await asyncio.to_thread(_read, text, "the profile")
            found = read_profiles(manifests, self._registry)
            if len(found) != 1:
                raise InputError(f"the profile: holds {len(found)} profiles; write one")
            profiles = Profiles(self._registry, offline_handle(self._scheduler.state))
            return profiles.build(found[0].profile, found[0].effective).pipeline
        except ProfileInvalid as invalid:
            mistakes = [f"the profile: {error}" for error in invalid.errors[:_MOST_MISTAKES]]
            raise InputError("\n".join(mistakes)) from None

    async def _named(self, name: str) -> Pipeline:
        in_force = self._scheduler.profiles.in_force
        if name not in in_force:
            raise InputError(f'there is no profile "{name}" in force')
        return in_force[name].pipeline

    async def _objects(self, manifests: Sequence[Manifest]) -> _Objects:
        """The pods that the API server and the controllers would make of the objects."""
        state = self._scheduler.state
        admission = Admission(state.objects.of(Kind.PRIORITY_CLASS).values(), ())
        nodes = (node for node in state.nodes.nodes if node is not None)
        claims = state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM)
        controllers = Controllers((), {}, claims, nodes)
        made: dict[str, Pod] = {}
        groups: list[tuple[Kind, str, Any]] = []
        rejected: list[tuple[str, str]] = []
        notes: dict[str, None] = {}
        more = False
        try:
            for manifest in manifests:
                kind = _GROUPS.get((manifest.group, manifest.kind))
                if kind is not None:
                    key = object_key(kind, manifest.raw)
                    groups.append((kind, key, parse_object(kind, manifest.raw)))
                    continue
                # In a thread: a DaemonSet's terms are compared with all nodes.
                fitting = islice(_pods_of(manifest, controllers, notes), MOST_PODS + 1)
                for raw in await asyncio.to_thread(list, fitting):
                    if len(made) + len(rejected) >= MOST_PODS:
                        more = True
                        break
                    began = self._clock()
                    try:
                        pod = parse_pod(admission.pod(raw))
                    except Forbidden as answer:
                        rejected.append((object_key(Kind.POD, raw), str(answer)))
                        continue
                    if pod.key in made:
                        raise InputError(f"{manifest.source}: pod {pod.key} is there twice")
                    made[pod.key] = pod
                    await asyncio.sleep(REST * (self._clock() - began))
        except ManifestError as error:
            raise InputError(str(error)) from None
        return _Objects(tuple(made.values()), more, tuple(groups), tuple(rejected), tuple(notes))

    @staticmethod
    async def _visible(objects: _Objects, may_see: Callable[[Iterable[str]], Any]) -> _Objects:
        """The objects, with the pods rejected whose namespace the user may not see."""
        visible = await may_see(pod.namespace for pod in objects.pods)
        hidden = [
            (
                pod.key,
                f"you may not get the pods of namespace {pod.namespace}; choose another namespace",
            )
            for pod in objects.pods
            if pod.namespace not in visible
        ]
        pods = tuple(pod for pod in objects.pods if pod.namespace in visible)
        return replace(objects, pods=pods, rejected=(*objects.rejected, *hidden))

    def _units(self, objects: _Objects, pipeline: Pipeline | None) -> "list[_Unit]":
        """The pods in the order in which they are decided; members of a group together."""
        scheduler = self._scheduler
        chosen: dict[str, Pipeline | None] = {}
        for pod in objects.pods:
            profile = None if pipeline else scheduler.profiles.of(pod, scheduler.cluster)
            chosen[pod.key] = pipeline or (profile.pipeline if profile is not None else None)
        writer = PodGroupsWriter(PodTable())
        formats = (f for p in chosen.values() if p is not None for f in p.pod_group_formats)
        writer.track(tuple(dict.fromkeys(formats)))
        for kind, key, definition in objects.groups:
            writer.define(kind, key, definition)
        for pod in objects.pods:
            writer.put_unscheduled(pod)
        units: dict[GroupKey | str, _Unit] = {}
        for pod in sorted(objects.pods, key=lambda pod: -pod.shape.priority):
            used = chosen[pod.key]
            group = None
            if used is not None and used.group_policy is not None:
                group = self._group_of(writer, pod)
            unit = units.setdefault(pod.key if group is None else group.key, _Unit([], used, group))
            unit.pods.append(pod)
        return list(units.values())

    def _group_of(self, writer: PodGroupsWriter, pod: Pod) -> PodGroupState | None:
        """The group of the pod, defined by the text or else in the cluster."""
        group = writer.groups.of(pod)
        if group is not None and group.definition is None:
            live = self._scheduler.cluster.pod_groups.get(group.key)
            if live is not None and live.definition is not None and group.key.source in _KINDS:
                key = f"{group.key.namespace}/{group.key.name}"
                writer.define(_KINDS[group.key.source], key, live.definition)
        return group

    async def _decided(
        self, units: "Iterable[_Unit]", overlay: _Overlay, cache: ResultCache, *, detailed: bool
    ) -> AsyncIterator[list[DecisionInFull]]:
        """The decisions about each unit, one after the other."""
        nodes = 100 if detailed else 0
        for unit in units:
            began = self._clock()
            try:
                if unit.group is not None and unit.pipeline is not None:
                    group = unit.group
                    documents = await self._group(unit, unit.pipeline, group, overlay, cache)
                else:
                    with self._overlaid(overlay):
                        documents = self._decide(unit, overlay, cache, nodes)
            except (PluginFailed, PluginError) as error:
                documents = [_without_node(pod, unit.pipeline, str(error)) for pod in unit.pods]
            yield documents
            nodes = 0
            await asyncio.sleep(REST * (self._clock() - began))

    def _replaced(self, pods: Iterable[Pod]) -> Iterator[Uid]:
        """Yield the uids of the cluster's pods that have the names of these pods."""
        for pod in pods:
            if (queued := self._scheduler.queue.named(pod.key)) is not None:
                yield queued.pod.uid
            if (placed := self._scheduler.cluster.pod_named(pod.key)) is not None:
                yield placed.pod.uid

    @contextmanager
    def _overlaid(self, overlay: _Overlay) -> Iterator[Trial]:
        """Inside, the state is as the request wants it; what is gone meanwhile is left out."""
        cluster = self._scheduler.cluster
        with cluster.trial() as trial:
            for uid in overlay.removed:
                trial.withdraw(uid)
                trial.remove(uid)
            for pod, name in overlay.added:
                row = cluster.row(name)
                if row is not None and cluster.node(row) is not None and not cluster.is_placed(pod):
                    trial.add(pod, row)
            yield trial

    def _decide(
        self, unit: "_Unit", overlay: _Overlay, cache: ResultCache, nodes: int
    ) -> list[DecisionInFull]:
        """The decisions about the pods of a unit; those with a node are in the overlay then."""
        pipeline, cluster = unit.pipeline, self._scheduler.cluster
        if pipeline is None:
            return [_without_node(p, None, _no_profile(p)) for p in unit.pods]
        (pod,) = unit.pods
        if (limit := pod.limit_exceeded) is not None:
            return [_without_node(pod, pipeline, limit)]
        if (gate := _gate(pod, pipeline)) is not None:
            return [_without_node(pod, pipeline, gate)]
        row, document = decision_in_full(
            pod, pipeline, cluster, cache, now=self._now(), nodes=nodes
        )
        if row is not None:
            overlay.added.append((pod, cluster.nodes.name(row)))
        return [document]

    async def _group(
        self,
        unit: "_Unit",
        pipeline: Pipeline,
        group: PodGroupState,
        overlay: _Overlay,
        cache: ResultCache,
    ) -> list[DecisionInFull]:
        """The decision about all pods of a group, with a pause after each slice of the search."""
        obstacles = chain(
            (pod.limit_exceeded for pod in unit.pods),
            (_gate(pod, pipeline, only=_SCHEDULING_GATES) for pod in unit.pods),
        )
        message = next(filter(None, obstacles), None) or group.incomplete
        if message is not None:
            return [_without_node(pod, pipeline, message) for pod in unit.pods]
        cluster = self._scheduler.cluster
        budget = SearchBudget(clock=self._clock)
        steps = decide_group(
            group, unit.pods, pipeline, cluster, cache, seed=0, rejected={}, budget=budget
        )
        while True:
            began = self._clock()
            decision: GroupDecision | None = None
            try:
                with self._overlaid(overlay):
                    next(steps)
            except StopIteration as ended:
                decision = ended.value
            except DecisionOutdated:
                decision = GroupDecision({}, message=_OUTDATED)
            if decision is not None:
                # Before the pause that the caller makes: a row may be another node's after it.
                return [self._member(pod, pipeline, decision, overlay) for pod in unit.pods]
            await asyncio.sleep(REST * (self._clock() - began))

    def _member(
        self, pod: Pod, pipeline: Pipeline, decision: GroupDecision, overlay: _Overlay
    ) -> DecisionInFull:
        """The decision about one pod of a group; with a node it is in the overlay then."""
        document = _without_node(pod, pipeline, decision.message)
        row = decision.rows.get(pod.uid)
        if row is None:
            return document
        name = self._scheduler.cluster.nodes.name(row)
        overlay.added.append((pod, name))
        return replace(document, node=name, message=None, cause=None)

    async def _suggestions(
        self,
        pods: Sequence[Pod],
        pipeline: Pipeline | None,
        details: Sequence[DecisionInFull],
        cache: ResultCache,
    ) -> list[SuggestedChange]:
        """What would make the first pod fit, if it was decided alone and has no node."""
        first = details[0] if details else None
        if first is None or first.node is not None or not first.nodes:
            return []
        scheduler = self._scheduler
        pod = next(pod for pod in pods if pod.key == first.pod.key)
        profile = scheduler.profiles.of(pod, scheduler.cluster)
        used = pipeline or (profile.pipeline if profile is not None else None)
        if used is None:
            return []
        return await smallest_suggestions(pod, used, scheduler.cluster, cache, self._clock)

    async def _pods(
        self, wanted: Compared, may_see: Callable[[Iterable[str]], Any]
    ) -> tuple[list[Pod], int]:
        """The pods to compare the profiles by, at most `MOST_PODS`, and how many there are."""
        if wanted.running and not wanted.namespace:
            raise InputError("say of which namespace the running pods are")
        found: list[tuple[Any, Pod]] = []
        namespaces = Counter[str]()

        def looked_for() -> Iterator[None]:
            for order, pod in self._comparable(wanted):
                if wanted.namespace in ("", pod.namespace):
                    found.append((order, pod))
                    namespaces[pod.namespace] += 1
                yield

        await in_slices(looked_for(), self._clock)
        visible = await may_see([namespace for namespace, _ in namespaces.most_common()])
        first: list[tuple[Any, Pod]] = []
        total = 0

        def chosen() -> Iterator[None]:
            nonlocal first, total
            for start in range(0, len(found), MOST_PODS):
                part = [
                    each
                    for each in found[start : start + MOST_PODS]
                    if each[1].namespace in visible and each[1].limit_exceeded is None
                ]
                total += len(part)
                first = sorted(first + part, key=itemgetter(0))[:MOST_PODS]
                yield

        await in_slices(chosen(), self._clock)
        if not first:
            raise InputError("there is no such pod that you may get")
        return [replace(pod, node_name=None) for _, pod in first], total

    def _comparable(self, wanted: Compared) -> Iterator[tuple[Any, Pod]]:
        """The pending pods, or those that run, of all namespaces; each with its sort key."""
        if not wanted.running:
            yield from ((by_priority(queued), queued.pod) for queued in self._scheduler.queue)
            return
        for placed in tuple(self._scheduler.state.pods):
            pod = placed.pod
            if _moves(pod):
                yield (-pod.shape.priority, pod.created, pod.key), pod

    def _node_of(self, key: str) -> str | None:
        placed = self._scheduler.cluster.pod_named(key)
        return placed.pod.node_name if placed is not None else None


@dataclass(slots=True, eq=False)
class _Unit:
    """Pods that are decided together: one, or the members of a group."""

    pods: list[Pod]
    pipeline: Pipeline | None
    group: PodGroupState | None = None


def _read(text: str, name: str) -> list[Manifest]:
    """The objects of a text, after a look at how large it becomes.

    Raises:
        InputError: if it is too large, has aliases, or is no YAML.
    """
    depth, count = 0, 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            count += 1
            if isinstance(event, yaml.AliasEvent):
                raise InputError("YAML aliases are not read here; write the values out")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _DEEPEST or count > _MOST_EVENTS:
                raise InputError(f"the text is nested deeper than {_DEEPEST} levels, or too long")
    except yaml.YAMLError as error:
        raise InputError(" ".join(str(error).split())) from None
    manifests = [*islice(manifests_in(text, name), _MOST_OBJECTS + 1)]
    if len(manifests) > _MOST_OBJECTS:
        raise InputError(f"the text has more than {_MOST_OBJECTS} objects")
    return manifests


def _new_objects(text: str) -> list[Manifest]:
    """The objects of a text, as if nothing of them was stored yet.

    Raises:
        InputError: as `_read`, and for mistakes in the fields of pods and their controllers.
    """
    found: list[Manifest] = []
    try:
        for manifest in _read(text, "the pods"):
            raw = {name: value for name, value in manifest.raw.items() if name != "status"}
            raw["metadata"] = {**mapping(raw, "metadata")}
            raw["metadata"].pop("uid", None)
            mistakes = [*islice(field_mistakes(raw), _MOST_MISTAKES)]
            if mistakes:
                lines = (f"{manifest.source}: {mistake}" for mistake in mistakes)
                raise InputError("\n".join(lines))
            found.append(replace(manifest, raw=raw))
    except ManifestError as error:
        raise InputError(str(error)) from None
    return found


def _pods_of(
    manifest: Manifest, controllers: Controllers, notes: dict[str, None]
) -> Iterator[dict[str, Any]]:
    """The raw pods of one object; InputError if objects of its kind make no pods."""
    if (manifest.group, manifest.kind) == ("", "Pod"):
        made: Iterable[dict[str, Any]] = [manifest.raw]
    elif (manifest.group, manifest.kind) in CONTROLLERS:
        made = (each.raw for each in controllers.expand(manifest))
    else:
        raise manifest.error(
            f"kind: {manifest.kind} makes no pods here; write Pods, PodGroups, Deployments, "
            "ReplicaSets, StatefulSets, DaemonSets, Jobs or CronJobs"
        )
    for each in made:
        if each["kind"] == "PersistentVolumeClaim":
            notes[_NO_CLAIMS] = None
        if each["kind"] != "Pod":
            continue
        spec = dict(mapping(each, "spec"))
        if spec.pop("runtimeClassName", None) is not None:
            notes[_NO_RUNTIME_CLASS] = None
        spec.pop("nodeName", None)
        yield {**each, "spec": spec}


def _moves(pod: Pod) -> bool:
    """Whether the pod would be scheduled anew: pods of DaemonSets and static ones stay."""
    kind = pod.owner.kind if pod.owner is not None else ""
    return kind not in ("DaemonSet", "Node") and not pod.terminating


def _gate(pod: Pod, pipeline: Pipeline, only: str = "") -> str | None:
    """Why a PreEnqueue plugin, or only that of this name, holds the pod back; None if none does."""
    for plugin in pipeline.pre_enqueue:
        if only in ("", plugin.name):
            answer = run_pre_enqueue(pipeline, plugin, pod)
            if answer is not None:
                return answer.reason
    return None


def _no_profile(pod: Pod) -> str:
    name = pod.shape.scheduler_name
    return f'no profile in force takes the pod (schedulerName "{name}"); choose one'


def _without_node(pod: Pod, pipeline: Pipeline | None, message: str) -> DecisionInFull:
    """Return the decision about a pod for which no filter ran."""
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
        cause=message,
        pre_filter=None,
        filters=[],
    )


def _short(decision: DecisionInFull) -> dict[str, Any]:
    shown = ("pod", "profile", "node", "feasible", "message", "cause", "nominatedNode", "victims")
    every = fields_of(decision)
    return {name: every[name] for name in shown}
