"""Calls extenders about the members of a group, before nodes for all of them are searched for.

Nothing is held meanwhile: the answers are kept (`answers`), and the decision about the group runs
all filters again. Members that need each other fit nowhere before the others are placed, so the
nodes that are sent pass the filters that regard a node by itself: affinity to pods, topology spread
and volumes are left to the decision.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from mooring.engine.extenders.answers import (
    MOST_CALLS,
    ExtenderAnswers,
    FilterCall,
    interested,
)
from mooring.engine.extenders.client import ExtenderError
from mooring.engine.extenders.extenders import Extenders, PodGone
from mooring.engine.filtering import NodeSearch
from mooring.engine.groups.answers import MOST_DIFFERENT, GroupAnswers, is_filtered_or_scored
from mooring.engine.result_cache import ResultCache
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.extender import Extender
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray

__all__ = ["GroupCalls"]

_MOST_AT_ONCE: Final = 16
"""Members of one group about which extenders are called at a time.

It is half of the calls that one extender gets at a time, so that other pods get the other half.
"""


class GroupCalls:
    """The calls in one attempt of a group; members that no extender filters are passed over.

    `still_wanted` says whether a member has still to be decided about. An extender that fails for
    one member and is ignored is not called for the others again by the same `run`, or the next one
    if that has given way, because a group of thousands would wait for its time-out each time.
    """

    def __init__(
        self,
        extenders: Extenders,
        pipeline: Pipeline,
        cluster: ClusterView,
        cache: ResultCache,
        still_wanted: Callable[[Pod], bool] = lambda _pod: True,
    ) -> None:
        self.answers = GroupAnswers()
        self.gone = set[str]()
        """The uids of members that do not exist any more."""
        self._extenders = extenders
        self._pipeline = pipeline
        self._cluster = cluster
        self._cache = cache
        self._still_wanted = still_wanted
        self._ignored: frozenset[tuple[Extender, str]] = frozenset()
        self._gave_way = False
        self._rounds = 0

    def lacks(self, pod: Pod) -> bool:
        """Return whether extenders must be called about the pod."""
        return is_filtered_or_scored(self._pipeline, pod) and self.answers.lacks(pod)

    def drop_lost(self, pods: Iterable[Pod]) -> bool:
        """Drop answers of which a node that passed fits no more, a few times in one attempt.

        Return whether there are any, so that the extenders must be called again. There are pauses,
        because each member may have requirements of its own.
        """
        self._rounds += 1
        if self._rounds >= MOST_CALLS:
            return False
        lost = dict[tuple[object, object], bool]()
        for pod in pods:
            key = pod.spec, self.answers.answer_of(pod)
            if key not in lost:
                lost[key] = self.answers.lost(pod, self._fits(pod), self._cluster)
            if lost[key]:
                self.answers.drop(pod)
            pause()
        return any(lost.values())

    async def run(
        self,
        pods: Iterable[Pod],
        seconds: float,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Call the extenders about these members, several at a time.

        Once `gives_way` returns True, no more calls begin. Return False if that left members out.

        Raises:
            ExtenderError: an extender fails and may not be ignored, not all have answered within
                so many seconds, or they answer in too many different ways.
            PluginFailed: by a filter.
        """
        remaining = deque(pod for pod in pods if is_filtered_or_scored(self._pipeline, pod))
        members = len(remaining)
        if not self._gave_way:
            self._ignored = frozenset()
        self._gave_way = False
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                for _ in range(min(members, _MOST_AT_ONCE)):
                    tasks.create_task(self._call(remaining, gives_way))
        except TimeoutError:
            whom = f"all {members} members" if members > 1 else "the only member"
            text = f"the extenders have not answered about {whom} in time"
            raise ExtenderError(text) from None
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._gave_way = bool(remaining)
        return not remaining

    async def _call(self, remaining: deque[Pod], gives_way: Callable[[], bool]) -> None:
        """Call the extenders about one member after the other, until none is left.

        It calls them about one at least, so that a group that gives way comes to its end.
        """
        while remaining:
            pod = remaining.popleft()
            await asyncio.sleep(0)  # where no extender is called, nothing below waits
            if not self._still_wanted(pod):
                continue
            nodes = self._nodes(pod)
            if not nodes:
                self.answers.put(pod, ExtenderAnswers())
                continue
            extenders = interested(self._pipeline, pod)
            call = FilterCall(nodes, len(nodes), without=self._ignored, for_group=True)
            try:
                answers = await self._extenders.answer(
                    call, extenders, pod, ExtenderAnswers(), self._cluster
                )
            except PodGone:
                self.gone.add(pod.uid)
                continue
            self._ignored |= answers.ignored
            self.answers.put(pod, answers)
            if self.answers.too_many:
                text = f"extenders answer in more than {MOST_DIFFERENT} different ways about its"
                raise ExtenderError(f"{text} members, which cannot be placed together")
            if gives_way():
                return

    def _nodes(self, pod: Pod) -> tuple[str, ...]:
        names = self._cluster.node_names
        return tuple([names[row] for row in np.flatnonzero(self._fits(pod)).tolist()])

    def _fits(self, pod: Pod) -> BoolArray:
        """Return the nodes that pass the filters that regard a node by itself: bool[rows]."""
        cluster = self._cluster
        nowhere = np.zeros(len(cluster.nodes), np.bool_)
        if not cluster.node_count:
            return nowhere
        results = self._cache.of(pod, self._pipeline, cluster)
        pre_filtered = NodeSearch(pod, self._pipeline, cluster, results).pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return nowhere
        if not pre_filtered.restricted_by:
            return results.fits
        nowhere[pre_filtered.candidate_rows] = True
        return results.fits & nowhere
