"""The single rules of the counts; tests/property/test_terms.py tests events in any order."""

from typing import Any

from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import parse_pod
from mooring.model.selectors import LabelSelector, Requirement, parse_label_selector
from mooring.state.cluster import ClusterState
from mooring.state.labels import EACH_NODE
from mooring.state.topology.counts import TopologyCounts
from mooring.state.topology.domain_counts import DomainCounts
from mooring.state.topology.equivalent_pods import Role
from mooring.state.topology.pod_selection import PodSelector, Selection, selection
from mooring.testing.builders import cluster, namespace, node, pod, uid_of
from pod_terms import to_pods

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}
NODES = (node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("nowhere"))
TO_WEB = to_pods(WEB, ZONE)


def web(name: str, on: str, **fields: Any) -> dict[str, Any]:
    return pod(name, node=on, **{"labels": WEB} | fields)


def chosen(
    labels: dict[str, str] = WEB,
    *,
    terminating: bool = True,
    in_namespaces: dict[str, Any] | None = None,
) -> Selection:
    namespaces = frozenset[str]() if in_namespaces is not None else frozenset(("default",))
    selector = parse_label_selector({"matchLabels": labels})
    part = PodSelector(selector, namespaces, parse_label_selector(in_namespaces))
    return selection((part,), terminating=terminating)


def put(state: ClusterState, *objects: dict[str, Any]) -> None:
    for raw in objects:
        kind = Kind(raw["kind"])
        state.put(kind, object_key(kind, raw), parse_object(kind, raw))


def by_value(counts: DomainCounts) -> dict[str, int]:
    found = zip(counts.domains.values, counts.by_code.tolist(), strict=False)
    return {value: number for value, number in found if number}


def owners(state: ClusterState, role: Role, **fields: Any) -> dict[str, dict[str, int]]:
    """Return the sums of weights by topology key and value, without zeros."""
    incoming = parse_pod(pod("incoming", **{"labels": WEB} | fields))
    found = dict[str, dict[str, int]]()
    for domains, sums in state.topology.owners(role, incoming).items():
        *by_code, absent = sums.tolist()
        assert absent == 0
        pairs = zip(domains.values, by_code, strict=True)
        found[domains.key] = {value: number for value, number in pairs if number}
    return found


def test_existing_pods_are_counted_when_a_count_is_first_needed() -> None:
    state = cluster(*NODES, web("p", "a1"), web("q", "a2"), web("r", "b1"), pod("s", node="b1"))
    assert by_value(state.topology.counts(chosen(), ZONE)) == {"a": 2, "b": 1}
    assert by_value(state.topology.counts(chosen(), HOSTNAME)) == {"a1": 1, "a2": 1, "b1": 1}


def test_later_pods_change_the_counts_they_belong_to() -> None:
    state = cluster(*NODES)
    zones = state.topology.counts(chosen(), ZONE)
    put(state, web("p", "a1"), web("q", "b1"), pod("other", node="a1"))
    state.assume(parse_pod(pod("assumed", labels=WEB)), state.nodes.row_of["a2"])
    assert by_value(zones) == {"a": 2, "b": 1}
    state.delete(Kind.POD, uid_of("q"))
    state.forget(parse_pod(pod("assumed", labels=WEB)))
    assert by_value(zones) == {"a": 1}


def test_a_pod_that_starts_terminating_leaves_the_counts_of_those_that_do_not() -> None:
    state = cluster(*NODES, web("p", "a1"))
    every, lasting = (
        state.topology.counts(chosen(terminating=flag), EACH_NODE) for flag in (True, False)
    )
    put(state, web("p", "a1", terminating=True))
    assert by_value(every) == {"a1": 1}
    assert by_value(lasting) == {}


def test_a_node_takes_its_pods_along_to_another_domain_and_away() -> None:
    state = cluster(*NODES, web("p", "a1"), web("q", "nowhere"), web("early", "later"))
    zones = state.topology.counts(chosen(), ZONE)
    assert by_value(zones) == {"a": 1}
    put(state, node("a1", zone="b"), node("nowhere", zone="c"), node("later", zone="b"))
    assert by_value(zones) == {"b": 2, "c": 1}
    state.delete(Kind.NODE, "a1")
    assert by_value(zones) == {"b": 1, "c": 1}


def test_a_namespace_that_is_relabelled_enters_and_leaves_namespace_selectors() -> None:
    state = cluster(*NODES, web("p", "a1"))
    counts = state.topology.counts(chosen(in_namespaces={"matchLabels": {"env": "prod"}}), ZONE)
    assert by_value(counts) == {}
    put(state, namespace("default", {"env": "prod"}))
    assert by_value(counts) == {"a": 1}
    put(state, namespace("default", {"env": "dev"}))
    assert by_value(counts) == {}


def test_a_trial_counts_and_is_undone() -> None:
    state = cluster(*NODES, web("p", "a1"))
    zones = state.topology.counts(chosen(), ZONE)
    with state.trial() as trial:
        trial.remove(uid_of("p"))
        trial.add(parse_pod(pod("new", labels=WEB)), state.nodes.row_of["b1"])
        assert by_value(zones) == {"b": 1}
    assert by_value(zones) == {"a": 1}


def test_owners_of_terms_about_a_pod_are_counted_per_domain_of_the_term() -> None:
    apart = {"podAntiAffinity": {HARD: [TO_WEB]}}
    state = cluster(
        *NODES,
        web("p", "a1", affinity=apart),
        web("q", "a2", affinity=apart, labels={"app": "db"}),
        web("nowhere", "nowhere", affinity=apart),
    )
    assert owners(state, Role.FORBIDDEN) == {ZONE: {"a": 2}}
    assert owners(state, Role.FORBIDDEN, labels={"app": "db"}) == {}
    assert owners(state, Role.REQUIRED) == {}


def test_owners_of_preferred_terms_count_with_the_weights_of_these() -> None:
    def liking(weight: int) -> dict[str, Any]:
        return {"podAffinity": {SOFT: [{"weight": weight, "podAffinityTerm": TO_WEB}]}}

    state = cluster(
        *NODES,
        web("p", "a1", affinity=liking(3)),
        web("q", "b1", affinity=liking(5)),
        web("r", "b1", affinity=liking(3)),
    )
    assert owners(state, Role.PREFERRED) == {ZONE: {"a": 3, "b": 8}}


def test_the_owners_of_more_terms_than_can_be_counted_are_found_without_counts() -> None:
    """A hundred pods may have a hundred terms each that select every pod of the cluster."""
    state = cluster(*NODES)
    state.topology = TopologyCounts(state.nodes, state.objects, most_kept=4)
    for number, on in enumerate(("a1", "a2", "b1", "nowhere", "lost")):
        terms = [{**TO_WEB, "topologyKey": key} for key in (ZONE, HOSTNAME, f"k{number}")]
        apart = {"podAntiAffinity": {HARD: [*terms, terms[0]]}}
        put(state, web(f"p{number}", on, affinity=apart, labels={"n": str(number)}))
    shared = {"podAntiAffinity": {HARD: [TO_WEB]}}
    put(state, *(node(f"c{number}", zone="c") for number in range(20)))
    put(state, *(web(f"c{number}", f"c{number}", affinity=shared) for number in range(20)))
    hosts = dict.fromkeys(("a1", "a2", "b1", "nowhere"), 1)
    zones = {"a": 4, "b": 2, "c": 20}
    for _ in range(2):
        assert owners(state, Role.FORBIDDEN) == {ZONE: zones, HOSTNAME: hosts}
    assert len(state.topology._counts) <= 4


def test_a_term_stated_twice_counts_twice() -> None:
    twice = {"podAffinity": {HARD: [TO_WEB, TO_WEB]}}
    state = cluster(*NODES, web("p", "a1", affinity=twice))
    assert owners(state, Role.REQUIRED) == {ZONE: {"a": 2}}
    put(state, web("q", "a1", affinity=twice, labels={"app": "web", "n": "2"}))
    assert owners(state, Role.REQUIRED) == {ZONE: {"a": 4}}


def test_terms_without_owners_in_any_domain_are_left_out() -> None:
    state = cluster(*NODES, web("p", "nowhere", affinity={"podAffinity": {HARD: [TO_WEB]}}))
    assert owners(state, Role.REQUIRED) == {}


def test_whether_a_pod_is_selected_depends_on_what_is_known_of_its_namespace() -> None:
    state = cluster()
    pods = chosen(in_namespaces={"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]})
    incoming = parse_pod(pod(labels=WEB))
    assert not state.topology.selects(pods, incoming)
    put(state, namespace("default"))
    assert state.topology.selects(pods, incoming)


def test_the_least_recently_used_counts_are_dropped_with_all_references_to_them() -> None:
    state = cluster(*NODES)
    state.topology = TopologyCounts(state.nodes, state.objects, most_kept=3)
    put(state, web("p", "a1"))
    kept = state.topology.counts(chosen(), ZONE)
    for i in range(200):
        state.topology.counts(chosen({"app": "web", "n": str(i)}), ZONE)
        state.topology.counts(chosen({}, terminating=bool(i % 2)), HOSTNAME)
        assert state.topology.counts(chosen(), ZONE) is kept
    placed = state.pods.get(uid_of("p"))
    assert placed is not None
    counted_in = placed.equivalent.counted_in
    assert len(counted_in) <= 64
    assert sum(not counts.is_dropped for counts in counted_in) <= 3
    indexed = {
        pods
        for i in range(200)
        for pods in state.topology._selections.selecting("default", {}, {**WEB, "n": str(i)})
    }
    assert len(indexed) <= 3


def test_dropped_counts_are_made_again() -> None:
    state = cluster(*NODES)
    state.topology = TopologyCounts(state.nodes, state.objects, most_kept=1)
    put(state, web("p", "a1"))
    before = state.topology.counts(chosen(), ZONE)
    state.topology.counts(chosen(), HOSTNAME)
    put(state, web("q", "b1"))
    assert state.topology.counts(chosen(), ZONE) is not before
    assert by_value(state.topology.counts(chosen(), ZONE)) == {"a": 1, "b": 1}


def test_dropped_counts_that_a_decision_still_holds_are_right_in_its_trials() -> None:
    state = cluster(*NODES)
    state.topology = TopologyCounts(state.nodes, state.objects, most_bytes=1)
    put(state, web("p", "a1"), web("q", "b1"))
    selected = state.topology.counts(chosen(), ZONE)
    state.topology.counts(chosen(), HOSTNAME)
    with state.trial() as trial:
        trial.remove(uid_of("p"))
        trial.remove(uid_of("q"))
        assert by_value(selected) == {}
        trial.add(parse_pod(web("p", "a1")), state.nodes.row_of["b1"])
        assert by_value(selected) == {"b": 1}
    assert by_value(selected) == {"a": 1, "b": 1}


def test_counts_are_dropped_when_their_bytes_are_used_up() -> None:
    state = cluster(*NODES)
    state.topology = TopologyCounts(state.nodes, state.objects, most_bytes=1_000_000)
    values = [f"value-{i:050}" for i in range(4000)]
    for i in range(20):
        large = {"key": f"n{i}", "operator": "In", "values": values}
        part = PodSelector(
            parse_label_selector({"matchExpressions": [large]}), frozenset(("default",))
        )
        state.topology.counts(selection((part,), terminating=True), ZONE)
        assert state.topology.bytes <= 1_000_000
    assert len(state.topology._counts) == 1
    for i in range(2000):
        state.topology.counts(chosen({"n": str(i)}), ZONE)
        assert state.topology.bytes <= 1_000_000
    assert 200 <= len(state.topology._counts) <= 1000


def test_bytes_are_counted_as_counts_grow_and_go() -> None:
    state = cluster(*NODES)
    empty = state.topology.bytes
    state.topology.counts(chosen(), EACH_NODE)
    small = state.topology.bytes
    put(state, *(node(f"n{i}") for i in range(5000)), web("p", "n4999"))
    assert state.topology.counts(chosen(), EACH_NODE).total == 1
    assert state.topology.bytes >= small + 4 * 5000
    state.topology.most_bytes = 0
    state.topology.counts(chosen({"a": "b"}), ZONE)
    assert empty < state.topology.bytes <= small + 100


def test_nothing_is_remembered_of_pods_and_terms_that_are_gone() -> None:
    state = cluster(*NODES)
    for i in range(20):
        affinity = {"podAntiAffinity": {HARD: [TO_WEB]}}
        put(state, web(f"p{i}", "a1", affinity=affinity, labels={**WEB, "n": str(i)}))
        assert owners(state, Role.FORBIDDEN) == {ZONE: {"a": 1}}
        state.delete(Kind.POD, uid_of(f"p{i}"))
        assert owners(state, Role.FORBIDDEN) == {}
    assert state.topology._table.having("default", None) == ()
    assert len(state.topology._counts) == 0
    assert state.topology._by_source == {}


def test_a_count_can_be_made_in_slices_while_pods_come_and_go() -> None:
    state = cluster(*NODES)
    topology = state.topology = TopologyCounts(state.nodes, state.objects, per_slice=4)
    put(state, *(web(f"p{n}", "a1", labels={**WEB, "n": str(n)}) for n in range(9)))
    assert not topology.is_counted(chosen(), ZONE)
    assert topology.count_some(chosen(), ZONE) == 4
    put(state, web("new", "b1"))
    state.delete(Kind.POD, uid_of("p0"))
    state.delete(Kind.POD, uid_of("p8"))
    assert not topology.is_counted(chosen(), ZONE)
    while not topology.is_counted(chosen(), ZONE):
        assert topology.count_some(chosen(), ZONE) <= 4
    assert topology.count_some(chosen(), ZONE) == 0
    assert by_value(topology.counts(chosen(), ZONE)) == {"a": 7, "b": 1}


def test_fewer_pods_are_in_a_slice_of_a_selector_with_many_requirements() -> None:
    state = cluster(*NODES)
    topology = state.topology = TopologyCounts(state.nodes, state.objects, per_slice=4)
    put(state, *(web(f"p{n}", "a1", labels={**WEB, "n": str(n)}) for n in range(4)))
    absent = tuple(Requirement(f"key-{i}", "DoesNotExist") for i in range(2000))
    part = PodSelector(LabelSelector(absent), frozenset({"default"}))
    pods = selection((part,), terminating=True)
    assert [topology.count_some(pods, ZONE) for _ in range(5)] == [1, 1, 1, 1, 0]
    assert by_value(topology.counts(pods, ZONE)) == {"a": 4}


def test_whoever_reads_a_count_that_is_made_in_slices_gets_all_of_it() -> None:
    state = cluster(*NODES)
    topology = state.topology = TopologyCounts(state.nodes, state.objects, per_slice=1)
    put(state, *(web(f"p{n}", "a1", labels={**WEB, "n": str(n)}) for n in range(5)))
    topology.count_some(chosen(), ZONE)
    assert by_value(topology.counts(chosen(), ZONE)) == {"a": 5}
    assert topology.is_counted(chosen(), ZONE)


def test_counts_that_nobody_reads_are_dropped_with_what_they_still_lack() -> None:
    state = cluster(*NODES)
    topology = state.topology = TopologyCounts(state.nodes, state.objects, most_kept=2, per_slice=1)
    put(state, *(web(f"p{n}", "a1", labels={**WEB, "n": str(n)}) for n in range(5)))
    topology.counts(chosen({"n": "1"}), ZONE)
    taken = topology.bytes
    for key in (HOSTNAME, "rack", "row"):
        topology.count_some(chosen(), key)
    assert not topology.is_counted(chosen(), HOSTNAME)
    topology.counts(chosen({"n": "1"}), ZONE)
    topology.counts(chosen({"n": "2"}), ZONE)
    assert topology.bytes < 2 * taken + 100


def test_labels_of_a_namespace_may_change_while_its_pods_are_counted_in_slices() -> None:
    state = cluster(*NODES, namespace("default"))
    topology = state.topology = TopologyCounts(state.nodes, state.objects, per_slice=1)
    put(state, *(web(f"p{n}", "a1", labels={**WEB, "n": str(n)}) for n in range(5)))
    pods = chosen(in_namespaces={"matchLabels": {"env": "prod"}})
    topology.count_some(pods, ZONE)
    put(state, namespace("default", {"env": "prod"}))
    while not topology.is_counted(pods, ZONE):
        topology.count_some(pods, ZONE)
    assert by_value(topology.counts(pods, ZONE)) == {"a": 5}
