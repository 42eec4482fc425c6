"""The metrics of real decisions, on a clock that each plugin moves."""

from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from deciding import Deciding
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.plugin_failures import ExtensionPoint, PluginFailed
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation
from mooring.groups.search.group_decision import decide_group
from mooring.groups.search.group_search import SearchedMembers
from mooring.model.node import ZONE
from mooring.model.pod import Pod, parse_pod
from mooring.observe.instruments import Count
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.plugin_metrics import PluginMetrics, Status
from mooring.scheduling.cycle import decide
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod, pod_group

SECONDS = {"Slow": 2.0, "Scorer": 3.0}
"""How far the clock goes on in a call of each plugin."""


class Slow:
    """A node-only filter that takes two seconds, and raises for a pod with the label `break`."""

    name: ClassVar[str] = "Slow"
    depends_on_node_only: ClassVar[bool] = True
    clock: ClassVar[list[float]] = [0.0]

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def filter(self, pod: Pod, nodes: NodeView, _state: object) -> BoolArray:
        """Return True for every node whose name is not `bad`."""
        self.clock[0] += SECONDS["Slow"]
        if "break" in pod.labels:
            raise ValueError("broken")
        return np.array([nodes.name(i) != "bad" for i in range(len(nodes))], np.bool_)

    def explain(self, _pod: Pod, nodes: NodeView, _state: object) -> Explanation:
        """Return one reason for all rejected nodes."""
        return Explanation.single("bad", len(nodes), resolvable=True)


class Scorer:
    """A score plugin that takes three seconds and whose scores are not cached."""

    name: ClassVar[str] = "Scorer"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    clock: ClassVar[list[float]] = Slow.clock

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def score(self, _pod: Pod, nodes: NodeView, _state: object) -> IntArray:
        """Return the same score for every node."""
        self.clock[0] += SECONDS["Scorer"]
        return np.zeros(len(nodes), np.int64)


class Recorded:
    """A recorder that keeps all measurements."""

    def __init__(self) -> None:
        self.points: list[tuple[str, str, str, float]] = []
        self.searches: list[tuple[str, str, float]] = []
        self.placements: list[tuple[str, int]] = []
        self.tried: list[tuple[str, bool, float]] = []
        self.calls: list[tuple[str, str, str, float]] = []
        self.hints: list[tuple[str, str, str]] = []
        self.counters: dict[tuple[str, str], Count] = {}

    def extension_point(
        self, point: ExtensionPoint, status: Status, profile: str
    ) -> Callable[[float], None]:
        return lambda seconds: self.points.append((point.value, status.value, profile, seconds))

    def preemption_evaluated(self, preemptor: str, status: Status, seconds: float) -> None:
        self.searches.append((preemptor, status.value, seconds))

    def placements_generated(self, profile: str, count: int) -> None:
        self.placements.append((profile, count))

    def placement_evaluated(self, profile: str, *, feasible: bool, seconds: float) -> None:
        self.tried.append((profile, feasible, seconds))

    def plugin_ran(
        self, plugin: str, point: ExtensionPoint, status: Status, seconds: float
    ) -> None:
        self.calls.append((plugin, point.value, status.value, seconds))

    def queueing_hint_ran(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        assert seconds >= 0
        self.hints.append((plugin, event, hint))

    def evaluations(self, plugin: str, point: ExtensionPoint, profile: str) -> Count:
        assert profile == "default-scheduler"
        return self.counters.setdefault((plugin, point.value), Count())

    def keep_profiles(self, profiles: Container[str]) -> None:
        """Keep all measurements."""

    def seconds(self, point: str) -> list[tuple[str, float]]:
        """Return the status and the duration of each run of the extension point."""
        return [(status, took) for name, status, _, took in self.points if name == point]


class Measuring:
    """Decides like the loop, with the plugins `Slow` and `Scorer`, and keeps the measurements."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        Slow.clock[0] = 0.0
        plugins = {"multiPoint": {"enabled": [{"name": "Slow"}, {"name": "Scorer"}]}}
        self.deciding = Deciding(*objects, extra=(Slow, Scorer), plugins=plugins)
        self.recorded = Recorded()
        self.metrics = PluginMetrics(self.recorded, clock=lambda: Slow.clock[0])
        self.pipeline: Pipeline = replace(self.deciding.pipeline, metrics=self.metrics)

    @contextmanager
    def attempt(self, *, sampled: bool = False) -> Iterator[None]:
        """Measure the decision inside this context as the loop does."""
        outer = self.metrics.begin_attempt()
        self.metrics.sampled = sampled
        self.metrics.begin_decision()
        try:
            yield
        finally:
            self.metrics.end_decision(self.pipeline.profile)
            self.metrics.end_attempt(outer)

    def decide(self, raw: dict[str, Any]) -> object:
        return decide(parse_pod(raw), self.pipeline, self.deciding.shared, seed=0)

    def evaluated(self, plugin: str, point: str) -> int:
        return self.recorded.counters[plugin, point].value


def test_each_extension_point_gets_the_time_of_its_plugins() -> None:
    measuring = Measuring(node("a"), node("b"))
    with measuring.attempt():
        measuring.decide(pod("web"))
    assert measuring.recorded.seconds("PreFilter") == [("Success", 0.0)]
    assert measuring.recorded.seconds("Filter") == [("Success", SECONDS["Slow"])]
    assert measuring.recorded.seconds("Score") == [("Success", SECONDS["Scorer"])]
    assert {profile for *_, profile, _ in measuring.recorded.points} == {"default-scheduler"}


def test_an_extension_point_counts_once_per_decision_also_when_its_results_are_shared() -> None:
    measuring = Measuring(node("a"), node("b"))
    for name in ("web-0", "web-1"):
        with measuring.attempt():
            measuring.decide(pod(name))
    first, second = measuring.recorded.seconds("Filter")
    assert (first[1], second[1]) == (SECONDS["Slow"], 0.0), "the second pod shares the result"
    scores = [seconds for _, seconds in measuring.recorded.seconds("Score")]
    assert scores == [SECONDS["Scorer"]] * 2


def test_a_shared_result_is_an_evaluation_of_the_plugin_that_gave_it() -> None:
    measuring = Measuring(node("a"), node("b"))
    for number in range(5):
        with measuring.attempt(sampled=True):
            measuring.decide(pod(f"web-{number}"))
    assert measuring.evaluated("Slow", "Filter") == 5
    assert measuring.evaluated("NodeResourcesFit", "PreFilter") == 5
    assert measuring.evaluated("Scorer", "Score") == 5
    calls = Counter(plugin for plugin, *_ in measuring.recorded.calls)
    assert calls["Slow"] == 1, "it ran once for all five pods"
    assert calls["Scorer"] == 5


def test_a_plugin_that_skips_a_pod_is_not_evaluated_after_pre_filter() -> None:
    measuring = Measuring(node("a"), node("b"))
    with measuring.attempt():
        measuring.decide(pod("web"))
    assert measuring.evaluated("NodePorts", "PreFilter") == 1
    ports = measuring.recorded.counters.get(("NodePorts", "Filter"))
    assert ports is None or ports.value == 0


def test_calls_are_measured_only_in_sampled_attempts() -> None:
    measuring = Measuring(node("a"), node("b"))
    with measuring.attempt(sampled=False):
        measuring.decide(pod("web", labels={"first": "yes"}, cpu="1"))
    assert measuring.recorded.calls == []
    with measuring.attempt(sampled=True):
        measuring.decide(pod("web", cpu="2"))
    assert ("Slow", "Filter", "Success", SECONDS["Slow"]) in measuring.recorded.calls
    assert ("NodePorts", "PreFilter", "Skip", 0.0) in measuring.recorded.calls


def test_a_call_that_rejects_every_node_is_unschedulable() -> None:
    measuring = Measuring(node("bad"))
    with measuring.attempt(sampled=True):
        measuring.decide(pod("web"))
    assert ("Slow", "Filter", "Unschedulable", SECONDS["Slow"]) in measuring.recorded.calls


def test_what_preemption_tries_belongs_to_post_filter() -> None:
    low = pod("low", cpu="2", node="a", labels={"a": "b"})
    ports = [{"name": "main", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}]}]
    low["spec"]["containers"] = ports
    wants = pod("high", priority=10)
    wants["spec"]["containers"] = ports
    measuring = Measuring(node("a"), low)
    with measuring.attempt():
        measuring.decide(wants)
    filtered, evicted = (measuring.recorded.seconds(p) for p in ("Filter", "PostFilter"))
    assert filtered == [("Success", SECONDS["Slow"])]
    assert len(evicted) == 1
    assert evicted[0][0] == "Success"
    assert evicted[0][1] >= SECONDS["Slow"], "the filter runs in the dry run again"
    assert len(measuring.recorded.seconds("PreFilter")) == 1
    assert measuring.recorded.searches == [("pod", *evicted[0])]


def test_the_placements_of_a_group_are_counted_and_timed() -> None:
    zones = [node(name, cpu="2", zone=name) for name in "ab"]
    group = pod_group("g", 3, topology=[ZONE])
    measuring = Measuring(*zones, group)
    members = [parse_pod(pod(f"m{n}", group="g", cpu="1")) for n in range(3)]
    for member in members:
        measuring.deciding.state.put_unscheduled(member)
    found = measuring.deciding.state.pod_groups.of(members[0])
    assert found is not None
    searched = SearchedMembers(members, measuring.pipeline, measuring.deciding.shared, seed=0)
    decide_group(found, searched)
    assert not measuring.recorded.tried, "no attempt of the loop"
    with measuring.attempt():
        decide_group(found, searched)
    assert measuring.recorded.placements == [("default-scheduler", 2)]
    tried = [(profile, feasible) for profile, feasible, _ in measuring.recorded.tried]
    assert tried == [("default-scheduler", False)] * 2
    assert measuring.recorded.tried[0][2] >= SECONDS["Slow"]


def test_a_failing_plugin_ends_its_extension_point_with_error() -> None:
    measuring = Measuring(node("a"), node("b"))
    with pytest.raises(PluginFailed), measuring.attempt(sampled=True):
        measuring.decide(pod("web", labels={"break": "yes"}))
    assert ("Slow", "Filter", "Error", SECONDS["Slow"]) in measuring.recorded.calls
    assert measuring.recorded.seconds("Filter") == [("Error", SECONDS["Slow"])]
    with measuring.attempt():
        measuring.decide(pod("other", cpu="1"))
    assert [status for status, _ in measuring.recorded.seconds("Filter")][-1] == "Success"


def test_decisions_outside_of_attempts_are_not_measured() -> None:
    measuring = Measuring(node("a"), node("b"))
    measuring.decide(pod("web"))
    assert measuring.recorded.points == []
    assert measuring.recorded.calls == []
    assert not any(counter.value for counter in measuring.recorded.counters.values())


def test_about_one_attempt_of_ten_is_sampled_whatever_the_order_of_the_pods() -> None:
    metrics = PluginMetrics(Recorded())
    sampled = Counter[int]()
    for number in range(20_000):
        outer = metrics.begin_attempt()
        sampled[number % 2] += metrics.sampled
        metrics.end_attempt(outer)
    assert 900 < sampled[0] < 1100
    assert 900 < sampled[1] < 1100


def test_without_a_recorder_nothing_is_sampled_and_no_clock_is_read() -> None:
    readings = count()
    metrics = PluginMetrics(clock=lambda: float(next(readings)))
    for _ in range(100):
        outer = metrics.begin_attempt()
        metrics.begin_decision()
        metrics.mark()
        metrics.lap(ExtensionPoint.FILTER)
        metrics.end_decision("default-scheduler")
        assert not metrics.sampled
        metrics.end_attempt(outer)
    assert next(readings) == 0


def test_an_extension_point_outside_of_decisions_ends_with_the_status_that_was_set() -> None:
    recorded = Recorded()
    metrics = PluginMetrics(recorded)
    with metrics.extension_point(ExtensionPoint.PERMIT, "batch") as measured:
        measured.status = Status.WAIT
    with (
        pytest.raises(ValueError, match="broken"),
        metrics.extension_point(ExtensionPoint.BIND, "batch"),
    ):
        raise ValueError("broken")
    assert recorded.points == [("Permit", "Wait", "batch", 0.0), ("Bind", "Error", "batch", 0.0)]
