"""The explorer finds broken rules by the shortest path, and reports the states."""

from collections.abc import Sequence

import pytest

from exploration.explorer import Action, Broken, explore


class Counter:
    """A world of two numbers; the scheduler lowers the first, an outside action raises both."""

    most = 3
    forbidden: tuple[int, int] | None = None
    gets_stuck_at: int | None = None

    def __init__(self) -> None:
        self.left = self.right = 0
        self.raises = 0

    def actions(self) -> Sequence[Action]:
        found = []
        if self.raises < self.most:
            found += [
                Action("left goes up", "up", ("left",)),
                Action("right goes up", "up", ("right",)),
            ]
            found += [Action("both go up", "both")]
        if self.left:
            found.append(Action("left goes down", "down", own=True))
        return found

    def take(self, action: Action) -> None:
        getattr(self, action.method)(*action.args)

    def up(self, which: str) -> None:
        self.raises += 1
        setattr(self, which, getattr(self, which) + 1)

    def both(self) -> None:
        self.raises += 1
        self.left, self.right = self.left + 1, self.right + 1

    def down(self) -> None:
        if self.left != self.gets_stuck_at:
            self.left -= 1

    def fingerprint(self) -> bytes:
        return f"{self.left} {self.right} {self.raises}".encode()

    def check(self) -> None:
        if (self.left, self.right) == self.forbidden:
            raise Broken("the numbers are forbidden")

    @property
    def at_rest(self) -> bool:
        return not self.left

    def close(self) -> None: ...


def test_all_states_are_seen_and_each_is_gone_on_from_once() -> None:
    explored = explore(Counter)
    expected = {
        (left - down, right, raises)
        for raises in range(4)
        for left in range(raises + 1)
        for right in range(raises + 1)
        for down in range(left + 1)
        if left + right >= raises
    }
    assert explored.states == len(expected)
    assert explored.at_rest == len({state for state in expected if not state[0]})
    assert explored.complete
    assert explored.violation is None
    assert explored.transitions == sum(explored.taken.values())


def test_what_is_broken_is_told_by_the_shortest_way() -> None:
    class Forbidden(Counter):
        forbidden = (2, 3)

    violation = explore(Forbidden).violation
    assert violation is not None
    assert sorted(violation.actions) == ["both go up", "both go up", "right goes up"]
    assert str(violation).splitlines() == [
        "broken: the numbers are forbidden",
        "after 3 actions:",
        *(f"{number:3}. {words}" for number, words in enumerate(violation.actions, 1)),
    ]


def test_work_that_never_ends_is_found() -> None:
    class Stuck(Counter):
        gets_stuck_at = 2

    violation = explore(Stuck).violation
    assert violation is not None
    assert violation.rule == "the scheduler's work never ends from here"
    assert len(violation.actions) == 2


@pytest.mark.parametrize("depth", [1, 3])
def test_states_that_are_too_far_away_are_left_out(depth: int) -> None:
    explored = explore(Counter, depth=depth)
    assert not explored.complete
    assert explored.longest == depth
    assert explored.states < explore(Counter).states


def test_without_merging_each_way_to_a_state_is_gone() -> None:
    merged, every = explore(Counter, depth=3), explore(Counter, depth=3, merge=False)
    assert every.states == merged.states
    assert every.transitions > merged.transitions
