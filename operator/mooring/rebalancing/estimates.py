"""Estimates which of many equal pods may gain by a move, without a decision about each pod.

A plugin that reads only a node and its pods ("node-only") scores a pod's own node without the pod.
The other plugins still see the pod there, so their scores have an error. The error is about the
same on nodes with equal `Estimate.place`. A decision for each value of `place` shows the error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.framework.plugin import Normalize
from mooring.gpu_cards.card_plugin import AssignsInTrials
from mooring.model.pod import Pod
from mooring.rebalancing.movable import created_anew, left_to_others
from mooring.rebalancing.plan_trial import PlanTrial
from mooring.runtime.extension_points import run_filter, run_score
from mooring.scheduling.filtering import NodeSearch, PreFiltered
from mooring.scheduling.scoring import ScoreTable, score
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

_REJECT_LESS_WITHOUT_A_POD: Final = frozenset(
    {
        "CloudVolumeCounts",
        "NodeName",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""Filters that reject no more nodes after a pod has left its node than before."""
_AFFINITY: Final = "InterPodAffinity"
"""A filter that may reject more nodes after a pod has left, if pods require affinity."""
_NO_GAIN: Final = np.iinfo(np.int64).min // 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """The possible gain of equal pods on one node.

    Attributes:
        pods: The pods, all on this node.
        suspect: Whether the node may reject the pods.
        gain: By how much the total score of another node may be higher.
        place: A key; nodes with equal keys have about the same error in their estimates.
        exact: Whether all scores were computed as if the pod had left.
    """

    pods: tuple[Pod, ...]
    suspect: bool
    gain: int
    place: tuple[int, ...]
    exact: bool


def estimates(trial: PlanTrial, pods: Sequence[Pod]) -> list[Estimate] | None:
    """Return an estimate for each node of these equal pods, in the order of rows.

    Returns None if a PreFilter plugin rejects the pods, or if a filter assigns devices to them.
    """
    by_row: dict[int, list[Pod]] = {}
    anew: Pod | None = None
    for pod in pods:
        placed, node = trial.cluster.pod(pod.uid), trial.node_of(pod)
        if placed is not None and node is not None and not left_to_others(node, pod):
            by_row.setdefault(placed.row, []).append(pod)
            anew = anew or created_anew(pod, node)
    if anew is None:
        return []
    search = trial.what_if.search(anew, trial.pipeline)
    pre_filtered = search.pre_filter()
    if not isinstance(pre_filtered, PreFiltered):
        return None
    # Devices are not counted on the columns of nodes.
    assigning = (each for each in trial.pipeline.filters if isinstance(each, AssignsInTrials))
    if any(map(pre_filtered.runs, assigning)):
        return None
    rows = np.array(sorted(by_row), np.int64)
    return _Rows(search, pre_filtered, rows).estimates(by_row)


def _object_only(plugin: object) -> bool:
    return bool(getattr(plugin, "depends_on_node_object_only", False))


class _Rows:
    def __init__(self, search: NodeSearch, pre_filtered: PreFiltered, rows: IntArray) -> None:
        self._search = search
        self._pipeline = search.pipeline
        self._pre_filtered = pre_filtered
        self._rows = rows
        demand = search.pod.spec.demand
        self._without = search.cluster.nodes_without_pod(rows, demand)

    def estimates(self, by_row: dict[int, list[Pod]]) -> list[Estimate]:
        """Return the estimate for each row; `by_row` has the pods of each row."""
        alone, others = self._fits_alone(), self._fits_beside_others()
        gains, places = self._gains(alone)
        exact = not places.shape[1]
        return [
            Estimate(tuple(by_row[row]), suspect, gain, tuple(place), exact)
            for row, suspect, gain, place in zip(
                self._rows.tolist(),
                (~(alone & others)).tolist(),
                gains.tolist(),
                places.tolist(),
                strict=True,
            )
        ]

    def _fits_alone(self) -> BoolArray:
        """Return for each row whether PreFilter and node-only filters accept a pod of that node."""
        search, pre_filtered = self._search, self._pre_filtered
        fits = search.results.fits_without_pods[self._rows]
        if pre_filtered.restricted_by:
            fits &= np.isin(self._rows, pre_filtered.candidate_rows)
        for plugin in self._pipeline.filters:
            by_pods = plugin.depends_on_node_only and not _object_only(plugin)
            if by_pods and pre_filtered.runs(plugin):
                state = pre_filtered.states.get(plugin.name)
                # the filters do not see the pod on its node
                fits &= run_filter(self._pipeline, plugin, search.pod, self._without, state)
        return fits

    def _fits_beside_others(self) -> BoolArray:
        """Return for each row whether all other filters accept a pod of that node."""
        search, pre_filtered = self._search, self._pre_filtered
        fits = np.ones(len(self._rows), np.bool_)
        for plugin in self._pipeline.filters:
            if plugin.depends_on_node_only or not pre_filtered.runs(plugin):
                continue
            # the filter sees the pod on its node, and may reject more nodes without it
            if not self._rejects_less(plugin.name):
                return np.zeros(len(self._rows), np.bool_)
            state = pre_filtered.states.get(plugin.name)
            nodes = search.nodes_at(self._rows)
            fits &= run_filter(self._pipeline, plugin, search.pod, nodes, state)
        return fits

    def _rejects_less(self, plugin: str) -> bool:
        if plugin == _AFFINITY:
            return not self._search.pod.spec.affinity.required
        return plugin in _REJECT_LESS_WITHOUT_A_POD

    def _gains(self, alone: BoolArray) -> tuple[IntArray, IntArray]:
        """Return `Estimate.gain` for each row, and `Estimate.place` as int64[rows, plugins]."""
        search, pre_filtered, rows = self._search, self._pre_filtered, self._rows
        fits = search.feasible(pre_filtered)
        taken = search.rejected_with_nominated(pre_filtered, fits)
        if taken:
            fits = fits.copy()
            fits[np.concatenate([group.rows for group in taken])] = False
        targets, own = np.flatnonzero(fits), rows[alone]
        gains, no_places = np.full(len(rows), _NO_GAIN), np.zeros((len(rows), 0), np.int64)
        if not len(targets) or not len(own):
            return gains, no_places
        either = fits.copy()
        either[own] = True
        scored = np.flatnonzero(either)
        table = score(search, scored)
        at = np.searchsorted(scored, own)
        elsewhere = self._best_elsewhere(table.total[np.searchsorted(scored, targets)], targets)
        gains[alone] = elsewhere[alone] - table.total[at] - self._more_without(own, table, at)
        names = [s.name for s in self._pipeline.scores if not s.depends_on_node_only]
        columns = [table.plugins[name].take(at) for name in names if name in table.plugins]
        if not columns:
            return gains, no_places
        places = np.zeros((len(rows), len(columns)), np.int64)
        places[alone] = np.array(columns, np.int64).T
        return gains, places

    def _best_elsewhere(self, totals: IntArray, targets: IntArray) -> IntArray:
        """Return for each row the highest total score of a target on another row."""
        best = int(np.argmax(totals))
        found = np.full(len(self._rows), totals[best])
        others = np.delete(totals, best)
        second = others.max() if len(others) else _NO_GAIN
        found[self._rows == targets[best]] = second
        return found

    def _more_without(self, rows: IntArray, table: ScoreTable, at: IntArray) -> IntArray:
        """Return for each row how much node-only scores grow when a pod leaves the node."""
        search, without = self._search, self._without.take(rows)
        pre_scored = search.results.spec.pre_scored
        more = np.zeros(len(rows), np.int64)
        for scorer in self._pipeline.scores:
            plugin, present = scorer.plugin, table.plugins.get(scorer.name)
            is_sum = scorer.depends_on_node_only and plugin.normalize is Normalize.NONE
            if is_sum and not _object_only(plugin) and present is not None:
                state = pre_scored.get(scorer.name)
                changed = run_score(self._pipeline, plugin, search.pod, without, state)
                more += scorer.weight * changed - present.take(at)
        return more
