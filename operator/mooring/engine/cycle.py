"""One decision: where a pod goes, or why it goes nowhere (schedule_one.go, schedulePod).

Pure and synchronous: the same pod, pipeline, cluster and seed give the same outcome, and nothing is
changed but the memory of shared work, which cannot be told from computing anew.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
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


def decide(
    pod: Pod,
    pipeline: Pipeline,
    cluster: Snapshot,
    shared: ResultCache,
    *,
    seed: int,
    start: int = 0,
    now: float = 0.0,
) -> Outcome:
    """The best node, or the diagnosis of why there is none.

    `seed` breaks ties between equal totals; `start` is the position in the node order at which a
    sampling search begins; `now` is in seconds since the epoch.
    """
    search = Search(pod, pipeline, cluster, shared.of(pod, pipeline, cluster))
    if not cluster.node_count:
        return _unschedulable(search, search.nothing_to_search(), None, now)
    asked = search.pre_filter()
    if isinstance(asked, Diagnosis):
        return _unschedulable(search, asked, None, now)
    fits = search.feasible(asked)
    nodes, nominee = cluster.nodes, cluster.nominations.get(pod.key)
    if nominee is not None and search.may_use(nominee.row, asked, fits):
        # The room was made for this pod; upstream looks no further.
        return ScheduleResult(
            nominee.row,
            nodes.name(nominee.row),
            feasible_nodes=1,
            evaluated_nodes=1,
            scores=None,
            diagnosis=lambda: search.diagnosis(asked, search.kept_for_others(asked, fits)),
        )
    kept = search.kept_for_others(asked, fits)
    if kept:
        fits = fits.copy()
        fits[np.concatenate([group.rows for group in kept])] = False
    diagnosis = partial(search.diagnosis, asked, kept)
    rows, evaluated_nodes = sampled(fits, cluster, pipeline, len(asked.candidate_rows), start)
    if not len(rows):
        return _unschedulable(search, diagnosis(), asked, now)
    if len(rows) == 1:
        row = int(rows[0])
        return ScheduleResult(row, nodes.name(row), 1, evaluated_nodes, None, diagnosis)
    sheet = score(search, rows)
    chosen = int(sheet.best[seed % len(sheet.best)])
    row, scores = int(rows[chosen]), partial(sheet.by_node, chosen=chosen)
    return ScheduleResult(row, nodes.name(row), len(rows), evaluated_nodes, scores, diagnosis)


def _unschedulable(
    search: Search, diagnosis: Diagnosis, asked: PreFiltered | None, now: float
) -> FitError:
    """The rejection, once the post-filters have had their say."""
    message = diagnosis.message
    if not diagnosis.total:
        return FitError(diagnosis, message)
    attempt = PostFilterState(
        search.pod,
        diagnosis,
        search.cluster,
        LiveDryRun(search, asked),
        search.pipeline.preemption,
        now,
    )
    reasons: list[str] = []
    keeps = False
    for plugin in search.pipeline.post_filter:
        answer = run_post_filter(search.pipeline, plugin, attempt)
        if isinstance(answer, Nomination):
            return FitError(diagnosis, message, answer)
        reasons.append(answer.reason)
        keeps |= isinstance(answer, NotEligible)
        if isinstance(answer, Unschedulable) and not answer.resolvable:
            break
    whole = " ".join(filter(None, (message, ", ".join(reasons))))
    return FitError(diagnosis, whole, keeps_nomination=keeps)


def tie_break_seed(uid: str, attempt: int, salt: int = 0) -> int:
    """The same for the same pod, attempt and salt; spread evenly over 32 bits."""
    return crc32(f"{uid}/{attempt}/{salt}".encode())


class LiveDryRun:
    """Satisfies `mooring.framework.post_filter.DryRun` by trials on the live state."""

    def __init__(self, search: Search, asked: PreFiltered | None) -> None:
        self._search = search
        resource_filter = search.resource_filter(asked) if asked is not None else None
        self.resource_requests: Mapping[str, int] | None = (
            resource_filter[1] if resource_filter is not None else None
        )

    def trial(self) -> AbstractContextManager[Trial]:
        """Inside, pods may be taken away and put somewhere; afterwards nothing has happened."""
        return self._search.cluster.trial()

    def rejection(self, row: int) -> tuple[str, ...]:
        """Why the pod cannot go to the row as things stand; () if it can.

        Asked with the nominated pods that it must respect added, and without
        (RunFilterPluginsWithNominatedPods in framework/runtime/framework.go).
        """
        search = self._search
        rejected = search.rejections(row) or search.rejections_beside_nominated(row)
        return rejected[0].explanation.reasons_at(0) if rejected else ()
