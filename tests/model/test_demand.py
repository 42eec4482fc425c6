from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mooring.model.demand import Demand, pod_demand, pod_limits, qos_class
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.manifest_error import ManifestError

MIB = 2**20


def as_text(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{n}m" if name == "cpu" else str(n) for name, n in amounts.items()}


def container(
    requests: Mapping[str, int] | None = None,
    *,
    limits: Mapping[str, int] | None = None,
    name: str = "web",
    sidecar: bool = False,
) -> dict[str, Any]:
    raw: dict[str, Any] = {"name": name, "resources": {}}
    if requests is not None:
        raw["resources"]["requests"] = as_text(requests)
    if limits is not None:
        raw["resources"]["limits"] = as_text(limits)
    return raw | ({"restartPolicy": "Always"} if sidecar else {})


def spec(
    *containers: dict[str, Any],
    init: Sequence[dict[str, Any]] = (),
    overhead: Mapping[str, int] | None = None,
    requests: Mapping[str, int] | None = None,
    limits: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    raw: dict[str, Any] = {"containers": list(containers), "initContainers": list(init)}
    if overhead is not None:
        raw["overhead"] = as_text(overhead)
    if requests is not None:
        raw.setdefault("resources", {})["requests"] = as_text(requests)
    if limits is not None:
        raw.setdefault("resources", {})["limits"] = as_text(limits)
    return raw


def incoming(raw: dict[str, Any]) -> Demand:
    return pod_demand(raw, None, assigned=False)


# ---- what the pod requests


def test_the_demand_is_the_sum_over_containers_and_the_overhead() -> None:
    raw = spec(
        container({"cpu": 100, "memory": 10}),
        container({"cpu": 200, "nvidia.com/gpu": 1}),
        overhead={"cpu": 50},
    )
    assert incoming(raw).resources == {"cpu": 350, "memory": 10, "nvidia.com/gpu": 1}


def test_limits_count_only_where_there_is_no_request() -> None:
    raw = spec(container({"cpu": 100}, limits={"cpu": 900, "memory": 10}))
    assert incoming(raw).resources == {"cpu": 100, "memory": 10}


def test_resources_requested_as_zero_are_dropped() -> None:
    assert incoming(spec(container({"cpu": 0, "nvidia.com/gpu": 0}))).resources == {}


def test_pod_level_requests_override_the_sum_of_the_containers() -> None:
    raw = spec(
        container({"cpu": 900, "memory": 10, "hugepages-2Mi": 4, "nvidia.com/gpu": 1}),
        requests={"cpu": 500, "hugepages-2Mi": 6},
        overhead={"cpu": 50, "memory": 1},
    )
    assert incoming(raw).resources == {
        "cpu": 550,
        "memory": 11,
        "hugepages-2Mi": 6,
        "nvidia.com/gpu": 1,
    }


def test_a_sum_beyond_int64_is_capped() -> None:
    raw = spec(container({"memory": 2**63 - 1}), container({"memory": 5}))
    demand = incoming(raw)
    assert demand.resources["memory"] == demand.scored_memory == 2**63 - 1


# ---- what scores count


def test_in_scores_a_container_without_requests_counts_with_defaults() -> None:
    demand = incoming(spec(container({"cpu": 500}), container({"memory": MIB})))
    assert (demand.scored_cpu, demand.scored_memory) == (600, 201 * MIB)
    assert (demand.node_scored_cpu, demand.node_scored_memory) == (600, 201 * MIB)
    assert demand.resources == {"cpu": 500, "memory": MIB}


def test_in_scores_an_explicit_zero_counts_as_zero() -> None:
    demand = incoming(spec(container({"cpu": 0, "memory": 0})))
    assert (demand.scored_cpu, demand.scored_memory) == (0, 0)


def test_in_scores_an_init_container_without_requests_counts_with_defaults() -> None:
    demand = incoming(spec(container({"cpu": 10, "memory": 1}), init=[container()]))
    assert (demand.scored_cpu, demand.scored_memory) == (100, 200 * MIB)


def test_the_incoming_score_ignores_pod_level_requests_and_the_node_total_does_not() -> None:
    raw = spec(
        container({"cpu": 300, "hugepages-2Mi": 4}),
        requests={"cpu": 1000, "memory": MIB, "hugepages-2Mi": 6},
        overhead={"cpu": 50},
    )
    demand = incoming(raw)
    assert (demand.scored_cpu, demand.scored_memory) == (350, 200 * MIB)
    assert demand.scored_others == {"hugepages-2Mi": 4}
    assert (demand.node_scored_cpu, demand.node_scored_memory) == (1050, MIB)


def test_with_pod_level_requests_a_resource_that_a_container_requests_has_no_default() -> None:
    raw = spec(container({"memory": MIB}), container(), requests={"cpu": 1000})
    assert incoming(raw).node_scored_memory == MIB


def test_with_pod_level_requests_a_resource_without_any_request_has_a_default() -> None:
    raw = spec(container(), container(), requests={"cpu": 1000})
    assert incoming(raw).node_scored_memory == 400 * MIB


def test_with_pod_level_requests_an_overhead_counts_as_a_request() -> None:
    raw = spec(container(), requests={"cpu": 1000}, overhead={"memory": MIB})
    assert incoming(raw).node_scored_memory == MIB


def test_a_pod_level_limit_implies_pod_level_requests() -> None:
    raw = spec(container({"cpu": 100}), container(), limits={"cpu": 2000})
    demand = incoming(raw)
    assert demand.node_scored_cpu == 100
    assert demand.scored_cpu == 200


# ---- resize in place


def resizing(
    requests: Mapping[str, int],
    *,
    used: Mapping[str, int] | None = None,
    allocated: Mapping[str, int] | None = None,
    name: str = "web",
) -> dict[str, Any]:
    raw: dict[str, Any] = {"name": name, "resources": {"requests": as_text(requests)}}
    if used is not None:
        raw["resources"] = {"requests": as_text(used)}
    if allocated is not None:
        raw["allocatedResources"] = as_text(allocated)
    return raw


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


def cpu_of(raw: dict[str, Any], status: dict[str, Any], version: str = "1.37") -> int:
    kubernetes = KUBERNETES_RULES[version]
    demand = pod_demand(raw, status, assigned=True, kubernetes=kubernetes)
    return demand.resources.get("cpu", 0)


@pytest.mark.parametrize(
    ("wanted", "allocated", "used", "held"),
    [(500, 100, 100, 500), (100, 500, 300, 500), (100, 300, 500, 500)],
    ids=["growing", "shrunk but not yet set aside", "shrunk but still in use"],
)
def test_during_a_resize_the_largest_of_requested_allocated_and_used_counts(
    wanted: int, allocated: int, used: int, held: int
) -> None:
    status = {"containerStatuses": [resizing({}, used={"cpu": used}, allocated={"cpu": allocated})]}
    assert cpu_of(spec(container({"cpu": wanted})), status) == held
    assert cpu_of(spec(container({"cpu": wanted})), status | {"conditions": DEFERRED}) == held


def test_the_request_of_an_infeasible_resize_does_not_count() -> None:
    status = {
        "containerStatuses": [resizing({}, used={"cpu": 200}, allocated={"cpu": 100})],
        "conditions": INFEASIBLE,
    }
    assert cpu_of(spec(container({"cpu": 900})), status) == 200


def test_only_the_first_resize_condition_counts() -> None:
    status = {
        "containerStatuses": [resizing({}, used={"cpu": 200})],
        "conditions": [{"type": "Ready"}, *DEFERRED, *INFEASIBLE],
    }
    assert cpu_of(spec(container({"cpu": 900})), status) == 900


def test_what_is_allocated_counts_without_what_is_used_since_kubernetes_1_37() -> None:
    status = {
        "containerStatuses": [{"name": "web", "allocatedResources": {"cpu": "7"}}],
        "conditions": INFEASIBLE,
    }
    assert cpu_of(spec(container({"cpu": 900})), status, "1.36") == 900
    assert cpu_of(spec(container({"cpu": 900})), status) == 7000


def test_since_kubernetes_1_37_the_largest_sum_of_a_stage_counts() -> None:
    """Before 1.37, each container counts with its largest amount, even if the stages differ."""
    raw = spec(container({"cpu": 900}), container({"cpu": 100}, name="other"))
    status = {
        "containerStatuses": [
            resizing({}, used={"cpu": 200}, allocated={"cpu": 200}),
            resizing({}, used={"cpu": 700}, allocated={"cpu": 700}, name="other"),
        ]
    }
    assert cpu_of(raw, status, "1.36") == 900 + 700
    assert cpu_of(raw, status) == 900 + 100


@pytest.mark.parametrize(("version", "cpu"), [("1.36", 510), ("1.37", 9000)])
def test_init_containers_are_resized_of_which_before_1_37_only_sidecars(
    version: str, cpu: int
) -> None:
    status = {
        "initContainerStatuses": [
            resizing({}, used={"cpu": 500}, name="proxy"),
            resizing({}, used={"cpu": 9000}, name="once"),
        ]
    }
    raw = spec(
        container({"cpu": 10}),
        init=[container(name="once"), container({"cpu": 1}, name="proxy", sidecar=True)],
    )
    assert cpu_of(raw, status, version) == cpu


@pytest.mark.parametrize(
    ("version", "wanted", "more", "infeasible"),
    [
        ("1.35", {"cpu": 500}, 900, 900),
        ("1.36", {"cpu": 700}, 900, 700),
        ("1.37", {"cpu": 700, "memory": 2**30}, 900, 700),
    ],
)
def test_pod_level_requests_are_resized_like_those_of_a_container(
    version: str, wanted: dict[str, int], more: int, infeasible: int
) -> None:
    raw = spec(container(), requests={"cpu": 500})
    status: dict[str, Any] = {
        "resources": {"requests": {"cpu": "700m", "memory": "1Gi"}},
        "allocatedResources": {"cpu": "600m"},
    }
    rules = KUBERNETES_RULES[version]
    assert pod_demand(raw, status, assigned=True, kubernetes=rules).resources == wanted
    wants_more = spec(container(), requests={"cpu": 900})
    assert cpu_of(wants_more, status, version) == more
    assert cpu_of(wants_more, status | {"conditions": INFEASIBLE}, version) == infeasible


def test_since_kubernetes_1_37_the_status_of_the_whole_pod_comes_before_its_containers() -> None:
    raw = spec(container({"cpu": 100}))
    status: dict[str, Any] = {
        "containerStatuses": [resizing({}, used={"cpu": 900}, allocated={"cpu": 800})],
        "resources": {"requests": {"cpu": "300m"}},
        "allocatedResources": {"cpu": "200m"},
    }
    assert [cpu_of(raw, status, version) for version in ("1.36", "1.37")] == [900, 300]


def test_the_status_of_an_incoming_pod_does_not_count() -> None:
    status = {"containerStatuses": [resizing({}, used={"cpu": 500})]}
    demand = pod_demand(spec(container({"cpu": 100})), status, assigned=False)
    assert demand.resources == {"cpu": 100}


# ---- errors


@pytest.mark.parametrize(
    ("raw", "status", "where"),
    [
        (spec() | {"overhead": {"cpu": "x"}}, {}, "spec.overhead.cpu"),
        (spec() | {"resources": {"requests": {"cpu": "x"}}}, {}, "spec.resources.requests.cpu"),
        (
            spec(container()),
            {"containerStatuses": [{"name": "web", "resources": {"requests": {"cpu": "x"}}}]},
            "status.containerStatuses[0].resources.requests.cpu",
        ),
        (spec(), {"containerStatuses": "web"}, "status.containerStatuses"),
    ],
)
def test_a_malformed_field_raises_an_error_with_its_path(
    raw: dict[str, Any], status: dict[str, Any], where: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        pod_demand(raw, status or None, assigned=True)
    assert caught.value.where == where


# ---- quality of service

CPU_AND_MEMORY = {"cpu": 100, "memory": 10}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (spec(container(), container()), "BestEffort"),
        (spec(container({"cpu": 0}, limits={"memory": 0})), "BestEffort"),
        (spec(container({"nvidia.com/gpu": 1})), "BestEffort"),
        (spec(container({"cpu": 1})), "Burstable"),
        (spec(container(), init=[container({"cpu": 1})]), "Burstable"),
        (spec(container(limits=CPU_AND_MEMORY)), "Guaranteed"),
        (spec(container(CPU_AND_MEMORY, limits=CPU_AND_MEMORY)), "Guaranteed"),
        (spec(container({"cpu": 99}, limits=CPU_AND_MEMORY)), "Burstable"),
        (spec(container(CPU_AND_MEMORY)), "Burstable"),
        (spec(container(limits={"cpu": 1})), "Burstable"),
        (spec(container(limits=CPU_AND_MEMORY), container()), "Burstable"),
        (spec(container(limits=CPU_AND_MEMORY), init=[container()]), "Burstable"),
        (spec(container(), limits=CPU_AND_MEMORY), "Guaranteed"),
        (spec(container({"cpu": 1}), limits=CPU_AND_MEMORY), "Burstable"),
        (spec(container(limits=CPU_AND_MEMORY), requests={"cpu": 1}), "Burstable"),
        (spec(container({"cpu": 1}), requests={"hugepages-2Mi": 2}), "BestEffort"),
    ],
    ids=[
        "nothing requested",
        "only zeros",
        "only an extended resource",
        "a request without a limit",
        "only an init container requests",
        "limits of both stand in for the requests",
        "requests equal to limits",
        "a request below its limit",
        "requests without limits",
        "a limit of one of the two",
        "a container without limits",
        "an init container without limits",
        "pod-level limits of both",
        "a container requests less than the pod's limit",
        "pod-level resources replace those of the containers",
        "pod-level huge pages hide what containers request",
    ],
)
def test_the_qos_class_follows_from_requests_and_limits(raw: dict[str, Any], expected: str) -> None:
    assert qos_class(raw) == expected


# ---- what the pod may use at most


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (spec(container({"cpu": 100})), {}),
        (
            spec(
                container(limits={"cpu": 100, "nvidia.com/gpu": 1}),
                container(limits={"cpu": 50, "memory": 9}),
            ),
            {"cpu": 150, "memory": 9},
        ),
        (
            spec(container(limits={"cpu": 100}), init=[container(limits={"cpu": 300})]),
            {"cpu": 300},
        ),
        (
            spec(container(limits={"cpu": 100}), limits={"cpu": 70, "memory": 5}),
            {"cpu": 70, "memory": 5},
        ),
        (spec(container(limits={"cpu": 0})), {}),
    ],
)
def test_the_limits_of_cpu_and_memory_add_up_like_requests(
    raw: dict[str, Any], expected: dict[str, int]
) -> None:
    assert pod_limits(raw) == expected
