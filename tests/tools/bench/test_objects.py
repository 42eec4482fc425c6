from collections import Counter
from typing import Any

import pytest

from bench import objects
from bench.audit import faults
from bench.workloads import WORKLOADS, Workload
from deciding import Deciding
from mooring.model.pod import parse_pod
from mooring.policy.match import ProfileMatcher
from mooring.policy.profile import read_profile
from mooring.quota.model.queue import QUEUE_LABEL, parse_queue
from mooring.testing.builders import pod


def existing(workload: Workload) -> list[dict[str, Any]]:
    return [pod for _, pod in objects.existing_pods(workload, "bench")]


@pytest.mark.parametrize("scale", [1, 50])
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_the_pods_that_exist_before_are_placed_rightly(workload: Workload, scale: int) -> None:
    small = workload.scaled(scale)
    nodes = [node for _, node in objects.nodes(small)]
    assert len(nodes) == small.nodes
    assert faults(nodes, existing(small), []) == []


def test_an_app_has_as_many_existing_pods_in_each_zone() -> None:
    workload = WORKLOADS["spread-zone"]
    zones = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for _, node in objects.nodes(workload)
    }
    counts = Counter(
        (pod["metadata"]["labels"]["app"], zones[pod["spec"]["nodeName"]])
        for _, pod in objects.existing_pods(workload, "bench")
    )
    assert len(counts) == 100 * 10
    assert set(counts.values()) == {3}


def test_pods_ask_for_the_scheduler_that_is_measured() -> None:
    workload = WORKLOADS["hopeless"].scaled(50)
    pods = [
        *objects.hopeless_pods(workload, "bench", "mooring"),
        *objects.measured_pods(workload, "bench", "mooring"),
    ]
    assert {pod["spec"]["schedulerName"] for _, pod in pods} == {"mooring"}
    names = [pod["metadata"]["name"] for _, pod in pods]
    assert names == sorted(names)  # a scheduler lists the hopeless ones first


def test_only_preemptors_have_a_priority_class() -> None:
    workload = WORKLOADS["preempt"].scaled(50)
    (path, priority), *others = objects.priority_classes(WORKLOADS.values())
    assert not others
    assert path == "/apis/scheduling.k8s.io/v1/priorityclasses"
    preemptors = objects.measured_pods(workload, "bench", "mooring")
    named = {pod["spec"]["priorityClassName"] for _, pod in preemptors}
    assert named == {priority["metadata"]["name"]}
    assert all("priorityClassName" not in pod["spec"] for pod in existing(workload))


@pytest.mark.pod_groups
@pytest.mark.parametrize(
    ("scale", "small", "large"),
    [
        (1, (2000, 3), (4, 1500)),
        (7, (285, 3), (4, 214)),
        (50, (40, 3), (4, 30)),
    ],
)
def test_every_group_has_as_many_members_as_its_minimum(
    scale: int, small: tuple[int, int], large: tuple[int, int]
) -> None:
    workload = WORKLOADS["gang"].scaled(scale)
    members = Counter(
        pod["spec"]["schedulingGroup"]["podGroupName"]
        for _, pod in objects.measured_pods(workload, "bench", "mooring")
    )
    minimum = {
        group["metadata"]["name"]: group["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for _, group in objects.pod_groups(workload, "bench")
    }
    assert members == minimum
    assert [*minimum.values()] == [small[1]] * small[0] + [large[1]] * large[0]
    assert workload.pods == members.total()


def test_pods_of_other_workloads_are_in_no_group() -> None:
    workload = WORKLOADS["basic"].scaled(50)
    assert [*objects.pod_groups(workload, "bench")] == []
    pods = objects.measured_pods(workload, "bench", "mooring")
    assert all("schedulingGroup" not in pod["spec"] for _, pod in pods)


def test_pods_that_share_extended_resources_request_them_in_turn() -> None:
    workload = WORKLOADS["claims-extended"].scaled(10)
    limits = [
        pod["spec"]["containers"][0]["resources"]["limits"]
        for _, pod in objects.measured_pods(workload, "bench", "mooring")
    ]
    assert limits[:2] == [{"devices.example.com/gpu-0": "1"}, {"devices.example.com/gpu-1": "1"}]
    assert {len(each) for each in limits} == {1}
    assert len({str(each) for each in limits}) == 25


def test_pods_of_a_team_are_taken_by_the_profile_with_rules_which_most_nodes_pass() -> None:
    workload = WORKLOADS["rules"].scaled(50)
    profiles = [read_profile(profile) for _, profile in objects.profiles("mooring")]
    _, raw = next(objects.measured_pods(workload, "bench", "mooring"))
    labels, named = raw["metadata"]["labels"], {"schedulerName": "mooring"}
    incoming = parse_pod(pod("web", namespace="bench", labels=labels, spec=named))
    name = ProfileMatcher(profiles).find(incoming, {})
    assert name == "rules"
    spec = next(profile for profile in profiles if profile.name == name).spec
    deciding = Deciding(
        *(node for _, node in objects.nodes(workload)),
        rules=[rule.model_dump(exclude_none=True) for rule in spec.rules],
    )
    found = deciding.decision(pod("web", cpu="100m", labels=raw["metadata"]["labels"]))
    assert found.node is not None
    assert {rejection.plugin for rejection in found.rejections.values()} == {"Rules/teams"}
    assert len(found.rejections) == workload.nodes // 10


def test_each_app_is_in_a_queue_of_a_tree_of_three_levels() -> None:
    workload = WORKLOADS["queues"]
    queues = {raw["metadata"]["name"]: parse_queue(raw) for _, raw in objects.queues(workload)}
    assert len(queues) == 200
    assert not any(queue.invalid for queue in queues.values())
    named = {
        raw["metadata"]["labels"][QUEUE_LABEL]
        for _, raw in objects.measured_pods(workload, "bench", "mooring")
    }
    assert {queues[queues[queues[name].parent].parent].parent for name in named} == {""}
    assert len(named) == 186
