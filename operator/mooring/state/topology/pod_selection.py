"""Selections of pods by label and namespace; each count of pods has one selection."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from mooring.model.affinity import AffinityTerm
from mooring.model.bounded_cache import bytes_of
from mooring.model.indexes import drop_item
from mooring.model.selectors import LabelSelector

_Item = TypeVar("_Item")
Pair = tuple[str, str]
"""A label's key and value."""


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods whose labels match `selector`; None matches no pod.

    A pod's namespace must be listed in `namespaces` or match `namespace_selector`.
    """

    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def selects(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> bool:
        """Return whether a pod with these labels in this namespace is selected.

        `namespace_labels` is None if the namespace is unknown. The namespace selector then matches
        only if it is empty (`{}`).
        """
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        wanted = self.namespace_selector
        if wanted is None:
            return False
        return wanted.empty or (namespace_labels is not None and wanted.matches(namespace_labels))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Selection:
    """Pods that every item of `parts` selects; terminating pods only if `terminating` is True.

    The function `selection` makes Selections. They are compared by identity, so that looking up a
    count hashes no selectors.
    """

    parts: tuple[PodSelector, ...]
    terminating: bool
    memory: int
    """The estimated bytes of the selection, including its entries in a SelectionIndex."""
    requirements: int
    """The number of label requirements in all selectors of the parts."""

    def selects(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> bool:
        """Return whether all parts select a pod with these labels; `terminating` is not checked."""
        for part in self.parts:  # noqa: SIM110 - counts do so for each pod, see `LabelSelector`
            if not part.selects(namespace, namespace_labels, labels):
                return False
        return True


_PLACE: Final = 480
"""The estimated bytes of an entry in a SelectionIndex."""
_MOST_PLACES: Final = 64
"""The most index entries of a selection. A selection that needs more is indexed without its labels,
its namespaces or both."""
_SELECTIONS: Final[WeakValueDictionary[tuple[tuple[PodSelector, ...], bool], Selection]] = (
    WeakValueDictionary()
)


def selection(parts: tuple[PodSelector, ...], *, terminating: bool) -> Selection:
    """Return the selection of these parts; equal calls return the same object while it is used."""
    # The table needs no limit, because the counts and pods that hold selections are limited.
    known = _SELECTIONS.get((parts, terminating))
    if known is None:
        namespaces, pairs = _places(parts[0])
        memory = bytes_of(parts) + _PLACE * len(namespaces) * len(pairs)
        selectors = (s for p in parts for s in (p.selector, p.namespace_selector) if s is not None)
        requirements = sum(len(selector.requirements) for selector in selectors)
        known = Selection(parts, terminating, memory, requirements)
        _SELECTIONS[parts, terminating] = known
    return known


def term_selector(term: AffinityTerm) -> PodSelector:
    """Return the selector of an inter-pod affinity term."""
    return PodSelector(term.selector, term.namespaces, term.namespace_selector)


class SelectionIndex(Generic[_Item]):
    """Finds the items whose selection includes a pod, without examining all items.

    An item is stored by its namespaces and, if its selector requires values of a label, by these
    values. Only items stored by the pod's namespace and labels are examined.
    """

    def __init__(self) -> None:
        self._items: dict[str | None, dict[Pair | None, dict[_Item, Selection]]] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: _Item, pods: Selection) -> None:
        """Add an item; `selecting` finds it for each pod that the selection `pods` includes."""
        for namespace, pair in lookup_keys(pods):
            self._items.setdefault(namespace, {}).setdefault(pair, {})[item] = pods

    def remove(self, item: _Item, pods: Selection) -> None:
        """Remove an item that was added with the selection `pods`."""
        for namespace, pair in lookup_keys(pods):
            by_label = self._items[namespace]
            drop_item(by_label, pair, item)
            if not by_label:
                del self._items[namespace]

    def selecting(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> Iterator[_Item]:
        """Yield each item whose selection includes a pod with these labels in this namespace."""
        pairs = (None, *labels.items())
        for by_label in filter(None, (self._items.get(namespace), self._items.get(None))):
            for items in filter(None, map(by_label.get, pairs)):
                for item, pods in items.items():
                    if pods.selects(namespace, namespace_labels, labels):
                        yield item


def lookup_keys(pods: Selection) -> Iterator[tuple[str | None, Pair | None]]:
    """Yield the pairs of namespace and label by which an index stores `pods`; None means any."""
    namespaces, pairs = _places(pods.parts[0])
    for namespace in namespaces:
        for pair in pairs:
            yield namespace, pair


def _places(part: PodSelector) -> tuple[Collection[str | None], Collection[Pair | None]]:
    """Return the namespaces and label pairs under which to store the part; None means any."""
    if part.selector is None:
        return (), ()
    namespaces: Collection[str | None] = part.namespaces
    if part.namespace_selector is not None or len(namespaces) > _MOST_PLACES:
        namespaces = (None,)
    wanted = next((r for r in part.selector.requirements if r.operator == "In"), None)
    values = set(wanted.values) if wanted is not None else ()
    # A term may have thousands of namespaces and of values, and a place takes memory.
    if wanted is None or len(namespaces) * len(values) > _MOST_PLACES:
        return namespaces, (None,)
    return namespaces, [(wanted.key, value) for value in values]
