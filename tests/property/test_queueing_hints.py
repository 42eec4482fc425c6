"""Whatever changes, a rejected pod that could be placed after it has been told of it.

It is told either when the change happens or, like a pod that was in flight meanwhile, later and of
all changes at once. A change may be several steps that a list shows as one. Every plugin is held to
this by itself, and all of a profile in decisions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from features import (
    CLASSES,
    DRIVER,
    NAMESPACES,
    NODES,
    VOLUMES,
    Features,
    drawn_claims,
    drawn_volumes,
    node_feature,
    node_features,
    pod_features,
)
from mooring.framework.hints import QueueingHint
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, PreFilterResult, Unschedulable
from mooring.model.events import ClusterEvent, Kind
from mooring.model.node import ZONE
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.shared_values import shared_strings
from mooring.plugins import SHIPPED
from mooring.plugins.rules.plugin import Rules
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.policy.rules.rule import Rule
from mooring.runtime.queued_pod import QueuedPod, StateTimes, SubQueue
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError
from mooring.scheduling.profiles_in_force import Profiles
from mooring.scheduling.queue.run_hints import QueueingHints
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import api_object, namespace, node, pod, service
from mooring.testing.fakes import handle
from mooring.volumes.model.pod_volumes import ClaimVolume
from node_selectors import expression, required_nodes, term
from storage_builders import (
    csi_driver,
    csi_node,
    storage_capacity,
    storage_class,
    volume_attachment,
)

Raw = Mapping[str, Any]

NO_PROVISIONER = "kubernetes.io/no-provisioner"
PODS = {"p0": "default", "p1": "default", "p2": "other", "p3": "other"}
"""Names with their namespaces."""
ARGS: Mapping[str, Raw] = {
    "NodeAffinity": {
        "addedAffinity": required_nodes(term(expression("rack", "Exists")))["nodeAffinity"]
    },
    "NodeLabel": {"presentLabels": ["rack"], "absentLabels": ["disk"]},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    },
    "ServiceAffinity": {"affinityLabels": ["rack"]},
    "EBSVolumeCount": {"maxVolumes": 1},
}
"""Plugins are asked with default arguments and, where these are given, with others."""
RULES: Mapping[str, str] = {
    "apart": 'domain("rack").pods({"app": "a"}) == 0',
    "together": f'domain("{ZONE}").pods("app in (a, b)", {{}}) > 0',
    "few": "node.pods({}) < 2 && node.requested.cpu < 3000",
    "own": '!has(pod.labels.app) || domain("rack").pods({"app": pod.labels.app}) < 2',
    "production": 'node.pods("!app", {"env": "prod"}) == 0 || domain("rack").pods({}) > 1',
    "of-namespace": "node.allocatable.cpu > 1000 || pod.namespaceLabels.env == 'prod'",
}
"""Filters of rules by their names."""


def a_class(
    name: str, zone: str | None = None, *, waits: bool | None = None, provisioner: str = ""
) -> Raw:
    """Return one of the three storage classes, for nodes of a zone or for all.

    Whether it waits for the first consumer and its provisioner are as its name says if not given.
    """
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
    return storage_class(
        name,
        provisioner=provisioner or (NO_PROVISIONER if name == "late" else DRIVER),
        waits=name != "at-once" if waits is None else waits,
        **({"allowedTopologies": topologies} if zone else {}),
    )


node_names, pod_names = st.sampled_from(NODES), st.sampled_from(tuple(PODS))
volume_names = st.sampled_from(VOLUMES)
drawn_limits = st.builds(
    csi_node,
    node_names,
    st.sampled_from(({}, {DRIVER: None}, {DRIVER: 0}, {DRIVER: 1}, {DRIVER: 2})),
    migrated=st.sampled_from(((), ("kubernetes.io/aws-ebs",))),
)
pod_change = st.sampled_from(
    (
        {"labels": {"app": "a"}},
        {"labels": {"app": "b"}},
        {"labels": {}},
        {"cpu": "100m"},
        {"cpu": "2"},
        {"terminating": True},
        {"phase": "Succeeded"},
    )
)
"""What may happen to a pod on its node."""


class Answer(NamedTuple):
    """The nodes to which a plugin lets the pod go, and whether it rejects any other."""

    passed: frozenset[str]
    rejects: bool

    def opens(self, later: "Answer") -> bool:
        """Return whether a rejected pod may go now where it could not."""
        return self.rejects and not later.passed <= self.passed


class Lone:
    """A plugin by itself, asked about one pod."""

    def __init__(self, plugin: Any, pod: Pod, cluster: ClusterView) -> None:
        self._plugin, self._pod, self._cluster = plugin, pod, cluster
        self._answer = self._began_with = self._asked()
        self._since: list[ClusterEvent] = []

    def begin(self) -> None:
        """Begin an attempt that knows the cluster as it is now, and no later change."""
        self._began_with, self._since = self._answer, []

    def check(self, events: Sequence[ClusterEvent]) -> None:
        """Check that a node that opened, now or since the attempt began, opened by a cure."""
        self._since += events
        now, name = self._asked(), self._plugin.name
        assert not self._answer.opens(now) or self._is_cured(events), f"{name}: {events}"
        opened_since = self._began_with.opens(now)
        assert not opened_since or self._is_cured(self._since), f"{name}: {self._since}"
        self._answer = now

    def _is_cured(self, events: Iterable[ClusterEvent]) -> bool:
        return any(
            (event.kind, event.action) in self._plugin.events_to_register
            and self._plugin.queueing_hint(self._pod, event, self._cluster) is QueueingHint.QUEUE
            for event in events
        )

    def _asked(self) -> Answer:
        nodes = self._cluster.nodes.take(np.sort(self._cluster.nodes_in_order))
        names = passed = frozenset(nodes.name(i) for i in range(len(nodes)))
        prepare = getattr(self._plugin, "pre_filter", None)
        state = prepare(self._pod, self._cluster) if prepare is not None else None
        if isinstance(state, Unschedulable):
            return Answer(frozenset(), rejects=True)
        if isinstance(state, PreFilterResult):
            passed, state = names & state.node_names, state.state
        if state is not SKIP and hasattr(self._plugin, "filter"):
            out = nodes.take(nodes.rows[~self._plugin.filter(self._pod, nodes, state)])
            passed -= {out.name(i) for i in range(len(out))}
        return Answer(passed, rejects=passed < names)


class Refusals(RuleBasedStateMachine):
    """Pods wait while everything around them changes, a little at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.held: list[ClusterEvent] | None = None
        self.state.on_events(self.hear)
        self.cluster = ClusterView(self.state)
        registry = Registry(SHIPPED, {})
        built_with = handle(self.state)
        profiles = Profiles(registry, built_with)
        spec = SchedulingProfileSpec()
        profile = SchedulingProfile("default-scheduler", spec)
        self.pipeline = profiles.put(profile, resolve(spec, registry)).pipeline
        hints = QueueingHints(built_with)
        self.hint, self.signature = hints.is_worth_requeuing, hints.signature
        self.shared = ResultCache(self.cluster)
        self.uids = 0
        self.nodes: dict[str, Features] = {}
        self.placed: dict[Uid, tuple[str, Features, str]] = {}
        """The names of placed pods, their features and the names of their nodes."""
        self.since: list[ClusterEvent] = []
        self.lone: list[Lone] = []
        self.waiting: dict[Pod, QueuedPod | None] = {}
        self.in_flight: list[QueuedPod] = []

    @initialize(
        waiting=st.lists(pod_features, min_size=2, max_size=2),
        known=st.lists(node_features, min_size=2, max_size=3),
        placed=st.lists(st.tuples(pod_features, node_names), min_size=2, max_size=len(PODS)),
        stored=st.lists(drawn_volumes | drawn_claims | drawn_limits, min_size=2, max_size=4),
    )
    def begin(
        self,
        waiting: list[Features],
        known: list[Features],
        placed: list[tuple[Features, str]],
        stored: list[Raw],
    ) -> None:
        for name, features in zip(NODES, known, strict=False):
            self.nodes[name] = features
            self.show(node(name, **features))
        for raw in (service("front", {"app": "a"}), *map(a_class, CLASSES), *stored):
            self.show(raw)
        for name, (features, on) in zip(PODS, placed, strict=False):
            self.a_pod_is_seen_on_a_node(name, features, on)
        pods = [
            parse_pod(pod(f"waiting-in-{name}", namespace=name, **features))
            for name, features in zip(NAMESPACES, waiting, strict=True)
        ]
        plugins = _curable(handle(self.state))
        self.lone = [Lone(plugin, waits, self.cluster) for waits in pods for plugin in plugins]
        self.waiting = {waits: self.rejected(waits, SubQueue.UNSCHEDULABLE) for waits in pods}
        self.attempts_begin()

    @rule()
    def attempts_begin(self) -> None:
        """Begin attempts, which end much later, with the rejections of now."""
        self.since = []
        attempts = (self.rejected(waits, None) for waits in self.waiting)
        self.in_flight = [attempt for attempt in attempts if attempt is not None]
        for lone in self.lone:
            lone.begin()

    @rule(name=node_names, features=node_features)
    def a_node_comes(self, name: str, features: Features) -> None:
        assume(name not in self.nodes)
        self.nodes[name] = features
        self.show(node(name, **features))

    @precondition(lambda self: self.nodes)
    @rule(changes=st.lists(node_feature, min_size=1, max_size=3), data=st.data())
    def a_node_changes(self, changes: list[Features], data: st.DataObject) -> None:
        """Show a node after some changes; a list shows only what has become of all of them."""
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        for change in changes:
            self.nodes[name] = self.nodes[name] | change
        self.show(node(name, **self.nodes[name]))

    @rule(name=node_names)
    def a_node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.state.delete(Kind.NODE, name)

    @rule(name=pod_names, features=pod_features, on=node_names)
    def a_pod_is_seen_on_a_node(self, name: str, features: Features, on: str) -> None:
        """Show a pod on a node, perhaps before its node, or before the end of one of its name."""
        uid, features = self.unique(features)
        self.placed[uid] = name, features, on
        self.show_placed(uid)

    @precondition(lambda self: self.placed)
    @rule(changes=st.lists(pod_change, min_size=1, max_size=3), data=st.data())
    def a_placed_pod_changes(self, changes: list[Features], data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.placed)))
        name, features, on = self.placed[uid]
        for change in changes:
            features = features | change
        self.placed[uid] = name, features, on
        self.show_placed(uid)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def a_placed_pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.placed)))
        del self.placed[uid]
        self.state.delete(Kind.POD, uid)

    @rule(data=st.data(), labels=st.sampled_from(({"app": "a"}, {"app": "b"}, {})))
    def a_waiting_pod_is_relabelled(self, data: st.DataObject, labels: dict[str, str]) -> None:
        """Give it other labels; with the same signature it waits on for the same reasons."""
        before = data.draw(st.sampled_from(sorted(self.waiting, key=lambda waits: waits.key)))
        queued = self.waiting.pop(before)
        after = replace(before, labels=shared_strings(labels))
        now = self.rejected(after, SubQueue.UNSCHEDULABLE)
        if queued is not None:
            relabelled = replace(queued, pod=after)
            if self.signature(relabelled) == self.signature(queued):
                assert now is not None, f"{queued.unschedulable_plugins}: {labels}"
                now = relabelled
        self.waiting[after] = now

    @precondition(lambda self: self.nodes)
    @rule(name=pod_names, features=pod_features, data=st.data(), accepted=st.booleans())
    def a_pod_is_assumed(
        self, name: str, features: Features, data: st.DataObject, *, accepted: bool
    ) -> None:
        """Assume a pod, perhaps while its predecessor is on a node, or elsewhere than nominated.

        Accepted or rejected by Reserve and Permit: nothing else is decided or seen before that.
        """
        on = data.draw(st.sampled_from(sorted(self.nodes)))
        uid, features = self.unique(features)
        assumed, self.held = self.parsed(name, features, None), list[ClusterEvent]()
        self.state.assume(assumed, self.row(on))
        if accepted:
            self.placed[uid] = name, features, on
            self.state.announce(assumed)
        else:
            self.state.forget(assumed)
        events, self.held = self.held, None
        self.tell(events)

    @precondition(lambda self: self.state.pods.assumed)
    @rule(data=st.data(), on=st.none() | node_names)
    def an_assumption_ends(self, data: st.DataObject, on: str | None) -> None:
        """Take it back, or have the watch show the pod, perhaps on another node."""
        uid = data.draw(st.sampled_from(sorted(self.state.pods.assumed)))
        name, features, _ = self.placed[uid]
        if on is None:
            del self.placed[uid]
            self.state.forget(self.parsed(name, features, None))
        else:
            self.placed[uid] = name, features, on
            self.show_placed(uid)

    @precondition(lambda self: self.nodes)
    @rule(name=pod_names, features=pod_features, data=st.data())
    def room_is_made(self, name: str, features: Features, data: st.DataObject) -> None:
        """Make room for a pod of any priority, that may have been nominated elsewhere before."""
        nominated = self.parsed(name, self.unique(features)[1], None)
        on = data.draw(st.sampled_from(sorted(self.nodes)))
        self.state.nominate(nominated, on)

    @precondition(lambda self: len(self.state.nominations) > 0)
    @rule(data=st.data())
    def room_is_wanted_no_more(self, data: st.DataObject) -> None:
        uids = sorted(nominee.pod.uid for nominee in self.state.nominations)
        self.state.withdraw(data.draw(st.sampled_from(uids)))

    @rule(name=st.sampled_from(NAMESPACES), env=st.sampled_from(("prod", "dev", None)))
    def a_namespace_changes(self, name: str, env: str | None) -> None:
        if env is None:
            self.state.delete(Kind.NAMESPACE, name)
        else:
            self.show(namespace(name, {"env": env}))

    @rule(name=st.sampled_from(NAMESPACES), app=st.sampled_from(("a", "b", None)))
    def a_service_changes(self, name: str, app: str | None) -> None:
        if app is None:
            self.state.delete(Kind.SERVICE, f"{name}/front")
        else:
            self.show(service("front", {"app": app}, namespace=name))

    @rule(selector=st.sampled_from(({"app": "a"}, {"app": "b"}, None)))
    def a_replica_set_changes(self, selector: dict[str, str] | None) -> None:
        if selector is None:
            self.state.delete(Kind.REPLICA_SET, "default/rs")
        else:
            spec = {"selector": {"matchLabels": selector}}
            self.show(api_object("ReplicaSet", "rs", namespace="default", spec=spec))

    @rule(raw=drawn_volumes | drawn_claims, seen=st.booleans())
    def a_volume_or_claim_comes(self, raw: Raw, *, seen: bool) -> None:
        """Put it in place of the one of this name, whose end no watch may have seen."""
        assume(not self.is_protected(raw))
        if seen:
            self.remove(raw)
        self.show(self.another(raw))

    @rule(raw=drawn_volumes | drawn_claims)
    def a_volume_or_claim_goes(self, raw: Raw) -> None:
        assume(not self.is_protected(raw))
        self.remove(raw)

    @rule(
        raw=st.builds(
            a_class,
            st.sampled_from(CLASSES),
            st.sampled_from((None, "a", "b")),
            waits=st.booleans() | st.none(),
            provisioner=st.sampled_from(("", DRIVER, NO_PROVISIONER)),
        ),
        comes=st.booleans(),
    )
    def a_class_comes_or_goes(self, raw: Raw, *, comes: bool) -> None:
        """Show a class, perhaps in place of another one of its name."""
        if comes:
            self.show(self.another(raw))
        else:
            self.remove(raw)

    @rule(
        raw=drawn_limits
        | st.builds(csi_driver, st.just(DRIVER), storage_capacity=st.booleans())
        | st.builds(
            storage_capacity,
            st.just("free"),
            st.just("made"),
            st.sampled_from(("1Gi", "2Gi")),
            st.just({ZONE: "a"}),
        )
        | st.builds(volume_attachment, st.just("va"), st.just(DRIVER), node_names, volume_names),
        comes=st.booleans(),
        seen=st.booleans(),
    )
    def a_driver_publishes(self, raw: Raw, *, comes: bool, seen: bool) -> None:
        """Show what a driver says, perhaps in place of another object, whose end was not seen."""
        if seen or not comes:
            self.remove(raw)
        if comes:
            self.show(self.another(raw))

    def unique(self, features: Features) -> tuple[Uid, Features]:
        self.uids += 1
        uid = Uid(f"uid-{self.uids}")
        return uid, features | {"uid": uid}

    def another(self, raw: Raw) -> Raw:
        """Return the object under a uid of its own."""
        uid, _ = self.unique({})
        return {**raw, "metadata": {**raw["metadata"], "uid": uid}}

    def parsed(self, name: str, features: Features, on: str | None) -> Pod:
        given = {k: v for k, v in features.items() if k != "uid"}
        raw = pod(name, namespace=PODS[name], node=on, **given)
        raw["metadata"]["uid"] = features["uid"]
        return parse_pod(raw)

    def show_placed(self, uid: Uid) -> None:
        shown = self.parsed(*self.placed[uid])
        if shown.finished:
            del self.placed[uid]
        self.state.put(Kind.POD, shown.uid, shown)

    def row(self, name: str) -> int:
        return self.state.nodes.row_of[name]

    def show(self, raw: Raw) -> None:
        kind = Kind(raw["kind"])
        self.state.put(kind, object_key(kind, raw), parse_object(kind, raw))

    def remove(self, raw: Raw) -> None:
        kind = Kind(raw["kind"])
        self.state.delete(kind, object_key(kind, raw))

    def is_protected(self, raw: Raw) -> bool:
        """Return whether the object is in use, so that its finalizer keeps it."""
        name = raw["metadata"]["name"]
        if raw["kind"] == "PersistentVolumeClaim":
            volume = ClaimVolume(name, ephemeral=False)
            return any(volume in placed.pod.volumes for placed in self.state.pods)
        users = (Kind.PERSISTENT_VOLUME_CLAIM, Kind.VOLUME_ATTACHMENT)
        return any(
            user.volume_name == name
            for kind in users
            for user in self.cluster.objects(kind).values()
        )

    def hear(self, events: Sequence[ClusterEvent]) -> None:
        """Tell the events at once, or keep them while an attempt goes on."""
        if self.held is None:
            self.tell(events)
        else:
            self.held += events

    def tell(self, events: Sequence[ClusterEvent]) -> None:
        """Check that what happened is enough to wake every pod that could be placed now."""
        for lone in self.lone:
            lone.check(events)
        self.since += events
        for waits, queued in self.waiting.items():
            if queued is None:
                self.waiting[waits] = self.rejected(waits, SubQueue.UNSCHEDULABLE)
            else:
                self.waiting[waits] = self.told(queued, events)
        for queued in self.in_flight:
            self.told(queued, self.since)

    def told(self, queued: QueuedPod, events: Iterable[ClusterEvent]) -> QueuedPod | None:
        """Return the pod as it waits on, for new reasons if changes woke it; None if placed."""
        now = self.rejected(queued.pod, queued.queue)
        flew = queued.queue is None
        if any(self.hint(queued, event, during_attempt=flew) for event in events):
            return now
        assert now is not None, f"{queued.unschedulable_plugins} at {events}"
        return queued

    def rejected(self, waits: Pod, queue: SubQueue | None) -> QueuedPod | None:
        """Return the pod with those who reject it now; None if it could be placed."""
        outcome = decide(waits, self.pipeline, self.shared, seed=0)
        if not isinstance(outcome, FitError):
            return None
        return QueuedPod(
            waits,
            self.pipeline,
            0.0,
            0.0,
            queue=queue,
            unschedulable_plugins=outcome.diagnosis.plugins,
            times=StateTimes(0.0),
        )


def _curable(built_with: Any) -> list[Any]:
    """Return every shipped plugin that has queueing hints, and some rules."""
    rules = [Rules(read(Rule, {"name": n, "filter": f}, ""), built_with) for n, f in RULES.items()]
    return rules + [
        plugin(read(getattr(plugin, "Args", NoArgs), args, ""), built_with)
        for plugin in SHIPPED
        if hasattr(plugin, "events_to_register") and plugin is not Rules
        for args in ({}, *((ARGS[plugin.name],) if plugin.name in ARGS else ()))
    ]


Refusals.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
TestCures = Refusals.TestCase
