"""Work in slices: a search about a group pauses from time to time, and other tasks run in between.

A search is a generator. Each `yield` is a pause: watches may change the cluster until the search
goes on, so that it leaves no trial open.
"""

from collections.abc import Callable
from typing import Final

from mooring.model.pausing import Pausing, run_whole

__all__ = ["Pausing", "SearchBudget", "run_whole"]

_MOST_STEPS: Final = 3_000
"""What one decision about a group may cost in all its domains, in decisions about one pod."""
_SLICE_SECONDS: Final = 0.03
"""A step over all members of a group of 50,000 may come on top, and takes as long."""


class SearchBudget:
    """How many steps may be taken in all, and for how long (seconds) without a pause.

    A step costs about as much as a decision about one pod. Without a `clock` (seconds), there is no
    pause.
    """

    def __init__(
        self,
        steps: int = _MOST_STEPS,
        clock: Callable[[], float] | None = None,
        slice_seconds: float | None = None,
    ) -> None:
        self.pauses = 0
        """How many pauses there were; other tasks may have changed the cluster in each."""
        self.remaining = steps
        """How many steps may still be taken; negative once more were taken than allowed."""
        self._clock = clock
        self._slice_seconds = _SLICE_SECONDS if slice_seconds is None else slice_seconds
        self._slice_end = self.now() + self._slice_seconds

    @property
    def spent(self) -> bool:
        """Whether more steps were taken than allowed."""
        return self.remaining < 0

    def spend(self, steps: int) -> None:
        """Count steps that were taken."""
        self.remaining -= steps

    @property
    def pause_due(self) -> bool:
        """Whether the present slice has lasted long enough."""
        return self._clock is not None and self._clock() >= self._slice_end

    def now(self) -> float:
        """Return the time in seconds; 0 without a clock."""
        return self._clock() if self._clock is not None else 0.0

    def resumed(self, cost: float = 0.0) -> None:
        """Begin the next slice after a pause.

        It lasts at least as long as what the pause has cost (seconds), so that the work goes on.
        """
        self.pauses += 1
        self._slice_end = self.now() + max(self._slice_seconds, cost)

    def pause(self) -> Pausing[None]:
        """Pause if that is due; to be called where no trial is open."""
        if self.pause_due:
            yield
            self.resumed()
