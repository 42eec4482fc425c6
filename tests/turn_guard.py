"""Raises an error if code uses a replica's state while other code that has the turn pauses.

All tests use it, also the simulation. The code that pauses may have a trial open, so other code
would see pods that do not exist. While no work pauses, the guard costs nothing.
"""

import sys
from typing import Any
from weakref import WeakKeyDictionary

from mooring.pausing import Work
from mooring.process.turn import Turn
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.cluster import ClusterState

_turns = WeakKeyDictionary[ClusterState, Turn]()
"""Whose turn it is to use the state of each replica."""
_paused = [0]
"""How many works pause now."""


class NotTheirTurnError(AssertionError):
    """The state was used while another task had the turn."""


def somebody_pauses() -> bool:
    """Return whether work pauses now, so that other code must not use the state."""
    return bool(_paused[0])


def guard_turns() -> None:
    """Check each use of a state from now on."""
    if SchedulerState.__init__.__module__ == __name__:
        return  # already
    make, leave = SchedulerState.__init__, Work[Any].leave

    def made(self: SchedulerState, *args: Any, **named: Any) -> None:
        make(self, *args, **named)
        _turns[self.state] = self.turn

    def leaves(self: Work[Any]) -> None:
        _paused[0] += 1
        if _paused[0] == 1:
            ClusterState.__getattribute__ = _checked  # type: ignore[method-assign, assignment] # looked at
        try:
            leave(self)
        finally:
            _paused[0] -= 1
            if not _paused[0]:
                del ClusterState.__getattribute__

    SchedulerState.__init__ = made  # type: ignore[method-assign] # to know its turn
    Work.leave = leaves  # type: ignore[method-assign] # to know of pauses


def _checked(self: ClusterState, name: str) -> Any:
    turn = _turns.get(self)
    if turn is not None and turn.holder is not None and _by_mooring() and not turn.is_free:
        raise NotTheirTurnError(f"{name} of the state is used in a turn of {turn.holder}")
    return object.__getattribute__(self, name)


def _by_mooring() -> bool:
    """Return whether Mooring's code uses the state now, and not a test."""
    frame = sys._getframe(2)
    while "/mooring/state/" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    return "/operator/mooring/" in frame.f_code.co_filename
