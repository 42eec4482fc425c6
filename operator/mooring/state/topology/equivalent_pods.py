"""Placed pods sorted into kinds: what no count of pods by labels or terms can tell apart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mooring.model.affinity import AffinityTerm, PodAffinity
from mooring.model.pod import Pod
from mooring.state.topology.domain_counts import MutableDomainCounts
from mooring.state.topology.selection import (
    Pair,
    Selection,
    SelectionIndex,
    places,
    selection,
    term_selector,
)

__all__ = ["EquivalenceTable", "EquivalentPods", "OwnedTerm", "Role"]

_Key = tuple[str, frozenset[Pair], bool, PodAffinity]


class Role(Enum):
    """What an inter-pod term asks for."""

    REQUIRED = "required affinity"
    FORBIDDEN = "required anti-affinity"
    PREFERRED = "preferred affinity, or anti-affinity where the weight is negative"


@dataclass(slots=True, eq=False)
class OwnedTerm:
    """An inter-pod term that placed pods of some kinds have in their spec.

    `weight` is 1 for required terms and negative for preferred anti-affinity.
    """

    role: Role
    weight: int
    term: AffinityTerm
    pods: Selection
    owners: set["EquivalentPods"] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class EquivalentPods:
    """Placed pods with the same namespace, labels and inter-pod terms, all terminating or none.

    `rows` says how many of them are on each row, `tallies` in which counts they are included.
    """

    key: _Key
    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    terms: tuple[OwnedTerm, ...]
    rows: dict[int, int] = field(default_factory=dict)
    tallies: list[MutableDomainCounts] = field(default_factory=list)


class EquivalenceTable:
    """The kinds of all placed pods, and the inter-pod terms these own."""

    def __init__(self) -> None:
        self._kinds: dict[_Key, EquivalentPods] = {}
        self._filed: dict[str, dict[Pair | None, set[EquivalentPods]]] = {}
        self._owned: dict[tuple[Role, int, AffinityTerm], OwnedTerm] = {}
        self.terms: dict[Role, SelectionIndex[OwnedTerm]] = {r: SelectionIndex() for r in Role}
        """The distinct terms that some kind owns, found by the pods they are about."""

    def find(self, pod: Pod) -> EquivalentPods | None:
        """The pod's kind, if a placed pod is of it."""
        return self._kinds.get(_key(pod))

    def add(self, pod: Pod) -> EquivalentPods:
        """The pod's kind, which must not be known yet."""
        terms = tuple(self._owned_term(*stated) for stated in _stated(pod.shape.affinity))
        kind = EquivalentPods(_key(pod), pod.namespace, pod.labels, pod.terminating, terms)
        self._kinds[kind.key] = kind
        for term in terms:
            term.owners.add(kind)
        filed = self._filed.setdefault(kind.namespace, {})
        for pair in (None, *kind.labels.items()):
            filed.setdefault(pair, set()).add(kind)
        return kind

    def drop(self, kind: EquivalentPods) -> list[OwnedTerm]:
        """No pod is of the kind any more; returns the terms that nobody owns any more."""
        del self._kinds[kind.key]
        filed = self._filed[kind.namespace]
        for pair in (None, *kind.labels.items()):
            filed[pair].discard(kind)
            if not filed[pair]:
                del filed[pair]
        if not filed:
            del self._filed[kind.namespace]
        for term in kind.terms:
            term.owners.discard(kind)
        orphans = [term for term in set(kind.terms) if not term.owners]
        for term in orphans:
            del self._owned[term.role, term.weight, term.term]
            self.terms[term.role].remove(term, term.pods)
        return orphans

    def in_namespace(self, namespace: str) -> tuple[EquivalentPods, ...]:
        """All kinds of a namespace."""
        return tuple(self._filed.get(namespace, {}).get(None, ()))

    def candidates(self, pods: Selection) -> Iterator[EquivalentPods]:
        """Kinds among which are all the selected ones, each once."""
        for namespace, pair in places(pods):
            for name in self._filed if namespace is None else (namespace,):
                yield from self._filed.get(name, {}).get(pair, ())

    def _owned_term(self, role: Role, weight: int, term: AffinityTerm) -> OwnedTerm:
        owned = self._owned.get((role, weight, term))
        if owned is None:
            pods = selection((term_selector(term),), terminating=True)
            owned = self._owned[role, weight, term] = OwnedTerm(role, weight, term, pods)
            self.terms[role].add(owned, pods)
        return owned


def _key(pod: Pod) -> _Key:
    return pod.namespace, frozenset(pod.labels.items()), pod.terminating, pod.shape.affinity


def _stated(affinity: PodAffinity) -> Iterator[tuple[Role, int, AffinityTerm]]:
    for term in affinity.required:
        yield Role.REQUIRED, 1, term
    for term in affinity.required_anti:
        yield Role.FORBIDDEN, 1, term
    for preferred in affinity.preferred:
        yield Role.PREFERRED, preferred.weight, preferred.term
