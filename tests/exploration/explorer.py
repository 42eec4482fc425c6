"""Runs a small world through every order of its actions, the shortest orders first.

A world cannot be copied, because it contains the program's own objects and coroutines. So a state
is the list of actions that lead to it, and taking them in a new world makes the state again. A
state with the fingerprint of an earlier state is not explored further. The search is breadth first,
so it reaches each state by the fewest actions, also the first state that breaks a rule.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

_MOST_KEPT: Final = 1_000
"""Worlds that are kept in the state they are in; each takes some hundred kilobytes."""


class Broken(Exception):  # noqa: N818 - says what happened to a rule
    """A rule is broken in this state; the text names the rule."""


@dataclass(frozen=True, slots=True)
class Action:
    """A possible next action: the method of the world, and its arguments.

    `words` describe the action for people. `own` is True if the scheduler takes it without an event
    from outside.
    """

    words: str
    method: str
    args: tuple[Any, ...] = ()
    own: bool = False


class World(Protocol):
    """A world to explore; equal actions must always lead to equal states."""

    def actions(self) -> Sequence[Action]:
        """Return all actions that are possible now."""

    def take(self, action: Action) -> None:
        """Take the action; raise Broken if this breaks a rule."""

    def fingerprint(self) -> bytes:
        """Return a digest that is equal for states with the same possible future."""

    def check(self) -> None:
        """Raise Broken if a rule is broken now."""

    @property
    def at_rest(self) -> bool:
        """Whether the scheduler has nothing left to do."""

    def close(self) -> None:
        """End all tasks of the world."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, and the shortest sequence of actions that breaks it."""

    rule: str
    actions: tuple[str, ...]

    def __str__(self) -> str:
        steps = [f"{number:3}. {words}" for number, words in enumerate(self.actions, 1)]
        return "\n".join((f"broken: {self.rule}", f"after {len(steps)} actions:", *steps))


@dataclass(slots=True)
class Explored:
    """The result of an exploration; `complete` if no state was too many actions away."""

    states: int = 0
    transitions: int = 0
    at_rest: int = 0
    longest: int = 0
    """The most actions that were needed to reach a state."""
    complete: bool = True
    taken: dict[str, int] = field(default_factory=dict)
    """How often each action was taken."""
    violation: Violation | None = None

    def __str__(self) -> str:
        extent = "all of them" if self.complete else f"those within {self.longest} actions"
        return (
            f"{self.states} states ({extent}), {self.at_rest} of them at rest, "
            f"{self.transitions} transitions, {len(self.taken)} different actions"
        )


@dataclass(slots=True)
class _State:
    """A state, the state before it, and the action between them."""

    number: int
    before: "_State | None"
    action: Action | None
    distance: int
    from_own: list[int] = field(default_factory=list)
    """The states from which the scheduler alone may reach this one in one action."""
    actions: Sequence[Action] = ()
    """What may happen here."""

    @property
    def path(self) -> tuple[Action, ...]:
        """The actions that lead from the beginning to this state."""
        found, state = list[Action](), self
        while state.before is not None and state.action is not None:
            found.append(state.action)
            state = state.before
        return tuple(reversed(found))


def explore(
    new_world: Callable[[], World], *, depth: int | None = None, merge: bool = True
) -> Explored:
    """Explore the world completely, or until a rule is broken; return the result.

    With a `depth`, states that are more actions away are left out. Without `merge`, equal states
    are explored again, to test that fingerprints leave out nothing important.
    """
    with _little_garbage_collection():
        return _Exploration(new_world, depth, merge=merge).run()


class _Exploration:
    def __init__(self, new_world: Callable[[], World], depth: int | None, *, merge: bool) -> None:
        self._new_world = new_world
        self._depth = depth
        self._merge = merge
        self._seen: dict[bytes, _State] = {}
        self._resting: list[_State] = []
        self._waiting: deque[_State] = deque()
        self._kept: dict[int, World] = {}
        """Worlds by the number of the state they are in, which need not be made again."""
        self.explored = Explored()

    def run(self) -> Explored:
        """Explore from each state found so far; return the result."""
        world = self._new_world()
        if not self._arrive(world, None, None):
            world.close()
        while self._waiting and self.explored.violation is None:
            state = self._waiting.popleft()
            if self._depth is not None and state.distance >= self._depth:
                self.explored.complete = False
            else:
                self._go_on_from(state)
        for world in self._kept.values():
            world.close()
        self.explored.states = len(self._seen)
        self.explored.at_rest = len(self._resting)
        if self.explored.complete and self.explored.violation is None:
            self._check_that_work_ends()
        return self.explored

    def _go_on_from(self, state: _State) -> None:
        path, world = state.path, self._kept.pop(state.number, None)
        for action in state.actions:
            if world is None:
                world = self._after(path)
            if not self._take(world, action, state):
                world.close()
            world = None
            if self.explored.violation is not None:
                return
        if world is not None:
            world.close()

    def _after(self, path: Sequence[Action]) -> World:
        world = self._new_world()
        for action in path:
            world.take(action)
        return world

    def _take(self, world: World, action: Action, state: _State) -> bool:
        """Take the action; return whether to keep the world for the next state."""
        counts = self.explored.taken
        counts[action.words] = counts.get(action.words, 0) + 1
        self.explored.transitions += 1
        try:
            world.take(action)
        except Broken as broken:
            self._note(broken, (*state.path, action))
            return False
        return self._arrive(world, state, action)

    def _arrive(self, world: World, before: _State | None, action: Action | None) -> bool:
        """Check a state, unless it is known; return whether to explore from it."""
        fingerprint = world.fingerprint()
        known = self._seen.get(fingerprint)
        if known is not None and before is not None and action is not None and action.own:
            known.from_own.append(before.number)
        if known is not None and self._merge:
            return False
        distance = before.distance + 1 if before is not None else 0
        state = _State(known.number if known else len(self._seen), before, action, distance)
        if known is None:
            self._seen[fingerprint] = state
            if before is not None and action is not None and action.own:
                state.from_own.append(before.number)
        self.explored.longest = distance
        try:
            world.check()
        except Broken as broken:
            self._note(broken, state.path)
            return False
        if world.at_rest and known is None:
            self._resting.append(state)
        state.actions = world.actions()
        self._waiting.append(state)
        if len(self._kept) >= _MOST_KEPT or not self._merge:
            return False
        self._kept[state.number] = world
        return True

    def _note(self, broken: Broken, path: Sequence[Action]) -> None:
        self.explored.violation = Violation(str(broken), tuple(a.words for a in path))

    def _check_that_work_ends(self) -> None:
        """Check that the scheduler can come to rest from each state by its own actions."""
        states = {state.number: state for state in self._seen.values()}
        ends, waiting = {state.number for state in self._resting}, deque(self._resting)
        while waiting:
            for number in waiting.popleft().from_own:
                if number not in ends:
                    ends.add(number)
                    waiting.append(states[number])
        for state in states.values():
            if state.number not in ends:
                self._note(Broken("the scheduler's work never ends from here"), state.path)
                return


@contextmanager
def _little_garbage_collection() -> Iterator[None]:
    """Make garbage collection rare inside, because a world lives only for a millisecond."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
