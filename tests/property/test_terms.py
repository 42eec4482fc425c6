"""Counts kept up to date event by event are those that a full recount gives."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mooring.model.affinity import AffinityTerm
from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.model.selectors import parse_label_selector
from mooring.state.cluster import ClusterState
from mooring.state.labels import EACH_NODE
from mooring.state.topology.counts import TopologyCounts
from mooring.state.topology.domain_counts import DomainCounts
from mooring.state.topology.equivalent_pods import Role
from mooring.state.topology.pod_selection import PodSelector, Selection, selection
from mooring.testing.builders import namespace, node, pod, uid_of

NAMES = tuple(f"p{i}" for i in range(5))
NODES = tuple(f"n{i}" for i in range(3))
NAMESPACES = ("team-a", "team-b")
KEYS = (HOSTNAME, ZONE, "rack")
SELECTORS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "b", "tier": "web"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
)
NAMESPACE_SELECTORS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"matchLabels": {"env": "prod"}},
    {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
)
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"

labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(("a", "b", "c")), "tier": st.sampled_from(("web", "db"))}
)
namespaces = st.sampled_from(NAMESPACES)
part = st.builds(
    PodSelector,
    st.sampled_from(SELECTORS).map(parse_label_selector),
    st.sampled_from((NAMESPACES, NAMESPACES[:1], ())).map(frozenset),
    st.sampled_from(NAMESPACE_SELECTORS).map(parse_label_selector),
)
selections = st.builds(
    selection, st.one_of(st.tuples(part), st.tuples(part, part)), terminating=st.booleans()
)
term = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(KEYS), "labelSelector": st.sampled_from(SELECTORS)},
    optional={
        "namespaces": st.lists(namespaces, min_size=1, max_size=2),
        "namespaceSelector": st.sampled_from(NAMESPACE_SELECTORS),
    },
)
terms = st.lists(term, max_size=2).map(lambda chosen: chosen * 2 if len(chosen) == 1 else chosen)
weighted = st.fixed_dictionaries({"weight": st.sampled_from((1, 7)), "podAffinityTerm": term})
affinity = st.fixed_dictionaries({HARD: terms, SOFT: st.lists(weighted, max_size=2)})
incoming = st.builds(pod, st.just("incoming"), namespace=namespaces, labels=labels).map(parse_pod)
placed = st.builds(
    pod,
    st.sampled_from(NAMES),
    namespace=namespaces,
    labels=labels,
    node=st.sampled_from(NODES),
    terminating=st.booleans(),
    affinity=st.one_of(
        st.none(), st.fixed_dictionaries({"podAffinity": affinity, "podAntiAffinity": affinity})
    ),
).map(parse_pod)


class CountedCluster(RuleBasedStateMachine):
    """Any event, with some counts asked for early, some late and some forgotten in between."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.asked: dict[tuple[Selection, str], None] = {}
        self.counted_in_slices: dict[tuple[Selection, str], None] = {}
        self.incoming: dict[str, Pod] = {}

    @initialize(
        most=st.sampled_from((2, 8, 2048)),
        most_bytes=st.sampled_from((1, 5_000, 2**26)),
        asked=st.lists(selections, max_size=5),
    )
    def begin(self, most: int, most_bytes: int, asked: list[Selection]) -> None:
        self.state.topology = TopologyCounts(
            self.state.nodes,
            self.state.objects,
            most_kept=most,
            most_bytes=most_bytes,
            per_slice=1,
        )
        self.asked = dict.fromkeys((pods, key) for pods in asked for key in (ZONE, EACH_NODE))
        for name, zone in zip(NODES, "abb", strict=True):
            self.put_node(name, zone, "r1")
        self.put_namespace("team-a", "prod")

    @rule(pods=selections, key=st.sampled_from((*KEYS, EACH_NODE)))
    def ask(self, pods: Selection, key: str) -> None:
        self.asked[pods, key] = None

    @rule(pods=selections, key=st.sampled_from((ZONE, EACH_NODE)))
    def begin_to_count(self, pods: Selection, key: str) -> None:
        self.counted_in_slices[pods, key] = None
        self.count_on()

    @rule()
    def count_on(self) -> None:
        for pods, key in self.counted_in_slices:
            was_counted = self.state.topology.is_counted(pods, key)
            looked_at = self.state.topology.count_some(pods, key)
            assert looked_at <= (0 if was_counted else 1)

    @rule()
    def ask_for_what_is_counted_in_slices(self) -> None:
        for pods, key in self.counted_in_slices:
            counts = self.state.topology.counts(pods, key)
            assert by_value(counts) == self.recount(pods, key)
            assert self.state.topology.is_counted(pods, key)

    @rule(pod=incoming)
    def ask_about(self, pod: Pod) -> None:
        self.incoming = {f"{pod.namespace} {pod.labels}": pod, **self.incoming}

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

    @rule(name=namespaces, env=st.sampled_from((None, "prod", "dev")))
    def put_namespace(self, name: str, env: str | None) -> None:
        raw = namespace(name, {"env": env} if env else None)
        self.state.put(Kind.NAMESPACE, name, parse_object(Kind.NAMESPACE, raw))

    @rule(name=namespaces)
    def delete_namespace(self, name: str) -> None:
        self.state.delete(Kind.NAMESPACE, name)

    @rule(pod=placed)
    def put_pod(self, pod: Pod) -> None:
        self.state.put(Kind.POD, pod.uid, pod)

    @rule(name=st.sampled_from(NAMES), namespace=namespaces, stated=placed)
    def put_other_terms(self, name: str, namespace: str, stated: Pod) -> None:
        held = self.state.pods.named(f"{namespace}/{name}")
        if held is not None:
            spec = replace(held.pod.spec, affinity=stated.spec.affinity)
            self.put_pod(replace(held.pod, spec=spec))

    @rule(pod=placed)
    def assume(self, pod: Pod) -> None:
        row = self.row_of_a_node(pod)
        if row is not None:
            self.state.assume(pod, row)

    @rule(namespace=namespaces, name=st.sampled_from(NAMES))
    def delete_pod(self, namespace: str, name: str) -> None:
        self.state.delete(Kind.POD, uid_of(name, namespace))

    @rule(pod=placed)
    def try_in_place_of_the_others(self, pod: Pod) -> None:
        row, known = self.row_of_a_node(pod), self.state.pods.get(pod.uid)
        if row is None or (known is not None and known.row != row):
            return
        with self.state.trial() as trial:
            for other in tuple(self.state.pods.on(row)):
                trial.remove(other.pod.uid)
            trial.add(pod, row)
            self.every_count_is_that_of_a_recount()

    def row_of_a_node(self, pod: Pod) -> int | None:
        """Return the row where the pod could be placed: the row of a node, not only of a name."""
        row = self.state.nodes.row_of.get(pod.node_name or "")
        return None if row is None or self.state.nodes.nodes[row] is None else row

    @invariant()
    def every_count_is_that_of_a_recount(self) -> None:
        for pods, key in self.asked:
            counts = self.state.topology.counts(pods, key)
            assert by_value(counts) == self.recount(pods, key)
        for about in self.incoming.values():
            for role in Role:
                found = dict[str, dict[str, int]]()
                for domains, sums in self.state.topology.owners(role, about).items():
                    *by_code, absent = sums.tolist()
                    assert absent == 0
                    pairs = zip(domains.values, by_code, strict=True)
                    found[domains.key] = {value: number for value, number in pairs if number}
                assert found == self.recount_owners(role, about)

    def recount(self, pods: Selection, key: str) -> Mapping[str, int]:
        """Count one pod after the other, with nothing remembered."""
        found = Counter[str]()
        for held in self.state.pods:
            known = self.state.objects.known_namespace_labels(held.pod.namespace)
            value = self.value(held.row, key)
            if value is None or (held.pod.terminating and not pods.terminating):
                continue
            if all(p.selects(held.pod.namespace, known, held.pod.labels) for p in pods.parts):
                found[value] += 1
        return found

    def recount_owners(self, role: Role, pod: Pod) -> Mapping[str, Mapping[str, int]]:
        """Return the sums of weights by topology key and value, without zeros."""
        found = defaultdict[str, Counter[str]](Counter)
        for held in self.state.pods:
            for weight, stated in terms_of(held.pod, role):
                value = self.value(held.row, stated.topology_key)
                if value is not None and self.is_about(stated, pod):
                    found[stated.topology_key][value] += weight
        return {
            key: {value: number for value, number in sums.items() if number}
            for key, sums in found.items()
        }

    def is_about(self, term: AffinityTerm, pod: Pod) -> bool:
        """Return whether it is about the pod; an unknown namespace counts as without labels."""
        chosen = term.namespace_selector
        in_namespace = pod.namespace in term.namespaces or (
            chosen is not None
            and chosen.matches(self.state.objects.namespace_labels(pod.namespace))
        )
        return in_namespace and term.selector is not None and term.selector.matches(pod.labels)

    def value(self, row: int, key: str) -> str | None:
        if key == EACH_NODE:
            return self.state.nodes.names[row]
        known = self.state.nodes.nodes[row]
        return known.labels.get(key) if known is not None else None


def by_value(counts: DomainCounts) -> dict[str, int]:
    *by_code, absent = counts.by_code.tolist()
    assert absent == 0
    assert counts.total == sum(by_code)
    return {counts.domains.values[code]: number for code, number in enumerate(by_code) if number}


def terms_of(pod: Pod, role: Role) -> list[tuple[int, AffinityTerm]]:
    stated = pod.spec.affinity
    match role:
        case Role.REQUIRED:
            return [(1, term) for term in stated.required]
        case Role.FORBIDDEN:
            return [(1, term) for term in stated.required_anti]
        case Role.PREFERRED:
            return [(preferred.weight, preferred.term) for preferred in stated.preferred]


TestCountedCluster = CountedCluster.TestCase
TestCountedCluster.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
