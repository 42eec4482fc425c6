from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.pod import parse_pod
from mooring.policy.match import (
    ProfileMatcher,
    conflict_in_short,
    conflict_text,
    may_share_pods,
)
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.testing.builders import pod


def profile(name: str, **match: object) -> SchedulingProfile:
    return SchedulingProfile(name, read(SchedulingProfileSpec, {"match": match}, ""))


def found(
    *profiles: SchedulingProfile,
    scheduler_name: str = "default-scheduler",
    namespace: str = "team-a",
    namespace_labels: Mapping[str, str] | None = None,
    pod_labels: Mapping[str, str] | None = None,
) -> str | None:
    spec = {"schedulerName": scheduler_name}
    raw = pod("web", namespace=namespace, labels=pod_labels or {}, spec=spec)
    return ProfileMatcher(profiles).find(parse_pod(raw), namespace_labels or {})


DEFAULT = profile("default-scheduler")


def test_a_profile_matches_pods_that_name_it() -> None:
    assert found(DEFAULT) == "default-scheduler"


def test_a_pod_of_another_scheduler_has_no_profile() -> None:
    assert found(DEFAULT, scheduler_name="other") is None


def test_scheduler_names_replace_the_profiles_own_name() -> None:
    renamed = profile("default-scheduler", schedulerNames=["a", "b"])
    assert found(renamed) is None
    assert found(renamed, scheduler_name="b") == "default-scheduler"


def test_the_highest_precedence_wins() -> None:
    names = {"schedulerNames": ["default-scheduler"]}
    low, high = profile("a", **names, precedence=-1), profile("z", **names, precedence=1)
    assert found(low, high, DEFAULT) == "z"
    assert found(low, DEFAULT) == "default-scheduler"


def test_at_equal_precedence_the_first_by_name_wins() -> None:
    names = {"schedulerNames": ["default-scheduler"]}
    assert found(profile("c", **names), profile("b", **names)) == "b"


def test_all_conditions_must_hold() -> None:
    both = profile(
        "default-scheduler",
        namespaceSelector={"matchLabels": {"env": "prod"}},
        podSelector={"matchLabels": {"app": "web"}},
    )
    assert found(both, namespace_labels={"env": "prod"}) is None
    assert found(both, pod_labels={"app": "web"}) is None
    matching = {"namespace_labels": {"env": "prod"}, "pod_labels": {"app": "web"}}
    assert found(both, **matching) == "default-scheduler"  # type: ignore[arg-type]  # two label maps


def test_if_the_profile_of_highest_precedence_does_not_match_the_next_one_is_used() -> None:
    prod = profile(
        "prod",
        schedulerNames=["default-scheduler"],
        precedence=9,
        namespaceSelector={"matchLabels": {"env": "prod"}},
    )
    assert found(prod, DEFAULT, namespace_labels={"env": "dev"}) == "default-scheduler"


def test_a_namespace_can_be_selected_by_its_name_even_before_it_is_known() -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    mine = profile("default-scheduler", namespaceSelector=selector)
    assert found(mine, namespace="team-a") == "default-scheduler"
    assert found(mine, namespace="team-b") is None


def requirement(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "k", "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        (None, {}, True),
        ({}, {}, True),
        ({}, {"k": "v"}, True),
        ({"matchLabels": {"k": "v"}}, {"k": "v"}, True),
        ({"matchLabels": {"k": "v"}}, {"k": "w"}, False),
        ({"matchLabels": {"k": ""}}, {}, False),
        (requirement("In", "v", "w"), {"k": "w"}, True),
        (requirement("In", "v"), {}, False),
        (requirement("NotIn", "v"), {"k": "v"}, False),
        (requirement("NotIn", "v"), {}, True),
        (requirement("Exists"), {"k": ""}, True),
        (requirement("Exists"), {}, False),
        (requirement("DoesNotExist"), {}, True),
        (requirement("DoesNotExist"), {"k": "v"}, False),
        ({"matchLabels": {"a": "b"}, **requirement("Exists")}, {"k": "v"}, False),
    ],
)
def test_a_selector_selects_as_in_the_api(
    selector: dict[str, Any] | None, labels: dict[str, str], *, matches: bool
) -> None:
    expected = "default-scheduler" if matches else None
    assert found(profile("default-scheduler", podSelector=selector), pod_labels=labels) == expected


def selecting(name: str, **labels: str) -> SchedulingProfile:
    return profile(name, schedulerNames=["x"], podSelector={"matchLabels": labels})


def test_profiles_without_selectors_share_the_pods_of_a_scheduler_name() -> None:
    a, b = profile("a", schedulerNames=["x", "y"]), profile("b", schedulerNames=["y", "z"])
    assert may_share_pods(a, b)
    assert not may_share_pods(a, profile("c"))


def test_precedence_decides_between_profiles_that_share_pods() -> None:
    a = profile("a", schedulerNames=["x"])
    assert not may_share_pods(a, profile("b", schedulerNames=["x"], precedence=1))


def test_different_values_of_a_label_exclude_each_other_and_different_labels_do_not() -> None:
    assert not may_share_pods(selecting("a", team="a"), selecting("b", team="b"))
    assert may_share_pods(selecting("a", team="a"), selecting("b", tier="web"))


def outranked(*profiles: SchedulingProfile) -> dict[str, tuple[str, ...]]:
    return {**ProfileMatcher(profiles).outranked()}


def test_a_profile_is_outranked_wholly_if_others_take_the_pods_of_all_its_names() -> None:
    low = profile("low", schedulerNames=["a", "b"])
    a = profile("for-a", schedulerNames=["a"], precedence=1)
    b = profile("for-b", schedulerNames=["b", "c"], precedence=2)
    assert outranked(low, a) == {}
    assert outranked(low, a, b) == {"low": ("for-a", "for-b")}


def test_a_profile_that_selects_the_same_or_fewer_pods_is_outranked_wholly() -> None:
    wide, web = profile("wide", schedulerNames=["x"]), selecting("web", app="web")
    same = selecting("web-too", app="web")
    assert outranked(profile("a", schedulerNames=["x"]), wide) == {"wide": ("a",)}
    assert outranked(web, same) == {"web-too": ("web",)}
    assert outranked(web, profile("z", schedulerNames=web.spec.match.scheduler_names)) == {}
    assert outranked(web, selecting("api", app="api")) == {}


def test_the_winner_and_the_loser_of_a_conflict_are_told_by_name() -> None:
    why = (
        ": both may match the same pods, with the same precedence, and the first by name takes "
        "them; set match.precedence, or select other pods"
    )
    assert conflict_in_short("mooring", ["dup"]) == "outranked by dup"
    assert conflict_text("mooring", ["dup"]) == f"outranked by dup{why}"
    assert conflict_in_short("dup", ["mooring"]) == "outranks mooring"
    assert conflict_text("dup", ["mooring"]) == f"outranks mooring{why}"


def test_a_profile_between_two_others_is_outranked_in_short_and_told_both_in_full() -> None:
    assert conflict_in_short("b", ["c", "a"]) == "outranked by a"
    text = conflict_text("b", ["c", "a"])
    assert text.startswith("outranked by a and outranks c: they may match the same pods")


def test_a_thousand_conflicts_are_a_short_text_that_one_more_does_not_change() -> None:
    others = {f"{'p' * 240}{number:04}" for number in range(1, 1000)}
    first, last = f"{'p' * 240}0000", f"{'p' * 240}1000"
    assert conflict_in_short(first, others).endswith("0001 and others")
    for name in (first, last):
        assert len(conflict_text(name, others)) < 3000
        assert conflict_text(name, others | {f"{'p' * 240}0500x"}) == conflict_text(name, others)


KEYS, VALUES = ("k1", "k2"), ("v1", "v2")


def selectors() -> st.SearchStrategy[dict[str, Any]]:
    values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True)
    with_values = st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(("In", "NotIn")),
            "values": values,
        }
    )
    without = st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "operator": st.sampled_from(("Exists", "DoesNotExist"))}
    )
    labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1)
    return st.fixed_dictionaries(
        {"matchLabels": labels, "matchExpressions": st.lists(with_values | without, max_size=3)}
    )


@given(selectors(), selectors(), st.sampled_from(("podSelector", "namespaceSelector")))
def test_profiles_share_pods_exactly_if_some_labels_match_both(
    one: dict[str, Any], other: dict[str, Any], field: str
) -> None:
    """The test tries all combinations of values, including an unused value and no label."""
    profiles = [
        profile(n, schedulerNames=["x"], **{field: s}) for n, s in (("a", one), ("b", other))
    ]
    choices = product(*([(key, value) for value in (*VALUES, "other", None)] for key in KEYS))
    all_labels = [{key: value for key, value in chosen if value is not None} for chosen in choices]
    both = any(
        all(
            found(p, scheduler_name="x", pod_labels=labels, namespace_labels=labels) is not None
            for p in profiles
        )
        for labels in all_labels
    )
    assert may_share_pods(*profiles) == both
