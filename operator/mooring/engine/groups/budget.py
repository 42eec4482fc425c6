"""How much a search about a group may cost."""

from typing import Final

__all__ = ["SearchBudget"]

_MOST_STEPS: Final = 3_000
"""What one decision about a group may cost in all its domains, in decisions about one pod."""


class SearchBudget:
    """How many steps may be taken in all. A step costs about as much as a decision about one pod.

    `remaining` is how many may still be taken; it is negative once more were taken than allowed.
    """

    def __init__(self, steps: int = _MOST_STEPS) -> None:
        self.remaining = steps

    @property
    def spent(self) -> bool:
        """Whether more steps were taken than allowed."""
        return self.remaining < 0

    def spend(self, steps: int) -> None:
        """Count steps that were taken."""
        self.remaining -= steps
