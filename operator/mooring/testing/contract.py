# ruff: noqa: S101 - asserting is what this file is for; it runs under pytest only
"""The rules that every plugin must follow, as a test class to inherit.

The author of a plugin writes a test class, and pytest runs the tests that it inherits:

    class TestRackAware(PluginContract):
        plugin = RackAware
        scenarios = [Scenario(nodes=(node("n1", zone="a"), node("n2")), pod=pod("web"))]

In at least one scenario the filter must reject a node, and in at least one scenario the scores of
two nodes must differ. The tests check shapes and types, and that deciding methods change nothing.
Results for all nodes and for single nodes must be the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.testing import assert_array_equal

from mooring.framework.plugin import misspelt_name, points_of
from mooring.framework.registry import NoArgs
from mooring.framework.scores import MAX_SCORE, normalize_score
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Unschedulable
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.policy.points import Point
from mooring.policy.reading import read
from mooring.runtime.extension_points import wrong_explanation, wrong_mask, wrong_scores
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import cluster
from mooring.testing.fakes import handle

__all__ = ["PluginContract", "Scenario"]

Raw: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Raw objects for a test: the nodes, other objects of the cluster, and the pod to schedule."""

    nodes: tuple[Raw, ...]
    pod: Raw
    others: tuple[Raw, ...] = ()

    def reversed(self) -> "Scenario":
        """Return the same cluster, with its nodes added in the opposite order."""
        return replace(self, nodes=self.nodes[::-1])

    def without_pods(self) -> "Scenario":
        """Return the same cluster without pods on its nodes."""
        return replace(self, others=tuple(raw for raw in self.others if raw["kind"] != "Pod"))


class PluginContract:
    """Tests the rules for one plugin: inherit it, set `plugin`, `scenarios`, and perhaps `args`.

    As in the scheduler, `filter` is not called if `pre_filter` returns SKIP or Unschedulable.
    """

    plugin: ClassVar[type[Any]]
    args: ClassVar[Raw] = {}
    """The plugin's arguments, named as in a profile."""
    scenarios: ClassVar[Iterable[Scenario]]

    def test_it_can_be_built_with_default_arguments(self) -> None:
        """A profile need not have arguments for the plugin."""
        if hasattr(self.plugin, "Args"):
            self.plugin(read(self.plugin.Args, {}, ""), handle(cluster()))

    def test_it_has_no_misspelt_method(self) -> None:
        """A method with a misspelt name, for example `filtr`, would never run."""
        _check(misspelt_name(self.plugin))

    def test_its_filter_rejects_a_node_in_some_scenario(self) -> None:
        """If no scenario has a rejected node, the other tests check too little."""
        rejects = any(not trial.filter(trial.nodes).all() for trial in self._filters())
        filters = Point.FILTER in points_of(self.plugin)
        assert rejects or not filters, "its filter rejects no node in any scenario"

    def test_its_scores_differ_in_some_scenario(self) -> None:
        """If all nodes have equal scores in every scenario, the other tests check too little."""
        differs = any(len(np.unique(trial.score(trial.nodes))) > 1 for trial in self._scores())
        scores = Point.SCORE in points_of(self.plugin)
        assert differs or not scores, "its score is the same for all nodes in every scenario"

    def test_it_filters_with_one_bool_per_node(self) -> None:
        """For a view without nodes, the filter returns an empty array."""
        for trial in self._filters():
            for nodes in (trial.nodes, trial.nodes.take(np.zeros(0, np.int64))):
                _check(wrong_mask(trial.filter(nodes), len(nodes)))

    def test_it_explains_every_rejected_node_with_a_reason(self) -> None:
        """`explain` runs only for nodes that `filter` rejects, and gives a reason for each."""
        for trial in self._filters():
            rejected = trial.nodes.take(trial.rows[~trial.filter(trial.nodes)])
            if len(rejected):
                _check_explanation(trial.explain(rejected), len(rejected))

    def test_it_filters_some_nodes_as_it_filters_all(self) -> None:
        """The result for a node does not depend on the other nodes of the view."""
        for trial in self._filters():
            whole = trial.filter(trial.nodes)
            for rows in _choices(trial.rows):
                part = trial.filter(trial.nodes.take(rows))
                assert_array_equal(part, whole[np.isin(trial.rows, rows)])

    def test_it_scores_with_one_integer_per_node_that_normalizes_to_0_to_100(self) -> None:
        """Raw scores are not negative; without normalization they are between 0 and 100."""
        for trial in self._scores():
            raw = trial.score(trial.nodes)
            _check(wrong_scores(raw, len(trial.rows), self.plugin.normalize))
            final = normalize_score(raw, self.plugin.normalize)
            in_range = ((final >= 0) & (final <= MAX_SCORE)).all()
            assert in_range, f"a score is outside of 0-{MAX_SCORE}: {final}"

    def test_it_scores_some_nodes_as_it_scores_all_if_it_is_node_only(self) -> None:
        """The scheduler caches scores; if a node changes, it renews only the score of this node."""
        for trial in self._scores() if self.plugin.depends_on_node_only else ():
            whole = trial.score(trial.nodes)
            for rows in _choices(trial.rows):
                part = trial.score(trial.nodes.take(rows))
                assert_array_equal(part, whole[np.isin(trial.rows, rows)])

    def test_pre_filter_and_pre_score_do_not_read_the_cluster_if_it_is_node_only(self) -> None:
        """The scheduler caches the results of PreFilter and PreScore while the cluster changes."""
        for scenario in self.scenarios if self.plugin.depends_on_node_only else ():
            here, elsewhere = self._trial(scenario), self._trial(Scenario((), scenario.pod))
            before = here.by_name()
            here.filter_state, here.score_state = elsewhere.filter_state, elsewhere.score_state
            assert here.by_name() == before, "pre_filter or pre_score reads the cluster"

    def test_it_returns_the_same_when_it_runs_again(self) -> None:
        """Results depend on no clock, no randomness and no memory of the plugin's earlier calls."""
        for scenario in self.scenarios:
            trial = self._trial(scenario)
            first = trial.by_name()
            assert trial.by_name() == first, "it returns something else when it runs again"
            assert self._trial(scenario).by_name() == first, (
                "it returns something else when it is built again"
            )

    def test_it_returns_the_same_whatever_the_order_of_nodes(self) -> None:
        """The results do not depend on the row numbers of nodes."""
        for scenario in self.scenarios:
            there, here = self._trial(scenario.reversed()), self._trial(scenario)
            assert there.by_name() == here.by_name(), "its results depend on the order of nodes"

    def test_it_returns_the_same_without_pods_if_it_depends_on_the_node_object_only(self) -> None:
        """The scheduler caches the results, and keeps them when a pod comes or ends."""
        for scenario in (
            self.scenarios if getattr(self.plugin, "depends_on_node_object_only", False) else ()
        ):
            empty, full = self._trial(scenario.without_pods()), self._trial(scenario)
            assert empty.by_name() == full.by_name(), "its results depend on the pods on the nodes"

    def test_pods_with_equal_keys_have_equal_results(self) -> None:
        """The scheduler uses the cached results of one pod for all pods with the same key."""
        keys = {"filter_key": "may_filter", "score_key": "may_score"}
        for key, runs in keys.items():
            for one, other in permutations(self.scenarios if hasattr(self.plugin, key) else (), 2):
                here, there = self._trial(one), self._trial(replace(one, pod=other.pod))
                if here.asked(key) != there.asked(key):
                    continue
                assert getattr(here, runs) == getattr(there, runs), f"{key} is not all it reads"
                if getattr(here, runs):
                    method = key.removesuffix("_key")
                    first, second = (getattr(trial, method)(trial.nodes) for trial in (here, there))
                    assert_array_equal(first, second, err_msg=f"{key} is not all it reads")

    def test_it_has_a_queueing_hint_if_it_registers_events(self) -> None:
        """A plugin has both or neither; with neither, rejected pods are tried after every event."""
        both = hasattr(self.plugin, "events_to_register"), hasattr(self.plugin, "queueing_hint")
        wrong = "events_to_register and queueing_hint belong together"
        assert both in ((True, True), (False, False)), wrong

    def test_it_changes_nothing_while_it_decides(self) -> None:
        """Only `ClusterState` may change the state."""
        for scenario in self.scenarios:
            trial = self._trial(scenario)
            before = _fingerprint(trial.state)
            trial.by_name()
            assert _fingerprint(trial.state) == before, "it has written to the cluster's state"

    def _trial(self, scenario: Scenario) -> "_PluginInScenario":
        model = getattr(self.plugin, "Args", NoArgs)
        return _PluginInScenario(self.plugin, read(model, self.args, "args"), scenario)

    def _filters(self) -> "list[_PluginInScenario]":
        return [trial for s in self.scenarios if (trial := self._trial(s)).may_filter]

    def _scores(self) -> "list[_PluginInScenario]":
        return [trial for s in self.scenarios if (trial := self._trial(s)).may_score]


class _PluginInScenario:
    """A plugin that is built for one scenario, and the scenario's pod."""

    def __init__(self, plugin: type[Any], args: Any, scenario: Scenario) -> None:
        self.state = cluster(*scenario.others, *scenario.nodes)
        self.pod: Pod = parse_pod(scenario.pod)
        cluster_view = ClusterView(self.state)
        self.rows: IntArray = np.sort(cluster_view.nodes_in_order)
        self.nodes: NodeView = cluster_view.nodes.take(self.rows)
        self._plugin = plugin(args, handle(self.state))
        points = points_of(plugin)
        self._pre_filtered: Any = (
            self._plugin.pre_filter(self.pod, cluster_view) if Point.PRE_FILTER in points else None
        )
        self.filter_state = (
            self._pre_filtered.state
            if isinstance(self._pre_filtered, PreFilterResult)
            else self._pre_filtered
        )
        self.score_state: Any = (
            self._plugin.pre_score(self.pod, self.nodes, cluster_view)
            if Point.PRE_SCORE in points
            else None
        )
        rejected = self._pre_filtered is SKIP or isinstance(self._pre_filtered, Unschedulable)
        self.may_filter = Point.FILTER in points and not rejected
        self.may_score = (
            Point.SCORE in points and self.score_state is not SKIP and len(self.rows) > 0
        )

    def filter(self, nodes: NodeView) -> BoolArray:
        mask: BoolArray = self._plugin.filter(self.pod, nodes, self.filter_state)
        return mask

    def explain(self, nodes: NodeView) -> Explanation:
        explanation: Explanation = self._plugin.explain(self.pod, nodes, self.filter_state)
        return explanation

    def score(self, nodes: NodeView) -> IntArray:
        raw: IntArray = self._plugin.score(self.pod, nodes, self.score_state)
        return raw

    def asked(self, key: str) -> Any:
        return getattr(self._plugin, key)(self.pod)

    def by_name(self) -> dict[str, list[Any]]:
        names = [self.nodes.name(index) for index in range(len(self.nodes))]
        results: dict[str, list[Any]] = {name: [] for name in names}
        if isinstance(self._pre_filtered, Unschedulable):
            results["*"] = [self._pre_filtered]
        if self.may_filter:
            mask = self.filter(self.nodes)
            for name, fits in zip(names, mask.tolist(), strict=True):
                results[name].append(fits)
            for name, why in self._rejections(mask):
                results[name].append(why)
        if self.may_score:
            for name, score in zip(names, self.score(self.nodes).tolist(), strict=True):
                results[name].append(score)
        return results

    def _rejections(self, mask: BoolArray) -> list[tuple[str, Any]]:
        """Return each rejected node's name, with its reasons and whether preemption may help."""
        rejected = self.nodes.take(self.rows[~mask])
        if not len(rejected):
            return []
        why = self.explain(rejected)
        return [
            (rejected.name(index), (why.reasons_at(index), bool(why.resolvable[index])))
            for index in range(len(rejected))
        ]


def _check(problem: str) -> None:
    assert not problem, problem


def _check_explanation(why: Explanation, rows: int) -> None:
    _check(wrong_explanation(why, rows))
    assert all(why.reasons), "a reason is empty"
    assert all(why.reasons_by_row()), "a rejected node has no reason"
    last = why.bits[:, -1] if why.is_wide else why.bits
    used = len(why.reasons) - 64 * (why.bits.shape[1] - 1 if why.is_wide else 0)
    assert all(bits >> used == 0 for bits in last.tolist()), (
        "a bit is set for which there is no reason"
    )


def _choices(rows: IntArray) -> Iterable[IntArray]:
    return (*(rows[i : i + 1] for i in range(len(rows))), rows[::2])


def _fingerprint(state: ClusterState) -> dict[str, Any]:
    """Return a copy of all data that a decision could change by mistake."""
    table, rows = state.nodes, state.nodes.row_count
    columns = {
        "present": table.present,
        "unschedulable": table.unschedulable,
        "pod_slots": table.pod_slots,
        "pod_count": table.pod_count,
        "taint_codes": table.taints.codes,
        "scored cpu": table.requested_scored_cpu,
        "scored memory": table.requested_scored_memory,
    }
    amounts = {
        f"{what} {resource}": array.tolist()
        for what, resources in (("allocatable", table.allocatable), ("requested", table.requested))
        for resource in resources
        if (array := resources.amounts(resource, rows)) is not None
    }
    return {
        **amounts,
        **{name: column.data[:rows].tolist() for name, column in columns.items()},
        "pods": [(placed.pod.key, placed.row, placed.assumed) for placed in state.pods],
        "nominated": sorted((nominee.pod.key, nominee.row) for nominee in state.nominations),
        "groups": {
            str(group.key): (sorted(group.unscheduled), sorted(group.assigned))
            for group in state.pod_groups
        },
        "evicting": sorted(p.pod.key for p in state.pods if state.evictions.evicting(p.pod)),
        "devices in use": dict(state.dynamic_resources.claims.allocated.dedicated),
        "disruptions allowed": {
            key: state.evictions.disruptions_allowed(budget)
            for key, budget in state.objects.of(Kind.POD_DISRUPTION_BUDGET).items()
        },
        "changes": table.changes.position,
        "set version": table.set_version,
    }
