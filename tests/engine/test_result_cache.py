"""Answers are kept per shape and repaired; tests/property holds that nobody can tell."""

from typing import Any

import numpy as np
import pytest

from deciding import Deciding
from mooring.engine.profiles import Profiles
from mooring.engine.result_cache import ResultCache
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Explanation, PluginError
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle

MIB = 2**20


class Counting:
    """Lets every node pass and notes which rows it was asked about."""

    name = "Counting"
    row_local = True
    asked: list[list[int]]
    broken = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        type(self).asked = []
        type(self).broken = False

    def filter(self, _pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        self.asked.append(nodes.rows.tolist())
        if self.broken:
            raise PluginError("broken")
        return np.ones(len(nodes), np.bool_)

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        return Explanation.single("never", len(nodes), resolvable=False)


class CountingNodes(Counting):
    """The same, of nodes alone."""

    name = "CountingNodes"
    ignores_pods = True


class PreFiltered:
    """A cluster of five nodes whose shared work can be asked for; tells what plugins were asked."""

    def __init__(self, plugin: type[Counting]) -> None:
        self.plugin = plugin
        self.state = cluster(*(node(f"n{i}") for i in range(5)))
        registry = Registry((*SHIPPED, plugin), {})
        raw = {"plugins": {"filter": {"enabled": [{"name": plugin.name}]}}}
        spec = read(SchedulingProfileSpec, raw, "spec")
        profiles = Profiles(registry, handle(self.state))
        self.pipeline = profiles.put(SchedulingProfile("p", spec), resolve(spec, registry)).pipeline
        self.shared = ResultCache(self.state.nodes)

    def about(self, raw: dict[str, Any]) -> list[list[int]]:
        """The rows that the plugin was asked about for this pod's sake."""
        self.plugin.asked.clear()
        self.shared.of(parse_pod(raw), self.pipeline, Snapshot(self.state))
        return list(self.plugin.asked)

    def bind(self, name: str, on: str) -> None:
        self.state.put(Kind.POD, f"default/{name}", parse_pod(pod(name, cpu="1", node=on)))


def test_identical_pods_ask_once() -> None:
    asked = PreFiltered(Counting)
    assert asked.about(pod("a", cpu="1")) == [[0, 1, 2, 3, 4]]
    assert asked.about(pod("b", cpu="1")) == []


def test_pods_of_another_shape_ask_for_themselves() -> None:
    asked = PreFiltered(Counting)
    asked.about(pod("a", cpu="1"))
    assert asked.about(pod("b", cpu="2")) == [[0, 1, 2, 3, 4]]


def test_only_rows_that_changed_are_asked_about_again() -> None:
    asked = PreFiltered(Counting)
    asked.about(pod("a", cpu="1"))
    asked.bind("x", on="n1")
    asked.bind("y", on="n3")
    assert asked.about(pod("b", cpu="1")) == [[1, 3]]


def test_a_plugin_that_ignores_pods_is_not_asked_when_pods_come_and_go() -> None:
    asked = PreFiltered(CountingNodes)
    asked.about(pod("a", cpu="1"))
    asked.bind("x", on="n1")
    assert asked.about(pod("b", cpu="1")) == []
    asked.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    assert asked.about(pod("c", cpu="1")) == [[1]]


def test_when_most_rows_changed_everything_is_asked_anew() -> None:
    asked = PreFiltered(Counting)
    asked.about(pod("a", cpu="1"))
    for i in range(3):
        asked.bind(f"x{i}", on=f"n{i}")
    assert asked.about(pod("b", cpu="1")) == [[0, 1, 2, 3, 4]]


def test_a_node_that_came_or_went_makes_everything_be_asked_anew() -> None:
    asked = PreFiltered(CountingNodes)
    asked.about(pod("a", cpu="1"))
    asked.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    assert asked.about(pod("b", cpu="1")) == [[0, 1, 2, 3, 4, 5]]
    asked.state.delete(Kind.NODE, "n9")
    (rows,) = asked.about(pod("c", cpu="1"))
    assert rows == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("plugin", [Counting, CountingNodes])
def test_rows_about_which_a_plugin_failed_are_asked_about_again(plugin: type[Counting]) -> None:
    """A failure must not leave old results behind that look new."""
    asked = PreFiltered(plugin)
    asked.about(pod("a", cpu="1"))
    asked.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    plugin.broken = True
    for _ in range(2):
        with pytest.raises(PluginError):
            asked.about(pod("b", cpu="1"))
        assert asked.plugin.asked == [[1]]
    plugin.broken = False
    assert asked.about(pod("c", cpu="1")) == [[1]]
    assert asked.about(pod("d", cpu="1")) == []


@pytest.mark.parametrize("plugin", [Counting, CountingNodes])
def test_a_plugin_that_failed_about_all_rows_is_asked_about_all_again(
    plugin: type[Counting],
) -> None:
    asked = PreFiltered(plugin)
    asked.about(pod("a", cpu="1"))
    asked.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    plugin.broken = True
    with pytest.raises(PluginError):
        asked.about(pod("b", cpu="1"))
    plugin.broken = False
    assert asked.about(pod("c", cpu="1")) == [[0, 1, 2, 3, 4, 5]]


def test_the_least_used_shapes_are_forgotten() -> None:
    asked = PreFiltered(Counting)
    asked.about(pod("a", cpu="1m"))
    for i in range(2, 258):
        asked.about(pod("b", cpu=f"{i}m"))
    assert asked.about(pod("c", cpu="1m")) == [[0, 1, 2, 3, 4]]
    assert asked.about(pod("d", cpu="257m")) == []


def test_an_images_spread_follows_the_number_of_nodes() -> None:
    """A node that comes changes the score of another whose own row did not change."""

    def score(deciding: Deciding) -> int:
        scores = deciding.decision(pod(images=["app:v1"])).scores
        assert scores is not None
        return scores["n1"].plugins["ImageLocality"]

    deciding = Deciding(node("n1", images={"app:v1": 900 * MIB}), node("n2"))
    before = score(deciding)
    for name in ("n3", "n4"):
        deciding.state.put(Kind.NODE, name, parse_node(node(name)))
    assert score(deciding) < before


def test_a_diagnosis_is_kept_until_a_row_changes_unless_it_has_very_many_reasons() -> None:
    def diagnoses(resources: int) -> list[Diagnosis]:
        deciding = Deciding(node("n1"))
        raw = pod(requests={f"example.com/r{i}": 1 for i in range(resources)})
        search, asked = deciding.search(raw)
        return [search.diagnosis(asked, ()) for _ in range(2)]

    few, many = diagnoses(64), diagnoses(65)
    assert few[0] is few[1]
    assert many[0] is not many[1]
    assert many[0].message == many[1].message
