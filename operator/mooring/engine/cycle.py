"""One decision: where a pod goes, or why it goes nowhere (schedule_one.go, schedulePod).

Pure and synchronous: the same pod, pipeline, cluster and seed give the same outcome, and nothing is
changed but the memory of shared work, which cannot be told from computing anew.
"""

from functools import partial

import numpy as np

from mooring.engine.filtering import Asked, Search
from mooring.engine.outcome import Outcome, Placement, Unschedulable
from mooring.engine.sampling import sampled
from mooring.engine.scoring import score
from mooring.engine.shared import SharedWork
from mooring.engine.whatif import LiveWhatIf
from mooring.framework.attempt import Attempt, Nomination, NotEligible
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.pipeline import Pipeline
from mooring.framework.verdicts import Refused
from mooring.model.pod import Pod
from mooring.state.snapshot import Snapshot

__all__ = ["decide"]


def decide(
    pod: Pod,
    pipeline: Pipeline,
    cluster: Snapshot,
    shared: SharedWork,
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
        return Placement(
            nominee.row,
            nodes.name(nominee.row),
            feasible=1,
            visited=1,
            scores=None,
            diagnosis=lambda: search.diagnosis(asked, search.kept_for_others(asked, fits)),
        )
    kept = search.kept_for_others(asked, fits)
    if kept:
        fits = fits.copy()
        fits[np.concatenate([group.rows for group in kept])] = False
    diagnosis = partial(search.diagnosis, asked, kept)
    rows, visited = sampled(fits, cluster, pipeline, len(asked.inside), start)
    if not len(rows):
        return _unschedulable(search, diagnosis(), asked, now)
    if len(rows) == 1:
        row = int(rows[0])
        return Placement(row, nodes.name(row), 1, visited, None, diagnosis)
    sheet = score(search, rows)
    chosen = int(sheet.best[seed % len(sheet.best)])
    row, scores = int(rows[chosen]), partial(sheet.by_node, chosen=chosen)
    return Placement(row, nodes.name(row), len(rows), visited, scores, diagnosis)


def _unschedulable(
    search: Search, diagnosis: Diagnosis, asked: Asked | None, now: float
) -> Unschedulable:
    """The refusal, once the post-filters have had their say."""
    message = diagnosis.message
    if not diagnosis.total:
        return Unschedulable(diagnosis, message)
    attempt = Attempt(
        search.pod,
        diagnosis,
        search.cluster,
        LiveWhatIf(search, asked),
        search.pipeline.preemption,
        now,
    )
    reasons: list[str] = []
    keeps = False
    for plugin in search.pipeline.post_filter:
        answer = plugin.post_filter(attempt)
        if isinstance(answer, Nomination):
            return Unschedulable(diagnosis, message, answer)
        reasons.append(answer.reason)
        keeps |= isinstance(answer, NotEligible)
        if isinstance(answer, Refused) and not answer.resolvable:
            break
    whole = " ".join(filter(None, (message, ", ".join(reasons))))
    return Unschedulable(diagnosis, whole, keeps_nomination=keeps)
