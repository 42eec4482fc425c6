"""Packs members by counting, in several orders; proves that some groups cannot fit."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.groups.search.member_packing import Item, Order, Packing, backtrack, pack
from mooring.groups.search.search_budget import SearchBudget


def item(
    count: int, *requests: int, on: list[int] | None = None, rows: int, fills: bool = False
) -> Item:
    eligible = np.zeros(rows, np.bool_)
    eligible[list(range(rows)) if on is None else on] = True
    ranked = np.flatnonzero(eligible)
    return Item(count, np.array(requests, np.int64), eligible, ranked, fills)


def free(*rows: tuple[int, ...]) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    return np.array(rows, np.int64).T.reshape(len(rows[0]), len(rows))


def test_a_large_member_gets_its_node_before_the_small_ones_that_scores_would_put_there() -> None:
    rows = free((7,), (8,))
    packing = pack([item(8, 1, rows=2), item(1, 7, rows=2)], rows)
    assert packing.complete
    assert (packing.members.T @ [1, 7]).tolist() == [7, 8]


def test_equal_members_are_spread_over_the_rows_that_scores_prefer() -> None:
    rows = free((5,), (5,), (5,))
    assert pack([item(4, 1, rows=3)], rows).members.tolist() == [[2, 1, 1]]


def test_equal_members_fill_one_node_after_the_other_where_scores_prefer_full_nodes() -> None:
    rows = free((5,), (5,), (5,))
    assert pack([item(7, 1, rows=3, fills=True)], rows).members.tolist() == [[5, 2, 0]]


def test_thousands_of_equal_members_are_one_try() -> None:
    rows = free(*[(7,)] * 500)
    packing = pack([item(3_000, 1, rows=500)], rows)
    assert (packing.complete, packing.tries, packing.placed) == (True, 1, 3_000)


def test_what_all_members_request_more_than_is_free_is_impossible() -> None:
    packing = pack([item(2, 3, rows=2), item(2, 2, rows=2)], free((5,), (4,)))
    assert packing.impossible
    assert not packing.complete


def test_a_row_that_no_member_may_use_does_not_count_as_free() -> None:
    packing = pack([item(2, 3, on=[0], rows=2), item(1, 3, on=[0], rows=2)], free((8,), (90,)))
    assert packing.impossible


def test_as_many_members_as_one_try_can_place_are_placed_where_not_all_fit() -> None:
    packing = pack([item(1, 5, rows=1), item(4, 1, rows=1)], free((5,)))
    assert packing.members.tolist() == [[0], [4]]


def test_a_search_that_is_cut_off_does_not_say_that_nothing_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.groups.search.member_packing._MOST_STEPS", 0)
    items = [item(1, amount, rows=2) for amount in (4, 3, 2)]
    packing = pack(items, free((5,), (4,)), most_tries=1)
    assert not packing.complete
    assert not packing.impossible


def test_a_negative_amount_of_what_a_member_does_not_request_is_no_obstacle() -> None:
    rows = free((5, -3), (1, 4))
    assert pack([item(1, 5, 0, rows=2), item(1, 1, 1, rows=2)], rows).complete


def test_an_item_that_failed_comes_first_in_the_next_try() -> None:
    order = Order((0, 1, 2))
    order.failed([2])
    assert order.items == (2, 0, 1)
    assert not order.exhausted
    order.failed([0])
    order.failed([1])
    order.failed([2])
    order.failed([0])
    order.failed([1])
    assert order.exhausted


def exists(items: list[Item], rows: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> bool:
    """Return whether a placement of all members exists, by trying every placement."""
    members = [i for i in items for _ in range(i.count)]

    @cache
    def place(position: int, left: tuple[tuple[int, ...], ...]) -> bool:
        if position == len(members):
            return True
        member = members[position]
        for row, amounts in enumerate(left):
            after = tuple(int(a - r) for a, r in zip(amounts, member.requests, strict=True))
            fits = all(a >= 0 or not r for a, r in zip(after, member.requests, strict=True))
            if member.eligible[row] and fits:
                others = (*left[:row], after, *left[row + 1 :])
                if place(position + 1, others):
                    return True
        return False

    return place(0, tuple(tuple(column) for column in rows.T.tolist()))


def planted(
    rng: random.Random,
) -> tuple[list[Item], "np.ndarray[tuple[int, int], np.dtype[np.int64]]"]:
    """Return items and the free amounts of rows: the items fit, or nearly fit."""
    rows, kinds = rng.randint(2, 5), rng.randint(1, 4)
    requests = [(rng.randint(1, 7), rng.randint(0, 7), 1) for _ in range(kinds)]
    on = [[r for r in range(rows) if rng.random() < 0.8] or [0] for _ in range(kinds)]
    counts, amounts = [0] * kinds, np.zeros((3, rows), np.int64)
    for _ in range(rng.randint(2, 9)):
        kind = rng.randrange(kinds)
        counts[kind] += 1
        amounts[:, rng.choice(on[kind])] += requests[kind]
    amounts += np.array([[rng.choice((-1, 0, 0, 0, 1)) for _ in range(rows)] for _ in range(3)])
    items = [
        item(counts[k], *requests[k], on=on[k], rows=rows, fills=rng.random() < 0.5)
        for k in range(kinds)
        if counts[k]
    ]
    return items, amounts


def is_right(items: list[Item], rows: object, packing: Packing) -> bool:
    left = np.array(rows, np.int64)
    for of, members in zip(items, packing.members, strict=True):
        if members[~of.eligible].any() or int(members.sum()) > of.count or (members < 0).any():
            return False
        left = left - np.outer(of.requests, members)
    used = sum(np.outer(of.requests, m) for of, m in zip(items, packing.members, strict=True))
    return bool(((left >= 0) | (used == 0)).all())


def test_what_fits_is_found_and_what_is_said_to_be_impossible_is() -> None:
    rng = random.Random(7)  # noqa: S311 - has to be repeatable
    for _ in range(400):
        items, rows = planted(rng)
        packing = pack(items, rows)
        assert is_right(items, rows, packing)
        feasible = exists(items, rows)
        assert packing.complete == feasible
        assert packing.impossible != feasible


def test_without_the_exact_search_orders_alone_find_nine_of_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.groups.search.member_packing._MOST_EXACT_MEMBERS", 0)
    rng, feasible, found = random.Random(8), 0, 0  # noqa: S311 - has to be repeatable
    for _ in range(400):
        items, rows = planted(rng)
        if exists(items, rows):
            feasible += 1
            found += pack(items, rows).complete
    assert found >= 0.9 * feasible
    assert feasible > 80


class Sizes:
    """Implements `Moves` for members with these sizes and rows with these free amounts."""

    def __init__(self, sizes: list[int], free: list[int]) -> None:
        self.sizes = sizes
        self.free = free
        self.rows: list[int] = []

    def candidates(self, member: int) -> Iterator[int]:
        return iter([row for row, free in enumerate(self.free) if self.sizes[member] <= free])

    def put(self, member: int, row: int) -> None:
        """Subtract the member's size from the row's free amount."""
        self.free[row] -= self.sizes[member]
        self.rows.append(row)

    def take_back(self) -> None:
        """Undo the last `put`."""
        row = self.rows.pop()
        self.free[row] += self.sizes[len(self.rows)]


def fits(sizes: list[int], free: list[int]) -> bool:
    """Return whether the sizes fit into the free amounts, by trying every choice of rows."""
    return any(
        all(
            sum(size for size, at in zip(sizes, rows, strict=True) if at == row) <= amount
            for row, amount in enumerate(free)
        )
        for rows in product(range(len(free)), repeat=len(sizes))
    )


SMALL = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(SMALL, SMALL)
def test_rows_for_all_members_are_found_if_there_are_any(sizes: list[int], free: list[int]) -> None:
    moves = Sizes(sizes, [*free])
    found = backtrack(len(sizes), moves, SearchBudget())
    assert found is fits(sizes, free)
    assert len(moves.rows) == (len(sizes) if found else 0)
    assert all(amount >= 0 for amount in moves.free)


def test_nothing_more_is_tried_once_a_budget_is_spent() -> None:
    moves = Sizes([1, 1, 1], [3])
    assert not backtrack(3, moves, SearchBudget(), SearchBudget(2))
    assert moves.rows == [0, 0]
