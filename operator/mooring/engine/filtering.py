"""Which nodes can take a pod, and why the others cannot (schedule_one.go, findNodesThatFitPod)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mooring.engine.shared import ShapeWork
from mooring.framework.diagnosis import Diagnosis, RefusedRows
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import FilterPlugin, ResourceFilterPlugin
from mooring.framework.verdicts import SKIP, Explanation, Narrowed, Refused
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray

__all__ = ["Asked", "Search"]

_OUTSIDE: Final = "node(s) didn't satisfy plugin(s) [{}]"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What pre_filter said: a state per plugin (SKIP: no filter), and the nodes left to look at."""

    states: Mapping[str, Any]
    inside: IntArray
    narrowed_by: tuple[str, ...]

    def runs(self, plugin: FilterPlugin) -> bool:
        """Whether the plugin's filter has anything to say about this pod."""
        return self.states.get(plugin.name) is not SKIP


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One pod, its pipeline, and the cluster it is looked at in."""

    pod: Pod
    pipeline: Pipeline
    cluster: Snapshot
    work: ShapeWork

    def pre_filter(self) -> Asked | Diagnosis:
        """What the pre_filter plugins say: the nodes to look at, or that there is no use."""
        states: dict[str, Any] = {}
        names: frozenset[str] | None = None
        narrowed_by: list[str] = []
        refusals: dict[str, Refused] = {}
        kept = self.work.pre_filtered
        for plugin in self.pipeline.pre_filter:
            name = plugin.name
            answer = kept[name] if name in kept else plugin.pre_filter(self.pod, self.cluster)
            if isinstance(answer, Refused):
                refusals[name] = answer
                if not answer.resolvable:
                    break
                continue
            if isinstance(answer, Narrowed):
                names = answer.names if names is None else names & answer.names
                narrowed_by.append(name)
                answer = answer.state
            states[name] = answer
        if refusals:
            return self._refused(refusals)
        if names is None:
            return Asked(states, self.cluster.nodes_in_order, ())
        if not names:
            return self._refused({n: Refused(_empty(narrowed_by)) for n in narrowed_by})
        rows = [row for name in names if (row := self.cluster.row(name)) is not None]
        inside = np.intersect1d(self.cluster.nodes_in_order, np.array(rows, np.int64))
        return Asked(states, inside, tuple(narrowed_by))

    def feasible(self, asked: Asked) -> BoolArray:
        """bool[rows]: passed by every filter, the shared ones first because they cost nothing."""
        nodes, fits = self.cluster.nodes, self.work.fits
        if asked.narrowed_by:
            inside = np.zeros(len(nodes), np.bool_)
            inside[asked.inside] = True
            fits = fits & inside
        for plugin in self.pipeline.filters:
            if not plugin.row_local and asked.runs(plugin):
                rows = np.flatnonzero(fits)
                passed = plugin.filter(self.pod, nodes.take(rows), asked.states.get(plugin.name))
                fits = fits.copy()
                fits[rows] = passed
        return fits

    def may_use(self, row: int, asked: Asked, fits: BoolArray) -> bool:
        """Whether the row is feasible, and beside the pods nominated to it too."""
        if not fits[row]:
            return False
        others = self.cluster.nominations.at(row, self.pod.shape.priority, self.pod.key)
        return not (others and self._kept(np.array([row], np.int64), asked))

    def kept_for_others(self, asked: Asked, fits: BoolArray) -> tuple[RefusedRows, ...]:
        """The feasible rows that are not once the pods nominated to them are there.

        Those of lower priority do not count; upstream adds them in a first of two passes.
        """
        if not len(self.cluster.nominations):
            return ()
        wanted = np.array(self.cluster.nominations.rows(), np.int64)
        return self._kept(wanted[fits[wanted]], asked)

    def _kept(self, rows: IntArray, asked: Asked) -> tuple[RefusedRows, ...]:
        """Which of these feasible rows have no room for the pod beside those nominated to them."""
        if not len(rows):
            return ()
        contest = self.contest(asked)
        if contest is None:
            return tuple(r for row in rows.tolist() for r in self.refusals_beside_nominated(row))
        plugin, needs = contest
        crowded = self.cluster.nodes_with_nominated(rows, needs, self.pod)
        state = asked.states[plugin.name]
        refused = crowded.rows[~plugin.filter(self.pod, crowded, state)]
        if not len(refused):
            return ()
        why = plugin.explain(self.pod, crowded.take(refused), state)
        return (RefusedRows(plugin.name, refused, why),)

    def contest(self, asked: Asked) -> tuple[ResourceFilterPlugin, Mapping[str, int]] | None:
        """The filter by which alone other pods can deny this one a node, and what it asks for.

        None where other filters depend on other pods too.
        """
        contested = [
            plugin.name
            for plugin in self.pipeline.filters
            if asked.runs(plugin) and not getattr(plugin, "ignores_pods", False)
        ]
        plugin = self.pipeline.counting.get(contested[0]) if len(contested) == 1 else None
        return None if plugin is None else (plugin, plugin.needs(asked.states[plugin.name]))

    def refusals_beside_nominated(self, row: int) -> Sequence[RefusedRows]:
        """Why the row refuses the pod once its nominated pods are there; empty if it does not."""
        nominated = self.cluster.nominations.at(row, self.pod.shape.priority, self.pod.key)
        if not nominated:
            return ()
        with self.cluster.trial() as trial:
            for pod in nominated:
                trial.add(pod, row)
            return self.refusals(row)

    def refusals(self, row: int) -> Sequence[RefusedRows]:
        """Why one row refuses the pod as things stand; empty if it does not."""
        asked = self.pre_filter()
        rows = np.array([row], np.int64)
        if isinstance(asked, Diagnosis):
            why = Explanation.single(asked.pre_filter or "", 1, resolvable=False)
            return [RefusedRows(next(iter(asked.pre_filter_plugins)), rows, why)]
        return self._first_refusals(asked, rows)

    def shares_everything(self, asked: Asked) -> bool:
        """Whether every filter of this pod is row-local, so that all pods of its shape agree."""
        return not asked.narrowed_by and all(
            plugin.row_local or not asked.runs(plugin) for plugin in self.pipeline.filters
        )

    def diagnosis(self, asked: Asked, kept: tuple[RefusedRows, ...]) -> Diagnosis:
        """As `diagnose`, from pods that are alike where they were told the same."""
        if kept or not self.shares_everything(asked):
            return self.diagnose(asked, kept)
        return self.work.diagnosis(lambda: self.diagnose(asked))

    def diagnose(self, asked: Asked, kept: tuple[RefusedRows, ...] = ()) -> Diagnosis:
        """Every node's first refusal, in the order of the filters.

        `kept` are the refusals of rows that are kept for nominated pods.
        """
        remaining = np.sort(asked.inside)
        refused: list[RefusedRows] = []
        if len(remaining) < self.cluster.node_count:
            outside = np.setdiff1d(self.cluster.nodes_in_order, remaining)
            reason = _OUTSIDE.format(" ".join(sorted(asked.narrowed_by)))
            why = Explanation.single(reason, len(outside), resolvable=False)
            refused.append(RefusedRows(asked.narrowed_by[0], outside, why))
        refused += self._first_refusals(asked, remaining)
        return self._diagnosis(refused=(*refused, *kept))

    def nothing_to_search(self) -> Diagnosis:
        """The diagnosis of a cluster without nodes."""
        return self._diagnosis()

    def _first_refusals(self, asked: Asked, remaining: IntArray) -> list[RefusedRows]:
        """Per plugin, the rows it refuses; a refused row is asked no further, unless all are."""
        nodes, refused = self.cluster.nodes, list[RefusedRows]()
        for plugin in self.pipeline.filters:
            if not len(remaining):
                break
            if not asked.runs(plugin):
                continue
            state = asked.states.get(plugin.name)
            passed = plugin.filter(self.pod, nodes.take(remaining), state)
            failed = remaining[~passed]
            if len(failed):
                why = plugin.explain(self.pod, nodes.take(failed), state)
                refused.append(RefusedRows(plugin.name, failed, why))
                if not self.pipeline.every_filter:
                    remaining = remaining[passed]
        return refused

    def _refused(self, refusals: Mapping[str, Refused]) -> Diagnosis:
        decisive = [r for r in refusals.values() if not r.resolvable] or [*refusals.values()]
        return self._diagnosis(
            pre_filter=decisive[0].reason, pre_filter_plugins=frozenset(refusals)
        )

    def _diagnosis(self, **said: Any) -> Diagnosis:
        return Diagnosis(total=self.cluster.node_count, names=self.cluster.node_names, **said)


def _empty(plugins: list[str]) -> str:
    """The message of an empty intersection (RunPreFilterPlugins in framework/runtime)."""
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously"
