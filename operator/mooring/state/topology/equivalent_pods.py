"""Groups placed pods that every count treats alike: same namespace, labels and inter-pod terms.

They are counted together, so that an event of a pod costs one addition per count.
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
"""From this number of counts on, dropped ones are removed each time the number has doubled."""

_Key = tuple[str, FrozenDict, bool, PodAffinity]


class Role(Enum):
    """The demand of an inter-pod term."""

    REQUIRED = "required affinity"
    FORBIDDEN = "required anti-affinity"
    PREFERRED = "preferred affinity, or anti-affinity where the weight is negative"


@dataclass(slots=True, eq=False)
class OwnedTerm:
    """An inter-pod term that placed pods, its owners, have in their spec.

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

    All of them are terminating, or none is. `pods_on` is their number per row, `counted_in` the
    counts that include them.
    """

    key: _Key
    terms: tuple[OwnedTerm, ...]
    pods_on: RowCounts = field(default_factory=RowCounts)
    counted_in: Sequence[DomainCounts] = ()
    """Some of them may be dropped already, which are removed when there are too many."""

    @property
    def namespace(self) -> str:
        """The namespace of the pods."""
        return self.key[0]

    @property
    def labels(self) -> FrozenDict:
        """The labels of each of the pods."""
        return self.key[1]

    @property
    def terminating(self) -> bool:
        """Whether the pods are terminating."""
        return self.key[2]

    def count_in(self, counts: DomainCounts) -> None:
        """Note that the counts include the pods."""
        known = self.counted_in
        if isinstance(known, list):
            known.append(counts)
        else:
            self.counted_in = [*known, counts]
        if len(known) >= _MANY and not len(known) & (len(known) - 1):
            self.counted_in = [each for each in known if not each.is_dropped]


class EquivalenceTable:
    """All placed pods as EquivalentPods, and the inter-pod terms they own."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, EquivalentPods] = {}
        self._by_label: dict[
            str, dict[Pair | None, EquivalentPods | dict[EquivalentPods, None]]
        ] = {}
        """By namespace, then by label; None has all of the namespace.

        Those that are alone with their label, as pods of a StatefulSet are, have no dict. Sets of
        some pods would take twice as much.
        """
        self._owned: dict[tuple[Role, int, AffinityTerm], OwnedTerm] = {}
        self.terms: dict[Role, SelectionIndex[OwnedTerm]] = {r: SelectionIndex() for r in Role}
        """The distinct terms of placed pods, found by the pods that they select."""

    @property
    def term_count(self) -> int:
        """How many distinct terms placed pods have."""
        return len(self._owned)

    def find(self, key: _Key) -> EquivalentPods | None:
        """Return the placed pods with this key; None if there are none."""
        return self._by_key.get(key)

    def add(self, pod: Pod, key: _Key) -> EquivalentPods:
        """Add a pod without an equivalent placed pod; `key` is the result of `key_of`."""
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
        """Remove equivalent pods without a placed one; return the terms without an owner now."""
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
        """Return the equal term that placed pods have now; the given one if none has it.

        If its last owner left and came back in a trial, that made a new object.
        """
        return self._owned.get((term.role, term.weight, term.term), term)

    def candidates(self, pods: Selection) -> Iterator[EquivalentPods]:
        """Return placed pods that the selection may include; none that it includes is missing."""
        for namespace, label in lookup_keys(pods):
            for name in self._by_label if namespace is None else (namespace,):
                yield from self.having(name, label)

    def having(self, namespace: str, label: Pair | None) -> tuple[EquivalentPods, ...]:
        """Return the placed pods of a namespace with a label; None stands for every pod."""
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
    """Return the values that equivalent pods share; with 20,000 labels that takes 10 ms."""
    labels = pod.labels if isinstance(pod.labels, FrozenDict) else FrozenDict(pod.labels)
    return pod.namespace, labels, pod.terminating, pod.spec.affinity


def _stated(affinity: PodAffinity) -> Iterator[tuple[Role, int, AffinityTerm]]:
    for term in affinity.required:
        yield Role.REQUIRED, 1, term
    for term in affinity.required_anti:
        yield Role.FORBIDDEN, 1, term
    for preferred in affinity.preferred:
        yield Role.PREFERRED, preferred.weight, preferred.term
