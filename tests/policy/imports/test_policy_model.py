from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mooring.policy.imports.policy_model import read_policy

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


def policy(**fields: object) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def test_a_list_that_is_absent_or_null_is_not_an_empty_list() -> None:
    read_back = read_policy(policy(predicates=None, priorities=[]))
    assert read_back.predicates is None
    assert read_back.priorities == ()


def test_an_extender_in_the_form_of_a_policy_is_read() -> None:
    old = {"urlPrefix": "http://a", "enableHttps": True, "httpTimeout": 100_000_000}
    (extender,) = read_policy(policy(extenders=[old])).extenders
    assert extender.enable_https
    assert extender.timeout == timedelta(milliseconds=100)


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({"kind": "Pod"}, "kind", 'must be Policy, got "Pod"'),
        (
            {"kind": "Policy", "predicate": []},
            "predicate",
            'unknown field "predicate", did you mean predicates?',
        ),
        (policy(extenders=["http://a"]), "extenders[0]", "must be an object"),
        (
            policy(priorities=[{"name": "a", "weight": 0}]),
            "priorities[0].weight",
            "must be between 1",
        ),
        (
            policy(hardPodAffinitySymmetricWeight=101),
            "hardPodAffinitySymmetricWeight",
            "must be between 0 and 100",
        ),
        (
            policy(predicates=[{"name": "a", "argument": {}}]),
            "predicates[0].argument",
            "must have exactly one of serviceAffinity, labelsPresence",
        ),
    ],
)
def test_a_mistake_in_a_policy_is_located_and_explained(
    document: dict[str, Any], path: str, message: str, mistakes: Mistakes
) -> None:
    ((where, what),) = mistakes(lambda: read_policy(document)).items()
    assert where == path
    assert what.startswith(message)
