"""What rules count after any events is what counting all pods again gives."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mooring.framework.evaluations import Evaluations
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.verdicts import SKIP
from mooring.model.events import Kind
from mooring.model.node import ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.plugins.rules.plugin import Rules
from mooring.policy.reading import read
from mooring.policy.rules.rule import Rule
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.topology.counts import TopologyCounts
from mooring.testing.builders import namespace, node, pod, uid_of
from mooring.testing.fakes import handle

NAMES, NODES, NAMESPACES = ("p0", "p1", "p2", "p3"), ("n0", "n1", "n2"), ("team-a", "team-b")

Count = Callable[[str | None, Callable[[Pod], bool]], int]
"""Counts the pods that are selected in the domain of a node; KeyError if it is in none."""
Model = Callable[["Counting", Pod, Count], bool]


def app(pod: Pod) -> str:
    return pod.labels["app"]


def has_app(name: str, pod: Pod) -> bool:
    return pod.labels.get("app") == name


MODELS: Mapping[str, Model] = {
    'domain("rack").pods({"app": "a"}) == 0': lambda _, pod, count: (
        count("rack", lambda p: p.labels.get("app") == "a" and p.namespace == pod.namespace) == 0
    ),
    'domain("rack").pods({"app": pod.labels.app}, {}) < 2': lambda _, pod, count: (
        count("rack", partial(has_app, app(pod))) < 2
    ),
    '!has(pod.labels.app) || node.pods({"app": pod.labels.app}) < 1': lambda _, pod, count: (
        "app" not in pod.labels
        or count(None, lambda p: p.labels.get("app") == app(pod) and p.namespace == pod.namespace)
        < 1
    ),
    f'domain("{ZONE}").pods("app notin (a), tier", ["team-a"]) >= 1': lambda _, __, count: (
        count(
            ZONE,
            lambda p: p.labels.get("app") != "a" and "tier" in p.labels and p.namespace == "team-a",
        )
        >= 1
    ),
    f'!("{ZONE}" in node.labels) || domain("{ZONE}").pods({{}}, {{"env": "prod"}}) * 2 <= 3': (
        lambda machine, _, count: (
            count(ZONE, lambda p: machine.namespaces.get(p.namespace, {}).get("env") == "prod") * 2
            <= 3
        )
    ),
}
ABSENT_IS_TRUE = [*MODELS][-1]

"""The rule that is true where the label is absent."""

labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(("a", "b")), "tier": st.sampled_from(("web", "db"))}
)
namespaces = st.sampled_from(NAMESPACES)
incoming = st.builds(pod, st.just("incoming"), namespace=namespaces, labels=labels).map(parse_pod)
placed = st.builds(
    pod,
    st.sampled_from(NAMES),
    namespace=namespaces,
    labels=labels,
    node=st.sampled_from(NODES),
    terminating=st.booleans(),
).map(parse_pod)


class Counting(RuleBasedStateMachine):
    """Any event; the rules are those of one profile, asked between the events."""

    @initialize(kept=st.sampled_from((1, 3, 2048)), most=st.sampled_from((1, 700, None)))
    def begin(self, kept: int, most: int | None) -> None:
        self.state = ClusterState()
        self.state.topology = TopologyCounts(
            self.state.nodes, self.state.objects, most_kept=kept, per_slice=1
        )
        self.cluster, self.evaluations = ClusterView(self.state), Evaluations(most)
        built_with = replace(handle(self.state), evaluations=self.evaluations)
        self.plugins = {
            source: Rules(read(Rule, {"name": f"r{n}", "filter": source}, ""), built_with)
            for n, source in enumerate(MODELS)
        }
        self.namespaces: dict[str, dict[str, str]] = {}
        self.incoming: dict[str, Pod] = {}
        for name, zone in zip(NODES, ("a", "b", "b"), strict=True):
            self.put_node(name, zone, "r1")

    @rule(pod=incoming)
    def ask_about(self, pod: Pod) -> None:
        self.incoming[f"{pod.namespace} {pod.labels}"] = pod

    @rule(
        name=st.sampled_from(NODES),
        zone=st.sampled_from((None, "a", "b")),
        rack=st.sampled_from(("", "r1", "r2")),
    )
    def put_node(self, name: str, zone: str | None, rack: str) -> None:
        raw = node(name, zone=zone, labels={"rack": rack} if rack else None)
        self.state.put(Kind.NODE, name, parse_object(Kind.NODE, raw))

    @rule(name=st.sampled_from(NODES))
    def delete_node(self, name: str) -> None:
        self.state.delete(Kind.NODE, name)

    @rule(name=namespaces, labels=st.sampled_from(({}, {"env": "prod"}, {"env": "dev"})))
    def put_namespace(self, name: str, labels: dict[str, str]) -> None:
        self.namespaces[name] = labels
        self.state.put(Kind.NAMESPACE, name, parse_object(Kind.NAMESPACE, namespace(name, labels)))

    @rule(pod=placed)
    def put_pod(self, pod: Pod) -> None:
        self.state.put(Kind.POD, pod.uid, pod)

    @rule(namespace=namespaces, name=st.sampled_from(NAMES))
    def delete_pod(self, namespace: str, name: str) -> None:
        self.state.delete(Kind.POD, uid_of(name, namespace))

    @rule(pod=placed)
    def assume(self, pod: Pod) -> None:
        row = self.cluster.row(pod.node_name or "")
        if row is not None and self.cluster.node(row) is not None:
            self.state.assume(pod, row)

    @rule()
    def try_without_any_pod(self) -> None:
        with self.state.trial() as trial:
            for held in tuple(self.state.pods):
                trial.remove(held.pod.uid)
            self.every_rule_is_what_a_recount_says()

    @invariant()
    def every_rule_is_what_a_recount_says(self) -> None:
        nodes = self.cluster.nodes
        for about in self.incoming.values():
            for source, plugin in self.plugins.items():
                fits = self.passed(plugin, about)
                for index in np.flatnonzero(nodes.present).tolist():
                    assert fits[index] == self.expected(source, about, index), source

    def passed(self, plugin: Rules, pod: Pod) -> Any:
        """Return which nodes the rule lets pass, in one attempt or several."""
        if plugin.pre_filter(pod, self.cluster) is SKIP:
            return np.ones(len(self.cluster.nodes), np.bool_)
        while True:
            self.evaluations.begin_attempt()
            with suppress(PluginFailed):
                return plugin.filter(pod, self.cluster.nodes, None)

    def expected(self, source: str, pod: Pod, row: int) -> bool:
        """Count one pod after the other, with nothing remembered."""

        def count(key: str | None, selected: Callable[[Pod], bool]) -> int:
            domain = self.domain(row, key)
            if domain is None:
                raise KeyError(key)
            held = (h for h in self.state.pods if self.domain(h.row, key) == domain)
            return sum(selected(h.pod) for h in held)

        try:
            return bool(MODELS[source](self, pod, count))
        except KeyError:  # a label that the pod or the node does not have
            return source == ABSENT_IS_TRUE

    def domain(self, row: int, key: str | None) -> object:
        known = self.cluster.node(row)
        if key is None:
            return row
        return known.labels.get(key) if known is not None else None


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
