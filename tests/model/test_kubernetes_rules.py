from dataclasses import fields
from typing import get_args

import pytest

from mooring.model.kubernetes_rules import (
    KUBERNETES_RULES,
    KubernetesRules,
    minor_version,
    rules_of_server,
    unknown_server,
)
from mooring.policy.profile import KubernetesVersion


def test_a_profile_can_name_each_version_that_has_rules() -> None:
    assert get_args(KubernetesVersion) == tuple(KUBERNETES_RULES)
    assert [rules.version for rules in KUBERNETES_RULES.values()] == [*KUBERNETES_RULES]


def test_every_fact_differs_between_two_versions() -> None:
    for field in fields(KubernetesRules):
        assert len({getattr(rules, field.name) for rules in KUBERNETES_RULES.values()}) > 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.37", (1, 37)),
        ("v1.37.2-eks-1a2b", (1, 37)),
        ("1.36+", (1, 36)),
        ("", None),
        ("None.None", None),
        ("1", None),
        ("1." + "9" * 5000, None),
    ],
)
def test_a_version_is_its_two_first_numbers(text: str, numbers: tuple[int, int] | None) -> None:
    assert minor_version(text) == numbers


@pytest.mark.parametrize(
    ("server", "rules"),
    [("1.34", "1.34"), ("1.36", "1.36"), ("1.40", "1.38"), ("1.29", "1.34"), ("", "1.37")],
)
def test_a_server_has_the_rules_of_its_version_or_of_the_nearest(server: str, rules: str) -> None:
    assert rules_of_server(server) is KUBERNETES_RULES[rules]


def test_of_a_server_that_is_not_known_people_are_told() -> None:
    assert unknown_server("1.36") is None
    assert unknown_server("") is None
    assert unknown_server("1.39") == (
        "the API server is 1.39, which is newer than the versions that this Mooring knows: "
        "the rules of Kubernetes 1.38 apply"
    )
    assert "1.29, which is older" in (unknown_server("1.29") or "")
