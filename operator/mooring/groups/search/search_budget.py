"""Limits how much a search about a group may cost."""

from collections.abc import Callable
from typing import Final

TURN_SECONDS: Final = 1.0
"""How long a plan may keep the event loop from scheduling other pods."""
_MOST_STEPS: Final = 3_000
"""The most steps of a decision about a group, over all domains."""


class SearchBudget:
    """The steps that a search may take; a step costs about as much as a decision about one pod.

    `remaining` is negative if more steps were taken. `is_over` returns whether the search must end
    now because other pods wait.
    """

    def __init__(
        self, steps: int = _MOST_STEPS, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.remaining = steps
        self._is_over = is_over

    @property
    def spent(self) -> bool:
        """Whether the steps are used up or `is_over` says that the search must end."""
        return self.remaining < 0 or self._is_over()

    def spend(self, steps: int) -> None:
        """Subtract steps from the budget."""
        self.remaining -= steps
