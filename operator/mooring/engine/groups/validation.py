"""Says whether members of a group still fit where a search placed them, after a pause."""

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain

from mooring.engine.groups.counting import CountingSearch, FreeForMembers
from mooring.engine.groups.search import SearchedMembers
from mooring.framework.card_plugin import assign_cards
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause, pauses

__all__ = ["Validation"]


class Validation:
    """Looks at given rows only: by counting where all members are counted, else by all filters."""

    def __init__(self, searched: SearchedMembers, counting: CountingSearch) -> None:
        self._searched = searched
        self._cluster = searched.cluster
        self._counting = counting
        self._began = self._looked_at = pauses()
        """The pauses before this was made, and before what is free was looked at."""
        self._free: FreeForMembers | None = None

    def still_fits(self, pod: Pod, row: int) -> bool:
        """Return whether nodes are as they were, and every filter accepts the member on this one.

        A member that fits counts as assumed from now on. One that another scheduler has bound
        meanwhile does not fit. Nothing has changed as long as there was no pause.
        """
        searched = self._searched
        if pauses() == self._began:
            return True
        if searched.is_outdated((pod,)):
            return False
        if self._looked_at != pauses():
            self._looked_at = pauses()
            self._free = self._counting.free_for_members()
        return self._free.take(pod, row) if self._free is not None else self.fits(pod, row)

    def fits(self, pod: Pod, row: int) -> bool:
        """Return whether every filter accepts the member on the row, also with those nominated.

        Nominations of members do not count.
        """
        search = self._searched.search(pod)
        if search.rejections(row):
            return False
        at_row = self._cluster.nominations.at(row, pod.spec.priority, pod.uid)
        nominated = [other for other in at_row if other.uid not in self._uids]
        if not nominated:
            return True
        with self._cluster.trial() as trial:
            for other in nominated:
                trial.add(other, row)
                assign_cards(self._searched.pipeline.reserve, other, row)
            return not search.rejections(row)

    @cached_property
    def _uids(self) -> frozenset[Uid]:
        return frozenset(pod.uid for pod in chain(self._searched.members, self._searched.others))

    def fit_once_ended(self, rows: Mapping[Uid, int], pods: Collection[Pod]) -> bool:
        """Return whether the members still fit on these rows (by uid), once these pods have ended.

        To be called after a search with pauses. Members that are not counted are added one after
        the other, in the order of the mapping.

        Raises:
            DecisionOutdated: in a pause.
        """
        by_uid = {pod.uid: pod for pod in self._searched.members}
        if self._counting.is_counted():
            free = self._counting.free_for_members(self._cluster.pod_columns.slots_of(pods))
            return free is not None and all(free.take(by_uid[uid], rows[uid]) for uid in rows)
        searched = self._searched.without(pods)
        validation = Validation(searched, CountingSearch(searched))
        with searched.trial() as trial:
            for uid, row in rows.items():
                if not validation.fits(by_uid[uid], row):
                    return False
                trial.add(by_uid[uid], row)
                pause()
        return True
