"""Which pods a count is about: those with certain labels in certain namespaces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from mooring.model.affinity import AffinityTerm
from mooring.model.selectors import LabelSelector

__all__ = [
    "Pair",
    "PodSelector",
    "Selection",
    "SelectionIndex",
    "places",
    "selection",
    "term_selector",
]

_Item = TypeVar("_Item")
Pair = tuple[str, str]
"""A label's key and value."""


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods that `selector` selects (None: none), in namespaces listed or selected."""

    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def selects(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> bool:
        """Whether a pod is selected; a namespace without known labels only by list or by `{}`."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        wanted = self.namespace_selector
        if wanted is None:
            return False
        return wanted.empty or (namespace_labels is not None and wanted.matches(namespace_labels))


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Pods that every one of `parts` (at least one) selects; made by `selection`.

    Compared by identity, so that looking up its counts costs no hashing of selectors.
    """

    parts: tuple[PodSelector, ...]
    terminating: bool

    def selects(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> bool:
        """Whether a pod that is not terminating is selected."""
        return all(part.selects(namespace, namespace_labels, labels) for part in self.parts)


@lru_cache(maxsize=16_384)
def selection(parts: tuple[PodSelector, ...], *, terminating: bool) -> Selection:
    """The selection of these parts, with or without pods that are being deleted."""
    return Selection(parts, terminating)


def term_selector(term: AffinityTerm) -> PodSelector:
    """The pods an inter-pod affinity term is about."""
    return PodSelector(term.selector, term.namespaces, term.namespace_selector)


class SelectionIndex(Generic[_Item]):
    """Items with a selection each, found by the pods they select without asking every item.

    An item is filed under the namespaces and, if its selector asks for a value of some label, under
    that label; a pod can only be selected by items filed under what it has.
    """

    def __init__(self) -> None:
        self._items: dict[str | None, dict[Pair | None, dict[_Item, Selection]]] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: _Item, pods: Selection) -> None:
        """The item is found from now on."""
        for namespace, pair in places(pods):
            self._items.setdefault(namespace, {}).setdefault(pair, {})[item] = pods

    def remove(self, item: _Item, pods: Selection) -> None:
        """The item, added with this selection, is found no more."""
        for namespace, pair in places(pods):
            filed = self._items[namespace]
            del filed[pair][item]
            if not filed[pair]:
                del filed[pair]
            if not filed:
                del self._items[namespace]

    def selecting(
        self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]
    ) -> Iterator[_Item]:
        """Each item whose selection includes a pod like this."""
        pairs = (None, *labels.items())
        for filed in filter(None, (self._items.get(namespace), self._items.get(None))):
            for items in filter(None, map(filed.get, pairs)):
                for item, pods in items.items():
                    if pods.selects(namespace, namespace_labels, labels):
                        yield item


def places(pods: Selection) -> Iterator[tuple[str | None, Pair | None]]:
    """Where to look for the selected pods: namespace (None: any) and label (None: any)."""
    part = pods.parts[0]
    if part.selector is None:
        return
    namespaces = part.namespaces if part.namespace_selector is None else (None,)
    wanted = next((r for r in part.selector.requirements if r.operator == "In"), None)
    pairs = [None] if wanted is None else [(wanted.key, value) for value in set(wanted.values)]
    for namespace in namespaces:
        for pair in pairs:
            yield namespace, pair
