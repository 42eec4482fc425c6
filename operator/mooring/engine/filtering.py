"""Which nodes can take a pod, and why the others cannot (schedule_one.go, findNodesThatFitPod)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mooring.engine.result_cache import ShapeResults
from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import FilterPlugin, ResourceFilterPlugin
from mooring.framework.runtime import (
    NOT_A_FILTER_STATE,
    check_pre_filter,
    run_explain,
    run_filter,
)
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Unschedulable
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "PreFiltered",
    "Search",
    "nodes_to_find",
    "sampled",
]

_OUTSIDE: Final = "node(s) didn't satisfy plugin(s) [{}]"


@dataclass(frozen=True, slots=True, eq=False)
class PreFiltered:
    """What pre_filter said: a state per plugin (SKIP: no filter), and the nodes left to look at."""

    states: Mapping[str, Any]
    candidate_rows: IntArray
    restricted_by: tuple[str, ...]

    def runs(self, plugin: FilterPlugin) -> bool:
        """Whether the plugin's filter has anything to say about this pod."""
        return self.states.get(plugin.name) is not SKIP


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One pod, its pipeline, and the cluster it is looked at in."""

    pod: Pod
    pipeline: Pipeline
    cluster: Snapshot
    work: ShapeResults

    def pre_filter(self) -> PreFiltered | Diagnosis:
        """What the pre_filter plugins say: the nodes to look at, or that there is no use."""
        states: dict[str, Any] = {}
        names: frozenset[str] | None = None
        restricted_by: list[str] = []
        rejections: dict[str, Unschedulable] = {}
        kept = self.work.pre_filtered
        for plugin in self.pipeline.pre_filter:
            name = plugin.name
            answer = kept[name] if name in kept else plugin.pre_filter(self.pod, self.cluster)
            if type(answer) in NOT_A_FILTER_STATE:
                check_pre_filter(self.pipeline, plugin, answer)
                if isinstance(answer, Unschedulable):
                    rejections[name] = answer
                    if not answer.resolvable:
                        break
                    continue
                if isinstance(answer, PreFilterResult):
                    names = answer.node_names if names is None else names & answer.node_names
                    restricted_by.append(name)
                    answer = answer.state
            states[name] = answer
        if rejections:
            return self._rejected(rejections)
        if names is None:
            return PreFiltered(states, self.cluster.nodes_in_order, ())
        if not names:
            return self._rejected({n: Unschedulable(_empty(restricted_by)) for n in restricted_by})
        rows = [row for name in names if (row := self.cluster.row(name)) is not None]
        candidate_rows = np.intersect1d(self.cluster.nodes_in_order, np.array(rows, np.int64))
        return PreFiltered(states, candidate_rows, tuple(restricted_by))

    def feasible(self, asked: PreFiltered) -> BoolArray:
        """bool[rows]: passed by every filter, the shared ones first because they cost nothing."""
        nodes, fits = self.cluster.nodes, self.work.fits
        if asked.restricted_by:
            candidate_rows = np.zeros(len(nodes), np.bool_)
            candidate_rows[asked.candidate_rows] = True
            fits = fits & candidate_rows
        for plugin in self.pipeline.filters:
            if not plugin.row_local and asked.runs(plugin):
                rows = np.flatnonzero(fits)
                state = asked.states.get(plugin.name)
                passed = run_filter(self.pipeline, plugin, self.pod, self.nodes_at(rows), state)
                if len(rows) == len(nodes):
                    fits = passed
                else:
                    fits = fits.copy()
                    fits[rows] = passed
        return fits

    def nodes_at(self, rows: IntArray) -> NodeView:
        """A view of rows, which are in ascending order.

        Where they are all rows, which is common, it is the view that need not gather columns.
        """
        nodes = self.cluster.nodes
        return nodes if len(rows) == len(nodes) else nodes.take(rows)

    def may_use(self, row: int, asked: PreFiltered, fits: BoolArray) -> bool:
        """Whether the row is feasible, and beside the pods nominated to it too."""
        if not fits[row]:
            return False
        others = self.cluster.nominations.at(row, self.pod.shape.priority, self.pod.key)
        return not (others and self._kept(np.array([row], np.int64), asked))

    def kept_for_others(self, asked: PreFiltered, fits: BoolArray) -> tuple[RejectedNodes, ...]:
        """The feasible rows that are not once the pods nominated to them are there.

        Those of lower priority do not count; upstream adds them in a first of two passes.
        """
        if not len(self.cluster.nominations):
            return ()
        wanted = np.array(self.cluster.nominations.rows(), np.int64)
        return self._kept(wanted[fits[wanted]], asked)

    def _kept(self, rows: IntArray, asked: PreFiltered) -> tuple[RejectedNodes, ...]:
        """Which of these feasible rows have no room for the pod beside those nominated to them."""
        if not len(rows):
            return ()
        resource_filter = self.resource_filter(asked)
        if resource_filter is None:
            return tuple(r for row in rows.tolist() for r in self.rejections_beside_nominated(row))
        plugin, needs = resource_filter
        with_nominated = self.cluster.nodes_with_nominated(rows, needs, self.pod)
        state = asked.states[plugin.name]
        passed = run_filter(self.pipeline, plugin, self.pod, with_nominated, state)
        rejected = with_nominated.rows[~passed]
        if not len(rejected):
            return ()
        failed = with_nominated.take(rejected)
        why = run_explain(self.pipeline, plugin, self.pod, failed, state)
        return (RejectedNodes(plugin.name, rejected, why),)

    def resource_filter(
        self, asked: PreFiltered
    ) -> tuple[ResourceFilterPlugin, Mapping[str, int]] | None:
        """The filter by which alone other pods can deny this one a node, and what it asks for.

        None where other filters depend on other pods too.
        """
        contested = [
            plugin.name
            for plugin in self.pipeline.filters
            if asked.runs(plugin) and not getattr(plugin, "ignores_pods", False)
        ]
        plugin = self.pipeline.resource_filters.get(contested[0]) if len(contested) == 1 else None
        return (
            None
            if plugin is None
            else (plugin, plugin.resource_requests(asked.states[plugin.name]))
        )

    def rejections_beside_nominated(self, row: int) -> Sequence[RejectedNodes]:
        """Why the row rejects the pod once its nominated pods are there; empty if it does not."""
        nominated = self.cluster.nominations.at(row, self.pod.shape.priority, self.pod.key)
        if not nominated:
            return ()
        with self.cluster.trial() as trial:
            for pod in nominated:
                trial.add(pod, row)
            return self.rejections(row)

    def rejections(self, row: int) -> Sequence[RejectedNodes]:
        """Why one row rejects the pod as things stand; empty if it does not."""
        asked = self.pre_filter()
        rows = np.array([row], np.int64)
        if isinstance(asked, Diagnosis):
            why = Explanation.single(asked.pre_filter or "", 1, resolvable=False)
            return [RejectedNodes(next(iter(asked.pre_filter_plugins)), rows, why)]
        return self._first_refusals(asked, rows)

    def shares_everything(self, asked: PreFiltered) -> bool:
        """Whether every filter of this pod is row-local, so that all pods of its shape agree."""
        return not asked.restricted_by and all(
            plugin.row_local or not asked.runs(plugin) for plugin in self.pipeline.filters
        )

    def diagnosis(self, asked: PreFiltered, kept: tuple[RejectedNodes, ...]) -> Diagnosis:
        """As `diagnose`, from pods that are alike where they were told the same."""
        if kept or not self.shares_everything(asked):
            return self.diagnose(asked, kept)
        return self.work.diagnosis(lambda: self.diagnose(asked))

    def diagnose(self, asked: PreFiltered, kept: tuple[RejectedNodes, ...] = ()) -> Diagnosis:
        """Every node's first rejection, in the order of the filters.

        `kept` are the rejections of rows that are kept for nominated pods.
        """
        remaining = np.sort(asked.candidate_rows)
        rejected: list[RejectedNodes] = []
        if len(remaining) < self.cluster.node_count:
            outside = np.setdiff1d(self.cluster.nodes_in_order, remaining)
            reason = _OUTSIDE.format(" ".join(sorted(asked.restricted_by)))
            why = Explanation.single(reason, len(outside), resolvable=False)
            rejected.append(RejectedNodes(asked.restricted_by[0], outside, why))
        rejected += self._first_refusals(asked, remaining)
        return self._diagnosis(rejected=(*rejected, *kept))

    def nothing_to_search(self) -> Diagnosis:
        """The diagnosis of a cluster without nodes."""
        return self._diagnosis()

    def _first_refusals(self, asked: PreFiltered, remaining: IntArray) -> list[RejectedNodes]:
        """Per plugin, the rows it rejects; a rejected row is asked no further, unless all are."""
        nodes, rejected = self.cluster.nodes, list[RejectedNodes]()
        for plugin in self.pipeline.filters:
            if not len(remaining):
                break
            if not asked.runs(plugin):
                continue
            state = asked.states.get(plugin.name)
            passed = run_filter(self.pipeline, plugin, self.pod, nodes.take(remaining), state)
            failed = remaining[~passed]
            if len(failed):
                why = run_explain(self.pipeline, plugin, self.pod, nodes.take(failed), state)
                rejected.append(RejectedNodes(plugin.name, failed, why))
                if not self.pipeline.always_check_all_filters:
                    remaining = remaining[passed]
        return rejected

    def _rejected(self, rejections: Mapping[str, Unschedulable]) -> Diagnosis:
        decisive = [r for r in rejections.values() if not r.resolvable] or [*rejections.values()]
        return self._diagnosis(
            pre_filter=decisive[0].reason, pre_filter_plugins=frozenset(rejections)
        )

    def _diagnosis(self, **said: Any) -> Diagnosis:
        return Diagnosis(total=self.cluster.node_count, names=self.cluster.node_names, **said)


def _empty(plugins: list[str]) -> str:
    """The message of an empty intersection (RunPreFilterPlugins in framework/runtime)."""
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously"


_FEWEST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough among `nodes` (numFeasibleNodesToFind)."""
    if nodes < _FEWEST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(_FEWEST_NODES, nodes * percentage // 100)


def sampled(
    fits: BoolArray, cluster: Snapshot, pipeline: Pipeline, candidates: int, start: int
) -> tuple[IntArray, int]:
    """The feasible rows (int64) a search finds, and how many nodes it looked at to find them.

    `fits` is bool[rows]; `candidates` counts the nodes that pre_filter left. The search goes
    through the zone-interleaved order from position `start`, round the end, until it has enough.
    """
    wanted = nodes_to_find(candidates, pipeline.percentage_of_nodes_to_score)
    rows = np.flatnonzero(fits)
    if len(rows) <= wanted:
        return rows, candidates
    order = np.roll(cluster.nodes_in_order, -start)
    found = np.flatnonzero(fits[order])[:wanted]
    return order[found], int(found[-1]) + 1
