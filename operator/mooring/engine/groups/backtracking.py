"""Places every member of a small group by trying one row after the other, and taking back."""

from collections.abc import Iterator
from typing import Protocol

from mooring.engine.groups.budget import SearchBudget
from mooring.pausing import pause

__all__ = ["Moves", "backtrack"]


class Moves(Protocol):
    """What `backtrack` does to members, which are numbered from 0 on."""

    def candidates(self, member: int) -> Iterator[int]:
        """Return the rows to try for the member, beside those before it on their rows."""
        ...

    def put(self, member: int, row: int) -> None:
        """Put the member on the row."""
        ...

    def take_back(self) -> None:
        """Take the last member that was put somewhere from its row."""
        ...


def backtrack(members: int, moves: Moves, *budgets: SearchBudget) -> bool:
    """Return whether a row was found for every member; those that were found stay put.

    It may pause after each member that is put on a row, which costs one step of each budget. Once
    one of them is spent, nothing more is tried.
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
