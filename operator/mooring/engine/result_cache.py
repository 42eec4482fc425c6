"""Keeps the results of node-only plugins per pod spec, so that identical pods share them.

A node-only plugin's result for a node changes only when that node's row changes. So the masks and
raw scores of all nodes are kept, and before each use the plugins run again on the rows that the
node table's change logs name. There are two logs: one of all changes, and one of changes of the
nodes themselves, for plugins that ignore the pods on a node. The results are always those that
running every plugin on all nodes would give; `tests/property/test_shared_work.py` checks that.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mooring.framework.diagnosis import Diagnosis
from mooring.framework.pipeline import Pipeline, WeightedScorePlugin
from mooring.framework.plugin import DeviceReadingPlugin, FilterPlugin, Normalize
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.framework.plugin_metrics import (
    FILTER,
    PRE_FILTER,
    PRE_SCORE,
    SCORE,
    Evaluations,
)
from mooring.framework.runtime import (
    run_devices_version,
    run_filter,
    run_pre_filter,
    run_pre_score,
    run_score,
)
from mooring.framework.verdicts import SKIP, PreFilterResult, Unschedulable
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import ChangeLog, IntArray
from mooring.state.nodes import NodeTable
from mooring.state.view import BoolArray, NodeView

__all__ = ["ResultCache", "SpecResults"]

_MOST_BYTES: Final = 128 * 1024 * 1024
"""Enough for some 500 specs on 5,000 nodes."""
_BYTES_PER_SPEC: Final = 8 * 1024
"""What results take beside their arrays and the spec itself."""
_BOOL_BYTES: Final = 1
_INT64_BYTES: Final = 8


@dataclass(slots=True, eq=False)
class SpecEvaluations:
    """The counters of the plugins whose results a decision about a pod of the spec uses.

    `filters` and `scores` are those of node-only plugins, `others` gives each of the rest.
    """

    pipeline: Pipeline
    pre_filter: tuple[Evaluations, ...]
    pre_score: tuple[Evaluations, ...]
    filters: tuple[Evaluations, ...]
    scores: tuple[Evaluations, ...]
    _others: dict[tuple[ExtensionPoint, str], tuple[Evaluations, ...]] = field(default_factory=dict)

    def others(self, point: ExtensionPoint, plugin: str) -> tuple[Evaluations, ...]:
        """Return the counter of a plugin that is not node-only."""
        found = self._others.get((point, plugin))
        if found is None:
            pipeline = self.pipeline
            found = pipeline.metrics.evaluations((plugin,), point, pipeline.profile)
            self._others[point, plugin] = found
        return found


class _RowResults:
    """The results of some node-only plugins, kept up to date from one change log.

    After `filter`, `fits` is bool[rows]: the row exists and passes every filter here. After
    `score`, `unnormalized_total` (int64[rows]) is the weighted sum of the scores that are not
    normalized, and `raw` has each plugin's scores (int64[rows]).
    """

    def __init__(
        self,
        pipeline: Pipeline,
        filters: Sequence[tuple[FilterPlugin, Any]],
        scores: Sequence[tuple[WeightedScorePlugin, Any]],
        changes: ChangeLog,
    ) -> None:
        self._pipeline = pipeline
        self._filters = filters
        self._scores = scores
        self._changes = changes
        self.forget()
        self.fits: BoolArray = np.zeros(0, np.bool_)
        self.unnormalized_total: IntArray = np.zeros(0, np.int64)
        self.raw: dict[str, IntArray] = {}

    def forget(self) -> None:
        """Run the plugins on all rows the next time."""
        self._filtered_position = self._scored_position = -1

    def filter(self, pod: Pod, nodes: NodeView) -> bool:
        """Bring `fits` up to date; True if the plugins had to run."""
        if self._filtered_position == self._changes.position:
            return False
        dirty, looked_at = self._dirty(self._filtered_position, nodes)
        fits = looked_at.present.copy()
        for plugin, state in self._filters:
            fits &= run_filter(self._pipeline, plugin, pod, looked_at, state)
        if dirty is None:
            self.fits = fits
        else:
            self.fits[dirty] = fits
        # Only now: after an exception of a plugin, the same rows are looked at again.
        self._filtered_position = self._changes.position
        return True

    def score(self, pod: Pod, nodes: NodeView) -> bool:
        """Bring the scores up to date; True if the plugins had to run."""
        if self._scored_position == self._changes.position:
            return False
        dirty, looked_at = self._dirty(self._scored_position, nodes)
        unnormalized_total = np.zeros(len(looked_at), np.int64)
        raw: dict[str, IntArray] = {}
        for score, state in self._scores:
            column = run_score(self._pipeline, score.plugin, pod, looked_at, state)
            raw[score.name] = column
            if score.plugin.normalize is Normalize.NONE:
                unnormalized_total += score.weight * column
        if dirty is None:
            self.unnormalized_total = unnormalized_total
            # Copied, because a plugin may return a column of the node table, which changes.
            self.raw = {name: column.copy() for name, column in raw.items()}
        else:
            self.unnormalized_total[dirty] = unnormalized_total
            for name, column in raw.items():
                self.raw[name][dirty] = column
        self._scored_position = self._changes.position
        return True

    def _dirty(self, position: int, nodes: NodeView) -> tuple[IntArray | None, NodeView]:
        """Return the rows to look at again, None for all, and a view of them."""
        dirty = self._changes.since(position) if position >= 0 else None
        if dirty is None or 2 * len(dirty) > len(nodes):
            return None, nodes
        return dirty, nodes.take(dirty)


class SpecResults:
    """The results of all node-only plugins of one pipeline for one pod spec.

    `pre_filtered` and `pre_scored` have the results of pre_filter and pre_score by plugin. After
    `refresh`, `fits` is bool[rows]: the row exists and passes every node-only filter. After one
    with `scored`, `unnormalized_total` (int64[rows]) is the weighted sum of the node-only scores
    that are not normalized. `evaluations` are the counters of the plugins.
    """

    def __init__(
        self, pod: Pod, pipeline: Pipeline, cluster: ClusterView, table: NodeTable
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._as_of: tuple[Hashable, ...] = ()
        metrics = pipeline.metrics
        metrics.mark()
        self.pre_filtered: dict[str, Any] = {
            p.name: run_pre_filter(pipeline, p, pod, cluster)
            for p in pipeline.pre_filter
            if p.depends_on_node_only
        }
        metrics.lap(PRE_FILTER)
        self.pre_scored: dict[str, Any] = {
            p.name: run_pre_score(pipeline, p, pod, cluster.nodes, cluster)
            for p in pipeline.pre_score
            if p.depends_on_node_only
        }
        metrics.lap(PRE_SCORE)
        filters, scores = self._filters(), self._scores()
        self._read_devices = _reading_devices(pipeline, filters, scores)
        self.evaluations = _evaluations(pipeline, filters, scores)
        self._by_node, self._by_node_and_pods = (
            _RowResults(
                pipeline,
                [entry for entry in filters if _object_only(entry[0]) is object_only],
                [entry for entry in scores if _object_only(entry[0].plugin) is object_only],
                changes,
            )
            for object_only, changes in ((True, table.node_changes), (False, table.changes))
        )
        self.fits: BoolArray = np.zeros(0, np.bool_)
        self.unnormalized_total: IntArray = np.zeros(0, np.int64)
        self.prefers_full_nodes: bool | None = None
        """Whether the scores prefer a node that has an identical pod; None if not known yet."""
        self._diagnosed: tuple[tuple[Hashable, ...], Diagnosis] | None = None
        self._fixed_bytes = pod.spec.memory + _BYTES_PER_SPEC
        self._array_bytes = 0
        self._bytes_per_row = 3 * _BOOL_BYTES + (3 + len(scores)) * _INT64_BYTES
        self.counted_bytes = 0
        """What the cache has counted for it so far."""

    def diagnosis(self, diagnose: Callable[[], Diagnosis]) -> Diagnosis:
        """Return the result of `diagnose`, kept until a row changes.

        A diagnosis with more than 64 reasons of one plugin is not kept: with thousands of invented
        resources it takes megabytes, and there may be many such specs.
        """
        as_of = (self._table.set_version, self._table.changes.position, self._as_of)
        if self._diagnosed is not None and self._diagnosed[0] == as_of:
            return self._diagnosed[1]
        diagnosis = diagnose()
        is_wide = any(group.explanation.is_wide for group in diagnosis.rejected)
        self._diagnosed = None if is_wide else (as_of, diagnosis)
        return diagnosis

    @property
    def bytes(self) -> int:
        """About how much memory the results and the spec take."""
        diagnosed = 0 if self._diagnosed is None else self._diagnosed[1].nbytes
        return self._fixed_bytes + self._array_bytes + diagnosed

    @property
    def fits_without_pods(self) -> BoolArray:
        """bool[rows]: the row passes the filters that ignore the pods on a node; a copy."""
        return self._by_node.fits.copy()

    @property
    def rejection(self) -> Unschedulable | None:
        """The rejection by the first node-only pre_filter that rejects the spec, if any."""
        return next((r for r in self.pre_filtered.values() if isinstance(r, Unschedulable)), None)

    def raw(self, plugin: str) -> IntArray:
        """Return a node-only plugin's scores before they are normalized: int64[rows]."""
        raw = self._by_node_and_pods.raw.get(plugin)
        return self._by_node.raw[plugin] if raw is None else raw

    def refresh(self, pod: Pod, nodes: NodeView, *, scored: bool = True) -> None:
        """Bring all results up to date with the node table; the scores only if `scored`."""
        alone, with_pods, metrics = self._by_node, self._by_node_and_pods, self._pipeline.metrics
        devices = (run_devices_version(self._pipeline, p, pod) for p in self._read_devices)
        as_of = (self._table.set_version, *devices)
        if as_of != self._as_of or len(self.fits) != len(nodes):
            alone.forget()
            with_pods.forget()
            self._array_bytes = len(nodes) * self._bytes_per_row
        metrics.mark()
        changed = alone.filter(pod, nodes)
        if with_pods.filter(pod, nodes) or changed:
            self.fits = alone.fits & with_pods.fits
            metrics.lap(FILTER)
        if scored:
            changed = alone.score(pod, nodes)
            if with_pods.score(pod, nodes) or changed:
                self.unnormalized_total = alone.unnormalized_total + with_pods.unnormalized_total
                metrics.lap(SCORE)
        self._as_of = as_of

    def _filters(self) -> list[tuple[FilterPlugin, Any]]:
        """Return the node-only filters that run for this spec, with their state."""
        return [
            (plugin, state)
            for plugin in self._pipeline.filters
            if plugin.depends_on_node_only
            and (state := self._filter_state(plugin.name)) is not SKIP
        ]

    def _scores(self) -> list[tuple[WeightedScorePlugin, Any]]:
        """Return the node-only scores that run for this spec, with their state."""
        return [
            (score, self.pre_scored.get(score.name))
            for score in self._pipeline.scores
            if score.depends_on_node_only and self.pre_scored.get(score.name) is not SKIP
        ]

    def _filter_state(self, plugin: str) -> Any:
        state = self.pre_filtered.get(plugin)
        return state.state if isinstance(state, PreFilterResult) else state


def _reading_devices(
    pipeline: Pipeline,
    filters: Sequence[tuple[FilterPlugin, Any]],
    scores: Sequence[tuple[WeightedScorePlugin, Any]],
) -> list[DeviceReadingPlugin]:
    """Return those of the plugins whose results may also depend on devices, each once."""
    running = {plugin.name for plugin, _ in filters} | {score.name for score, _ in scores}
    return [plugin for name, plugin in pipeline.device_reading.items() if name in running]


def _evaluations(
    pipeline: Pipeline,
    filters: Sequence[tuple[FilterPlugin, Any]],
    scores: Sequence[tuple[WeightedScorePlugin, Any]],
) -> SpecEvaluations:
    """Return the counters of these filters and scores, and of all that runs before them."""
    counters, profile = pipeline.metrics.evaluations, pipeline.profile
    pre_filter = [plugin.name for plugin in pipeline.pre_filter]
    pre_score = [plugin.name for plugin in pipeline.pre_score]
    return SpecEvaluations(
        pipeline,
        pre_filter=counters(pre_filter, PRE_FILTER, profile),
        pre_score=counters(pre_score, PRE_SCORE, profile),
        filters=counters([plugin.name for plugin, _ in filters], FILTER, profile),
        scores=counters([score.name for score, _ in scores], SCORE, profile),
    )


def _object_only(plugin: Any) -> bool:
    return bool(getattr(plugin, "depends_on_node_object_only", False))


class ResultCache:
    """The results for the specs that were used last; they take at most `most_bytes`."""

    def __init__(self, table: NodeTable, most_bytes: int = _MOST_BYTES) -> None:
        self._table = table
        self.most_bytes = most_bytes
        self._specs: OrderedDict[tuple[PodSpec, Pipeline], SpecResults] = OrderedDict()
        self.bytes = 0
        """About how many bytes the results, their specs and pipelines take."""
        self._pipelines = Counter[Pipeline]()
        """How many results each pipeline has; a former one is dropped with its last result."""
        self._last: SpecResults | None = None

    def __len__(self) -> int:
        """Return for how many specs and pipelines results are kept."""
        return len(self._specs)

    def of(
        self, pod: Pod, pipeline: Pipeline, cluster: ClusterView, *, scored: bool = True
    ) -> SpecResults:
        """Return the results for the pod's spec and pipeline, up to date; scores if `scored`.

        Every decision begins with this call.
        """
        pipeline.evaluations.begin_decision()
        if self._last is not None:
            self._count(self._last)  # a diagnosis may have been added since
        key = (pod.spec, pipeline)
        results = self._specs.get(key)
        if results is None:
            results = self._specs[key] = SpecResults(pod, pipeline, cluster, self._table)
            if pipeline not in self._pipelines:
                self._forget_former(pipeline)
                self.bytes += pipeline.memory
            self._pipelines[pipeline] += 1
        else:
            self._specs.move_to_end(key)
        self._last = results
        try:
            if results.rejection is None:
                results.refresh(pod, cluster.nodes, scored=scored)
        finally:  # a plugin may fail for every spec
            self._count(results)
            while self.bytes > self.most_bytes and len(self._specs) > 1:
                self._drop(*self._specs.popitem(last=False))
        return results

    def _forget_former(self, pipeline: Pipeline) -> None:
        """Drop the results of the pipelines that the profile had before."""
        former = [p for p in self._pipelines if p.profile == pipeline.profile]
        if former:
            for key in [key for key in self._specs if key[1] in former]:
                self._drop(key, self._specs.pop(key))

    def _drop(self, key: tuple[PodSpec, Pipeline], dropped: SpecResults) -> None:
        self.bytes -= dropped.counted_bytes
        _, pipeline = key
        self._pipelines[pipeline] -= 1
        if not self._pipelines[pipeline]:
            del self._pipelines[pipeline]
            self.bytes -= pipeline.memory

    def _count(self, results: SpecResults) -> None:
        now = results.bytes
        self.bytes += now - results.counted_bytes
        results.counted_bytes = now
