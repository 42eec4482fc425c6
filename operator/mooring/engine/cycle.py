"""Decides about one pod: the node it goes to, or why none fits (schedule_one.go, schedulePod).

A decision is pure and synchronous: the same pod, pipeline, cluster and seed give the same outcome.
It changes nothing but the result cache, which never changes a result.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final
from zlib import crc32

import numpy as np

from mooring.engine.filtering import PreFiltered, Search, sampled
from mooring.engine.outcome import FitError, Outcome, ScheduleResult
from mooring.engine.result_cache import ResultCache
from mooring.engine.scoring import score
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.pipeline import Pipeline
from mooring.framework.post_filter import Nomination, NotEligible, PostFilterState
from mooring.framework.runtime import run_post_filter
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.state.cluster import Trial
from mooring.state.snapshot import Snapshot

__all__ = [
    "LiveDryRun",
    "decide",
    "tie_break_seed",
]

_LONGEST_MESSAGE: Final = 32_768
"""Characters; the API's limit to the message of a condition (metav1.Condition)."""


def decide(
    pod: Pod,
    pipeline: Pipeline,
    cluster: Snapshot,
    cache: ResultCache,
    *,
    seed: int,
    start: int = 0,
    now: float = 0.0,
) -> Outcome:
    """The node with the highest score, or the diagnosis of why no node fits.

    `seed` chooses among nodes with the same total score. `start` is the position in the node order
    at which a search that samples nodes begins. `now` is in seconds since the epoch.
    """
    search = Search(pod, pipeline, cluster, cache.of(pod, pipeline, cluster))
    if not cluster.node_count:
        return _fit_error(search, search.diagnosis_without_nodes(), None, now, seed)
    pre_filtered = search.pre_filter()
    if isinstance(pre_filtered, Diagnosis):
        return _fit_error(search, pre_filtered, None, now, seed)
    fits = search.feasible(pre_filtered)
    nodes, nominee = cluster.nodes, cluster.nominations.get(pod.key)
    if nominee is not None and search.fits_with_nominated(nominee.row, pre_filtered, fits):
        # Preemption chose this node for the pod. kube-scheduler evaluates no others either.
        return ScheduleResult(
            nominee.row,
            nodes.name(nominee.row),
            feasible_nodes=1,
            evaluated_nodes=1,
            scores=None,
            diagnosis=lambda: search.shared_diagnosis(
                pre_filtered, search.rejected_with_nominated(pre_filtered, fits)
            ),
        )
    with_nominated = search.rejected_with_nominated(pre_filtered, fits)
    if with_nominated:
        fits = fits.copy()
        fits[np.concatenate([group.rows for group in with_nominated])] = False
    diagnosis = partial(search.shared_diagnosis, pre_filtered, with_nominated)
    rows, evaluated_nodes = sampled(
        fits, cluster, pipeline, len(pre_filtered.candidate_rows), start
    )
    if not len(rows):
        return _fit_error(search, diagnosis(), pre_filtered, now, seed)
    if len(rows) == 1:
        row = int(rows[0])
        return ScheduleResult(row, nodes.name(row), 1, evaluated_nodes, None, diagnosis)
    table = score(search, rows)
    chosen = int(table.best[seed % len(table.best)])
    row, scores = int(rows[chosen]), partial(table.by_node, chosen=chosen)
    return ScheduleResult(row, nodes.name(row), len(rows), evaluated_nodes, scores, diagnosis)


def _fit_error(
    search: Search, diagnosis: Diagnosis, pre_filtered: PreFiltered | None, now: float, seed: int
) -> FitError:
    """The outcome when no node fits: runs the post_filter plugins (RunPostFilterPlugins)."""
    message = diagnosis.message[:_LONGEST_MESSAGE]
    if not diagnosis.total:
        return FitError(diagnosis, message)
    state = PostFilterState(
        search.pod,
        diagnosis,
        search.cluster,
        LiveDryRun(search, pre_filtered),
        search.pipeline.preemption,
        now,
        seed,
    )
    reasons: list[str] = []
    keeps_nomination = False
    for plugin in search.pipeline.post_filter:
        answer = run_post_filter(search.pipeline, plugin, state)
        if isinstance(answer, Nomination):
            return FitError(diagnosis, message, answer)
        reasons.append(answer.reason)
        keeps_nomination |= isinstance(answer, NotEligible)
        if isinstance(answer, Unschedulable) and not answer.resolvable:
            break
    whole = " ".join(filter(None, (message, ", ".join(reasons))))
    return FitError(diagnosis, whole[:_LONGEST_MESSAGE], keeps_nomination=keeps_nomination)


def tie_break_seed(uid: str, attempt: int, salt: int = 0) -> int:
    """A number of 32 bits that depends on the pod's uid, the attempt and the salt alone."""
    return crc32(f"{uid}/{attempt}/{salt}".encode())


class LiveDryRun:
    """Implements `mooring.framework.post_filter.DryRun` by trials on the live state."""

    def __init__(self, search: Search, pre_filtered: PreFiltered | None) -> None:
        self._search = search
        resource_filter = search.resource_filter(pre_filtered) if pre_filtered is not None else None
        self.resource_requests: Mapping[str, int] | None = (
            resource_filter[1] if resource_filter is not None else None
        )

    def trial(self) -> AbstractContextManager[Trial]:
        """Inside, pods may be removed and added; at the end everything is as it was."""
        return self._search.cluster.trial()

    def rejection(self, row: int) -> tuple[str, ...]:
        """Why the row rejects the pod in the present state of the trial; () if it does not.

        The filters run without the pods nominated to the row, and then with those of equal or
        higher priority (RunFilterPluginsWithNominatedPods in framework/runtime/framework.go).
        """
        search = self._search
        rejected = search.rejections(row) or search.rejections_with_nominated(row)
        return rejected[0].explanation.reasons_at(0) if rejected else ()
