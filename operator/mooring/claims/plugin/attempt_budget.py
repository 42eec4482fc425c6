"""Limits the work of searches for devices, on each node and in the whole attempt."""

from dataclasses import dataclass
from typing import Final

from mooring.claims.plugin.allocation_error import AllocationError
from mooring.framework.evaluations import Evaluations

_UNITS_PER_STEP: Final = 40
"""The units of the attempt's budget (`Evaluations`) for one step of a search for devices."""


@dataclass(eq=False, repr=False)
class Budget:
    """Limits the number of steps that searches for devices may take.

    A step is roughly one device that a search examines after its first backtracking.

    Args:
        steps: The limit for all nodes together.
        steps_on_node: The limit for one node.
        least_on_node: The limit for one node once `steps` are used up on other nodes.
        evaluations: The budget for all work of the attempt, which includes the steps; may be None.
    """

    steps: int = 300_000
    steps_on_node: int = 150_000
    least_on_node: int = 0
    evaluations: Evaluations | None = None

    def __post_init__(self) -> None:
        self._left = self._left_before = self.steps
        self._left_on_node = self._steps_on_node = self.steps_on_node

    def begin_node(self) -> None:
        """Set the limit of steps for the search on the next node."""
        self._left_before = self._left
        self._left_on_node = min(self._steps_on_node, max(self._left, self.least_on_node))

    def undo_node(self) -> None:
        """Give back the steps of the current node, because its search will start again."""
        self._left = self._left_before

    def work(self, units: int) -> None:
        """Subtract units of work (see `Evaluations`) from the attempt's budget."""
        if self.evaluations is not None:
            self.evaluations.spend(units)

    def pause(self) -> None:
        """Let other tasks run now and then; raise PluginFailed if the attempt's budget is spent."""
        if self.evaluations is not None:
            self.evaluations.pause("searching for devices for the pod's claims")

    def spend(self, steps: int) -> None:
        """Subtract steps; raise AllocationError if the node has used more steps than its limit."""
        self.work(_UNITS_PER_STEP * steps)
        self._left -= steps
        self._left_on_node -= steps
        if self._left_on_node < 0:
            raise AllocationError(
                "the search for devices takes too many steps: ask for fewer devices, or split up "
                "claims that have several requests with constraints or shared counters",
                on_node=True,
            )
