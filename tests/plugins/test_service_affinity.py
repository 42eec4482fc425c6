from typing import Any, ClassVar

import pytest

from mooring.plugins.service_affinity import ServiceAffinity
from mooring.testing.builders import node, pod, service
from mooring.testing.contract import PluginContract, Scenario
from plugin_answers import PluginAnswers, Rejected

WEB = {"app": "web"}
OUT = Rejected(("node(s) didn't match service affinity",), resolvable=True)
NODES = (
    node("n1", labels={"region": "r1", "rack": "a"}),
    node("n2", labels={"region": "r1", "rack": "b"}),
    node("n3", labels={"region": "r2", "rack": "a"}),
    node("bare"),
)


def rejected(*objects: dict[str, Any], labels: list[str], **pod_fields: Any) -> set[str] | None:
    asking = PluginAnswers(ServiceAffinity, *NODES, *objects, affinityLabels=labels)
    rejections = asking.rejections(pod(labels=WEB, **pod_fields))
    if rejections is None:
        return None
    assert set(rejections.values()) <= {OUT}
    return set(rejections)


def placed(name: str, **fields: Any) -> dict[str, Any]:
    return pod(f"placed-on-{name}", node=name, **({"labels": WEB} | fields))


def test_the_first_pod_of_a_service_goes_anywhere() -> None:
    assert rejected(service("web", WEB), labels=["region"]) is None


def test_later_pods_follow_the_first_to_nodes_with_the_same_labels() -> None:
    assert rejected(service("web", WEB), placed("n1"), labels=["region"]) == {"n3", "bare"}
    assert rejected(service("web", WEB), placed("n1"), labels=["region", "rack"]) == {
        "n2",
        "n3",
        "bare",
    }


def test_matching_pods_count_while_they_terminate() -> None:
    assert rejected(service("web", WEB), placed("n3", terminating=True), labels=["region"]) == {
        "n1",
        "n2",
        "bare",
    }


def test_a_label_that_the_matching_pods_node_lacks_is_not_required() -> None:
    assert rejected(service("web", WEB), placed("bare"), labels=["region"]) is None
    assert rejected(service("web", WEB), placed("n1"), labels=["region", "gpu"]) == {"n3", "bare"}


def test_the_pods_node_selector_comes_before_matching_pods() -> None:
    selector = {"region": "r2", "disk": "ssd"}
    assert rejected(
        service("web", WEB), placed("n2"), labels=["region"], node_selector=selector
    ) == {
        "n1",
        "n2",
        "bare",
    }
    assert rejected(
        service("web", WEB), placed("n2"), labels=["region", "rack"], node_selector=selector
    ) == {"n1", "n2", "n3", "bare"}


@pytest.mark.parametrize(
    "objects",
    [
        [placed("n1")],
        [service("db", {"app": "db"}), placed("n1")],
        [service("web", WEB), placed("n1", namespace="team-a")],
        [service("web", WEB), placed("n1", labels={"app": "db"})],
    ],
)
def test_only_pods_with_the_same_labels_and_a_service_in_front_are_followed(
    objects: list[dict[str, Any]],
) -> None:
    assert rejected(*objects, labels=["region"]) is None


def test_of_matching_pods_on_different_nodes_the_first_node_in_order_counts() -> None:
    objects = (service("web", WEB), placed("n3"), placed("n2"))
    assert rejected(*objects, labels=["region"]) == {"n3", "bare"}


def scores(*objects: dict[str, Any], labels: list[str]) -> dict[str, int] | None:
    asking = PluginAnswers(ServiceAffinity, *NODES, *objects, antiAffinityLabelsPreference=labels)
    return asking.scores(pod(labels=WEB))


def test_nodes_score_by_how_few_of_the_services_pods_are_on_alike_nodes() -> None:
    objects = [service("web", WEB), placed("n1"), placed("n2"), placed("n3"), placed("bare")]
    assert scores(*objects, labels=["region"]) == {"n1": 50, "n2": 50, "n3": 75, "bare": 0}


def test_each_of_several_labels_counts_its_share() -> None:
    objects = [service("web", WEB), placed("n1"), placed("n2"), placed("n3")]
    # 2, 2 and 1 of 3 are on nodes of the same region, 2, 1 and 2 of the same rack; in floating
    # point a third and two thirds make less than one, as upstream
    assert scores(*objects, labels=["region", "rack"]) == {"n1": 33, "n2": 49, "n3": 49, "bare": 0}


def test_pods_that_go_or_are_in_another_namespace_are_not_counted() -> None:
    objects = [
        service("web", WEB),
        placed("n1", terminating=True),
        placed("n2", namespace="team-a"),
        placed("n3"),
    ]
    assert scores(*objects, labels=["region"]) == {"n1": 100, "n2": 100, "n3": 0, "bare": 0}


def test_of_several_services_the_first_by_name_counts() -> None:
    asking = PluginAnswers(
        ServiceAffinity,
        *NODES,
        service("b", WEB),
        service("a", {"tier": "front"}),
        placed("n1", labels={"tier": "front"}),
        placed("n3", labels=WEB),
        antiAffinityLabelsPreference=["region"],
    )
    incoming = pod(labels={**WEB, "tier": "front"})
    assert asking.scores(incoming) == {"n1": 0, "n2": 0, "n3": 100, "bare": 0}


@pytest.mark.parametrize("objects", [[], [placed("n1")], [service("web", WEB)]])
def test_without_pods_to_count_nodes_with_the_label_are_best(objects: list[dict[str, Any]]) -> None:
    assert scores(*objects, labels=["region"]) == {"n1": 100, "n2": 100, "n3": 100, "bare": 0}


def test_without_labels_nothing_is_scored() -> None:
    assert scores(service("web", WEB), labels=[]) is None


@pytest.mark.parametrize(
    ("before", "after", "cured"),
    [
        (None, pod("new", node="n1", labels=WEB), True),
        (pod("old", node="n1", labels=WEB | {"tier": "1"}), None, True),
        (pod("p", node="n1"), pod("p", node="n1", labels=WEB), True),
        (None, pod("new", node="n1"), False),
        (None, pod("new", node="n1", labels=WEB, namespace="other"), False),
        (None, service("web", WEB), True),
        (service("web", WEB), service("web", {"app": "db"}), True),
        (service("web", WEB), service("web", WEB), False),
        (None, service("web", WEB, namespace="other"), False),
        (None, node("n4"), True),
        (node("n1"), None, True),
        (node("n1"), NODES[0], True),
        (NODES[0], NODES[0], False),
    ],
)
def test_events_of_matching_pods_services_and_nodes_queue(
    before: dict[str, Any] | None, after: dict[str, Any] | None, *, cured: bool
) -> None:
    asking = PluginAnswers(ServiceAffinity, affinityLabels=["region"])
    assert asking.queueing_hint(pod(labels=WEB), before=before, after=after) is cured


class TestContract(PluginContract):
    plugin = ServiceAffinity
    args: ClassVar[dict[str, list[str]]] = {
        "affinityLabels": ["region"],
        "antiAffinityLabelsPreference": ["rack"],
    }
    scenarios: ClassVar[list[Scenario]] = [
        Scenario(NODES, pod(labels=WEB), (service("web", WEB), placed("n1"), placed("n2"))),
        Scenario(NODES, pod(labels=WEB, node_selector={"region": "r2"})),
    ]
