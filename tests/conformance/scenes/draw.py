"""A source of choices."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw(Random):
    """Random choices that are the same again for the same seed."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)

    def chance(self, probability: float) -> bool:
        """Return True as often as `probability` (0 to 1) says."""
        return self.random() < probability

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Return from `least` to `most` different options, at most all, in any order."""
        return self.sample(options, min(self.randint(least, most), len(options)))
