"""Finds nodes for a group's members by comparing arrays of free resources, without a trial.

The result is exact if the members' filters depend on other pods only through requests. The time
hardly depends on the number of members.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from mooring.extenders.verdicts import OnRows
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.registry import SHIPPED_WITH
from mooring.gpu_cards.card_plugin import assign_devices
from mooring.groups.search.group_search import (
    Assignment,
    Rows,
    SearchedMembers,
    mask_of,
    scored,
)
from mooring.groups.search.member_packing import Item, Packing, pack
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.pausing import pause
from mooring.runtime.extension_points import run_resource_requests
from mooring.scheduling.filtering import NodeSearch
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.pod_volumes import PodVolume

_COST: Final = 5
"""The steps of the search budget for counting one class of members."""
_MEMBERS_AT_ONCE: Final = 500
"""The number of members that are divided into classes before other tasks may run."""
_PODS: Final = "pods"
_UNITS: Final = {"cpu": (1000, "CPUs"), "memory": (2**30, "GiB of memory"), _PODS: (1, "pod slots")}

_Fields = tuple[
    PodSpec,
    frozenset[tuple[str, str]],
    frozenset[tuple[str, str]],
    tuple[PodVolume, ...],
    Any,
    tuple[tuple[str, str], ...],
    frozenset[str],
    OnRows | None,
]


@dataclass(frozen=True, slots=True, eq=False)
class MemberClass:
    """Members that every filter and extender treats alike.

    `rejected` has the names of nodes where Reserve or Permit rejects these members. `extended` is
    None if no extender filters or scores nodes for these members.
    """

    rejected: frozenset[str]
    extended: OnRows | None = None
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class CountedClass:
    """A class of members that can be placed by counting, in the present state of the trial.

    `needs` are the requests of one member. `eligible` (bool[rows]) is True for nodes where a member
    may run if enough is free.
    """

    members: MemberClass
    search: NodeSearch
    needs: Mapping[str, int]
    eligible: BoolArray
    by_spec: bool = True
    """Whether all members with the same spec are in this class, whatever their labels are."""


class CountingSearch:
    """Divides members into classes of equal members; places them by counting if that is exact."""

    def __init__(self, searched: SearchedMembers) -> None:
        self.searched = searched
        self._cluster = searched.cluster
        self._known_classes: list[MemberClass] | None = None
        self._is_known = False
        """Whether `_known_counts` has been computed; the computed value may be None."""
        self._known_counts: list[CountedClass] | None = None
        self._known_requests: list[CountedClass] = []
        self._known_free: IntArray | None = None
        """The result of `_free` for the resources of `_all_requests`, before members are placed."""
        pipeline = searched.pipeline
        self._annotations_matter = any(  # none to the shipped plugins but those in the spec
            not plugin.depends_on_node_only
            and pipeline.distributions.get(plugin.name) != SHIPPED_WITH
            for plugin in pipeline.pre_filter
        )

    @property
    def classes(self) -> list[MemberClass]:
        """The classes of members that no filter can distinguish."""
        if self._known_classes is None:
            self._known_classes = self._found_classes()
        return self._known_classes

    def _found_classes(self) -> list[MemberClass]:
        by_fields: dict[_Fields, MemberClass] = {}
        for number, pod in enumerate(self.searched.members, 1):
            if number % _MEMBERS_AT_ONCE == 0:
                pause()
            rejected = frozenset(self.searched.rejected.get(pod.uid, ()))
            labels, extended = frozenset(pod.labels.items()), self.searched.extended.get(pod.uid)
            notes = frozenset(pod.annotations.items() if self._annotations_matter else ())
            claims = self._claims_of(pod)
            fields = (pod.spec, labels, notes, pod.volumes, pod.owner, claims, rejected, extended)
            by_fields.setdefault(fields, MemberClass(rejected, extended)).pods.append(pod)
        classes = list(by_fields.values())
        if len(classes) > 1:
            for found in classes:
                counted = self.counted(found)
                if counted is None or not counted.by_spec:
                    break
                pause()
            else:
                classes = _merged(by_fields)
        return classes

    def _claims_of(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        claims = self._cluster.dynamic_resources.claims.named_by(pod)
        # Claims of one template may differ, because the template may have been replaced.
        return tuple((each.spec.asked, each.uid if each.allocation else "") for each in claims)

    def all_counted(self) -> list[CountedClass] | None:
        """Return a CountedClass for every class; None if a class cannot be counted.

        Call this in a trial in which no member is placed.
        """
        if not self._is_known:
            counted = list[CountedClass]()
            for members in self.classes:
                found = self.counted(members)
                if found is None:
                    break
                counted.append(found)
                pause()
            self._known_counts = counted if len(counted) == len(self.classes) else None
            self._is_known = True
        return self._known_counts

    def _all_requests(self) -> list[CountedClass]:
        """Return a CountedClass for each class of members; some of them may be approximate."""
        counted = self.all_counted()
        if counted is not None:
            return counted
        if not self._known_requests:
            alike = dict[tuple[Hashable, bytes], CountedClass]()
            for members in self.classes:
                found = self.counted(members) or self._requesting(members)
                # Classes with equal requests and equal nodes are merged.
                key = frozenset(found.needs.items()), found.eligible.tobytes()
                if key not in alike:
                    alike[key] = replace(found, members=replace(members, pods=[]))
                alike[key].members.pods.extend(members.pods)
                pause()
            self._known_requests = [*alike.values()]
        return self._known_requests

    def counted(self, members: MemberClass) -> CountedClass | None:
        """Return a CountedClass; None if counting is not exact or PreFilter rejects the members."""
        search = self.searched.search(members.pods[0])
        pre_filtered = search.pre_filter()
        if isinstance(pre_filtered, Diagnosis):
            return None
        resource_filter = search.resource_filter(pre_filtered)
        if resource_filter is None:
            return None
        eligible = search.results.fits_without_pods.copy()
        if pre_filtered.restricted_by:
            eligible &= mask_of(pre_filtered.candidate_rows, len(eligible))
        self.exclude_rejected(eligible, members)
        if members.extended is not None:
            eligible &= members.extended.passed
        plugins = {plugin.name: plugin for plugin in self.searched.pipeline.pre_filter}
        by_spec = all(plugins[name].depends_on_node_only for name in pre_filtered.restricted_by)
        return CountedClass(members, search, resource_filter[1], eligible, by_spec)

    def exclude_rejected(self, fits: BoolArray, members: MemberClass) -> None:
        """Set `fits` (bool[rows]) to False for nodes where Reserve or Permit rejects the class."""
        if members.rejected:
            rows = self._cluster.rows(members.rejected)
            fits[rows[rows >= 0]] = False

    def _requesting(self, members: MemberClass) -> CountedClass:
        """Return a CountedClass that ignores everything about other pods but their requests."""
        search = self.searched.search(members.pods[0])
        pre_filtered = search.pre_filter()
        needs: dict[str, int] = {}
        if not isinstance(pre_filtered, Diagnosis):
            for name, plugin in self.searched.pipeline.resource_filters.items():
                if name in pre_filtered.states:
                    state = pre_filtered.states[name]
                    needs |= run_resource_requests(self.searched.pipeline, plugin, state)
        eligible = search.results.fits_without_pods.copy()
        if members.extended is not None:
            eligible &= members.extended.passed
        return CountedClass(members, search, needs, eligible)

    @property
    def was_counted(self) -> bool:
        """Whether the last search counted all members, and read only their specs."""
        counted = self._known_counts
        by_spec = counted is not None and all(found.by_spec for found in counted)
        return by_spec and not self.searched.extended

    def place_counted(self, counted: Sequence[CountedClass], allowed: BoolArray) -> Assignment:
        """Place the members of all classes on nodes for which `allowed` (bool[rows]) is True."""
        if len(counted) == 1 and not len(self._cluster.nominations):
            return self._place_one(counted[0], allowed)
        self.searched.budget.spend(_COST * len(counted))
        free = self._free(_resources(counted))
        items = self._items(counted, free, allowed, self._ranked)
        return self._assigned(counted, pack(items, free))

    def is_counted(self) -> bool:
        """Return whether the filters of all members depend on other pods only through requests."""
        if not self._is_known:
            with self.searched.trial():
                self.all_counted()
        return self._known_counts is not None

    def _place_one(self, counted: CountedClass, allowed: BoolArray) -> Assignment:
        self.searched.budget.spend(_COST)
        rows = np.flatnonzero(counted.search.results.fits & counted.eligible & allowed)
        ranked, fills = self._ranked(counted, rows)
        pods, resources = counted.members.pods, _resources((counted,))
        requests = np.array([1, *(counted.needs[name] for name in resources[1:])], np.int64)
        places = np.arange(len(ranked))
        item = Item(len(pods), requests, np.ones(len(ranked), np.bool_), places, fills)
        # The caller has checked that no pod is nominated.
        free = self._free(resources, self._cluster.nodes.take(ranked))
        packing = pack((item,), free)
        at = np.repeat(ranked, packing.members[0]).tolist()
        found = {pod.uid: row for pod, row in zip(pods, at, strict=False)}
        return Assignment(found, item.count, packing.tries, packing.impossible)

    def _assigned(self, counted: Sequence[CountedClass], packing: Packing) -> Assignment:
        rows: Rows = {}
        for each, on_rows in zip(counted, packing.members, strict=True):
            chosen = np.flatnonzero(on_rows)
            at = np.repeat(chosen, on_rows[chosen]).tolist()
            rows |= {pod.uid: row for pod, row in zip(each.members.pods, at, strict=False)}
        wanted = len(self.searched.members)
        return Assignment(rows, wanted, packing.tries, packing.impossible)

    def lacking(self, assignment: Assignment, candidates: IntArray | None) -> str:
        """Return the resources that a new node must offer to members without a node; "" if unknown.

        A resource is left out if the existing nodes offer enough.
        """
        with self.searched.trial():
            counted = self.all_counted()
            if counted is None:
                return ""
            allowed, resources = self.searched.allowed(candidates), _resources(counted)
            free = self._free(resources)
            items = self._items(counted, free, allowed, lambda _, rows: (rows, False))
            eligible = [c.eligible & allowed for c in counted]
            requests = np.stack([item.requests for item in items], axis=1)
            ample = requests @ np.array([[item.count] for item in items])
            short = _short(items, eligible, free, ample)
            left = [[sum(p.uid not in assignment.rows for p in c.pods)] for c in self.classes]
            lacks, texts = requests @ np.array(left), list[str]()
            for index in short:
                text, ample[index] = _described(resources[index], int(lacks[index, 0]))
                texts.append(text)
            mask = [np.append(each, [True]) for each in eligible]
            fits = _fits(items, mask, np.hstack((free, ample)))
            return f"needs {' and '.join(texts)} more" if fits and short else ""

    def place_once_ended(self, slots: IntArray, candidates: IntArray) -> Assignment:
        """Place the members on candidate rows as if the pods of these slots (PodColumns) had ended.

        The first candidate is filled first. For classes of members that cannot be counted, only
        requests are compared: filters may still reject the nodes.
        """
        if self._known_free is None:
            with self.searched.trial():
                self._known_free = self._free(_resources(self._all_requests()))
        counted, free = self._all_requests(), self._known_free.copy()
        self.searched.budget.spend(_COST * len(counted))
        self._add_requests(free, _resources(counted), slots)
        among = mask_of(candidates, free.shape[1])

        def as_given(_: CountedClass, rows: IntArray) -> tuple[IntArray, bool]:
            return candidates[np.isin(candidates, rows)], True

        items = self._items(counted, free, among, as_given)
        return self._assigned(counted, pack(items, free))

    def rows_of_class(self, counted: CountedClass, allowed: BoolArray) -> list[int]:
        """Return a row for each member that fits, as many as possible; the rows are ascending."""
        free = self._free(_resources((counted,)))
        packing = pack(self._items((counted,), free, allowed, self._ranked), free)
        self.searched.budget.spend(_COST)
        chosen = np.flatnonzero(packing.members[0])
        at: list[int] = np.repeat(chosen, packing.members[0][chosen]).tolist()
        return at

    def _add_requests(self, free: IntArray, resources: Sequence[str], slots: IntArray) -> None:
        columns = self._cluster.pod_columns
        at = columns.rows[slots]
        free[0] += np.bincount(at, minlength=free.shape[1])
        for index, name in enumerate(resources[1:], 1):
            np.add.at(free[index], at, columns.requests(name)[slots])

    def _free(self, resources: Sequence[str], at: NodeView | None = None) -> IntArray:
        """Return int64[resources, nodes]: the free amounts. With `at`, ignore nominated pods."""
        cluster, nodes = self._cluster, at if at is not None else self._cluster.nodes
        if at is None and len(cluster.nominations):
            nodes = cluster.nodes_with_nominated(nodes.rows, resources[1:], self.searched.lowest)
        free = [nodes.pod_slots - nodes.pod_count]
        free += [nodes.allocatable(name) - nodes.requested(name) for name in resources[1:]]
        return np.stack(free)

    def _items(
        self,
        counted: Sequence[CountedClass],
        free: IntArray,
        among: BoolArray,
        rank: Callable[[CountedClass, IntArray], tuple[IntArray, bool]],
    ) -> list[Item]:
        resources, items = _resources(counted), list[Item]()
        for each in counted:
            needed = np.array([1, *(each.needs.get(name, 0) for name in resources[1:])], np.int64)
            listed = [i for i, name in enumerate(resources) if i == 0 or name in each.needs]
            enough = (free[listed] >= needed[listed, None]).all(axis=0)
            fits = each.eligible & among & enough
            ranked, fills = rank(each, np.flatnonzero(fits))
            items.append(Item(len(each.members.pods), needed, fits, ranked, fills))
            pause()
        return items

    def _ranked(self, counted: CountedClass, rows: IntArray) -> tuple[IntArray, bool]:
        """Return the rows of the best nodes, and whether to fill one node after the other."""
        if len(rows) < 2:
            return rows, False
        members, search = counted.members, counted.search
        total, most = scored(search, rows, members.extended).total, len(self.searched.members)
        # As many rows as members are enough. The seed decides between equal scores.
        if most < len(rows):
            least = np.partition(total, -most)[-most]
            better, equal = np.flatnonzero(total > least), np.flatnonzero(total == least)
            kept = np.concatenate(
                (better, _turned(equal, self.searched.seed)[: most - len(better)])
            )
        else:
            kept = _turned(np.arange(len(rows)), self.searched.seed)
        ranked = rows[kept[np.argsort(-total[kept], kind="stable")]]
        if len(members.pods) == 1:
            return ranked, False
        if members.extended is not None and members.extended.scores:
            return ranked, bool(self._prefers_full_nodes(members, ranked))
        results = search.results.spec
        if results.prefers_full_nodes is None:
            results.prefers_full_nodes = self._prefers_full_nodes(members, ranked)
        return ranked, bool(results.prefers_full_nodes)

    def _prefers_full_nodes(self, members: MemberClass, ranked: IntArray) -> bool | None:
        """Return whether the best node stays best with a member on it; None if no more fit."""
        with self._cluster.trial() as trial:
            trial.add(members.pods[0], int(ranked[0]))
            assign_devices(self.searched.pipeline.reserve, members.pods[0], int(ranked[0]))
            again = self.searched.search(members.pods[1])
            if not again.results.fits[ranked[0]]:
                # No other member fits on the best node then.
                return None
            at = scored(again, np.sort(ranked[:2]), members.extended).total
        best, second = at if ranked[0] < ranked[1] else at[::-1]
        return bool(best >= second)


def _merged(by_fields: Mapping[_Fields, MemberClass]) -> list[MemberClass]:
    by_spec: dict[tuple[PodSpec, frozenset[str], OnRows | None], MemberClass] = {}
    for (spec, *_), found in by_fields.items():
        key = (spec, found.rejected, found.extended)
        members = by_spec.setdefault(key, MemberClass(found.rejected, found.extended))
        members.pods.extend(found.pods)
    return list(by_spec.values())


def _resources(counted: Sequence[CountedClass]) -> list[str]:
    return [_PODS, *sorted({name for c in counted for name in c.needs})]


def _turned(positions: IntArray, seed: int) -> IntArray:
    first = seed % len(positions)
    return np.concatenate((positions[first:], positions[:first]))


def _short(
    items: Sequence[Item], eligible: Sequence[BoolArray], free: IntArray, ample: IntArray
) -> list[int]:
    """Return the indices of the resources that the nodes lack.

    All items would fit if each row had `ample` of these resources. Returns [] if all items fit
    already, or if `ample` of every resource would not suffice.
    """
    short = [*range(len(free))]
    for index in (None, *short):
        others = [each for each in short if each != index]
        more = free.copy()
        more[others] = ample[others]
        if _fits(items, eligible, more):
            short = others
        elif index is None:
            return []
    return short


def _fits(items: Sequence[Item], eligible: Sequence[BoolArray], free: IntArray) -> bool:
    placed = list[Item]()
    for item, mask in zip(items, eligible, strict=True):
        asked = item.requests > 0
        fits = mask & (free[asked] >= item.requests[asked, None]).all(axis=0)
        placed.append(replace(item, eligible=fits, ranked=np.flatnonzero(fits)))
    return pack(placed, free).complete


def _described(resource: str, amount: int) -> tuple[str, int]:
    per_unit, unit = _UNITS.get(resource, (1, resource))
    thousandths = -(-amount * 1000 // per_unit)
    text = f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{text} {unit}", -(-thousandths * per_unit // 1000)
