"""Backtracking over rows, on which a few members of different size fit."""

from collections.abc import Iterator
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.groups.backtracking import backtrack
from mooring.engine.groups.budget import SearchBudget


class Sizes:
    """Members of these sizes, and what is free on each row."""

    def __init__(self, sizes: list[int], free: list[int]) -> None:
        self.sizes = sizes
        self.free = free
        self.rows: list[int] = []

    def candidates(self, member: int) -> Iterator[int]:
        """Return the rows on which the member fits."""
        return iter([row for row, free in enumerate(self.free) if self.sizes[member] <= free])

    def put(self, member: int, row: int) -> None:
        """Take the member's size from the row."""
        self.free[row] -= self.sizes[member]
        self.rows.append(row)

    def take_back(self) -> None:
        """Undo the last `put`."""
        row = self.rows.pop()
        self.free[row] += self.sizes[len(self.rows)]


def fits(sizes: list[int], free: list[int]) -> bool:
    """Return whether any choice of rows has enough for all, by trying every one."""
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
