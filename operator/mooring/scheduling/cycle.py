"""Decides about one pod: chooses its node, or says why none fits (schedule_one.go, schedulePod).

A decision is pure: the same pod, pipeline, cluster and seed give the same outcome. It writes only
to the result cache, which does not affect outcomes.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import numpy as np

from mooring.extenders.verdicts import (
    ALWAYS_TAKEN,
    MOST_ROUNDS,
    ExtenderError,
    Needed,
    PodExtenderResults,
)
from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.framework.post_filter import (
    Candidates,
    Nomination,
    NotEligible,
    PostFilterState,
)
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.policy.profile_status import LONGEST_MESSAGE
from mooring.runtime.extension_points import run_post_filter, status_of
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.causes import cause_of
from mooring.scheduling.filtering import NodeSearch, PreFiltered, sampled
from mooring.scheduling.outcome import FitError, Outcome, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scoring import score, with_extender_scores
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray


def decide(
    pod: Pod,
    pipeline: Pipeline,
    cache: ResultCache,
    *,
    seed: int,
    start: int = 0,
    now: float = 0.0,
    answers: PodExtenderResults | None = None,
    unschedulable_seconds: float = 0.0,
) -> Outcome | Needed:
    """Return the node with the highest score, or a diagnosis that says why no node fits.

    Other tasks may run during a decision, but must not change the cluster.

    Args:
        pod: The pod.
        pipeline: The plugins of the pod's profile.
        cache: The cached results of node-only plugins.
        seed: Chooses among nodes with the same total score.
        start: The position in the node order where a search that samples nodes begins.
        now: The time in seconds since the epoch.
        answers: The answers of extenders; if answers are missing, the result is a `Needed`.
        unschedulable_seconds: The time since the pod's first attempt that found no node.

    Raises:
        ExtenderError: The extenders were asked several times, and each time other pods took all
            nodes that the extenders allowed.
    """
    pipeline.evaluations.begin_attempt()
    cluster, results = cache.cluster, cache.of(pod, pipeline)
    search = NodeSearch(pod, pipeline, cluster, results, pod.ends_by(now))
    dry_run = partial(LiveDryRun, search, cache=cache, seed=seed)
    fit_error = partial(_fit_error, search, dry_run, now, seed, answers, unschedulable_seconds)
    pre_filtered = search.pre_filter() if cluster.node_count else search.diagnosis()
    if isinstance(pre_filtered, Diagnosis):
        return fit_error(pre_filtered, None)
    fits = search.feasible(pre_filtered)
    on_nominated = _nominated_node(search, pre_filtered, fits, answers)
    if on_nominated is not None:
        return on_nominated
    found = _feasible(search, pre_filtered, fits, start, answers)
    if isinstance(found, Needed):
        return found
    if not len(found.rows):
        return fit_error(found.diagnosis(), pre_filtered)
    return _highest(search, found, seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Feasible:
    """The feasible nodes (int64 rows), with the extenders' weighted scores of these nodes."""

    rows: IntArray
    evaluated_nodes: int
    diagnosis: Callable[[], Diagnosis]
    scores: Mapping[str, IntArray] = field(default_factory=dict)


def _nominated_node(
    search: NodeSearch,
    pre_filtered: PreFiltered,
    fits: BoolArray,
    answers: PodExtenderResults | None,
) -> ScheduleResult | Needed | None:
    """Return the pod's nominated node if the pod fits there (evaluateNominatedNode)."""
    nominee = search.cluster.nominations.get(search.pod.uid)
    if nominee is None or not search.fits_with_nominated(nominee.row, pre_filtered, fits):
        return None
    name = search.cluster.nodes.name(nominee.row)
    if answers is not None and answers.nominee != name:
        return Needed(search.pod, (name,), evaluated_nodes=1, nominated=True)
    if answers is not None and not answers.passes_nominee:
        return None
    return ScheduleResult(
        nominee.row,
        name,
        feasible_nodes=1,
        evaluated_nodes=1,
        scores=None,
        diagnosis=lambda: search.shared_diagnosis(
            pre_filtered, search.rejected_with_nominated(pre_filtered, fits)
        ),
    )


def _feasible(
    search: NodeSearch,
    pre_filtered: PreFiltered,
    fits: BoolArray,
    start: int,
    answers: PodExtenderResults | None,
) -> _Feasible | Needed:
    """Return enough feasible nodes, or the questions that extenders must answer first."""
    cluster = search.cluster
    with_nominated = search.rejected_with_nominated(pre_filtered, fits)
    if with_nominated:
        fits = fits.copy()
        fits[np.concatenate([group.rows for group in with_nominated])] = False
    diagnosis = partial(search.shared_diagnosis, pre_filtered, with_nominated)
    if answers is not None and answers.nodes is not None:
        answer, extended = answers.nodes, answers.nodes.on(cluster)
        rows = np.flatnonzero(fits & extended.passed)
        if len(rows) or (answer.codes != 0).all():
            rejected = fits.nonzero()[0]
            if len(rows) or answer.asked.is_sample:  # the others were not looked at
                rejected = rejected[extended.codes[rejected] >= 0]
            diagnosed = partial(_with_extenders, diagnosis, extended.rejected(rejected))
            scores = {name: column[rows] for name, column in extended.scores.items()}
            return _Feasible(rows, answer.asked.evaluated_nodes, diagnosed, scores)
        if answers.rounds >= MOST_ROUNDS:
            raise ExtenderError(ALWAYS_TAKEN)
    candidates = len(pre_filtered.candidate_rows)
    rows, evaluated_nodes = sampled(fits, cluster, search.pipeline, candidates, start)
    if answers is not None and len(rows):
        names, version = cluster.node_names, cluster.node_set_version
        nodes, is_sample = tuple([names[row] for row in rows.tolist()]), len(rows) < fits.sum()
        return Needed(search.pod, nodes, rows, version, evaluated_nodes, bool(is_sample))
    return _Feasible(rows, evaluated_nodes, diagnosis)


def _highest(search: NodeSearch, found: _Feasible, seed: int) -> ScheduleResult:
    rows, nodes = found.rows, search.cluster.nodes
    if len(rows) == 1:
        row = int(rows[0])
        name = nodes.name(row)
        return ScheduleResult(row, name, 1, found.evaluated_nodes, None, found.diagnosis)
    table = score(search, rows)
    if found.scores:
        table = with_extender_scores(table, found.scores)
    chosen = int(table.best[seed % len(table.best)])
    row, scores = int(rows[chosen]), partial(table.by_node, chosen=chosen)
    evaluated, diagnosis = found.evaluated_nodes, found.diagnosis
    name, score_of = nodes.name(row), partial(table.of_row, rows)
    return ScheduleResult(row, name, len(rows), evaluated, scores, diagnosis, score_of)


def _with_extenders(
    diagnosis: Callable[[], Diagnosis], filtered_out: tuple[RejectedNodes, ...]
) -> Diagnosis:
    found = diagnosis()
    return replace(found, rejected=(*found.rejected, *filtered_out))


def _fit_error(
    search: NodeSearch,
    dry_run: "Callable[[PreFiltered | None], LiveDryRun]",
    now: float,
    seed: int,
    answers: PodExtenderResults | None,
    unschedulable_seconds: float,
    diagnosis: Diagnosis,
    pre_filtered: PreFiltered | None,
) -> FitError | Needed:
    """Run the PostFilter plugins; return why no node fits (RunPostFilterPlugins)."""
    message = diagnosis.message[:LONGEST_MESSAGE]
    error = FitError(diagnosis, cause_of(search.pod, diagnosis, search.cluster), message)
    if not diagnosis.total:
        return error
    state = PostFilterState(
        search.pod,
        diagnosis,
        search.cluster,
        dry_run(pre_filtered),
        search.pipeline.preemption,
        now,
        seed,
        preempt_extenders=answers is not None and answers.preempts,
        processed=answers.processed if answers is not None else None,
        unschedulable_seconds=unschedulable_seconds,
    )
    metrics = search.pipeline.metrics
    with metrics.all_at(ExtensionPoint.POST_FILTER):
        outcome, last = _post_filter(search.pipeline, state, error)
    metrics.ended_with(ExtensionPoint.POST_FILTER, status_of(last))
    return outcome


def _post_filter(
    pipeline: Pipeline, state: PostFilterState, error: FitError
) -> tuple[FitError | Needed, object]:
    """Run PostFilter plugins; return the outcome and the last plugin's answer."""
    answer = None
    reasons: list[str] = []
    keeps_nomination = False
    for plugin in pipeline.post_filter:
        answer = run_post_filter(pipeline, plugin, state)
        if isinstance(answer, Nomination):
            message = _with_reasons(error.message, answer.message)
            return replace(error, message=message, nomination=answer), answer
        if isinstance(answer, Candidates):
            return Needed(state.pod, candidates=answer.candidates), answer
        if isinstance(answer, NotEligible) and answer.is_error:
            reasons, keeps_nomination = [answer.reason], True
            break
        reasons.append(answer.reason)
        keeps_nomination |= isinstance(answer, NotEligible)
        if isinstance(answer, Unschedulable) and not answer.resolvable:
            break
    whole = _with_reasons(error.message, *reasons)
    return replace(error, message=whole, keeps_nomination=keeps_nomination), answer


def _with_reasons(message: str, *reasons: str) -> str:
    added = ", ".join(filter(None, reasons))
    return f"{message} {added}".strip()[:LONGEST_MESSAGE]


def tie_break_seed(uid: str, attempt: int, salt: int = 0) -> int:
    """Return a 32-bit number that depends only on uid, attempt and salt."""
    return crc32(f"{uid}/{attempt}/{salt}".encode())


class LiveDryRun:
    """Implements `mooring.framework.post_filter.DryRun` by trials on the live state."""

    def __init__(
        self,
        search: NodeSearch,
        pre_filtered: PreFiltered | None,
        cache: ResultCache,
        seed: int = 0,
    ) -> None:
        self._search = search
        self._pre_filtered = pre_filtered
        self._cache = cache
        self._seed = seed

    @property
    def resource_requests(self) -> Mapping[str, int] | None:
        """The amounts that must be free on a node; None if free amounts alone do not decide."""
        if self._pre_filtered is None:
            return None
        resource_filter = self._search.resource_filter(self._pre_filtered)
        return resource_filter[1] if resource_filter is not None else None

    def depends_on_requests_only(self) -> bool:
        """Return whether other pods affect the pod's filters only by their resource requests."""
        return self._search.depends_on_requests_only()

    def trial(self) -> AbstractContextManager[Trial]:
        """Return a context in which pods can be removed and added; its exit undoes this."""
        return self._search.cluster.trial()

    def rejection(self, row: int) -> tuple[str, ...]:
        """Return why the node rejects the pod in the current trial; () if it does not."""
        search = self._search
        # Both, as RunFilterPluginsWithNominatedPods in framework/runtime/framework.go.
        rejected = search.rejections_with_nominated(row) or search.rejections(row)
        return rejected[0].explanation.reasons_at(0) if rejected else ()

    def place(self, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        """Return {pod uid: row of the best node} if the pods in `without` were removed.

        Returns None if no node fits. Extenders are not called.
        """
        pod, pipeline = self._search.pod, self._search.pipeline
        with self.trial() as trial:
            trial.withdraw(pod.uid)
            for other in without:
                trial.remove(other.uid)
                pause()
            results = self._cache.of(pod, pipeline)
            search = replace(self._search, results=results)
            pre_filtered = search.pre_filter()
            if isinstance(pre_filtered, Diagnosis):
                return None
            found = _feasible(search, pre_filtered, search.feasible(pre_filtered), 0, None)
            if isinstance(found, Needed) or not len(found.rows):
                return None
            return {pod.uid: _highest(search, found, self._seed).row}
