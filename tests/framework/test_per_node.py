"""Plugins that filter and score one node at a time."""

import logging
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel

from deciding import Deciding
from mooring.framework.handle import Handle
from mooring.framework.per_node import NodeInfo, per_node
from mooring.framework.plugin import Normalize, points_of
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.policy.points import Point
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import cluster, node, pod
from mooring.testing.contract import PluginContract, Scenario
from mooring.testing.fakes import handle

ON = {"multiPoint": {"enabled": [{"name": "Mine"}]}}


@per_node
class Sizes:
    """Rejects nodes with a taint or less than 2 free cores; prefers nodes with few pods."""

    name: ClassVar[str] = "Mine"
    depends_on_node_only: ClassVar[bool] = True

    def filter(self, _pod: Pod, node: NodeInfo) -> str | Unschedulable | None:
        if node.taints:
            return Unschedulable("node(s) had a taint")
        return "node(s) had less than 2 free cores" if node.free("cpu") < 2000 else None

    def score(self, _pod: Pod, node: NodeInfo) -> int:
        return 100 - 10 * node.pod_count


class TestSizes(PluginContract):
    """A plugin for single nodes must fulfil the contract of all plugins."""

    plugin = Sizes
    scenarios = (
        Scenario(
            nodes=(
                node("free"),
                node("full"),
                node("small", cpu=1),
                node("bad", taints=["a:NoSchedule"]),
            ),
            pod=pod("web"),
            others=(pod("other", cpu=3, node="full"),),
        ),
    )


def deciding(*objects: dict[str, Any], plugin: type[Any] = Sizes) -> Deciding:
    return Deciding(*objects, extra=(plugin,), plugins=ON)


def plugin_with(
    *, depends_on_node_only: bool = True, **methods: Callable[[Any, Pod, NodeInfo], Any]
) -> type[Any]:
    return per_node(
        type("Mine", (), {"name": "Mine", "depends_on_node_only": depends_on_node_only, **methods})
    )


def test_a_node_is_rejected_for_the_reason_that_the_filter_returns() -> None:
    nodes = (node("small", cpu=1), node("smaller", cpu="500m"), node("full"))
    found = deciding(*nodes, pod("other", cpu=3, node="full")).decision(pod())
    assert found.message is not None
    assert found.message.startswith(
        "0/3 nodes are available: 3 node(s) had less than 2 free cores."
    )
    assert {r.plugin for r in found.rejections.values()} == {"Mine"}


def test_evicting_pods_helps_against_a_reason_that_is_a_text_and_not_against_unschedulable() -> (
    None
):
    nodes = (node("small", cpu=1), node("bad", taints=["a:PreferNoSchedule"]))
    rejections = deciding(*nodes).decision(pod()).rejections
    assert {name: r.resolvable for name, r in rejections.items()} == {"small": True, "bad": False}


def test_evicting_pods_does_not_help_where_the_plugin_ignores_pods() -> None:
    mine = plugin_with(filter=lambda *_: "node(s) were odd")
    mine.depends_on_node_object_only = True
    rejections = deciding(node("n1"), plugin=mine).decision(pod()).rejections
    assert rejections["n1"].resolvable is False


def test_the_scores_decide() -> None:
    found = deciding(node("n1"), node("n2"), pod("other", node="n1")).decision(pod())
    assert found.scores is not None
    assert {n: s.plugins["Mine"] for n, s in found.scores.items()} == {"n1": 90, "n2": 100}


def test_a_node_is_read_with_its_amounts_and_the_pods_on_it() -> None:
    seen: dict[str, Any] = {}

    def score(_self: Any, _pod: Pod, node: NodeInfo) -> int:
        seen[node.name] = {
            "labels": node.labels.get("disk"),
            "annotations": dict(node.annotations),
            "slots": node.pod_slots,
            "memory": (node.allocatable("memory"), node.requested("memory"), node.free("memory")),
            "gpu": (node.allocatable("example.com/gpu"), node.free("example.com/gpu")),
            "pods": (node.pod_count, [pod.name for pod in node.pods]),
        }
        return 0

    large = node("n1", memory="3Gi", pods=9, labels={"disk": "ssd"}, annotations={"a": "b"})
    one = pod("one", memory="1Gi", node="n1")
    deciding(large, node("n2"), one, plugin=plugin_with(score=score)).outcome(pod())
    assert seen["n1"] == {
        "labels": "ssd",
        "annotations": {"a": "b"},
        "slots": 9,
        "memory": (3 * 2**30, 2**30, 2 * 2**30),
        "gpu": (0, 0),
        "pods": (1, ["one"]),
    }


def test_a_node_only_plugin_runs_again_for_changed_nodes_only() -> None:
    runs: list[str] = []

    def score(_self: Any, _pod: Pod, node: NodeInfo) -> int:
        runs.append(node.name)
        return 0

    found = deciding(*(node(f"n{i}") for i in range(8)), plugin=plugin_with(score=score))
    found.outcome(pod("first"))
    assert len(runs) == 8
    runs.clear()
    found.place(pod("first"), "n3")
    found.outcome(pod("second"))
    assert runs == ["n3"]


def test_a_plugin_that_is_not_node_only_runs_for_every_node_and_pod() -> None:
    runs: list[str] = []

    def score(_self: Any, pod: Pod, node: NodeInfo) -> int:
        runs.append(f"{pod.name} {node.name}")
        return 0

    mine = plugin_with(score=score, depends_on_node_only=False)
    found = deciding(node("n1"), node("n2"), plugin=mine)
    found.outcome(pod("a"))
    found.outcome(pod("b"))
    assert runs == ["a n1", "a n2", "b n1", "b n2"]


def test_a_row_whose_node_is_gone_is_not_a_node() -> None:
    found = deciding(node("n2"), node("n1"), pod("other", node="n2"))
    found.state.delete(Kind.NODE, "n2")
    assert [*found.cluster.node_names] == ["", "n1", ""]
    outcome = found.outcome(pod())
    assert isinstance(outcome, ScheduleResult)
    assert outcome.node == "n1"


@per_node
class Everything:
    """An extension point of its own, arguments, and a constructor."""

    name: ClassVar[str] = "Mine"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.REVERSED

    class Args(BaseModel):
        most: int = 3

    def __init__(self, args: Args, handle: Handle) -> None:
        self.most = args.most
        self.cluster = handle.cluster

    @staticmethod
    def score(_pod: Pod, node: NodeInfo) -> int:
        return node.pod_count

    def permit(self, _pod: Pod, _node: str) -> None: ...


def test_everything_else_is_the_plugins_own() -> None:
    built = Everything(Everything.Args(most=5), handle(cluster()))
    assert (built.most, built.cluster.node_count) == (5, 0)
    assert points_of(Everything) == {Point.SCORE, Point.PERMIT}
    assert Everything.__doc__ == "An extension point of its own, arguments, and a constructor."
    assert (Everything.__name__, Everything.__module__) == ("Everything", __name__)
    found = deciding(node("n1"), node("n2"), pod("other", node="n1"), plugin=Everything)
    scores = found.decision(pod()).scores
    assert scores is not None
    assert {n: s.plugins["Mine"] for n, s in scores.items()} == {"n1": 0, "n2": 100}


def test_a_plugin_needs_no_constructor() -> None:
    plugin: type[Any] = Sizes
    assert plugin(NoArgs(), handle(cluster()))


def test_a_class_without_filter_and_score_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Mine has neither filter\(pod, node\) nor score\(pod, n"):
        plugin_with(filtr=lambda *_: None)


@pytest.mark.parametrize(
    ("method", "answer", "problem"),
    [
        ("filter", False, "filter returned bool for node n1; it must return None, the reason as a"),
        ("filter", "", "filter returned '' for node n1; it must return None, the reason as a text"),
        ("score", None, "score returned None for node n1; it must return an int"),
        ("score", 0.5, "score returned float for node n1; it must return an int"),
        ("score", 2**70, "score returned a number of more than 64 bits"),
        ("score", -1, "score returned numbers from -1 to -1; they must be from 0 to 100"),
        ("score", 101, "score returned numbers from 101 to 101; they must be from 0 to 100"),
    ],
)
def test_a_wrong_result_fails_the_attempt_with_one_line(
    method: str, answer: Any, problem: str
) -> None:
    methods: dict[str, Any] = {method: lambda *_: answer}
    found = deciding(node("n1"), node("n2"), plugin=plugin_with(**methods))
    with pytest.raises(PluginError) as error:
        found.outcome(pod())
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_score_may_be_a_number_of_numpy() -> None:
    found = deciding(node("n1"), node("n2"), plugin=plugin_with(score=lambda *_: np.int64(7)))
    scores = found.decision(pod()).scores
    assert scores is not None
    assert {s.plugins["Mine"] for s in scores.values()} == {7}


def test_the_log_names_the_node_at_which_a_plugin_raised(caplog: pytest.LogCaptureFixture) -> None:
    def score(_self: Any, _pod: Pod, node: NodeInfo) -> int:
        return int(node.labels["rank"])

    found = deciding(node("n1", labels={"rank": "1"}), node("n2"), plugin=plugin_with(score=score))
    with caplog.at_level(logging.ERROR), pytest.raises(PluginError):
        found.outcome(pod())
    (record,) = caplog.records
    assert "The node was n2." in vars(record)["traceback"]


def test_pods_nominated_to_a_node_count_on_it() -> None:
    found = deciding(node("n1"))
    found.nominate(pod("nominee", cpu=3, priority=10), "n1")
    assert isinstance(found.outcome(pod()), FitError)
