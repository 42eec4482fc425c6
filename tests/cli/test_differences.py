from typing import Any

import pytest

from mooring.cli.differences import Difference, differences
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.manifests import Manifest
from mooring.simulate.policies import Policy, read_policies

REGISTRY = Registry(SHIPPED, {})


def policy(name: str = "mine", **spec: Any) -> Policy:
    raw = {
        "apiVersion": "scheduling.mooring.dev/v1alpha1",
        "kind": "SchedulingProfile",
        "metadata": {"name": name},
        "spec": spec,
    }
    (read,) = read_policies([Manifest(name, raw)], REGISTRY)
    return read


def fields(before: Policy, after: Policy) -> dict[str, tuple[str | None, str | None]]:
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
    ],
)
def test_a_field_is_shown_with_both_readings(
    spec: dict[str, Any], expected: dict[str, tuple[str, str]]
) -> None:
    found = fields(policy(), policy(**spec))
    assert {name: values for name, values in found.items() if name in expected} == expected
    assert bool(found) == bool(expected)


def test_a_disabled_plugin_leaves_its_points_and_has_no_weight() -> None:
    found = fields(policy(), policy(plugins={"score": {"disabled": [{"name": "ImageLocality"}]}}))
    assert found.keys() == {"plugins.score", "plugins.score.ImageLocality.weight"}
    assert found["plugins.score.ImageLocality.weight"] == ("1", None)


def test_what_an_extender_says_is_compared_field_by_field() -> None:
    found = fields(policy(), policy(extenders=[EXTENDER]))
    assert found["extenders[0].urlPrefix"] == (None, "http://e.example")


def test_two_single_policies_are_compared_whatever_their_names() -> None:
    (difference,) = differences([policy("a")], [policy("b")])
    assert difference == Difference("a / b", "match.schedulerNames", "a", "b")


def test_several_policies_are_compared_by_name() -> None:
    found = differences([policy("a"), policy("b")], [policy("c"), policy("b")])
    assert found == [
        Difference("a", "profile", "present", "absent"),
        Difference("c", "profile", "absent", "present"),
    ]
