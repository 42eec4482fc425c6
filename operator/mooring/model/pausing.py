"""Work with pauses: a generator that yields where other work may run, and returns its result."""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Final, TypeAlias, TypeVar

__all__ = ["ITEMS_PER_STEP", "Pausing", "collected", "run_whole", "timed"]

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

Pausing: TypeAlias = Generator[None, None, _Result]
"""Work with pauses, and its result."""

ITEMS_PER_STEP: Final = 500
"""Work on so many parts of a pod takes 1 to 3 ms."""


def run_whole(steps: Pausing[_Result]) -> _Result:
    """Return the result of work, with nothing done in its pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: _Result = ended.value
            return result


def collected(items: Iterable[_Item]) -> Pausing[tuple[_Item, ...]]:
    """Return all items, each of which takes work to make; pause after each few hundred."""
    left, found = iter(items), list[_Item]()
    while some := tuple(islice(left, ITEMS_PER_STEP)):
        if len(some) < ITEMS_PER_STEP:
            return (*found, *some) if found else some
        found += some
        yield
    return tuple(found)


def timed(steps: Pausing[_Result], clock: Callable[[], float]) -> Pausing[tuple[_Result, float]]:
    """Return the result of work, and the seconds by the clock that it has taken but for pauses."""
    worked = 0.0
    while True:
        began = clock()
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, worked + clock() - began
        worked += clock() - began
        yield
