"""Shows a whole decision on the live state: filters, scores and the node.

Nothing changes. A decision takes about as long as an attempt of the scheduling loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mooring.framework.decision import Decision, Rejection
from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.model.pod import Pod
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.filtering import PreFiltered
from mooring.scheduling.outcome import FitError, ScheduleResult, decision_of
from mooring.scheduling.what_if import WhatIf
from mooring.state.cluster_view import ClusterView

_MOST_SCORED: Final = 100
"""The most nodes in the table of scores; it has the best nodes."""
_MOST_REJECTED: Final = 20
"""The most rejected nodes that are named for each plugin."""
_MOST_REASONS: Final = 20
"""The most reasons that are listed for each plugin; reasons of many nodes come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInFull(Decision):
    """A decision with the results of its filters and scores.

    Attributes:
        nodes: The number of nodes of the cluster.
        feasible: The number of nodes that fit.
        pre_filter: The PreFilter plugins that rejected all nodes, and why; else None.
        filters: The filters that ran for the pod, in order. Each filter has the number of nodes
            that it rejects, and the number that remains.
    """

    nodes: int
    feasible: int
    cause: str | None
    pre_filter: Mapping[str, Any] | None
    filters: Sequence[Mapping[str, Any]]


def decision_in_full(
    pod: Pod, pipeline: Pipeline, what_if: WhatIf, *, nodes: int = _MOST_SCORED
) -> tuple[int | None, DecisionInFull]:
    """Decide without extenders; return the row of the chosen node, or None, and the decision.

    The decision has the scores of the best `nodes` nodes; None if at most one node is feasible. If
    `nodes` is 0, it has neither scores nor results of filters.
    """
    outcome = what_if.decide(pod, pipeline)
    decision = decision_of(pod, pipeline, outcome, nodes)
    full = _filters(pod, pipeline, what_if) if nodes else (None, [], dict[str, Rejection]())
    pre_filter, filters, rejections = full
    placed = outcome if isinstance(outcome, ScheduleResult) else None
    return placed.row if placed is not None else None, DecisionInFull(
        pod=decision.pod,
        profile=decision.profile,
        profile_generation=decision.profile_generation,
        kubernetes_version=decision.kubernetes_version,
        node=decision.node,
        nominated_node=decision.nominated_node,
        victims=decision.victims,
        scores=decision.scores or None,
        rejections=rejections,
        message=decision.message,
        nodes=what_if.cluster.node_count,
        feasible=placed.feasible_nodes if placed is not None else 0,
        cause=outcome.cause if isinstance(outcome, FitError) else None,
        pre_filter=pre_filter,
        filters=filters,
    )


def _filters(
    pod: Pod, pipeline: Pipeline, what_if: WhatIf
) -> tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]], Mapping[str, Rejection]]:
    """Return the fields `pre_filter`, `filters` and `rejections` of a DecisionInFull."""
    search, cluster = what_if.search(pod, pipeline), what_if.cluster
    pre_filtered = search.pre_filter() if cluster.node_count else search.diagnosis()
    if isinstance(pre_filtered, Diagnosis):
        why = {"plugins": sorted(pre_filtered.plugins), "reason": pre_filtered.pre_filter}
        return why, [], {}
    diagnosis = search.diagnose(pre_filtered)
    steps = [*_funnel(pipeline, pre_filtered, diagnosis, cluster)]
    return None, steps, diagnosis.rejections(_MOST_REJECTED)


def _funnel(
    pipeline: Pipeline, pre_filtered: PreFiltered, diagnosis: Diagnosis, cluster: ClusterView
) -> Iterator[dict[str, Any]]:
    left = np.zeros(len(cluster.nodes), np.bool_)
    left[cluster.nodes_in_order] = True
    groups = list(diagnosis.rejected)
    named = len(pre_filtered.candidate_rows) < cluster.node_count
    if named:  # the first group has the nodes that PreFilter plugins left out
        yield _step("PreFilter", groups.pop(0), left)
    for plugin in pipeline.filters:
        if pre_filtered.runs(plugin):
            group = next((group for group in groups if group.plugin == plugin.name), None)
            yield _step(plugin.name, group, left)


def _step(name: str, group: RejectedNodes | None, left: Any) -> dict[str, Any]:
    reasons: list[dict[str, Any]] = []
    rejected = 0
    if group is not None:
        rejected = len(group.rows)
        # The caller's array: the next filters see only the nodes that remain.
        left[group.rows] = False
        counted = sorted(group.explanation.nodes_per_reason(), key=lambda found: -found[1])
        reasons = [{"reason": r, "nodes": int(n)} for r, n in counted[:_MOST_REASONS] if n]
    return {"plugin": name, "rejected": rejected, "left": int(left.sum()), "reasons": reasons}
