"""Caches the results of node-only plugins per pod spec, so that identical pods share them.

A node-only plugin's result for a node changes only when the row of this node changes. So the cache
keeps a column with each plugin's results for all nodes. Before each use, the plugins run again on
the rows that have changed. The results are always equal to a run of every plugin on all nodes
(`tests/property/test_shared_work.py`).
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.framework.diagnosis import Diagnosis
from mooring.framework.plugin import DeviceReadingPlugin, Normalize
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP, PreFilterResult, Unschedulable
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.runtime.extension_points import (
    run_devices_version,
    run_filter,
    run_filter_key,
    run_pre_filter,
    run_pre_score,
    run_score,
    run_score_key,
)
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.plugin_metrics import (
    FILTER,
    PRE_FILTER,
    PRE_SCORE,
    SCORE,
    EvaluationCounter,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import ChangeLog, IntArray
from mooring.state.view import BoolArray, NodeView

_MOST_BYTES: Final = 128 * 1024 * 1024
"""The maximum bytes of all results: about 500 specs on 5,000 nodes. The least recently used are
dropped."""
_BYTES_PER_SPEC: Final = 8 * 1024
"""The estimated bytes of a spec's results, without the columns and the spec itself."""
_FEW: Final = 4
"""A plugin runs only on the needed nodes if all nodes are at least `_FEW` times as many."""
_MANY: Final = 2048
"""The fewest nodes for which selecting some of them is quicker than computing all of them."""
_KEYED, _BY_NODE, _BY_PODS, _LAST = range(4)
"""The ways to cache results: for all specs with an equal key; for a spec until the node changes;
for a spec until the node or its pods change; for the last spec only. Filters run in this order."""
_BYTES_PER_COLUMN: Final = 2 * 1024
"""The estimated bytes per column, without its array and its key."""
_NOTHING: Final = np.zeros(0, np.bool_)

_Key = tuple[Pipeline, str, str, Hashable]
_Run = Callable[[Pod, NodeView], npt.NDArray[Any]]


class ResultColumn:
    """One plugin's results (bool or int64[rows]) for all specs with the same key."""

    __slots__ = (
        "_as_of",
        "_changes",
        "_copies",
        "_highest",
        "_normalized",
        "_other_bytes",
        "_owner",
        "_position",
        "key",
        "users",
        "values",
    )

    def __init__(
        self,
        key: _Key,
        changes: ChangeLog,
        owner: "ResultColumns",
        other_bytes: int,
        *,
        copies: bool,
    ) -> None:
        self.key = key
        self.users = 0
        """The number of specs whose results use the column."""
        self.values: npt.NDArray[Any] = _NOTHING
        self._highest: int | None = None
        self._normalized: IntArray | None = None
        self._changes = changes
        self._copies = copies
        """Whether results must be copied. A plugin may return a column that belongs to the node
        table."""
        self._position = -1
        self._as_of: Hashable = None
        self._owner = owner
        self._other_bytes = other_bytes

    @property
    def bytes(self) -> int:
        """The estimated bytes of the column and its key."""
        normalized = self._normalized.nbytes if self._normalized is not None else 0
        return self._other_bytes + self.values.nbytes + normalized

    @property
    def highest(self) -> int:
        """The highest of the column's values, over all rows."""
        if self._highest is None:
            self._highest = int(self.values.max(initial=0))
        return self._highest

    def normalized(self, how: Normalize) -> IntArray:
        """Return the scores normalized to 0-100 over all rows; `how` is the plugin's `normalize`.

        A decision may use these scores only if the node with the highest raw score is feasible.
        """
        normalized = self._normalized
        if normalized is None:
            normalized = self._normalized = normalize_score(self.values, how)
            self._count(normalized.nbytes)
        return normalized

    def refresh(self, pod: Pod, nodes: NodeView, as_of: Hashable, run: _Run) -> None:
        """Update the values to the current node table; `pod` is any pod with the column's key.

        `run` runs the plugin on the nodes that have changed, or on all nodes if `as_of` has
        changed.
        """
        position = self._changes.position
        is_whole = self._as_of == as_of and len(self.values) == len(nodes)
        if is_whole and self._position == position:
            return
        rows = self._changes.since(self._position) if is_whole else None
        if rows is None or 2 * len(rows) > len(nodes):
            self._count(-self.values.nbytes)
            self.values = _NOTHING  # so that the plugin's arrays take its place
            values = run(pod, nodes)
            self.values = values.copy() if self._copies else values
            self._count(self.values.nbytes)
        else:
            self.values[rows] = run(pod, nodes.take(rows))
        if self._normalized is not None:
            self._count(-self._normalized.nbytes)
        self._normalized = self._highest = None
        # Only now: after an exception of the plugin, the same rows are looked at again.
        self._position, self._as_of = position, as_of

    def _count(self, more: int) -> None:
        if self.users:  # else it is dropped, and a decision still reads it
            self._owner.bytes += more


_Used = tuple[ResultColumn, int, _Run]
"""A column of results, its way of caching (`_KEYED` to `_LAST`), and the function that runs the
plugin."""


class ResultColumns:
    """All cached columns, by key.

    Specs with equal keys share a column. `release` drops a column that no spec uses any more.
    """

    def __init__(self) -> None:
        self._columns: dict[_Key, ResultColumn] = {}
        self.bytes = 0
        """The estimated bytes of the columns, their keys, and the specs that use them."""

    def take(
        self, key: _Key, changes: ChangeLog, key_bytes: int, *, copies: bool = True
    ) -> ResultColumn:
        """Return the column with this key; create it if needed, and count one more user.

        `changes` is the log of the rows that change the results; `key_bytes` is the size of the
        key.
        """
        column = self._columns.get(key)
        if column is None:
            other_bytes = _BYTES_PER_COLUMN + key_bytes
            column = self._columns[key] = ResultColumn(
                key, changes, self, other_bytes, copies=copies
            )
            self.bytes += column.bytes
        column.users += 1
        return column

    def release(self, column: ResultColumn) -> None:
        """Reduce the number of the column's users by one; drop the column if no spec uses it."""
        column.users -= 1
        if not column.users:
            del self._columns[column.key]
            self.bytes -= column.bytes


def is_few(rows: int, nodes: NodeView) -> bool:
    """Return whether computing only this number of nodes is faster than computing all nodes."""
    return _FEW * rows <= len(nodes)


@dataclass(slots=True, eq=False)
class SpecEvaluations:
    """Counts the evaluations of each plugin in decisions about pods with one spec.

    `filters` and `scores` are for node-only plugins; `others` returns the counter of another
    plugin.
    """

    pipeline: Pipeline
    pre_filter: tuple[EvaluationCounter, ...]
    pre_score: tuple[EvaluationCounter, ...]
    filters: tuple[EvaluationCounter, ...]
    scores: tuple[EvaluationCounter, ...]
    _others: dict[tuple[ExtensionPoint, str], tuple[EvaluationCounter, ...]] = field(
        default_factory=dict
    )

    def others(self, point: ExtensionPoint, plugin: str) -> tuple[EvaluationCounter, ...]:
        """Return the counter of a plugin that is not node-only."""
        found = self._others.get((point, plugin))
        if found is None:
            pipeline = self.pipeline
            found = pipeline.metrics.evaluations((plugin,), point, pipeline.profile)
            self._others[point, plugin] = found
        return found


class _Kept(NamedTuple):
    """A node-only filter or score; pods with equal results of `key` share a column."""

    plugin: Any
    kind: int
    """How results are cached: `_KEYED` to `_LAST`."""
    key: Callable[[Pod], Hashable]


def _kept(plugin: Any, keyed: Mapping[str, Any], key: Callable[[Any, Pod], Hashable]) -> _Kept:
    if plugin.name in keyed:
        return _Kept(plugin, _KEYED, partial(key, plugin))
    if getattr(plugin, "depends_on_node_object_only", False):
        return _Kept(plugin, _BY_NODE, attrgetter("spec"))
    if getattr(plugin, "runs_for_every_pod", False):
        return _Kept(plugin, _LAST, lambda _: None)
    return _Kept(plugin, _BY_PODS, attrgetter("spec"))


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """The node-only plugins that run for a spec."""

    filters: Sequence[_Kept]
    scores: Sequence[_Kept]
    reading_devices: Sequence[DeviceReadingPlugin]
    """The running plugins whose results may also depend on devices, without duplicates."""
    evaluations: SpecEvaluations


class _Layout:
    """The node-only plugins of a pipeline; finds the plugins that run for each spec."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.specs = 0
        """The number of specs with results for this pipeline."""
        self.pre_filter = [p for p in pipeline.pre_filter if p.depends_on_node_only]
        self.pre_score = [p for p in pipeline.pre_score if p.depends_on_node_only]
        self._filters = [
            _kept(plugin, pipeline.keyed_filters, partial(run_filter_key, pipeline))
            for plugin in pipeline.filters
            if plugin.depends_on_node_only
        ]
        self._scores = [
            _kept(score.plugin, pipeline.keyed_scores, partial(run_score_key, pipeline))
            for score in pipeline.scores
            if score.depends_on_node_only
        ]
        self._running: dict[tuple[bool, ...], _Running] = {}

    def running(self, pre_filtered: Mapping[str, Any], pre_scored: Mapping[str, Any]) -> _Running:
        """Return which plugins run for a spec with these results of pre_filter and pre_score."""
        filters = [pre_filtered.get(kept.plugin.name) is not SKIP for kept in self._filters]
        scores = [pre_scored.get(kept.plugin.name) is not SKIP for kept in self._scores]
        key = (*filters, *scores)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._found(
                [*compress(self._filters, filters)], [*compress(self._scores, scores)]
            )
        return running

    def _found(self, filters: Sequence[_Kept], scores: Sequence[_Kept]) -> _Running:
        pipeline = self.pipeline
        filtering = [kept.plugin.name for kept in filters]
        scoring = [kept.plugin.name for kept in scores]
        counters = partial(pipeline.metrics.evaluations, profile=pipeline.profile)
        running = {*filtering, *scoring}
        return _Running(
            filters=sorted(filters, key=lambda kept: kept.kind),
            scores=scores,
            reading_devices=[p for name, p in pipeline.device_reading.items() if name in running],
            evaluations=SpecEvaluations(
                pipeline,
                pre_filter=counters([p.name for p in pipeline.pre_filter], PRE_FILTER),
                pre_score=counters([p.name for p in pipeline.pre_score], PRE_SCORE),
                filters=counters(filtering, FILTER),
                scores=counters(scoring, SCORE),
            ),
        )


class SpecResults:
    """The results of the node-only plugins of one pipeline for one pod spec.

    `pre_filtered` and `pre_scored` map each plugin to its result of pre_filter and pre_score;
    `running` are the plugins that run after them.
    """

    def __init__(
        self, pod: Pod, layout: _Layout, cluster: ClusterView, columns: ResultColumns
    ) -> None:
        self._cluster = cluster
        self._columns = columns
        self._pipeline = layout.pipeline
        pipeline, metrics, nodes = layout.pipeline, layout.pipeline.metrics, cluster.nodes
        metrics.mark()
        self.pre_filtered: dict[str, Any] = {
            each.name: run_pre_filter(pipeline, each, pod, cluster) for each in layout.pre_filter
        }
        metrics.lap(PRE_FILTER)
        self.pre_scored: dict[str, Any] = {
            each.name: run_pre_score(pipeline, each, pod, nodes, cluster)
            for each in layout.pre_score
        }
        metrics.lap(PRE_SCORE)
        self.running = layout.running(self.pre_filtered, self.pre_scored)
        self._filters: Sequence[_Used] = ()
        self._scores: Mapping[str, _Used] = {}
        self._taken: list[ResultColumn] = []
        """The columns that the results use and must release."""
        self._taken_as_of = -1
        """The version of the set of nodes when the columns were chosen; keys may depend on it."""
        self.prefers_full_nodes: bool | None = None
        """Whether the scores prefer a node with an identical pod; None if this is not known yet."""
        self._diagnosed: tuple[tuple[Hashable, ...], Diagnosis] | None = None
        self._fixed_bytes = pod.spec.memory + _BYTES_PER_SPEC
        self._is_dropped = False
        self._take(pod)
        columns.bytes += self.bytes

    def diagnosis(self, devices: Hashable, diagnose: Callable[[], Diagnosis]) -> Diagnosis:
        """Return the result of `diagnose`; cache it until a node, its pods or `devices` change.

        A diagnosis is not cached if one plugin has more than 64 reasons.
        """
        # Such a diagnosis may take megabytes.
        as_of = (self._cluster.node_set_version, self._cluster.row_changes.position, devices)
        if self._diagnosed is not None and self._diagnosed[0] == as_of:
            return self._diagnosed[1]
        diagnosis = diagnose()
        is_wide = any(group.explanation.is_wide for group in diagnosis.rejected)
        before, self._diagnosed = self.bytes, None if is_wide else (as_of, diagnosis)
        if not self._is_dropped:  # else a decision still reads it
            self._columns.bytes += self.bytes - before
        return diagnosis

    @property
    def bytes(self) -> int:
        """The estimated bytes of the results and the spec, without the columns."""
        return self._fixed_bytes + (0 if self._diagnosed is None else self._diagnosed[1].nbytes)

    @property
    def rejection(self) -> Unschedulable | None:
        """The first rejection of the spec by a node-only pre_filter; None if none rejects it."""
        return next((r for r in self.pre_filtered.values() if isinstance(r, Unschedulable)), None)

    def devices(self, pod: Pod) -> Hashable:
        """Return the versions of the devices that the plugins' results for the pod depend on."""
        reading, pipeline = self.running.reading_devices, self._pipeline
        return tuple([run_devices_version(pipeline, plugin, pod) for plugin in reading])

    def filter(self, pod: Pod, nodes: NodeView, devices: Hashable) -> tuple[BoolArray, BoolArray]:
        """Return `fits_without_pods` and `fits` of `NodeResults`, each bool[rows]."""
        if self._taken_as_of != self._cluster.node_set_version:
            self._release()
            self._take(pod)
        as_of = self.as_of(devices, len(nodes))
        fits = without_pods = nodes.present.copy()
        for column, kind, run in self._filters:
            if kind == _LAST and is_few(int(np.count_nonzero(fits)), nodes):
                rows = fits.nonzero()[0]
                fits = np.zeros(len(nodes), np.bool_)
                fits[rows] = run(pod, nodes.take(rows))
                continue
            column.refresh(pod, nodes, as_of[kind], run)
            if kind <= _BY_NODE:
                fits &= column.values
            else:
                fits = fits & column.values
        return without_pods, fits

    def score(
        self, plugin: str, pod: Pod, nodes: NodeView, as_of: Sequence[Hashable]
    ) -> ResultColumn:
        """Return a node-only plugin's scores of all rows, before normalization."""
        column, kind, run = self._scores[plugin]
        column.refresh(pod, nodes, as_of[kind], run)
        return column

    def is_kept(self, plugin: str) -> bool:
        """Return whether the plugin's scores are cached for several specs."""
        return self._scores[plugin][1] != _LAST

    def as_of(self, devices: Hashable, rows: int) -> Sequence[Hashable]:
        """Return the versions that the results depend on, indexed by `_KEYED`, `_BY_NODE` etc."""
        nodes = self._cluster.node_set_version
        own = nodes, devices
        every_change = self._cluster.row_changes.position if rows < _MANY else 0
        return nodes, own, own, (nodes, devices, self, every_change)

    def _take(self, pod: Pod) -> None:
        """Choose a column of cached results for each plugin that runs."""
        filters, scores = list[_Used](), dict[str, _Used]()
        try:
            for kept in self.running.filters:
                state = self.pre_filtered.get(kept.plugin.name)
                state = state.state if isinstance(state, PreFilterResult) else state
                filters.append(self._used(FILTER, run_filter, kept, state, pod))
            for kept in self.running.scores:
                name = kept.plugin.name
                scores[name] = self._used(SCORE, run_score, kept, self.pre_scored.get(name), pod)
        except BaseException:
            self._release()
            raise
        self._filters, self._scores, self._taken_as_of = (
            filters,
            scores,
            self._cluster.node_set_version,
        )

    def _used(
        self,
        point: ExtensionPoint,
        run: Callable[..., npt.NDArray[Any]],
        kept: _Kept,
        state: Any,
        pod: Pod,
    ) -> _Used:
        (plugin, kind, key), pipeline = kept, self._pipeline
        cluster = self._cluster
        changes = cluster.node_changes if kind <= _BY_NODE else cluster.row_changes
        # As large as the spec, because measuring the key would take too long.
        key_bytes = pod.spec.memory if kind == _KEYED else 0
        wanted = pipeline, plugin.name, point, key(pod)
        column = self._columns.take(wanted, changes, key_bytes, copies=kind != _LAST)
        self._taken.append(column)
        return column, kind, lambda pod, nodes: run(pipeline, plugin, pod, nodes, state)

    def drop(self) -> None:
        """Release the columns and stop counting bytes; a decision may still read the results."""
        self._columns.bytes -= self.bytes
        self._is_dropped = True
        self._release()

    def _release(self) -> None:
        while self._taken:
            self._columns.release(self._taken.pop())


@dataclass(frozen=True, slots=True, eq=False)
class NodeResults:
    """The results of all node-only plugins for one pod in one decision.

    Attributes:
        devices: The versions of the devices that the results depend on.
        fits: bool[rows]: True where a node exists and passes every node-only filter. This is empty
            if PreFilter rejects the spec.
        fits_without_pods: As `fits`, but without the filters that read the pods on a node.
    """

    spec: SpecResults
    devices: Hashable
    fits_without_pods: BoolArray
    fits: BoolArray


class ResultCache:
    """Caches the results of node-only plugins for recently used specs, in at most `most_bytes`."""

    def __init__(self, cluster: ClusterView, most_bytes: int = _MOST_BYTES) -> None:
        self.cluster = cluster
        self.most_bytes = most_bytes
        self._specs: OrderedDict[tuple[PodSpec, Pipeline], SpecResults] = OrderedDict()
        self._columns = ResultColumns()
        self._layouts: dict[Pipeline, _Layout] = {}
        """How each pipeline's results are arranged in columns."""

    @property
    def bytes(self) -> int:
        """The estimated bytes of the results, their specs and pipelines."""
        return self._columns.bytes

    def __len__(self) -> int:
        """Return the number of results: one for each pair of spec and pipeline."""
        return len(self._specs)

    def of(self, pod: Pod, pipeline: Pipeline) -> NodeResults:
        """Return up-to-date results for the pod; scores are computed when they are read."""
        spec = self._kept(pod, pipeline)
        try:
            if spec.rejection is not None:
                nothing = np.zeros(0, np.bool_)
                return NodeResults(spec, None, nothing, nothing)
            metrics = pipeline.metrics
            metrics.mark()
            devices = spec.devices(pod)
            fits_without_pods, fits = spec.filter(pod, self.cluster.nodes, devices)
            metrics.lap(FILTER)
            return NodeResults(spec, devices, fits_without_pods, fits)
        finally:  # a plugin may fail for every spec
            while self.bytes > self.most_bytes and len(self._specs) > 1:
                self._drop(*self._specs.popitem(last=False))

    def _kept(self, pod: Pod, pipeline: Pipeline) -> SpecResults:
        key = (pod.spec, pipeline)
        spec = self._specs.get(key)
        if spec is not None:
            self._specs.move_to_end(key)
            return spec
        layout = self._layouts.get(pipeline) or _Layout(pipeline)
        spec = SpecResults(pod, layout, self.cluster, self._columns)
        self._specs[key] = spec
        if not layout.specs:  # a new pipeline replaces the former pipelines of its profile
            former = [each for each in self._layouts if each.profile == pipeline.profile]
            for old in [each for each in self._specs if each[1] in former]:
                self._drop(old, self._specs.pop(old))
            self._layouts[pipeline] = layout
            self._columns.bytes += pipeline.memory
        layout.specs += 1
        return spec

    def _drop(self, key: tuple[PodSpec, Pipeline], dropped: SpecResults) -> None:
        dropped.drop()
        _, pipeline = key
        layout = self._layouts[pipeline]
        layout.specs -= 1
        if not layout.specs:
            del self._layouts[pipeline]
            self._columns.bytes -= pipeline.memory
