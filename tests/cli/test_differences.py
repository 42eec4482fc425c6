from base64 import b64encode
from typing import Any

import pytest

from mooring.cli.differences import Difference, differences, in_short
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.load_profiles import LoadedProfile, read_profiles
from mooring.simulate.manifests import Manifest
from mooring.testing.builders import api_object

REGISTRY = Registry(SHIPPED, {})


def profile(name: str = "mine", **spec: Any) -> LoadedProfile:
    raw = api_object("SchedulingProfile", name, spec=spec)
    (read,) = read_profiles([Manifest(name, raw)], REGISTRY)
    return read


def fields(before: LoadedProfile, after: LoadedProfile) -> dict[str, tuple[str | None, str | None]]:
    return {d.field: (d.before, d.after) for d in differences([before], [after])}


EXTENDER = {"urlPrefix": "http://e.example", "filterVerb": "filter"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"alwaysCheckAllFilters": True}, {"alwaysCheckAllFilters": ("false", "true")}),
        (
            {"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 7}]}}},
            {"plugins.score.ImageLocality.weight": ("1", "7")},
        ),
        (
            {"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 9}}]},
            {"pluginConfig.InterPodAffinity.hardPodAffinityWeight": ("1", "9")},
        ),
        ({"match": {"precedence": 3}}, {"match.precedence": ("0", "3")}),
        (
            {"preemption": {"disruptionBudgets": "Strict"}},
            {"preemption.disruptionBudgets": ("Default", "Strict")},
        ),
        ({"mode": "Shadow"}, {"mode": ("Active", "Shadow")}),
    ],
)
def test_a_difference_shows_the_field_with_both_values(
    spec: dict[str, Any], expected: dict[str, tuple[str, str]]
) -> None:
    found = fields(profile(), profile(**spec))
    assert {name: values for name, values in found.items() if name in expected} == expected
    assert bool(found) == bool(expected)


def test_a_disabled_plugin_is_missing_at_its_points_and_has_no_weight() -> None:
    found = fields(profile(), profile(plugins={"score": {"disabled": [{"name": "ImageLocality"}]}}))
    assert found.keys() == {"plugins.score", "plugins.score.ImageLocality.weight"}
    assert found["plugins.score.ImageLocality.weight"] == ("1", None)


@pytest.mark.parametrize(
    ("field", "before", "after", "expected"),
    [
        (
            "urlPrefix",
            {"urlPrefix": "http://me:first@e.example/x?token=first"},
            {"urlPrefix": "http://me:second@e.example/x?token=second"},
            ("http://e.example/x", "http://e.example/x, with another secret"),
        ),
        (
            "urlPrefix",
            {"urlPrefix": "http://me:first@e.example"},
            {"urlPrefix": "http://me:first@f.example"},
            ("http://e.example", "http://f.example"),
        ),
        (
            "tlsConfig.keyData",
            {"tlsConfig": {"certFile": "/c", "keyData": b64encode(b"first").decode()}},
            {"tlsConfig": {"certFile": "/c", "keyData": b64encode(b"second").decode()}},
            ("hidden", "hidden, with another secret"),
        ),
    ],
)
def test_secrets_of_extenders_are_compared_and_not_shown(
    field: str, before: dict[str, Any], after: dict[str, Any], expected: tuple[str, str]
) -> None:
    left, right = (profile(extenders=[{**EXTENDER, **given}]) for given in (before, after))
    assert fields(left, right) == {f"extenders[0].{field}": expected}


def test_extenders_are_compared_field_by_field() -> None:
    found = fields(profile(), profile(extenders=[EXTENDER]))
    assert found["extenders[0].urlPrefix"] == (None, "http://e.example")


def test_a_section_rebalancing_is_compared_field_by_field() -> None:
    planned = profile(rebalancing={"goals": ["Pack"]})
    carried_out = profile(rebalancing={"goals": ["Pack"], "mode": "Apply"})
    assert fields(planned, carried_out) == {"rebalancing.mode": ("Plan", "Apply")}
    assert fields(profile(), planned)["rebalancing.goals"] == (None, '["Pack"]')


def test_two_single_profiles_are_compared_even_if_their_names_differ() -> None:
    (difference,) = differences([profile("a")], [profile("b")])
    assert difference == Difference("a / b", "match.schedulerNames", "a", "b")


def test_several_profiles_are_compared_by_name() -> None:
    found = differences([profile("a"), profile("b")], [profile("c"), profile("b")])
    assert found == [
        Difference("a", "profile", "present", "absent"),
        Difference("c", "profile", "absent", "present"),
    ]


@pytest.mark.parametrize(
    ("field", "before", "after", "short"),
    [
        ("plugins.filter", "A, B, C, D", "A, B, C, D, E", ("-", "+E")),
        ("plugins.filter", "A, B, C, D", "B, C, D, E, F", ("-A", "+E, +F")),
        (
            "plugins.filter",
            "A, B, C, D",
            "B, A, C, D",
            ("A, B, C, D", "the same in another order: B, A, C, D"),
        ),
        ("plugins.filter", "A, B", "A", ("A, B", "A")),
        ("plugins.filter", None, "A, B, C, D", ("-", "+A, +B, +C, +D")),
        ("other", "A, B, C, D", "A, B, C", ("A, B, C, D", "A, B, C")),
        ("other", None, "A", ("-", "A")),
    ],
)
def test_of_long_lists_a_table_shows_what_was_added_and_removed(
    field: str, before: str | None, after: str, short: tuple[str, str]
) -> None:
    assert in_short(Difference("mine", field, before, after)) == short
