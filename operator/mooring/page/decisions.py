"""What a decision on the live state looks like in full: filters, scores and the node.

A decision changes nothing. It takes about as long as an attempt of the scheduling loop, and is
synchronous.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mooring.engine.filtering import PreFiltered
from mooring.engine.outcome import FitError
from mooring.engine.what_if import WhatIf
from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod
from mooring.state.snapshot import Snapshot

__all__ = ["decision_document"]

_MOST_SCORED: Final = 100
"""Nodes in the table of scores."""
_MOST_REJECTED: Final = 20
"""Rejected nodes that are named for each plugin."""
_MOST_REASONS: Final = 20
"""Reasons that are listed for each plugin."""


def decision_document(
    pod: Pod, pipeline: Pipeline, what_if: WhatIf, *, nodes: int = _MOST_SCORED
) -> tuple[int | None, dict[str, Any]]:
    """The row of the chosen node (None without one), and the decision as JSON values.

    `filters` lists the filters that run for the pod, in order, with the nodes that each rejects and
    those that are left. `scores` has the best nodes, at most `nodes`; it is None if at most one
    node is feasible, because then nothing is scored. Extenders are not called.
    """
    outcome = what_if.decide(pod, pipeline)
    found: dict[str, Any] = {
        "pod": pod.key,
        "profile": pipeline.profile,
        "nodes": what_if.cluster.node_count,
        **_filters(pod, pipeline, what_if),
    }
    if isinstance(outcome, FitError):
        nomination = outcome.nomination
        return None, {
            **found,
            "node": None,
            "feasible": 0,
            "message": outcome.message,
            "cause": outcome.diagnosis.main_reason,
            "nominatedNode": nomination.node if nomination else None,
            "victims": [victim.key for victim in nomination.victims] if nomination else [],
            "scores": None,
        }
    scores = outcome.scores(nodes) if outcome.scores is not None and nodes else None
    return outcome.row, {
        **found,
        "node": outcome.node,
        "feasible": outcome.feasible_nodes,
        "message": None,
        "cause": None,
        "nominatedNode": None,
        "victims": [],
        "scores": None
        if scores is None
        else [
            {"node": node, "total": score.total, "plugins": dict(score.plugins)}
            for node, score in scores.items()
        ],
    }


def _filters(pod: Pod, pipeline: Pipeline, what_if: WhatIf) -> dict[str, Any]:
    """The filters in order, or the rejection by PreFilter plugins, and some rejected nodes."""
    search, cluster = what_if.search(pod, pipeline), what_if.cluster
    pre_filtered = search.pre_filter() if cluster.node_count else search.diagnosis_without_nodes()
    if isinstance(pre_filtered, Diagnosis):
        why = {"plugins": sorted(pre_filtered.plugins), "reason": pre_filtered.pre_filter}
        return {"preFilter": why, "filters": [], "rejected": []}
    diagnosis = search.diagnose(pre_filtered)
    return {
        "preFilter": None,
        "filters": [*_funnel(pipeline, pre_filtered, diagnosis, cluster)],
        "rejected": [
            {"node": node, "plugin": rejection.plugin, "reasons": list(rejection.reasons)}
            for node, rejection in diagnosis.rejections(_MOST_REJECTED).items()
        ],
    }


def _funnel(
    pipeline: Pipeline, pre_filtered: PreFiltered, diagnosis: Diagnosis, cluster: Snapshot
) -> Iterator[dict[str, Any]]:
    """The filters in the order they run, each with what it leaves."""
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
    """One filter; `left` (bool[rows]) loses the nodes that it rejects."""
    reasons: list[dict[str, Any]] = []
    rejected = 0
    if group is not None:
        rejected = len(group.rows)
        left[group.rows] = False
        counted = sorted(group.explanation.nodes_per_reason(), key=lambda found: -found[1])
        reasons = [{"reason": r, "nodes": int(n)} for r, n in counted[:_MOST_REASONS] if n]
    return {"plugin": name, "rejected": rejected, "left": int(left.sum()), "reasons": reasons}
