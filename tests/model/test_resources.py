from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.manifest_error import ManifestError
from mooring.model.resources import (
    ContainerResources,
    amount_text,
    parse_amounts,
    parse_containers,
    parse_pod_level,
    raise_to,
    total_requests,
)

Init = list[tuple[dict[str, int], bool]]


def test_amounts_are_millicores_bytes_and_counts() -> None:
    raw = {"cpu": "250m", "memory": "1Ki", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 2}
    assert parse_amounts(raw, "") == {
        "cpu": 250,
        "memory": 1024,
        "hugepages-2Mi": 4 * 2**20,
        "nvidia.com/gpu": 2,
    }


def test_an_explicit_zero_is_kept() -> None:
    assert parse_amounts({"cpu": "0"}, "") == {"cpu": 0}


@pytest.mark.parametrize(
    ("name", "amount", "problem"),
    [
        ("cpu", "much", "'much' is not a quantity"),
        ("cpu", "-1", "-1 is negative"),
        ("gpu", "1", "is not a resource"),
        ("pods", "1", "is not a resource"),
    ],
)
def test_a_wrong_amount_raises_an_error_with_its_path(name: str, amount: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_amounts({name: amount}, "spec.overhead")
    assert caught.value.where == f"spec.overhead.{name}"
    assert caught.value.problem.startswith(problem)


def containers(*resources: Mapping[str, Any], field: str = "containers") -> dict[str, Any]:
    return {field: [{"name": f"c{i}", "resources": r} for i, r in enumerate(resources)]}


def test_a_limit_replaces_a_missing_request_of_its_container() -> None:
    spec = containers({"limits": {"cpu": "2", "memory": "10"}, "requests": {"memory": "0"}})
    assert parse_containers(spec, "containers") == [
        ContainerResources(
            name="c0",
            sidecar=False,
            requests={"cpu": 2000, "memory": 0},
            limits={"cpu": 2000, "memory": 10},
        )
    ]


def test_a_container_without_resources_requests_nothing() -> None:
    assert parse_containers({"containers": [{"name": "web"}]}, "containers") == [
        ContainerResources(name="web", sidecar=False, requests={}, limits={})
    ]


def test_only_an_init_container_that_always_restarts_is_a_sidecar() -> None:
    always = [{"name": "proxy", "restartPolicy": "Always"}]
    for field, sidecar in (("initContainers", True), ("containers", False)):
        assert parse_containers({field: always}, field)[0].sidecar is sidecar
    assert not parse_containers({"initContainers": [{"name": "once"}]}, "initContainers")[0].sidecar


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"containers": "web"}, "spec.containers"),
        ({"containers": ["web"]}, "spec.containers[0]"),
        (containers({}, {"requests": 1}), "spec.containers[1].resources.requests"),
        (containers({"limits": {"cpu": "x"}}), "spec.containers[0].resources.limits.cpu"),
    ],
)
def test_a_malformed_container_raises_an_error_with_its_path(
    spec: dict[str, Any], where: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_containers(spec, "containers")
    assert caught.value.where == where


def pod_level(
    in_containers: Mapping[str, int], **resources: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, int]]:
    return parse_pod_level({"resources": resources}, in_containers)


def test_a_pod_without_its_own_resources_has_none_at_pod_level() -> None:
    assert parse_pod_level({}, {"cpu": 1}) == ({}, {})


def test_without_pod_level_limits_missing_pod_level_requests_stay_missing() -> None:
    assert pod_level({"memory": 7}, requests={"cpu": "1"}) == ({"cpu": 1000}, {})


def test_with_a_pod_level_limit_a_missing_request_is_the_total_of_the_containers() -> None:
    requests, _ = pod_level({"cpu": 100, "memory": 7}, limits={"cpu": "2"})
    assert requests == {"cpu": 100, "memory": 7}


def test_a_pod_level_limit_replaces_a_request_that_no_container_has() -> None:
    requests, limits = pod_level({}, limits={"cpu": "2", "hugepages-2Mi": "4Mi"})
    assert requests == limits == {"cpu": 2000, "hugepages-2Mi": 4 * 2**20}


def test_an_explicit_pod_level_request_is_kept() -> None:
    requests, _ = pod_level({"cpu": 100}, requests={"cpu": "1"}, limits={"cpu": "2"})
    assert requests == {"cpu": 1000}


def test_resources_that_do_not_exist_at_pod_level_are_left_out() -> None:
    assert pod_level(
        {"nvidia.com/gpu": 1, "ephemeral-storage": 5},
        requests={"ephemeral-storage": "1"},
        limits={"nvidia.com/gpu": "2"},
    ) == ({}, {})


def test_raise_to_raises_lower_entries_and_adds_missing_ones_also_zero() -> None:
    amounts = {"a": 1, "b": 5}
    raise_to(amounts, {"a": 3, "b": 2, "c": 0})
    assert amounts == {"a": 3, "b": 5, "c": 0}


@pytest.mark.parametrize(
    ("apps", "init", "expected"),
    [
        ([1, 2], [], 3),
        ([1], [(5, False)], 5),
        ([1], [(5, False), (7, False)], 7),
        ([4], [(5, True)], 9),
        ([1], [(2, True), (5, False)], 7),
        ([1], [(5, False), (2, True)], 5),
        ([], [(5, True), (5, True)], 10),
    ],
    ids=[
        "containers add up",
        "an init container runs before them",
        "init containers run one after the other",
        "a sidecar runs beside the containers",
        "a sidecar runs beside the init containers after it",
        "a sidecar does not run beside the init containers before it",
        "sidecars add up",
    ],
)
def test_the_total_is_the_most_needed_at_one_time(
    apps: list[int], init: list[tuple[int, bool]], expected: int
) -> None:
    total = total_requests([{"cpu": n} for n in apps], [({"cpu": n}, s) for n, s in init])
    assert total == {"cpu": expected}


amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "x/y")), st.integers(0, 9))


@given(st.lists(amounts, max_size=4), st.lists(st.tuples(amounts, st.booleans()), max_size=5))
def test_the_total_equals_a_walk_through_the_life_of_the_pod(
    apps: list[dict[str, int]], init: Init
) -> None:
    def peak(name: str) -> int:
        needed, beside = [0], 0
        for requests, sidecar in init:
            needed.append(beside + requests.get(name, 0))
            beside += requests.get(name, 0) if sidecar else 0
        return max(*needed, beside + sum(a.get(name, 0) for a in apps))

    named = {name for requests in (*apps, *(r for r, _ in init)) for name in requests}
    assert total_requests(apps, init) == {name: peak(name) for name in named}


@given(st.lists(amounts, max_size=4), st.lists(st.tuples(amounts, st.booleans()), max_size=5))
def test_the_total_leaves_its_arguments_alone(apps: list[dict[str, int]], init: Init) -> None:
    before = repr((apps, init))
    total_requests(apps, init)
    assert repr((apps, init)) == before


@pytest.mark.parametrize(
    ("resource", "value", "written"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("memory", 3 * 2**30, "3Gi"),
        ("memory", 512 * 2**20, "512Mi"),
        ("memory", 1000, "1000"),
        ("hugepages-2Mi", 2**30, "1Gi"),
        ("example.com/gpu", 4, "4"),
    ],
)
def test_amounts_are_written_as_people_write_them(resource: str, value: int, written: str) -> None:
    assert amount_text(resource, value) == written
