"""Counts cards in every format that a plugin reads; `ClusterState` reports all changes.

Counting begins with the first plugin that reads a format, and ends with the last.
"""

from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from mooring.gpu_cards.model.cards import Assignment, CardFormat, CardRequestError, card_request
from mooring.gpu_cards.state.card_counts import Cards, CardsOfRow
from mooring.model.node import Node
from mooring.state.nodes import NodeTable
from mooring.state.pods import PlacedPod, PodTable


class CardFormats:
    """The counts of cards, by format; only `ClusterState` changes this object."""

    def __init__(self, nodes: NodeTable, pods: PodTable) -> None:
        self._nodes = nodes
        self._pods = pods
        self._cards: WeakValueDictionary[CardFormat, Cards] = WeakValueDictionary()
        self.mismatches = 0
        """The number of pods whose annotations name other cards than the plugin has chosen."""

    def track(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """Return the counts in this format; they are updated while the caller keeps the result.

        If `demand` is True, typical requests are counted, too. Each node is counted at its first
        use.
        """
        cards = self._cards.get(form)
        if cards is None:
            rows = [row for row, node in enumerate(self._nodes.nodes) if node is not None]
            cards = self._cards[form] = Cards(form, rows, partial(self._on_row, form))
        if demand and not cards.followed:
            cards.follow()
        return cards

    def _on_row(self, form: CardFormat, row: int) -> CardsOfRow:
        pods = [(placed.pod, _known(placed, form)) for placed in self._pods.on(row)]
        return CardsOfRow(self._nodes.nodes[row], pods)

    @property
    def tracked(self) -> tuple[Cards, ...]:
        """The counts in every format that a plugin reads."""
        return tuple(self._cards.values())

    def attach(self, pods: Sequence[PlacedPod]) -> None:
        """Count the pods of one node on their cards; `detach` is the exact reverse."""
        if not self._cards or not self._is_counted(pods[0]):
            return  # asking for the items of a weak dictionary takes longer than all else here
        for form, cards in self._cards.items():
            for placed in pods:
                cards.put_pod(placed.row, placed.pod, _known(placed, form))

    def detach(self, pods: Sequence[PlacedPod]) -> None:
        """Stop counting the pods of one node."""
        if not self._cards or not self._is_counted(pods[0]):
            return
        for cards in self._cards.values():
            for placed in pods:
                cards.drop_pod(placed.row, placed.pod.uid)

    def assign(self, placed: PlacedPod, form: CardFormat, assignment: Assignment) -> bool:
        """Assign cards to an assumed pod; return whether the counts changed."""
        placed.cards = (form, assignment)
        cards = self._cards.get(form)
        return cards is not None and cards.put_pod(placed.row, placed.pod, assignment)

    def renew(self, placed: PlacedPod) -> bool:
        """Count a newer version of the pod; return whether the counts changed.

        If its annotations name other cards than the plugin has chosen, the annotations decide.
        """
        if not self._is_counted(placed):
            return False
        changed = False
        for form, cards in self._cards.items():
            changed |= cards.put_pod(placed.row, placed.pod, _known(placed, form))
        if placed.cards is not None:
            form, chosen = placed.cards
            actual = _actual(placed, form)
            if actual is not None and actual != chosen:
                placed.cards = (form, actual)
                self.mismatches += 1
        return changed

    def _is_counted(self, placed: PlacedPod) -> bool:
        return not self._nodes.is_unknown(placed.row)

    def node_changed(self, row: int, node: Node | None) -> None:
        """Count the cards of the row's node again; `node` is None if the row has no node."""
        for cards in self._cards.values():
            cards.put_node(row, node)

    def publish(self, placed: PlacedPod) -> bool:
        """Record that a pod was placed; return whether a format's `typical` was computed again."""
        if not self._cards:
            return False
        uid = placed.pod.uid
        published = [cards.publish(placed.row, uid) for cards in self._cards.values()]
        return any(published)


def _known(placed: PlacedPod, form: CardFormat) -> Assignment | None:
    actual = _actual(placed, form)
    if actual is None and placed.cards is not None and placed.cards[0] == form:
        return placed.cards[1]
    return actual


def _actual(placed: PlacedPod, form: CardFormat) -> Assignment | None:
    # The annotations of an unbound pod come from a user or from an earlier attempt.
    if placed.assumed:
        return None
    try:
        request = card_request(placed.pod.spec, form)
    except CardRequestError:
        return None
    return form.assigned(placed.pod.annotations, request) if request is not None else None
