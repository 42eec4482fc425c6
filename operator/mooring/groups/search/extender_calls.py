"""Asks extenders about the members of a group before the search for nodes.

Extenders get the nodes that pass the filters of single nodes. The search itself then also checks
pod affinity, topology spread and volumes.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from mooring.extenders.verdicts import MOST_ROUNDS, ExtenderResults, Needed, interested
from mooring.framework.diagnosis import Diagnosis
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.filtering import NodeSearch
from mooring.scheduling.result_cache import ResultCache
from mooring.state.view import BoolArray

_MOST_AT_A_TIME: Final = 128
"""The most members about which extenders are asked at once; then the time limit is checked."""


def needed_about(
    members: Sequence[Pod],
    pipeline: Pipeline,
    cache: ResultCache,
    answers: ExtenderResults | None,
    *,
    again: bool = False,
) -> Sequence[Needed]:
    """Return the next calls of extenders about these members; empty if no call is needed.

    `answers` None means that no extender is called. With `again`, ask again about members for whom
    a filter now rejects a node that the extenders accepted.
    """
    if answers is None:
        return ()
    cluster = cache.cluster
    for pod in members if again else ():
        known = answers.about(pod)
        if known.nodes is not None and known.rounds < MOST_ROUNDS:
            rows = known.nodes.asked.rows_in(cluster)[known.nodes.codes == 0]
            if (rows < 0).any() or not _fits(pod, pipeline, cache)[rows].all():
                known.nodes = None
        pause()
    needed = list[Needed]()
    for pod in members:
        if answers.lack(pod) and _is_filtered_or_scored(pod, pipeline):
            rows = np.flatnonzero(_fits(pod, pipeline, cache))
            names, version = cluster.node_names, cluster.node_set_version
            nodes = tuple([names[row] for row in rows.tolist()])
            needed.append(Needed(pod, nodes, rows, version, len(nodes)))
            if len(needed) == _MOST_AT_A_TIME:
                break
        pause()
    return needed


def _is_filtered_or_scored(pod: Pod, pipeline: Pipeline) -> bool:
    found = interested(pipeline, pod)
    return any(extender.filter_verb or extender.prioritize_verb for extender in found)


def _fits(pod: Pod, pipeline: Pipeline, cache: ResultCache) -> BoolArray:
    cluster = cache.cluster
    nowhere = np.zeros(len(cluster.nodes), np.bool_)
    if not cluster.node_count:
        return nowhere
    results = cache.of(pod, pipeline)
    pre_filtered = NodeSearch(pod, pipeline, cluster, results).pre_filter()
    if isinstance(pre_filtered, Diagnosis):
        return nowhere
    if not pre_filtered.restricted_by:
        return results.fits
    nowhere[pre_filtered.candidate_rows] = True
    return results.fits & nowhere
