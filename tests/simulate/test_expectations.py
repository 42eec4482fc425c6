from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.simulate.expectations import CaseResult, run_case
from mooring.simulate.policy_tests import Case, PolicyTest, PolicyTestFile
from mooring.testing.builders import (
    api_object,
    namespace,
    node,
    pod,
    pod_group,
    priority_class,
    queue_object,
)

REGISTRY = Registry(SHIPPED)
WEB = {"app": "web"}
PODS = {"labelSelector": {"matchLabels": WEB}}


def run(
    *expect: dict[str, Any], folder: Path = Path(), test: dict[str, Any] | None = None, **case: Any
) -> CaseResult:
    """Return the result of one case; `test` has fields of the whole test, `case` of the case."""
    document = {"name": "a", "expect": expect, **case}
    whole = PolicyTest.model_validate(
        {
            "apiVersion": "test.mooring.dev/v1alpha1",
            "kind": "PolicyTest",
            "metadata": {"name": "mine"},
            "cases": [Case.model_validate(document)],
            **(test or {}),
        }
    )
    return run_case(PolicyTestFile(str(folder / "test.yaml"), whole, (1,)), 0, REGISTRY)


def problems(*expect: dict[str, Any], **case: Any) -> list[str]:
    """Run the case; return path and message of each failed expectation."""
    result = run(*expect, **case)
    assert result.error is None
    return [f"{failure.path}: {failure.message}" for failure in result.failures]


def profile(name: str, path: Path, **spec: Any) -> str:
    path.write_text(yaml.safe_dump(api_object("SchedulingProfile", name, spec=spec)))
    return path.name


def replicas(*zones: str) -> list[dict[str, Any]]:
    return [
        pod(f"web-{number}", node=f"node-{zone}", labels=WEB) for number, zone in enumerate(zones)
    ]


NODES = [node("node-a", zone="a", cpu="4"), node("node-b", zone="b", cpu="2")]
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    "expectation",
    [
        {"node": "node-a"},
        {"nodeSelector": {ZONE: "a"}},
        {"scheduled": True},
        {"profile": "default-scheduler"},
        {"victims": []},
        {"maxVictims": 0},
    ],
)
def test_what_is_as_expected_is_no_failure(expectation: dict[str, Any]) -> None:
    pods = [pod("web", cpu="3")]
    assert problems({"pod": "web", **expectation}, objects=NODES, pods=pods) == []
    assert problems({"pod": "default/web", **expectation}, objects=NODES, pods=pods) == []


@pytest.mark.parametrize(
    ("expectation", "failure"),
    [
        ({"node": "node-b"}, "node: pod default/web is on node-a, expected node-b"),
        (
            {"nodeSelector": {ZONE: "b"}},
            f"nodeSelector: pod default/web is on node-a, which has {ZONE}=a",
        ),
        (
            {"nodeSelector": {"disk": "ssd"}},
            "nodeSelector: pod default/web is on node-a, which has no disk",
        ),
        ({"scheduled": False}, "scheduled: pod default/web is on node-a"),
        ({"unschedulable": {}}, "unschedulable: pod default/web is on node-a"),
        ({"profile": "mine"}, "profile: pod default/web was decided by default-scheduler"),
        ({"nominatedNode": "node-a"}, "nominatedNode: pod default/web is nominated to nothing"),
        ({"victims": ["x"]}, "victims: pod default/web evicts none"),
    ],
)
def test_what_is_not_as_expected_is_a_failure_that_says_what_is_the_case(
    expectation: dict[str, Any], failure: str
) -> None:
    found = problems({"pod": "web", **expectation}, objects=NODES, pods=[pod("web", cpu="3")])
    assert found == [f"expect[0].{failure}"]


def test_a_failure_comes_with_the_decision() -> None:
    result = run({"pod": "web", "node": "node-b"}, objects=NODES, pods=[pod("web", cpu="3")])
    (decision,) = result.failures[0].decisions
    assert decision.rejections["node-b"].reasons == ("Insufficient cpu",)
    assert not result.passed


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({}, None),
        ({"plugin": "NodeResourcesFit"}, None),
        ({"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "node": "node-b"}, None),
        ({"reason": "2 Insufficient cpu"}, None),
        ({"reason": "memory"}, "is unschedulable for another reason: 0/2 nodes are available:"),
        (
            {"plugin": "TaintToleration"},
            "is not rejected by TaintToleration; rejecting plugins: NodeResourcesFit",
        ),
        (
            {"plugin": "NodeResourcesFit", "node": "node-x"},
            "is not rejected by NodeResourcesFit on node-x",
        ),
        (
            {"plugin": "NodeResourcesFit", "reason": "memory"},
            "is rejected by NodeResourcesFit for another reason: Insufficient cpu",
        ),
    ],
)
def test_an_unschedulable_pod_is_compared_by_plugin_reason_and_node(
    expected: dict[str, Any], message: str | None
) -> None:
    found = problems({"pod": "web", "unschedulable": expected}, objects=NODES, pods=[pod(cpu="9")])
    assert len(found) == (message is not None)
    assert all(str(message) in line for line in found)


def test_the_reason_of_a_gated_pod_is_in_its_message() -> None:
    expected = {"pod": "web", "unschedulable": {"reason": "example.com/wait"}}
    assert problems(expected, objects=NODES, pods=[pod(gates=["example.com/wait"])]) == []


def test_the_victims_of_one_pod_are_compared_as_a_set_and_those_of_several_are_counted() -> None:
    low = [pod(name, node="node-b", cpu="1", labels=WEB) for name in ("x", "y")]
    case = {
        "objects": [node("node-b", cpu="2"), *low, priority_class("high", 9)],
        "pods": [pod("urgent", cpu="2", labels=WEB, priority=9)],
    }
    assert problems({"pod": "urgent", "victims": ["y", "default/x"]}, **case) == []
    assert problems({"pod": "urgent", "nominatedNode": "node-b", "maxVictims": 2}, **case) == []
    assert problems({"pod": "urgent", "victims": ["x"]}, **case) == [
        "expect[0].victims: pod default/urgent evicts default/x, default/y"
    ]
    assert problems({"pods": PODS, "maxVictims": 1}, **case) == [
        "expect[0].maxVictims: it evicts 2 pods: default/x, default/y"
    ]


@pytest.mark.parametrize(
    ("zones", "most", "shown"),
    [
        ("ab", 0, None),
        ("aab", 1, None),
        ("aab", 0, "differ by 1 between topology.kubernetes.io/zone: a: 2, b: 1"),
        ("aa", 1, "differ by 2 between topology.kubernetes.io/zone: a: 2, b: 0"),
    ],
)
def test_skew_counts_every_zone_that_has_a_node(zones: str, most: int, shown: str | None) -> None:
    expectation = {"pods": PODS, "maxSkew": most, "topologyKey": ZONE}
    found = problems(expectation, objects=[*NODES, *replicas(*zones)])
    assert len(found) == (shown is not None)
    assert all(str(shown) in line for line in found)


def test_the_number_of_nodes_is_that_of_the_selected_pods() -> None:
    objects = [*NODES, *replicas("a", "a", "b"), pod("other", node="node-b")]
    assert problems({"pods": PODS, "maxNodes": 2}, objects=objects) == []
    assert problems({"pods": PODS, "maxNodes": 1}, objects=objects) == [
        "expect[0].maxNodes: the pods are on 2 nodes: node-a, node-b"
    ]


def test_an_expectation_of_pods_holds_for_each_of_them() -> None:
    objects = [*NODES, *replicas("a", "b")]
    assert problems({"pods": PODS, "node": "node-a"}, objects=objects) == [
        "expect[0].node: pod default/web-1 is on node-b, expected node-a"
    ]


def test_pods_are_selected_by_namespace_and_labels() -> None:
    pods = [pod("a", labels=WEB, namespace="team-a"), pod("b", labels=WEB), pod("c")]
    selection = {**PODS, "namespace": "team-a"}
    result = run({"pods": selection, "scheduled": False}, objects=[*NODES, *pods])
    assert [failure.message.split()[1] for failure in result.failures] == ["team-a/a"]


@pytest.mark.parametrize(("minimum", "placed"), [(6, 6), (7, 0)])
def test_a_gang_is_whole_where_it_fits_and_where_it_does_not(minimum: int, placed: int) -> None:
    """The two nodes have six cpus together."""
    objects = [*NODES, pod_group("train", minimum)]
    pods = [pod(f"worker-{i}", cpu="1", group="train") for i in range(minimum)]
    members = {"podGroup": "train"}
    assert problems({"pods": members, "whole": True}, objects=objects, pods=pods) == []
    assert problems({"pods": members, "whole": False}, objects=objects, pods=pods) == [
        f"expect[0].whole: {placed} of the {minimum} pods have a node"
    ]


def test_pods_of_no_group_may_be_placed_in_part() -> None:
    pods = [pod(f"web-{i}", cpu="1", labels=WEB) for i in range(7)]
    assert problems({"pods": PODS, "whole": True}, objects=NODES, pods=pods) == [
        "expect[0].whole: 6 of the 7 pods have a node"
    ]


def test_with_pods_only_these_are_scheduled() -> None:
    others = [pod(f"pending-{number}", cpu="4") for number in range(3)]
    result = run({"pod": "web", "node": "node-a"}, objects=[*NODES, *others], pods=[pod(cpu="3")])
    assert result.passed
    assert not run({"pod": "web", "node": "node-a"}, objects=[*NODES, *others, pod(cpu="3")]).passed


def test_a_controller_makes_pods_for_the_case_and_for_its_own_pods_alone() -> None:
    template = {"metadata": {"labels": WEB}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": WEB}, "template": template},
    }
    expectation = {"pods": PODS, "maxSkew": 1, "topologyKey": ZONE, "scheduled": True}
    assert run(expectation, objects=NODES, pods=[deployment]).passed
    alone = run(expectation, objects=[*NODES, deployment], pods=[pod("other")])
    assert str(alone.error) == "expect[0].pods: selects no pod"


def test_a_pod_that_the_api_server_would_reject_is_unschedulable_with_its_answer() -> None:
    raw = pod(spec={"priorityClassName": "missing", "priority": None})
    del raw["metadata"]["uid"]
    expectation = {"pod": "web", "unschedulable": {"reason": "no PriorityClass"}}
    assert problems(expectation, objects=NODES, pods=[raw]) == []


def test_the_objects_of_the_test_are_in_every_case_and_files_are_relative_to_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(NODES))
    test = {"files": ["nodes.yaml"], "objects": [namespace("team-a")]}
    expectation = {"pod": "team-a/web", "scheduled": True}
    pods = [pod(namespace="team-a")]
    assert run(expectation, test=test, folder=tmp_path, pods=pods).passed


def test_profiles_of_the_case_replace_those_of_the_test_and_several_may_be_in_force(
    tmp_path: Path,
) -> None:
    one, two = (profile(name, tmp_path / f"{name}.yaml") for name in ("one", "two"))
    case: dict[str, Any] = {
        "objects": NODES,
        "pods": [pod("a", spec={"schedulerName": "one"}), pod("b", spec={"schedulerName": "two"})],
        "folder": tmp_path,
    }
    both: list[dict[str, Any]] = [{"pod": "a", "profile": "one"}, {"pod": "b", "profile": "two"}]
    assert run(*both, profiles=[one, two], **case).passed
    reason = {"reason": 'no profile takes pods of schedulerName "one"'}
    alone: list[dict[str, Any]] = [
        {"pod": "a", "unschedulable": reason},
        {"pod": "b", "profile": "two"},
    ]
    assert run(*alone, profiles=[two], test={"profiles": [one]}, **case).passed


def test_other_objects_in_the_file_of_a_profile_belong_to_the_cluster(tmp_path: Path) -> None:
    name = profile(
        "mine", tmp_path / "mine.yaml", match={"namespaceSelector": {"matchLabels": WEB}}
    )
    with (tmp_path / name).open("a") as file:
        file.write("---\n" + yaml.safe_dump(namespace("team-a", labels=WEB)))
    pods = [pod(namespace="team-a", spec={"schedulerName": "mine"})]
    expectation = {"pod": "team-a/web", "profile": "mine"}
    assert run(expectation, profiles=[name], folder=tmp_path, objects=NODES, pods=pods).passed


@pytest.mark.parametrize(
    ("expectation", "case", "error"),
    [
        (
            {"pod": "wep", "scheduled": True},
            {},
            "expect[0].pod: there is no pod default/wep, did you mean default/web?",
        ),
        ({"pods": PODS, "scheduled": True}, {}, "expect[0].pods: selects no pod"),
        (
            {"pods": {}, "maxSkew": 1, "topologyKey": "rack"},
            {},
            "expect[0].topologyKey: no node has the label rack",
        ),
        ({"pod": "web", "scheduled": True}, {"files": ["no.yaml"]}, "no.yaml: no such file"),
        (
            {"pod": "web", "scheduled": True},
            {"pods": [pod(cpu="1x")]},
            "test.yaml, cases[0].pods[0]: Pod default/web",
        ),
        (
            {"pod": "web", "scheduled": True},
            {"objects": [{"kind": ""}]},
            "test.yaml, cases[0].objects[0]: kind: is required",
        ),
    ],
)
def test_a_mistake_in_a_case_is_its_error(
    expectation: dict[str, Any], case: dict[str, Any], error: str
) -> None:
    result = run(expectation, **{"objects": NODES, "pods": [pod()], **case})
    assert error in str(result.error)
    assert (result.passed, result.failures) == (False, ())


def test_a_file_without_profile_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump(namespace("a")))
    result = run({"pod": "web", "scheduled": True}, folder=tmp_path, profiles=["objects.yaml"])
    assert str(result.error) == f"{tmp_path}/objects.yaml: contains no scheduling profile"


def test_an_invalid_profile_is_an_error_of_the_case(tmp_path: Path) -> None:
    name = profile("mine", tmp_path / "mine.yaml", percentageOfNodesToScore=101)
    result = run({"pod": "web", "scheduled": True}, folder=tmp_path, profiles=[name])
    assert "spec.percentageOfNodesToScore" in str(result.error)


def test_quotas_of_queues_hold_and_say_who_gives_back() -> None:
    queues = [
        queue_object("all"),
        *(queue_object(name, {"cpu": 2}, parent="all") for name in ("lender", "borrower")),
    ]
    lender, borrower = ({QUEUE_LABEL: name} for name in ("lender", "borrower"))
    running = [pod(f"b{i}", cpu="1", node="node-a", labels=borrower) for i in range(4)]
    assert not problems(
        {"pod": "wants", "nominatedNode": "node-b"},
        {"pods": PODS, "maxVictims": 1},
        {
            "pod": "more",
            "unschedulable": {
                "plugin": "CapacityScheduling",
                "reason": "queue borrower: 4 of 2 cpu used, 1 asked, nothing left to borrow",
            },
        },
        objects=[*NODES, *queues, *running],
        pods=[
            pod("wants", cpu="1", labels={**lender, **WEB}),
            pod("more", cpu="1", labels=borrower),
        ],
    )


def test_a_gang_over_quota_is_rejected_by_the_plugin_for_quotas_and_by_no_node() -> None:
    labels = {QUEUE_LABEL: "team"}
    objects = [*NODES, queue_object("team", {"cpu": 1}), pod_group("g", 2)]
    pods = [pod(f"m{i}", cpu="1", group="g", labels=labels) for i in range(2)]
    by_quota = {"plugin": "CapacityScheduling", "reason": "0 of 1 cpu used, 2 asked"}
    by_others = {"plugin": "NodeResourcesFit"}
    found = problems(
        {"pod": "m0", "unschedulable": by_quota},
        {"pod": "m0", "unschedulable": by_others},
        {"pod": "m0", "unschedulable": {**by_quota, "node": "node-a"}},
        objects=objects,
        pods=pods,
    )
    assert [text.partition("default/m0 is not ")[2] for text in found] == [
        "rejected by NodeResourcesFit; rejecting plugins: CapacityScheduling",
        "rejected by CapacityScheduling on node-a; rejecting plugins: none",
    ]


def test_pods_of_queues_that_have_borrowed_are_decided_last() -> None:
    queues = [
        queue_object("all"),
        *(queue_object(name, {"cpu": 2}, parent="all") for name in ("first", "second")),
    ]
    pods = [
        *(pod(f"first-{n}", cpu="1", labels={QUEUE_LABEL: "first"}) for n in range(4)),
        pod("second", cpu="1", labels={QUEUE_LABEL: "second"}),
    ]
    assert not problems(
        {"pod": "first-2", "scheduled": True},
        {"pod": "first-3", "scheduled": False},
        {"pod": "second", "scheduled": True},
        objects=[*NODES, *queues],
        pods=pods,
    )
