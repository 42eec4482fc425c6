"""Members that are placed by counting: their nodes, and the resources that they lack."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from deciding import Deciding
from group_searching import answered, by_name, placed, search_for
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod

Raw = dict[str, Any]


class ByAnnotation:
    """A filter that accepts only the node in the pod's annotation `node`; skipped without it."""

    name: ClassVar[str] = "ByAnnotation"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> str | Skip:
        return pod.annotations.get("node", SKIP)

    def filter(self, _pod: Pod, nodes: NodeView, name: str) -> BoolArray:
        return np.array([nodes.name(row) == name for row in range(len(nodes))], np.bool_)

    def explain(self, _pod: Pod, nodes: NodeView, _name: str) -> Explanation:
        return Explanation.single("another node", len(nodes), resolvable=False)


THREE_NODES = (node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"))


def test_a_mixed_group_fits_where_greedy_order_fails() -> None:
    deciding = Deciding(node("a", cpu="8"), node("b", cpu="7"))
    members = [pod(f"w{i}", cpu="1") for i in range(8)] + [pod("big", cpu="7")]
    assert len(by_name(deciding, placed(deciding, members))) == 9


def test_members_are_placed_only_where_extenders_passed_them() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1") for i in range(3)]
    answers = answered({"w0": ["a"], "w1": ["b"], "w2": ["b"]})
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert found == {"w0": "a", "w1": "b", "w2": "b"}


def test_a_node_that_extenders_prefer_by_far_is_filled() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1") for i in range(4)]
    scores = {f"w{i}": [0, 10_000, 0] for i in range(4)}
    answers = answered({name: ["a", "b", "c"] for name in scores}, scores)
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert set(found.values()) == {"b"}
    without = by_name(deciding, placed(deciding, members))
    assert len(set(without.values())) == 3


def test_a_plugin_that_reads_annotations_is_asked_about_members_that_differ_in_them_alone() -> None:
    uses = {"multiPoint": {"enabled": [{"name": ByAnnotation.name}]}}
    deciding = Deciding(*THREE_NODES, extra=(ByAnnotation,), plugins=uses)
    distributions = {**deciding.pipeline.distributions, ByAnnotation.name: "acme-plugins"}
    deciding.pipeline = replace(deciding.pipeline, distributions=distributions)
    named = {f"w{name}": name for name in "cba"}
    marked = [pod(name, cpu="1", annotations={"node": at}) for name, at in named.items()]
    found = by_name(deciding, placed(deciding, [pod("first", cpu="1"), *marked]))
    assert named.items() <= found.items()


def test_what_is_nominated_to_a_node_is_not_free() -> None:
    deciding = Deciding(node("a", cpu="2"))
    deciding.nominate(pod("first", cpu="1"), "a")
    assert not placed(deciding, [pod("x", cpu="1"), pod("y", cpu="1")]).complete


def lacking(nodes: list[Raw], members: list[Raw]) -> str:
    search = search_for(Deciding(*nodes), members)
    assignment = search.place()
    assert assignment.impossible
    return search.lacking(assignment, None)


def test_a_group_lacks_what_the_members_request_that_are_left_over() -> None:
    """The requests exceed the free cpu by 12, but 12 more CPUs would fit only four of the six."""
    nodes = [node("a", cpu="4"), node("b", cpu="4")]
    assert lacking(nodes, [pod(f"w{i}", cpu="2500m") for i in range(8)]) == "needs 15 CPUs more"


def test_a_group_that_fits_in_total_lacks_what_one_node_must_have() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="4")]
    assert lacking(nodes, [pod(f"w{i}", cpu="2500m") for i in range(3)]) == "needs 2.5 CPUs more"


def test_a_group_lacks_nothing_that_is_free_where_other_resources_are_short() -> None:
    gpu = "nvidia.com/gpu"
    nodes = [node(name, cpu="120", memory="880Gi", resources={gpu: "4"}) for name in "ab"]
    requests = {gpu: "8", "cpu": "60", "memory": "440Gi"}
    members = [pod(name, requests=requests) for name in "xy"]
    assert lacking(nodes, members) == f"needs 16 {gpu} more"


def test_a_group_that_no_node_may_take_lacks_no_resource() -> None:
    members = [pod(name, cpu="8", node_selector={"disk": "ssd"}) for name in "xy"]
    assert not lacking([node("a", cpu="4")], members)


def test_an_amount_is_rounded_up_to_what_is_said() -> None:
    nodes = [node("a", memory="1Gi")]
    text = lacking(nodes, [pod(name, memory=str(2**30 + 1)) for name in "xy"])
    assert text == "needs 2.001 GiB of memory more"
