from typing import Any

import pytest

from mooring.simulate.limit_ranges import LimitRanges
from mooring.testing.builders import api_object


def limit_ranges(*items: dict[str, Any]) -> LimitRanges:
    return LimitRanges(
        [api_object("LimitRange", "limits", namespace="team", spec={"limits": [*items]})]
    )


def container(
    requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}


def completed(resources: dict[str, Any], *items: dict[str, Any]) -> dict[str, Any]:
    spec = limit_ranges(*items).completed("team", {"containers": [resources]})
    found: dict[str, Any] = spec["containers"][0]["resources"]
    return found


def violations(spec: dict[str, Any], *items: dict[str, Any]) -> list[str]:
    return limit_ranges(*items).violations("team", spec)


def test_a_container_gets_the_default_request_and_limit_that_it_lacks() -> None:
    item = {
        "type": "Container",
        "default": {"cpu": "2", "memory": "1Gi"},
        "defaultRequest": {"cpu": "1"},
    }
    assert completed(container({"memory": "1Mi"}), item) == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Mi"},
    }


def test_a_limit_that_the_container_has_is_its_request_before_any_default() -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": "1"}}
    assert completed(container(limits={"cpu": "3"}), item)["requests"] == {"cpu": "3"}


def test_without_a_default_the_maximum_is_the_limit_and_the_minimum_the_request() -> None:
    item = {"type": "Container", "max": {"cpu": "4"}, "min": {"memory": "1Mi"}}
    assert completed(container(), item) == {
        "limits": {"cpu": "4"},
        "requests": {"cpu": "4", "memory": "1Mi"},
    }


def test_other_namespaces_are_not_affected() -> None:
    spec = {"containers": [container()]}
    found = limit_ranges({"type": "Container", "default": {"cpu": "1"}, "min": {"cpu": "1"}})
    assert found.completed("other", spec) == spec
    assert found.violations("other", spec) == []


@pytest.mark.parametrize(
    ("bounds", "requests", "limits", "words"),
    [
        (
            {"min": {"cpu": "500m"}},
            {"cpu": "0.25"},
            {},
            "minimum cpu usage per Container is 500m, but request is 250m",
        ),
        (
            {"min": {"memory": "1Gi"}},
            {"memory": "2Gi"},
            {"memory": "512Mi"},
            "minimum memory usage per Container is 1Gi, but limit is 512Mi",
        ),
        (
            {"max": {"cpu": "1"}},
            {"cpu": "1"},
            {},
            "maximum cpu usage per Container is 1.  No limit is specified",
        ),
        (
            {"max": {"cpu": "1"}},
            {"cpu": "1"},
            {"cpu": "2"},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"max": {"cpu": "1"}},
            {"cpu": "3"},
            {"cpu": "1"},
            "maximum cpu usage per Container is 1, but request is 3",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"cpu": "1"},
            {"cpu": "3"},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"cpu": "1"},
            {},
            (
                "cpu max limit to request ratio per Container is 2, but no limit is specified or "
                "limit is 0"
            ),
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            {},
            (
                "cpu max limit to request ratio per Container is 2, but no request is specified or "
                "request is 0"
            ),
        ),
    ],
)
def test_a_violation_is_told_in_the_words_of_the_api_server(
    bounds: dict[str, Any], requests: dict[str, str], limits: dict[str, str], words: str
) -> None:
    spec = {"containers": [container(requests, limits)]}
    assert violations(spec, {"type": "Container", **bounds}) == [words]


def test_what_is_within_the_bounds_violates_nothing() -> None:
    spec = {"containers": [container({"cpu": "1"}, {"cpu": "2"})]}
    bounds = {"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}
    assert violations(spec, {"type": "Container", **bounds}, {"type": "Pod", **bounds}) == []


def test_the_containers_of_a_pod_count_together_for_a_bound_of_the_pod() -> None:
    one = container({"cpu": "600m"}, {"cpu": "600m"})
    spec = {"containers": [one, one], "initContainers": [container({"cpu": "1"}, {"cpu": "1"})]}
    assert violations(spec, {"type": "Pod", "max": {"cpu": "1"}}) == [
        "maximum cpu usage per Pod is 1, but limit is 1200m"
    ]


def test_init_containers_are_bound_too() -> None:
    spec = {"initContainers": [container({"cpu": "2"}, {"cpu": "2"})]}
    (words,) = violations(spec, {"type": "Container", "max": {"cpu": "1"}})
    assert words == "maximum cpu usage per Container is 1, but limit is 2"
