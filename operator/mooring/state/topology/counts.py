"""How many pods match each selector or own each inter-pod term, per topology domain.

kube-scheduler counts all pods anew for every pod that has such a term. Here a count is made once,
when a decision first asks for it, and then follows every pod, node and namespace event.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mooring.model.pod import Pod
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.topology.domain_counts import DomainCounts, MutableDomainCounts
from mooring.state.topology.equivalent_pods import EquivalenceTable, EquivalentPods, OwnedTerm, Role
from mooring.state.topology.selection import Selection, SelectionIndex

__all__ = ["TopologyCounts"]

_Source = Selection | OwnedTerm
"""Whom a tally counts: the pods selected, or the owners of a term."""


class TopologyCounts:
    """The counts of placed pods that inter-pod affinity and topology spread decide by.

    At most `most_tallies` are kept, each of 4 bytes per domain; the one asked for least lately is
    forgotten first, and would be counted anew.
    """

    def __init__(self, nodes: NodeTable, objects: Objects, most_tallies: int = 2048) -> None:
        self._nodes = nodes
        self._objects = objects
        self._most_tallies = most_tallies
        self._kinds = EquivalenceTable()
        self._tallies: OrderedDict[tuple[_Source, str], MutableDomainCounts] = OrderedDict()
        self._by_source: dict[_Source, list[MutableDomainCounts]] = {}
        self._selections: SelectionIndex[Selection] = SelectionIndex()

    def attach(self, pod: Pod, row: int) -> EquivalentPods:
        """The pod counts on the row; what is returned is to be given to `detach`."""
        kind = self._kinds.find(pod)
        if kind is None:
            kind = self._kinds.add(pod)
            kind.tallies = self._including(kind)
        kind.rows[row] = kind.rows.get(row, 0) + 1
        for tally in kind.tallies:
            tally.add(row, 1)
        return kind

    def detach(self, kind: EquivalentPods, row: int) -> None:
        """One pod of the kind counts on the row no more."""
        for tally in kind.tallies:
            tally.add(row, -1)
        kind.rows[row] -= 1
        if kind.rows[row]:
            return
        del kind.rows[row]
        if not kind.rows:
            for term in self._kinds.drop(kind):
                for tally in tuple(self._by_source.get(term, ())):
                    self._forget(term, tally.domains.key)

    @contextmanager
    def moving(self, kinds: Sequence[EquivalentPods], row: int) -> Iterator[None]:
        """Inside, the row may go to other domains; its pods, one kind each, go along."""
        for kind in kinds:
            for tally in kind.tallies:
                tally.add(row, -1)
        yield
        for kind in kinds:
            for tally in kind.tallies:
                tally.add(row, 1)

    def namespace_changed(self, namespace: str) -> None:
        """Selectors of namespaces see the namespace's labels as they are now."""
        for kind in self._kinds.in_namespace(namespace):
            before, kind.tallies = kind.tallies, self._including(kind)
            for tally in set(before).difference(kind.tallies):
                _add_all(tally, kind, -1)
            for tally in set(kind.tallies).difference(before):
                _add_all(tally, kind, 1)

    def counts(self, pods: Selection, key: str) -> DomainCounts:
        """The selected pods per value of a node label, or with EACH_NODE per node."""
        return self._tally(pods, key)

    def owners(self, role: Role, pod: Pod) -> list[tuple[int, DomainCounts]]:
        """The terms of placed pods that are about this pod: weight, and owners per domain.

        Terms without an owner in any domain are left out.
        """
        terms = self._kinds.terms[role]
        if not terms:
            return []
        labels = self._objects.namespace_labels(pod.namespace)
        about = terms.selecting(pod.namespace, labels, pod.labels)
        counted = [(term.weight, self._tally(term, term.term.topology_key)) for term in about]
        return [(weight, tally) for weight, tally in counted if tally.total]

    def selects(self, pods: Selection, pod: Pod) -> bool:
        """Whether a pod that may not be placed is one of the selection."""
        labels = self._objects.known_namespace_labels(pod.namespace)
        return pods.selects(pod.namespace, labels, pod.labels)

    def _tally(self, source: _Source, key: str) -> MutableDomainCounts:
        tally = self._tallies.get((source, key))
        if tally is not None:
            self._tallies.move_to_end((source, key))
            return tally
        tally = self._tallies[source, key] = MutableDomainCounts(self._nodes.domains(key))
        if source not in self._by_source and isinstance(source, Selection):
            self._selections.add(source, source)
        self._by_source.setdefault(source, []).append(tally)
        for kind in self._members(source):
            kind.tallies.append(tally)
            _add_all(tally, kind, 1)
        if len(self._tallies) > self._most_tallies:
            self._forget(*next(iter(self._tallies)))
        return tally

    def _forget(self, source: _Source, key: str) -> None:
        tally = self._tallies.pop((source, key))
        for kind in self._members(source):
            kind.tallies.remove(tally)
        self._by_source[source].remove(tally)
        if not self._by_source[source]:
            del self._by_source[source]
            if isinstance(source, Selection):
                self._selections.remove(source, source)

    def _members(self, source: _Source) -> list[EquivalentPods]:
        """The kinds a source counts, as often as it counts each of their pods."""
        if isinstance(source, OwnedTerm):  # nothing keeps a pod from stating a term twice
            return [k for k in source.owners for _ in range(k.terms.count(source))]
        return [k for k in self._kinds.candidates(source) if self._selected(source, k)]

    def _including(self, kind: EquivalentPods) -> list[MutableDomainCounts]:
        """The tallies a kind belongs in."""
        labels = self._objects.known_namespace_labels(kind.namespace)
        sources: list[_Source] = [
            pods
            for pods in self._selections.selecting(kind.namespace, labels, kind.labels)
            if pods.terminating or not kind.terminating
        ]
        sources += kind.terms
        return [tally for source in sources for tally in self._by_source.get(source, ())]

    def _selected(self, pods: Selection, kind: EquivalentPods) -> bool:
        if kind.terminating and not pods.terminating:
            return False
        labels = self._objects.known_namespace_labels(kind.namespace)
        return pods.selects(kind.namespace, labels, kind.labels)


def _add_all(tally: MutableDomainCounts, kind: EquivalentPods, sign: int) -> None:
    for row, number in kind.rows.items():
        tally.add(row, sign * number)
