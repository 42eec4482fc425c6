"""Plans for a group: a node for each member, which `reserve_members` assumes."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mooring.engine.assumed import PodRejected, assume_and_reserve
from mooring.engine.extenders.answers import Answers
from mooring.engine.groups.budget import SearchBudget
from mooring.engine.groups.decision import GroupDecision, decide_group
from mooring.engine.groups.search import SearchedMembers, without_node
from mooring.engine.result_cache import ResultCache
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.pod_groups import PodGroupState

__all__ = ["GroupPlan", "GroupPlanner", "reserve_members"]

_MOST_PLANS: Final = 8
"""In one attempt: Reserve or Permit may reject a member each time."""
_ALL_ON_NODES: Final = "all members are on nodes"


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """The nodes that were found for members of a group.

    `members` are all that were searched for.
    """

    decision: GroupDecision
    members: Sequence[Pod]

    @property
    def placed(self) -> list[tuple[Pod, int]]:
        """The members that get a node, and its row, in the order in which they were placed.

        One may fit only beside another that was placed before it.
        """
        members = {pod.uid: pod for pod in self.members}
        return [(members[uid], row) for uid, row in self.decision.rows.items()]


class GroupPlanner:
    """Makes plans in one attempt about a group, until one of them can be committed.

    All plans share one budget. `answers` are those of extenders about the members that they filter
    or score nodes for.
    """

    def __init__(
        self,
        group: PodGroupState,
        members: Sequence[Pod],
        pipeline: Pipeline,
        cluster: ClusterView,
        cache: ResultCache,
        *,
        seed: int,
        answers: Answers | None = None,
    ) -> None:
        self.budget = SearchBudget()
        self._group = group
        self._members = members
        self._pipeline = pipeline
        self._cluster = cluster
        self._cache = cache
        self._seed = seed
        self._answers = answers
        self._plans_left = _MOST_PLANS
        self._rejected: dict[str, set[str]] = {}
        """By uid of a member the names of nodes that Reserve or Permit rejected."""
        self._message = ""
        self._plugins = frozenset[str]()

    def plan(self) -> GroupPlan | GroupDecision:
        """Return a plan for what the state is now, or the decision that says why there is none."""
        while self._plans_left:
            self._plans_left -= 1
            members = without_node(self._members, self._cluster)
            if not members:
                return GroupDecision({}, message=_ALL_ON_NODES)
            extended = self._answers.on(self._cluster) if self._answers is not None else {}
            searched = SearchedMembers(
                members,
                self._pipeline,
                self._cluster,
                self._cache,
                seed=self._seed,
                rejected=self._rejected,
                budget=self.budget,
                extended=extended,
            )
            decision = decide_group(self._group, searched)
            if decision.rows:
                return GroupPlan(decision, members)
            if not self._rejected:
                return decision
            break
        return GroupDecision(
            {},
            message=self._message,
            plugins=self._plugins,
            bounded=True,
        )

    def rejected(self, failure: PodRejected) -> None:
        """Note why the last plan was not committed; the next one avoids the node that rejects.

        Raises:
            PodRejected: if it is not about a decision that goes on.
        """
        if failure.pod is None:
            raise failure
        self._plugins |= {failure.plugin}
        self._rejected.setdefault(failure.pod.uid, set()).add(failure.node)
        self._message = f"member {failure.pod.key}: {failure.message}"


def reserve_members(
    plan: GroupPlan, pipeline: Pipeline, state: ClusterState
) -> list[tuple[Pod, str, ExitStack]]:
    """Assume and reserve all members on their rows, and return them with the names of the nodes.

    Closing its stack undoes that for one member. If this is cancelled in a pause, no member stays
    assumed.

    Raises:
        PodRejected: by a Reserve plugin; no member is assumed any more.
        PluginFailed: if one of them fails; the same.
    """
    reserved = list[tuple[Pod, str, ExitStack]]()
    with ExitStack() as undo:
        for pod, row in plan.placed:
            node = state.nodes.names[row]
            stack = assume_and_reserve(pod, row, pipeline, state)
            undo.callback(stack.close)
            reserved.append((pod, node, stack))
            pause()
        undo.pop_all()
    return reserved
