from typing import Any

import pytest

from mooring.model.affinity import (
    PodAffinity,
    SpreadConstraint,
    parse_pod_affinity,
    spread_constraints_of,
)
from mooring.model.manifest_error import ManifestError

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def term(**fields: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}} | fields


def required(**fields: Any) -> PodAffinity:
    return parse_pod_affinity({"podAffinity": {HARD: [term(**fields)]}}, "team-a")


def constraint(**fields: Any) -> SpreadConstraint:
    (parsed,) = spread_constraints_of(
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields]
    )
    return parsed


def test_a_pod_without_terms_has_an_empty_affinity() -> None:
    assert parse_pod_affinity({}, "team-a").empty
    assert parse_pod_affinity({"podAffinity": {}, "podAntiAffinity": None}, "team-a").empty
    assert not required().empty


def test_a_term_without_namespaces_applies_to_the_pods_own_namespace() -> None:
    (parsed,) = required().required
    assert parsed.namespaces == {"team-a"}
    assert parsed.namespace_selector is None
    assert parsed.topology_key == "zone"
    assert parsed.selector is not None
    assert parsed.selector.matches({"app": "web"})


def test_listed_namespaces_replace_the_pods_own() -> None:
    (parsed,) = required(namespaces=["team-b", "team-c"]).required
    assert parsed.namespaces == {"team-b", "team-c"}


def test_a_namespace_selector_replaces_the_pods_own_namespace_and_extends_a_list() -> None:
    (alone,) = required(namespaceSelector={}).required
    assert alone.namespaces == frozenset()
    assert alone.namespace_selector is not None
    assert alone.namespace_selector.empty
    (joined,) = required(namespaceSelector={}, namespaces=["team-b"]).required
    assert joined.namespaces == {"team-b"}
    assert joined.namespace_selector is not None


def test_a_term_without_a_label_selector_selects_no_pod() -> None:
    (parsed,) = required(labelSelector=None).required
    assert parsed.selector is None


def test_required_affinity_and_anti_affinity_are_separate() -> None:
    affinity = parse_pod_affinity(
        {"podAffinity": {HARD: [term()]}, "podAntiAffinity": {HARD: [term(), term()]}}, "team-a"
    )
    assert (len(affinity.required), len(affinity.required_anti)) == (1, 2)


def test_preferred_anti_affinity_has_a_negative_weight() -> None:
    preferred = [{"weight": 5, "podAffinityTerm": term()}]
    affinity = parse_pod_affinity(
        {"podAffinity": {SOFT: preferred}, "podAntiAffinity": {SOFT: preferred}}, "team-a"
    )
    assert [weighted.weight for weighted in affinity.preferred] == [5, -5]
    assert affinity.preferred[0].term == affinity.preferred[1].term


def test_a_spread_constraint_has_the_apis_defaults() -> None:
    assert constraint() == SpreadConstraint(1, "zone", hard=True, selector=None)


def test_a_spread_constraint_keeps_its_fields() -> None:
    said = constraint(
        maxSkew=3,
        whenUnsatisfiable="ScheduleAnyway",
        minDomains=2,
        labelSelector={},
        nodeAffinityPolicy="Ignore",
        nodeTaintsPolicy="Honor",
        matchLabelKeys=["pod-template-hash"],
    )
    assert (said.max_skew, said.hard, said.min_domains) == (3, False, 2)
    assert (said.honor_affinity, said.honor_taints) == (False, True)
    assert said.match_label_keys == ("pod-template-hash",)
    assert said.selector is not None
    assert said.selector.empty


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({"podAffinity": []}, "podAffinity"),
        ({"podAffinity": {HARD: {}}}, f"podAffinity.{HARD}"),
        (
            {"podAntiAffinity": {HARD: [{"topologyKey": 1}]}},
            f"podAntiAffinity.{HARD}[0].topologyKey",
        ),
        (
            {"podAffinity": {HARD: [{}, {"labelSelector": {"matchLabels": []}}]}},
            f"podAffinity.{HARD}[1].labelSelector.matchLabels",
        ),
        (
            {"podAffinity": {HARD: [{"namespaceSelector": "x"}]}},
            f"podAffinity.{HARD}[0].namespaceSelector",
        ),
        (
            {"podAffinity": {HARD: [{"namespaces": ["a", 1]}]}},
            f"podAffinity.{HARD}[0].namespaces[1]",
        ),
        ({"podAntiAffinity": {SOFT: [{"weight": "1"}]}}, f"podAntiAffinity.{SOFT}[0].weight"),
        (
            {"podAntiAffinity": {SOFT: [{"podAffinityTerm": []}]}},
            f"podAntiAffinity.{SOFT}[0].podAffinityTerm",
        ),
    ],
)
def test_a_malformed_term_raises_an_error_with_its_field(raw: Any, where: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod_affinity(raw, "team-a")
    assert caught.value.where == f"spec.affinity.{where}"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"maxSkew": "1"}, "[0].maxSkew"),
        ({"labelSelector": []}, "[0].labelSelector"),
        ({"labelSelector": {"matchExpressions": [{}]}}, "[0].labelSelector.matchExpressions[0]"),
        ({"matchLabelKeys": "app"}, "[0].matchLabelKeys"),
    ],
)
def test_a_malformed_constraint_raises_an_error_with_its_field(
    fields: dict[str, Any], where: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        constraint(**fields)
    assert caught.value.where.startswith(f"spec.topologySpreadConstraints{where}")
