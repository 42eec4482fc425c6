"""The free amounts of each GPU card of each node, as columns with one row per node.

A row depends only on the node's cards and the pods on the node. Therefore a restart gives the same
counts, and a trial leaves no trace.

A pod's cards are unknown if no scheduler chose cards or if the annotation is malformed. Then the
pod is counted on the cards where it fits best, after all other pods, in the order of names.

A node that already exists when counting begins is counted at its first use, or by `count_row`.
Changes of the node until then are ignored.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.gpu_cards.model.cards import (
    MAX_CARDS,
    NO_CARDS,
    Assignment,
    CardFormat,
    CardRequest,
    CardRequestError,
    CardShare,
    NodeCards,
    card_request,
    node_cards,
)
from mooring.model.indexes import add_count
from mooring.model.node import Node
from mooring.model.pod import Pod, Uid
from mooring.state.columns import IntArray

_FIRST_ROWS: Final = 64
_MOST_CLASSES: Final = 32
_NONE: Final = (0,) * MAX_CARDS

# Where a row's numbers are: three for each card, four for the node.
_FREE: Final = slice(0, MAX_CARDS)
_FREE_CORES: Final = slice(MAX_CARDS, 2 * MAX_CARDS)
_TOTAL: Final = slice(2 * MAX_CARDS, 3 * MAX_CARDS)
_FREE_CARDS: Final = 3 * MAX_CARDS
_LARGEST: Final = 3 * MAX_CARDS + 1
_SUMS: Final = slice(3 * MAX_CARDS + 2, 3 * MAX_CARDS + 4)
_WIDTH: Final = 3 * MAX_CARDS + 4


class CardDemand(NamedTuple):
    """The cards, memory units per card (0: whole cards) and millicores of cpu that pods request."""

    cards: int
    memory: int
    cpu: int = 0


class CardsOfRow(NamedTuple):
    """A node, and its pods with their cards; None stands for unknown cards."""

    node: Node | None
    pods: Iterable[tuple[Pod, Assignment | None]]


class RemainingCards(NamedTuple):
    """The free amounts of cards on some nodes.

    `free` (memory units) and `free_cores` (percent) are int64[row, card]; -1 if a card is unusable.
    `free_cards` is a bit mask of the unused cards for each row.
    """

    free: IntArray
    free_cores: IntArray
    free_cards: IntArray

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """bool[row, card]: True if the card may be used."""
        return self.free >= 0

    @property
    def untouched(self) -> npt.NDArray[np.bool_]:
        """bool[row, card]: True if the card may be used and has no pod."""
        return (self.free_cards[:, None] >> np.arange(MAX_CARDS)) & 1 > 0


class CardOwner(NamedTuple):
    """A pod on cards of a node; `known` is False if the cards are a guess."""

    uid: Uid
    key: str
    request: CardRequest
    cards: Assignment
    known: bool


@dataclass(slots=True)
class _Held:
    """A counted pod: its namespace/name, its request, and its cards if known."""

    key: str
    request: CardRequest
    known: Assignment | None
    demand: CardDemand


class _Row:
    """The cards of a node, its pods, and the amounts used on each card."""

    __slots__ = ("cards", "cores", "elsewhere", "guessed", "held", "used")

    def __init__(self) -> None:
        self.cards = NO_CARDS
        self.held: dict[Uid, _Held] = {}
        self.used = [0] * MAX_CARDS
        self.cores = [0] * MAX_CARDS
        # Pods whose cards are unknown or do not exist on the node; `used` and `cores` omit them.
        self.elsewhere: set[Uid] = set()
        # The cards on which these pods were last counted.
        self.guessed: dict[Uid, Assignment] = {}

    def put_cards(self, cards: NodeCards) -> None:
        """Set the node's cards, and count the pods again."""
        held, self.held = self.held, {}
        self.cards = cards
        self.used, self.cores = [0] * MAX_CARDS, [0] * MAX_CARDS
        self.elsewhere.clear()
        for uid, pod in held.items():
            self.add(uid, pod)

    def add(self, uid: Uid, held: _Held) -> None:
        self.held[uid] = held
        if held.known is None or any(c >= len(self.cards) for cards in held.known for c in cards):
            self.elsewhere.add(uid)
        else:
            _take(held.request, held.known, self.cards, self.used, self.cores, 1)

    def remove(self, uid: Uid) -> _Held:
        held = self.held.pop(uid)
        if uid in self.elsewhere:
            self.elsewhere.discard(uid)
        elif held.known is not None:
            _take(held.request, held.known, self.cards, self.used, self.cores, -1)
        return held

    def books(self, without: Uid | None = None) -> "_Books":
        """Return the counts of the node, as if the pod with the uid `without` were gone."""
        used, cores = self.used.copy(), self.cores.copy()
        held = self.held.get(without) if without is not None else None
        if held is not None and held.known is not None and without not in self.elsewhere:
            _take(held.request, held.known, self.cards, used, cores, -1)
        unusable = _unusable(self.cards, used, cores)
        guessed = {}
        for uid in sorted(self.elsewhere - {without}, key=self._name) if self.elsewhere else ():
            request = self.held[uid].request
            guessed[uid] = _guess(request, self.cards, unusable, used, cores)
        free, free_cores, free_cards = [-1] * MAX_CARDS, [-1] * MAX_CARDS, 0
        for card, total in enumerate(self.cards.memory):
            if card not in unusable:
                free[card] = max(0, total - used[card])
                free_cores[card] = max(0, 100 - cores[card])
                if not used[card] and not cores[card]:
                    free_cards |= 1 << card
        memory = self.cards.memory
        over = [c for c, total in enumerate(memory) if used[c] > total or cores[c] > 100]
        return _Books(free, free_cores, free_cards, guessed, over)

    def _name(self, uid: Uid) -> tuple[str, Uid]:
        # With this sort key, a restart guesses the same cards.
        return self.held[uid].key, uid


class _Books(NamedTuple):
    """The counts of one node."""

    free: list[int]
    free_cores: list[int]
    free_cards: int
    guessed: dict[Uid, Assignment]
    overcommitted: list[int]


class Cards:
    """The cards of all nodes in one format, as arrays [row, card] that callers must not change.

    Memory (int64) is in units of `CardFormat.mib_per_unit` MiB, compute in percent of a card. The
    rows in the argument `uncounted` are counted later; `read` returns a row's node and its pods.
    """

    def __init__(
        self,
        form: CardFormat,
        uncounted: Iterable[int] = (),
        read: Callable[[int], CardsOfRow] = lambda _row: CardsOfRow(None, ()),
    ) -> None:
        self.format = form
        self._uncounted = dict.fromkeys(uncounted)
        self._read = read
        self._rows: dict[int, _Row] = {}
        self._columns = _columns(_FIRST_ROWS)
        self._demand: Counter[CardDemand] = Counter()
        self._typical: Mapping[CardDemand, int] = {}
        self.followed = False
        """Whether `typical` is computed again when pods are placed."""
        self._since_published = 0

    @property
    def typical(self) -> Mapping[CardDemand, int]:
        """The most frequent classes of requests, each with its number of pods.

        It is empty before the first `follow` or `publish`. Reading it may be slow: cards that are
        not counted yet are counted first.
        """
        while self._uncounted:
            self.count_row()
        return self._typical

    @property
    def uncounted(self) -> int:
        """The number of nodes whose cards are not counted yet."""
        return len(self._uncounted)

    def count_row(self) -> None:
        """Count the cards of one node that is not counted yet, if there is one."""
        if self._uncounted:
            self._count_row(next(iter(self._uncounted)))

    def remaining(self, rows: IntArray) -> RemainingCards:
        """Return the free amounts of the cards on these rows' nodes."""
        self._reach(rows)
        columns = self._columns[rows]
        return RemainingCards(columns[:, _FREE], columns[:, _FREE_CORES], columns[:, _FREE_CARDS])

    def remaining_without(self, row: int, uid: Uid) -> RemainingCards:
        """Return the free amounts of the node's cards, as if the pod of this uid were gone."""
        books = self._row(row).books(uid)
        return RemainingCards(
            np.array([books.free], np.int64),
            np.array([books.free_cores], np.int64),
            np.array([books.free_cards], np.int64),
        )

    def free(self, rows: IntArray) -> IntArray:
        """Return int64[row, card]: the free memory; -1 for an unusable or absent card."""
        return self._read_columns(rows, _FREE)

    def free_cards(self, rows: IntArray) -> IntArray:
        """Return int64[row]: bit i is set if card i may be used and has no pod."""
        return self._read_columns(rows, _FREE_CARDS)

    def largest_free(self, rows: IntArray) -> IntArray:
        """Return int64[row]: the most free memory of a card; -1 if no card may be used."""
        return self._read_columns(rows, _LARGEST)

    def sums(self, rows: IntArray) -> IntArray:
        """Return int64[row, 2]: memory and free memory, summed over the cards that may be used."""
        return self._read_columns(rows, _SUMS)

    def total(self, rows: IntArray) -> IntArray:
        """Return int64[row, card]: the card's memory; 0 if unknown or without a card."""
        return self._read_columns(rows, _TOTAL)

    def _read_columns(self, rows: IntArray, part: int | slice) -> IntArray:
        self._reach(rows)
        found: IntArray = self._columns[rows, part]
        return found

    def suitable(self, request: CardRequest, rows: IntArray) -> npt.NDArray[np.bool_] | None:
        """Return bool[row, card]: True for cards of a requested product and size.

        Return None if the request allows all cards.
        """
        if not request.products and not request.least_memory:
            return None
        least = request.least_memory
        fits: npt.NDArray[np.bool_] = self.total(rows) * self.format.mib_per_unit >= least
        if request.products:
            for index, row in enumerate(rows.tolist()):
                for card, product in enumerate(self.known(row).products):
                    fits[index, card] &= product in request.products
        return fits

    def known(self, row: int) -> NodeCards:
        """Return the cards that the row's node publishes."""
        return self._row(row).cards

    def owners(self, row: int) -> Iterator[CardOwner]:
        """Yield the pods on the cards of the row's node, sorted by name."""
        known = self._row(row)
        for uid, held in sorted(known.held.items(), key=lambda entry: (entry[1].key, entry[0])):
            guess = known.guessed.get(uid)
            cards = guess if guess is not None else held.known
            yield CardOwner(uid, held.key, held.request, cards or (), guess is None)

    def overcommitted(self, row: int) -> list[int]:
        """Return the cards of the row's node on which pods take more than the card has."""
        return self._row(row).books().overcommitted

    # What follows is for `CardFormats` alone.

    def put_node(self, row: int, node: Node | None) -> None:
        """Set the cards of a row to the node's cards; a row without a node has no cards.

        Do nothing for a node that is not counted yet.
        """
        if node is None:
            self._uncounted.pop(row, None)  # pods of unknown nodes may be counted there next
        if row not in self._uncounted and self._count_node(row, node):
            self._refresh(row)

    def _count_node(self, row: int, node: Node | None) -> bool:
        """Set the cards of the row's node; return whether its columns are outdated."""
        cards = node_cards(node, self.format) if node is not None else NO_CARDS
        known = self._rows.get(row)
        if known is None:
            if cards is NO_CARDS:
                return False
            known = self._rows[row] = _Row()
        if cards == known.cards:
            return False
        known.put_cards(cards)
        return True

    def put_pod(self, row: int, pod: Pod, known: Assignment | None) -> bool:
        """Count the pod on the row's node, on the cards `known`; return whether counts changed.

        Do nothing while the node is not counted yet.
        """
        if row in self._uncounted:
            return False
        changed = self._count_pod(row, pod, known)
        if changed:
            self._refresh(row)
        return changed

    def _count_pod(self, row: int, pod: Pod, known: Assignment | None) -> bool:
        """Count the pod on the row's node; return whether its columns are outdated."""
        request = _request(pod, self.format)
        if request is None:
            return self._count_no_more(row, pod.uid)
        if known is not None and len(known) != len(request.shares):
            known = None
        there = self._rows.get(row)
        if there is None:
            there = self._rows[row] = _Row()
        before = there.held.get(pod.uid)
        if before is not None:
            if before.request == request and before.known == known:
                return False
            add_count(self._demand, there.remove(pod.uid).demand, -1)
        demand = _class_of(request, pod)
        there.add(pod.uid, _Held(pod.key, request, known, demand))
        add_count(self._demand, demand, 1)
        return True

    def drop_pod(self, row: int, uid: Uid) -> None:
        """Stop counting the pod on the row's node; do nothing if it is not counted."""
        if self._count_no_more(row, uid):
            self._refresh(row)

    def _count_no_more(self, row: int, uid: Uid) -> bool:
        there = self._rows.get(row)
        if there is None or uid not in there.held:
            return False
        add_count(self._demand, there.remove(uid).demand, -1)
        return True

    def publish(self, row: int, uid: Uid) -> bool:
        """Record that the pod was placed; return whether `typical` was computed again."""
        if not self.followed or self._uncounted or uid not in self._row(row).held:
            return False
        self._since_published += 1
        # `typical` changes little until many of the counted pods are new.
        if self._since_published < max(16, sum(self._demand.values()) // 2):
            return False
        self.follow()
        return True

    def follow(self) -> None:
        """Compute the typical requests from all counted pods; later `publish` updates them."""
        self.followed = True
        self._since_published = 0
        self._typical = dict(sorted(self._demand.items(), key=_frequency)[:_MOST_CLASSES])

    def _row(self, row: int) -> _Row:
        if row in self._uncounted:
            self._count_row(row)
        return self._rows.get(row, _NO_ROW)

    def _count_row(self, row: int) -> None:
        del self._uncounted[row]
        node, pods = self._read(row)
        counted = self._count_node(row, node)
        for pod, known in pods:
            counted |= self._count_pod(row, pod, known)
        if counted:
            self._refresh(row)
        if self.followed and not self._uncounted:
            self.follow()

    def _reach(self, rows: IntArray) -> None:
        if self._uncounted:
            for row in filter(self._uncounted.__contains__, rows.tolist()):
                self._count_row(row)
        if len(rows) and int(rows.max()) >= len(self._columns):
            self._grow(int(rows.max()) + 1)

    def _grow(self, rows: int) -> None:
        size = len(self._columns)
        while size < rows:
            size *= 2
        grown = _columns(size)
        grown[: len(self._columns)] = self._columns
        self._columns = grown

    def _refresh(self, row: int) -> None:
        if row >= len(self._columns):
            self._grow(row + 1)
        there = self._rows[row]
        books = there.books()
        there.guessed = books.guessed
        memory = there.cards.memory
        usable = [
            (total, free) for total, free in zip(memory, books.free, strict=False) if free >= 0
        ]
        self._columns[row] = (
            *books.free,
            *books.free_cores,
            *memory,
            *_NONE[len(memory) :],
            books.free_cards,
            max(books.free),
            sum(total for total, _ in usable),
            sum(free for _, free in usable),
        )
        if not there.held and there.cards is NO_CARDS:
            del self._rows[row]


_NO_ROW: Final = _Row()


def _unusable(cards: NodeCards, used: Sequence[int], cores: Sequence[int]) -> frozenset[int]:
    """Return the unhealthy cards; guess the unusable cards whose numbers are unknown."""
    if not cards.unnamed:
        return cards.unhealthy
    remaining = [card for card in range(len(cards)) if card not in cards.unhealthy]
    # Unused cards are preferred.
    remaining.sort(key=lambda card: (used[card] > 0 or cores[card] > 0, -card))
    return cards.unhealthy | frozenset(remaining[: cards.unnamed])


def _columns(rows: int) -> IntArray:
    columns = np.zeros((rows, _WIDTH), np.int64)
    for part in (_FREE, _FREE_CORES, _LARGEST):
        columns[:, part] = -1
    return columns


def _request(pod: Pod, form: CardFormat) -> CardRequest | None:
    try:
        return card_request(pod.spec, form)
    except CardRequestError:
        return None


def _class_of(request: CardRequest, pod: Pod) -> CardDemand:
    cpu = pod.spec.demand.resources.get("cpu", 0)
    if request.whole_cards:
        return CardDemand(request.whole_cards, 0, cpu)
    cards, memory = (sum(s.cards for s in request.shares), max(s.memory for s in request.shares))
    return CardDemand(cards, memory, cpu)


def _frequency(entry: tuple[CardDemand, int]) -> tuple[int, CardDemand]:
    return -entry[1], entry[0]


def _take(
    request: CardRequest,
    assignment: Assignment,
    cards: NodeCards,
    used: list[int],
    cores: list[int],
    times: int,
) -> None:
    for share, numbers in zip(request.shares, assignment, strict=True):
        for card in numbers:
            used[card] += times * share.memory_on(cards.memory[card])
            cores[card] += times * share.cores_on_card


def _guess(
    request: CardRequest,
    cards: NodeCards,
    unhealthy: frozenset[int],
    used: list[int],
    cores: list[int],
) -> Assignment:
    """Guess the cards of a pod without an annotation; add its shares to `used` and `cores`."""
    assignment = []
    usable = [card for card in range(len(cards)) if card not in unhealthy]
    for share in request.shares:

        def remaining(card: int, share: CardShare = share) -> int:
            return cards.memory[card] - used[card] - share.memory_on(cards.memory[card])

        fitting = [
            card
            for card in usable
            if remaining(card) >= 0 and cores[card] + share.cores_on_card <= 100
        ]
        others = [card for card in range(len(cards)) if card not in fitting]
        fitting.sort(key=lambda card: (remaining(card), card))
        others.sort(key=lambda card: (-remaining(card), card))
        # The pod runs on the node anyway. If cards with room are too few, the emptiest others are
        # added.
        chosen = tuple(sorted((*fitting, *others)[: share.cards]))
        for card in chosen:
            used[card] += share.memory_on(cards.memory[card])
            cores[card] += share.cores_on_card
        assignment.append(chosen)
    return tuple(assignment)
