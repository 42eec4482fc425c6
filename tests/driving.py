"""Run work that pauses from time to time to its end."""

from collections.abc import Callable
from typing import TypeVar

from mooring.engine.groups.slices import Pausing

__all__ = ["driven"]

_Result = TypeVar("_Result")


def driven(
    steps: Pausing[_Result], in_pause: Callable[[], object] = lambda: None
) -> tuple[_Result, int]:
    """Return the result of the steps, and how many pauses there were."""
    results, pauses = list[_Result](), 0

    def kept() -> Pausing[None]:
        results.append((yield from steps))

    for _ in kept():
        pauses += 1
        in_pause()
    return results[0], pauses
