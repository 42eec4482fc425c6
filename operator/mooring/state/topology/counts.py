"""Counts placed pods by selector or inter-pod term, per topology domain.

kube-scheduler counts all pods again for every pod that has such a term. Mooring counts once, when a
decision first needs the counts; then each pod, node and namespace event updates them.
"""

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, Domains
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.topology.domain_counts import (
    CountArray,
    DomainCounts,
    TakenBytes,
)
from mooring.state.topology.equivalent_pods import (
    EquivalenceTable,
    EquivalentPods,
    OwnedTerm,
    Role,
    key_of,
)
from mooring.state.topology.pod_selection import Selection, SelectionIndex

_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all counts: 2,000 counts per node of 5,000 nodes. Then the least recently used
count is dropped."""
_BYTES_PER_COUNT: Final = 1024
"""The bytes of a count, without its array and its selection."""

_BYTES_PER_POD: Final = 8
_SLICE: Final = 128
"""The number of EquivalentPods that `count_some` examines if the selector has few requirements."""
_FEW_REQUIREMENTS: Final = 16
_SLICE_ROWS: Final = 2048
"""The approximate number of rows after which `count_some` stops, because a DaemonSet has a pod on
every node."""

_FEW_ROWS: Final = 16
"""If there are many terms, a term whose owners are on at most this many rows gets no count."""

_Source = Selection | OwnedTerm
"""Says which pods to count: the pods that a selection includes, or the pods with an inter-pod
term."""


@dataclass(eq=False, repr=False)
class TopologyCounts:
    """The counts that inter-pod affinity and topology spread read.

    At most `most_kept` counts are kept, because each pod event may change all of them. With their
    selections and 4 bytes per domain, they take at most `most_bytes`. If there are too many, the
    least recently used count is dropped. It is counted again when a decision needs it.
    """

    nodes: NodeTable
    objects: Objects
    most_kept: int = 2048
    most_bytes: int = _MOST_BYTES
    per_slice: int = _SLICE

    def __post_init__(self) -> None:
        self._taken = TakenBytes()
        self._table = EquivalenceTable()
        self._counts: OrderedDict[tuple[_Source, str], DomainCounts] = OrderedDict()
        self._by_source: dict[_Source, list[DomainCounts]] = {}
        self._selections: SelectionIndex[Selection] = SelectionIndex()
        self._uncounted: dict[tuple[_Source, str], list[EquivalentPods]] = {}
        """For each unfinished count, the equivalent pods that were not examined yet."""

    @property
    def bytes(self) -> int:
        """The estimated memory of the counts, including unused selections."""
        return self._taken.bytes

    def attach(self, pod: Pod, row: int) -> EquivalentPods:
        """Count the pod on the node of this row; return its EquivalentPods for `detach`."""
        key = key_of(pod)
        equivalent = self._table.find(key)
        if equivalent is None:
            equivalent = self._table.add(pod, key)
            equivalent.counted_in = self._counts_including(equivalent) or ()
        equivalent.pods_on.add(row)
        for counts in equivalent.counted_in:
            counts.add(row, 1)
        return equivalent

    def detach(self, equivalent: EquivalentPods, row: int) -> None:
        """Remove one pod of the EquivalentPods from the row.

        If it was the last pod, drop the EquivalentPods and the counts of terms that are now unused.
        """
        for counts in equivalent.counted_in:
            counts.add(row, -1)
        equivalent.pods_on.remove(row)
        if not equivalent.pods_on:
            for term in self._table.drop(equivalent):
                for counts in tuple(self._by_source.get(term, ())):
                    self._drop(term, counts.domains.key)

    def move(self, equivalent: EquivalentPods, before: int, row: int) -> None:
        """Move one pod of the EquivalentPods from row `before` to `row`."""
        for counts in equivalent.counted_in:
            counts.add(before, -1)
            counts.add(row, 1)
        equivalent.pods_on.remove(before)
        equivalent.pods_on.add(row)

    @contextmanager
    def relabelling(self, pods: Sequence[EquivalentPods], row: int) -> Iterator[None]:
        """Let the caller change the node's labels; then count the pods in their new domains.

        `pods` has one EquivalentPods for each pod on the node.
        """
        for equivalent in pods:
            for counts in equivalent.counted_in:
                counts.add(row, -1)
        yield
        for equivalent in pods:
            for counts in equivalent.counted_in:
                counts.add(row, 1)

    def namespace_changed(self, namespace: str) -> None:
        """Recount the namespace's pods for all selectors that read the namespace's labels."""
        # Counts that are not finished yet include these pods now, too.
        for uncounted in self._uncounted.values():
            others = [e for e in uncounted if e.namespace != namespace]
            self._taken.bytes -= _BYTES_PER_POD * (len(uncounted) - len(others))
            uncounted[:] = others
        for equivalent in self._table.having(namespace, None):
            before = equivalent.counted_in
            equivalent.counted_in = self._counts_including(equivalent) or ()
            for counts in set(before).difference(equivalent.counted_in):
                _add_all(counts, equivalent, -1)
            for counts in set(equivalent.counted_in).difference(before):
                _add_all(counts, equivalent, 1)

    def counts(self, pods: Selection, key: str) -> DomainCounts:
        """Return the number of selected pods per value of a node label, or per node (EACH_NODE)."""
        return self._counts_of(pods, key)

    def is_counted(self, pods: Selection, key: str) -> bool:
        """Return whether `counts` can answer at once, without counting pods."""
        return (pods, key) in self._counts and (pods, key) not in self._uncounted

    def count_some(self, pods: Selection, key: str) -> int:
        """Examine some EquivalentPods for a later call of `counts`; return their number.

        Repeat the call until `is_counted` is true. The state may change between two calls.
        """
        if (pods, key) not in self._counts:
            self._begin(pods, key)
            self._drop_excess()
        uncounted = self._uncounted.get((pods, key), [])
        before = len(uncounted)
        fraction = max(pods.requirements, _FEW_REQUIREMENTS) / _FEW_REQUIREMENTS
        most = max(int(self.per_slice / fraction), 1)
        some = (uncounted.pop() for _ in range(min(most, before)))
        self._count(self._counts[pods, key], some, pods, _SLICE_ROWS)
        looked = before - len(uncounted)
        self._taken.bytes -= _BYTES_PER_POD * looked
        if not uncounted:
            self._uncounted.pop((pods, key), None)
        return looked

    def owners(self, role: Role, pod: Pod) -> dict[Domains, IntArray | CountArray]:
        """Return the summed weights of placed pods' inter-pod terms that select `pod`.

        The result is as for `ClusterView.owners`; a label whose sums are all 0 may be left out.
        """
        terms, found = self._table.terms[role], dict[Domains, IntArray | CountArray]()
        if not terms:
            return found
        keeps_all = self._table.term_count <= self.most_kept // 2
        few: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """Maps a topology key, and then a row, to the sum of the weights of terms with few
        owners."""
        labels = self.objects.namespace_labels(pod.namespace)
        for term in terms.selecting(pod.namespace, labels, pod.labels):
            key = term.term.topology_key
            if keeps_all or (term, key) in self._counts or not _has_few_owners(term):
                counts = self._counts_of(term, key)
                if counts.total:
                    _sum_up(found, counts.domains, _weighed(counts.by_code, term.weight))
            elif key in self.nodes.label_keys:
                for row, number in _rows_of_owners(term):
                    few[key][row] += number * term.weight
        for key, weights in few.items():
            domains = self.nodes.domains(key)
            codes = domains.codes.data[np.array([*weights], np.int64)]
            inside = codes != ABSENT
            if inside.any():
                sums = np.zeros(len(domains.values) + 1, np.int64)
                np.add.at(sums, codes[inside], np.array([*weights.values()], np.int64)[inside])
                _sum_up(found, domains, sums)
        return found

    def selects(self, pods: Selection, pod: Pod) -> bool:
        """Return whether the selection includes the pod; the pod need not be placed."""
        labels = self.objects.known_namespace_labels(pod.namespace)
        return pods.selects(pod.namespace, labels, pod.labels)

    def _counts_of(self, source: _Source, key: str) -> DomainCounts:
        counts = self._counts.get((source, key))
        if counts is None:
            counts = self._begin(source, key)
            uncounted = self._uncounted.pop((source, key))
            self._taken.bytes -= _BYTES_PER_POD * len(uncounted)
            self._count(counts, uncounted, source)
        else:
            self._counts.move_to_end((source, key))
            while (source, key) in self._uncounted and isinstance(source, Selection):
                self.count_some(source, key)
        self._drop_excess()
        return counts

    def _begin(self, source: _Source, key: str) -> DomainCounts:
        counts = DomainCounts(self.nodes.domains(key), self._taken)
        self._counts[source, key] = counts
        self._taken.bytes += _BYTES_PER_COUNT
        if source not in self._by_source and isinstance(source, Selection):
            self._selections.add(source, source)
            self._taken.bytes += source.memory
        self._by_source.setdefault(source, []).append(counts)
        uncounted = self._uncounted[source, key] = self._candidates(source)
        self._taken.bytes += _BYTES_PER_POD * len(uncounted)
        return counts

    def _count(
        self,
        counts: DomainCounts,
        pods: Iterable[EquivalentPods],
        source: _Source,
        most_rows: int = sys.maxsize,
    ) -> None:
        rows, numbers = list[int](), list[int]()
        for equivalent in self._counted(source, pods):
            # Later changes of these pods then update `counts`.
            equivalent.count_in(counts)
            equivalent.pods_on.extend(rows, numbers)
            if len(rows) >= most_rows:
                break
        counts.add_each(rows, numbers)

    def _drop_excess(self) -> None:
        while len(self._counts) > 1 and (
            len(self._counts) > self.most_kept or self._taken.bytes > self.most_bytes
        ):
            self._drop(*next(iter(self._counts)))

    def _drop(self, source: _Source, key: str) -> None:
        counts, uncounted = self._counts.pop((source, key)), self._uncounted.pop((source, key), [])
        self._taken.bytes -= _BYTES_PER_COUNT + _BYTES_PER_POD * len(uncounted)
        counts.drop(lambda dropped: self._fill(dropped, source))
        self._by_source[source].remove(counts)
        if not self._by_source[source]:
            del self._by_source[source]
            if isinstance(source, Selection):
                self._selections.remove(source, source)
                self._taken.bytes -= source.memory

    def _candidates(self, source: _Source) -> list[EquivalentPods]:
        if isinstance(source, OwnedTerm):  # a pod may have the same term twice
            owned = self._table.owned(source)
            return [e for e in owned.owners for _ in range(e.terms.count(owned))]
        return [*self._table.candidates(source)]

    def _counts_including(self, equivalent: EquivalentPods) -> list[DomainCounts]:
        labels = self.objects.known_namespace_labels(equivalent.namespace)
        selecting = self._selections.selecting(equivalent.namespace, labels, equivalent.labels)
        sources: list[_Source] = [
            pods for pods in selecting if pods.terminating or not equivalent.terminating
        ]
        sources += equivalent.terms
        return [counts for source in sources for counts in self._by_source.get(source, ())]

    def _counted(self, source: _Source, pods: Iterable[EquivalentPods]) -> Iterable[EquivalentPods]:
        return self._selected(source, pods) if isinstance(source, Selection) else pods

    def _selected(
        self, selected: Selection, pods: Iterable[EquivalentPods]
    ) -> Iterator[EquivalentPods]:
        selects, labels_of = selected.selects, self.objects.known_namespace_labels
        for equivalent in pods:
            namespace, labels, terminating, _ = equivalent.key
            if terminating and not selected.terminating:
                continue
            if selects(namespace, labels_of(namespace), labels):
                yield equivalent

    def _fill(self, counts: DomainCounts, source: _Source) -> None:
        # No event has updated the dropped `counts`.
        rows, numbers = list[int](), list[int]()
        for equivalent in self._counted(source, self._candidates(source)):
            equivalent.pods_on.extend(rows, numbers)
        counts.add_each(rows, numbers)


def _has_few_owners(term: OwnedTerm) -> bool:
    rows = 0
    for owner in term.owners:
        rows += len(owner.pods_on)
        if rows > _FEW_ROWS:
            return False
    return True


def _rows_of_owners(term: OwnedTerm) -> Iterator[tuple[int, int]]:
    """Yield pairs: a row, and how many pods there have the term. Rows may be repeated."""
    for owner in term.owners:
        times = owner.terms.count(term)  # a pod may have the same term twice
        for row, number in owner.pods_on.items():
            yield row, times * number


def _weighed(by_code: CountArray, weight: int) -> IntArray | CountArray:
    return by_code if weight == 1 else weight * by_code.astype(np.int64)


def _sum_up(
    found: dict[Domains, IntArray | CountArray], domains: Domains, amounts: IntArray | CountArray
) -> None:
    known = found.get(domains)
    found[domains] = amounts if known is None else np.add(known, amounts, dtype=np.int64)


def _add_all(counts: DomainCounts, equivalent: EquivalentPods, sign: int) -> None:
    for row, number in equivalent.pods_on.items():
        counts.add(row, sign * number)
