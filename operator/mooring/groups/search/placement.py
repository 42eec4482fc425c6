"""Finds nodes for all members of a group on the live state (podGroupSchedulingDefaultAlgorithm).

Members are counted where that is exact. If a member has ports, inter-pod terms, spread constraints,
volumes or devices, members are added one by one in a trial.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np

from mooring.framework.diagnosis import Diagnosis
from mooring.groups.search.group_search import Assignment, MembersTrial, Rows, scored
from mooring.groups.search.member_counts import CountingSearch, MemberClass
from mooring.groups.search.member_packing import Order, backtrack
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.scheduling.causes import cause_of
from mooring.scheduling.filtering import NodeSearch
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

_MOST_TRIES: Final = 24
_MOST_BACKTRACKED: Final = 12
_MOST_STEPS: Final = 400
"""The most steps of backtracking, which then gives up; a step places one member in less than a
millisecond."""
_MOST_SPECS: Final = 500
"""The largest number of different specs in a group. A group with more is not placed, because the
search over all nodes runs once for each spec."""
_FEW_TRIALS: Final = 64
"""The most trials of members on nodes with nominated pods before the scores of nodes are compared.
If more are needed, only the node with the best score is tried."""
_MOST_DIAGNOSED: Final = 256
"""The most placed members that the diagnosis of a member without a node considers."""


class GroupSearch(CountingSearch):
    """Finds nodes for all members of a group: by counting if possible, otherwise one by one."""

    def without(self, pods: Collection[Pod]) -> "GroupSearch":
        """Return a copy of the search in which these pods have left their nodes."""
        return GroupSearch(self.searched.without(pods))

    def place(self, candidates: IntArray | None = None) -> Assignment:
        """Find a node in `candidates` for each member (int64 rows; None means all nodes).

        The state is unchanged afterwards. If the budget is spent, the search ends at once.
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
            counted = self.all_counted()
            pause()
            allowed = self.searched.allowed(candidates)
            if counted is None:
                return self._place_in_trial(allowed, trial)
            return self.place_counted(counted, allowed)

    def _place_in_trial(self, allowed: BoolArray, trial: MembersTrial) -> Assignment:
        best: Rows = {}
        why: Diagnosis | None = None
        tries = 0
        for order in self._orders():
            for by_fit in (False, True):
                tries += 1
                left = self._one_try(trial, order.items, allowed, by_fit=by_fit)
                rows = trial.rows
                if why is None and left:
                    why = self.searched.why_not(self.classes[left[0]].pods[-1], allowed)
                trial.clear()
                if not left:
                    return Assignment(rows, len(self.searched.members), tries)
                if len(rows) > len(best):
                    best = rows
            order.failed(left)
            if tries >= _MOST_TRIES or self.searched.budget.spent:
                break
        # No order has succeeded.
        if len(self.searched.members) <= _MOST_BACKTRACKED and not self.searched.budget.spent:
            tries += 1
            found = self._backtrack(allowed, trial)
            if found is not None:
                return Assignment(found, len(self.searched.members), tries)
        cause = why.message if why is not None else ""
        return Assignment(best, len(self.searched.members), tries, cause=cause)

    def _orders(self) -> Iterator[Order]:
        """Yield orders of the classes to try; the caller tells each Order which classes failed."""
        totals = self._totals
        shares = [
            max(
                (a / totals.get(n, 1) for n, a in c.pods[0].spec.demand.resources.items()),
                default=0.0,
            )
            for c in self.classes
        ]
        terms = [len(c.pods[0].spec.affinity.required) for c in self.classes]
        constrained = [_constraints(c.pods[0]) for c in self.classes]
        numbers = range(len(self.classes))
        starts = (
            sorted(numbers, key=lambda i: (terms[i], -shares[i])),
            sorted(numbers, key=lambda i: (-constrained[i], -shares[i])),
            sorted(numbers, key=lambda i: -shares[i]),
            sorted(numbers, key=lambda i: shares[i]),
        )
        for start in dict.fromkeys(tuple(start) for start in starts):
            order = Order(start)
            while not order.exhausted:
                yield order

    @cached_property
    def _totals(self) -> Mapping[str, int]:
        nodes = self.searched.cluster.nodes
        names = {name for c in self.classes for name in c.pods[0].spec.demand.resources}
        return {name: max(int(nodes.allocatable(name).sum()), 1) for name in names}

    def _one_try(
        self, trial: MembersTrial, order: Sequence[int], allowed: BoolArray, *, by_fit: bool
    ) -> list[int]:
        """Place the classes in this order; return the indices of incomplete classes."""
        failed: list[int] = []
        for index in order:
            members = self.classes[index]
            counted = self.counted(members) if len(members.pods) > 1 else None
            if counted is not None:
                at = self.rows_of_class(counted, allowed)
                for pod, row in zip(members.pods, at, strict=False):
                    trial.add(pod, row)
                    pause()
                if len(at) < len(members.pods):
                    failed.append(index)
                continue
            for pod in members.pods:
                found = self._choose(pod, members, allowed, by_fit=by_fit)
                self.searched.budget.spend(1)
                if found is None or self.searched.budget.spent:
                    failed.append(index)
                    break  # the other members of the class are rejected likewise
                trial.add(pod, found)
                pause()
        return failed

    def _feasible(
        self, pod: Pod, members: MemberClass, allowed: BoolArray
    ) -> tuple[NodeSearch, IntArray, frozenset[int]]:
        """Return a search for the pod, the feasible rows, and which of the rows to check again."""
        search = self.searched.search(pod)
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return search, np.zeros(0, np.int64), frozenset()
        fits = search.feasible(pre_filtered) & allowed
        full, unsure = search.full_with_nominated(pre_filtered, fits)
        fits[full] = False
        self.exclude_rejected(fits, members)
        if members.extended is not None:
            fits &= members.extended.passed
        # A nominated pod may need the room on an unsure row. `_fits_beside_nominated` checks this,
        # but takes long.
        return search, np.flatnonzero(fits), frozenset(unsure.tolist())

    def _fits_beside_nominated(self, search: NodeSearch, row: int) -> bool:
        self.searched.budget.spend(1)
        pause()
        return not search.rejections_with_nominated(row)

    def _choose(
        self, pod: Pod, members: MemberClass, allowed: BoolArray, *, by_fit: bool
    ) -> int | None:
        """Return the row of the node with the best score, or with `by_fit` of the fullest node."""
        search, rows, unsure = self._feasible(pod, members, allowed)
        if not by_fit and 0 < len(unsure) * len(self.searched.members) <= _FEW_TRIALS:
            # Scores are normalized over the nodes where the member fits, as for a single pod.
            full = [row for row in unsure if not self._fits_beside_nominated(search, row)]
            rows, unsure = rows[~np.isin(rows, full)], frozenset()
        while len(rows) and not self.searched.budget.spent:
            best = rows
            if by_fit:
                best = rows[[np.argmin(self._slack(pod, rows))]]
            elif len(rows) > 1:
                best = rows[scored(search, rows, members.extended).best]
            # Among equal nodes, prefer a node without nominated pods.
            sure = best[~np.isin(best, [*unsure])] if unsure else best
            if len(sure):
                return int(sure[self.searched.seed % len(sure)])
            row = int(best[self.searched.seed % len(best)])
            if self._fits_beside_nominated(search, row):
                return row
            rows = rows[rows != row]
        return None

    def by_slack(self, pod: Pod, members: MemberClass, allowed: BoolArray) -> Iterator[int]:
        """Yield the rows where the pod fits; the node with the least free amounts comes first."""
        search, rows, unsure = self._feasible(pod, members, allowed)
        for row in rows[np.argsort(self._slack(pod, rows), kind="stable")].tolist():
            if row not in unsure or self._fits_beside_nominated(search, row):
                yield row

    def _slack(self, pod: Pod, rows: IntArray) -> IntArray:
        """Return int64[rows]: a node's free amounts, summed in millionths of all nodes' amounts."""
        nodes, demand = self.searched.cluster.nodes.take(rows), pod.spec.demand.resources
        slack = np.zeros(len(rows), np.int64)
        for name in demand:
            free = nodes.allocatable(name) - nodes.requested(name)
            slack += (free * 1_000_000.0 / self._totals.get(name, 1)).astype(np.int64)
        return slack

    def _backtrack(self, allowed: BoolArray, trial: MembersTrial) -> Rows | None:
        classes = self.classes
        order = next(iter(self._orders())).items
        members = [(pod, classes[index]) for index in order for pod in classes[index].pods]
        moves = _Moves(self, members, allowed, trial)
        budgets = SearchBudget(_MOST_STEPS), self.searched.budget
        found = backtrack(len(members), moves, *budgets)
        return trial.rows if found else None

    def diagnosis(
        self, placed: Mapping[Uid, int], candidates: IntArray | None
    ) -> tuple[Diagnosis, str] | None:
        """Return why the first unplaced member has no node, and the cause in a few words.

        `placed` has the rows of the placed members by uid. Returns None if every member is placed.
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


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Puts members on nodes in a trial, on the fullest nodes first."""

    search: GroupSearch
    members: Sequence[tuple[Pod, MemberClass]]
    allowed: BoolArray
    trial: MembersTrial

    def candidates(self, member: int) -> Iterator[int]:
        """Return the rows of nodes that pass every filter, the fullest node first."""
        return self.search.by_slack(*self.members[member], self.allowed)

    def put(self, member: int, row: int) -> None:
        self.trial.add(self.members[member][0], row)

    def take_back(self) -> None:
        self.trial.drop_last()


def _constraints(pod: Pod) -> int:
    spec = pod.spec
    return spec.affinity.term_count + len(spec.spread) + len(spec.host_ports) + len(pod.volumes)
