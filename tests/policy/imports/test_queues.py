"""Reads queues of several schedulers from one file; group and kind distinguish them."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.policy.imports import queues
from mooring.policy.imports.queues import QueueImport
from mooring.quota.model.queue import DEEPEST
from queue_files import imported, node, queue_object


def test_kinds_are_told_apart_by_group_and_kind() -> None:
    objects = [
        queue_object("scheduling.volcano.sh/v1beta1 Queue", "of-volcano", {}),
        queue_object("scheduling.run.ai/v2 Queue", "of-kai", {}),
        queue_object("kueue.x-k8s.io/v1beta2 ClusterQueue", "of-kueue", {}),
        queue_object("scheduling.x-k8s.io/v1alpha1 ElasticQuota", "q", {}, namespace="elastic"),
    ]
    found, _ = imported(objects)
    assert {*found} == {
        *("root", "of-volcano", "kai-root", "of-kai", "of-kueue", "elastic-quota.root", "elastic")
    }


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("scheduling.mooring.dev", "Queue"),
        ("scheduling.volcano.sh", "PodGroup"),
        ("kueue.x-k8s.io", "Workload"),
        ("", "ElasticQuota"),
    ],
)
def test_other_kinds_are_not_read(group: str, kind: str) -> None:
    reader = QueueImport()
    assert not reader.read(group, kind, queue_object(f"{group}/v1 {kind}", "a", {}))
    assert not reader.has_queues


def test_nodes_alone_are_no_queues() -> None:
    reader = QueueImport()
    assert reader.read("", "Node", node("a", cpu="4"))
    assert not reader.has_queues


def of_both(name: str = "a") -> list[dict[str, Any]]:
    apis = ("kueue.x-k8s.io/v1beta2 ClusterQueue", "scheduling.run.ai/v2 Queue")
    return [queue_object(api, name, {}) for api in apis]


def test_queues_of_two_schedulers_cannot_have_one_name() -> None:
    with pytest.raises(ManifestError, match="Queue a and ClusterQueue a would both be Queue a"):
        imported(of_both())


def test_an_object_that_is_there_twice_is_a_mistake() -> None:
    with pytest.raises(ManifestError, match="ClusterQueue a: is there twice"):
        imported(of_both()[:1] * 2)


def test_the_number_of_queues_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_MOST", 1)
    with pytest.raises(ManifestError, match="has 2 queues and Nodes; Mooring reads at most 1"):
        imported([of_both("a")[0], of_both("b")[0]])


def cohorts(*parents: tuple[str, str]) -> list[dict[str, Any]]:
    api = "kueue.x-k8s.io/v1beta2 Cohort"
    return [queue_object(api, name, {"parentName": parent}) for name, parent in parents]


def test_a_circle_of_parents_is_a_mistake() -> None:
    circle = cohorts(("a", "b"), ("b", "c"), ("c", "a"))
    with pytest.raises(ManifestError, match=r"^the parents form a circle: a -> b -> c -> a$"):
        imported(circle)


def test_a_tree_may_be_as_deep_as_mooring_reads_it() -> None:
    path = [(f"q{number}", f"q{number + 1}") for number in range(DEEPEST - 1)]
    found, _ = imported(cohorts(*path))
    assert len(found) == DEEPEST
    with pytest.raises(ManifestError, match="Cohort top: its tree: has 17 levels; Mooring reads"):
        imported(cohorts(("top", "q0"), *path))
