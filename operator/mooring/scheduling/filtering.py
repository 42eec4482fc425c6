"""Finds the nodes that fit a pod, and why other nodes do not (schedule_one.go).

A decision calls `NodeSearch.pre_filter`, `NodeSearch.feasible`,
`NodeSearch.rejected_with_nominated`, `sampled`, and, for the reasons,
`NodeSearch.shared_diagnosis`, in this order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.plugin import FilterPlugin, ResourceFilterPlugin
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Unschedulable
from mooring.gpu_cards.card_plugin import assign_cards
from mooring.model.pod import Pod
from mooring.runtime.extension_points import (
    NOT_A_FILTER_STATE,
    run_explain,
    run_filter,
    run_pre_filter,
    run_resource_requests,
    status_of,
)
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.plugin_metrics import FILTER, PRE_FILTER
from mooring.scheduling.result_cache import NodeResults
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

_NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [{}]"


@dataclass(frozen=True, slots=True, eq=False)
class PreFiltered:
    """The results of all pre_filter plugins.

    `states` maps each plugin to the state for its filter, or to SKIP. `candidate_rows` are the
    nodes to search (int64 rows). `restricted_by` names the plugins that returned a PreFilterResult.
    """

    states: Mapping[str, Any]
    candidate_rows: IntArray
    restricted_by: tuple[str, ...]

    def runs(self, plugin: FilterPlugin) -> bool:
        """Return whether the plugin's filter runs for this pod; it does not run after SKIP."""
        return self.states.get(plugin.name) is not SKIP


_PreFilterResults: TypeAlias = tuple[
    dict[str, Any], frozenset[str] | None, list[str], dict[str, Unschedulable]
]
"""The plugins' states; the names of the nodes to search, None for all nodes; the plugins that
restrict the nodes; and the rejections by plugin."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeSearch:
    """A search for nodes that fit one pod.

    `results` has the results of node-only plugins. `ends` is the time when the pod would end if it
    started now, in seconds since the epoch.
    """

    pod: Pod
    pipeline: Pipeline
    cluster: ClusterView
    results: NodeResults
    ends: float = math.inf

    def pre_filter(self) -> PreFiltered | Diagnosis:
        """Run the pre_filter plugins; return a Diagnosis if they reject the pod on all nodes."""
        states, names, restricted_by, rejections = self._run_pre_filter()
        if rejections:
            return self._rejected(rejections)
        if names is None:
            return PreFiltered(states, self.cluster.nodes_in_order, ())
        if not names:
            return self._rejected({n: Unschedulable(_empty(restricted_by)) for n in restricted_by})
        rows = [row for name in names if (row := self.cluster.row(name)) is not None]
        candidate_rows = np.intersect1d(self.cluster.nodes_in_order, np.array(rows, np.int64))
        return PreFiltered(states, candidate_rows, tuple(restricted_by))

    def depends_on_requests_only(self) -> bool:
        """Return whether other pods affect the pod's filters only by their resource requests.

        Returns False if a pre_filter plugin rejects the pod and the rejection is not resolvable.
        """
        states, _, restricted_by, rejections = self._run_pre_filter()
        if not all(rejection.resolvable for rejection in rejections.values()):
            return False  # some plugins have no state
        found = PreFiltered(states, self.cluster.nodes_in_order, tuple(restricted_by))
        return self.resource_filter(found) is not None

    def _run_pre_filter(self) -> _PreFilterResults:
        metrics = self.pipeline.metrics
        metrics.mark()
        states: dict[str, Any] = {}
        names: frozenset[str] | None = None
        restricted_by: list[str] = []
        rejections: dict[str, Unschedulable] = {}
        spec = self.results.spec
        cached, evaluations = spec.pre_filtered, spec.running.evaluations.pre_filter
        for number, plugin in enumerate(self.pipeline.pre_filter, start=1):
            name = plugin.name
            answer = (
                cached[name]
                if name in cached
                else run_pre_filter(self.pipeline, plugin, self.pod, self.cluster)
            )
            if type(answer) in NOT_A_FILTER_STATE:
                if isinstance(answer, Unschedulable):
                    rejections[name] = answer
                    if not answer.resolvable:
                        evaluations = evaluations[:number]
                        break
                    continue
                if isinstance(answer, PreFilterResult):
                    names = answer.node_names if names is None else names & answer.node_names
                    restricted_by.append(name)
                    answer = answer.state
            states[name] = answer
        metrics.evaluated(evaluations)
        metrics.lap(PRE_FILTER)
        return states, names, restricted_by, rejections

    def feasible(self, pre_filtered: PreFiltered) -> BoolArray:
        """Return bool[rows]: True for nodes that pass every filter, ignoring nominated pods."""
        nodes, fits, metrics = self.cluster.nodes, self.results.fits, self.pipeline.metrics
        metrics.mark()
        evaluations = self.results.spec.running.evaluations
        metrics.evaluated(evaluations.filters)
        if pre_filtered.restricted_by:
            candidate_rows = np.zeros(len(nodes), np.bool_)
            candidate_rows[pre_filtered.candidate_rows] = True
            fits = fits & candidate_rows
        for plugin in self.pipeline.filters:
            if not plugin.depends_on_node_only and pre_filtered.runs(plugin):
                rows = fits.nonzero()[0]
                state = pre_filtered.states.get(plugin.name)
                passed = run_filter(self.pipeline, plugin, self.pod, self.nodes_at(rows), state)
                metrics.evaluated(evaluations.others(FILTER, plugin.name))
                if len(rows) == len(nodes):
                    fits = passed
                else:
                    fits = fits.copy()
                    fits[rows] = passed
        metrics.lap(FILTER)
        return fits

    def nodes_at(self, rows: IntArray) -> NodeView:
        """Return the nodes at `rows` (ascending); copy no columns if `rows` has all nodes."""
        nodes = self.cluster.nodes
        return nodes if len(rows) == len(nodes) else nodes.take(rows)

    def fits_with_nominated(self, row: int, pre_filtered: PreFiltered, fits: BoolArray) -> bool:
        """Return whether the pod fits on the node, without and with the node's nominated pods."""
        if not fits[row]:
            return False
        if not self._nominated_at(row):
            return True
        with self.pipeline.metrics.all_at(FILTER):
            return not self._rejected_with_nominated(np.array([row], np.int64), pre_filtered)

    def rejected_with_nominated(
        self, pre_filtered: PreFiltered, fits: BoolArray
    ) -> tuple[RejectedNodes, ...]:
        """Return the nodes that fit the pod only without their nominated pods, and why."""
        if not len(self.cluster.nominations):
            return ()
        with self.pipeline.metrics.all_at(FILTER):
            return self._rejected_with_nominated(self._nominated_rows(fits), pre_filtered)

    def _nominated_rows(self, fits: BoolArray) -> IntArray:
        rows = np.array(self.cluster.nominations.rows(), np.int64)
        return rows[fits[rows]]

    def full_with_nominated(
        self, pre_filtered: PreFiltered, fits: BoolArray
    ) -> tuple[IntArray, IntArray]:
        """Return rows that do not fit the pod beside their nominated pods, and rows in doubt.

        The first rows lack resources. Check each row in doubt with `rejections_with_nominated`.
        """
        rows = left = self._nominated_rows(fits)
        if not len(rows):
            return rows, rows
        for name, plugin in self.pipeline.resource_filters.items():
            if pre_filtered.runs(plugin):
                state = pre_filtered.states.get(name)
                needs = run_resource_requests(self.pipeline, plugin, state)
                nodes, passed = self._passed_with_nominated(left, plugin, needs, state)
                left = nodes.rows[passed]
        full = np.setdiff1d(rows, left)
        return full, left[:0] if self.resource_filter(pre_filtered) is not None else left

    def _passed_with_nominated(
        self, rows: IntArray, plugin: ResourceFilterPlugin, needs: Mapping[str, int], state: object
    ) -> tuple[NodeView, BoolArray]:
        nodes = self.cluster.nodes_with_nominated(rows, needs, self.pod, self.ends)
        return nodes, run_filter(self.pipeline, plugin, self.pod, nodes, state)

    def _rejected_with_nominated(
        self, rows: IntArray, pre_filtered: PreFiltered
    ) -> tuple[RejectedNodes, ...]:
        if not len(rows):
            return ()
        resource_filter = self.resource_filter(pre_filtered)
        if resource_filter is None:
            return tuple(r for row in rows.tolist() for r in self.rejections_with_nominated(row))
        plugin, needs = resource_filter
        state = pre_filtered.states[plugin.name]
        with_nominated, passed = self._passed_with_nominated(rows, plugin, needs, state)
        rejected = with_nominated.rows[~passed]
        if not len(rejected):
            return ()
        failed = with_nominated.take(rejected)
        why = run_explain(self.pipeline, plugin, self.pod, failed, state)
        return self._naming_reservations((RejectedNodes(plugin.name, rejected, why),))

    def _naming_reservations(self, groups: Sequence[RejectedNodes]) -> tuple[RejectedNodes, ...]:
        """For each reserved node, replace the rejection reasons by the text of the reservation."""
        nominations, found = self.cluster.nominations, list[RejectedNodes]()
        if not nominations.reserved:
            return (*groups,)
        for group in groups:
            reserved: dict[str, list[int]] = {}
            for at, row in enumerate(group.rows.tolist()):
                kept = nominations.reservation_at(row, self.pod, self.ends)
                text = f"node(s) {kept.text_for(self.pod.namespace)}" if kept is not None else ""
                reserved.setdefault(text, []).append(at)
            for text, positions in reserved.items():
                why = group.explanation
                bits = np.ones(len(positions), np.uint64) if text else why.bits[positions]
                reasons, details = ((text,), ()) if text else (why.reasons, why.details)
                why = Explanation(reasons, bits, why.resolvable[positions], details)
                found.append(replace(group, rows=group.rows[positions], explanation=why))
        return (*found,)

    def resource_filter(
        self, pre_filtered: PreFiltered
    ) -> tuple[ResourceFilterPlugin, Mapping[str, int]] | None:
        """Return the resource filter and the pod's requests by resource.

        Returns None if no resource filter runs, or if another filter also reads the pods on a node.
        """
        dependent = [
            plugin.name
            for plugin in self.pipeline.filters
            if pre_filtered.runs(plugin)
            and not getattr(plugin, "depends_on_node_object_only", False)
        ]
        plugin = self.pipeline.resource_filters.get(dependent[0]) if len(dependent) == 1 else None
        if plugin is None:
            return None
        state = pre_filtered.states.get(plugin.name)
        return plugin, run_resource_requests(self.pipeline, plugin, state)

    def rejections_with_nominated(self, row: int) -> Sequence[RejectedNodes]:
        """Return why the node rejects the pod beside its nominated pods; empty if it does not."""
        nominated = self._nominated_at(row)
        if not nominated:
            return ()
        with self.cluster.trial() as trial:
            for pod in nominated:
                trial.add(pod, row)
                assign_cards(self.pipeline.reserve, pod, row)
            rejected = self.rejections(row)
        if rejected and self.cluster.nominations.reserved and not self.rejections(row):
            return self._naming_reservations(rejected)
        return rejected

    def _nominated_at(self, row: int) -> Sequence[Pod]:
        pod = self.pod
        return self.cluster.nominations.at(row, pod.spec.priority, pod.uid, self.ends)

    def rejections(self, row: int) -> Sequence[RejectedNodes]:
        """Return why the node rejects the pod in the current state; empty if it does not."""
        pre_filtered = self.pre_filter()
        rows = np.array([row], np.int64)
        if isinstance(pre_filtered, Diagnosis):
            why = Explanation.single(pre_filtered.pre_filter or "", 1, resolvable=False)
            return [RejectedNodes(next(iter(pre_filtered.pre_filter_plugins)), rows, why)]
        filters: Sequence[FilterPlugin] = self.pipeline.filters
        if self.results.fits_without_pods[row]:
            # A trial changes no node: what passes the filters that read only it still passes them.
            filters = [
                plugin
                for plugin in filters
                if not getattr(plugin, "depends_on_node_object_only", False)
            ]
        return self._filter_rejections(pre_filtered, rows, filters)

    def depends_on_spec_alone(self, pre_filtered: PreFiltered) -> bool:
        """Return whether only node-only filters run, so that equal pods have the same diagnosis."""
        return not pre_filtered.restricted_by and all(
            plugin.depends_on_node_only or not pre_filtered.runs(plugin)
            for plugin in self.pipeline.filters
        )

    def shared_diagnosis(
        self, pre_filtered: PreFiltered, with_nominated: tuple[RejectedNodes, ...]
    ) -> Diagnosis:
        """Return the result of `diagnose`, or the cached diagnosis of an equal pod."""
        if with_nominated or not self.depends_on_spec_alone(pre_filtered):
            return self.diagnose(pre_filtered, with_nominated)
        return self.results.spec.diagnosis(
            self.results.devices, lambda: self.diagnose(pre_filtered)
        )

    def diagnose(
        self, pre_filtered: PreFiltered, with_nominated: tuple[RejectedNodes, ...] = ()
    ) -> Diagnosis:
        """Return which filter rejects the pod on each node, with the reasons.

        If the profile has `alwaysCheckAllFilters`, each node has all filters that reject it; else
        the first. `with_nominated` is added to the result.
        """
        remaining = np.sort(pre_filtered.candidate_rows)
        rejected: list[RejectedNodes] = []
        if len(remaining) < self.cluster.node_count:
            not_named = np.setdiff1d(self.cluster.nodes_in_order, remaining)
            reason = _NOT_NAMED.format(" ".join(sorted(pre_filtered.restricted_by)))
            why = Explanation.single(reason, len(not_named), resolvable=False)
            rejected.append(RejectedNodes(pre_filtered.restricted_by[0], not_named, why))
        rejected += self._filter_rejections(pre_filtered, remaining, self.pipeline.filters)
        return self.diagnosis(rejected=(*rejected, *with_nominated))

    def diagnosis_of(self, pre_filtered: PreFiltered, rows: IntArray) -> Diagnosis:
        """Return a Diagnosis of the nodes at `rows` (int64, ascending) that passed PreFilter."""
        rows = np.intersect1d(rows, pre_filtered.candidate_rows)
        rejected = self._filter_rejections(pre_filtered, rows, self.pipeline.filters)
        return Diagnosis(len(rows), self.cluster.node_names, tuple(rejected))

    def _filter_rejections(
        self, pre_filtered: PreFiltered, remaining: IntArray, filters: Sequence[FilterPlugin]
    ) -> list[RejectedNodes]:
        nodes, rejected = self.cluster.nodes, list[RejectedNodes]()
        for plugin in filters:
            if not len(remaining):
                break
            if not pre_filtered.runs(plugin):
                continue
            state = pre_filtered.states.get(plugin.name)
            passed = run_filter(self.pipeline, plugin, self.pod, nodes.take(remaining), state)
            failed = remaining[~passed]
            if len(failed):
                why = run_explain(self.pipeline, plugin, self.pod, nodes.take(failed), state)
                rejected.append(RejectedNodes(plugin.name, failed, why))
                if not self.pipeline.always_check_all_filters:
                    remaining = remaining[passed]
        return rejected

    def _rejected(self, rejections: Mapping[str, Unschedulable]) -> Diagnosis:
        final = [r for r in rejections.values() if not r.resolvable]
        decisive = (final or [*rejections.values()])[0]
        self.pipeline.metrics.ended_with(PRE_FILTER, status_of(decisive))
        return self.diagnosis(
            pre_filter=decisive.reason,
            pre_filter_plugins=frozenset(rejections),
            pre_filter_resolvable=decisive.resolvable,
        )

    def diagnosis(self, **found: Any) -> Diagnosis:
        """Return a Diagnosis of all nodes; `found` has all fields except `total` and `names`."""
        return Diagnosis(total=self.cluster.node_count, names=self.cluster.node_names, **found)


def _empty(plugins: list[str]) -> str:
    # The texts of RunPreFilterPlugins.
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously"


_FEWEST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return how many feasible nodes are enough among `nodes` (numFeasibleNodesToFind)."""
    if nodes < _FEWEST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(_FEWEST_NODES, nodes * percentage // 100)


def sampled(
    fits: BoolArray, cluster: ClusterView, pipeline: Pipeline, candidates: int, start: int
) -> tuple[IntArray, int]:
    """Return the first `nodes_to_find` feasible rows (int64), and the number of nodes evaluated.

    Args:
        fits: Whether each row is feasible.
        cluster: The cluster with the node order.
        pipeline: The plugins of the profile.
        candidates: The number of nodes after PreFilter.
        start: The position in the node order where the search begins.
    """
    wanted = nodes_to_find(candidates, pipeline.percentage_of_nodes_to_score)
    number = np.count_nonzero(fits)
    if number <= wanted:
        return cluster.nodes.rows if number == len(fits) else fits.nonzero()[0], candidates
    order = np.roll(cluster.nodes_in_order, -start)
    found = np.flatnonzero(fits[order])[:wanted]
    return order[found], int(found[-1]) + 1
