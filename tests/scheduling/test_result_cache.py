"""Results are cached per spec and kept up to date; tests/property compares them."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from deciding import Deciding
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Explanation, PluginError
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.runtime.extension_points import run_filter, run_score
from mooring.scheduling.profiles_in_force import Profiles
from mooring.scheduling.result_cache import NodeResults, ResultCache, ResultColumn, ResultColumns
from mooring.scheduling.scoring import score
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import cluster, node, pod, toleration, uid_of
from mooring.testing.fakes import handle

MIB = 2**20


class Noting:
    """A plugin that records the rows for which it runs."""

    name = "Noting"
    depends_on_node_only = True
    ran_on: list[list[int]]
    broken = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        type(self).ran_on = []
        type(self).broken = False

    def note(self, nodes: NodeView) -> None:
        self.ran_on.append(nodes.rows.tolist())
        if self.broken:
            raise PluginError("broken")


class Counting(Noting):
    """A recording filter that accepts every node."""

    name = "Counting"

    def filter(self, _pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        self.note(nodes)
        return np.ones(len(nodes), np.bool_)

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        return Explanation.single("never", len(nodes), resolvable=False)


class CountingNodes(Counting):
    """A recording filter that depends only on the Node object."""

    name = "CountingNodes"
    depends_on_node_object_only = True


class CountingTolerations(CountingNodes):
    """A recording filter whose results depend only on the Node object and the tolerations."""

    name = "CountingTolerations"

    def filter_key(self, pod: Pod) -> Hashable:
        return pod.spec.tolerations


class BrokenKey(CountingNodes):
    """A filter with a key that cannot be hashed."""

    name = "BrokenKey"

    def filter_key(self, _pod: Pod) -> Hashable:
        return cast("Hashable", [])


class CountingScores(Noting):
    """A recording score plugin that gives every node the same score."""

    name = "CountingScores"
    normalize = Normalize.NONE

    def score(self, _pod: Pod, nodes: NodeView, _: None) -> IntArray:
        self.note(nodes)
        return np.ones(len(nodes), np.int64)


class Cached:
    """A result cache over five nodes; it reports the rows for which the plugin ran."""

    def __init__(self, plugin: type[Noting], most_bytes: int = 128 * MIB) -> None:
        self.plugin = plugin
        self.state = cluster(*(node(f"n{i}") for i in range(5)))
        registry = Registry((*SHIPPED, plugin), {})
        point = "score" if plugin is CountingScores else "filter"
        raw = {"plugins": {point: {"enabled": [{"name": plugin.name}]}}}
        spec = read(SchedulingProfileSpec, raw, "spec")
        profiles = Profiles(registry, handle(self.state))
        self.pipeline = profiles.put(SchedulingProfile("p", spec), resolve(spec, registry)).pipeline
        self.shared = ResultCache(ClusterView(self.state), most_bytes)

        self.put = profiles.put
        self.registry = registry

    def replace_profile(self, name: str = "p", **spec: Any) -> None:
        """Put the profile in force with this spec, which gives a new pipeline."""
        changed = read(SchedulingProfileSpec, spec, "spec")
        resolved = resolve(changed, self.registry)
        self.pipeline = self.put(SchedulingProfile(name, changed), resolved).pipeline

    def rows_run_for(self, raw: dict[str, Any], *, scored: bool = True) -> list[list[int]]:
        self.plugin.ran_on.clear()
        self.results(raw, scored=scored)
        return list(self.plugin.ran_on)

    def results(self, raw: dict[str, Any], *, scored: bool = True) -> NodeResults:
        """Return the results for this pod; with `scored`, also compute its scores."""
        wanted = parse_pod(raw)
        found = self.shared.of(wanted, self.pipeline)
        if scored and any(scorer.name == self.plugin.name for scorer in self.pipeline.scores):
            self.scores(found, self.plugin.name, wanted)
        return found

    def scores(self, found: NodeResults, plugin: str, wanted: Pod) -> ResultColumn:
        """Return the up-to-date scores of a plugin for this pod."""
        nodes = ClusterView(self.state).nodes
        as_of = found.spec.as_of(found.devices, len(nodes))
        return found.spec.score(plugin, wanted, nodes, as_of)

    def bind(self, name: str, on: str) -> None:
        self.state.put(Kind.POD, uid_of(name), parse_pod(pod(name, cpu="1", node=on)))


def test_a_plugin_runs_once_for_identical_pods() -> None:
    cached = Cached(Counting)
    assert cached.rows_run_for(pod("a", cpu="1")) == [[0, 1, 2, 3, 4]]
    assert cached.rows_run_for(pod("b", cpu="1")) == []


def test_a_plugin_runs_again_for_a_pod_of_another_spec() -> None:
    cached = Cached(Counting)
    cached.rows_run_for(pod("a", cpu="1"))
    assert cached.rows_run_for(pod("b", cpu="2")) == [[0, 1, 2, 3, 4]]


def test_a_plugin_runs_again_only_on_rows_that_changed() -> None:
    cached = Cached(Counting)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.bind("x", on="n1")
    cached.bind("y", on="n3")
    assert cached.rows_run_for(pod("b", cpu="1")) == [[1, 3]]


def test_a_plugin_that_ignores_pods_does_not_run_when_pods_come_and_go() -> None:
    cached = Cached(CountingNodes)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.bind("x", on="n1")
    assert cached.rows_run_for(pod("b", cpu="1")) == []
    cached.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    assert cached.rows_run_for(pod("c", cpu="1")) == [[1]]


def test_specs_with_equal_keys_share_the_results_of_a_plugin() -> None:
    cached = Cached(CountingTolerations)
    batch = [toleration("dedicated", "batch")]
    assert cached.rows_run_for(pod("a", cpu="1")) == [[0, 1, 2, 3, 4]]
    assert cached.rows_run_for(pod("b", cpu="2")) == []
    assert cached.rows_run_for(pod("c", cpu="1", tolerations=batch)) == [[0, 1, 2, 3, 4]]
    cached.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    assert cached.rows_run_for(pod("d", cpu="2")) == [[1]]
    assert cached.rows_run_for(pod("e", cpu="1")) == []


def test_shared_results_are_made_anew_for_another_set_of_nodes() -> None:
    cached = Cached(CountingTolerations)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.state.delete(Kind.NODE, "n1")
    cached.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    assert cached.rows_run_for(pod("b", cpu="2")) == [[0, 1, 2, 3, 4]]


def test_shared_results_are_dropped_with_the_last_spec_that_uses_them() -> None:
    cached = Cached(CountingTolerations, most_bytes=0)
    cached.rows_run_for(pod("a", cpu="1"))
    alone = cached.shared.bytes
    for cpu in range(2, 20):
        assert cached.rows_run_for(pod("b", cpu=f"{cpu}")) == []
    for number in range(20):
        cached.rows_run_for(pod("c", tolerations=[toleration(f"team-{number:02}", "x")]))
    assert cached.rows_run_for(pod("a", cpu="1")) == [[0, 1, 2, 3, 4]]
    assert cached.shared.bytes == alone


def test_a_decision_may_still_read_the_columns_of_a_spec_that_was_dropped() -> None:
    """A decision about a group reads them after it has asked about other members."""
    cached = Cached(CountingTolerations, most_bytes=0)
    found, wanted = cached.results(pod("a", cpu="1")), parse_pod(pod("a", cpu="1"))
    cached.results(pod("b", cpu="2", tolerations=[toleration("dedicated", "batch")]))
    assert cached.scores(found, "TaintToleration", wanted).values.tolist() == [0] * 5


def test_pods_whose_images_no_node_has_share_one_column_until_a_node_has_one() -> None:
    cached = Cached(Counting)

    def column(image: str) -> ResultColumn:
        raw = pod("a", images=[image])
        return cached.scores(cached.results(raw), "ImageLocality", parse_pod(raw))

    assert column("new:v1") is column("new:v2")
    image = {"new:v1": 900 * MIB}
    cached.state.put(Kind.NODE, "n1", parse_node(node("n1", images=image)))
    assert column("new:v1") is not column("new:v2")
    assert np.flatnonzero(column("new:v1").values).tolist() == [1]


def test_a_key_that_cannot_be_hashed_fails_the_attempt_and_leaves_nothing() -> None:
    cached = Cached(BrokenKey)
    for _ in range(2):
        with pytest.raises(PluginFailed, match="BrokenKey"):
            cached.rows_run_for(pod("a", cpu="1"))
    assert not cached.shared.bytes


def test_when_most_rows_changed_a_plugin_runs_on_all() -> None:
    cached = Cached(Counting)
    cached.rows_run_for(pod("a", cpu="1"))
    for i in range(3):
        cached.bind(f"x{i}", on=f"n{i}")
    assert cached.rows_run_for(pod("b", cpu="1")) == [[0, 1, 2, 3, 4]]


def test_when_a_node_came_or_went_a_plugin_runs_on_all_rows() -> None:
    cached = Cached(CountingNodes)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    assert cached.rows_run_for(pod("b", cpu="1")) == [[0, 1, 2, 3, 4, 5]]
    cached.state.delete(Kind.NODE, "n9")
    assert cached.rows_run_for(pod("c", cpu="1")) == [[0, 1, 2, 3, 4]]


def test_scores_run_only_where_they_are_asked_for_and_then_on_all_rows_that_changed() -> None:
    cached = Cached(CountingScores)
    assert cached.rows_run_for(pod("a", cpu="1"), scored=False) == []
    assert cached.rows_run_for(pod("b", cpu="1")) == [[0, 1, 2, 3, 4]]
    cached.bind("x", on="n1")
    assert cached.rows_run_for(pod("c", cpu="1"), scored=False) == []
    cached.bind("y", on="n3")
    assert cached.rows_run_for(pod("d", cpu="1")) == [[1, 3]]
    cached.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    assert cached.rows_run_for(pod("e", cpu="1"), scored=False) == []
    assert cached.rows_run_for(pod("f", cpu="1")) == [[0, 1, 2, 3, 4, 5]]
    assert cached.rows_run_for(pod("g", cpu="1")) == []


def test_a_score_that_failed_leaves_no_old_results_of_filters_behind() -> None:
    cached, raw = Cached(CountingScores), pod("a", cpu="1")
    cached.rows_run_for(raw)
    cached.state.put(Kind.POD, uid_of("x"), parse_pod(pod("x", cpu="64", node="n1")))
    cached.plugin.broken = True
    with pytest.raises(PluginError):
        cached.rows_run_for(raw)
    found = cached.results(raw, scored=False)
    assert found.fits.tolist() == [True, False, True, True, True]


def test_results_take_space_also_if_a_score_fails() -> None:
    cached, failing = Cached(CountingScores), Cached(CountingScores)
    raw = pod("a", cpu="1")
    found = cached.results(raw)
    failing.plugin.broken = True
    with pytest.raises(PluginError):
        failing.results(raw)
    failing.plugin.broken = False
    assert found.spec.bytes == failing.results(raw, scored=False).spec.bytes


@pytest.mark.parametrize("plugin", [Counting, CountingNodes, CountingScores])
def test_a_plugin_runs_again_on_rows_on_which_it_failed(plugin: type[Noting]) -> None:
    """After a failure, old results must not count as new."""
    cached = Cached(plugin)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.state.put(Kind.NODE, "n1", parse_node(node("n1", cpu="9")))
    plugin.broken = True
    for _ in range(2):
        with pytest.raises(PluginError):
            cached.rows_run_for(pod("b", cpu="1"))
        assert cached.plugin.ran_on == [[1]]
    plugin.broken = False
    assert cached.rows_run_for(pod("c", cpu="1")) == [[1]]
    assert cached.rows_run_for(pod("d", cpu="1")) == []


@pytest.mark.parametrize("plugin", [Counting, CountingNodes, CountingScores])
def test_a_plugin_that_failed_on_all_rows_runs_again_on_all(
    plugin: type[Noting],
) -> None:
    cached = Cached(plugin)
    cached.rows_run_for(pod("a", cpu="1"))
    cached.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    plugin.broken = True
    with pytest.raises(PluginError):
        cached.rows_run_for(pod("b", cpu="1"))
    plugin.broken = False
    assert cached.rows_run_for(pod("c", cpu="1")) == [[0, 1, 2, 3, 4, 5]]


def test_the_least_used_specs_are_forgotten() -> None:
    cached = Cached(Counting, most_bytes=MIB)
    cached.rows_run_for(pod("a", cpu="1m"))
    for i in range(2, 258):
        cached.rows_run_for(pod("b", cpu=f"{i}m"))
    assert cached.rows_run_for(pod("c", cpu="1m")) == [[0, 1, 2, 3, 4]]
    assert cached.rows_run_for(pod("d", cpu="257m")) == []


def test_an_images_spread_follows_the_number_of_nodes() -> None:
    """A new node changes the scores of other nodes although their rows did not change."""

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
        return [search.shared_diagnosis(asked, ()) for _ in range(2)]

    few, many = diagnoses(64), diagnoses(65)
    assert few[0] is few[1]
    assert many[0] is not many[1]
    assert many[0].message == many[1].message


def test_results_are_kept_up_to_so_many_bytes() -> None:
    cached = Cached(Counting, most_bytes=1)
    for cpu in ("1m", "2m"):
        cached.rows_run_for(pod("a", cpu=cpu))
    assert cached.rows_run_for(pod("b", cpu="2m")) == []
    assert cached.rows_run_for(pod("c", cpu="1m")) == [[0, 1, 2, 3, 4]]


def test_results_are_kept_up_to_so_many_bytes_also_if_a_plugin_fails() -> None:
    cached = Cached(Counting, most_bytes=1)
    cached.rows_run_for(pod("a", cpu="1m"))
    cached.plugin.broken = True
    with pytest.raises(PluginError):
        cached.rows_run_for(pod("b", cpu="2m"))
    cached.plugin.broken = False
    assert cached.rows_run_for(pod("c", cpu="1m")) == [[0, 1, 2, 3, 4]]


def test_the_results_of_many_small_specs_are_kept() -> None:
    cached = Cached(Counting)
    for cpu in range(1000):
        cached.rows_run_for(pod("a", cpu=f"{cpu}m"))
    assert cached.rows_run_for(pod("b", cpu="0m")) == []


def test_a_large_spec_takes_the_space_of_many_small_ones() -> None:
    cached = Cached(Counting, most_bytes=3 * MIB)  # its tolerations are counted as keys, too
    cached.rows_run_for(pod("a", cpu="1m"))
    tolerations = [{"key": f"{'k' * 200}{i}", "operator": "Exists"} for i in range(900)]
    cached.rows_run_for(pod("large", spec={"tolerations": tolerations}))
    assert cached.rows_run_for(pod("b", cpu="1m")) == []
    cached.rows_run_for(pod("large", spec={"tolerations": tolerations[1:]}))
    assert cached.rows_run_for(pod("large", spec={"tolerations": tolerations})) != []


def test_nothing_is_kept_of_a_pipeline_that_was_replaced() -> None:
    cached = Cached(Counting)
    for _ in range(20):
        cached.replace_profile()
        cached.rows_run_for(pod("a", cpu="1m"))
        cached.rows_run_for(pod("a", cpu="2m"))
        assert len(cached.shared) == 2
    first = cached.shared.bytes
    cached.replace_profile()
    cached.rows_run_for(pod("a", cpu="1m"))
    assert cached.shared.bytes < first


def test_the_pipelines_of_profiles_that_are_gone_take_space() -> None:
    cached = Cached(Counting, most_bytes=2 * MIB)
    expression = " && ".join(f"node.name != 'n{number}'" for number in range(35))
    for number in range(20):
        cached.replace_profile(
            f"p{number}", rules=[{"name": f"r{i}", "filter": expression} for i in range(8)]
        )
        cached.rows_run_for(pod("a", cpu="1m"))
        assert cached.shared.bytes <= 2 * MIB
    assert 2 <= len(cached.shared) <= 10


def test_a_diagnosis_that_is_kept_takes_space() -> None:
    cached = Cached(Counting, most_bytes=MIB)
    small, other = parse_pod(pod("a", cpu="1m")), parse_pod(pod("b", cpu="2m"))
    cached.shared.of(other, cached.pipeline)
    results = cached.shared.of(small, cached.pipeline)
    wide = Diagnosis(5, names=["n"] * MIB)
    results.spec.diagnosis(results.devices, lambda: wide)
    assert cached.rows_run_for(pod("c", cpu="1m")) == []
    assert cached.rows_run_for(pod("d", cpu="2m")) != []


def test_a_diagnosis_of_results_that_were_dropped_takes_no_space_in_the_cache() -> None:
    """A decision may use results of several specs while the cache drops some of them."""
    cached = Cached(Counting, most_bytes=1)
    dropped = cached.results(pod("a", cpu="1m"))
    cached.results(pod("b", cpu="2m"))
    before = cached.shared.bytes
    dropped.spec.diagnosis(dropped.devices, lambda: Diagnosis(5, names=["n"] * MIB))
    assert cached.shared.bytes == before


class Live:
    """Rejects nodes with as many pods as the pod has millicores; records the rows."""

    name = "Live"
    depends_on_node_only = True
    runs_for_every_pod = True
    normalize = Normalize.NONE
    filtered: list[list[int]]
    scored: list[list[int]]
    broken = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        type(self).filtered, type(self).scored, type(self).broken = [], [], False

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        self.filtered.append(nodes.rows.tolist())
        if self.broken:
            raise PluginError("broken")
        return nodes.pod_count < pod.spec.demand.resources["cpu"]

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        return Explanation.single("full", len(nodes), resolvable=False)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        self.scored.append(nodes.rows.tolist())
        cpu = pod.spec.demand.resources["cpu"]
        return np.minimum(100, 10 * nodes.pod_count + cpu)


class LiveCluster:
    """Eight nodes, and decisions under a profile with the plugin Live."""

    def __init__(self) -> None:
        points = {point: {"enabled": [{"name": "Live"}]} for point in ("filter", "score")}
        nodes = (node(f"n{i}", labels={"rack": f"r{i % 4}"}) for i in range(8))
        self.deciding = Deciding(*nodes, extra=(Live,), plugins=points)

    def rows_run_for(self, **fields: Any) -> tuple[list[list[int]], list[list[int]]]:
        """Return the rows of each run of the filter, and of each run of the score."""
        Live.filtered.clear()
        Live.scored.clear()
        self.deciding.outcome(pod("web", **fields))
        return [*Live.filtered], [*Live.scored]

    def place(self, on: str, number: int = 0) -> None:
        self.deciding.place(pod(f"on-{on}-{number}", cpu="1m"), on)

    def results(self, cpu: str) -> tuple[list[bool], list[int]]:
        """Return which rows fit, and the plugin's scores of the fitting rows."""
        search, _ = self.deciding.search(pod("web", cpu=cpu))
        results: NodeResults = search.results
        table = score(search, np.flatnonzero(results.fits))
        scored = table.plugins["Live"].at(range(int(results.fits.sum())))
        return results.fits.tolist(), scored


ALL = [[*range(8)]]


@pytest.fixture(name="live")
def _live(monkeypatch: pytest.MonkeyPatch) -> LiveCluster:
    """Return a cluster that the cache treats as large."""
    monkeypatch.setattr("mooring.scheduling.result_cache._MANY", 1)
    return LiveCluster()


def test_in_a_small_cluster_it_runs_on_all_nodes_where_one_has_changed() -> None:
    small = LiveCluster()
    for name in ("n3", "n5"):
        assert small.rows_run_for(cpu="9m") == (ALL, ALL)
        small.place(name)


def test_in_a_large_cluster_it_runs_on_what_changed_since_the_last_pod_of_the_spec(
    live: LiveCluster,
) -> None:
    assert live.rows_run_for(cpu="9m") == (ALL, ALL)
    assert live.rows_run_for(cpu="9m") == ([], [])
    live.place("n3")
    assert live.rows_run_for(cpu="9m") == ([[3]], [[3]])


def test_a_pod_of_another_spec_has_it_run_on_all_nodes_again(live: LiveCluster) -> None:
    live.rows_run_for(cpu="9m")
    assert live.rows_run_for(cpu="8m") == (ALL, ALL)
    assert live.rows_run_for(cpu="9m") == (ALL, ALL)


def test_the_results_for_the_last_spec_are_those_of_the_present_pods_whatever_came_between() -> (
    None
):
    live = LiveCluster()
    assert live.results("3m") == ([True] * 8, [3] * 8)
    for number in range(2):
        live.place("n1", number)
    assert live.results("2m") == ([True, False, *[True] * 6], [2] * 7)
    assert live.results("3m") == ([True] * 8, [3, 23, *[3] * 6])
    live.place("n1", 2)
    assert live.results("3m") == ([True, False, *[True] * 6], [3] * 7)


def test_where_few_nodes_fit_otherwise_it_runs_on_these_alone(live: LiveCluster) -> None:
    for _ in range(2):
        found = live.rows_run_for(cpu="9m", node_selector={"rack": "r2"})
        assert found == ([[2, 6]], [[2, 6]])


def test_another_set_of_nodes_has_it_run_on_all_of_them(live: LiveCluster) -> None:
    live.rows_run_for(cpu="9m")
    live.deciding.state.put(Kind.NODE, "n8", parse_node(node("n8")))
    assert live.rows_run_for(cpu="9m") == ([[*range(9)]], [[*range(9)]])


def test_rows_on_which_it_failed_are_looked_at_again(live: LiveCluster) -> None:
    live.rows_run_for(cpu="9m")
    live.place("n3")
    Live.broken = True
    with pytest.raises(PluginError):
        live.rows_run_for(cpu="9m")
    Live.broken = False
    assert live.rows_run_for(cpu="9m")[0] == [[3]]


def test_a_search_that_is_scored_after_another_one_began_has_its_own_scores(
    live: LiveCluster,
) -> None:
    """In a decision about a group, the searches for several members may overlap."""
    first, _ = live.deciding.search(pod("a", cpu="3m"))
    live.deciding.search(pod("b", cpu="5m"))
    rows = np.arange(8)
    assert score(first, rows).plugins["Live"].at(range(8)) == [3] * 8
    assert live.results("5m")[1] == [5] * 8


class Sharing:
    """The columns of TaintToleration in a cluster of three nodes, one of them tainted."""

    def __init__(self) -> None:
        tainted = node("n2", taints=["dedicated=batch:NoSchedule"])
        flaky = node("n1", taints=["flaky:PreferNoSchedule"])
        self.deciding = Deciding(node("n0"), flaky, tainted)
        self.columns = ResultColumns()

    def mask(self, of: Pod) -> ResultColumn:
        """Return the up-to-date column of the filter."""
        pipeline = self.deciding.pipeline
        plugin = pipeline.keyed_filters["TaintToleration"]
        return self._column(of, plugin.filter_key(of), partial(run_filter, pipeline, plugin))

    def scores(self, of: Pod) -> ResultColumn:
        """Return the up-to-date column of the scores."""
        pipeline = self.deciding.pipeline
        plugin = pipeline.keyed_scores["TaintToleration"]
        return self._column(of, plugin.score_key(of), partial(run_score, pipeline, plugin))

    def _column(self, of: Pod, key: Hashable, run: Callable[..., Any]) -> ResultColumn:
        nodes = self.deciding.state.nodes
        wanted = self.deciding.pipeline, "TaintToleration", "point", key
        column = self.columns.take(wanted, nodes.node_changes, of.spec.memory)
        self.refresh(column, of, partial(run, state=None))
        return column

    def refresh(self, column: ResultColumn, of: Pod, run: Callable[..., Any]) -> None:
        """Update the column with `run`."""
        as_of = self.deciding.state.nodes.set_version
        column.refresh(of, self.deciding.cluster.nodes, as_of, run)


def tolerating(*keys: str, **fields: Any) -> Pod:
    return parse_pod(pod(tolerations=[toleration(key, "batch") for key in keys], **fields))


def test_specs_that_differ_elsewhere_have_one_column() -> None:
    sharing = Sharing()
    first = sharing.mask(tolerating("dedicated", cpu="1"))
    assert first.values.tolist() == [True, True, True]
    assert sharing.mask(tolerating("dedicated", cpu="2")) is first
    other = sharing.mask(tolerating(cpu="1"))
    assert other.values.tolist() == [True, True, False]
    assert sharing.columns.bytes == first.bytes + other.bytes


def test_a_column_follows_the_nodes() -> None:
    sharing, wanted = Sharing(), tolerating()
    column, state = sharing.mask(wanted), sharing.deciding.state
    state.put(Kind.NODE, "n2", parse_node(node("n2")))
    state.put(Kind.NODE, "n0", parse_node(node("n0", taints=["a=b:NoExecute"])))
    assert sharing.mask(wanted) is column
    assert column.values.tolist() == [False, True, True]
    state.delete(Kind.NODE, "n0")
    state.put(Kind.NODE, "n3", parse_node(node("n3")))
    assert sharing.mask(wanted) is column
    assert column.values.tolist() == [True, True, True]


def test_a_column_is_dropped_with_its_last_user() -> None:
    sharing = Sharing()
    column = sharing.mask(tolerating("dedicated", cpu="1"))
    assert sharing.mask(tolerating("dedicated", cpu="2")) is column
    sharing.columns.release(column)
    assert sharing.columns.bytes == column.bytes
    sharing.columns.release(column)
    assert sharing.columns.bytes == 0


def test_a_dropped_column_that_is_still_read_is_not_counted() -> None:
    sharing, wanted = Sharing(), tolerating()
    column = sharing.mask(wanted)
    sharing.columns.release(column)
    sharing.deciding.state.put(Kind.NODE, "n9", parse_node(node("n9")))
    sharing.refresh(column, wanted, lambda _, nodes: np.ones(len(nodes), np.bool_))
    assert len(column.values) == 4
    assert sharing.columns.bytes == 0


def test_scores_are_normalized_once_for_each_version_of_the_nodes() -> None:
    sharing, flaky = Sharing(), node("n0", taints=["flaky:PreferNoSchedule"])
    column = sharing.scores(tolerating())

    def normalized() -> list[int]:
        scores = sharing.scores(tolerating()).normalized(Normalize.REVERSED)
        assert column.normalized(Normalize.REVERSED) is scores
        assert sharing.columns.bytes == column.bytes >= column.values.nbytes + scores.nbytes
        found: list[int] = scores.tolist()
        return found

    assert normalized() == [100, 0, 100]
    sharing.deciding.state.put(Kind.NODE, "n0", parse_node(flaky))
    assert normalized() == [0, 0, 100]
    assert column.highest == 1
    for _ in range(3):
        sharing.columns.release(column)
    assert sharing.columns.bytes == 0
