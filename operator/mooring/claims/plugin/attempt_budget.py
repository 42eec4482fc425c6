"""Limits the work of searches for devices, on each node and in the whole attempt."""

from dataclasses import dataclass
from typing import Final

from mooring.claims.plugin.allocation_error import AllocationError
from mooring.framework.evaluations import Evaluations

_UNITS_PER_STEP: Final = 40
"""The cost of a step, in the units of `Evaluations`."""


@dataclass(eq=False, repr=False)
class Budget:
    """The work that may be spent on searches that do not succeed at once.

    A step is a candidate that the search tries after it has given back a device. So a search that
    succeeds without going back costs nothing.

    Args:
        steps: The limit for all nodes together.
        steps_on_node: The limit for one node.
        least_on_node: The limit for one node after `steps` are used up.
        evaluations: The budget of the attempt, which pays for steps too; None: no limit.
    """

    steps: int = 300_000
    steps_on_node: int = 150_000
    least_on_node: int = 0
    evaluations: Evaluations | None = None

    def __post_init__(self) -> None:
        self._left = self._left_before = self.steps
        self._left_on_node = self._steps_on_node = self.steps_on_node

    def begin_node(self) -> None:
        """Begin to count the steps on the next node."""
        self._left_before = self._left
        self._left_on_node = min(self._steps_on_node, max(self._left, self.least_on_node))

    def undo_node(self) -> None:
        """Forget the steps on this node, because its search starts again."""
        self._left = self._left_before

    def work(self, units: int) -> None:
        """Charge the attempt with work; `units` are those of `Evaluations`."""
        if self.evaluations is not None:
            self.evaluations.spend(units)

    def pause(self) -> None:
        """Let other tasks run, if it is time for this; PluginFailed if the budget is used up."""
        if self.evaluations is not None:
            self.evaluations.pause("searching for devices for the pod's claims")

    def spend(self, steps: int) -> None:
        """Count the steps; AllocationError if this exceeds the limit for the node."""
        self.work(_UNITS_PER_STEP * steps)
        self._left -= steps
        self._left_on_node -= steps
        if self._left_on_node < 0:
            raise AllocationError(
                "the search for devices takes too many steps: ask for fewer devices, or split up "
                "claims that have several requests with constraints or shared counters",
                on_node=True,
            )
