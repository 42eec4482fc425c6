"""Identical pods share work, state is kept up to date event by event: the record must not show it.

Every shipped plugin is on. Each decision is taken three times: with the work shared so far, with
none, and on a state loaded anew from the objects that are there now.
"""

from dataclasses import replace
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mooring.extenders.verdicts import Needed, PodExtenderResults
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.model.events import Kind
from mooring.model.objects import identity, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.defaults import DEFAULT_WEIGHTS
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.policy.rules.rule import RULES
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult, decision_of
from mooring.scheduling.profiles_in_force import ActiveProfile, Profiles
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, namespace
from mooring.testing.fakes import handle
from strategies import NODE_NAMES, clusters_of_nodes, nodes, pods, surroundings

Raw = dict[str, Any]

REGISTRY: Final = Registry(SHIPPED, {})
OTHERS: Final = [p.name for p in SHIPPED if p.name not in {*DEFAULT_WEIGHTS, RULES}]
EVERY_PLUGIN: Final = read(
    SchedulingProfileSpec,
    {"plugins": {"multiPoint": {"enabled": [{"name": name} for name in OTHERS]}}},
    "spec",
)
TEMPLATES: Final = 3


def in_force(state: ClusterState) -> ActiveProfile:
    """Return a profile with every shipped plugin, over this state."""
    profile = SchedulingProfile("default-scheduler", EVERY_PLUGIN)
    return Profiles(REGISTRY, handle(state)).put(profile, resolve(EVERY_PLUGIN, REGISTRY))


def decided(
    profile: ActiveProfile, shared: ResultCache, pod: Pod, seed: int
) -> tuple[Decision, int | None]:
    """Return the record about every node, and the row of a placement."""
    outcome = decide(pod, profile.pipeline, shared, seed=seed)
    assert not isinstance(outcome, Needed)
    row = outcome.row if isinstance(outcome, ScheduleResult) else None
    return decision_of(pod, profile.pipeline, outcome), row


def without_the_choice(decision: Decision) -> Decision:
    """Return the outcome without the row, which is another one in another state."""
    return replace(decision, node=None, nominated_node=None, victims=())


class Stream(RuleBasedStateMachine):
    """Pods made from a few templates come and go while nodes change."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[Kind, str], Raw] = {}
        self.templates: list[Raw] = []
        self.count = 0

    @initialize(
        raw_nodes=clusters_of_nodes(at_least=3),
        templates=st.lists(
            pods(st.just("template"), st.none()), min_size=TEMPLATES, max_size=TEMPLATES
        ),
    )
    def start(self, raw_nodes: tuple[Raw, ...], templates: list[Raw]) -> None:
        self.state = cluster()
        self.profile = in_force(self.state)
        self.shared = ResultCache(ClusterView(self.state))
        self.templates = templates
        for raw in (*surroundings(), *raw_nodes):
            self.put(raw)

    def put(self, raw: Raw) -> None:
        kind = Kind(raw["kind"])
        key = identity(kind, raw)
        self.objects[kind, key] = raw
        self.state.put(kind, key, parse_object(kind, raw))

    def delete(self, kind: Kind, key: str) -> None:
        self.objects.pop((kind, key), None)
        self.state.delete(kind, key)

    @rule(
        template=st.integers(0, TEMPLATES - 1), replicas=st.integers(1, 4), seed=st.integers(0, 5)
    )
    def pods_come(self, template: int, replicas: int, seed: int) -> None:
        for _ in range(replicas):
            self.count += 1
            self.decide(self.named(self.templates[template], f"p{self.count}"), seed)

    def decide(self, raw: Raw, seed: int) -> None:
        pod = parse_pod(raw)
        shared, row = decided(self.profile, self.shared, pod, seed)
        alone, _ = decided(self.profile, ResultCache(ClusterView(self.state)), pod, seed)
        assert shared == alone
        fresh = cluster(*self.objects.values())
        anew, _ = decided(in_force(fresh), ResultCache(ClusterView(fresh)), pod, seed)
        assert without_the_choice(shared) == without_the_choice(anew)
        if row is not None:
            self.state.assume(pod, row)
            bound = {**raw, "spec": {**raw["spec"], "nodeName": shared.node}}
            self.objects[Kind.POD, pod.uid] = bound

    @rule(template=st.integers(0, TEMPLATES - 1))
    def extenders_are_to_be_called(self, template: int) -> None:
        """Run the first half of a decision: it uses the filters' results, not yet the scores."""
        pod = parse_pod(self.named(self.templates[template], "first-half"))
        answers = PodExtenderResults(pod)
        ends = [
            decide(pod, self.profile.pipeline, shared, seed=0, answers=answers)
            for shared in (self.shared, ResultCache(ClusterView(self.state)))
        ]
        assert type(ends[0]) is type(ends[1])
        if isinstance(ends[0], Needed):
            assert ends[0] == ends[1]

    def named(self, raw: Raw, name: str) -> Raw:
        metadata = {**raw["metadata"], "name": name, "uid": f"uid-{name}"}
        return {**raw, "metadata": metadata}

    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        placed = sorted(key for kind, key in self.objects if kind is Kind.POD)
        if placed:
            self.delete(Kind.POD, data.draw(st.sampled_from(placed)))

    @rule(data=st.data())
    def pod_is_confirmed(self, data: st.DataObject) -> None:
        placed = sorted(key for kind, key in self.objects if kind is Kind.POD)
        if placed:
            self.put(self.objects[Kind.POD, data.draw(st.sampled_from(placed))])

    @rule(raw=nodes(st.sampled_from(NODE_NAMES)))
    def node_comes_or_changes(self, raw: Raw) -> None:
        self.put(raw)

    @rule(name=st.sampled_from(NODE_NAMES))
    def node_goes(self, name: str) -> None:
        self.delete(Kind.NODE, name)

    @rule(env=st.sampled_from(("prod", "dev")))
    def namespace_changes(self, env: str) -> None:
        self.put(namespace("team-b", {"env": env}))

    @rule(raw=pods(st.sampled_from(("elsewhere-1", "elsewhere-2")), st.sampled_from(NODE_NAMES)))
    def pod_of_another_scheduler_comes(self, raw: Raw) -> None:
        self.put(raw)


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
