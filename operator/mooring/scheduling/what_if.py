"""Decides as if some pods were on other nodes or did not exist.

The page, shadow profiles, rebalancing plans and suggestions use it on the live state. They decide
in trials, which are undone before anything else runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from mooring.claims.model.resource_claims import Allocation
from mooring.extenders.verdicts import Needed, PodExtenderResults
from mooring.framework.post_filter import GroupPreemption
from mooring.gpu_cards.card_plugin import assign_devices
from mooring.groups.search.group_decision import GroupDecision, decide_group, preempt_for_group
from mooring.groups.search.group_search import SearchedMembers
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Kind
from mooring.model.pod import Pod, Uid
from mooring.runtime.extension_points import first_gate
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.cycle import decide, tie_break_seed
from mooring.scheduling.filtering import NodeSearch, PreFiltered
from mooring.scheduling.outcome import Outcome, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray

_FIRST_ATTEMPT: Final = 1
"""The attempt's number for the seed, which chooses among nodes of equal score."""


@dataclass(eq=False, repr=False)
class WhatIf:
    """Decides about pods as if some pods of the state were absent and other pods were there.

    Args:
        cache: Results of earlier decisions in the state. Nothing else may use this cache.
        now: Returns the time in seconds since the epoch.
        salt: Chooses among nodes of equal score, together with the pod's uid.
    """

    cache: ResultCache
    now: Callable[[], float] = lambda: 0.0
    salt: int = 0

    def __post_init__(self) -> None:
        self.cluster = self.cache.cluster
        self._start = 0
        self._changes: list[Callable[[Trial], None]] = []
        """The changes that every trial makes, in this order."""
        self._trial: Trial | None = None
        """The open trial, if any, in which new changes are made immediately."""

    def remove(self, uid: Uid) -> None:
        """Remove the pod with this uid, and its nomination, in all later trials."""
        self._changes.append(partial(_take_out, uid))

    def add(
        self,
        pod: Pod,
        node: str,
        pipeline: Pipeline,
        devices: Mapping[str, Allocation] | None = None,
    ) -> None:
        """Put the pod on the node in the open trial and all later trials, if the node exists.

        `devices` has the pod's allocations by claim uid. If it is None, the first trial allocates
        devices, and later trials use the same devices.
        """
        allocations = devices

        def put(trial: Trial) -> None:
            nonlocal allocations
            if (row := self._row_for(pod, node)) is None:
                return
            trial.add(pod, row)
            pipeline.evaluations.begin_attempt()
            if allocations:
                trial.hold_claims(pod.uid, allocations)
            assign_devices(pipeline.reserve, pod, row)
            if allocations is None:  # a search in each trial would take too long
                allocations = self.cluster.dynamic_resources.claims.held(pod.uid)

        self._change(put)

    def nominate(self, pod: Pod, node: str) -> None:
        """Nominate the pod to the node in the open trial and all later trials."""

        def keep(trial: Trial) -> None:
            row = self._row_for(pod, node)
            if row is not None and self.cluster.nominations.get(pod.uid) is None:
                trial.nominate(pod, row)

        self._change(keep)

    def put(self, kind: Kind, key: str, value: Any) -> None:
        """Store this Service or controller of pods in all later trials, as `Trial.put` does."""
        self._changes.append(lambda trial: trial.put(kind, key, value))

    def _change(self, change: Callable[[Trial], None]) -> None:
        if self._trial is not None:
            change(self._trial)
        self._changes.append(change)

    @contextmanager
    def trial(self, without: Iterable[Pod] = ()) -> Iterator[Trial]:
        """Return a trial with the changes of `remove`, `add`, `nominate` and `put`.

        The pods in `without` are removed in this trial alone. Do not await while the trial is
        open. Raises PluginFailed if a Reserve plugin fails.
        """
        with self.cluster.trial(frees_claims=True) as trial:
            for pod in without:
                _take_out(pod.uid, trial)
            for change in self._changes:
                change(trial)
            self._trial = trial
            try:
                yield trial
            finally:
                self._trial = None

    def _row_for(self, pod: Pod, node: str) -> int | None:
        row = self.cluster.row(node)
        if row is None or self.cluster.node(row) is None or self.cluster.is_placed(pod):
            return None
        return row

    def seed_of(self, pod: Pod) -> int:
        """Return the seed that breaks ties in the pod's first attempt.

        For a group, pass its first member; all members share its seed.
        """
        return tie_break_seed(pod.uid, _FIRST_ATTEMPT, self.salt)

    def decide(self, pod: Pod, pipeline: Pipeline) -> Outcome:
        """Return the decision of the pod's first attempt, without extenders."""
        outcome = self.decide_with(pod, pipeline, None)
        if isinstance(outcome, Needed):
            raise TypeError("extenders are needed that nobody asks for")
        return outcome

    def decide_with(
        self, pod: Pod, pipeline: Pipeline, answers: PodExtenderResults | None
    ) -> Outcome | Needed:
        """Return the result of `mooring.scheduling.cycle.decide` for the pod's first attempt."""
        # If nodes are sampled, the next search begins after the nodes evaluated here.
        outcome = decide(
            pod,
            pipeline,
            self.cache,
            seed=self.seed_of(pod),
            start=self._start,
            now=self.now(),
            answers=answers,
        )
        if isinstance(outcome, ScheduleResult):
            self._start = (self._start + outcome.evaluated_nodes) % self.cluster.node_count
        return outcome

    def decide_group(
        self,
        group: PodGroupState,
        members: Sequence[Pod],
        pipeline: Pipeline,
        budget: SearchBudget,
        without: Sequence[Pod] = (),
    ) -> GroupDecision:
        """Return the decision about all these members, as if no pod in `without` were on a node.

        Other tasks may run during the decision.
        """
        seed = self.seed_of(members[0])
        searched = SearchedMembers(members, pipeline, self.cache, seed=seed, budget=budget)
        with self.trial(without):
            pipeline.evaluations.begin_attempt(len(members))
            return decide_group(group, searched)

    def preempt_for_group(
        self, group: PodGroupState, members: Sequence[Pod], pipeline: Pipeline
    ) -> GroupPreemption:
        """Return the victims for a group that did not fit; other tasks may run meanwhile."""
        with self.trial():
            pipeline.evaluations.begin_attempt(len(members))
            return preempt_for_group(
                group,
                members,
                pipeline,
                self.cache,
                seed=self.seed_of(members[0]),
                now=self.now(),
            )

    def search(self, pod: Pod, pipeline: Pipeline) -> NodeSearch:
        """Return a search for nodes that fit the pod, as if the pod never ended."""
        # So the pod must leave room for reservations that begin later.
        pipeline.evaluations.begin_attempt()
        return NodeSearch(pod, pipeline, self.cluster, self.cache.of(pod, pipeline))

    def feasible_rows(self, pod: Pod, pipeline: Pipeline) -> IntArray:
        """Return the rows (int64) where the pod fits beside the nominated pods."""
        search = self.search(pod, pipeline)
        pre_filtered = search.pre_filter()
        if not isinstance(pre_filtered, PreFiltered):
            return np.zeros(0, np.int64)
        fits = search.feasible(pre_filtered)
        rows = np.flatnonzero(fits)
        for group in search.rejected_with_nominated(pre_filtered, fits):
            rows = np.setdiff1d(rows, group.rows)
        return rows


def _take_out(uid: Uid, trial: Trial) -> None:
    trial.withdraw(uid)
    trial.remove(uid)


def held_back(pod: Pod, pipeline: Pipeline, *, only: str = "") -> str | None:
    """Return why the pod would not enter the queue; None if it would.

    `only` is the name of the PreEnqueue plugin to run; "" means all. Raises PluginFailed if a
    plugin fails.
    """
    if pod.limit_exceeded is not None:
        return pod.limit_exceeded
    gate = first_gate(pipeline, pod, only)
    return gate[1].reason if gate is not None else None


def without_preemption(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline without PostFilter plugins, because a search for victims takes long."""
    return replace(pipeline, post_filter=())


def stays_on_its_node(pod: Pod) -> bool:
    """Return whether the pod is static or of a DaemonSet, so that it would return to its node."""
    return pod.owner is not None and pod.owner.kind in ("DaemonSet", "Node")
