"""Keeps the results of node-only plugins per pod spec, so that identical pods share them.

A node-only plugin's result for a node changes only when that node's row changes. So the masks and
raw scores of all nodes are kept, and before each use the plugins run again on the rows that the
node table's change logs name. There are two logs: one of all changes, and one of changes of the
nodes themselves, for plugins that ignore the pods on a node. The results are always those that
running every plugin on all nodes would give; `tests/property/test_shared_work.py` checks that.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any, Final, Generic, TypeVar

import numpy as np

from mooring.engine.last_results import LastResults
from mooring.engine.shared_columns import SharedColumn, SharedColumns, changed_rows
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.pipeline import Pipeline, WeightedScorePlugin
from mooring.framework.plugin import DeviceReadingPlugin, FilterPlugin
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

__all__ = ["NodeResults", "ResultCache", "SpecResults"]

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
    """The results of some node-only plugins for one spec, kept up to date from one change log.

    After `filter`, `fits` is bool[rows]: the row passes every filter here. After `score`, `raw` has
    each plugin's scores (int64[rows]).
    """

    def __init__(
        self,
        pipeline: Pipeline,
        filters: Sequence[tuple[FilterPlugin, Any]],
        scores: Sequence[tuple[WeightedScorePlugin, Any]],
        changes: ChangeLog,
        *,
        reads_pods: bool,
    ) -> None:
        self._pipeline = pipeline
        self.reads_pods = reads_pods
        """Whether the plugins read the pods on a node."""
        self._filters = filters
        self._scores = scores
        self._changes = changes
        self.forget()
        self.fits: BoolArray = np.zeros(0, np.bool_)
        self.raw: dict[str, IntArray] = {}
        self.bytes_per_row = bool(filters) * _BOOL_BYTES + len(scores) * _INT64_BYTES

    def forget(self) -> None:
        """Run the plugins on all rows the next time."""
        self._filtered_position = self._scored_position = -1

    def filter(self, pod: Pod, nodes: NodeView, among: BoolArray) -> BoolArray:
        """Bring `fits` up to date, and return which of the rows in `among` (bool[rows]) fit."""
        if not self._filters:
            return among
        if self._filtered_position != self._changes.position:
            dirty, looked_at = changed_rows(self._changes, self._filtered_position, nodes)
            fits = np.ones(len(looked_at), np.bool_)
            for plugin, state in self._filters:
                fits &= run_filter(self._pipeline, plugin, pod, looked_at, state)
            if dirty is None:
                self.fits = fits
            else:
                self.fits[dirty] = fits
            # Only now: after an exception of a plugin, the same rows are looked at again.
            self._filtered_position = self._changes.position
        return among & self.fits

    def score(self, pod: Pod, nodes: NodeView) -> None:
        """Bring the scores up to date."""
        if not self._scores or self._scored_position == self._changes.position:
            return
        dirty, looked_at = changed_rows(self._changes, self._scored_position, nodes)
        raw = {
            score.name: run_score(self._pipeline, score.plugin, pod, looked_at, state)
            for score, state in self._scores
        }
        if dirty is None:
            # Copied, because a plugin may return a column of the node table, which changes.
            self.raw = {name: column.copy() for name, column in raw.items()}
        else:
            for name, column in raw.items():
                self.raw[name][dirty] = column
        self._scored_position = self._changes.position


_Plugin = TypeVar("_Plugin")


@dataclass(slots=True, eq=False)
class _Sorted(Generic[_Plugin]):
    """Node-only plugins by how their results are kept."""

    by_key: list[_Plugin] = field(default_factory=list)
    """Once for all specs with an equal key."""
    by_node: list[_Plugin] = field(default_factory=list)
    """Per spec, until the node changes."""
    by_node_and_pods: list[_Plugin] = field(default_factory=list)
    """Per spec, until the node or its pods change."""
    live: list[_Plugin] = field(default_factory=list)
    """For the last spec alone: they run for every pod."""

    def add(self, plugin: _Plugin, described: Any, keyed: Container[str]) -> None:
        """Add a filter, or a score with its weight; `described` is the plugin itself."""
        if described.name in keyed:
            self.by_key.append(plugin)
        elif getattr(described, "depends_on_node_object_only", False):
            self.by_node.append(plugin)
        elif getattr(described, "runs_for_every_pod", False):
            self.live.append(plugin)
        else:
            self.by_node_and_pods.append(plugin)


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """The node-only plugins that run for a spec, by how their results are kept."""

    filters: _Sorted[FilterPlugin]
    scores: _Sorted[WeightedScorePlugin]
    live_scores: frozenset[str]
    """The names of the scores that run for every pod."""
    reading_devices: Sequence[DeviceReadingPlugin]
    """Those whose results may also depend on devices, each once."""
    evaluations: SpecEvaluations


class _Layout:
    """The node-only plugins of a pipeline, and which of them run for the specs that were seen."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.specs = 0
        """For how many specs results are kept."""
        self.pre_filter = [p for p in pipeline.pre_filter if p.depends_on_node_only]
        self.pre_score = [p for p in pipeline.pre_score if p.depends_on_node_only]
        self._filters = [p for p in pipeline.filters if p.depends_on_node_only]
        self._scores = [s for s in pipeline.scores if s.depends_on_node_only]
        self._filter_names = [plugin.name for plugin in self._filters]
        self._score_names = [score.name for score in self._scores]
        self._running: dict[tuple[bool, ...], _Running] = {}

    def running(self, pre_filtered: Mapping[str, Any], pre_scored: Mapping[str, Any]) -> _Running:
        """Return which plugins run after these results of pre_filter and pre_score."""
        filters = [pre_filtered.get(name) is not SKIP for name in self._filter_names]
        scores = [pre_scored.get(name) is not SKIP for name in self._score_names]
        key = (*filters, *scores)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._found(
                [*compress(self._filters, filters)], [*compress(self._scores, scores)]
            )
        return running

    def _found(
        self, filters: Sequence[FilterPlugin], scores: Sequence[WeightedScorePlugin]
    ) -> _Running:
        pipeline = self.pipeline
        filters_by: _Sorted[FilterPlugin] = _Sorted()
        scores_by: _Sorted[WeightedScorePlugin] = _Sorted()
        for plugin in filters:
            filters_by.add(plugin, plugin, pipeline.keyed_filters)
        for score in scores:
            scores_by.add(score, score.plugin, pipeline.keyed_scores)
        running = {plugin.name for plugin in filters} | {score.name for score in scores}
        counters = partial(pipeline.metrics.evaluations, profile=pipeline.profile)
        return _Running(
            filters=filters_by,
            scores=scores_by,
            live_scores=frozenset(score.name for score in scores_by.live),
            reading_devices=[p for name, p in pipeline.device_reading.items() if name in running],
            evaluations=SpecEvaluations(
                pipeline,
                pre_filter=counters([p.name for p in pipeline.pre_filter], PRE_FILTER),
                pre_score=counters([p.name for p in pipeline.pre_score], PRE_SCORE),
                filters=counters([plugin.name for plugin in filters], FILTER),
                scores=counters([score.name for score in scores], SCORE),
            ),
        )


class SpecResults:
    """What is kept of the node-only plugins of one pipeline for one pod spec.

    `pre_filtered` and `pre_scored` have the results of pre_filter and pre_score by plugin;
    `running` says which plugins run then.
    """

    def __init__(
        self,
        pod: Pod,
        layout: _Layout,
        cluster: ClusterView,
        table: NodeTable,
        shared: SharedColumns,
    ) -> None:
        self._table = table
        self._shared = shared
        self._pipeline = layout.pipeline
        self.pre_filtered, self.pre_scored = _prepared(pod, layout, cluster)
        self.running = layout.running(self.pre_filtered, self.pre_scored)
        filters, scores = self.running.filters, self.running.scores
        self.live_filters = self._with_states(filters.live)
        """The filters that run for every pod, with their states."""
        self._own = [
            self._results(*kept)
            for kept in (
                (filters.by_node, scores.by_node, table.node_changes),
                (filters.by_node_and_pods, scores.by_node_and_pods, table.changes),
            )
            if kept[0] or kept[1]
        ]
        """Those of plugins whose results are kept for each spec."""
        self._taken = list[SharedColumn]()
        """The columns to give back."""
        self._masks = list[SharedColumn]()
        self._shared_scores: dict[str, SharedColumn] = {}
        self._shared_as_of = -1
        self._as_of: tuple[Hashable, ...] = ()
        self._rows = 0
        self.prefers_full_nodes: bool | None = None
        """Whether the scores prefer a node that has an identical pod; None if not known yet."""
        self._diagnosed: tuple[tuple[Hashable, ...], Diagnosis] | None = None
        self._fixed_bytes = pod.spec.memory + _BYTES_PER_SPEC
        self.counted_bytes = 0
        """What the cache has counted for it so far."""
        self._share(pod)

    def diagnosis(self, devices: Hashable, diagnose: Callable[[], Diagnosis]) -> Diagnosis:
        """Return the result of `diagnose`, kept until a row or these devices change.

        A diagnosis with more than 64 reasons of one plugin is not kept: with thousands of invented
        resources it takes megabytes, and there may be many such specs.
        """
        as_of = (self._table.set_version, self._table.changes.position, devices)
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
        own = sum([own.bytes_per_row for own in self._own]) * self._rows if self._own else 0
        return self._fixed_bytes + own + diagnosed

    @property
    def rejection(self) -> Unschedulable | None:
        """The rejection by the first node-only pre_filter that rejects the spec, if any."""
        return next((r for r in self.pre_filtered.values() if isinstance(r, Unschedulable)), None)

    def devices(self, pod: Pod) -> Hashable:
        """Return the versions of the devices that the results for the pod depend on."""
        reading, pipeline = self.running.reading_devices, self._pipeline
        return tuple([run_devices_version(pipeline, plugin, pod) for plugin in reading])

    def raw(self, plugin: str) -> IntArray | SharedColumn:
        """Return a node-only plugin's kept scores before they are normalized, by row."""
        shared = self._shared_scores.get(plugin)
        if shared is not None:
            return shared
        return next(own.raw[plugin] for own in self._own if plugin in own.raw)

    def release(self) -> None:
        """Give back the columns shared with other specs; a decision may still read them."""
        while self._taken:
            self._shared.release(self._taken.pop())

    def filter(self, pod: Pod, nodes: NodeView, devices: Hashable) -> tuple[BoolArray, BoolArray]:
        """Return which rows pass the filters that ignore the pods on a node, and all kept ones."""
        self._begin(nodes, devices)
        if self._shared_as_of != self._table.set_version:
            self.release()
            self._share(pod)
        fits = nodes.present.copy()
        for mask in self._masks:
            mask.refresh(pod, nodes)
            fits &= mask.values
        without_pods = fits
        for own in self._own:
            fits = own.filter(pod, nodes, fits)
            if not own.reads_pods:
                without_pods = fits
        return without_pods, fits

    def score(self, pod: Pod, nodes: NodeView, devices: Hashable) -> None:
        """Bring the kept scores up to date."""
        self._begin(nodes, devices)
        for shared in self._shared_scores.values():
            shared.refresh(pod, nodes)
        for own in self._own:
            own.score(pod, nodes)

    def _begin(self, nodes: NodeView, devices: Hashable) -> None:
        """Forget the kept results if they are not of these nodes and devices."""
        as_of = (self._table.set_version, devices)
        if as_of != self._as_of or self._rows != len(nodes):
            for own in self._own:
                own.forget()
            self._rows, self._as_of = len(nodes), as_of

    def _share(self, pod: Pod) -> None:
        """Take the columns that specs with equal keys share."""
        shared, pipeline, taken = self._shared, self._pipeline, self._taken
        masks, scores = list[SharedColumn](), dict[str, SharedColumn]()
        try:
            for plugin, state in self._with_states(self.running.filters.by_key):
                masks.append(shared.of_filter(pipeline, plugin, pod, state))
                taken.append(masks[-1])
            for score in self.running.scores.by_key:
                state = self.pre_scored.get(score.name)
                scores[score.name] = shared.of_score(pipeline, score, pod, state)
                taken.append(scores[score.name])
        except BaseException:
            self.release()
            raise
        self._masks, self._shared_scores = masks, scores
        self._shared_as_of = self._table.set_version

    def _results(
        self,
        filters: Sequence[FilterPlugin],
        scores: Sequence[WeightedScorePlugin],
        changes: ChangeLog,
    ) -> _RowResults:
        """Return the results of these plugins, which follow this log."""
        with_states = [(score, self.pre_scored.get(score.name)) for score in scores]
        reads_pods = changes is self._table.changes
        filtered = self._with_states(filters)
        return _RowResults(self._pipeline, filtered, with_states, changes, reads_pods=reads_pods)

    def _with_states(self, filters: Sequence[FilterPlugin]) -> list[tuple[FilterPlugin, Any]]:
        """Return the filters with their states."""
        return [(plugin, self._filter_state(plugin.name)) for plugin in filters]

    def _filter_state(self, plugin: str) -> Any:
        state = self.pre_filtered.get(plugin)
        return state.state if isinstance(state, PreFilterResult) else state


def _prepared(
    pod: Pod, layout: _Layout, cluster: ClusterView
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results of pre_filter and of pre_score of the node-only plugins, by plugin."""
    pipeline = layout.pipeline
    metrics = pipeline.metrics
    metrics.mark()
    pre_filtered = {p.name: run_pre_filter(pipeline, p, pod, cluster) for p in layout.pre_filter}
    metrics.lap(PRE_FILTER)
    nodes = cluster.nodes
    pre_scored = {p.name: run_pre_score(pipeline, p, pod, nodes, cluster) for p in layout.pre_score}
    metrics.lap(PRE_SCORE)
    return pre_filtered, pre_scored


@dataclass(frozen=True, slots=True, eq=False)
class NodeResults:
    """The results of all node-only plugins for one pod, as a decision uses them.

    `fits` is bool[rows]: the row exists and passes every node-only filter. `fits_without_pods` does
    so without the filters that read the pods on a node.
    """

    spec: SpecResults
    last: LastResults
    devices: Hashable
    fits_without_pods: BoolArray
    fits: BoolArray

    def diagnosis(self, diagnose: Callable[[], Diagnosis]) -> Diagnosis:
        """Return the result of `diagnose`, kept until a row changes (`SpecResults.diagnosis`)."""
        return self.spec.diagnosis(self.devices, diagnose)


class ResultCache:
    """What is kept for the specs that were used last; it takes at most `most_bytes`."""

    def __init__(self, table: NodeTable, most_bytes: int = _MOST_BYTES) -> None:
        self._table = table
        self.most_bytes = most_bytes
        self._specs: OrderedDict[tuple[PodSpec, Pipeline], SpecResults] = OrderedDict()
        self._shared = SharedColumns(table)
        self._last_results = LastResults(table)
        self._bytes = 0
        self._layouts: dict[Pipeline, _Layout] = {}
        """One for each pipeline with results; that of a former one is dropped with the last."""
        self._last: SpecResults | None = None

    @property
    def bytes(self) -> int:
        """About how many bytes the results, their specs and pipelines take."""
        return self._bytes + self._shared.bytes + self._last_results.bytes

    def __len__(self) -> int:
        """Return for how many specs and pipelines results are kept."""
        return len(self._specs)

    def of(self, pod: Pod, pipeline: Pipeline, cluster: ClusterView) -> NodeResults:
        """Return the results for the pod, up to date; `NodeResults.scores` are not computed yet.

        Every decision begins with this call.
        """
        pipeline.evaluations.begin_decision()
        last, spec = self._last, self._kept(pod, pipeline, cluster)
        if last is not None and last is not spec:
            self._count(last)  # a diagnosis may have been added since
        self._last = spec
        try:
            if spec.rejection is not None:
                nothing = np.zeros(0, np.bool_)
                return NodeResults(spec, self._last_results, None, nothing, nothing)
            return self._filtered(spec, pod, pipeline, cluster.nodes)
        finally:  # a plugin may fail for every spec
            self._count(spec)
            while self.bytes > self.most_bytes and len(self._specs) > 1:
                self._drop(*self._specs.popitem(last=False))

    def _kept(self, pod: Pod, pipeline: Pipeline, cluster: ClusterView) -> SpecResults:
        """Return what is kept for the pod's spec, which may be nothing yet."""
        key = (pod.spec, pipeline)
        spec = self._specs.get(key)
        if spec is not None:
            self._specs.move_to_end(key)
            return spec
        layout = self._layouts.get(pipeline) or _Layout(pipeline)
        spec = SpecResults(pod, layout, cluster, self._table, self._shared)
        self._specs[key] = spec
        if not layout.specs:
            self._forget_former(pipeline)
            self._layouts[pipeline] = layout
            self._bytes += pipeline.memory
        layout.specs += 1
        return spec

    def _filtered(
        self, spec: SpecResults, pod: Pod, pipeline: Pipeline, nodes: NodeView
    ) -> NodeResults:
        """Return the results of all filters."""
        metrics, last = pipeline.metrics, self._last_results
        metrics.mark()
        devices = spec.devices(pod)
        fits_without_pods, fits = spec.filter(pod, nodes, devices)
        if spec.live_filters:
            last.begin(spec, devices)
            fits = last.filter(spec.live_filters, pipeline, pod, nodes, fits)
        metrics.lap(FILTER)
        return NodeResults(spec, last, devices, fits_without_pods, fits)

    def _forget_former(self, pipeline: Pipeline) -> None:
        """Drop the results of the pipelines that the profile had before."""
        former = [p for p in self._layouts if p.profile == pipeline.profile]
        if former:
            for key in [key for key in self._specs if key[1] in former]:
                self._drop(key, self._specs.pop(key))

    def _drop(self, key: tuple[PodSpec, Pipeline], dropped: SpecResults) -> None:
        dropped.release()
        self._bytes -= dropped.counted_bytes
        _, pipeline = key
        layout = self._layouts[pipeline]
        layout.specs -= 1
        if not layout.specs:
            del self._layouts[pipeline]
            self._bytes -= pipeline.memory

    def _count(self, results: SpecResults) -> None:
        now = results.bytes
        self._bytes += now - results.counted_bytes
        results.counted_bytes = now
