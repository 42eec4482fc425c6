"""Finds nodes for a group's members by counting free resources.

Identical members are one item with a count. Several orders of items are tried, each with several
ways to choose nodes, because no single combination always finds a solution. For small groups an
exact search follows.
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
"""The most tries to pack the items of one domain; then the best try so far is used."""
_MOST_ITEM_TRIES: Final = 1_000
"""The largest product of tries and items: a group with many different items gets fewer tries."""
_MOST_LATER: Final = 16
"""The rule LEAST_WANTED considers at most this number of the items that are placed later."""
_MOST_EXACT_MEMBERS: Final = 16
_MOST_EXACT_ROWS: Final = 32
_MOST_STEPS: Final = 2_000
"""The most steps of the exact search, which then gives up; a step puts one member on a node."""


class Moves(Protocol):
    """The choices of a search by `backtrack`, which handles the members in order, from number 0."""

    def candidates(self, member: int) -> Iterator[int]:
        """Return the nodes to try for the member; all members with a lower number have nodes."""
        ...

    def put(self, member: int, row: int) -> None:
        """Put the member on the node of this row."""
        ...

    def take_back(self) -> None:
        """Remove the member that was put last."""
        ...


def backtrack(members: int, moves: Moves, *budgets: SearchBudget) -> bool:
    """Search for a node for each member by backtracking; return whether all members have a node.

    The search ends early when a budget is used up; members that have a node keep it.
    """
    untried = [moves.candidates(0)]
    """For each member, the rows of nodes that are not tried yet."""
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
    """Identical members, which are packed together.

    Attributes:
        requests: int64[resources]: the requests of one member.
        eligible: bool[rows]: True for nodes where a member may run if enough is free.
        ranked: The rows (int64) of nodes, the best score first.
        fills: True to fill one node after the other; False to use the nodes in turn.
    """

    count: int
    requests: IntArray
    eligible: BoolArray
    ranked: IntArray
    fills: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The result of packing: the try that placed the most members.

    `members` is int64[items, rows]: how many members of each item are on each node. `impossible` is
    True only if the search proved that no solution exists.
    """

    members: IntArray
    tries: int
    complete: bool
    impossible: bool = False

    @property
    def placed(self) -> int:
        """The number of members that have a node."""
        return int(self.members.sum())


class _Choice(Enum):
    """A rule that chooses nodes for an item."""

    BY_SCORE = auto()
    BEST_FIT = auto()
    """Prefer the nodes on which the least resources are left."""
    LEAST_WANTED = auto()
    """Prefer the nodes where the fewest of the later items fit; if equal, choose like BEST_FIT."""
    WORST_FIT = auto()


def pack(items: Sequence[Item], free: IntArray, *, most_tries: int = _MOST_TRIES) -> Packing:
    """Place the members of all items on nodes; `free` is int64[resources, rows].

    Return the first try that places all members, or else the try that places the most.
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
    # A small group gets an exact search.
    if not impossible and wanted <= _MOST_EXACT_MEMBERS:
        found, finished = _exact(items, free)
        if found is not None:
            return Packing(found, tries + 1, complete=True)
        tries, impossible = tries + 1, finished
    return Packing(best.members, tries, complete=False, impossible=impossible)


class Order:
    """An order of items or member classes, as their indices; each failed try changes the order."""

    def __init__(self, items: Sequence[int]) -> None:
        self.items = tuple(items)
        self.seen = {self.items}
        self.exhausted = False

    def failed(self, failed: Sequence[int]) -> None:
        """Move the failed items to the front; set `exhausted` if the new order was tried before."""
        rest = [item for item in self.items if item not in failed]
        self.items = (*failed, *rest)
        self.exhausted = self.items in self.seen
        self.seen.add(self.items)


def _attempts(
    items: Sequence[Item], free: IntArray, *, impossible: bool
) -> Iterator[tuple[Order, _Choice]]:
    """Yield orders and choices to try; the caller tells each Order which items failed."""
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
    if len(items) == 1:
        return [(0,)]
    requests = np.stack([item.requests for item in items])
    total = np.maximum(np.maximum(free, 0).sum(axis=1), 1)
    shares = requests / total
    # The largest items first, by several measures of size.
    keys = [-shares.max(axis=1), -shares.sum(axis=1)]
    keys += [-shares[:, resource] for resource in range(shares.shape[1])]
    # The items with the least spare room first.
    keys.append(np.array([int(_capacity(item, free).sum()) - item.count for item in items]))
    orders = (tuple(np.argsort(key, kind="stable").tolist()) for key in keys)
    return list(dict.fromkeys(orders))


def _capacity(item: Item, free: IntArray) -> IntArray:
    """Return int64[nodes]: how many of the item's members fit on each node."""
    fits = np.full(free.shape[1], item.count, np.int64)
    for resource in np.flatnonzero(item.requests > 0).tolist():
        np.minimum(fits, free[resource] // item.requests[resource], out=fits)
    np.maximum(fits, 0, out=fits)
    fits[~item.eligible] = 0
    return fits


def _is_impossible(items: Sequence[Item], free: IntArray) -> bool:
    """Return whether sums of free amounts prove that some member cannot be placed."""
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
    """Pack the items once. Return `Packing.members`, and the indices of the items that failed."""
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
    taken = np.zeros(len(capacity), np.int64)
    before = np.cumsum(capacity[rows]) - capacity[rows]
    taken[rows] = np.clip(count - before, 0, capacity[rows])
    return taken


def _by_score(item: Item, capacity: IntArray) -> IntArray:
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
    """Return the rows where the item fits, in the order in which to fill them."""
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
    """Try all combinations. Return `Packing.members` or None, and whether the search ended."""
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
    """Puts members on nodes; for each member, tries only one of several interchangeable nodes.

    Nodes are interchangeable if they have equal free amounts and are eligible for the same items.

    Attributes:
        members: For each member, the index of its Item; the members of an Item are neighbours.
        requests: For each Item, what one member requests of each resource.
        remaining: For each node, the free amount of each resource; `row` is an index of this list.
        may: Whether a node is eligible for an Item: `may[row][item]`.
    """

    members: list[int]
    requests: list[list[int]]
    remaining: list[list[int]]
    may: list[list[bool]]
    chosen: list[tuple[int, list[int]]] = field(default_factory=list)
    """For each placed member: `row` of its node, and the amounts that were free there before."""

    def candidates(self, member: int) -> Iterator[int]:
        """Yield the rows where the member fits; members of an Item get rows in ascending order."""
        item, tried = self.members[member], set[tuple[int, ...]]()
        same = member > 0 and self.members[member - 1] == item
        for row in range(self.chosen[-1][0] if same else 0, len(self.remaining)):
            alike = (*self.remaining[row], *self.may[row])
            if alike not in tried and self._fits(item, row):
                tried.add(alike)
                yield row

    def put(self, member: int, row: int) -> None:
        before, requests = self.remaining[row], self.requests[self.members[member]]
        self.remaining[row] = [a - b for a, b in zip(before, requests, strict=True)]
        self.chosen.append((row, before))

    def take_back(self) -> None:
        row, before = self.chosen.pop()
        self.remaining[row] = before

    def _fits(self, item: int, row: int) -> bool:
        amounts = zip(self.requests[item], self.remaining[row], strict=True)
        return self.may[row][item] and all(need <= free for need, free in amounts if need)
