"""Plans for a group, and how they are committed: a node for each member, or none for any."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mooring.engine.assumed import PodRejected
from mooring.engine.extenders.answers import Answers
from mooring.engine.groups.budget import SearchBudget
from mooring.engine.groups.decision import GroupDecision, decide_group
from mooring.engine.groups.search import SearchedMembers, without_node
from mooring.engine.result_cache import ResultCache
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod, Uid
from mooring.state.cluster_view import ClusterView
from mooring.state.pod_groups import PodGroupState

__all__ = ["place_group"]

_MOST_PLANS: Final = 8
"""In one attempt: Reserve or Permit may reject a member each time."""
_ALL_ON_NODES: Final = "all members are on nodes"


def place_group(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cluster: ClusterView,
    cache: ResultCache,
    commit: Callable[[Mapping[Uid, int]], object],
    *,
    seed: int,
    answers: Answers | None = None,
) -> GroupDecision:
    """Find a row for each member, and commit that; return the decision, or why there is none.

    `commit` is called with the rows by uid. Where a Reserve or Permit plugin rejects a member, it
    raises `PodRejected`, and another plan avoids that node. All plans share one budget. `answers`
    are those of extenders about the members that they filter or score nodes for.
    """
    budget, rejected = SearchBudget(), dict[str, set[str]]()
    message, plugins = "", frozenset[str]()
    if not (members := without_node(members, cluster)):
        return GroupDecision({}, message=_ALL_ON_NODES)
    for _ in range(_MOST_PLANS):
        searched = SearchedMembers(
            members,
            pipeline,
            cluster,
            cache,
            seed=seed,
            rejected=rejected,
            budget=budget,
            extended=answers.on(cluster) if answers is not None else {},
        )
        decision = decide_group(group, searched)
        if not decision.rows and not rejected:
            return decision
        if not decision.rows:
            break
        try:
            commit(decision.rows)
        except PodRejected as rejection:
            pod = rejection.pod
            rejected.setdefault(pod.uid, set()).add(rejection.node)
            plugins |= {rejection.plugin}
            message = f"member {pod.key}: {rejection.message}"
        else:
            return decision
    return GroupDecision({}, message=message, plugins=plugins, bounded=True)
