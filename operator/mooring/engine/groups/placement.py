"""Finds nodes for all members of a group on the live state (podGroupSchedulingDefaultAlgorithm).

Members are counted where that is possible (`counting`), else placed in trials (`trials`).
"""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from mooring.engine.causes import cause_of
from mooring.engine.groups.counting import CountingSearch
from mooring.engine.groups.search import Assignment, SearchedMembers
from mooring.engine.groups.trials import TrialSearch
from mooring.framework.diagnosis import Diagnosis
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.state.columns import IntArray

__all__ = ["GroupSearch"]

_MOST_SPECS: Final = 500
"""Different specs of members that are placed together; each is a search over all nodes."""
_MOST_DIAGNOSED: Final = 256
"""If more members are placed, the diagnosis of the others does not count them."""


class GroupSearch:
    """Searches for nodes for all these members."""

    def __init__(self, searched: SearchedMembers) -> None:
        self.searched = searched
        self.counting = CountingSearch(searched)
        self._trials = TrialSearch(searched, self.counting)

    def without(self, pods: Collection[Pod]) -> "GroupSearch":
        """Return the same search, as if these pods had left their nodes."""
        return GroupSearch(self.searched.without(pods))

    def place(self, candidates: IntArray | None = None) -> Assignment:
        """Return nodes for the members on these rows (int64), or on any node.

        The state is as before afterwards. Once the budget is spent, hardly anything is tried.
        """
        members, extended = self.searched.members, self.searched.extended
        pause()  # there may be 50,000 members
        specs = len({(pod.spec, extended.get(pod.uid)) for pod in members})
        if specs > _MOST_SPECS:
            what = "specs or answers of extenders" if extended else "specs"
            cause = f"its members have {specs} different {what}, and at most {_MOST_SPECS} can be"
            return Assignment({}, len(members), 0, cause=f"{cause} placed together")
        pause()
        with self.searched.trial() as trial:
            counted = self.counting.all_counted()
            pause()
            allowed = self.searched.allowed(candidates)
            if counted is None:
                return self._trials.place(allowed, trial)
            return self.counting.place(counted, allowed)

    def diagnosis(
        self, placed: Mapping[Uid, int], candidates: IntArray | None
    ) -> tuple[Diagnosis, str] | None:
        """Return why the candidate rows reject the first member that is not placed, and its cause.

        The others are on their nodes then. None if all members are placed.
        """
        searched = self.searched
        left = next((pod for pod in searched.members if pod.uid not in placed), None)
        if left is None:
            return None
        with searched.trial() as trial:
            others = (pod for pod in searched.members if pod.uid in placed)
            for pod in islice(others, _MOST_DIAGNOSED):
                trial.add(pod, placed[pod.uid])
            diagnosis = searched.why_not(left, searched.allowed(candidates))
            return diagnosis, cause_of(left, diagnosis, searched.cluster)
