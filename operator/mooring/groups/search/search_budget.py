"""Limits how long a search for a group's nodes may take."""

from collections.abc import Callable
from typing import Final

TURN_SECONDS: Final = 1.0
"""The longest time, in seconds, in which a plan may keep other pods from being scheduled."""
_MOST_STEPS: Final = 3_000
"""The most steps, in all domains together, of a decision about a group; then the decision ends."""


class SearchBudget:
    """The steps that a search may take; a step takes about as long as a decision about one pod.

    `remaining` may become negative. `is_over` says whether the search must end now because other
    pods wait.
    """

    def __init__(
        self, steps: int = _MOST_STEPS, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.remaining = steps
        self._is_over = is_over

    @property
    def spent(self) -> bool:
        """Whether too many steps were taken, or `is_over` says that the search must end."""
        return self.remaining < 0 or self._is_over()

    def spend(self, steps: int) -> None:
        """Subtract steps from the budget."""
        self.remaining -= steps
