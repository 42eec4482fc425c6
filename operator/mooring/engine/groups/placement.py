"""Finds nodes for all members of a group on the live state (podGroupSchedulingDefaultAlgorithm).

Members whose filters depend on other pods through requests alone are counted on columns
(`packing`), however many there are. If any member has ports, inter-pod terms, spread
constraints, volumes or devices, the members are placed in trials, and such members one by one.
Every filter of the profile holds for each member beside all those placed before it.

A long search pauses (`slices`). Its trial is closed then, because other tasks change the cluster,
and made again afterwards. What it finds may not fit any more: the plan knows (`plan`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, Self, TypeVar

import numpy as np

from mooring.engine.filtering import Search
from mooring.engine.groups.answers import ExtendedNodes
from mooring.engine.groups.packing import Item, Order, Packing, pack, pack_in_slices
from mooring.engine.groups.slices import SearchBudget, Slices, run_whole
from mooring.engine.result_cache import ResultCache
from mooring.engine.scoring import ScoreTable, score, with_extender_scores
from mooring.framework.card_plugin import assign_cards
from mooring.framework.diagnosis import EXTENDER, Diagnosis
from mooring.framework.pipeline import Pipeline
from mooring.framework.runtime import run_resource_requests
from mooring.model.pod import Pod, Uid
from mooring.model.shape import PodShape
from mooring.model.volumes import PodVolume
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = ["Assignment", "DecisionOutdated", "FreeForMembers", "GroupSearch", "without_node"]

_MOST_TRIES: Final = 24
_COUNTING: Final = 5
"""The cost of placing the members of one class by counting; it takes some milliseconds."""
_MOST_SHAPES: Final = 500
"""Different specs of members that are placed together; each is a search over all nodes."""
_MOST_BACKTRACKED: Final = 12
_MOST_STEPS: Final = 400
"""Members that backtracking places before it gives up; a step takes a fraction of a millisecond."""
_MOST_DIAGNOSED: Final = 256
"""If more members are placed, the diagnosis of the others does not count them."""
_PODS: Final = "pods"
_UNITS: Final = {"cpu": (1000, "CPUs"), "memory": (2**30, "GiB of memory"), _PODS: (1, "pod slots")}

_Fields = tuple[
    PodShape,
    frozenset[tuple[str, str]],
    tuple[PodVolume, ...],
    Any,
    frozenset[str],
    ExtendedNodes | None,
]

Rows = dict[Uid, int]
"""The row of each placed member, by its uid."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The most members that one try placed.

    `impossible` says that no placement of all members exists. If it is False and some are left,
    none was found in so many `tries`. `cause` says in a few words what the others lack.
    """

    rows: Mapping[Uid, int]
    wanted: int
    tries: int
    impossible: bool = False
    cause: str = ""

    @property
    def complete(self) -> bool:
        """Whether all members are placed."""
        return len(self.rows) == self.wanted


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Members that every filter and extender treats alike.

    `rejected` are nodes that Reserve or Permit reject; `extended` is None if no extender filters or
    scores nodes for them.
    """

    rejected: frozenset[str]
    extended: ExtendedNodes | None = None
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """A class of which only requests depend on other pods, in the present state of the trial."""

    search: Search
    needs: Mapping[str, int]
    eligible: BoolArray


class DecisionOutdated(Exception):  # noqa: N818 - says what happened; the decision begins anew
    """In a pause the cluster changed so much that what was found before is of no use."""


class _Beside:
    """The members that are placed so far, in a trial in which no member is nominated to a node.

    `others` are members that are not searched for, and not nominated in the trial either; the pods
    in `ended` are on no node. The trial is open inside `with`, but for pauses.
    """

    def __init__(
        self,
        members: Sequence[Pod],
        others: Sequence[Pod],
        ended: Collection[Pod],
        pipeline: Pipeline,
        cluster: Snapshot,
        budget: SearchBudget,
        version: object,
    ) -> None:
        self._members = members
        self._others = others
        self._ended = ended
        self._pipeline = pipeline
        self._cluster = cluster
        self._budget = budget
        self._version = version
        self._without = ExitStack()
        self._placed: list[tuple[Pod, int, ExitStack]] = []

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def rows(self) -> Rows:
        """The row of each member that is placed, in the order in which they were placed."""
        return {pod.uid: row for pod, row, _ in self._placed}

    def add(self, pod: Pod, row: int) -> None:
        """The member is on the row, and on the GPU cards that it would get there."""
        self._placed.append((pod, row, self._added(pod, row)))

    def drop_last(self) -> None:
        """The member that was added last is on no node."""
        self._placed.pop()[2].close()

    def clear(self) -> None:
        """No member is on a node."""
        while self._placed:
            self.drop_last()

    def pause(self) -> Slices[None]:
        """Pauses if that is due.

        Raises:
            DecisionOutdated: the rows of nodes, or topology domains, are not what they were, or a
                member got a node.
        """
        budget = self._budget
        if not budget.pause_due:
            return
        closing = budget.now()
        self._close()
        closed, waiting = budget.now(), without_node(self._members, self._cluster)
        yield
        if _version(self._cluster) != self._version:
            raise DecisionOutdated
        if without_node(waiting, self._cluster) != waiting:
            raise DecisionOutdated
        opening = budget.now()
        self._open()
        budget.resumed(budget.now() - opening + closed - closing)

    def _open(self) -> None:
        cluster = self._cluster
        if self._ended or len(cluster.nominations):
            trial = self._without.enter_context(cluster.trial())
            for pod in chain(self._members, self._others):
                trial.withdraw(pod.uid)
            for pod in self._ended:
                if cluster.is_placed(pod):
                    trial.remove(pod.uid)
        placed, self._placed = self._placed, []
        for pod, row, _ in placed:
            self.add(pod, row)

    def _close(self) -> None:
        for _, _, added in reversed(self._placed):
            added.close()
        self._without.close()

    def _added(self, pod: Pod, row: int) -> ExitStack:
        with ExitStack() as undo:
            undo.enter_context(self._cluster.trial()).add(pod, row)
            assign_cards(self._pipeline.reserve, pod, row)
            return undo.pop_all()


def without_node(members: Sequence[Pod], cluster: Snapshot) -> list[Pod]:
    """The members that are on no node; another scheduler, or a former leader, may bind some."""
    columns = cluster.pod_columns
    return [pod for pod in members if columns.slot(pod.uid, nominated=False) is None]


def _version(cluster: Snapshot) -> tuple[int, int]:
    """Changes with the nodes that exist, their rows, labels and taints."""
    return cluster.nodes.topology_version, len(cluster.nodes)


class GroupSearch:
    """The search for nodes for these members, which are not placed and have one pipeline.

    `rejected` has the names of the nodes on which a Reserve or Permit plugin rejected a member, by
    its uid: another node may have got the row since.
    `budget` bounds what all calls of `place` cost together; without one, the search has its own.
    `others` are members that no nodes are searched for: their nominations do not count either. The
    pods in `ended` count as if they had left their nodes. `extended` is what extenders say of the
    rows, by the uids of the members that they filter or score nodes for.
    """

    def __init__(
        self,
        members: Sequence[Pod],
        pipeline: Pipeline,
        cluster: Snapshot,
        cache: ResultCache,
        *,
        seed: int,
        rejected: Mapping[str, Collection[str]],
        budget: SearchBudget | None = None,
        others: Sequence[Pod] = (),
        ended: Collection[Pod] = (),
        extended: Mapping[str, ExtendedNodes] | None = None,
    ) -> None:
        self.budget = budget or SearchBudget()
        self.members = members
        self._others = others
        self._ended = ended
        self._pipeline = pipeline
        self._cluster = cluster
        self._cache = cache
        self._seed = seed
        self._rejected = rejected
        self._extended = extended or {}
        self._lowest = min(members, key=lambda pod: pod.shape.priority)
        self._version = _version(cluster)
        self._known_classes: list[_Class] | None = None
        self._known_counts: tuple[int, list[_Counted] | None] = (-1, None)
        self._known_requests: tuple[int, list[_Counted]] = (-1, [])

    def place(self, candidates: IntArray | None = None) -> Assignment:
        """The members on these rows (int64), or on any node; the state is as before afterwards.

        Once the budget is spent, hardly anything is tried.
        """
        return run_whole(self.place_in_slices(candidates))

    def place_in_slices(self, candidates: IntArray | None = None) -> Slices[Assignment]:
        """The result of `place`.

        After a pause it may not fit any more, which the plan finds out (`plan`).

        Raises:
            DecisionOutdated: in a pause.
        """
        extended = self._extended
        shapes = len({(pod.shape, extended.get(pod.uid)) for pod in self.members})
        if shapes > _MOST_SHAPES:
            what = "specs or answers of extenders" if extended else "specs"
            cause = f"its members have {shapes} different {what}, and at most {_MOST_SHAPES} can be"
            return Assignment({}, len(self.members), 0, cause=f"{cause} placed together")
        with self.beside() as beside:
            yield from beside.pause()
            yield from _pausing(self._find_classes(), beside)
            counted = yield from self._all_counted(beside)
            allowed = self._allowed(candidates)
            if counted is None:
                return (yield from self._in_trials(allowed, beside))
            if len(counted) == 1 and not len(self._cluster.nominations):
                return self._by_counting_one(self._classes[0], counted[0], allowed)
            return (yield from self._by_counting(counted, allowed, beside))

    def beside(self) -> _Beside:
        """A trial in which no member is nominated or placed yet."""
        return _Beside(
            self.members,
            self._others,
            self._ended,
            self._pipeline,
            self._cluster,
            self.budget,
            self._version,
        )

    def without(self, pods: Collection[Pod]) -> "GroupSearch":
        """The same search, as if these pods had left their nodes.

        They are removed in its trials, where they have not left them by then. That costs some 40
        microseconds for each pod and trial.
        """
        return GroupSearch(
            self.members,
            self._pipeline,
            self._cluster,
            self._cache,
            seed=self._seed,
            rejected=self._rejected,
            budget=self.budget,
            others=self._others,
            ended=pods,
            extended=self._extended,
        )

    @property
    def was_counted(self) -> bool:
        """Whether the members were counted in the last search, so that only shapes were read."""
        return self._known_counts[1] is not None and not self._extended

    @property
    def extended_rejects(self) -> bool:
        """Whether extenders have filtered out any node for any member."""
        return any((nodes.reason_at > 0).any() for nodes in {*self._extended.values()})

    def is_outdated(self, members: Sequence[Pod] | None = None) -> bool:
        """Return whether what was found before a pause is of no use, as DecisionOutdated says.

        That is so if nodes came or went, or their labels or taints changed, or if one of these
        members, or of all, is on a node now.
        """
        if _version(self._cluster) != self._version:
            return True
        searched = self.members if members is None else members
        return len(without_node(searched, self._cluster)) < len(searched)

    def free_for_members(self, slots: IntArray | None = None) -> "FreeForMembers | None":
        """Return what is free for the members now; None if they are not all counted.

        The pods of these pod columns' slots (int64) count as if they had left their nodes.
        """
        with self.beside() as beside:
            counted = run_whole(self._all_counted(beside))
            if counted is None:
                return None
            resources = _resources(counted)
            free, present = self._free(resources), self._cluster.nodes.present
            if slots is not None:
                self._add_requests(free, resources, slots)
            items: dict[str, Item] = {}
            for members, c in zip(self._classes, counted, strict=True):
                item = self._item_of(members, c, resources, free, present)
                items |= dict.fromkeys((pod.uid for pod in members.pods), item)
            return FreeForMembers(free, items)

    def fits(self, pod: Pod, row: int) -> bool:
        """Whether every filter accepts the member on the row, also with pods nominated to it.

        Nominations of members do not count.
        """
        search = self._search(pod)
        if search.rejections(row):
            return False
        at_row = self._cluster.nominations.at(row, pod.shape.priority, pod.uid)
        nominated = [other for other in at_row if other.uid not in self._uids]
        if not nominated:
            return True
        with self._cluster.trial() as trial:
            for other in nominated:
                trial.add(other, row)
                assign_cards(self._pipeline.reserve, other, row)
            return not search.rejections(row)

    @cached_property
    def _uids(self) -> frozenset[Uid]:
        return frozenset(pod.uid for pod in chain(self.members, self._others))

    def is_counted(self) -> Slices[bool]:
        """Whether the filters of all members depend on other pods through requests alone.

        It pauses if that is due. `place_once_ended` then does not pause before it has read the
        state.

        Raises:
            DecisionOutdated: in a pause.
        """
        with self.beside() as beside:
            yield from beside.pause()
            yield from _pausing(self._find_classes(), beside)
            return (yield from self._all_counted(beside)) is not None

    def place_once_ended(self, slots: IntArray, candidates: IntArray) -> Slices[Assignment]:
        """The members on these rows, as if the pods of these pod columns' slots had ended.

        Both are int64. The members are counted, which needs no trial: it regards requests and
        filters that ignore pods, and fills the first of the rows first. If the members are not
        all counted, they may be rejected where it places them; what it says is impossible is
        impossible.

        Raises:
            DecisionOutdated: in a pause.
        """
        with self.beside() as beside:
            counted = run_whole(self._all_requests(beside))
            self.budget.spend(_COUNTING * len(counted))
            resources = _resources(counted)
            free = self._free(resources)
            self._add_requests(free, resources, slots)
            among = _mask(candidates, free.shape[1])
            items = list[Item]()
            for members, c in zip(self._classes, counted, strict=True):
                item = self._item_of(members, c, resources, free, among)
                ranked = candidates[item.eligible[candidates]]
                items.append(replace(item, ranked=ranked, fills=True))
                yield from beside.pause()
            return self._assigned((yield from _pausing(pack_in_slices(items, free), beside)))

    def fit_once_ended(self, rows: Mapping[Uid, int], pods: Collection[Pod]) -> Slices[bool]:
        """Whether the members still fit on these rows (by uid), once these pods have ended.

        To be called after a search with pauses. Members that are not counted are added one after
        the other, in the order of the mapping.

        Raises:
            DecisionOutdated: in a pause.
        """
        by_uid = {pod.uid: pod for pod in self.members}
        if (yield from self.is_counted()):
            free = self.free_for_members(self._cluster.pod_columns.slots_of(pods))
            return free is not None and all(free.take(by_uid[uid], rows[uid]) for uid in rows)
        search = self.without(pods)
        with search.beside() as beside:
            for uid, row in rows.items():
                if not search.fits(by_uid[uid], row):
                    return False
                beside.add(by_uid[uid], row)
                yield from beside.pause()
        return True

    def _add_requests(self, free: IntArray, resources: Sequence[str], slots: IntArray) -> None:
        """Adds to what is free (int64[resources, rows]) what the pods of these slots request."""
        columns = self._cluster.pod_columns
        at = columns.rows[slots]
        free[0] += np.bincount(at, minlength=free.shape[1])
        for index, name in enumerate(resources[1:], 1):
            np.add.at(free[index], at, columns.requests(name)[slots])

    def diagnosis(self, placed: Mapping[Uid, int], candidates: IntArray | None) -> Diagnosis | None:
        """Why the candidate rows reject the first member that is not placed, beside the others.

        None if all members are placed.
        """
        left = next((pod for pod in self.members if pod.uid not in placed), None)
        if left is None:
            return None
        with self.beside() as beside:
            others = (pod for pod in self.members if pod.uid in placed)
            for pod in islice(others, _MOST_DIAGNOSED):
                beside.add(pod, placed[pod.uid])
            return self._why_not(left, self._allowed(candidates))

    def _why_not(self, pod: Pod, allowed: BoolArray) -> Diagnosis:
        search = self._search(pod)
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return pre_filtered
        rows = np.flatnonzero(allowed)
        if len(rows) == self._cluster.node_count:
            diagnosis = search.shared_diagnosis(pre_filtered, ())
        else:
            diagnosis = search.diagnosis_of(pre_filtered, rows)
        extended = self._extended.get(pod.uid)
        if extended is None:
            return diagnosis
        fits = np.flatnonzero(search.feasible(pre_filtered) & allowed)
        return replace(diagnosis, rejected=(*diagnosis.rejected, *extended.rejected(fits)))

    def _allowed(self, candidates: IntArray | None) -> BoolArray:
        """bool[rows]: the candidate rows."""
        allowed = np.full(len(self._cluster.nodes), candidates is None)
        if candidates is not None:
            allowed[candidates] = True
        return allowed & self._cluster.nodes.present

    @property
    def _classes(self) -> list[_Class]:
        """The members by what a filter may read of them; by their shape alone if all are counted.

        Beside members with inter-pod terms, labels may matter that do not matter now.
        """
        if self._known_classes is None:
            run_whole(self._find_classes())
        return self._known_classes or []

    def _find_classes(self) -> Slices[None]:
        """Finds the classes once; there are as many as members if each has a label of its own."""
        if self._known_classes is not None:
            return
        by_fields: dict[_Fields, _Class] = {}
        for pod in self.members:
            rejected = frozenset(self._rejected.get(pod.uid, ()))
            labels, extended = frozenset(pod.labels.items()), self._extended.get(pod.uid)
            fields = (pod.shape, labels, pod.volumes, pod.owner, rejected, extended)
            by_fields.setdefault(fields, _Class(rejected, extended)).pods.append(pod)
        classes = list(by_fields.values())
        if len(classes) > 1:
            for found in classes:
                if self._counted(found) is None:
                    break
                yield
            else:
                classes = _merged(by_fields)
        self._known_classes = classes

    def _search(self, pod: Pod) -> Search:
        results = self._cache.of(pod, self._pipeline, self._cluster)
        return Search(pod, self._pipeline, self._cluster, results)

    def _all_counted(self, beside: _Beside) -> Slices[list[_Counted] | None]:
        """Each class as it is counted while no member is placed; None if one of them is not."""
        pauses = self.budget.pauses
        if self._known_counts[0] != pauses:
            counted = list[_Counted]()
            for members in self._classes:
                found = self._counted(members)
                if found is None:
                    break
                counted.append(found)
                yield from beside.pause()
            complete = len(counted) == len(self._classes)
            self._known_counts = (pauses, counted if complete else None)
        return self._known_counts[1]

    def _all_requests(self, beside: _Beside) -> Slices[list[_Counted]]:
        """Each class as it is counted, or as if it were; see `_requesting`."""
        counted = yield from self._all_counted(beside)
        if counted is not None:
            return counted
        pauses = self.budget.pauses
        if self._known_requests[0] != pauses:
            counted = list[_Counted]()
            for members in self._classes:
                counted.append(self._counted(members) or self._requesting(members))
                yield from beside.pause()
            self._known_requests = (pauses, counted)
        return self._known_requests[1]

    def _counted(self, members: _Class) -> _Counted | None:
        """The class as it is counted; None if its members must be placed one by one."""
        search = self._search(members.pods[0])
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return None
        resource_filter = search.resource_filter(pre_filtered)
        if resource_filter is None:
            return None
        eligible = search.results.fits_without_pods
        if pre_filtered.restricted_by:
            eligible &= _mask(pre_filtered.candidate_rows, len(eligible))
        self._exclude_rejected(eligible, members)
        if members.extended is not None:
            eligible &= members.extended.passed
        return _Counted(search, resource_filter[1], eligible)

    def _exclude_rejected(self, fits: BoolArray, members: _Class) -> None:
        """Clear the rows (bool[rows]) that Reserve or Permit reject for these members."""
        if members.rejected:
            rows = self._cluster.rows(members.rejected)
            fits[rows[rows >= 0]] = False

    def _requesting(self, members: _Class) -> _Counted:
        """The class as if only the requests that are filtered depended on other pods."""
        search = self._search(members.pods[0])
        pre_filtered = search.pre_filter()
        needs: dict[str, int] = {}
        if not isinstance(pre_filtered, Diagnosis):
            for name, plugin in self._pipeline.resource_filters.items():
                if name in pre_filtered.states:
                    state = pre_filtered.states[name]
                    needs |= run_resource_requests(self._pipeline, plugin, state)
        eligible = search.results.fits_without_pods
        if members.extended is not None:
            eligible &= members.extended.passed
        return _Counted(search, needs, eligible)

    def _by_counting_one(
        self, members: _Class, counted: _Counted, allowed: BoolArray
    ) -> Assignment:
        """The members of the only class, by their number, while no pod is nominated to a node.

        Only the rows that the scores prefer are counted, because members fit on each of them.
        """
        self.budget.spend(_COUNTING)
        rows = np.flatnonzero(counted.search.results.fits & counted.eligible & allowed)
        ranked, fills = self._ranked(members, counted.search, rows)
        resources = _resources((counted,))
        requests = np.array([1, *(counted.needs[name] for name in resources[1:])], np.int64)
        places = np.arange(len(ranked))
        item = Item(len(members.pods), requests, np.ones(len(ranked), np.bool_), places, fills)
        free = self._free(resources, self._cluster.nodes.take(ranked))
        packing = pack((item,), free)
        cause = "" if packing.complete else _shortage((item,), free, packing, resources)
        at = np.repeat(ranked, packing.members[0]).tolist()
        found = {pod.uid: row for pod, row in zip(members.pods, at, strict=False)}
        return Assignment(found, item.count, packing.tries, packing.impossible, cause)

    def _by_counting(
        self, counted: Sequence[_Counted], allowed: BoolArray, beside: _Beside
    ) -> Slices[Assignment]:
        """The members by their numbers; none of them is in the trial."""
        self.budget.spend(_COUNTING * len(counted))
        resources = _resources(counted)
        free = self._free(resources)
        items = list[Item]()
        for members, c in zip(self._classes, counted, strict=True):
            items.append(self._item(members, c, resources, free, allowed))
            yield from beside.pause()
        packing = yield from _pausing(pack_in_slices(items, free), beside)
        cause = "" if packing.complete else _shortage(items, free, packing, resources)
        return self._assigned(packing, cause)

    def _assigned(self, packing: Packing, cause: str = "") -> Assignment:
        """The members with the rows on which the packing has so many of their class."""
        rows: Rows = {}
        for members, on_rows in zip(self._classes, packing.members, strict=True):
            chosen = np.flatnonzero(on_rows)
            at = np.repeat(chosen, on_rows[chosen]).tolist()
            rows |= {pod.uid: row for pod, row in zip(members.pods, at, strict=False)}
        wanted = len(self.members)
        return Assignment(rows, wanted, packing.tries, packing.impossible, cause)

    def _free(self, resources: Sequence[str], at: NodeView | None = None) -> IntArray:
        """int64[resources, rows]: what is free beside the pods nominated to a node.

        On all rows, or without regard to nominated pods on those of a view.
        """
        cluster, nodes = self._cluster, at if at is not None else self._cluster.nodes
        if at is None and len(cluster.nominations):
            nodes = cluster.nodes_with_nominated(nodes.rows, resources[1:], self._lowest)
        free = [nodes.pod_slots - nodes.pod_count]
        free += [nodes.allocatable(name) - nodes.requested(name) for name in resources[1:]]
        return np.stack(free)

    def _item(
        self,
        members: _Class,
        counted: _Counted,
        resources: Sequence[str],
        free: IntArray,
        among: BoolArray,
    ) -> Item:
        """The class on the rows among these (bool[rows]) where one of it fits."""
        item = self._item_of(members, counted, resources, free, among)
        ranked, fills = self._ranked(members, counted.search, item.ranked)
        return replace(item, ranked=ranked, fills=fills)

    def _item_of(
        self,
        members: _Class,
        counted: _Counted,
        resources: Sequence[str],
        free: IntArray,
        among: BoolArray,
    ) -> Item:
        """The class on the rows (bool[rows]) where one of it fits, which no score has ranked."""
        requests = [1, *(counted.needs.get(name, 0) for name in resources[1:])]
        needed = np.array(requests, np.int64)
        listed = [i for i, name in enumerate(resources) if i == 0 or name in counted.needs]
        enough = (free[listed] >= needed[listed, None]).all(axis=0)
        fits = counted.eligible & among & enough
        return Item(len(members.pods), needed, fits, np.flatnonzero(fits))

    def _ranked(self, members: _Class, search: Search, rows: IntArray) -> tuple[IntArray, bool]:
        """The rows that scores prefer, best first, and whether they prefer to fill a node.

        There are as many rows as the group can need. Ties are broken by the seed.
        """
        if len(rows) < 2:
            return rows, False
        total, most = _scored(search, rows, members.extended).total, len(self.members)
        if most < len(rows):
            least = np.partition(total, -most)[-most]
            better, equal = np.flatnonzero(total > least), np.flatnonzero(total == least)
            kept = np.concatenate((better, _turned(equal, self._seed)[: most - len(better)]))
        else:
            kept = _turned(np.arange(len(rows)), self._seed)
        ranked = rows[kept[np.argsort(-total[kept], kind="stable")]]
        if len(members.pods) == 1:
            return ranked, False
        if members.extended is not None and members.extended.scores is not None:
            return ranked, bool(self._prefers_full_nodes(members, ranked))
        results = search.results
        if results.prefers_full_nodes is None:
            results.prefers_full_nodes = self._prefers_full_nodes(members, ranked)
        return ranked, bool(results.prefers_full_nodes)

    def _prefers_full_nodes(self, members: _Class, ranked: IntArray) -> bool | None:
        """Whether the best node is still the best with a member on it; None if it is full then."""
        with self._cluster.trial() as trial:
            trial.add(members.pods[0], int(ranked[0]))
            assign_cards(self._pipeline.reserve, members.pods[0], int(ranked[0]))
            again = self._search(members.pods[1])
            if not again.results.fits[ranked[0]]:
                return None
            at = _scored(again, np.sort(ranked[:2]), members.extended).total
        best, second = at if ranked[0] < ranked[1] else at[::-1]
        return bool(best >= second)

    def _in_trials(self, allowed: BoolArray, beside: _Beside) -> Slices[Assignment]:
        """The members in several orders of their classes, then by backtracking in small groups."""
        best: Rows = {}
        why: Diagnosis | None = None
        tries = 0
        for order in self._orders():
            for by_fit in (False, True):
                tries += 1
                left = yield from self._one_try(beside, order.items, allowed, by_fit=by_fit)
                rows = beside.rows
                if why is None and left:
                    why = self._why_not(self._classes[left[0]].pods[-1], allowed)
                beside.clear()
                if not left:
                    return Assignment(rows, len(self.members), tries)
                if len(rows) > len(best):
                    best = rows
            order.failed(left)
            if tries >= _MOST_TRIES or self.budget.spent:
                break
        if len(self.members) <= _MOST_BACKTRACKED and not self.budget.spent:
            tries += 1
            found = yield from self._backtrack(allowed, beside)
            if found is not None:
                return Assignment(found, len(self.members), tries)
        cause = why.message if why is not None else ""
        return Assignment(best, len(self.members), tries, cause=cause)

    def _orders(self) -> Iterator[Order]:
        """The orders of classes to start from: largest first, those with inter-pod terms last."""
        totals = self._totals
        shares = [
            max(
                (a / totals.get(n, 1) for n, a in c.pods[0].shape.demand.resources.items()),
                default=0.0,
            )
            for c in self._classes
        ]
        terms = [len(c.pods[0].shape.affinity.required) for c in self._classes]
        constrained = [_constraints(c.pods[0]) for c in self._classes]
        numbers = range(len(self._classes))
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
        """What all nodes offer of each resource that a member requests, at least 1."""
        nodes = self._cluster.nodes
        names = {name for c in self._classes for name in c.pods[0].shape.demand.resources}
        return {name: max(int(nodes.allocatable(name).sum()), 1) for name in names}

    def _one_try(
        self, beside: _Beside, order: Sequence[int], allowed: BoolArray, *, by_fit: bool
    ) -> Slices[list[int]]:
        """Places the members that find a node in this order; returns the classes with others.

        Identical members that are counted cost one decision.
        """
        failed: list[int] = []
        for index in order:
            members = self._classes[index]
            counted = self._counted(members) if len(members.pods) > 1 else None
            if counted is not None:
                at = self._counted_rows(members, counted, allowed)
                self.budget.spend(_COUNTING)
                for pod, row in zip(members.pods, at, strict=False):
                    beside.add(pod, row)
                    yield from beside.pause()
                if len(at) < len(members.pods):
                    failed.append(index)
                continue
            for pod in members.pods:
                found = self._choose(pod, members, allowed, by_fit=by_fit)
                self.budget.spend(1)
                if found is None or self.budget.spent:
                    failed.append(index)
                    break  # the other members of the class are rejected likewise
                beside.add(pod, found)
                yield from beside.pause()
        return failed

    def _counted_rows(self, members: _Class, counted: _Counted, allowed: BoolArray) -> list[int]:
        """A row for each member of one class, or for as many as fit."""
        resources = _resources((counted,))
        free = self._free(resources)
        packing = pack([self._item(members, counted, resources, free, allowed)], free)
        chosen = np.flatnonzero(packing.members[0])
        at: list[int] = np.repeat(chosen, packing.members[0][chosen]).tolist()
        return at

    def _feasible(self, pod: Pod, members: _Class, allowed: BoolArray) -> tuple[Search, IntArray]:
        """The rows that pass every filter in the present state of the trial."""
        search = self._search(pod)
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return search, np.zeros(0, np.int64)
        fits = search.feasible(pre_filtered)
        taken = search.rejected_with_nominated(pre_filtered, fits)
        fits = fits & allowed
        for group in taken:
            fits[group.rows] = False
        self._exclude_rejected(fits, members)
        if members.extended is not None:
            fits &= members.extended.passed
        return search, np.flatnonzero(fits)

    def _choose(self, pod: Pod, members: _Class, allowed: BoolArray, *, by_fit: bool) -> int | None:
        """The row for one member: the one that scores prefer, or with `by_fit` the fullest one."""
        search, rows = self._feasible(pod, members, allowed)
        if not len(rows):
            return None
        if by_fit:
            return int(rows[np.argmin(self._slack(pod, rows))])
        if len(rows) == 1:
            return int(rows[0])
        table = _scored(search, rows, members.extended)
        return int(rows[table.best[self._seed % len(table.best)]])

    def _slack(self, pod: Pod, rows: IntArray) -> IntArray:
        """What the pod would leave free on each row, in millionths of all nodes' amounts."""
        nodes, demand = self._cluster.nodes.take(rows), pod.shape.demand.resources
        slack = np.zeros(len(rows), np.int64)
        for name in demand:
            free = nodes.allocatable(name) - nodes.requested(name)
            slack += (free * 1_000_000.0 / self._totals.get(name, 1)).astype(np.int64)
        return slack

    def _backtrack(self, allowed: BoolArray, beside: _Beside) -> Slices[Rows | None]:
        """A row for every member, by trying nodes one after the other; None after many steps."""
        first = next(iter(self._orders())).items
        members = [(self._classes[i], pod) for i in first for pod in self._classes[i].pods]
        steps = SearchBudget(_MOST_STEPS)

        def candidates(position: int) -> Iterator[int]:
            members_of, pod = members[position]
            _, rows = self._feasible(pod, members_of, allowed)
            return iter(rows[np.argsort(self._slack(pod, rows), kind="stable")].tolist())

        left = [candidates(0)]
        """By position, the rows that were not tried yet for the member there."""
        while left:
            row = next(left[-1], None)
            if row is None:
                left.pop()
                if left:
                    beside.drop_last()
                continue
            steps.spend(1)
            self.budget.spend(1)
            if steps.spent or self.budget.spent:
                return None
            beside.add(members[len(left) - 1][1], row)
            if len(left) == len(members):
                return beside.rows
            yield from beside.pause()
            left.append(candidates(len(left)))
        return None


class FreeForMembers:
    """What is free for counted members: int64[resources, rows], and the item of each by its uid."""

    def __init__(self, free: IntArray, items: Mapping[str, Item]) -> None:
        self._free = free
        self._items = items

    def take(self, pod: Pod, row: int) -> bool:
        """Whether the member fits on the row; what it requests there is taken then."""
        item, free = self._items[pod.uid], self._free[:, row]
        if not item.eligible[row] or (item.requests > free)[item.requests > 0].any():
            return False
        free -= item.requests
        return True


def _merged(by_fields: Mapping[_Fields, _Class]) -> list[_Class]:
    """The classes by shape, rejected nodes and what extenders say alone."""
    by_shape: dict[tuple[PodShape, frozenset[str], ExtendedNodes | None], _Class] = {}
    for (shape, *_), found in by_fields.items():
        key = (shape, found.rejected, found.extended)
        members = by_shape.setdefault(key, _Class(found.rejected, found.extended))
        members.pods.extend(found.pods)
    return list(by_shape.values())


def _scored(search: Search, rows: IntArray, extended: ExtendedNodes | None) -> ScoreTable:
    """The scores of the rows, with those of extenders."""
    table = score(search, rows)
    if extended is None or extended.scores is None:
        return table
    return with_extender_scores(table, {EXTENDER: extended.scores[rows]})


def _resources(counted: Sequence[_Counted]) -> list[str]:
    """Pod slots, and all resources that are filtered for any of these classes."""
    return [_PODS, *sorted({name for c in counted for name in c.needs})]


def _turned(positions: IntArray, seed: int) -> IntArray:
    """The positions in their order, but with the seed's one first."""
    first = seed % len(positions)
    return np.concatenate((positions[first:], positions[:first]))


def _pausing(steps: Slices[_Result], beside: _Beside) -> Slices[_Result]:
    """The result of steps that keep no trial open, in pauses of the search."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: _Result = ended.value
            return result
        yield from beside.pause()


def _constraints(pod: Pod) -> int:
    """How many terms, constraints, ports and volumes the pod has."""
    shape = pod.shape
    return shape.affinity.term_count + len(shape.spread) + len(shape.host_ports) + len(pod.volumes)


def _mask(rows: IntArray, length: int) -> BoolArray:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def _shortage(
    items: Sequence[Item], free: IntArray, packing: Packing, resources: Sequence[str]
) -> str:
    """What the members lack in total; "" if all of them together request no more than is free."""
    lacking: list[str] = []
    for index, name in enumerate(resources):
        asking = [item for item in items if item.requests[index] > 0]
        if not asking:
            continue
        usable = np.logical_or.reduce([item.eligible for item in asking])
        wanted = sum(item.count * int(item.requests[index]) for item in asking)
        missing = wanted - int(np.maximum(free[index][usable], 0).sum())
        if missing > 0:
            lacking.append(_described(name, missing))
    if lacking:
        return f"needs {' and '.join(lacking)} more"
    left = sum(item.count for item in items) - packing.placed
    return f"no node has enough left for {left} of its members"


def _described(resource: str, amount: int) -> str:
    """The amount (millicores, bytes or a count) with its unit, as users read it."""
    per_unit, unit = _UNITS.get(resource, (1, resource))
    return f"{f'{amount / per_unit:.3f}'.rstrip('0').rstrip('.')} {unit}"
