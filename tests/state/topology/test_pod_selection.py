from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import traced_memory
from mooring.model.affinity import parse_pod_affinity
from mooring.model.bounded_cache import bytes_of
from mooring.model.selectors import parse_label_selector
from mooring.state.topology.pod_selection import (
    PodSelector,
    Selection,
    SelectionIndex,
    lookup_keys,
    selection,
    term_selector,
)

WEB: Mapping[str, Any] = {"matchLabels": {"app": "web"}}
PROD: Mapping[str, Any] = {"matchLabels": {"env": "prod"}}
NOT_PROD = {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}


def part(
    selector: Mapping[str, Any] | None = WEB,
    *namespaces: str,
    in_namespaces: Mapping[str, Any] | None = None,
) -> PodSelector:
    return PodSelector(
        parse_label_selector(selector), frozenset(namespaces), parse_label_selector(in_namespaces)
    )


def one(*arguments: Any, **named: Any) -> Selection:
    return selection((part(*arguments, **named),), terminating=True)


def test_labels_and_a_listed_namespace_select_a_pod() -> None:
    pods = one(WEB, "team-a", "team-b")
    assert pods.selects("team-a", {}, {"app": "web", "tier": "1"})
    assert not pods.selects("team-a", {}, {"app": "db"})
    assert not pods.selects("team-c", {}, {"app": "web"})


def test_a_namespace_selector_adds_to_the_list() -> None:
    pods = one(WEB, "team-a", in_namespaces=PROD)
    assert pods.selects("team-a", {"env": "dev"}, {"app": "web"})
    assert pods.selects("team-b", {"env": "prod"}, {"app": "web"})
    assert not pods.selects("team-b", {"env": "dev"}, {"app": "web"})


def test_an_unknown_namespace_is_selected_by_name_or_by_the_empty_selector_only() -> None:
    assert one(WEB, "lost").selects("lost", None, {"app": "web"})
    assert one(WEB, in_namespaces={}).selects("lost", None, {"app": "web"})
    assert not one(WEB, in_namespaces=NOT_PROD).selects("lost", None, {"app": "web"})
    assert one(WEB, in_namespaces=NOT_PROD).selects("known", {}, {"app": "web"})


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not one(None, "team-a").selects("team-a", {}, {})
    assert one({}, "team-a").selects("team-a", {}, {})


def test_every_part_must_select_the_pod() -> None:
    tier = part({"matchLabels": {"tier": "1"}}, "team-a")
    both = selection((part(WEB, "team-a"), tier), terminating=True)
    assert both.selects("team-a", {}, {"app": "web", "tier": "1"})
    assert not both.selects("team-a", {}, {"app": "web"})


def test_equal_selections_are_one_object_so_that_they_share_their_counts() -> None:
    assert one(WEB, "team-a") is one(WEB, "team-a")
    assert one(WEB, "team-a") is not selection((part(WEB, "team-a"),), terminating=False)


def test_a_term_is_about_the_pods_it_selects_whatever_its_topology_key() -> None:
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    stated = {"labelSelector": WEB, "topologyKey": "zone", "namespaceSelector": PROD}
    (term,) = parse_pod_affinity({"podAffinity": {hard: [stated]}}, "team-a").required
    assert term_selector(term) == part(WEB, in_namespaces=PROD)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (one(WEB, "a", "b"), {("a", ("app", "web")), ("b", ("app", "web"))}),
        (one(WEB, "a", in_namespaces=PROD), {(None, ("app", "web"))}),
        (one({}, "a"), {("a", None)}),
        (one(None, "a"), set()),
        (one(NOT_PROD, "a"), {("a", None)}),
    ],
)
def test_a_selection_says_where_to_look_for_its_pods(
    pods: Selection, expected: set[tuple[str | None, tuple[str, str] | None]]
) -> None:
    assert set(lookup_keys(pods)) == expected


@pytest.mark.parametrize(
    ("namespaces", "values", "places"),
    [(8, 10, 8), (10, 5000, 10), (5000, 10, 10), (5000, 5000, 1), (8, 1, 8), (1, 50, 50)],
)
def test_a_selection_of_many_namespaces_or_values_has_few_places(
    namespaces: int, values: int, places: int
) -> None:
    """A place takes 480 bytes, and a tenant may have thousands of terms with many values."""
    wanted = ["v9", *(f"x{i}" for i in range(values - 1))]
    many = parse_label_selector(
        {"matchExpressions": [{"key": "app", "operator": "In", "values": wanted}]}
    )
    names = frozenset(["n7", *(f"m{i}" for i in range(namespaces - 1))])
    pods = selection((PodSelector(many, names),), terminating=True)
    index: SelectionIndex[Selection] = SelectionIndex()
    index.add(pods, pods)
    assert len([*lookup_keys(pods)]) == places
    assert [*index.selecting("n7", None, {"app": "v9"})] == [pods]
    assert [*index.selecting("n7", None, {"app": "other"})] == []
    assert [*index.selecting("other", None, {"app": "v9"})] == []


def test_the_memory_of_a_selection_has_its_places_in_an_index() -> None:
    values = [f"value {i}" for i in range(60)]
    many = parse_label_selector(
        {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    )
    part = PodSelector(many, frozenset(("a",)))
    index: SelectionIndex[Selection] = SelectionIndex()
    pods = selection((part,), terminating=True)
    with traced_memory() as taken_so_far:
        index.add(pods, pods)
        taken = taken_so_far()
    assert taken <= pods.memory - bytes_of(part) <= 2 * taken


namespaces = st.sampled_from(("a", "b", "c"))
labels = st.dictionaries(st.sampled_from(("app", "env")), st.sampled_from(("web", "db", "prod")))
selectors = st.sampled_from(
    (
        WEB,
        PROD,
        NOT_PROD,
        {},
        None,
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db", "web"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {"matchLabels": {"app": "web", "env": "prod"}},
    )
)
parts = st.builds(
    PodSelector,
    selectors.map(parse_label_selector),
    st.frozensets(namespaces, max_size=2),
    st.sampled_from((None, {}, PROD, NOT_PROD)).map(parse_label_selector),
)
selections = st.builds(
    selection, st.lists(parts, min_size=1, max_size=2).map(tuple), terminating=st.booleans()
)


@given(
    filed=st.lists(selections, unique=True, max_size=8),
    gone=st.sets(st.integers(0, 7)),
    namespace=namespaces,
    known=st.one_of(st.none(), labels),
    pod=labels,
)
def test_the_index_finds_exactly_the_selections_that_select_a_pod(
    filed: list[Selection],
    gone: set[int],
    namespace: str,
    known: dict[str, str] | None,
    pod: dict[str, str],
) -> None:
    index: SelectionIndex[Selection] = SelectionIndex()
    for pods in filed:
        index.add(pods, pods)
    for i in gone:
        if i < len(filed):
            index.remove(filed[i], filed[i])
    left = [pods for i, pods in enumerate(filed) if i not in gone]
    found = list(index.selecting(namespace, known, pod))
    assert len(found) == len(set(found))
    assert set(found) == {pods for pods in left if pods.selects(namespace, known, pod)}
    for pods in left:
        index.remove(pods, pods)
    assert not index
