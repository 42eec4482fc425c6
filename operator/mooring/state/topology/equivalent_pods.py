"""Groups placed pods that every count treats alike: same namespace, labels and inter-pod terms.

Equivalent pods are counted together, so that a pod event costs one addition per count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mooring.model.affinity import AffinityTerm, PodAffinity
from mooring.model.pod import Pod
from mooring.model.shared_values import FrozenDict
from mooring.state.row_counts import RowCounts
from mooring.state.topology.domain_counts import DomainCounts
from mooring.state.topology.pod_selection import (
    Pair,
    Selection,
    SelectionIndex,
    lookup_keys,
    selection,
    term_selector,
)

_MANY: Final = 64
"""Dropped counts are removed from `counted_in` when it has 64 items, and at each doubling."""

_Key = tuple[str, FrozenDict, bool, PodAffinity]


class Role(Enum):
    """The kind of an inter-pod term: affinity or anti-affinity, required or preferred."""

    REQUIRED = "required affinity"
    FORBIDDEN = "required anti-affinity"
    PREFERRED = "preferred affinity, or anti-affinity where the weight is negative"


@dataclass(slots=True, eq=False)
class OwnedTerm:
    """An inter-pod term in the spec of placed pods; these pods are its owners.

    `weight` is 1 for required terms and negative for preferred anti-affinity.
    """

    role: Role
    weight: int
    term: AffinityTerm
    pods: Selection
    """The pods that the term selects."""
    owners: set["EquivalentPods"] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class EquivalentPods:
    """Placed pods with the same namespace, labels and inter-pod terms.

    All of them are terminating, or none is. `pods_on` has the number of these pods for each row.
    """

    key: _Key
    terms: tuple[OwnedTerm, ...]
    pods_on: RowCounts = field(default_factory=RowCounts)
    counted_in: Sequence[DomainCounts] = ()
    """The counts that include these pods, and perhaps some dropped counts."""

    @property
    def namespace(self) -> str:
        """The common namespace of the pods."""
        return self.key[0]

    @property
    def labels(self) -> FrozenDict:
        """The common labels of the pods."""
        return self.key[1]

    @property
    def terminating(self) -> bool:
        """Whether all of the pods are terminating; False: none is."""
        return self.key[2]

    def count_in(self, counts: DomainCounts) -> None:
        """Add `counts` to `counted_in`, because they include these pods."""
        known = self.counted_in
        if isinstance(known, list):
            known.append(counts)
        else:
            self.counted_in = [*known, counts]
        if len(known) >= _MANY and not len(known) & (len(known) - 1):
            self.counted_in = [each for each in known if not each.is_dropped]


class EquivalenceTable:
    """All placed pods as EquivalentPods, and the inter-pod terms in their specs."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, EquivalentPods] = {}
        self._by_label: dict[
            str, dict[Pair | None, EquivalentPods | dict[EquivalentPods, None]]
        ] = {}
        """The EquivalentPods by namespace, then by label; None stands for any label.

        A single EquivalentPods, as for a pod of a StatefulSet, is stored without a dict. Dicts
        are used as sets, because small sets take twice as much memory.
        """
        self._owned: dict[tuple[Role, int, AffinityTerm], OwnedTerm] = {}
        self.terms: dict[Role, SelectionIndex[OwnedTerm]] = {r: SelectionIndex() for r in Role}
        """Maps a role to an index that finds, for a pod, the inter-pod terms of placed pods that
        select the pod."""

    @property
    def term_count(self) -> int:
        """The number of distinct inter-pod terms of placed pods."""
        return len(self._owned)

    def find(self, key: _Key) -> EquivalentPods | None:
        """Return the EquivalentPods of this key; None if no placed pod has it."""
        return self._by_key.get(key)

    def add(self, pod: Pod, key: _Key) -> EquivalentPods:
        """Add and return an EquivalentPods for this pod; no placed pod may have the same `key`."""
        terms = tuple(self._owned_term(*stated) for stated in _stated(pod.spec.affinity))
        equivalent = EquivalentPods(key, terms)
        self._by_key[equivalent.key] = equivalent
        for term in terms:
            term.owners.add(equivalent)
        by_label = self._by_label.setdefault(equivalent.namespace, {})
        for label in (None, *equivalent.labels.items()):
            known = by_label.setdefault(label, equivalent)
            if isinstance(known, dict):
                known[equivalent] = None
            elif known is not equivalent:
                by_label[label] = {known: None, equivalent: None}
        return equivalent

    def drop(self, equivalent: EquivalentPods) -> list[OwnedTerm]:
        """Remove an EquivalentPods without pods; return the terms that no placed pod has now."""
        del self._by_key[equivalent.key]
        by_label = self._by_label[equivalent.namespace]
        for label in (None, *equivalent.labels.items()):
            known = by_label[label]
            if isinstance(known, dict) and len(known) > 1:
                known.pop(equivalent, None)
            else:
                del by_label[label]
        if not by_label:
            del self._by_label[equivalent.namespace]
        for term in equivalent.terms:
            term.owners.discard(equivalent)
        without_owner = [term for term in set(equivalent.terms) if not term.owners]
        for term in without_owner:
            del self._owned[term.role, term.weight, term.term]
            self.terms[term.role].remove(term, term.pods)
        return without_owner

    def owned(self, term: OwnedTerm) -> OwnedTerm:
        """Return the stored OwnedTerm that equals `term`, or `term` itself if none is stored."""
        # The stored one is another object if a trial has removed and restored the last owner.
        return self._owned.get((term.role, term.weight, term.term), term)

    def candidates(self, pods: Selection) -> Iterator[EquivalentPods]:
        """Yield all EquivalentPods that the selection may include."""
        for namespace, label in lookup_keys(pods):
            for name in self._by_label if namespace is None else (namespace,):
                yield from self.having(name, label)

    def having(self, namespace: str, label: Pair | None) -> tuple[EquivalentPods, ...]:
        """Return the EquivalentPods of a namespace that have the label; None means all of them."""
        known = self._by_label.get(namespace, {}).get(label, {})
        return (known,) if isinstance(known, EquivalentPods) else tuple(known)

    def _owned_term(self, role: Role, weight: int, term: AffinityTerm) -> OwnedTerm:
        owned = self._owned.get((role, weight, term))
        if owned is None:
            pods = selection((term_selector(term),), terminating=True)
            owned = self._owned[role, weight, term] = OwnedTerm(role, weight, term, pods)
            self.terms[role].add(owned, pods)
        return owned


def key_of(pod: Pod) -> _Key:
    """Return the key that equivalent pods share; with 20,000 labels this takes 10 ms."""
    labels = pod.labels if isinstance(pod.labels, FrozenDict) else FrozenDict(pod.labels)
    return pod.namespace, labels, pod.terminating, pod.spec.affinity


def _stated(affinity: PodAffinity) -> Iterator[tuple[Role, int, AffinityTerm]]:
    for term in affinity.required:
        yield Role.REQUIRED, 1, term
    for term in affinity.required_anti:
        yield Role.FORBIDDEN, 1, term
    for preferred in affinity.preferred:
        yield Role.PREFERRED, preferred.weight, preferred.term
