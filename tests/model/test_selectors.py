from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.manifest_error import ManifestError
from mooring.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    parse_int64,
    parse_label_selector,
    parse_node_selector,
    parse_node_term,
    parse_preferred_terms,
    selector_from_labels,
)
from node_selectors import expression


def selector(**raw: Any) -> LabelSelector:
    parsed = parse_label_selector(raw)
    assert parsed is not None
    return parsed


def term(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> NodeSelectorTerm:
    return parse_node_term({"matchExpressions": list(expressions), "matchFields": list(fields)})


@pytest.mark.parametrize(
    ("operator", "values", "matching", "others"),
    [
        ("In", ("a", "b"), ["a", "b"], ["c", None]),
        ("NotIn", ("a", "b"), ["c", None], ["a", "b"]),
        ("Exists", (), ["a", ""], [None]),
        ("DoesNotExist", (), [None], ["a", ""]),
        ("Gt", ("5",), ["6", "10"], ["5", "4", "x", "", None]),
        ("Lt", ("5",), ["4", "-1"], ["5", "6", "x", "", None]),
    ],
)
def test_an_operator_matches_its_values(
    operator: Any, values: tuple[str, ...], matching: list[str | None], others: list[str | None]
) -> None:
    requirement = Requirement("k", operator, values)
    assert all(requirement.matches(value) for value in matching)
    assert not any(requirement.matches(value) for value in others)


def test_an_absent_selector_is_none_and_an_empty_one_matches_everything() -> None:
    assert parse_label_selector(None) is None
    assert selector().empty
    assert selector().matches({})
    assert selector().matches({"any": "thing"})


def test_all_labels_and_expressions_of_a_selector_must_match() -> None:
    both = selector(matchLabels={"app": "web"}, matchExpressions=[expression("env", "NotIn", "x")])
    assert both.matches({"app": "web"})
    assert not both.matches({"app": "web", "env": "x"})
    assert not both.matches({"app": "db"})


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")))
def test_a_selector_from_labels_matches_objects_with_at_least_these_labels(
    labels: dict[str, str],
) -> None:
    wanted = selector_from_labels(labels)
    assert wanted.matches({**labels, "more": "labels"})
    for key in labels:
        assert not wanted.matches({**labels, key: "other"})
        assert not wanted.matches({k: v for k, v in labels.items() if k != key})


def test_selectors_of_the_same_labels_in_any_order_are_equal() -> None:
    assert selector_from_labels({"a": "1", "b": "2"}) == selector_from_labels({"b": "2", "a": "1"})


def test_a_narrowed_selector_has_more_requirements() -> None:
    narrowed = selector_from_labels({"app": "web"}).narrowed(Requirement("v", "In", ("1",)))
    assert narrowed.matches({"app": "web", "v": "1"})
    assert not narrowed.matches({"app": "web"})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-12", -12),
        ("007", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("9" * 5000, None),
        ("1_000", None),
        ("1.5", None),
        ("", None),
        (None, None),
    ],
)
def test_numbers_are_parsed_as_in_go(text: str | None, number: int | None) -> None:
    assert parse_int64(text) == number


def test_any_term_of_a_node_selector_is_enough() -> None:
    either = NodeSelector(
        (term(expression("disk", "In", "ssd")), term(expression("gpu", "Exists")))
    )
    assert either.matches("n1", {"disk": "ssd"})
    assert either.matches("n1", {"gpu": ""})
    assert not either.matches("n1", {"disk": "hdd"})


def test_a_node_selector_without_terms_matches_no_node() -> None:
    parsed = parse_node_selector({"nodeSelectorTerms": []})
    assert parsed is not None
    assert not parsed.matches("n1", {"any": "label"})
    assert parse_node_selector(None) is None


def test_an_empty_term_matches_no_node() -> None:
    assert term().empty
    assert not term().matches("n1", {})


def test_expressions_and_fields_of_a_term_must_all_match() -> None:
    named_with_disk = term(
        expression("disk", "In", "ssd"), fields=(expression("metadata.name", "In", "n1"),)
    )
    assert named_with_disk.matches("n1", {"disk": "ssd"})
    assert not named_with_disk.matches("n2", {"disk": "ssd"})
    assert not named_with_disk.matches("n1", {})


@pytest.mark.parametrize(
    "invalid",
    [
        term(expression("k", "In")),
        term(expression("k", "NotIn")),
        term(expression("k", "Exists", "v")),
        term(expression("k", "DoesNotExist", "v")),
        term(expression("k", "Gt")),
        term(expression("k", "Gt", "1", "2")),
        term(expression("k", "Lt", "many")),
        term(expression("k", "In", "no/label/value")),
        term(expression("k", "In", "x" * 64)),
        term(fields=(expression("metadata.name", "In", "n1", "n2"),)),
        term(fields=(expression("metadata.name", "Exists"),)),
        term(fields=(expression("metadata.uid", "In", "n1"),)),
    ],
)
def test_an_invalid_term_matches_no_node(invalid: NodeSelectorTerm) -> None:
    assert not invalid.valid
    assert not invalid.matches("n1", {"k": "5"})


def test_preferred_terms_keep_their_weights() -> None:
    preference = {"matchExpressions": [expression("disk", "In", "ssd")]}
    (preferred,) = parse_preferred_terms([{"weight": 7, "preference": preference}])
    assert preferred.weight == 7
    assert preferred.term.matches("n1", {"disk": "ssd"})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"matchLabels": ["app"]}, "s.matchLabels: must be an object, not ['app']"),
        ({"matchLabels": {"app": 1}}, "s.matchLabels.app: must be a string, not 1"),
        ({"matchExpressions": {}}, "s.matchExpressions: must be a list, not {}"),
        (
            {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]},
            "s.matchExpressions[0].operator: 'Gt' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"matchExpressions": [{"key": "k", "operator": "In", "values": "v"}]},
            "s.matchExpressions[0].values: must be a list, not 'v'",
        ),
        (
            {"matchExpressions": [{"key": 5, "operator": "Exists"}]},
            "s.matchExpressions[0].key: must be a string, not 5",
        ),
    ],
)
def test_a_malformed_label_selector_raises_an_error_with_its_field(raw: Any, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_label_selector(raw, "s")
    assert str(caught.value) == message


def test_a_malformed_selector_without_a_path_is_named_from_its_own_field() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_label_selector({"matchExpressions": [{"key": "k", "operator": "Near"}]})
    assert caught.value.where == "matchExpressions[0].operator"


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({"nodeSelectorTerms": {}}, "n.nodeSelectorTerms"),
        ({"nodeSelectorTerms": ["x"]}, "n.nodeSelectorTerms[0]"),
        (
            {"nodeSelectorTerms": [{"matchFields": [{"operator": "Is"}]}]},
            "n.nodeSelectorTerms[0].matchFields[0].operator",
        ),
    ],
)
def test_a_malformed_node_selector_raises_an_error_with_its_field(raw: Any, where: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_node_selector(raw, "n")
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ([{"weight": "1"}], "p[0].weight"),
        ([{"weight": 1, "preference": []}], "p[0].preference"),
    ],
)
def test_a_malformed_preference_raises_an_error_with_its_field(raw: Any, where: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_preferred_terms(raw, "p")
    assert caught.value.where == where
