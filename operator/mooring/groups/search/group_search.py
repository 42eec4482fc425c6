"""The members to place in a search for a group's nodes, and the trials that place them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, Self

import numpy as np

from mooring.claims.model.resource_claims import Allocation
from mooring.extenders.verdicts import OnRows
from mooring.framework.diagnosis import Diagnosis
from mooring.gpu_cards.card_plugin import assign_devices
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.filtering import NodeSearch
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scoring import ScoreTable, score, with_extender_scores
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

Rows = dict[Uid, int]
"""The row of each placed member's node, by the member's uid."""
Devices = Mapping[Uid, Mapping[str, Allocation]]
"""The allocations of placed members' claims, by the member's uid and the claim's uid."""
_REMOVED_PER_STEP: Final = 40
"""Removing this many pods from their nodes in a trial takes a step of the search's budget."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The best result of a search: nodes for as many members as possible.

    Attributes:
        rows: The row of each placed member's node, by the member's uid.
        wanted: The number of all members.
        tries: How many times the search tried to place all members.
        impossible: True only if the search proved that no solution exists.
        cause: Why members have no node, for example the resources that they lack; "" if unknown.
        devices: The devices that members must get; a member without an entry may get any devices.
    """

    rows: Mapping[Uid, int]
    wanted: int
    tries: int
    impossible: bool = False
    cause: str = ""
    devices: Devices = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every member has a node."""
        return len(self.rows) == self.wanted


class MembersTrial:
    """A dry run on the live state, in which members are put on nodes; its end undoes all changes.

    In the dry run, the group has no nominations, and the pods in `searched.ended` have left their
    nodes.
    """

    def __init__(self, searched: "SearchedMembers") -> None:
        self._searched = searched
        self._cluster = searched.cluster
        self._without = ExitStack()
        self._placed: list[tuple[Pod, int, ExitStack]] = []

    def __enter__(self) -> Self:
        cluster, searched = self._cluster, self._searched
        if searched.ended or len(cluster.nominations):
            trial = self._without.enter_context(cluster.trial())
            for pod in chain(searched.members, searched.others):
                trial.withdraw(pod.uid)
            for pod in searched.ended:
                trial.remove(pod.uid)
            searched.budget.spend(len(searched.ended) // _REMOVED_PER_STEP)
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self._without.close()

    @property
    def rows(self) -> Rows:
        """The row of each placed member's node, by the member's uid, in the order of placement."""
        return {pod.uid: row for pod, row, _ in self._placed}

    def add(self, pod: Pod, row: int) -> None:
        """Put the member on the node of this row, with the devices and volumes it gets there."""
        with ExitStack() as undo:
            undo.enter_context(self._cluster.trial()).add(pod, row)
            assign_devices(self._searched.pipeline.reserve, pod, row)
            self._placed.append((pod, row, undo.pop_all()))

    def drop_last(self) -> None:
        """Remove the member that was added last."""
        self._placed.pop()[2].close()

    def clear(self) -> None:
        """Remove all members that were added."""
        while self._placed:
            self.drop_last()


def without_node(members: Sequence[Pod], cluster: ClusterView) -> list[Pod]:
    """Return the members that are on no node."""
    pause()  # there may be 50,000 members
    columns = cluster.pod_columns
    return [pod for pod in members if columns.slot(pod.uid, nominated=False) is None]


@dataclass(frozen=True, eq=False)
class SearchedMembers:
    """The members to place, and the parameters of the search.

    Attributes:
        members: Members without a node.
        seed: Decides between nodes with equal scores.
        rejected: By a member's uid, the names of nodes where Reserve or Permit rejected it.
        budget: The limit for all searches together.
        others: Members that are not placed now; their nominations are ignored.
        ended: Pods that count as if they had left their nodes.
        extended: By a member's uid, the results of extenders about nodes for this member.
    """

    members: Sequence[Pod]
    pipeline: Pipeline
    cache: ResultCache
    _: KW_ONLY
    seed: int
    rejected: Mapping[str, Collection[str]] = field(default_factory=dict)
    budget: SearchBudget = field(default_factory=SearchBudget)
    others: Sequence[Pod] = ()
    ended: Collection[Pod] = ()
    extended: Mapping[Uid, OnRows] = field(default_factory=dict)

    @property
    def cluster(self) -> ClusterView:
        """The cluster in which nodes are searched."""
        return self.cache.cluster

    @cached_property
    def lowest(self) -> Pod:
        """A member with the lowest priority."""
        return min(self.members, key=lambda pod: pod.spec.priority)

    def trial(self) -> MembersTrial:
        """Return a trial in which no member is nominated, and no member is placed yet."""
        return MembersTrial(self)

    def without(self, pods: Collection[Pod]) -> "SearchedMembers":
        """Return a copy of the search in which these pods have left their nodes."""
        # Each trial of the copy takes about 40 microseconds to remove a pod.
        return replace(self, ended=pods)

    @property
    def extended_rejects(self) -> bool:
        """Whether extenders have filtered out a node for a member."""
        return any((nodes.codes > 0).any() for nodes in {*self.extended.values()})

    def search(self, pod: Pod) -> NodeSearch:
        """Return a search for nodes for one member, in the present state of the trial."""
        results = self.cache.of(pod, self.pipeline)
        return NodeSearch(pod, self.pipeline, self.cluster, results)

    def allowed(self, candidates: IntArray | None) -> BoolArray:
        """Return bool[rows]: True for existing nodes among the candidates; None means all nodes."""
        allowed = np.full(len(self.cluster.nodes), candidates is None)
        if candidates is not None:
            allowed[candidates] = True
        return allowed & self.cluster.nodes.present

    def why_not(self, pod: Pod, allowed: BoolArray) -> Diagnosis:
        """Return why the nodes in `allowed` (bool[rows]) reject the pod, in the present trial."""
        search = self.search(pod)
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return pre_filtered
        rows = np.flatnonzero(allowed)
        fits = search.feasible(pre_filtered) & allowed
        taken = search.rejected_with_nominated(pre_filtered, fits)
        if len(rows) == self.cluster.node_count:
            diagnosis = search.shared_diagnosis(pre_filtered, taken)
        else:
            diagnosis = search.diagnosis_of(pre_filtered, rows)
            diagnosis = replace(diagnosis, rejected=(*diagnosis.rejected, *taken))
        extended = self.extended.get(pod.uid)
        if extended is None:
            return diagnosis
        filtered_out = extended.rejected(np.flatnonzero(fits), named=True)
        return replace(diagnosis, rejected=(*diagnosis.rejected, *filtered_out))


def scored(search: NodeSearch, rows: IntArray, extended: OnRows | None) -> ScoreTable:
    """Return the scores of the rows' nodes; the extenders' scores in `extended` are added."""
    table = score(search, rows)
    if extended is None or not extended.scores:
        return table
    return with_extender_scores(table, {name: of[rows] for name, of in extended.scores.items()})


def mask_of(rows: IntArray, length: int) -> BoolArray:
    """Return bool[length]: True at the given rows."""
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask
