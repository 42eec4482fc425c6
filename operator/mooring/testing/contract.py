# ruff: noqa: S101 - asserting is what this file is for; it runs under pytest only
"""The rules that every plugin must keep, as tests to inherit.

A plugin's author writes a test class, and pytest does the rest:

    class TestRackAware(PluginContract):
        plugin = RackAware
        scenarios = [Scenario(nodes=(node("n1", zone="a"), node("n2")), pod=pod("web"))]

The scenarios should make the plugin say yes, no and nothing. The rules ask for the shapes and types
of `mooring.framework.plugin`, that deciding methods change nothing and depend on nothing but their
arguments, and that whole columns mean the same as node by node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.testing import assert_array_equal

from mooring.framework.plugin import points_of
from mooring.framework.registry import NoArgs
from mooring.framework.scores import MAX_SCORE, normalised
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Unschedulable
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.policy.points import Point
from mooring.policy.reading import read
from mooring.state.cluster import ClusterState
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import cluster
from mooring.testing.fakes import handle

__all__ = ["PluginContract", "Scenario"]

Raw: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Raw objects: the nodes, everything else in the cluster, and the pod that is decided."""

    nodes: tuple[Raw, ...]
    pod: Raw
    others: tuple[Raw, ...] = ()

    def reversed(self) -> "Scenario":
        """The same cluster, whose nodes came in the opposite order."""
        return replace(self, nodes=self.nodes[::-1])

    def without_pods(self) -> "Scenario":
        """The same cluster with nothing on its nodes."""
        return replace(self, others=tuple(raw for raw in self.others if raw["kind"] != "Pod"))


class PluginContract:
    """Inherit, set `plugin` and `scenarios`, and `args` where its defaults are not what to test.

    The filter is asked as the engine asks it: not after SKIP or Refused. The score is asked about
    all nodes, as if every one were feasible.
    """

    plugin: ClassVar[type[Any]]
    args: ClassVar[Raw] = {}
    """The plugin's arguments as a profile writes them."""
    scenarios: ClassVar[Iterable[Scenario]]

    def test_it_can_be_built_with_default_arguments(self) -> None:
        """A profile that only names the plugin is valid."""
        if hasattr(self.plugin, "Args"):
            self.plugin(read(self.plugin.Args, {}, ""), handle(cluster()))

    def test_it_filters_with_one_bool_per_node(self) -> None:
        """Also over no node at all."""
        for trial in self._filters():
            for nodes in (trial.nodes, trial.nodes.take(np.zeros(0, np.int64))):
                _check_array(trial.filter(nodes), np.dtype(np.bool_), len(nodes))

    def test_it_explains_every_refusal_with_a_reason(self) -> None:
        """`explain` is asked about the nodes that `filter` rejected, and about no other."""
        for trial in self._filters():
            rejected = trial.nodes.take(trial.rows[~trial.filter(trial.nodes)])
            if len(rejected):
                _check_explanation(trial.explain(rejected), len(rejected))

    def test_it_filters_any_choice_of_nodes_as_it_filters_all(self) -> None:
        """A node's answer does not depend on which other nodes are asked about."""
        for trial in self._filters():
            whole = trial.filter(trial.nodes)
            for rows in _choices(trial.rows):
                part = trial.filter(trial.nodes.take(rows))
                assert_array_equal(part, whole[np.isin(trial.rows, rows)])

    def test_it_scores_with_one_integer_per_node_that_normalises_to_0_to_100(self) -> None:
        """Raw scores are not negative; without normalisation they are 0-100 themselves."""
        for trial in self._scores():
            raw = trial.score(trial.nodes)
            _check_array(raw, np.dtype(np.int64), len(trial.rows))
            assert (raw >= 0).all(), f"a raw score is negative: {raw}"
            final = normalised(raw, self.plugin.normalise)
            in_range = ((final >= 0) & (final <= MAX_SCORE)).all()
            assert in_range, f"a score is outside of 0-{MAX_SCORE}: {final}"

    def test_it_scores_any_choice_of_nodes_as_it_scores_all_if_it_is_row_local(self) -> None:
        """Else scores that are kept, and repaired row by row, would go wrong."""
        for trial in self._scores() if self.plugin.row_local else ():
            whole = trial.score(trial.nodes)
            for rows in _choices(trial.rows):
                part = trial.score(trial.nodes.take(rows))
                assert_array_equal(part, whole[np.isin(trial.rows, rows)])

    def test_it_prepares_without_the_cluster_if_it_is_row_local(self) -> None:
        """What pre_filter and pre_score leave is kept while the cluster changes."""
        for scenario in self.scenarios if self.plugin.row_local else ():
            here, elsewhere = self._trial(scenario), self._trial(Scenario((), scenario.pod))
            before = here.by_name()
            here.filter_state, here.score_state = elsewhere.filter_state, elsewhere.score_state
            assert here.by_name() == before, "pre_filter or pre_score reads the cluster"

    def test_it_answers_the_same_when_it_is_asked_again(self) -> None:
        """Also when it is built again: no clock, no randomness, no memory."""
        for scenario in self.scenarios:
            trial = self._trial(scenario)
            first = trial.by_name()
            assert trial.by_name() == first, "asked twice, it answers differently"
            assert self._trial(scenario).by_name() == first, "built twice, it answers differently"

    def test_it_answers_the_same_in_whatever_order_the_nodes_came(self) -> None:
        """A node's row number means nothing."""
        for scenario in self.scenarios:
            there, here = self._trial(scenario.reversed()), self._trial(scenario)
            assert there.by_name() == here.by_name(), "its answers depend on the order of nodes"

    def test_it_answers_the_same_without_pods_if_it_says_that_it_ignores_them(self) -> None:
        """Else its kept answers would not follow pods that come and go."""
        for scenario in self.scenarios if getattr(self.plugin, "ignores_pods", False) else ():
            empty, full = self._trial(scenario.without_pods()), self._trial(scenario)
            assert empty.by_name() == full.by_name(), "its answers depend on pods on the nodes"

    def test_it_says_what_cures_its_refusals_if_it_says_what_wakes_it(self) -> None:
        """Without either, any change may cure; with one of them alone, nobody knows."""
        both = hasattr(self.plugin, "events_to_register"), hasattr(self.plugin, "queueing_hint")
        wrong = "events_to_register and queueing_hint belong together"
        assert both in ((True, True), (False, False)), wrong

    def test_it_changes_nothing_while_it_decides(self) -> None:
        """Only `ClusterState` writes."""
        for scenario in self.scenarios:
            trial = self._trial(scenario)
            before = _fingerprint(trial.state)
            trial.by_name()
            assert _fingerprint(trial.state) == before, "it has written to the cluster's state"

    def _trial(self, scenario: Scenario) -> "_Trial":
        model = getattr(self.plugin, "Args", NoArgs)
        return _Trial(self.plugin, read(model, self.args, "args"), scenario)

    def _filters(self) -> "list[_Trial]":
        return [trial for s in self.scenarios if (trial := self._trial(s)).may_filter]

    def _scores(self) -> "list[_Trial]":
        return [trial for s in self.scenarios if (trial := self._trial(s)).may_score]


class _Trial:
    """One plugin, built, and asked about one scenario."""

    def __init__(self, plugin: type[Any], args: Any, scenario: Scenario) -> None:
        self.state = cluster(*scenario.others, *scenario.nodes)
        self.pod: Pod = parse_pod(scenario.pod)
        snapshot = Snapshot(self.state)
        self.rows: IntArray = np.sort(snapshot.nodes_in_order)
        self.nodes: NodeView = snapshot.nodes.take(self.rows)
        self._plugin = plugin(args, handle(self.state))
        points = points_of(plugin)
        self._pre_filtered: Any = (
            self._plugin.pre_filter(self.pod, snapshot) if Point.PRE_FILTER in points else None
        )
        self.filter_state = (
            self._pre_filtered.state
            if isinstance(self._pre_filtered, PreFilterResult)
            else self._pre_filtered
        )
        self.score_state: Any = (
            self._plugin.pre_score(self.pod, self.nodes, snapshot)
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

    def by_name(self) -> dict[str, list[Any]]:
        """Everything the plugin says of each node, by the node's name."""
        names = [self.nodes.name(index) for index in range(len(self.nodes))]
        said: dict[str, list[Any]] = {name: [] for name in names}
        if isinstance(self._pre_filtered, Unschedulable):
            said["*"] = [self._pre_filtered]
        if self.may_filter:
            mask = self.filter(self.nodes)
            for name, fits in zip(names, mask.tolist(), strict=True):
                said[name].append(fits)
            for name, why in self._refusals(mask):
                said[name].append(why)
        if self.may_score:
            for name, score in zip(names, self.score(self.nodes).tolist(), strict=True):
                said[name].append(score)
        return said

    def _refusals(self, mask: BoolArray) -> list[tuple[str, Any]]:
        """The name of every rejected node, with the reasons and whether preemption could help."""
        rejected = self.nodes.take(self.rows[~mask])
        if not len(rejected):
            return []
        why = self.explain(rejected)
        return [
            (rejected.name(index), (why.of(index), bool(why.resolvable[index])))
            for index in range(len(rejected))
        ]


def _check_array(array: Any, dtype: np.dtype[Any], rows: int) -> None:
    assert isinstance(array, np.ndarray), f"must be a numpy array, not {type(array).__name__}"
    assert array.dtype == dtype, f"must be of {dtype}, not {array.dtype}"
    assert array.shape == (rows,), f"must have shape ({rows},), not {array.shape}"


def _check_explanation(why: Explanation, rows: int) -> None:
    _check_array(why.bits, np.dtype(np.uint64), rows)
    _check_array(why.resolvable, np.dtype(np.bool_), rows)
    assert all(why.reasons), "a reason is empty"
    for bits in why.bits.tolist():
        assert bits, "a rejected node has no reason"
        assert bits >> len(why.reasons) == 0, "a bit stands for no reason"


def _choices(rows: IntArray) -> Iterable[IntArray]:
    """Each row alone, and every second one."""
    return (*(rows[i : i + 1] for i in range(len(rows))), rows[::2])


def _fingerprint(state: ClusterState) -> dict[str, Any]:
    """Everything a decision could wrongly write to, by value."""
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
    for resource in table.allocatable:
        columns[f"allocatable {resource}"] = table.allocatable.column(resource)
    for resource in table.requested:
        columns[f"requested {resource}"] = table.requested.column(resource)
    return {
        **{name: column.data[:rows].tolist() for name, column in columns.items()},
        "pods": [(placed.pod.key, placed.row, placed.assumed) for placed in state.pods],
        "nominated": sorted((nominee.pod.key, nominee.row) for nominee in state.nominations),
        "evicting": sorted(p.pod.key for p in state.pods if state.evictions.evicting(p.pod)),
        "disruptions allowed": {
            key: state.evictions.disruptions_allowed(budget)
            for key, budget in state.objects.of(Kind.POD_DISRUPTION_BUDGET).items()
        },
        "changes": table.changes.position,
        "set version": table.set_version,
    }
