"""The source of random choices."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw(Random):
    """Random choices that are equal for equal seeds."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)

    def chance(self, probability: float) -> bool:
        """Return True with this probability (0 to 1)."""
        return self.random() < probability

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Return `least` to `most` different options in random order."""
        return self.sample(options, min(self.randint(least, most), len(options)))
