"""Finds nodes for members of a group by counting free resources, without a decision per member.

Identical members are one item with a number. All items are known in advance, so several orders and
several ways to choose nodes are tried: one order may find a solution that another misses. Small
groups get an exact search at the end. All of it is arithmetic on columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, Protocol

import numpy as np

from mooring.groups.search.search_budget import SearchBudget
from mooring.pausing import pause
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

_MOST_TRIES: Final = 32
"""Orders and ways to choose nodes that are tried for one group in one domain."""
_MOST_ITEM_TRIES: Final = 1_000
"""Tries times items: with many different items there are fewer tries."""
_MOST_LATER: Final = 16
"""Later items for which a row is left free with LEAST_WANTED."""
_MOST_EXACT_MEMBERS: Final = 16
_MOST_EXACT_ROWS: Final = 32
_MOST_STEPS: Final = 2_000
"""Members that the exact search puts on a node before it gives up; a step takes microseconds."""


class Moves(Protocol):
    """The operations of `backtrack` on members, which are numbered from 0 on."""

    def candidates(self, member: int) -> Iterator[int]:
        """Return the rows to try for the member, with the earlier members on their rows."""
        ...

    def put(self, member: int, row: int) -> None:
        """Put the member on the row."""
        ...

    def take_back(self) -> None:
        """Take the last member that was put somewhere from its row."""
        ...


def backtrack(members: int, moves: Moves, *budgets: SearchBudget) -> bool:
    """Search a row for every member; return whether all were placed. Placed members stay.

    It may pause after each member that is put on a row, which costs one step of each budget. When a
    budget is spent, it stops.
    """
    untried = [moves.candidates(0)]
    """By member the rows that were not tried yet."""
    while untried:
        row = next(untried[-1], None)
        if row is None:
            untried.pop()
            if untried:
                moves.take_back()
            continue
        for budget in budgets:
            budget.spend(1)
        if any(budget.spent for budget in budgets):
            return False
        moves.put(len(untried) - 1, row)
        if len(untried) == members:
            return True
        pause()
        untried.append(moves.candidates(len(untried)))
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """`count` identical members.

    `requests` is int64[resources], `eligible` bool[rows]: where a member may be if enough is free.
    `ranked` are the rows (int64) that the profile's scores prefer, best first. With `fills`, a node
    that got a member is preferred for the next one, else the other nodes are.
    """

    count: int
    requests: IntArray
    eligible: BoolArray
    ranked: IntArray
    fills: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The placement of the most members in one try.

    `members` is int64[items, rows]: the members of each item on each row. `complete` says that all
    are placed, and `impossible` that no placement of all members exists.
    """

    members: IntArray
    tries: int
    complete: bool
    impossible: bool = False

    @property
    def placed(self) -> int:
        """How many members are placed."""
        return int(self.members.sum())


class _Choice(Enum):
    """How the rows for an item are chosen."""

    BY_SCORE = auto()
    BEST_FIT = auto()
    """Least is left free on the row."""
    LEAST_WANTED = auto()
    """The fewest other items fit on the row, then least is left free."""
    WORST_FIT = auto()


def pack(items: Sequence[Item], free: IntArray, *, most_tries: int = _MOST_TRIES) -> Packing:
    """Put the members of all items on rows with these free amounts (int64[resources, rows]).

    If not all of them can be placed, or are not within the tries, as many as one try could place.
    There are pauses between tries.
    """
    first = tuple(range(len(items)))
    if len(items) > 1:
        first = _starting_orders(items, free)[0]
    members, failed = _try(items, free, first, _Choice.BY_SCORE)
    best, tries = Packing(members, 1, complete=not failed), 1
    if best.complete or len(items) == 1:
        # Equal members that do not fit one way do not fit in any.
        return replace(best, impossible=not best.complete)
    impossible = _is_impossible(items, free)
    most_tries = min(most_tries, max(_MOST_ITEM_TRIES // len(items), 2))
    wanted = sum(item.count for item in items)
    for order, choice in _attempts(items, free, impossible=impossible):
        if tries >= most_tries:
            break
        pause()
        tries += 1
        members, failed = _try(items, free, order.items, choice)
        if not failed:
            return Packing(members, tries, complete=True)
        if int(members.sum()) > best.placed:
            best = Packing(members, tries, complete=False)
        order.failed(failed)
    if not impossible and wanted <= _MOST_EXACT_MEMBERS:
        found, finished = _exact(items, free)
        if found is not None:
            return Packing(found, tries + 1, complete=True)
        tries, impossible = tries + 1, finished
    return Packing(best.members, tries, complete=False, impossible=impossible)


class Order:
    """The order of the items of one series of tries; items that fail move ahead."""

    def __init__(self, items: Sequence[int]) -> None:
        self.items = tuple(items)
        self.seen = {self.items}
        self.exhausted = False

    def failed(self, failed: Sequence[int]) -> None:
        """Move the failed items ahead; `exhausted` is True if this order was tried already."""
        rest = [item for item in self.items if item not in failed]
        self.items = (*failed, *rest)
        self.exhausted = self.items in self.seen
        self.seen.add(self.items)


def _attempts(
    items: Sequence[Item], free: IntArray, *, impossible: bool
) -> Iterator[tuple[Order, _Choice]]:
    """Return the orders and choices to try; each order changes with the items that failed in it."""
    starts = _starting_orders(items, free)
    if impossible:  # only a part can be placed: the smallest members first give the largest part
        yield Order(starts[0][::-1]), _Choice.BEST_FIT
        return
    for choice in (_Choice.BEST_FIT, _Choice.LEAST_WANTED, _Choice.WORST_FIT, _Choice.BY_SCORE):
        for start in starts:
            order = Order(start)
            for _ in range(len(items) + 1):
                yield order, choice
                if order.exhausted:
                    break
    yield Order(starts[0][::-1]), _Choice.BEST_FIT


def _starting_orders(items: Sequence[Item], free: IntArray) -> list[tuple[int, ...]]:
    """Return orders: the largest first, by each measure; and the least space to spare first.

    The space to spare of an item is how many more members than its count fit on all rows.
    """
    if len(items) == 1:
        return [(0,)]
    requests = np.stack([item.requests for item in items])
    total = np.maximum(np.maximum(free, 0).sum(axis=1), 1)
    shares = requests / total
    keys = [-shares.max(axis=1), -shares.sum(axis=1)]
    keys += [-shares[:, resource] for resource in range(shares.shape[1])]
    keys.append(np.array([int(_capacity(item, free).sum()) - item.count for item in items]))
    orders = (tuple(np.argsort(key, kind="stable").tolist()) for key in keys)
    return list(dict.fromkeys(orders))


def _capacity(item: Item, free: IntArray) -> IntArray:
    """Return how many members of the item fit on each row: int64[rows]."""
    fits = np.full(free.shape[1], item.count, np.int64)
    for resource in np.flatnonzero(item.requests > 0).tolist():
        np.minimum(fits, free[resource] // item.requests[resource], out=fits)
    np.maximum(fits, 0, out=fits)
    fits[~item.eligible] = 0
    return fits


def _is_impossible(items: Sequence[Item], free: IntArray) -> bool:
    """Return whether an item has too little space alone, or all request more than is free.

    That is on the rows that any of them may use. An item whose members do not request a resource
    does not count for it.
    """
    if any(int(_capacity(item, free).sum()) < item.count for item in items):
        return True
    for resource in range(free.shape[0]):
        asking = [item for item in items if item.requests[resource] > 0]
        if asking:
            usable = np.logical_or.reduce([item.eligible for item in asking])
            requested = sum(item.count * int(item.requests[resource]) for item in asking)
            if requested > int(np.maximum(free[resource][usable], 0).sum()):
                return True
    return False


def _try(
    items: Sequence[Item], free: IntArray, order: Sequence[int], choice: _Choice
) -> tuple[IntArray, list[int]]:
    """Return int64[items, rows] of one try, and the items that were not placed completely."""
    remaining = free.copy()
    members = np.zeros((len(items), free.shape[1]), np.int64)
    failed: list[int] = []
    for position, index in enumerate(order):
        item = items[index]
        capacity = _capacity(item, remaining)
        if choice is _Choice.BY_SCORE:
            taken = _by_score(item, capacity)
        else:
            later = [items[other] for other in order[position + 1 :][:_MOST_LATER]]
            rows = _by_fit(item, remaining, capacity, later, choice)
            taken = _filled(rows, capacity, item.count)
        members[index] = taken
        remaining -= np.outer(item.requests, taken)
        if int(taken.sum()) < item.count:
            failed.append(index)
    return members, failed


def _filled(rows: IntArray, capacity: IntArray, count: int) -> IntArray:
    """Return the members when rows are filled one after the other: int64[rows of the table]."""
    taken = np.zeros(len(capacity), np.int64)
    before = np.cumsum(capacity[rows]) - capacity[rows]
    taken[rows] = np.clip(count - before, 0, capacity[rows])
    return taken


def _by_score(item: Item, capacity: IntArray) -> IntArray:
    """Put the members on the rows that scores prefer: fill each, or give one to each in turn."""
    rows = item.ranked
    if item.fills:
        return _filled(rows, capacity, item.count)
    taken = np.zeros(len(capacity), np.int64)
    remaining = item.count
    while remaining:
        rows = rows[capacity[rows] > taken[rows]]
        if not len(rows):
            break
        # As many whole rounds as every row can take part in, at least one round.
        rounds = max(min(remaining // len(rows), int((capacity[rows] - taken[rows]).min())), 1)
        now = rows[:remaining]
        given = rounds if len(now) == len(rows) else 1
        taken[now] += given
        remaining -= given * len(now)
    return taken


def _by_fit(
    item: Item, remaining: IntArray, capacity: IntArray, later: Sequence[Item], choice: _Choice
) -> IntArray:
    """Return the rows on which the item fits, in the order of filling."""
    rows = np.flatnonzero(capacity)
    scale = np.maximum(remaining.max(axis=1, initial=1), 1)
    wanted = item.requests > 0
    after = remaining[:, rows] - np.outer(item.requests, np.minimum(capacity[rows], item.count))
    slack = (after[wanted] / scale[wanted, None]).sum(axis=0)
    if choice is _Choice.WORST_FIT:
        return rows[np.argsort(-slack, kind="stable")]
    if choice is _Choice.BEST_FIT or not later:
        return rows[np.argsort(slack, kind="stable")]
    others = np.zeros(len(rows), np.int64)
    for other in later:
        others += _capacity(other, remaining)[rows] > 0
    return rows[np.lexsort((slack, others))]


def _exact(items: Sequence[Item], free: IntArray) -> tuple[IntArray | None, bool]:
    """Return a placement of all members by backtracking, and whether the search ended."""
    eligible = np.stack([item.eligible for item in items])
    rows = np.flatnonzero(eligible.any(axis=0))
    if len(rows) > _MOST_EXACT_ROWS:
        return None, False
    order = _starting_orders(items, free)[0]
    moves = _Moves(
        [index for index in order for _ in range(items[index].count)],
        [item.requests.tolist() for item in items],
        [free[:, row].tolist() for row in rows.tolist()],
        eligible[:, rows].T.tolist(),
    )
    steps = SearchBudget(_MOST_STEPS)
    if not backtrack(len(moves.members), moves, steps):
        return None, not steps.spent
    found = np.zeros((len(items), free.shape[1]), np.int64)
    for item, (row, _) in zip(moves.members, moves.chosen, strict=True):
        found[item, rows[row]] += 1
    return found, True


@dataclass(slots=True, eq=False)
class _Moves:
    """Puts members on rows; rows that are alike and equal members are not tried twice.

    `members` has the item of each member, equal ones side by side; `requests` has the requests of
    an item, `remaining` the free amounts of a row, `may` whether a row is eligible for an item.
    """

    members: list[int]
    requests: list[list[int]]
    remaining: list[list[int]]
    may: list[list[bool]]
    chosen: list[tuple[int, list[int]]] = field(default_factory=list)
    """The row of each member, and the free amounts there before it."""

    def candidates(self, member: int) -> Iterator[int]:
        """Return the rows on which the member fits; an equal one is on none of those before."""
        item, tried = self.members[member], set[tuple[int, ...]]()
        same = member > 0 and self.members[member - 1] == item
        for row in range(self.chosen[-1][0] if same else 0, len(self.remaining)):
            alike = (*self.remaining[row], *self.may[row])
            if alike not in tried and self._fits(item, row):
                tried.add(alike)
                yield row

    def put(self, member: int, row: int) -> None:
        """Subtract the member's requests from the row's free amounts."""
        before, requests = self.remaining[row], self.requests[self.members[member]]
        self.remaining[row] = [a - b for a, b in zip(before, requests, strict=True)]
        self.chosen.append((row, before))

    def take_back(self) -> None:
        """Undo the last `put`."""
        row, before = self.chosen.pop()
        self.remaining[row] = before

    def _fits(self, item: int, row: int) -> bool:
        amounts = zip(self.requests[item], self.remaining[row], strict=True)
        return self.may[row][item] and all(need <= free for need, free in amounts if need)
